//! The lines of a server in the log: each change once, and repeated failures as a sum.

use std::net::SocketAddr;
use std::time::Duration;
use tracing::{info, warn};
use weir_wire::isns::{Failure, Phase, View};

/// What was written of a server.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The time of the last failure that was seen.
    seen: Option<Duration>,
    /// The failure that the log has. A registration does not end it: a server may lose each at once.
    written: Option<Written>,
    /// Failures like it since then.
    repeated: u64,
    /// The portals and targets of the registration that the log has, if no failure is behind it.
    registered: Option<(usize, usize)>,
    /// Whether it ever was.
    ever: bool,
    left: bool,
}

#[derive(Debug)]
struct Written {
    problem: String,
    /// Whether it is about an object that the server does not take. All of them are one failure.
    object: bool,
    refused: usize,
    at: Duration,
}

impl Written {
    /// Whether another failure is like it.
    fn is_like(&self, other: &Self) -> bool {
        let same = if self.object { other.object } else { self.problem == other.problem };
        same && other.refused <= self.refused && other.at < self.at + SUM
    }
}

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Registered { portals: usize, targets: usize, again: bool },
    Failed { problem: String, refused: usize, repeated: u64 },
    Left,
}

impl Lines {
    /// The lines for what has changed.
    pub(super) fn of(&mut self, now: Duration, view: &View) -> Vec<Line> {
        let mut lines = Vec::new();
        // An object that the server does not take is looked for by halves: only the end is of interest.
        if view.phase == Phase::Registering {
            return lines;
        }
        if let Some((at, failure)) = view.failure.as_ref().filter(|(at, _)| Some(*at) != self.seen)
        {
            self.seen = Some(*at);
            let problem = failure.to_string();
            let object = matches!(failure, Failure::NotTaken(..));
            let new = Written { problem, object, refused: view.refused, at: now };
            if self.written.as_ref().is_some_and(|written| written.is_like(&new)) {
                self.repeated += 1;
            } else {
                let repeated = std::mem::take(&mut self.repeated);
                let (problem, refused) = (new.problem.clone(), new.refused);
                lines.push(Line::Failed { problem, refused, repeated });
                (self.written, self.registered) = (Some(new), None);
            }
        }
        match view.phase {
            Phase::Registered if self.registered != Some((view.portals.len(), view.targets)) => {
                let again = std::mem::replace(&mut self.ever, true);
                let (portals, targets) = (view.portals.len(), view.targets);
                self.registered = Some((portals, targets));
                lines.push(Line::Registered { portals, targets, again });
            }
            Phase::Left if self.ever && !self.left => {
                self.left = true;
                lines.push(Line::Left);
            }
            _ => {}
        }
        lines
    }
}

impl Line {
    pub(super) fn write(&self, server: SocketAddr) {
        match self {
            Self::Registered { portals, targets, again } => {
                info!(%server, portals, targets, again, "registered at the iSNS server");
            }
            Self::Failed { problem, refused, repeated } => warn!(
                %server,
                problem,
                refused,
                repeated,
                "iSNS: hosts may not find this gateway by this server; it is tried again"
            ),
            Self::Left => info!(%server, "left the iSNS server"),
        }
    }
}

/// A failure that lasts is written again after this time, with how often it was repeated.
pub(super) const SUM: Duration = Duration::from_mins(10);
