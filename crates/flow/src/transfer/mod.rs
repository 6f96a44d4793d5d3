//! Stage 7, transfer: which finished reply is sent first on a busy link?
//!
//! Every link has a policy of its own and a window: replies are handed out, whole or in parts, while fewer
//! than that many bytes are on their way. A window of one byte makes the link an engine that sends one
//! part at a time.
//!
//! Policies measure time in **work**, bytes that the link has sent. While replies wait it does nothing else,
//! so that this is time as the link has it, whatever its rate is and however that changes: at `r` bytes per
//! second a budget of `b` bytes is `b / r` seconds.

mod aged;
mod dqbs;
mod fifo;
mod fsp;
mod hrrn;
mod round_robin;
mod sjf;
mod slack;
mod srpt;
mod waiting;

use crate::policy::{Choice, Parameter, Policy, Rule, Unit};
use crate::request::{LinkId, Outcome, Request, RequestKey};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Orders the replies of one link.
///
/// Laws (checked for every policy in the list): each byte of a reply is handed out exactly once; a reply
/// that is to stay whole is handed out at once; with a reply waiting, `pop` never returns `None`; the same
/// inputs give the same grants.
pub trait TransferPolicy {
    /// A reply is ready. `work` is what the link has sent by now, in bytes; it never runs backwards.
    fn push(&mut self, work: u64, reply: Reply);

    /// What to send next.
    fn pop(&mut self, work: u64) -> Option<Grant>;

    /// So many bytes of a reply have left. They are among those of `work`.
    fn sent(&mut self, _work: u64, _key: RequestKey, _bytes: u64) {}
}

/// A reply that waits for its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Whose it is.
    pub key: RequestKey,
    /// What it takes of the link, at least 1.
    pub bytes: u64,
    /// Nothing may be sent between its bytes.
    pub whole: bool,
}

/// What of a reply is to be sent now: so many bytes, from where the last grant for it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whose it is.
    pub key: RequestKey,
    /// How many, at least 1.
    pub bytes: u64,
}

/// A part of a reply's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its first byte.
    pub offset: u64,
    /// Bytes; 0 if the reply has none.
    pub length: u64,
    /// The reply ends with it.
    pub last: bool,
}

/// What a link is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Bytes of one reply may be sent between those of another: iSCSI has Data-In PDUs for that, a simple
    /// reply of NBD is in one piece.
    pub interleaves: bool,
}

impl Default for Link {
    fn default() -> Self {
        Self { interleaves: true }
    }
}

/// Builds the policy of one link from checked parameter values.
pub type Build = fn(&[u64]) -> Box<dyn TransferPolicy>;

/// Every transfer policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[
    fifo::POLICY,
    slack::POLICY,
    srpt::POLICY,
    sjf::POLICY,
    aged::POLICY,
    fsp::POLICY,
    hrrn::POLICY,
    round_robin::POLICY,
    dqbs::POLICY,
];

/// The rule of replies that waited until those before them had been sent.
pub const RULE_LINK: Rule = Rule("transfer/link");

/// The rule of replies that waited while something of a later one was sent.
pub const RULE_ORDER: Rule = Rule("transfer/order");

/// No reply is larger: as a chunk it keeps replies whole, as a budget it is as good as infinite.
const WHOLE: u64 = 1 << 40;

/// The chunk of policies that interrupt replies.
const CHUNK: Parameter = Parameter {
    name: "chunk",
    unit: Unit::Bytes,
    min: 1,
    max: WHOLE,
    default: 64 << 10,
    effect: "bytes of a reply after which another may have its turn, where the link lets them interleave; \
             fewer let small replies pass sooner and cost a header each time",
};

/// The chunk of policies that as they are published interrupt nothing.
const NO_CHUNK: Parameter = Parameter { default: WHOLE, ..CHUNK };

/// How much of a length a wait makes up for.
const WEIGHT: Parameter = Parameter {
    name: "weight",
    unit: Unit::Count,
    min: 0,
    max: 10_000,
    default: 100,
    effect: "per cent of the bytes sent while it waited that a reply is ahead; 0 is shortest first, more is \
             nearer to first in, first out",
};

/// The stage: a policy and a window per link.
pub(crate) struct Links {
    choice: Choice<Build>,
    window: u64,
    lines: Vec<Line>,
}

struct Line {
    policy: Box<dyn TransferPolicy>,
    link: Link,
    /// What is on its way.
    outstanding: u64,
    /// What has left.
    work: u64,
    /// Replies that have become ready.
    ready: u64,
    /// The youngest of which something was handed out.
    youngest: u64,
}

impl Links {
    pub(crate) fn new(choice: &Choice<Build>, window: u64) -> Self {
        Self { choice: choice.clone(), window, lines: Vec::new() }
    }

    /// A link is like this from now on.
    pub(crate) fn set(&mut self, id: LinkId, link: Link) {
        self.line(id).link = link;
    }

    /// A reply is ready.
    pub(crate) fn push(&mut self, id: LinkId, key: RequestKey, progress: &mut Progress) {
        let line = self.line(id);
        line.ready += 1;
        progress.place = line.ready;
        let whole = !line.link.interleaves;
        line.policy.push(line.work, Reply { key, bytes: progress.takes(), whole });
    }

    /// What the link's window lets out next. Follow with [`start`](Self::start).
    pub(crate) fn pop(&mut self, id: LinkId) -> Option<Grant> {
        let line = &mut self.lines[id.index()];
        if line.outstanding >= self.window {
            return None;
        }
        line.policy.pop(line.work)
    }

    /// Charges the window for a grant, and says which part of the reply it is.
    pub(crate) fn start(&mut self, id: LinkId, bytes: u64, progress: &mut Progress) -> Part {
        let line = &mut self.lines[id.index()];
        line.outstanding += bytes;
        if line.youngest > progress.place {
            progress.rule = Some(RULE_ORDER);
        }
        progress.rule.get_or_insert(RULE_LINK);
        line.youngest = line.youngest.max(progress.place);
        let offset = progress.granted;
        progress.granted += bytes;
        progress.unsent += bytes;
        assert!(progress.granted <= progress.takes(), "a policy grants what there is");
        let last = progress.granted == progress.takes();
        Part { offset, length: bytes.min(progress.bytes), last }
    }

    /// A part of so many bytes has left; `None` if there was none, else whether the reply ends with it.
    pub(crate) fn sent(
        &mut self,
        id: LinkId,
        key: RequestKey,
        bytes: u64,
        progress: &mut Progress,
    ) -> Option<bool> {
        let takes = if progress.bytes == 0 && bytes == 0 { 1 } else { bytes };
        if takes == 0 || takes > progress.unsent {
            return None;
        }
        progress.unsent -= takes;
        let line = &mut self.lines[id.index()];
        line.outstanding -= takes;
        line.work += takes;
        line.policy.sent(line.work, key, takes);
        Some(progress.unsent == 0 && progress.granted == progress.takes())
    }

    fn line(&mut self, id: LinkId) -> &mut Line {
        while self.lines.len() <= id.index() {
            self.lines.push(Line {
                policy: (self.choice.policy().build)(self.choice.values()),
                link: Link::default(),
                outstanding: 0,
                work: 0,
                ready: 0,
                youngest: 0,
            });
        }
        &mut self.lines[id.index()]
    }
}

/// How far a reply has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Bytes of data.
    bytes: u64,
    /// Its place among those of its link.
    place: u64,
    granted: u64,
    /// What of that is on its way.
    unsent: u64,
    /// What has held it; `None` until something of it is sent.
    pub(crate) rule: Option<Rule>,
}

impl Progress {
    pub(crate) const fn of(request: &Request, outcome: Outcome) -> Self {
        // An error comes without data.
        let bytes = if outcome.is_ok() { request.reply_bytes() } else { 0 };
        Self { bytes, place: 0, granted: 0, unsent: 0, rule: None }
    }

    /// What it takes of its link. A reply without data still takes a place.
    const fn takes(&self) -> u64 {
        if self.bytes == 0 { 1 } else { self.bytes }
    }
}

impl core::fmt::Debug for Links {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Links({})", self.lines.len())
    }
}
