//! The share of the upstream that write-back takes while hosts read there.
//!
//! Write-back goes in bursts. A burst is what is sent at once; the next begins `gap` after its beginning:
//!
//! | | |
//! |---|---|
//! | `least`  | the shortest time of a burst or flush lately: the round trip; every 10 s three bursts are single pages, to find it out |
//! | `way`    | `least`, or the time that a burst of no length would take, judging by those of [`SMALL`] and of twice that: a target that requests the data of larger writes (R2T) adds a round trip |
//! | `extra`  | what a burst took above `way`: how long it kept the upstream from others |
//! | burst    | as many bytes as make `extra` 2/5 of `least`; a write counts as [`SMALL`] at least |
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
    /// When the next one may begin.
    next: Instant,
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
    /// A burst may begin before the last has ended.
    parallel: bool,
}

/// Names a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BurstId(u64);

/// A burst in flight: bytes as they count, and as they are, writes that have not ended, when the first was sent.
#[derive(Clone, Copy, Debug)]
struct Burst {
    id: BurstId,
    used: u64,
    bytes: u64,
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
            times: TIMES,
            reads: Reads::default(),
            least: [None; 2],
            sized: [[None; 2]; 2],
            period: Instant::ZERO,
            cost: None,
            lowest: u64::MAX,
            measured: 0,
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

    /// How many bytes the next write may have; 0 if there may be none now.
    pub(crate) fn allows(&self, now: Instant) -> u64 {
        let most = if self.overlaps() { OVERLAP } else { 1 };
        match self.open(now) {
            // A write counts as `SMALL` at least.
            Some(burst) => {
                self.size().checked_sub(burst.used).filter(|&left| left >= SMALL).unwrap_or(0)
            }
            None if now < self.next || self.bursts.len() >= most => 0,
            None => self.size(),
        }
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
            let burst = Burst { id: self.last, used: 0, bytes: 0, out: 0, sent: None };
            self.bursts.push_back(burst);
            self.next = now;
        }
        let extra = self.cost.filter(|_| self.overlaps());
        let least = self.least();
        let burst = self.bursts.back_mut().expect("one was begun");
        burst.out += 1;
        burst.used += bytes.max(SMALL);
        burst.bytes += bytes;
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
            None => self.learn(took, burst.used, most),
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
    fn learn(&mut self, took: Duration, used: u64, most: u64) {
        let way = self.way().as_nanos();
        self.lowest = self.lowest.min(scaled(took.as_nanos().saturating_sub(way), MIB, used));
        self.measured += 1;
        if self.measured < if self.burst > SMALL { ROUND } else { ROUND_SMALL } {
            return;
        }
        let several = self.burst > SMALL;
        let wanted = scaled(self.least().as_nanos() * 2 / 5, MIB, self.lowest.max(1));
        // Not twice as much because a small one was quick.
        let up = if used >= self.burst / 2 { self.burst * 2 } else { self.burst };
        self.burst = wanted.clamp(self.burst / 2, up).clamp(SMALL, most.max(SMALL));
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
        let none = (2 * one.as_nanos()).saturating_sub(two.as_nanos());
        self.least().max(Duration::from_nanos(none).min(one))
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
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// An upstream that is `away` far there and back, and takes as long for each write and each KiB.
    struct Model {
        away: u64,
        each: u64,
        per_kib: u64,
        /// The answers to every third burst come so much later.
        noise: u64,
        /// A target requests the data of larger writes, which takes the way once more.
        unasked: u64,
        /// Thousandths of the upstream's time that reads take.
        reads: u64,
    }

    /// What write-back got, and what that meant for others.
    struct Run {
        /// Bytes in a second.
        rate: u64,
        /// How long three of four bursts kept the upstream from others at most, in microseconds.
        kept: u64,
    }

    fn run(model: &Model, size: u64, fill: u32, old: bool) -> Run {
        let micros = |n: u64| Duration::from_micros(n);
        let mut share = Share::new();
        let (mut now, mut link, mut bytes) = (Instant::ZERO, Instant::ZERO, 0);
        let (mut flying, mut kept) = (Vec::<(Instant, BurstId)>::new(), Vec::new());
        let begin = Instant::ZERO + micros(5_000_000);
        let end = Instant::ZERO + micros(25_000_000);
        let mut read = Instant::ZERO;
        while now < end {
            while read <= now {
                let each = model.each + model.per_kib * 4;
                let pause = (each * 1000).checked_div(model.reads);
                share.read(pause.is_some().into(), 0);
                read += micros(pause.unwrap_or(1_000_000));
            }
            share.adjust(now, fill, old);
            let before = link.max(now);
            link = before;
            let noise = if kept.len() % 3 == 0 { model.noise } else { 0 };
            while flying.len() < 128 && share.allows(now) > 0 {
                let length = size.min(share.allows(now)).max(4096);
                let id = share.began(now, length);
                share.sent(now, id);
                link += micros(model.each + model.per_kib * length / 1024);
                let trips = if length > model.unasked { 2 } else { 1 };
                flying.push((link + micros(trips * model.away + noise), id));
                bytes += if now >= begin { length } else { 0 };
            }
            if link > before {
                kept.push(link.since(before).as_nanos() / 1000);
            }
            let first = (0..flying.len()).min_by_key(|&one| flying[one].0);
            let waits = match first {
                None => Some(share.next()),
                Some(_) => share.next_overlapping(),
            };
            let ends = first.map(|one| flying[one].0);
            let next = ends.into_iter().chain(waits.filter(|&at| at > now)).min();
            now = next.expect("something happens");
            if let Some(one) = first.filter(|_| ends == Some(now)) {
                let (_, id) = flying.remove(one);
                share.ended(now, id, 8 << 20);
            }
        }
        kept.sort_unstable();
        Run { rate: bytes / 20, kept: kept[kept.len() * 3 / 4] }
    }

    /// A write that ended twice would end its burst before the others: it is noticed.
    #[test]
    #[should_panic(expected = "ends once")]
    fn a_write_of_a_burst_ends_once() {
        let mut share = Share::new();
        let id = share.began(Instant::ZERO, 4096);
        share.ended(Instant::ZERO, id, 8 << 20);
        share.ended(Instant::ZERO, id, 8 << 20);
    }

    /// Behind 20 ms, over 20 or 2 MB/s that reads hardly use: a quarter of the link at least and less than two
    /// thirds, in bursts that keep others from it for less than half of the shortest response time; whether the
    /// writes are long or short, whether the target requests their data, and even if some answers are late.
    #[test]
    fn a_remote_upstream_that_is_idle_gives_a_quarter() {
        for (per_kib, link) in [(51, 20_000_000), (512, 2_000_000)] {
            for (size, noise) in [(4, 0), (64, 0), (1024, 0), (4, 15_000), (64, 15_000)] {
                for unasked in [8 << 10, u64::MAX] {
                    let far = Model { away: 20_000, each: 0, per_kib, noise, unasked, reads: 50 };
                    let Run { rate, kept } = run(&far, size << 10, 100, false);
                    let (least, most) = (link / 4, link * 2 / 3);
                    assert!(
                        (least..most).contains(&rate),
                        "{link}, {size}, {noise}, {unasked}: {rate} bytes in a second"
                    );
                    let answer = 20_000 + per_kib * size.min(16);
                    assert!(kept * 2 < answer, "{link}, {size}, {noise}, {unasked}: {kept} us");
                }
            }
        }
    }

    /// The same link, which reads keep busy: an eighth of it, up to a quarter.
    #[test]
    fn a_busy_link_gives_an_eighth() {
        for (size, reads) in [(4 << 10, 900), (64 << 10, 900), (64 << 10, 1000)] {
            let unasked = u64::MAX;
            let far = Model { away: 20_000, each: 0, per_kib: 51, noise: 0, unasked, reads };
            let rate = run(&far, size, 100, false).rate;
            assert!((2_000_000..5_000_000).contains(&rate), "{size}: {rate} bytes in a second");
        }
    }

    /// A disk where every write costs and that reads keep busy: one at a time, about an eighth of its time up to
    /// two thirds.
    #[test]
    fn a_disk_gets_one_at_a_time() {
        let unasked = u64::MAX;
        let disk = Model { away: 100, each: 4_000, per_kib: 5, noise: 0, unasked, reads: 1000 };
        let Run { rate, kept } = run(&disk, 16 << 10, 100, false);
        let busy = rate / (16 << 10) * 4_080;
        assert!((100_000..700_000).contains(&busy), "{busy} us of a second");
        assert!(kept < 5_000, "{kept} us");
    }

    /// What is old, and a log that fills, raise the share.
    #[test]
    fn the_share_rises_with_age_and_fill() {
        let unasked = u64::MAX;
        let far = Model { away: 20_000, each: 0, per_kib: 51, noise: 0, unasked, reads: 1000 };
        let rate = |fill, old| run(&far, 64 << 10, fill, old).rate;
        let rates = [rate(100, false), rate(500, false), rate(650, false), rate(700, false)];
        assert!(rates[0] == rates[1] && rates[1] < rates[2] && rates[2] <= rates[3], "{rates:?}");
        assert!(rate(100, true) > rates[0] * 3 / 2);
        assert_eq!(
            (parts(500, false), parts(625, false), parts(740, false), parts(900, false)),
            (8, 4, 1, 1)
        );
    }

    /// When the way becomes longer it is found out again.
    #[test]
    fn an_upstream_that_moves_away_is_followed() {
        let mut share = Share::new();
        let mut now = Instant::ZERO;
        for round in 0..2_000 {
            let away = if round < 500 { 1_000 } else { 50_000 };
            now = now.max(share.next());
            share.adjust(now, 0, false);
            let bytes = share.allows(now);
            let id = share.began(now, bytes);
            share.sent(now, id);
            now += Duration::from_micros(away + bytes / 1024 * 51);
            share.ended(now, id, 8 << 20);
        }
        assert!(
            share.least() >= Duration::from_micros(50_000) && share.burst > 200 << 10,
            "{share:?}"
        );
    }
}
