//! The lines of a server in the log: each change once, and repeated failures as a sum.

use std::net::SocketAddr;
use std::time::Duration;
use tracing::{info, warn};
use weir_wire::isns::{Phase, View};

/// What was written of a server.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The time of the last failure that was seen.
    seen: Option<Duration>,
    /// The failure that the log has, and when it was written.
    written: Option<(String, Duration)>,
    /// Failures like it since then.
    repeated: u64,
    registered: bool,
    /// Whether it ever was.
    ever: bool,
    left: bool,
}

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Registered { portals: usize, targets: usize, again: bool },
    Failed { problem: String, repeated: u64 },
    Left,
}

impl Lines {
    /// The lines for what has changed.
    pub(super) fn of(&mut self, now: Duration, view: &View) -> Vec<Line> {
        let mut lines = Vec::new();
        if let Some((at, failure)) = view.failure.as_ref().filter(|(at, _)| Some(*at) != self.seen)
        {
            self.seen = Some(*at);
            let problem = failure.to_string();
            match &self.written {
                Some((before, when)) if *before == problem && now < *when + SUM => {
                    self.repeated += 1;
                }
                _ => {
                    let repeated = std::mem::take(&mut self.repeated);
                    self.written = Some((problem.clone(), now));
                    lines.push(Line::Failed { problem, repeated });
                }
            }
        }
        match view.phase {
            Phase::Registered if !self.registered => {
                (self.registered, self.written, self.repeated) = (true, None, 0);
                let again = std::mem::replace(&mut self.ever, true);
                let (portals, targets) = (view.portals.len(), view.targets);
                lines.push(Line::Registered { portals, targets, again });
            }
            Phase::Waiting | Phase::Registering => self.registered = false,
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
            Self::Failed { problem, repeated } => warn!(
                %server,
                problem,
                repeated,
                "iSNS: hosts may not find this gateway by this server; it is tried again"
            ),
            Self::Left => info!(%server, "left the iSNS server"),
        }
    }
}

/// A failure that lasts is written again after this time, with how often it was repeated.
const SUM: Duration = Duration::from_mins(10);
