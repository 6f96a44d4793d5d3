//! Virtual clocks of streams over one server, as the flash operation group paper has them.
//!
//! Each stream's clock `v` runs by the service that it is charged, divided by its weight. The system's
//! clock is the smallest of the streams that have something waiting; it never runs backwards, and a
//! stream that comes back from idleness is lifted to it. `docs/reference/dispatch.md` section 5 is the state machine;
//! `waiting` is its `nq`.

use super::{Stream, Weight};
use crate::clock::Duration;
use crate::request::TenantId;
use alloc::vec::Vec;

/// The clocks of all streams, in nanoseconds at weight 1, times 1024.
#[derive(Debug)]
pub(super) struct Clocks {
    streams: Vec<Clock>,
    system: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    weight: Weight,
    /// Virtual time: what the next operation would start at.
    v: i64,
    waiting: u32,
    /// Busy periods that began with a lift.
    epoch: u32,
    /// What `v` would be without the last lift, and what it was lifted to.
    raw: i64,
    base: i64,
}

/// What the clocks show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The stream's virtual time in nanoseconds at weight 1, times 1024.
    pub stream: i64,
    /// The system's, as it was when it was needed last.
    pub system: i64,
}

/// The busy period in which an operation was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(u32);

impl Clocks {
    pub(super) fn new(streams: &[Stream]) -> Self {
        let clock = |stream: &Stream| Clock { weight: stream.weight, ..Clock::default() };
        Self { streams: streams.iter().map(clock).collect(), system: 0 }
    }

    /// Clocks of the same weights, which have not run.
    pub(super) fn anew(&self) -> Self {
        let clock = |clock: &Clock| Clock { weight: clock.weight, ..Clock::default() };
        Self { streams: self.streams.iter().map(clock).collect(), system: 0 }
    }

    fn clock(&mut self, stream: TenantId) -> &mut Clock {
        if self.streams.len() <= stream.index() {
            self.streams.resize(stream.index() + 1, Clock::default());
        }
        &mut self.streams[stream.index()]
    }

    /// The stream's virtual time.
    pub(super) fn v(&self, stream: TenantId) -> i64 {
        self.streams.get(stream.index()).map_or(0, |clock| clock.v)
    }

    /// The system's virtual time, as it was when it was needed last.
    pub(super) const fn system(&self) -> i64 {
        self.system
    }

    pub(super) fn reading(&self, stream: TenantId) -> Reading {
        Reading { stream: self.v(stream), system: self.system }
    }

    pub(super) fn set_weight(&mut self, stream: TenantId, weight: Weight) {
        self.clock(stream).weight = weight;
    }

    /// An operation of the stream waits. After idleness the stream is lifted to the system's time, less
    /// a credit.
    pub(super) fn enter(&mut self, stream: TenantId, credit: Duration) {
        self.lift(stream, credit);
        self.clock(stream).waiting += 1;
    }

    /// Lifts a stream that has nothing waiting to the system's time, less a credit.
    pub(super) fn lift(&mut self, stream: TenantId, credit: Duration) {
        if self.clock(stream).waiting > 0 {
            return;
        }
        self.advance();
        let system = self.system;
        let clock = self.clock(stream);
        let floor = system.saturating_sub(cost(clock.weight, credit));
        if clock.v < floor {
            (clock.raw, clock.base) = (clock.v, floor);
            clock.v = floor;
            clock.epoch = clock.epoch.wrapping_add(1);
        }
    }

    /// The system's time is at least this, whichever streams have operations queued.
    pub(super) fn pass(&mut self, system: i64) {
        self.system = self.system.max(system);
    }

    /// An operation of the stream does not wait any more.
    pub(super) fn leave(&mut self, stream: TenantId) {
        let waiting = self.clock(stream).waiting;
        assert!(waiting > 0, "an operation left a stream that had none");
        if waiting == 1 {
            self.advance();
        }
        self.clock(stream).waiting = waiting - 1;
    }

    /// Charges the stream a nominal time. The answer is for [`settle`](Self::settle).
    pub(super) fn charge(&mut self, stream: TenantId, nominal: Duration) -> Epoch {
        let clock = self.clock(stream);
        let v = clock.v.saturating_add(cost(clock.weight, nominal));
        assert!(v >= clock.v, "a charge moved a stream's virtual time backwards");
        clock.v = v;
        Epoch(clock.epoch)
    }

    /// Charges the stream the actual instead of the nominal time. If it has been lifted since, a refund
    /// does not take it below the lift, and a surcharge counts only as far as it exceeds the lift.
    pub(super) fn settle(
        &mut self,
        stream: TenantId,
        Epoch(epoch): Epoch,
        nominal: Duration,
        actual: Duration,
    ) {
        let clock = self.clock(stream);
        // Two divisions: what the stream is charged in the end is exactly the cost of the actual time.
        let more = cost(clock.weight, actual) - cost(clock.weight, nominal);
        if epoch == clock.epoch {
            clock.v = clock.v.saturating_add(more);
        } else if epoch == clock.epoch.wrapping_sub(1) {
            let old = clock.raw.max(clock.base);
            clock.raw = clock.raw.saturating_add(more);
            clock.v = clock.v.saturating_add(clock.raw.max(clock.base) - old);
        }
    }

    /// Brings the system's time up to the slowest stream that has something waiting.
    fn advance(&mut self) {
        let waiting = self.streams.iter().filter(|clock| clock.waiting > 0);
        if let Some(least) = waiting.map(|clock| clock.v).min() {
            self.system = self.system.max(least);
        }
        if self.system >= REBASE {
            self.rebase();
        }
    }

    /// Lets the system's time be zero. Differences stay, but for streams that have been away for years.
    fn rebase(&mut self) {
        let back = core::mem::take(&mut self.system);
        for clock in &mut self.streams {
            for time in [&mut clock.v, &mut clock.raw, &mut clock.base] {
                *time = (*time - back).max(-REBASE);
            }
        }
    }
}

/// `time / weight`, in virtual time.
fn cost(weight: Weight, time: Duration) -> i64 {
    let capped = time.as_nanos().min(LONGEST.as_nanos());
    ((capped << 20) / u64::from(weight.as_1024ths())).cast_signed()
}

/// The system's time goes back to zero here: three days of one backend at weight 1.
const REBASE: i64 = 1 << 58;

/// No operation is charged more: a quarter of an hour.
const LONGEST: Duration = Duration::from_nanos(1 << 38);

#[cfg(test)]
mod tests {
    use super::*;

    const A: TenantId = TenantId::new(0);
    const B: TenantId = TenantId::new(1);
    const MS: Duration = Duration::from_millis(1);
    /// A millisecond at weight 1.
    const TICK: i64 = 1_000_000 << 10;

    fn weights(weights: &[u32]) -> Clocks {
        let stream = |&parts| Stream {
            weight: Weight::from_1024ths(parts * 1_024).unwrap(),
            background: false,
        };
        Clocks::new(&weights.iter().map(stream).collect::<Vec<_>>())
    }

    /// B works alone for 5 ms while A waits to return: A starts where B is. The refund of an operation
    /// that A sent before it went idle is not paid out on top, and a surcharge is not taken twice.
    #[test]
    fn a_return_is_paid_once() {
        for (nominal, actual, expected) in [(2, 1, 5), (2, 4, 5), (2, 9, 9)] {
            let mut clocks = weights(&[1, 1]);
            let time = Duration::from_millis;
            clocks.enter(A, Duration::ZERO);
            clocks.leave(A);
            let sent = clocks.charge(A, time(nominal));
            clocks.enter(B, Duration::ZERO);
            clocks.enter(B, Duration::ZERO);
            clocks.leave(B);
            clocks.charge(B, time(5));
            clocks.enter(A, Duration::ZERO);
            assert_eq!(clocks.v(A), 5 * TICK, "lifted to B");
            clocks.settle(A, sent, time(nominal), time(actual));
            assert_eq!(clocks.v(A), expected * TICK, "{nominal} {actual}");
        }
    }

    /// A correction within a busy period ends at exactly the cost of the actual time, at any weight.
    #[test]
    fn corrections_telescope() {
        let mut clocks = weights(&[3]);
        for (nominal, actual) in [(7, 1), (1, 1_000_003), (999_999, 10)] {
            let before = clocks.v(A);
            let time = Duration::from_nanos;
            let sent = clocks.charge(A, time(nominal));
            clocks.settle(A, sent, time(nominal), time(actual));
            assert_eq!(clocks.v(A) - before, ((actual << 20) / 3_072).cast_signed());
        }
    }

    /// When the system's time starts again, differences between streams stay as they are.
    #[test]
    fn a_new_zero_changes_no_order() {
        let mut clocks = weights(&[1, 1]);
        clocks.enter(A, Duration::ZERO);
        clocks.enter(B, Duration::ZERO);
        let longest = LONGEST;
        while clocks.system() + 4 * (longest.as_nanos() << 10).cast_signed() < REBASE {
            for stream in [A, B] {
                clocks.charge(stream, longest);
            }
            clocks.advance();
        }
        clocks.charge(B, MS);
        let apart = clocks.v(B) - clocks.v(A);
        for _ in 0..8 {
            clocks.charge(A, longest);
            clocks.charge(B, longest);
            clocks.advance();
        }
        assert!(clocks.system() < REBASE / 2, "it started again");
        assert_eq!(clocks.v(B) - clocks.v(A), apart);
    }

    /// An operation that does not wait cannot stop waiting.
    #[test]
    #[should_panic(expected = "that had none")]
    fn only_what_waits_leaves() {
        weights(&[1]).leave(A);
    }
}
