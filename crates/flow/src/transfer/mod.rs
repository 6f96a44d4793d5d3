//! Stage 7, transfer: which finished reply is sent first on a busy link?
//!
//! Every link has a policy of its own and a window: replies are handed out while fewer than that
//! many bytes are on their way. A window of one byte makes the link an engine that sends one reply
//! at a time.

mod fifo;

use crate::clock::Instant;
use crate::policy::{Choice, Policy, Rule};
use crate::request::{LinkId, Request, RequestKey};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Orders the replies of one link.
///
/// Laws (checked for every policy in the list): each reply is sent exactly once; with a reply
/// waiting, `pop` never returns `None`; the same inputs give the same order.
pub trait TransferPolicy {
    /// A reply is ready.
    fn push(&mut self, now: Instant, key: RequestKey, request: &Request);

    /// The reply to send next, and the rule that held it until now.
    fn pop(&mut self, now: Instant) -> Option<(RequestKey, Rule)>;

    /// The last byte of a reply has left.
    fn sent(&mut self, now: Instant, key: RequestKey);
}

/// Builds the policy of one link from checked parameter values.
pub type Build = fn(&[u64]) -> Box<dyn TransferPolicy>;

/// Every transfer policy; the first is the default.
pub static POLICIES: &[Policy<Build>] = &[fifo::POLICY];

/// The stage: a policy and a window per link.
pub(crate) struct Links {
    choice: Choice<Build>,
    window: u64,
    lines: Vec<Line>,
}

struct Line {
    policy: Box<dyn TransferPolicy>,
    outstanding: u64,
}

impl Links {
    pub(crate) fn new(choice: &Choice<Build>, window: u64) -> Self {
        Self { choice: choice.clone(), window, lines: Vec::new() }
    }

    pub(crate) fn push(&mut self, now: Instant, key: RequestKey, request: &Request) {
        let index = request.link.index();
        while self.lines.len() <= index {
            let policy = (self.choice.policy().build)(self.choice.values());
            self.lines.push(Line { policy, outstanding: 0 });
        }
        self.lines[index].policy.push(now, key, request);
    }

    /// The next reply that the link's window lets out. Follow with [`start`](Self::start).
    pub(crate) fn pop(&mut self, now: Instant, link: LinkId) -> Option<(RequestKey, Rule)> {
        let link = &mut self.lines[link.index()];
        if link.outstanding >= self.window {
            return None;
        }
        link.policy.pop(now)
    }

    /// Charges the window of the request's link.
    pub(crate) fn start(&mut self, request: &Request) {
        self.lines[request.link.index()].outstanding += weight(request);
    }

    pub(crate) fn sent(&mut self, now: Instant, key: RequestKey, request: &Request) {
        let link = &mut self.lines[request.link.index()];
        link.outstanding =
            link.outstanding.checked_sub(weight(request)).expect("only what was started is sent");
        link.policy.sent(now, key);
    }
}

/// What a reply takes of the window. A reply without data still takes a place.
const fn weight(request: &Request) -> u64 {
    let bytes = request.reply_bytes();
    if bytes == 0 { 1 } else { bytes }
}

impl core::fmt::Debug for Links {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Links({})", self.lines.len())
    }
}
