//! The gate before the log: who waits for room, and how fast the queue moves.
//!
//! | fill | |
//! |---|---|
//! | below 75 % | no wait |
//! | 75 to 95 % | each write makes the next one wait for `bytes / drain rate * (fill - 75) / (95 - fill)`: half way, what comes in is as much as goes out |
//! | above 95 % | nothing new; what has begun goes on while there is room at all |
//!
//! The curve is that of the write throttle of `OpenZFS` (`dmu_tx_delay`), with the measured rate in place of
//! a constant. No write waits for more than [`PACE_MOST`] because of the one before it. Flushes never
//! come here.

use super::effect::{COMMIT, DRAIN, Effect, FULL, Kind, Notice, Origin, PACE};
use super::log::Log;
use crate::clock::{Duration, Instant};
use crate::error::IoError;
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
    /// Counts arrivals and acknowledgements.
    pub(super) event: u64,
    /// So many bytes of it are in the log.
    pub(super) done: u64,
    /// What held it last.
    pub(super) held: Option<Rule>,
}

/// The queue and its pace.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub(super) queue: VecDeque<Waiting>,
    /// While the log fills, the next write may go now.
    next: Instant,
    /// Bytes of log that write-back frees in a second.
    rate: u64,
    /// Since when, and how many bytes, for the next measurement.
    measured: Option<(Instant, u64)>,
}

impl Gate {
    pub(super) const fn new() -> Self {
        Self { queue: VecDeque::new(), next: Instant::ZERO, rate: 0, measured: None }
    }

    /// What holds back the first of the queue at this fill, if anything does.
    pub(super) fn holds(&self, now: Instant, fill: u32) -> Option<Rule> {
        let begun = self.queue.front().is_some_and(|first| first.done > 0);
        match fill {
            _ if begun => None,
            FILL_HELD.. => Some(FULL),
            FILL_PACED.. if now < self.next => Some(PACE),
            _ => None,
        }
    }

    /// So many bytes have gone to the log at this fill.
    pub(super) fn took(&mut self, now: Instant, fill: u32, bytes: u64) {
        if fill < FILL_PACED {
            self.next = now;
            return;
        }
        let (over, left) =
            (u128::from(fill - FILL_PACED), u128::from(FILL_HELD.saturating_sub(fill).max(1)));
        let rate = u128::from(self.rate.max(RATE_LEAST));
        let nanos = u128::from(bytes) * 1_000_000_000 * over / left / rate;
        let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(PACE_MOST);
        self.next = self.next.max(now) + wait;
        self.next = self.next.min(now + PACE_MOST);
    }

    /// Write-back begins after a time without work, or has freed so many bytes of log.
    pub(super) fn drained(&mut self, now: Instant, bytes: u64) {
        let (since, sum) = self.measured.unwrap_or((now, 0));
        let (spent, sum) = (now.saturating_since(since), sum + bytes);
        if spent < MEASURED {
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

impl Log {
    /// Answers writes that have found no room in time and have not begun.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let from = usize::from(self.gate.queue.front().is_some_and(|first| first.done > 0));
        let mut expired = false;
        while let Some(one) = self.gate.queue.get(from) {
            if now < one.arrived + self.settings.hold {
                break;
            }
            let (key, rule) = (one.key, self.waits_for(one));
            self.gate.queue.remove(from);
            self.counters.busy += 1;
            self.effects.push_back(Effect::Ack(key, Err(IoError::Busy), rule));
            expired = true;
        }
        let full = self.gate.queue.front().is_some_and(|first| first.held == Some(FULL));
        if full != self.told_full {
            self.told_full = full;
            self.notice(Notice::Full(full));
        }
        if self.epochs.strict() != self.told_strict {
            self.told_strict = self.epochs.strict();
            self.notice(Notice::Relaxed(!self.told_strict));
        }
        expired
    }

    /// What a write at the gate waits for.
    pub(super) fn waits_for(&self, one: &Waiting) -> Rule {
        one.held.unwrap_or(if self.admits(false) { COMMIT } else { DRAIN })
    }

    /// When the pace lets the first write go, or the first has waited for too long.
    pub(super) fn gate_deadline(&self) -> Option<Instant> {
        let first = self.gate.queue.front()?;
        let begun = usize::from(first.done > 0);
        let hold = self.gate.queue.get(begun).map(|one| one.arrived + self.settings.hold);
        let open = self.cycle.is_none() && self.admits(false) && !self.failed;
        let pace = (open && first.held == Some(PACE)).then_some(self.gate.next);
        hold.into_iter().chain(pace).min()
    }
}

/// From here on admission is paced, in thousandths.
pub(super) const FILL_PACED: u32 = 750;

/// From here on nothing new is admitted.
pub(super) const FILL_HELD: u32 = 950;

/// The longest wait because of one write.
const PACE_MOST: Duration = Duration::from_millis(250);

/// What is taken for the rate while a lower one, or none, was measured: 1 MiB/s.
const RATE_LEAST: u64 = 1 << 20;

/// How long the rate is measured at least.
const MEASURED: Duration = Duration::from_millis(250);
