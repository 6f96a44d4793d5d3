//! # Eviction policy: SIEVE
//!
//! A hand goes through the lines by age and takes the first that was not used since it passed.
//!
//! | | |
//! |---|---|
//! | Model    | a queue, a bit for each line, a hand; a use sets the bit. The hand goes from old to new, clears bits that are set, and takes the first line whose bit is not; after the newest comes the oldest. No line ever changes its place |
//! | Units    | lines |
//! | Ties     | none: the queue decides |
//! | Cost     | O(1) amortized: what the hand passes over was used; 9 bytes for each line of the buffer |
//! | Source   | Zhang, Yang, Yue, Vigfusson and Rashmi, *SIEVE is simpler than LRU: an efficient turn-key eviction algorithm for web caches*, NSDI 2024, algorithm 1 |
//! | Not when | lines come back after they were given up, as blocks do: it remembers none. `s3-fifo` |

use super::links::{Links, List};
use super::{Build, Evict, Frame, Line};
use crate::policy::Policy;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "sieve",
    summary: "a hand goes through the lines by age and takes the first that was not used since it passed",
    properties: &[],
    parameters: &[],
    build: |_, lines| {
        Box::new(Sieve {
            links: Links::new(lines),
            queue: List::EMPTY,
            used: alloc::vec![false; lines as usize],
            hand: None,
        })
    },
};

#[derive(Debug)]
struct Sieve {
    links: Links,
    queue: List,
    /// By frame.
    used: Vec<bool>,
    /// The next frame to look at; at the start of a round the oldest.
    hand: Option<u32>,
}

impl Sieve {
    /// Takes a line out of the queue; a hand that points at it moves to the next.
    fn take(&mut self, frame: u32) {
        if self.hand == Some(frame) {
            self.hand = self.links.newer(frame);
        }
        self.links.remove(&mut self.queue, frame);
    }
}

impl Evict for Sieve {
    fn hit(&mut self, line: Line, frame: Frame) {
        assert!(self.links.is_linked(frame.0), "{line:?} is not resident");
        self.used[frame.index()] = true;
    }

    fn victim(&mut self, _: Line, _: &[Line]) -> Option<Frame> {
        loop {
            let frame = self.hand.or(self.queue.oldest())?;
            self.hand = Some(frame);
            if !core::mem::take(&mut self.used[frame as usize]) {
                self.take(frame);
                return Some(Frame(frame));
            }
            self.hand = self.links.newer(frame);
        }
    }

    fn admit(&mut self, _: Line, frame: Frame) {
        self.used[frame.index()] = false;
        self.links.push(&mut self.queue, frame.0);
    }

    fn remove(&mut self, frame: Frame) {
        self.take(frame.0);
    }

    fn memory(&self) -> usize {
        self.links.memory() + self.used.capacity()
    }
}
