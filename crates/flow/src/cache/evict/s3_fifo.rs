//! # Eviction policy: S3-FIFO
//!
//! A line proves in a small queue that it is worth a place in the large one.
//!
//! | | |
//! |---|---|
//! | Model    | queues small (10 % of the buffer) and main; a line counts its uses up to 3. A line that leaves small goes to main if it was used more than once there, otherwise out, and its name to the ghosts; one that comes while it is a ghost goes to main at once. A line that leaves main with uses goes back with one use less |
//! | Units    | lines; uses since it joined the queue |
//! | Ties     | small gives a line up when it holds its share or more, main when small holds less |
//! | Cost     | O(1) amortized; 9 bytes for each line of the buffer, and 26 to 32 for each ghost, of which there are as many as lines in main |
//! | Source   | Yang, Zhang, Qiu, Yue and Rashmi, *FIFO queues are all you need for cache eviction*, SOSP 2023, algorithm 1 |
//! | Differs  | one line is given up at a time: the published loop may take one from main and then another from small |
//! | Not when | the buffer is so small that a line's second use comes after it has left the tenth that small has: `lru`, `arc` |

use super::ghosts::Ghosts;
use super::links::{Links, List};
use super::{Build, Evict, Frame, Line};
use crate::policy::{Parameter, Policy, Unit};
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "s3-fifo",
    summary: "a line proves in a small queue that it is worth a place in the large one",
    properties: &[],
    parameters: &[
        Parameter {
            name: "small",
            unit: Unit::Count,
            min: 1,
            max: 99,
            default: 10,
            effect: "percent of the buffer for lines that have proved nothing yet; more forgives longer \
                     times to the second use, less keeps scans away better",
        },
        Parameter {
            name: "uses",
            unit: Unit::Count,
            min: 1,
            max: 3,
            default: 2,
            effect: "uses after it came that bring a line from the small queue into the main one",
        },
    ],
    build: |values, lines| {
        Box::new(S3Fifo::new(lines, values.get("small"), values.get("uses") as u8))
    },
};

/// Uses that are counted.
const MOST_USES: u8 = 3;

#[derive(Debug)]
struct S3Fifo {
    links: Links,
    small: List,
    main: List,
    ghosts: Ghosts,
    /// By frame.
    state: Vec<State>,
    /// Lines from which on small gives up rather than main.
    share: u32,
    /// Uses that are worth a place in main.
    enough: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct State(u8);

impl State {
    const MAIN: u8 = 4;

    const fn new(in_main: bool, uses: u8) -> Self {
        Self(uses | if in_main { Self::MAIN } else { 0 })
    }

    const fn in_main(self) -> bool {
        self.0 & Self::MAIN != 0
    }

    const fn uses(self) -> u8 {
        self.0 & MOST_USES
    }
}

impl S3Fifo {
    fn new(lines: u32, percent: u64, enough: u8) -> Self {
        let share = (u64::from(lines) * percent / 100).max(1) as u32;
        Self {
            links: Links::new(lines),
            small: List::EMPTY,
            main: List::EMPTY,
            ghosts: Ghosts::new(lines.saturating_sub(share)),
            state: alloc::vec![State::default(); lines as usize],
            share,
            enough,
        }
    }

    fn push_main(&mut self, frame: u32, uses: u8) {
        self.state[frame as usize] = State::new(true, uses);
        self.links.push(&mut self.main, frame);
    }
}

impl Evict for S3Fifo {
    fn hit(&mut self, line: Line, frame: Frame) {
        assert!(self.links.is_linked(frame.0), "{line:?} is not resident");
        let state = self.state[frame.index()];
        self.state[frame.index()] = State::new(state.in_main(), MOST_USES.min(state.uses() + 1));
    }

    fn victim(&mut self, _: Line, resident: &[Line]) -> Option<Frame> {
        loop {
            if self.small.len() >= self.share || self.main.len() == 0 {
                let frame = self.links.pop(&mut self.small)?;
                if self.state[frame as usize].uses() < self.enough {
                    self.ghosts.push(0, resident[frame as usize]);
                    return Some(Frame(frame));
                }
                self.push_main(frame, 0);
            } else {
                let frame = self.links.pop(&mut self.main)?;
                match self.state[frame as usize].uses() {
                    0 => return Some(Frame(frame)),
                    uses => self.push_main(frame, uses - 1),
                }
            }
        }
    }

    fn admit(&mut self, line: Line, frame: Frame) {
        if self.ghosts.forget(line) {
            self.push_main(frame.0, 0);
        } else {
            self.state[frame.index()] = State::new(false, 0);
            self.links.push(&mut self.small, frame.0);
        }
    }

    fn remove(&mut self, frame: Frame) {
        let main = self.state[frame.index()].in_main();
        let list = if main { &mut self.main } else { &mut self.small };
        self.links.remove(list, frame.0);
    }

    fn set_key(&mut self, key: u64) {
        self.ghosts.set_key(key);
    }

    fn remembered(&self) -> u32 {
        self.ghosts.total()
    }

    fn memory(&self) -> usize {
        self.links.memory() + self.ghosts.memory() + self.state.capacity()
    }
}
