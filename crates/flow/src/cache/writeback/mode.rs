//! The mode of a volume's log: switching from `log` to `through`, and back.
//!
//! | state | a new write | ends when |
//! |---|---|---|
//! | `Log` | is logged, and acknowledged when durable | |
//! | `Lowering` | is logged, at half of the rate of write-back, and acknowledged when durable | what is not upstream takes half a second, or hosts have written twice as much as was not upstream when it began |
//! | `Draining` | is logged, and acknowledged when it is upstream | everything older is upstream |
//! | `Emptying` | waits | everything is upstream |
//! | `Marking` | waits | a durable super block says so: nothing of this log is ever replayed over what follows |
//! | `Abandoning` | waits | the log device has failed; the same is remembered elsewhere |
//! | `Through` | goes upstream | an operator says so; or load falls, if the log could not keep up |
//!
//! A log that is used again does not wait for the writes that bypassed it: they are a debt of write-back
//! ([`Debt`](super::debt::Debt)). Nothing overtakes the log: no write goes `through` before everything in it is upstream. When its device has
//! failed, what is then written back from memory is acknowledged when it is durable that the log is void: one
//! that was opened again would write older data over it.

use super::commit_latency::CommitLatencyCheck;
use super::effect::Why;
use super::load::LoadCheck;
use super::status::Phase;
use crate::clock::{Duration, Instant};
use crate::request::Outcome;

/// The state of a log's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Log,
    Lowering {
        why: Why,
        /// It ends at this end of the log at the latest: the pace of admission is only an estimate.
        until: u64,
    },
    Draining {
        /// The last record that was acknowledged before.
        upto: u64,
        why: Why,
    },
    Emptying {
        why: Why,
    },
    Marking {
        why: Why,
    },
    Abandoning {
        again: Option<Instant>,
    },
    Through {
        why: Why,
    },
}

/// The mode of one log, and the check that may switch it.
#[derive(Debug)]
pub(super) struct ModeSwitch {
    state: State,
    latency: CommitLatencyCheck,
    load: LoadCheck,
    /// Switch to `through` when the log is slower than the upstream.
    checks: bool,
}

/// What the other parts of a log say, for a transition.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// The log device has failed.
    pub(super) failed: bool,
    /// The last record that has a number.
    pub(super) last: u64,
    /// All records up to this one are upstream.
    pub(super) applied: u64,
    /// All durable records are upstream.
    pub(super) all_applied: bool,
    /// All records have been handed to the log device.
    pub(super) all_written: bool,
    /// No epochs are to be written back.
    pub(super) no_epochs: bool,
    /// A commit is going on.
    pub(super) committing: bool,
    /// A write is partly in the log.
    pub(super) partial: bool,
    /// A durable super block says that everything is upstream, and more may be.
    pub(super) void: bool,
    /// Bytes of log since it was opened.
    pub(super) end: u64,
    /// Those of them that are not upstream.
    pub(super) behind: u64,
    /// They take write-back half a second at most, or an unknown time.
    pub(super) low: bool,
    /// Writes have bypassed the log and are not known to be durable upstream.
    pub(super) in_debt: bool,
}

/// What a transition asks of the other parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// There was none.
    None,
    /// There was one, without consequences.
    Changed,
    /// Writes are acknowledged from the log again; those that wait for the upstream need not any more.
    Undo,
    /// The log is used again.
    Resumed,
    /// Writes go upstream from now on, those that wait first.
    Through(Why),
    /// The shell is to remember that the log is void.
    Abandon,
}

impl View {
    /// With half of what write-back takes, hosts write as much as is not upstream now until it is.
    const fn lowering(&self, why: Why) -> State {
        State::Lowering { why, until: self.end.saturating_add(self.behind.saturating_mul(2)) }
    }
}

impl ModeSwitch {
    pub(super) fn new(checks: bool) -> Self {
        let (latency, load) = (CommitLatencyCheck::default(), LoadCheck::default());
        Self { state: State::Log, latency, load, checks }
    }

    pub(super) const fn load(&self) -> &LoadCheck {
        &self.load
    }

    pub(super) const fn load_mut(&mut self) -> &mut LoadCheck {
        &mut self.load
    }

    /// Whether fewer writes are admitted than write-back takes.
    pub(super) const fn lowers(&self) -> bool {
        matches!(self.state, State::Lowering { .. })
    }

    pub(super) const fn latency(&self) -> &CommitLatencyCheck {
        &self.latency
    }

    pub(super) const fn latency_mut(&mut self) -> &mut CommitLatencyCheck {
        &mut self.latency
    }

    /// What is done with a write, for operators.
    pub(super) const fn phase(&self) -> Phase {
        match self.state {
            State::Log => Phase::Log,
            State::Lowering { why, .. } | State::Draining { why, .. } => Phase::Draining(why),
            State::Emptying { why } | State::Marking { why } => Phase::Emptying(why),
            State::Abandoning { .. } => Phase::Emptying(Why::Failed),
            State::Through { why } => Phase::Through(why),
        }
    }

    /// Whether a write may go to the log; `begun` if a part of it is there.
    pub(super) const fn admits(&self, begun: bool) -> bool {
        matches!(self.state, State::Log | State::Lowering { .. } | State::Draining { .. })
            || (begun && matches!(self.state, State::Emptying { .. }))
    }

    /// Whether writes are acknowledged when they are upstream.
    pub(super) const fn defers(&self) -> bool {
        !matches!(self.state, State::Log | State::Lowering { .. })
    }

    /// Whether a switch waits for everything to be upstream.
    pub(super) const fn drains(&self) -> bool {
        matches!(
            self.state,
            State::Lowering { .. } | State::Draining { .. } | State::Emptying { .. }
        )
    }

    /// Whether a super block is wanted that says that everything is upstream.
    pub(super) const fn is_marking(&self) -> bool {
        matches!(self.state, State::Marking { .. })
    }

    pub(super) const fn is_through(&self) -> bool {
        matches!(self.state, State::Through { .. })
    }

    /// Whether writes bypass the log, or are about to.
    pub(super) const fn bypasses(&self) -> bool {
        matches!(self.state, State::Marking { .. } | State::Through { .. })
    }

    /// An operator turns write-back off with `drain`, or on.
    pub(super) fn request(&mut self, drain: bool, view: View) -> Transition {
        let failed = view.failed;
        if let State::Lowering { why, .. }
        | State::Draining { why, .. }
        | State::Emptying { why }
        | State::Marking { why }
        | State::Through { why } = &mut self.state
            && drain
            && matches!(why, Why::Behind { .. })
        {
            // Less load does not end what an operator has asked for.
            *why = Why::Asked;
            return Transition::Changed;
        }
        match (self.state, drain) {
            (State::Log, true) => {
                self.state = view.lowering(Why::Asked);
            }
            (
                State::Lowering { .. }
                | State::Draining { .. }
                | State::Emptying { .. }
                | State::Marking { .. },
                false,
            ) if !failed => {
                self.use_log();
                return Transition::Undo;
            }
            (State::Through { .. }, false) if !failed => {
                self.use_log();
                return Transition::Resumed;
            }
            _ => return Transition::None,
        }
        Transition::Changed
    }

    /// The log is used from now on, and both checks begin anew.
    fn use_log(&mut self) {
        self.state = State::Log;
        self.latency.reset();
        self.load.reset();
    }

    /// The log device has failed: all goes upstream from memory, then new writes do.
    pub(super) const fn log_failed(&mut self) {
        self.state = State::Emptying { why: Why::Failed };
    }

    /// The last super block could not be written.
    pub(super) const fn mark_failed(&mut self, now: Instant) {
        if let State::Marking { .. } = self.state {
            self.state = State::Abandoning { again: Some(now) };
        }
    }

    /// The shell has remembered that the log is void, or could not.
    pub(super) fn abandoned(&mut self, now: Instant, outcome: Outcome, view: View) -> Transition {
        let State::Abandoning { again } = &mut self.state else { return Transition::None };
        if outcome.is_err() {
            *again = Some(now + ABANDON_RETRY);
            return Transition::Changed;
        }
        self.go_through(Why::Failed, view)
    }

    /// Writes go upstream from now on.
    fn go_through(&mut self, why: Why, view: View) -> Transition {
        assert!(
            view.no_epochs && !view.partial && !view.in_debt,
            "no write goes past the log before everything in it is upstream: {view:?}"
        );
        self.state = State::Through { why };
        Transition::Through(why)
    }

    /// Goes to the next state if that is due.
    pub(super) fn step(&mut self, now: Instant, view: View) -> Transition {
        assert!(
            view.applied <= view.last,
            "records are applied after they were numbered: {view:?}"
        );
        match self.state {
            State::Log => {
                let commits =
                    self.latency.slower().map(|(local, upstream)| Why::Slower { local, upstream });
                let load = || {
                    self.load
                        .slower(view.behind)
                        .map(|(log, upstream)| Why::Behind { log, upstream })
                };
                let Some(why) = commits.or_else(load).filter(|_| self.checks) else {
                    return Transition::None;
                };
                self.state = view.lowering(why);
            }
            State::Lowering { why, until } if view.low || view.end >= until => {
                self.state = State::Draining { upto: view.last, why };
            }
            State::Through { why: Why::Behind { .. } } if self.load.is_calm(now) => {
                self.use_log();
                return Transition::Resumed;
            }
            State::Draining { upto, why } if view.applied >= upto => {
                self.state = State::Emptying { why };
            }
            State::Draining { upto, .. } => {
                assert!(upto <= view.last, "a drain waits for records that are there: {view:?}");
                return Transition::None;
            }
            State::Emptying { why } if view.no_epochs && !view.committing && !view.in_debt => {
                let empty = view.all_written && view.all_applied && !view.partial;
                if !view.failed && !empty {
                    return Transition::None;
                }
                self.state = State::Marking { why };
            }
            State::Marking { why } if !view.committing && view.void => {
                return self.go_through(why, view);
            }
            State::Abandoning { again: Some(at) } if now >= at => {
                self.state = State::Abandoning { again: None };
                return Transition::Abandon;
            }
            _ => return Transition::None,
        }
        Transition::Changed
    }

    /// When the next step is due although nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Abandoning { again } => again,
            State::Through { why: Why::Behind { .. } } => self.load.deadline(),
            _ => None,
        }
    }
}

/// How long until remembering that the log is void is tried again.
const ABANDON_RETRY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// A log that is empty and says so.
    const EMPTY: View = View {
        failed: false,
        last: 0,
        applied: 0,
        all_applied: true,
        all_written: true,
        no_epochs: true,
        committing: false,
        partial: false,
        void: true,
        end: 0,
        behind: 0,
        low: true,
        in_debt: false,
    };

    /// An empty log is drained in four steps, and writes go past it then.
    #[test]
    fn an_empty_log_is_drained_at_once() {
        let mut switch = ModeSwitch::new(false);
        assert_eq!(switch.request(true, EMPTY), Transition::Changed);
        let steps = [(); 4].map(|()| switch.step(Instant::ZERO, EMPTY));
        assert_eq!(
            steps,
            [
                Transition::Changed,
                Transition::Changed,
                Transition::Changed,
                Transition::Through(Why::Asked)
            ]
        );
        assert!(switch.is_through());
    }

    /// Hosts that write more than the pace allows do not keep a log from being emptied.
    #[test]
    fn lowering_ends() {
        let view = |end, behind| View { end, behind, low: false, ..EMPTY };
        let mut switch = ModeSwitch::new(false);
        switch.request(true, view(100, 50));
        assert_eq!(switch.step(Instant::ZERO, view(199, 60)), Transition::None);
        assert!(switch.lowers() && !switch.defers());
        assert_eq!(switch.step(Instant::ZERO, view(200, 60)), Transition::Changed);
        assert!(!switch.lowers() && switch.defers());
    }

    /// A volume that was slower with its log uses it again when load falls, but not if an operator has asked for a drain
    /// meanwhile.
    #[test]
    fn an_operator_outlasts_the_load() {
        let why =
            Why::Behind { log: Duration::from_millis(75), upstream: Duration::from_millis(25) };
        for asked in [false, true] {
            let mut switch = ModeSwitch { state: State::Through { why }, ..ModeSwitch::new(true) };
            if asked {
                assert_eq!(switch.request(true, EMPTY), Transition::Changed);
            }
            let resumed = (0..100).any(|i| {
                let now = Instant::ZERO + Duration::from_secs(10 * i);
                switch.step(now, EMPTY) == Transition::Resumed
            });
            assert_eq!(resumed, !asked);
        }
    }

    /// Data that comes between the last step and the one before would be overtaken: that is noticed.
    #[test]
    #[should_panic(expected = "no write goes past the log before")]
    fn nothing_overtakes_the_log() {
        let mut switch = ModeSwitch::new(false);
        switch.request(true, EMPTY);
        for _ in 0..3 {
            switch.step(Instant::ZERO, EMPTY);
        }
        switch.step(Instant::ZERO, View { no_epochs: false, ..EMPTY });
    }
}
