//! # Eviction policy: clock
//!
//! The line that came first goes first, but one that was used since is passed over once.
//!
//! | | |
//! |---|---|
//! | Model    | a queue and a bit for each line; a use sets the bit. The oldest line goes if its bit is not set; otherwise the bit is cleared and the line is as new as one that came |
//! | Units    | lines |
//! | Ties     | none: the queue decides |
//! | Cost     | O(1) amortized: what a victim passes over was used; 9 bytes for each line of the buffer |
//! | Source   | Corbató, *A paging experiment with the Multics system*, MIT Project MAC report MAC-M-384, 1968: second chance |
//! | Not when | hosts scan: `s3-fifo`. It is `lru` with cheaper uses |

use super::links::{Links, List};
use super::{Build, Evict, Frame, Line};
use crate::policy::Policy;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "clock",
    summary: "the line that came first goes first, but one that was used since is passed over once",
    properties: &[],
    parameters: &[],
    build: |_, lines| {
        Box::new(Clock {
            links: Links::new(lines),
            queue: List::EMPTY,
            used: alloc::vec![false; lines as usize],
        })
    },
};

#[derive(Debug)]
struct Clock {
    links: Links,
    queue: List,
    /// By frame.
    used: Vec<bool>,
}

impl Evict for Clock {
    fn hit(&mut self, line: Line, frame: Frame) {
        assert!(self.links.is_linked(frame.0), "{line:?} is not resident");
        self.used[frame.index()] = true;
    }

    fn victim(&mut self, _: Line, _: &[Line]) -> Option<Frame> {
        loop {
            let frame = self.links.pop(&mut self.queue)?;
            if !core::mem::take(&mut self.used[frame as usize]) {
                return Some(Frame(frame));
            }
            self.links.push(&mut self.queue, frame);
        }
    }

    fn admit(&mut self, _: Line, frame: Frame) {
        self.used[frame.index()] = false;
        self.links.push(&mut self.queue, frame.0);
    }

    fn remove(&mut self, frame: Frame) {
        self.links.remove(&mut self.queue, frame.0);
    }

    fn memory(&self) -> usize {
        self.links.memory() + self.used.capacity()
    }
}
