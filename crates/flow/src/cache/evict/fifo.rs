//! # Eviction policy: first in, first out
//!
//! The line that came first goes first, used or not.
//!
//! | | |
//! |---|---|
//! | Model    | a queue; a use changes nothing |
//! | Units    | lines |
//! | Ties     | none: lines come one after the other |
//! | Cost     | O(1) per line; 8 bytes for each line of the buffer |
//! | Source   | the published intermediate target's buffer (docs/reference/intermediate.md, sections 4 and 8, 13) |
//! | Not when | some lines are used more often than others: `s3-fifo` |

use super::links::{Links, List};
use super::{Build, Evict, Frame, Line};
use crate::policy::Policy;
use alloc::boxed::Box;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "fifo",
    summary: "the line that came first goes first, used or not",
    properties: &[],
    parameters: &[],
    build: |_, lines| Box::new(Fifo { links: Links::new(lines), queue: List::EMPTY }),
};

#[derive(Debug)]
struct Fifo {
    links: Links,
    queue: List,
}

impl Evict for Fifo {
    fn hit(&mut self, line: Line, frame: Frame) {
        assert!(self.links.is_linked(frame.0), "{line:?} is not resident");
    }

    fn victim(&mut self, _: Line, _: &[Line]) -> Option<Frame> {
        self.links.pop(&mut self.queue).map(Frame)
    }

    fn admit(&mut self, _: Line, frame: Frame) {
        self.links.push(&mut self.queue, frame.0);
    }

    fn remove(&mut self, frame: Frame) {
        self.links.remove(&mut self.queue, frame.0);
    }

    fn memory(&self) -> usize {
        self.links.memory()
    }
}
