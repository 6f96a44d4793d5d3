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
//! Cost: nothing while no path is asked; after a reset two round trips, after a login one, more where a reset or a login
//! comes meanwhile: a question that was asked too early is repeated.

use crate::storage::io::Ended;
use weir_flow::clock::Instant;

/// Which paths have been asked, and what each has still to report.
#[derive(Clone, Debug)]
pub(super) struct Resets {
    paths: Vec<PathReports>,
    /// When the answers are in, all paths are asked.
    ask_all: bool,
    /// Flushes that ended well while a path was asked: at most those that the pipeline has outstanding. Their wait ends with
    /// the questions, each of which has a time limit.
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

    /// A flush has ended well; it is given back unless it waits for answers.
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

    /// Takes the flushes that were held.
    pub(super) fn take_held(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.held)
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

#[cfg(test)]
mod tests;
