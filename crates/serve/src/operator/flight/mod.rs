//! The flight recorder: what became of the latest requests, and who stood in front of the slow ones.
//!
//! Every request that ends leaves a record in a ring. The slowest requests of each second, minute and hour stay longer, with
//! their attribution ([`weir_flow::attribution`]). All of it is written by the event loop alone, takes a fixed amount of
//! memory, and is read when an operator asks. [Decision 45](../../../../../docs/decisions/0045-flight-recorder.md) has
//! the reasons.

mod kept;
mod ring;
mod told;

use crate::config::Recorder;
use crate::operator::metrics::loads::Latest;
use kept::Kept;
use ring::Ring;
use tracing::warn;
use weir_flow::account::{Scored, is_ours};
use weir_flow::attribution::{Attribution, Contributor};
use weir_flow::clock::{Duration, Instant};
use weir_flow::event::{Completed, Event, Observer, Service};
use weir_flow::request::Request;

pub(crate) use kept::Within;
pub(crate) use told::{Asked, Names};

/// The recorder of a gateway.
#[derive(Debug)]
pub(crate) struct Flight {
    ring: Ring,
    kept: Kept,
    attribution: Attribution,
    /// From this response time on a request is slow.
    slow: Duration,
    /// A part of each id that differs from one start to the next.
    start: u16,
    /// Requests that may be attributed until the second ends.
    explanations: u32,
    /// Lines that may be logged, and those that were held back in this second.
    lines: u32,
    held_back: u64,
    /// The end of the second.
    second: Instant,
}

/// Why a request is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It missed an objective.
    Late,
    /// Storage or the way to it failed.
    Failed,
    /// It took as long as the configuration says.
    Slow,
}

/// What is to be logged of a request that has ended.
#[derive(Debug)]
pub(crate) struct SlowLine {
    pub(crate) id: String,
    pub(crate) reason: Reason,
    /// The rule that held it for longest, and for how long.
    pub(crate) rule: &'static str,
    pub(crate) held: Duration,
    /// Who or what most of its time is charged to.
    pub(crate) mostly: Option<(Contributor, Duration)>,
}

impl Reason {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Failed => "failed",
            Self::Slow => "slow",
        }
    }
}

impl Flight {
    /// An empty recorder; `None` if it is switched off. `start` is from chance.
    pub(crate) fn new(settings: Recorder, start: u16) -> Option<Self> {
        let Recorder { memory, slow } = settings;
        let ring = Ring::new(memory)?;
        Some(Self {
            ring,
            kept: Kept::default(),
            attribution: Attribution::default(),
            slow,
            start,
            explanations: EXPLANATIONS,
            lines: LINES_BURST,
            held_back: 0,
            second: Instant::ZERO + SECOND,
        })
    }

    /// A request has ended. Returns what is to be logged.
    pub(crate) fn completed(
        &mut self,
        now: Instant,
        completed: &Completed<'_>,
        scored: Option<Scored>,
    ) -> Option<SlowLine> {
        if now >= self.second {
            self.turn(now);
        }
        let total = completed.times.total();
        let reason = if completed.outcome.is_err_and(is_ours) {
            Some(Reason::Failed)
        } else if scored.is_some_and(|scored| scored.missed) {
            Some(Reason::Late)
        } else {
            (total >= self.slow).then_some(Reason::Slow)
        };
        let target = scored.map(|scored| scored.target);
        let number = self.ring.push(now, completed, (reason, target));
        let rank = kept::rank(total, matches!(reason, Some(Reason::Late | Reason::Failed)));
        self.kept.count(reason);
        let admitted = self.kept.admits(rank, completed.request.tenant);
        let mut line = None;
        if admitted || reason.is_some() {
            line = self.look(now, completed, (number, rank, reason), admitted);
        }
        self.attribution.completed(now, completed);
        line
    }

    /// Keeps a request that is among the slowest, and makes a line for the log if it is slow.
    fn look(
        &mut self,
        now: Instant,
        completed: &Completed<'_>,
        (number, rank, reason): (u64, u64, Option<Reason>),
        admitted: bool,
    ) -> Option<SlowLine> {
        let logs = reason.is_some() && self.lines > 0;
        self.held_back += u64::from(reason.is_some() && !logs);
        let explains = self.explanations > 0 && (admitted || logs);
        self.explanations -= u32::from(explains);
        let parts = explains.then(|| self.attribution.explain(now, completed));
        let line = reason.filter(|_| logs).map(|reason| {
            self.lines -= 1;
            let longest = completed.times.held().max_by_key(|&(.., time)| time);
            let (rule, held) =
                longest.map_or(("", Duration::ZERO), |(_, rule, time)| (*rule.0, time));
            let mostly = parts.as_deref().and_then(Contributor::most);
            SlowLine { id: told::id(self.start, number), reason, rule, held, mostly }
        });
        if let Some(record) = self.ring.last().filter(|_| admitted) {
            let (record, parts) = (*record, parts.map(Vec::into));
            self.kept.keep(kept::Entry { number, rank, record, parts });
        }
        line
    }

    /// A request was refused because a limit was reached.
    pub(crate) fn refused(&mut self, now: Instant, request: &Request, scored: Option<Scored>) {
        if now >= self.second {
            self.turn(now);
        }
        self.ring.refused(now, request, scored.map(|scored| scored.target));
    }

    /// A resource was used.
    pub(crate) fn serve(&mut self, now: Instant, service: Service) {
        self.attribution.serve(now, service);
    }

    /// Takes the other events that attribution needs.
    pub(crate) fn event(&mut self, now: Instant, event: Event<'_>) {
        self.attribution.event(now, event);
    }

    /// The requests that ended in the last second, at most [`RECENT`].
    pub(crate) fn recent(&self, now: Instant) -> Vec<Latest> {
        let since = Instant::from_nanos(now.as_nanos().saturating_sub(SECOND.as_nanos()));
        let latest = self.ring.latest().take_while(|record| record.ended >= since).take(RECENT);
        let latest = latest.map(|record| Latest {
            volume: record.request.volume,
            tenant: record.request.tenant,
            times: record.times,
        });
        latest.collect()
    }

    /// Ends the second.
    fn turn(&mut self, now: Instant) {
        let seconds = now.saturating_since(self.second).as_nanos() / SECOND.as_nanos() + 1;
        let ended = self.second;
        self.second += SECOND * seconds;
        self.kept.turn(ended, ended + SECOND * (seconds - 1));
        self.explanations = EXPLANATIONS;
        let more = u32::try_from(seconds).unwrap_or(LINES_BURST).saturating_mul(LINES_RATE);
        self.lines = self.lines.saturating_add(more).min(LINES_BURST);
        let held_back = std::mem::take(&mut self.held_back);
        if held_back > 0 {
            warn!(held_back, "more requests were slow than are logged: see `weir slow`");
        }
    }
}

/// Requests that are attributed in a second; the rest are kept without an attribution. Each costs some 10,000 instructions.
const EXPLANATIONS: u32 = 200;

/// Requests that a sample of the counters looks at: enough to see what holds them.
const RECENT: usize = 2_000;

/// Lines for slow requests: a second, and at once after a pause.
const LINES_RATE: u32 = 10;
const LINES_BURST: u32 = 50;

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
