//! # Eviction policy: ARC
//!
//! Lines used once and lines used more often share the buffer as what was given up too early shows.
//!
//! | | |
//! |---|---|
//! | Model    | lists T1 (used once) and T2 (more often) by last use, ghosts B1 and B2 of what left them. A line that comes while it is in B1 moves the aim for T1 up by max(1, B2 / B1), one in B2 down by max(1, B1 / B2). T1 gives a line up when it is over its aim, T2 otherwise |
//! | Units    | lines, whole: the quotients are rounded down |
//! | Ties     | T1 at its aim gives up if the line that comes is in B2, T2 otherwise |
//! | Cost     | O(1) per line; 9 bytes for each line of the buffer, and 26 to 32 for each ghost, of which there are as many as lines |
//! | Source   | Megiddo and Modha, *ARC: a self-tuning, low overhead replacement cache*, FAST 2003, figure 4 |
//! | Differs  | a line that was written over leaves a free frame, which the published cache never has: what comes into it moves no aim, and B1 gives way so that T1 and B1 are no more than the buffer |
//! | Not when | every byte per line counts: `clock`; its ghosts are ten times what that takes |

use super::ghosts::Ghosts;
use super::links::{Links, List};
use super::{Build, Evict, Frame, Line};
use crate::policy::Policy;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "arc",
    summary: "lines used once and lines used more often share the buffer as what was given up too early \
              shows",
    properties: &[],
    parameters: &[],
    build: |_, lines| Box::new(Arc::new(lines)),
};

/// Lines used once, and in [`Ghosts`] those that were.
const ONCE: usize = 0;

/// Lines used more often, and in [`Ghosts`] those that were.
const OFTEN: usize = 1;

#[derive(Debug)]
struct Arc {
    links: Links,
    /// T1 and T2.
    lists: [List; 2],
    /// B1 and B2.
    ghosts: Ghosts,
    /// By frame: whether the line is in T2.
    often: Vec<bool>,
    /// Lines of the buffer.
    lines: u32,
    /// Lines that T1 should have.
    aim: u32,
}

impl Arc {
    fn new(lines: u32) -> Self {
        Self {
            links: Links::new(lines),
            lists: [List::EMPTY; 2],
            // One more, since a victim is remembered before the line that comes is forgotten.
            ghosts: Ghosts::new(lines.saturating_add(1)),
            often: alloc::vec![false; lines as usize],
            lines,
            aim: 0,
        }
    }

    /// What a line that comes teaches, by the list of ghosts that it is in.
    fn adapt(&mut self, found: Option<usize>) {
        let (once, often) = (self.ghosts.len(ONCE), self.ghosts.len(OFTEN));
        match found {
            Some(ONCE) => self.aim = self.lines.min(self.aim.saturating_add((often / once).max(1))),
            Some(_) => self.aim = self.aim.saturating_sub((once / often).max(1)),
            None => {}
        }
    }

    /// Takes the oldest line out of a list.
    fn give_up(&mut self, list: usize, resident: &[Line], remember: bool) -> Option<Frame> {
        let frame = self.links.pop(&mut self.lists[list])?;
        if remember {
            self.ghosts.push(list, resident[frame as usize]);
        }
        Some(Frame(frame))
    }

    /// The procedure REPLACE.
    fn replace(&mut self, found: Option<usize>, resident: &[Line]) -> Option<Frame> {
        let once = self.lists[ONCE].len();
        let over = once > self.aim || (once == self.aim && found == Some(OFTEN));
        let list = if (once > 0 && over) || self.lists[OFTEN].len() == 0 { ONCE } else { OFTEN };
        self.give_up(list, resident, true)
    }
}

impl Evict for Arc {
    fn hit(&mut self, _: Line, frame: Frame) {
        let often = core::mem::replace(&mut self.often[frame.index()], true);
        self.links.remove(&mut self.lists[usize::from(often)], frame.0);
        self.links.push(&mut self.lists[OFTEN], frame.0);
    }

    fn victim(&mut self, incoming: Line, resident: &[Line]) -> Option<Frame> {
        let found = self.ghosts.find(incoming);
        self.adapt(found);
        if found.is_none() {
            let once = self.lists[ONCE].len() + self.ghosts.len(ONCE);
            if once >= self.lines {
                if self.ghosts.len(ONCE) == 0 {
                    return self.give_up(ONCE, resident, false);
                }
                self.ghosts.forget_oldest(ONCE);
            } else if self.ghosts.total() >= self.lines {
                self.ghosts.forget_oldest(OFTEN);
            }
        }
        self.replace(found, resident)
    }

    fn admit(&mut self, line: Line, frame: Frame) {
        let often = self.ghosts.forget(line);
        self.often[frame.index()] = often;
        self.links.push(&mut self.lists[usize::from(often)], frame.0);
        if self.lists[ONCE].len() + self.ghosts.len(ONCE) > self.lines {
            self.ghosts.forget_oldest(ONCE);
        }
    }

    fn remove(&mut self, frame: Frame) {
        let list = usize::from(self.often[frame.index()]);
        self.links.remove(&mut self.lists[list], frame.0);
    }

    fn set_key(&mut self, key: u64) {
        self.ghosts.set_key(key);
    }

    fn remembered(&self) -> u32 {
        self.ghosts.total()
    }

    fn memory(&self) -> usize {
        self.links.memory() + self.ghosts.memory() + self.often.capacity()
    }
}
