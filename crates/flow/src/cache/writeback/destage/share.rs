//! The share of the upstream that write-back takes while hosts read there.
//!
//! Write-back goes in bursts. A burst is what is sent at once; the next begins when all of it has ended, and
//! not before `gap` after its beginning:
//!
//! | | |
//! |---|---|
//! | `least`  | the shortest time of a burst or flush lately: the round trip; every 10 s three bursts are single pages, to find it out |
//! | `way`    | `least`, or the time that a burst of no length would take, judging by those of [`SMALL`] and of twice that: a target that asks for the data of larger writes has them go there and back once more |
//! | `extra`  | what a burst took above `way`: how long it kept the upstream from others |
//! | burst    | as many bytes as make `extra` 3/10 of `least`; a write counts as [`SMALL`] at least |
//! | `gap`    | `extra * times`, so that write-back has one part in `times` of what the upstream carries; from `1 + times / 32` to `times` times what the burst took |
//! | `times`  | 8 below half of the log; falls to 1 at 75 %; 2 at most when data is older than `dirty_age` |
//!
//! Why bursts: a read that comes while one is on its way waits for it, however seldom there is one. So the
//! slowest reads are decided by the length of a burst, and only the mean by the gap. Far upstreams carry
//! several writes at the price of one, which is why the time that the way takes is no part of the price; on a
//! disk, where every write costs, bursts become single writes. `extra` is the least of eight bursts, for its
//! size: what delayed one of them was not the burst.
//!
//! Source: spec of write-back 4.3 (a tenth of the bandwidth at least beside reads, reads first otherwise) and
//! 5.1 (more from half of the log on). An eighth, as flushes and marks between epochs take their part.
//! Cost: O(1) for each write. Not for an upstream whose fastest answers come from a cache of its
//! own: there `least` is too short, and write-back gets the lower end, one part in `times` of the time.

use super::super::admission::FILL_PACED;
use crate::clock::{Duration, Instant};

/// The bursts of one volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Bytes that a burst may have.
    burst: u64,
    /// Bursts that are left, with the one in flight, to measure the round trip.
    probes: u32,
    /// Of the one that is on its way: bytes as they count, and as they are, writes that have not ended, when the first was sent.
    used: u64,
    bytes: u64,
    out: u32,
    sent: Option<Instant>,
    /// When the next one may begin.
    next: Instant,
    /// The shortest times, of this turn and of the one before.
    least: [Option<Duration>; 2],
    /// The same of bursts of just [`SMALL`], and of twice that.
    sized: [[Option<Duration>; 2]; 2],
    turned: Instant,
    /// What a MiB costs, in nanoseconds: the least of the last round, and of this one, with its number of bursts.
    cost: Option<u64>,
    lowest: u64,
    bursts: u32,
}

impl Share {
    pub(crate) const fn new() -> Self {
        Self {
            burst: START,
            probes: PROBES,
            used: 0,
            bytes: 0,
            out: 0,
            sent: None,
            next: Instant::ZERO,
            least: [None; 2],
            sized: [[None; 2]; 2],
            turned: Instant::ZERO,
            cost: None,
            lowest: u64::MAX,
            bursts: 0,
        }
    }

    /// How many bytes the next write may have; 0 if there may be none now.
    pub(crate) fn allows(&self, now: Instant) -> u64 {
        let burst = match self.probes.div_ceil(PROBES_EACH) {
            0 => self.burst,
            1 => 2 * SMALL,
            2 => SMALL,
            _ => PROBE,
        };
        match self.out {
            0 if now < self.next => 0,
            0 => burst,
            _ => burst.saturating_sub(self.used),
        }
    }

    /// When the next burst may begin, if none is on its way.
    pub(crate) const fn next(&self) -> Instant {
        self.next
    }

    /// A write of `bytes` belongs to the burst.
    pub(crate) fn began(&mut self, bytes: u64) {
        if self.out == 0 {
            (self.used, self.bytes, self.sent) = (0, 0, None);
        }
        self.out += 1;
        self.used += bytes.max(SMALL);
        self.bytes += bytes;
    }

    /// One of them is sent.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.sent.get_or_insert(now);
    }

    /// A flush, which is always alone, took so long.
    pub(crate) fn flushed(&mut self, now: Instant, took: Duration) {
        lower(&mut self.least, took);
        if self.out == 0 {
            self.turn(now);
        }
    }

    /// A write of the burst has ended; `most` bytes are the most that a burst may have.
    pub(crate) fn ended(&mut self, now: Instant, times: u64, most: u64) {
        assert!(self.out > 0, "a write of a burst ends once");
        self.out -= 1;
        let Some(sent) = self.sent.filter(|_| self.out == 0) else { return };
        let took = now.saturating_since(sent);
        lower(&mut self.least, took);
        for (twice, times) in (1..).zip(&mut self.sized) {
            if self.bytes == twice * SMALL && self.used == self.bytes {
                lower(times, took);
            }
        }
        match self.probes.checked_sub(1) {
            Some(left) => self.probes = left,
            None => self.learn(took, most),
        }
        self.turn(now);
        let extra = self.cost.unwrap_or(if self.bursts > 0 { self.lowest } else { 0 });
        let took = took.as_nanos();
        let (low, high) = (took + took / 32 * times, took.saturating_mul(times));
        let gap = scaled(extra, self.used, MIB).saturating_mul(times).min(high).max(low);
        self.next = sent + Duration::from_nanos(gap.min(took + GAP_MOST.as_nanos()));
    }

    /// From the times that the bursts of a round took, how long those of the next may be. A single small one
    /// takes `least`, be the upstream far or slow: so that size is left seldom, to see what two take.
    fn learn(&mut self, took: Duration, most: u64) {
        let way = self.way().as_nanos();
        self.lowest = self.lowest.min(scaled(took.as_nanos().saturating_sub(way), MIB, self.used));
        self.bursts += 1;
        if self.bursts < if self.burst > SMALL { ROUND } else { ROUND_SMALL } {
            return;
        }
        let wanted = scaled(self.least().as_nanos() * 3 / 10, MIB, self.lowest.max(1));
        // Not twice as much because a small one was quick.
        let up = if self.used >= self.burst / 2 { self.burst * 2 } else { self.burst };
        self.burst = wanted.clamp(self.burst / 2, up).clamp(SMALL, most.max(SMALL));
        self.cost = Some(self.lowest);
        (self.lowest, self.bursts) = (u64::MAX, 0);
    }

    /// The shortest times are those of the last two turns, so that they follow an upstream that moves away.
    fn turn(&mut self, now: Instant) {
        if now >= self.turned + TURN {
            self.turned = now;
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

/// One part in how many of what the upstream carries is for write-back, at this fill of the log in thousandths.
pub(crate) fn times(fill: u32, old: bool) -> u64 {
    let left = u64::from(FILL_PACED.saturating_sub(fill).min(FILL_RISES));
    let times = (TIMES * left).div_ceil(u64::from(FILL_RISES)).max(1);
    if old { times.min(OLD) } else { times }
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

/// How many bursts are a round; and while they are the smallest.
const ROUND: u32 = 8;
const ROUND_SMALL: u32 = 32;

/// How long the shortest time is remembered, once or twice.
const TURN: Duration = Duration::from_secs(10);

/// The longest rest.
const GAP_MOST: Duration = Duration::from_secs(1);

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
        /// Every third answer comes so much later.
        noise: u64,
        /// A target asks for the data of larger writes, which takes the way once more.
        unasked: u64,
    }

    /// Bytes in a second, and the time that three of four bursts take at most, in microseconds.
    fn run(model: &Model, size: u64, fill: u32, old: bool) -> (u64, u64) {
        let mut share = Share::new();
        let (mut now, mut bytes, mut took) = (Instant::ZERO, 0, Vec::new());
        let micros = |n: u64| Duration::from_micros(n);
        let second = Instant::ZERO + micros(5_000_000);
        let end = Instant::ZERO + micros(25_000_000);
        while now < end {
            let (mut out, mut link, mut asked) = (0, now, false);
            while out < 8 && share.allows(now) > 0 {
                let length = size.min(share.allows(now)).max(4096);
                share.began(length);
                share.sent(now);
                link += micros(model.each + model.per_kib * length / 1024);
                asked |= length > model.unasked;
                out += 1;
                bytes += if now >= second { length } else { 0 };
            }
            if out == 0 {
                now = share.next();
                continue;
            }
            took.push(link.since(now).as_nanos() / 1000);
            let noise = if took.len() % 3 == 0 { model.noise } else { 0 };
            now = link + micros(if asked { 2 } else { 1 } * model.away + noise);
            for _ in 0..out {
                share.ended(now, times(fill, old), 8 << 20);
            }
        }
        took.sort_unstable();
        (bytes / 20, took[took.len() * 3 / 4])
    }

    /// A write that ended twice would end its burst before the others: it is noticed.
    #[test]
    #[should_panic(expected = "ends once")]
    fn a_write_of_a_burst_ends_once() {
        let mut share = Share::new();
        share.began(4096);
        share.ended(Instant::ZERO, 8, 8 << 20);
        share.ended(Instant::ZERO, 8, 8 << 20);
    }

    /// Behind 20 ms, over 20 or 2 MB/s: an eighth of the link and more, in bursts that keep others up for less than half
    /// of what the shortest answer takes; whether the writes are long or short, and even if some answers are late.
    #[test]
    fn a_far_upstream_gets_its_share() {
        for (per_kib, link) in [(51, 20_000_000), (512, 2_000_000)] {
            for (size, noise) in [(4, 0), (64, 0), (1024, 0), (4, 15_000), (64, 15_000)] {
                let far = Model { away: 20_000, each: 0, per_kib, noise, unasked: u64::MAX };
                let (rate, took) = run(&far, size << 10, 100, false);
                // Of small ones, eight at once are all that there may be: half of what they get alone.
                let alone =
                    8 * (size << 10) * 1_000_000 / (20_000 + 8 * per_kib * size + noise / 3);
                let least = (alone / 2).min(link / 10);
                assert!(
                    (least..link * 3 / 10).contains(&rate),
                    "{link}, {size}, {noise}: {rate} bytes in a second"
                );
                let answer = 20_000 + per_kib * size.min(16);
                assert!(took * 2 < answer, "{link}, {size}, {noise}: {took} us");
            }
        }
    }

    /// A target that asks for what does not come with the command: the second way is no part of the price.
    #[test]
    fn a_target_that_asks_for_data_gets_its_share() {
        let far = Model { away: 20_000, each: 0, per_kib: 51, noise: 0, unasked: 8 << 10 };
        for size in [64 << 10, 1 << 20] {
            let (rate, took) = run(&far, size, 100, false);
            assert!((2_000_000..6_000_000).contains(&rate), "{size}: {rate} bytes in a second");
            assert!(took < 15_000, "{size}: {took} us");
        }
    }

    /// A disk where every write costs: one at a time, about an eighth of its time up to half.
    #[test]
    fn a_disk_gets_one_at_a_time() {
        let disk = Model { away: 100, each: 4_000, per_kib: 5, noise: 0, unasked: u64::MAX };
        let (rate, took) = run(&disk, 16 << 10, 100, false);
        let busy = rate / (16 << 10) * 4_080;
        assert!((100_000..700_000).contains(&busy), "{busy} us of a second");
        assert!(took < 5_000, "{took} us");
    }

    /// What is old, and a log that fills, raise the share, up to nearly all of what one burst at a time gives.
    #[test]
    fn the_share_rises_with_age_and_fill() {
        let far = Model { away: 20_000, each: 0, per_kib: 51, noise: 0, unasked: u64::MAX };
        let rate = |fill, old| run(&far, 64 << 10, fill, old).0;
        let rates = [rate(100, false), rate(500, false), rate(650, false), rate(700, false)];
        assert!(rates[0] == rates[1] && rates[1] < rates[2] && rates[2] <= rates[3], "{rates:?}");
        assert!(rate(100, true) > rates[0] * 3 / 2);
        assert_eq!(
            (times(500, false), times(625, false), times(740, false), times(900, false)),
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
            let bytes = share.allows(now);
            share.began(bytes);
            share.sent(now);
            now += Duration::from_micros(away + bytes / 1024 * 51);
            share.ended(now, times(0, false), 8 << 20);
        }
        assert!(
            share.least() >= Duration::from_micros(50_000) && share.burst > 200 << 10,
            "{share:?}"
        );
    }
}
