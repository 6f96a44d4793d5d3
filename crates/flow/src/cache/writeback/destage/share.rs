//! The share of the upstream that write-back takes while hosts read there.
//!
//! Write-back goes in bursts. A burst is what is sent at once; the next begins `gap` after its beginning:
//!
//! | | |
//! |---|---|
//! | `least`  | the shortest time of a burst or flush lately: the round trip; every 10 s three bursts are single pages, to find it out |
//! | `way`    | as often `least` as a burst of no length would take, judging by those of [`SMALL`] and of twice that: a target that requests the data of larger writes (R2T) adds a round trip; `least` if no write of the burst has [`SMALL`] |
//! | `extra`  | what a burst took above `way`: how long it kept the upstream from others; of bursts that are half as long as they may be, since the rest of an epoch can be so short that `extra` is nothing but noise |
//! | burst    | as many bytes as make `extra` 3/10 of `least`; half as many again if the epoch ends with them, since its rest would take one more round trip; a write counts as [`SMALL`] at least |
//! | `use`    | how much of the upstream's time hosts' reads take: their bytes, each read as [`SMALL`] at least, at the price of `extra` |
//! | `times`  | write-back has one part in `times` of what the upstream carries: half of what reads leave, an eighth at least; half or more when data is older than `dirty_age`; from half of the log on it falls to 1 at 75 % |
//! | `gap`    | `extra * times`, a quarter of `least` at least: on a remote upstream a burst begins before the last one is answered, up to [`OVERLAP`] of them |
//!
//! Why bursts: a read that arrives during a burst waits for it, however seldom there is one. So the length of a
//! burst determines the slowest reads, and the gap only the mean. Remote upstreams carry several writes at the
//! price of one, which is why the round trip is no part of the price; on a disk, where every write costs, bursts
//! become single writes, and `gap` is longer than a burst takes. `extra` is the least of eight bursts, for its
//! size: what delayed one of them was not the burst. Until it is known, while the round trip is measured, and where
//! a burst is a single small write, one burst ends before the next begins: then `gap` is from `1 + times / 32` to
//! `times` times what the burst took.
//!
//! Source: spec of write-back 4.3 (a tenth of the bandwidth at least beside reads, reads first otherwise) and
//! 5.1 (more from half of the log on). Cost: O(1) for each write. Not for an upstream whose fastest answers come
//! from its cache: there `least` is too short, and write-back gets the lower end, one part in `times` of
//! the time.

use super::super::admission::FILL_PACED;
use crate::clock::{Duration, Instant};
use alloc::collections::VecDeque;

/// The bursts of one volume.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Bytes that a burst may have.
    burst: u64,
    /// Bursts that are left, with those in flight, to measure the round trip.
    probes: u32,
    /// Those in flight, the oldest first.
    bursts: VecDeque<Burst>,
    last: BurstId,
    /// When the next one may begin, and the bytes that it may have.
    next: Instant,
    next_most: u64,
    /// One part in how many of what the upstream carries is for write-back.
    times: u64,
    reads: Reads,
    /// The shortest times, of this period and of the one before.
    least: [Option<Duration>; 2],
    /// The same of bursts of just [`SMALL`], and of twice that.
    sized: [[Option<Duration>; 2]; 2],
    period: Instant,
    /// What a MiB costs, in nanoseconds: the least of the last round, and of this one, with its number of bursts.
    cost: Option<u64>,
    lowest: u64,
    measured: u32,
    /// Bursts, since the last one that was measured, that were too short for it.
    short: u32,
    /// A burst may begin before the last has ended.
    parallel: bool,
}

/// Names a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BurstId(u64);

/// A burst in flight: bytes as they count, and may count at most, and as they are, the longest write, writes that have not ended, when the first
/// was sent.
#[derive(Clone, Copy, Debug)]
struct Burst {
    id: BurstId,
    used: u64,
    most: u64,
    bytes: u64,
    longest: u64,
    out: u32,
    sent: Option<Instant>,
}

/// Bytes of hosts' reads upstream, as they count: of this window and of the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    bytes: [u64; 2],
    since: Instant,
}

impl Share {
    pub(crate) fn new() -> Self {
        Self {
            burst: START,
            probes: PROBES,
            bursts: VecDeque::new(),
            last: BurstId(0),
            next: Instant::ZERO,
            next_most: 0,
            times: TIMES,
            reads: Reads::default(),
            least: [None; 2],
            sized: [[None; 2]; 2],
            period: Instant::ZERO,
            cost: None,
            lowest: u64::MAX,
            measured: 0,
            short: 0,
            parallel: false,
        }
    }

    /// Hosts have begun to read `bytes` bytes upstream, in `count` reads.
    pub(crate) fn read(&mut self, count: u64, bytes: u64) {
        self.reads.bytes[0] += bytes.max(count * SMALL);
    }

    /// Begins another window of reads if that is due.
    pub(crate) fn pass(&mut self, now: Instant) {
        if now >= self.reads.since + WINDOW {
            self.reads = Reads { bytes: [0, self.reads.bytes[0]], since: now };
        }
    }

    /// How much write-back may have now, at this fill of the log in thousandths; `old`: its data is too old.
    pub(crate) fn adjust(&mut self, now: Instant, fill: u32, old: bool) {
        self.pass(now);
        let elapsed = now.saturating_since(self.reads.since) + WINDOW;
        let busy = self.cost.map_or(elapsed.as_nanos(), |cost| {
            scaled(self.reads.bytes.iter().sum(), cost, MIB).min(elapsed.as_nanos())
        });
        // Half of what is left is one part in twice as many.
        let idle = (elapsed.as_nanos() - busy).max(1);
        let times = (2 * elapsed.as_nanos()).div_ceil(idle);
        self.times = times.min(parts(fill, old));
    }

    /// Whether a burst may begin before the last has ended: its price is known, and the upstream carries several
    /// writes at once.
    const fn overlaps(&self) -> bool {
        self.probes == 0 && self.parallel
    }

    /// Bytes of the next burst.
    const fn size(&self) -> u64 {
        match self.probes.div_ceil(PROBES_EACH) {
            0 => self.burst,
            1 => 2 * SMALL,
            2 => SMALL,
            _ => PROBE,
        }
    }

    /// The burst that more writes may join.
    fn open(&self, now: Instant) -> Option<&Burst> {
        self.bursts.back().filter(|burst| burst.out > 0 && (!self.overlaps() || now < self.next))
    }

    /// How many bytes the next write may have; 0 if there may be none now. `rest` says how many bytes the epoch still has,
    /// as they count, or any number above its argument if that is less.
    pub(crate) fn allows(&mut self, now: Instant, rest: impl FnOnce(u64) -> u64) -> u64 {
        let in_flight = if self.overlaps() { OVERLAP } else { 1 };
        if let Some(burst) = self.open(now) {
            // A write counts as `SMALL` at least.
            return burst.most.checked_sub(burst.used).filter(|&left| left >= SMALL).unwrap_or(0);
        }
        if now < self.next || self.bursts.len() >= in_flight {
            return 0;
        }
        let size = self.size();
        let longer = if self.probes == 0 { size + size / 2 } else { size };
        let rest = rest(longer);
        self.next_most = if rest <= longer { rest.max(size) } else { size };
        self.next_most
    }

    /// When the next burst may begin, if none is in flight.
    pub(crate) const fn next(&self) -> Instant {
        self.next
    }

    /// When the next burst may begin although others are in flight.
    pub(crate) fn next_overlapping(&self) -> Option<Instant> {
        (self.overlaps() && self.bursts.len() < OVERLAP).then_some(self.next)
    }

    /// A write of `bytes` bytes belongs to this burst.
    pub(crate) fn began(&mut self, now: Instant, bytes: u64) -> BurstId {
        if self.open(now).is_none() {
            self.last = BurstId(self.last.0 + 1);
            let (id, most) = (self.last, self.next_most);
            let burst = Burst { id, used: 0, most, bytes: 0, longest: 0, out: 0, sent: None };
            self.bursts.push_back(burst);
            self.next = now;
        }
        let extra = self.cost.filter(|_| self.overlaps());
        let least = self.least();
        let burst = self.bursts.back_mut().expect("one was begun");
        burst.out += 1;
        burst.used += bytes.max(SMALL);
        burst.bytes += bytes;
        burst.longest = burst.longest.max(bytes);
        let id = burst.id;
        if let Some(cost) = extra {
            let add = scaled(cost, bytes.max(SMALL), MIB).saturating_mul(self.times);
            let gap = Duration::from_nanos(add.min(GAP_MAX.as_nanos()));
            let quarter = Duration::from_nanos(least.as_nanos() / OVERLAP as u64);
            self.next = (self.next + gap).max(now + quarter);
        }
        id
    }

    /// A write of a burst is sent.
    pub(crate) fn sent(&mut self, now: Instant, id: BurstId) {
        self.of(id).sent.get_or_insert(now);
    }

    fn of(&mut self, id: BurstId) -> &mut Burst {
        let burst = self.bursts.iter_mut().find(|burst| burst.id == id);
        burst.expect("a write of a burst ends once")
    }

    /// A flush, which is always alone, took so long.
    pub(crate) fn flushed(&mut self, now: Instant, took: Duration) {
        lower(&mut self.least, took);
        if self.bursts.is_empty() {
            self.start_period(now);
        }
    }

    /// A write of a burst has ended; `most` bytes are the most that a burst may have.
    pub(crate) fn ended(&mut self, now: Instant, id: BurstId, most: u64) {
        let burst = self.of(id);
        burst.out -= 1;
        if burst.out > 0 {
            return;
        }
        let burst = *burst;
        self.bursts.retain(|one| one.id != id);
        let Some(sent) = burst.sent else { return };
        let took = now.saturating_since(sent);
        lower(&mut self.least, took);
        for (twice, times) in (1..).zip(&mut self.sized) {
            if burst.bytes == twice * SMALL && burst.used == burst.bytes {
                lower(times, took);
            }
        }
        let overlapped = self.overlaps();
        match self.probes.checked_sub(1) {
            Some(left) => self.probes = left,
            None => self.learn(took, &burst, most),
        }
        self.start_period(now);
        if overlapped {
            return;
        }
        let extra = self.cost.unwrap_or(if self.measured > 0 { self.lowest } else { 0 });
        let took = took.as_nanos();
        let (low, high) = (took + took / 32 * self.times, took.saturating_mul(self.times));
        let gap = scaled(extra, burst.used, MIB).saturating_mul(self.times).min(high).max(low);
        self.next = sent + Duration::from_nanos(gap.min(took + GAP_MAX.as_nanos()));
    }

    /// From the times that the bursts of a round took, how long those of the next may be. A single small one
    /// takes `least`, be the upstream far or slow: so that size is left seldom, to see what two take.
    fn learn(&mut self, took: Duration, &Burst { used, longest, .. }: &Burst, most: u64) {
        if used < self.burst / 2 {
            self.short += 1;
            if self.short >= ROUND_SMALL {
                // Epochs are as short as that: what may be sent at once follows them, and they are measured.
                (self.burst, self.short) = ((self.burst / 2).max(2 * SMALL), 0);
            }
            return;
        }
        self.short = 0;
        let way = if longest < SMALL { self.least() } else { self.way() }.as_nanos();
        self.lowest = self.lowest.min(scaled(took.as_nanos().saturating_sub(way), MIB, used));
        self.measured += 1;
        if self.measured < if self.burst > SMALL { ROUND } else { ROUND_SMALL } {
            return;
        }
        let several = self.burst > SMALL;
        let wanted = scaled(self.least().as_nanos() * 3 / 10, MIB, self.lowest.max(1));
        self.burst = wanted.clamp(self.burst / 2, self.burst * 2).clamp(SMALL, most.max(SMALL));
        self.parallel = several && self.burst > SMALL;
        self.cost = Some(self.lowest);
        (self.lowest, self.measured) = (u64::MAX, 0);
    }

    /// The shortest times are those of the last two periods, so that they follow an upstream that moves away.
    fn start_period(&mut self, now: Instant) {
        if now >= self.period + PERIOD {
            self.period = now;
            self.least = [None, self.least[0]];
            self.sized = self.sized.map(|times| [None, times[0]]);
            self.probes = PROBES;
        }
    }

    fn least(&self) -> Duration {
        shortest(&self.least).unwrap_or(Duration::ZERO)
    }

    fn way(&self) -> Duration {
        let [Some(one), Some(two)] = self.sized.each_ref().map(shortest) else {
            return self.least();
        };
        let least = self.least().as_nanos().max(1);
        let none = (2 * one.as_nanos()).saturating_sub(two.as_nanos());
        // Twice what is late in `one`, and what is late in `two`, would be in this: `least` is known better.
        let trips = ((none + least / 2) / least).max(1);
        Duration::from_nanos((trips * least).min(one.as_nanos())).max(self.least())
    }
}

fn lower(times: &mut [Option<Duration>; 2], took: Duration) {
    times[0] = Some(times[0].map_or(took, |least| least.min(took)));
}

fn shortest(times: &[Option<Duration>; 2]) -> Option<Duration> {
    times.iter().flatten().copied().min()
}

/// One part in how many of what the upstream carries is for write-back, at this fill of the log in thousandths,
/// however busy reads keep the upstream.
fn parts(fill: u32, old: bool) -> u64 {
    let left = u64::from(FILL_PACED.saturating_sub(fill).min(FILL_RISES));
    let parts = (TIMES * left).div_ceil(u64::from(FILL_RISES)).max(1);
    if old { parts.min(OLD) } else { parts }
}

fn scaled(value: u64, by: u64, over: u64) -> u64 {
    let product = u128::from(value) * u128::from(by) / u128::from(over.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// See the head of this file.
const TIMES: u64 = 8;
const OLD: u64 = 2;

/// Thousandths below [`FILL_PACED`] from which write-back gets more.
const FILL_RISES: u32 = 250;

/// What a write counts as at least, in bytes; the smallest burst.
pub(crate) const SMALL: u64 = 16 << 10;

/// What is sent to find out how far the upstream is: a few of these, of [`SMALL`], and of twice that.
const PROBE: u64 = 4 << 10;
const PROBES_EACH: u32 = 3;
const PROBES: u32 = 3 * PROBES_EACH;

/// The first burst.
const START: u64 = 32 << 10;

/// Most bursts in flight.
const OVERLAP: usize = 4;

/// How many bursts are a round; and while they are the smallest.
const ROUND: u32 = 8;
const ROUND_SMALL: u32 = 32;

/// How long the shortest time is remembered, once or twice.
const PERIOD: Duration = Duration::from_secs(10);

/// How long reads are counted, once or twice.
const WINDOW: Duration = Duration::from_millis(500);

/// The longest rest.
const GAP_MAX: Duration = Duration::from_secs(1);

const MIB: u64 = 1 << 20;

#[cfg(test)]
mod tests;
