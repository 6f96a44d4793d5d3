//! The check whether hosts would be answered sooner without the log, while it is too full to admit all writes.
//!
//! | | |
//! |---|---|
//! | With the log | the mean time for which a write waited to be admitted, in windows of a second with a log above 75 % |
//! | Without it | the shortest time of a small write upstream, and what each outstanding byte adds to that, for the bytes that hosts have outstanding; a flush of a host takes the shortest time once more |
//! | Loss | what the upstream would have taken in these windows and the log did not, in bytes; a window with 95 % of the upstream, and less wait than there, pays back |
//! | Switch | the loss is as large as the cost of emptying the log, and the last three windows were below 95 % |
//! | Return | a minute in which hosts write at most half of what the log admitted at the switch |
//!
//! With as many outstanding writes the mean response time decides the throughput (Little's law), so comparing times
//! compares throughputs. The time without the log is an upper bound: delays that have other causes count as delays by
//! outstanding bytes.
//!
//! While the log is emptied hosts get half of what write-back takes, so emptying costs hosts `behind * (2 * log - upstream) /
//! upstream` bytes (both times as above). No order of write-back avoids that cost: what is in the log goes first. By waiting for an
//! equal loss, hosts lose at most twice of what they would if the length of the load were known (the rule of ski rental).

use super::commit_latency::Median;
use crate::clock::{Duration, Instant};

/// What hosts take with the log and would take without it, and what they have lost by it.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadCheck {
    /// The shortest small write upstream, of this round and of the one before, and the samples in this round.
    shortest: [Option<Duration>; 2],
    samples: u32,
    /// The shortest write of any size.
    least: Option<Duration>,
    /// What a MiB of outstanding bytes adds.
    per_mib: Median,
    window: Option<Window>,
    /// Slow windows in a row, what hosts have lost, and the times with and without the log in the last of them.
    slow: u32,
    lost: u128,
    times: (Duration, Duration),
    /// Bytes that hosts may write in a second when the log is used again.
    calm_rate: u64,
    calm: Option<Calm>,
}

/// What was admitted while the log was paced.
#[derive(Clone, Copy, Debug)]
struct Window {
    began: Instant,
    writes: u64,
    bytes: u64,
    flushes: u64,
    /// Sums of the waits, and of bytes times waits, in nanoseconds.
    waits: u128,
    byte_waits: u128,
}

/// What bypassed the log.
#[derive(Clone, Copy, Debug)]
struct Calm {
    since: Instant,
    bytes: u64,
    windows: u32,
}

impl LoadCheck {
    /// A write of `bytes` upstream took this long, while `outstanding` bytes were on their way, these among them.
    pub(super) fn wrote(&mut self, bytes: u64, took: Duration, outstanding: u64) {
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
        if bytes > SMALL {
            return;
        }
        self.samples += 1;
        if self.samples > ROUND {
            (self.samples, self.shortest) = (0, [None, self.shortest[0]]);
        }
        let least = &mut self.shortest[0];
        *least = Some(least.map_or(took, |least| least.min(took)));
        let shortest = self.shortest().unwrap_or(took);
        let extra = took.as_nanos().saturating_sub(shortest.as_nanos());
        self.per_mib.add(Duration::from_nanos(extra.saturating_mul(MIB) / outstanding.max(1)));
    }

    /// The shortest time of a small write upstream lately.
    fn shortest(&self) -> Option<Duration> {
        self.shortest.iter().flatten().copied().min()
    }

    /// What a write upstream takes at least: a small one lately, or any where none was small.
    pub(super) fn trip(&self) -> Option<Duration> {
        self.shortest().or(self.least)
    }

    /// A host has flushed.
    pub(super) const fn flushed(&mut self) {
        if let Some(window) = &mut self.window {
            window.flushes += 1;
        }
    }

    /// `bytes` of a write that arrived then are admitted; `paced` if the log is too full for all.
    pub(super) fn admitted(&mut self, now: Instant, arrived: Instant, bytes: u64, paced: bool) {
        if !paced {
            (self.window, self.slow, self.lost) = (None, 0, 0);
            return;
        }
        let window = self.window.get_or_insert(Window {
            began: now,
            writes: 0,
            bytes: 0,
            flushes: 0,
            waits: 0,
            byte_waits: 0,
        });
        let wait = u128::from(now.saturating_since(arrived).as_nanos());
        window.writes += 1;
        window.bytes += bytes;
        window.waits += wait;
        window.byte_waits += u128::from(bytes) * wait;
        if now.saturating_since(window.began) >= WINDOW {
            let window = *window;
            self.window = None;
            self.judge(now, window);
        }
    }

    fn judge(&mut self, now: Instant, window: Window) {
        let (Some(shortest), Some(per_mib)) = (self.shortest(), self.per_mib.get()) else { return };
        let elapsed = u128::from(now.since(window.began).as_nanos());
        let Window { writes, bytes, flushes, waits, byte_waits, .. } = window;
        let (shortest, per_mib) = (u128::from(shortest.as_nanos()), u128::from(per_mib.as_nanos()));
        let outstanding = byte_waits / elapsed;
        let flushing = shortest * u128::from(flushes) * waits / elapsed / u128::from(writes);
        let upstream = shortest + per_mib * outstanding / u128::from(MIB) + flushing;
        let log = byte_waits / u128::from(bytes);
        let nanos = |sum| Duration::from_nanos(u64::try_from(sum).unwrap_or(u64::MAX));
        self.times = (nanos(log), nanos(upstream));
        let without = u128::from(bytes) * log / upstream.max(1);
        if log * 19 > upstream * 20 {
            self.slow += 1;
            self.lost += without.saturating_sub(bytes.into());
        } else {
            self.slow = 0;
            self.lost = self.lost.saturating_sub(u128::from(bytes).saturating_sub(without));
        }
        let rate = u128::from(bytes) * 1_000_000_000 / elapsed;
        self.calm_rate = u64::try_from(rate / 2).unwrap_or(u64::MAX);
    }

    /// The times with and without the log, if hosts have lost as much as emptying the log of `behind` bytes would cost.
    pub(super) fn slower(&self, behind: u64) -> Option<(Duration, Duration)> {
        if self.slow < WINDOWS {
            return None;
        }
        let (log, upstream) = (self.times.0.as_nanos(), self.times.1.as_nanos().max(1));
        let cost = u128::from(behind) * u128::from((2 * log).saturating_sub(upstream))
            / u128::from(upstream);
        (self.lost >= cost).then_some(self.times)
    }

    /// `bytes` bypass the log.
    pub(super) const fn forwarded(&mut self, bytes: u64) {
        if let Some(calm) = &mut self.calm {
            calm.bytes += bytes;
        }
    }

    /// Whether hosts write so little past the log that it keeps up with them again.
    pub(super) fn is_calm(&mut self, now: Instant) -> bool {
        let rate = u128::from(self.calm_rate);
        let calm = self.calm.get_or_insert(Calm { since: now, bytes: 0, windows: 0 });
        let elapsed = now.saturating_since(calm.since);
        if elapsed < CALM_WINDOW {
            return false;
        }
        let written = u128::from(calm.bytes) * 1_000_000_000 / u128::from(elapsed.as_nanos());
        let windows = if written <= rate { calm.windows + 1 } else { 0 };
        *calm = Calm { since: now, bytes: 0, windows };
        windows >= CALM_WINDOWS
    }

    /// When [`is_calm`](Self::is_calm) is to be asked next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.calm.map(|calm| calm.since + CALM_WINDOW)
    }

    /// Begins anew.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

/// The longest write upstream that counts, in bytes.
const SMALL: u64 = 64 << 10;

/// Samples after which an older shortest time is forgotten: it is one of the last one or two rounds.
const ROUND: u32 = 256;

/// How long a window is at least.
const WINDOW: Duration = Duration::from_secs(1);

/// Slow windows in a row, at least.
const WINDOWS: u32 = 3;

/// How long, and how many, windows with little load are before the log is used again.
const CALM_WINDOW: Duration = Duration::from_secs(10);
const CALM_WINDOWS: u32 = 6;

const MIB: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A check that knows an upstream of 20 ms that takes 50 ms more for each MiB.
    fn far() -> LoadCheck {
        let mut check = LoadCheck::default();
        check.wrote(4096, MS * 20, 4096);
        for _ in 0..100 {
            check.wrote(4096, MS * 45, MIB / 2);
        }
        check
    }

    /// Lets `depth` writes of `bytes` each wait for `wait`, for `seconds`.
    fn run(
        check: &mut LoadCheck,
        depth: u64,
        bytes: u64,
        wait: Duration,
        seconds: u64,
        flushes: bool,
    ) {
        let each = wait.as_nanos() / depth;
        for i in 0..seconds * 1_000_000_000 / each {
            let now = Instant::ZERO + wait + Duration::from_nanos(i * each);
            check.admitted(now, Instant::ZERO + Duration::from_nanos(i * each), bytes, true);
            if flushes {
                check.flushed();
            }
        }
    }

    /// A log that lets writes wait for longer than the upstream would take is slower; one that the link holds up is not,
    /// nor one whose hosts would wait for a flush upstream after each write.
    #[test]
    fn a_log_that_crawls_is_slower() {
        for (depth, bytes, wait, flushes, slower) in [
            (32, 4096, 75, false, true),
            (32, 4096, 27, false, false),
            (1, 4096, 25, false, true),
            (1, 4096, 21, false, false),
            (1, 4096, 25, true, false),
            (32, 65536, 115, false, false),
        ] {
            let mut check = far();
            run(&mut check, depth, bytes, MS * wait, 5, flushes);
            assert_eq!(check.slower(0).is_some(), slower, "{depth} {bytes} {wait}: {check:?}");
        }
    }

    /// Emptying a log costs hosts as well: it is not left before they have lost as much by staying.
    #[test]
    fn a_large_log_is_left_later() {
        let (rate, wait) = (32 * 4096 * 1000 / 75, 75);
        let left_after = |behind| {
            (1..600).find(|&seconds| {
                let mut check = far();
                run(&mut check, 32, 4096, MS * wait, seconds, false);
                check.slower(behind).is_some()
            })
        };
        // Hosts get a third of what they could have: a second costs two thirds of `rate * 3`, emptying five times the log.
        let seconds = |behind: u64| behind * 5 / (rate * 2);
        for behind in [100 * rate, 40 * rate, 10 * rate] {
            let (after, expected) = (left_after(behind).unwrap(), seconds(behind));
            assert!(
                after.abs_diff(expected) * 5 <= expected,
                "{behind}: {after} s, expected {expected} s"
            );
        }
        // Three windows end in the fourth second.
        assert_eq!(left_after(0), Some(4));
    }

    /// A second is not enough, and a log that is not full any more begins anew.
    #[test]
    fn a_moment_is_not_enough() {
        let mut check = far();
        run(&mut check, 32, 4096, MS * 75, 2, false);
        assert_eq!(check.slower(0), None);
        check.admitted(Instant::ZERO, Instant::ZERO, 4096, false);
        run(&mut check, 32, 4096, MS * 75, 3, false);
        assert_eq!(check.slower(0), None);
    }

    /// After a minute of little load it is calm; a window of more begins the minute again.
    #[test]
    fn a_minute_is_calm() {
        let mut check = far();
        run(&mut check, 32, 4096, MS * 75, 5, false);
        let calm_after = |loud: u64| {
            let mut check = check.clone();
            (0..60).find(|&i| {
                check.forwarded(if i == loud { 100 * MIB } else { 4096 });
                check.is_calm(Instant::ZERO + Duration::from_secs(10 * i))
            })
        };
        assert_eq!((calm_after(99), calm_after(4)), (Some(6), Some(10)));
    }
}
