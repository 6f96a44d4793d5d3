//! What is known of a path, for operators and observers.

use crate::clock::{Duration, Instant};
use crate::request::{BackendId, PathId};
use core::fmt;

/// What a target says of a path: the asymmetric access states (SPC-4, 5.15.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Access {
    /// Active/optimized: the path to use.
    #[default]
    Optimized,
    /// Active/non-optimized: used while no optimized path of the group works.
    NonOptimized,
    /// Commands for the medium are refused; no I/O is sent.
    Standby,
    /// As [`Standby`](Self::Standby), and fewer commands are served.
    Unavailable,
    /// Between two of the others; no I/O is sent.
    Transitioning,
}

impl Access {
    /// Every state, in the order of [`code`](Self::code).
    pub const ALL: [Self; 5] = [
        Self::Optimized,
        Self::NonOptimized,
        Self::Standby,
        Self::Unavailable,
        Self::Transitioning,
    ];

    /// A small stable number for recordings.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The state with this stable number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Whether I/O may be sent.
    pub const fn is_accessible(self) -> bool {
        matches!(self, Self::Optimized | Self::NonOptimized)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Standby => "standby",
            Self::Unavailable => "unavailable",
            Self::Transitioning => "transitioning",
        })
    }
}

/// What an operator asks of the paths of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathOrder {
    /// Send nothing more on this path; what is on it ends there.
    Disable(PathId),
    /// Use this path again.
    Enable(PathId),
    /// Go back to the first group in order that has a usable path.
    Failback,
}

/// What a path is good for at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It is in use.
    Active,
    /// It works, and another group or a better path of its group is in use.
    Waiting,
    /// It works again, and has a limit of I/Os at once, which grows with time.
    Returning,
    /// It is an order of magnitude slower than others; only probes are sent on it.
    Ejected,
    /// It does not work.
    Failed,
    /// The operator has switched it off.
    Disabled,
    /// The target takes no I/O on it: its [`Access`] says so.
    Inaccessible,
}

impl State {
    /// Its name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Waiting => "waiting",
            Self::Returning => "returning",
            Self::Ejected => "ejected",
            Self::Failed => "failed",
            Self::Disabled => "disabled",
            Self::Inaccessible => "inaccessible",
        }
    }

    /// Whether I/O may be sent on it, be it now or as soon as it is its turn.
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Active | Self::Waiting | Self::Returning)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a path is in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// It has been so from the start.
    Start,
    /// Its connection was lost, or an I/O failed because of it.
    LinkLost,
    /// Nothing was heard for too long, not even an answer to a check.
    NoAnswer,
    /// It is an order of magnitude slower than the best path of its group, or reads hung there while
    /// another path did better.
    Slow,
    /// It works again.
    Repaired,
    /// Enough probes in a row were answered as fast as on other paths.
    Probed,
    /// Probes were not possible, or told nothing for sure, so it is simply tried.
    Trial,
    /// It has changed its state too often in a minute and stays out until that is over.
    Flapping,
    /// It returned step by step, and nothing speaks against it any more.
    Settled,
    /// There is no better one that answers.
    LastLeft,
    /// The group in use has changed, or which of its paths are.
    Group,
    /// The operator has asked for it.
    ByOperator,
    /// The target has said so.
    ByTarget,
}

impl Why {
    /// Its name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::LinkLost => "link lost",
            Self::NoAnswer => "no answer",
            Self::Slow => "slow",
            Self::Repaired => "repaired",
            Self::Probed => "probed",
            Self::Trial => "trial",
            Self::Flapping => "flapping",
            Self::Settled => "settled",
            Self::LastLeft => "last left",
            Self::Group => "group",
            Self::ByOperator => "by operator",
            Self::ByTarget => "by target",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How fast a path has been found to be: an I/O of `n` bytes takes `fixed`, and `per_mib` for each
/// MiB of it, when nothing else is on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Time for an I/O of no bytes.
    pub fixed: Duration,
    /// Time for each MiB.
    pub per_mib: Duration,
}

/// A path as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The device or target behind.
    pub backend: BackendId,
    /// The path, counted within the backend.
    pub path: PathId,
    /// Its priority group; smaller is better.
    pub group: u32,
    /// What the target says of it.
    pub access: Access,
    /// What it is good for.
    pub state: State,
    /// Since when.
    pub since: Instant,
    /// Why.
    pub why: Why,
    /// I/Os on it.
    pub in_flight: u32,
    /// Their payload in bytes.
    pub bytes: u64,
    /// How long the oldest of them has been on it.
    pub oldest: Duration,
    /// How fast it has been found to be.
    pub learned: Option<Speed>,
    /// How often its state has changed.
    pub changes: u64,
    /// Why it is ejected, and what its probes say, if it is.
    pub ejection: Option<Ejection>,
    /// Until when it stays out of use because its state has changed too often.
    pub barred: Option<Instant>,
}

/// Why a path was ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grounds {
    /// The mean response of its I/Os.
    pub response: Duration,
    /// What they would have taken on the best path at that time.
    pub expected: Duration,
    /// I/Os by which it was judged; their times do not overlap.
    pub events: u32,
    /// The time in which they were answered.
    pub over: Duration,
}

/// An ejected path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Why it was ejected.
    pub grounds: Grounds,
    /// A small read that is due from then on is sent on it as a probe.
    pub next_probe: Instant,
    /// Without a probe until then it is used again.
    pub trial_at: Instant,
    /// The last probe, if it was answered.
    pub last_probe: Option<Probe>,
    /// Good probes in a row.
    pub probes_passed: u32,
    /// The number of them that returns it to use.
    pub probes_to_return: u32,
}

/// An answered probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its response.
    pub response: Duration,
    /// The longest response that would have been good.
    pub max: Duration,
}

/// A path's state has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The device or target behind.
    pub backend: BackendId,
    /// The path, counted within the backend.
    pub path: PathId,
    /// The state that ended.
    pub from: State,
    /// How long it had lasted.
    pub lasted: Duration,
    /// The state that begins.
    pub state: State,
    /// Why.
    pub why: Why,
    /// By what it was judged, if it is ejected.
    pub grounds: Option<Grounds>,
}
