//! Admission to the log: the writes that wait for room, and how fast they are let in.
//!
//! | fill | |
//! |---|---|
//! | below 75 % | no wait |
//! | 75 to 95 % | a quantum of the waiting writes, then none for `bytes / drain rate * (fill - 75) / (95 - fill)`: half way, what comes in is as much as goes out |
//! | above 95 % | nothing new; what has begun continues while there is room at all |
//!
//! A quantum is what write-back frees in 1/16 s, or one write if that is longer. It is one batch of the log: writes that
//! were let in one by one would each have a commit and a page of the log to themselves, just when both are scarce.
//! A host with one outstanding write has quanta of one write, so it is not stopped for a whole quantum.
//!
//! The curve is that of the write throttle of `OpenZFS` (`dmu_tx_delay`), with the measured rate in place of
//! a constant. No quantum waits for more than [`PACE_MAX`] because of the one before it. Flushes never
//! come here.

use super::effect::{FULL, Kind, Origin, PACE};
use super::width::Width;
use crate::clock::{Duration, Instant};
use crate::policy::Rule;
use crate::request::RequestKey;
use crate::units::Extent;
use alloc::collections::VecDeque;

/// A write that is not, or not all, in the log.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) key: RequestKey,
    pub(super) kind: Kind,
    pub(super) extent: Extent,
    pub(super) fua: bool,
    pub(super) who: Origin,
    pub(super) arrived: Instant,
    /// Its place among arrivals and acknowledgements.
    pub(super) event: u64,
    /// How many bytes of it are in the log.
    pub(super) done: u64,
    /// What held it last.
    pub(super) held: Option<Rule>,
}

/// The next part of a write, which is in the log now.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// The write, as it was before.
    pub(super) of: Waiting,
    /// Bytes of the volume that the part changes.
    pub(super) extent: Extent,
    /// More of the write follows.
    pub(super) more: bool,
}

/// The queue and its pace.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    queue: VecDeque<Waiting>,
    /// While the log fills, the next write may go now.
    next: Instant,
    /// Bytes of log that write-back frees in a second.
    rate: u64,
    /// Since when, and how many bytes, for the next measurement.
    measured: Option<(Instant, u64)>,
    /// Whether observers were last told that the log is full.
    full_reported: bool,
    /// Writes that were answered with `Busy`.
    busy: u64,
    /// What the first batch of an epoch waits for.
    pub(super) width: Width,
}

impl Admission {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            next: Instant::ZERO,
            rate: 0,
            measured: None,
            full_reported: false,
            busy: 0,
            width: Width::default(),
        }
    }

    /// A write has come that waits behind all others, while this number is being committed.
    pub(super) fn push(&mut self, write: Waiting, committing: usize) {
        assert!(
            self.queue.back().is_none_or(|last| last.event < write.event),
            "writes wait in the order of their arrival: {write:?}"
        );
        self.width.arrived(write.arrived, self.queue.len() + 1 + committing);
        self.queue.push_back(write);
    }

    /// The first write that is not, or not all, in the log.
    pub(super) fn front(&self) -> Option<&Waiting> {
        self.queue.front()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many writes were answered with `Busy`.
    pub(super) const fn busy(&self) -> u64 {
        self.busy
    }

    /// Whether a part of the first write is in the log.
    pub(super) fn is_partial(&self) -> bool {
        self.queue.front().is_some_and(|first| first.done > 0)
    }

    /// Takes the next `take` bytes of the first write into the log.
    pub(super) fn take(&mut self, take: u64) -> Piece {
        let first = self.queue.front_mut().expect("a write waits");
        let left = first.extent.length - first.done;
        assert!(0 < take && take <= left, "a part of a write is logged: {take} of {left} bytes");
        let of = first.clone();
        let extent = Extent::new(of.extent.offset + of.done, take);
        first.done += take;
        let more = first.done < of.extent.length;
        if !more {
            self.queue.pop_front();
        }
        Piece { of, extent, more }
    }

    /// Takes out all that waits.
    pub(super) fn take_all(&mut self) -> VecDeque<Waiting> {
        core::mem::take(&mut self.queue)
    }

    /// The first write is held by this rule.
    pub(super) fn hold(&mut self, rule: Rule) {
        if let Some(first) = self.queue.front_mut() {
            first.held = Some(rule);
        }
    }

    /// Takes out the next write that has waited for `hold` and has not begun.
    pub(super) fn expire(&mut self, now: Instant, hold: Duration) -> Option<Waiting> {
        let from = usize::from(self.is_partial());
        let late = self.queue.get(from).is_some_and(|one| now >= one.arrived + hold);
        if !late {
            return None;
        }
        self.busy += 1;
        self.queue.remove(from)
    }

    /// Whether the log has become full, or is no longer, since this was asked last.
    pub(super) fn full_changed(&mut self) -> Option<bool> {
        let full = self.queue.front().is_some_and(|first| first.held == Some(FULL));
        let changed = full != self.full_reported;
        self.full_reported = full;
        changed.then_some(full)
    }

    /// When the first write that has not begun has waited for `hold`, or with `open` the pace lets the first go, or it has
    /// waited for others.
    pub(super) fn deadline(&self, hold: Duration, open: bool) -> Option<Instant> {
        let first = self.queue.front()?;
        let waiting = self.queue.get(usize::from(self.is_partial()));
        let late = waiting.map(|one| one.arrived + hold);
        let pace = (first.held == Some(PACE)).then_some(self.next);
        late.into_iter().chain(self.width.until().or(pace).filter(|_| open)).min()
    }

    /// Whether write-back frees this much within half a second, or it is not known.
    pub(super) const fn catches_up(&self, behind: u64) -> bool {
        self.rate == 0 || behind <= self.rate / 2
    }

    /// The bytes in a second that the pace is made of. A log that is to be emptied takes a low rate as it is.
    fn pace(&self, lowers: bool) -> u64 {
        if lowers && self.rate > 0 { self.rate } else { self.rate.max(RATE_MIN) }
    }

    /// How many bytes the next batch may take from the queue at this fill, or what holds back the first write. With
    /// `lowers` the log is to be emptied: half of what write-back frees is admitted, whatever the fill is.
    pub(super) fn quantum(&self, now: Instant, fill: u32, lowers: bool) -> Result<u64, Rule> {
        match fill {
            FILL_HELD.. => Err(FULL),
            _ if !is_paced(fill, lowers) => Ok(u64::MAX),
            _ if now < self.next => Err(PACE),
            _ => Ok((self.pace(lowers) / QUANTA).max(1)),
        }
    }

    /// `bytes` have gone to the log at this fill.
    pub(super) fn took(&mut self, now: Instant, (fill, lowers): (u32, bool), bytes: u64) {
        if !is_paced(fill, lowers) {
            self.next = now;
            return;
        }
        let (over, left) = if lowers {
            (2, 1)
        } else {
            (u128::from(fill - FILL_PACED), u128::from(FILL_HELD.saturating_sub(fill).max(1)))
        };
        let rate = u128::from(self.pace(lowers));
        let nanos = u128::from(bytes) * 1_000_000_000 * over / left / rate;
        let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(PACE_MAX);
        self.next = self.next.max(now) + wait;
        self.next = self.next.min(now + PACE_MAX);
    }

    /// Write-back begins after a time without work, or has freed `bytes` of log.
    pub(super) fn freed(&mut self, now: Instant, bytes: u64) {
        let (since, sum) = self.measured.unwrap_or((now, 0));
        let (spent, sum) = (now.saturating_since(since), sum + bytes);
        if spent < MEASURED_MIN {
            self.measured = Some((since, sum));
            return;
        }
        let rate = u128::from(sum) * 1_000_000_000 / u128::from(spent.as_nanos());
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        self.rate = if self.rate == 0 { rate } else { self.rate - self.rate / 4 + rate / 4 };
        self.measured = Some((now, 0));
    }

    /// There is nothing to write back: the time until there is does not count.
    pub(super) fn idle(&mut self) {
        self.measured = None;
    }

    /// Bytes of log that write-back frees in a second; 0 if that is not known.
    pub(super) const fn rate(&self) -> u64 {
        self.rate
    }
}

/// From here on admission is paced, in thousandths.
pub(super) const FILL_PACED: u32 = 750;

/// From here on nothing new is admitted.
pub(super) const FILL_HELD: u32 = 950;

/// Whether writes are paced at this fill.
const fn is_paced(fill: u32, lowers: bool) -> bool {
    lowers || fill >= FILL_PACED
}

/// Quanta in what write-back frees in a second: with four times the wait of an even pace a quantum still comes within
/// [`PACE_MAX`].
const QUANTA: u64 = 16;

/// The longest wait because of one quantum.
const PACE_MAX: Duration = Duration::from_millis(250);

/// What is taken for the rate while a lower one, or none, was measured: 1 MiB/s.
const RATE_MIN: u64 = 1 << 20;

/// How long the rate is measured at least.
const MEASURED_MIN: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    fn write() -> Waiting {
        Waiting {
            key: RequestKey::default(),
            kind: Kind::Zero,
            extent: Extent::new(512, 1024),
            fua: false,
            who: Origin::default(),
            arrived: Instant::ZERO,
            event: 1,
            done: 0,
            held: None,
        }
    }

    fn waiting() -> Admission {
        let mut admission = Admission::new();
        admission.push(write(), 0);
        admission
    }

    /// A write behind one that arrived later would be logged too late: it is noticed.
    #[test]
    #[should_panic(expected = "in the order of their arrival")]
    fn writes_wait_in_order() {
        waiting().push(write(), 0);
    }

    /// The parts of a write are next to each other, and the last one ends it.
    #[test]
    fn a_write_is_taken_in_parts() {
        let mut admission = waiting();
        let first = admission.take(512);
        assert!(first.more && admission.is_partial() && first.extent == Extent::new(512, 512));
        let last = admission.take(512);
        assert!(!last.more && admission.is_empty() && last.extent == Extent::new(1024, 512));
    }

    /// A part that ends behind its write would log bytes that no host has sent.
    #[test]
    #[should_panic(expected = "a part of a write is logged")]
    fn a_part_is_inside_its_write() {
        waiting().take(1536);
    }
}
