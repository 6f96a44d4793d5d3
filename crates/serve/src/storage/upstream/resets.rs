//! Resets of the unit: what the report of a path means, which paths are asked for theirs, and which flushes wait for it.
//!
//! A reset may lose what no flush covers. Each session reports it once, before its next command (SAM-5, 5.14), so a
//! report says "at least one reset since the last command here": a path that has been silent may report two resets as
//! one. A flush may not end well on such a path while another one could tell of a second reset.
//!
//! | event | consequence |
//! |---|---|
//! | a path reports a reset that none has reported | it is new; the others are asked with TEST UNIT READY, then all |
//! | a path reports one that another has reported | it is the same; the second question finds a later one |
//! | a session becomes ready | the other paths are asked: it reports no reset before its login |
//! | a flush ends well while a path is asked | it waits for the answers |
//! | a path is lost | it cannot be asked again, so the next report of another path is new; with no path left, held flushes fail and are sent again |
//!
//! Cost: nothing while no path is asked; after a reset two round trips, after a login one.

use super::backend::Upstream;
use super::context::Context;
use super::network::Network;
use super::session::{Loss, PATH_FAILED};
use crate::storage::io::Ended;
use weir_flow::clock::Instant;
use weir_flow::pipeline::Input;

/// Which paths have been asked, and what each has still to report.
#[derive(Clone, Debug)]
pub(super) struct Resets {
    paths: Vec<PathReports>,
    /// When the answers are in, all paths are asked.
    ask_all: bool,
    /// Flushes that ended well while a path was asked.
    held: Vec<Ended>,
}

/// What is known of the reports of one path.
#[derive(Clone, Copy, Debug, Default)]
struct PathReports {
    /// Another path has reported a reset that this one has still to report.
    expected: bool,
    question: Question,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Question {
    #[default]
    None,
    /// Asked at this time.
    Asked(Instant),
    /// Asked too early: it is asked again after the answer.
    Stale(Instant),
}

/// What a call requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    /// These paths are sent TEST UNIT READY.
    Ask(Vec<usize>),
    /// No path is asked any more: the held flushes end well, or with `false` as a failure of the path.
    Release(bool),
}

impl Resets {
    pub(super) fn new(paths: usize) -> Self {
        Self { paths: vec![PathReports::default(); paths], ask_all: false, held: Vec::new() }
    }

    /// A path reports a reset; whether it is a new one. `ready`: the paths that take commands.
    pub(super) fn reported(&mut self, path: usize, ready: &[usize], now: Instant) -> (bool, Next) {
        if std::mem::take(&mut self.paths[path].expected) {
            return (false, Next::Nothing);
        }
        let others: Vec<_> = ready.iter().copied().filter(|&other| other != path).collect();
        for &other in &others {
            self.paths[other].expected = true;
        }
        self.ask_all = !others.is_empty();
        (true, self.ask(&others, now))
    }

    /// A path takes commands from now on.
    pub(super) fn ready(&mut self, path: usize, ready: &[usize], now: Instant) -> Next {
        let others: Vec<_> = ready.iter().copied().filter(|&other| other != path).collect();
        self.ask(&others, now)
    }

    /// A path has executed the TEST UNIT READY that it was sent.
    pub(super) fn answered(&mut self, path: usize, ready: &[usize], now: Instant) -> Next {
        let reports = &mut self.paths[path];
        if matches!(reports.question, Question::Stale(_)) {
            reports.question = Question::None;
            return self.ask(&[path], now);
        }
        *reports = PathReports::default();
        self.settle(ready, now)
    }

    /// The session of a path is over.
    pub(super) fn lost(&mut self, path: usize, ready: &[usize], now: Instant) -> Next {
        let was_asked = self.paths[path].question != Question::None;
        self.paths[path] = PathReports::default();
        // It cannot be asked again, and alone could tell whether the others report the same reset or a later one.
        for other in &mut self.paths {
            other.expected = false;
        }
        if was_asked { self.settle(ready, now) } else { Next::Nothing }
    }

    /// A flush has ended well; it is given back if it may be told.
    pub(super) fn hold(&mut self, flush: Ended) -> Option<Ended> {
        if self.is_settled() {
            return Some(flush);
        }
        self.held.push(flush);
        None
    }

    /// Since when a path owes an answer.
    pub(super) fn asked_at(&self, path: usize) -> Option<Instant> {
        match self.paths[path].question {
            Question::None => None,
            Question::Asked(at) | Question::Stale(at) => Some(at),
        }
    }

    fn is_settled(&self) -> bool {
        self.paths.iter().all(|path| path.question == Question::None)
    }

    fn ask(&mut self, paths: &[usize], now: Instant) -> Next {
        let mut sent = Vec::new();
        for &path in paths {
            let question = &mut self.paths[path].question;
            *question = match *question {
                Question::None => {
                    sent.push(path);
                    Question::Asked(now)
                }
                Question::Asked(at) | Question::Stale(at) => Question::Stale(at),
            };
        }
        if sent.is_empty() { Next::Nothing } else { Next::Ask(sent) }
    }

    /// After the last answer: asks all paths, or ends.
    fn settle(&mut self, ready: &[usize], now: Instant) -> Next {
        if !self.is_settled() {
            return Next::Nothing;
        }
        if std::mem::take(&mut self.ask_all) && !ready.is_empty() {
            return self.ask(ready, now);
        }
        Next::Release(!ready.is_empty())
    }
}

impl<N: Network> Upstream<N> {
    /// A session reports that the unit was reset, and may have lost its cache.
    pub(super) fn was_reset(&mut self, context: &mut Context<N>, index: usize) {
        if !self.unit.has_cache() {
            return;
        }
        let (new, next) = self.resets.reported(index, &self.paths.ready(), context.now);
        if new {
            context.input(Input::UnitReset(self.paths.backend));
        }
        self.go_on(context, next);
    }

    /// A path takes commands from now on.
    pub(super) fn ask_for_resets(&mut self, context: &mut Context<N>, index: usize) {
        if self.unit.has_cache() {
            let next = self.resets.ready(index, &self.paths.ready(), context.now);
            self.go_on(context, next);
        }
    }

    /// A path has answered TEST UNIT READY.
    pub(super) fn has_no_reset(&mut self, context: &mut Context<N>, index: usize) {
        let next = self.resets.answered(index, &self.paths.ready(), context.now);
        self.go_on(context, next);
    }

    /// The session of a path is over.
    pub(super) fn forget_reports(&mut self, context: &mut Context<N>, index: usize) {
        let next = self.resets.lost(index, &self.paths.ready(), context.now);
        self.go_on(context, next);
    }

    /// A flush has ended well on a path.
    pub(super) fn flush_ended(&mut self, context: &mut Context<N>, ended: Ended) {
        if let Some(ended) = self.resets.hold(ended) {
            context.end(ended);
        }
    }

    /// When a path is given up since it does not answer TEST UNIT READY.
    pub(super) fn answer_due(&self, index: usize) -> Option<Instant> {
        self.resets.asked_at(index).map(|at| at + self.paths.config.login_timeout)
    }

    fn go_on(&mut self, context: &mut Context<N>, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Ask(paths) => {
                for index in paths {
                    self.with(context, index, |session, unit| {
                        session.ask_ready(unit.now);
                        Ok(())
                    });
                }
            }
            Next::Release(well) => {
                for ended in std::mem::take(&mut self.resets.held) {
                    let outcome = if well { ended.outcome } else { PATH_FAILED };
                    context.end(Ended { outcome, ..ended });
                }
            }
        }
    }
}

/// A path that does not answer the question after a reset.
pub(super) const NO_ANSWER: Loss =
    Loss::Late("TEST UNIT READY, which asks for resets of the unit, has not ended");

#[cfg(test)]
mod tests;
