//! The links on which replies leave.

use crate::plan::Plan;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_flow::clock::Instant;
use weir_flow::pipeline::Input;
use weir_flow::request::RequestKey;
use weir_model::link::Link;

/// All links, and the parts of replies that are on them.
pub(super) struct Replies {
    links: Vec<Link>,
    /// By the time at which a part has left, and by its number: its request and its bytes.
    sent: BinaryHeap<Reverse<(Instant, u64, RequestKey, u64)>>,
    /// Numbers parts, to keep the order among equal times.
    scheduled: u64,
}

impl Replies {
    pub(super) fn new(plan: &Plan) -> Self {
        let links = plan.links.iter().map(|link| Link::new(link.config)).collect();
        Self { links, sent: BinaryHeap::new(), scheduled: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// When the next part has left.
    pub(super) fn next(&self) -> Option<Instant> {
        self.sent.peek().map(|Reverse(part)| part.0)
    }

    /// A part of a reply is sent; returns when it is received.
    pub(super) fn send(
        &mut self,
        now: Instant,
        link: usize,
        key: RequestKey,
        bytes: u64,
    ) -> Instant {
        let sent = self.links[link].send(now, bytes);
        self.scheduled += 1;
        self.sent.push(Reverse((sent.left, self.scheduled, key, bytes)));
        sent.arrived
    }

    /// The next part has left.
    pub(super) fn left(&mut self) -> Option<Input> {
        let Reverse((_, _, key, bytes)) = self.sent.pop()?;
        Some(Input::Sent { key, bytes })
    }
}
