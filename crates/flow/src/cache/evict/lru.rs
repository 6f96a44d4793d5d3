//! # Eviction policy: least recently used
//!
//! The line that has not been used for longest goes first.
//!
//! | | |
//! |---|---|
//! | Model    | a list by last use; coming counts as a use |
//! | Units    | lines |
//! | Ties     | none: uses come one after the other |
//! | Cost     | O(1) per line; 8 bytes for each line of the buffer |
//! | Source   | Mattson, Gecsei, Slutz and Traiger, *Evaluation techniques for storage hierarchies*, IBM Systems Journal 9(2), 1970 |
//! | Not when | hosts scan: one pass over more than the buffer leaves nothing of what was worth keeping: `s3-fifo` |

use super::links::{Links, List};
use super::{Build, Evict, Frame, Line};
use crate::policy::Policy;
use alloc::boxed::Box;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "lru",
    summary: "the line that has not been used for longest goes first",
    properties: &[],
    parameters: &[],
    build: |_, lines| Box::new(Lru { links: Links::new(lines), list: List::EMPTY }),
};

#[derive(Debug)]
struct Lru {
    links: Links,
    list: List,
}

impl Evict for Lru {
    fn hit(&mut self, _: Line, frame: Frame) {
        self.links.renew(&mut self.list, frame.0);
    }

    fn victim(&mut self, _: Line, _: &[Line]) -> Option<Frame> {
        self.links.pop(&mut self.list).map(Frame)
    }

    fn admit(&mut self, _: Line, frame: Frame) {
        self.links.push(&mut self.list, frame.0);
    }

    fn remove(&mut self, frame: Frame) {
        self.links.remove(&mut self.list, frame.0);
    }

    fn memory(&self) -> usize {
        self.links.memory()
    }
}
