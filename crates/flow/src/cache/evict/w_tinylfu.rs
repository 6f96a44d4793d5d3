//! # Eviction policy: W-TinyLFU
//!
//! A line must have been asked for more often than the one it would push out.
//!
//! | | |
//! |---|---|
//! | Model    | a window (1 % of the buffer) by last use, and a main part of probation and protected (80 % of main), each by last use. The oldest of the window goes to main if a sketch of frequencies has it above the oldest of probation, and is given up otherwise. A line used in probation becomes protected; the oldest protected one makes room for it and is on probation again |
//! | Units    | lines; uses in the last 10 requests for each line of the buffer, halved when they are over |
//! | Ties     | who is in main stays |
//! | Cost     | O(1) per line, four places of the sketch for each use; 17.5 to 26 bytes for each line of the buffer |
//! | Source   | Einziger, Friedman and Manes, *TinyLFU: a highly efficient cache admission policy*, ACM Transactions on Storage 13(4), 2017, sections 3 and 4 |
//! | Differs  | no doorkeeper: sixteen counters for each line are enough to tell newcomers apart. Counters are halved when they are next looked at |
//! | Not when | what is wanted changes at once: old fame lasts for several times the buffer. `s3-fifo`, `arc` |

use super::links::{Links, List};
use super::sketch::Sketch;
use super::{Build, Evict, Frame, Line};
use crate::policy::{Parameter, Policy, Unit};
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "w-tinylfu",
    summary: "a line must have been asked for more often than the one it would push out",
    properties: &[],
    parameters: &[
        Parameter {
            name: "window",
            unit: Unit::Count,
            min: 1,
            max: 99,
            default: 1,
            effect: "percent of the buffer that any line gets into; more helps what is used again soon, \
                     less what is used often",
        },
        Parameter {
            name: "sample",
            unit: Unit::Count,
            min: 1,
            max: 1_000,
            default: 10,
            effect: "requests for each line of the buffer after which frequencies are halved; more \
                     remembers longer",
        },
    ],
    build: |values, lines| {
        Box::new(WTinyLfu::new(lines, values.get("window"), values.get("sample")))
    },
};

/// Percent of main that is protected.
const PROTECTED: u64 = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Window,
    Probation,
    Protected,
}

#[derive(Debug)]
struct WTinyLfu {
    links: Links,
    /// By [`Part`].
    lists: [List; 3],
    /// By frame.
    part: Vec<Part>,
    sketch: Sketch,
    /// Lines of the window, at least one.
    window: u32,
    /// Lines of main.
    main: u32,
    /// Lines of main that are protected.
    protected: u32,
}

impl WTinyLfu {
    fn new(lines: u32, percent: u64, sample: u64) -> Self {
        let window = (u64::from(lines) * percent / 100).max(1) as u32;
        let main = lines.saturating_sub(window);
        Self {
            links: Links::new(lines),
            lists: [List::EMPTY; 3],
            part: alloc::vec![Part::Window; lines as usize],
            sketch: Sketch::new(lines, sample.saturating_mul(u64::from(lines))),
            window,
            main,
            protected: (u64::from(main) * PROTECTED / 100) as u32,
        }
    }

    const fn list(&self, part: Part) -> &List {
        &self.lists[part as usize]
    }

    fn pop(&mut self, part: Part) -> Option<Frame> {
        self.links.pop(&mut self.lists[part as usize]).map(Frame)
    }

    fn push(&mut self, part: Part, frame: u32) {
        self.part[frame as usize] = part;
        self.links.push(&mut self.lists[part as usize], frame);
    }

    fn unlink(&mut self, frame: u32) {
        self.links.remove(&mut self.lists[self.part[frame as usize] as usize], frame);
    }

    /// The line of main that goes first.
    fn weakest(&self) -> Option<(Part, u32)> {
        let oldest = |part| self.list(part).oldest().map(|frame| (part, frame));
        oldest(Part::Probation).or_else(|| oldest(Part::Protected))
    }
}

impl Evict for WTinyLfu {
    fn hit(&mut self, line: Line, frame: Frame) {
        self.sketch.add(line);
        self.unlink(frame.0);
        match self.part[frame.index()] {
            Part::Window => self.push(Part::Window, frame.0),
            Part::Probation | Part::Protected => {
                self.push(Part::Protected, frame.0);
                if self.list(Part::Protected).len() > self.protected
                    && let Some(oldest) = self.pop(Part::Protected)
                {
                    self.push(Part::Probation, oldest.0);
                }
            }
        }
    }

    fn victim(&mut self, _: Line, resident: &[Line]) -> Option<Frame> {
        let Some((part, weakest)) = self.weakest() else { return self.pop(Part::Window) };
        let window = self.list(Part::Window);
        if window.len() < self.window {
            return self.pop(part);
        }
        let candidate = window.oldest()?;
        let frequency = |frame: u32| self.sketch.frequency(resident[frame as usize]);
        if frequency(candidate) <= frequency(weakest) {
            return self.pop(Part::Window);
        }
        self.unlink(candidate);
        self.push(Part::Probation, candidate);
        self.pop(part)
    }

    fn admit(&mut self, line: Line, frame: Frame) {
        self.sketch.add(line);
        let main = self.list(Part::Probation).len() + self.list(Part::Protected).len();
        if self.list(Part::Window).len() >= self.window
            && main < self.main
            && let Some(oldest) = self.pop(Part::Window)
        {
            self.push(Part::Probation, oldest.0);
        }
        self.push(Part::Window, frame.0);
    }

    fn remove(&mut self, frame: Frame) {
        self.unlink(frame.0);
    }

    fn memory(&self) -> usize {
        self.links.memory() + self.sketch.memory() + self.part.capacity() * size_of::<Part>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::VolumeId;
    use crate::rng::Rng;

    /// The published algorithm, slow: sequences with the least recent line first, and another sketch.
    struct Model {
        lists: [Vec<u64>; 3],
        window: usize,
        main: usize,
        sketch: Sketch,
    }

    fn line(index: u64) -> Line {
        Line::new(VolumeId::new(0), index)
    }

    impl Model {
        fn access(&mut self, index: u64) -> Option<u64> {
            let found = self.lists.iter().position(|list| list.contains(&index));
            let Some(found) = found else {
                let gone = self.make_room();
                self.sketch.add(line(index));
                self.lists[0].push(index);
                return gone;
            };
            self.sketch.add(line(index));
            self.lists[found].retain(|&other| other != index);
            self.lists[if found == 0 { 0 } else { 2 }].push(index);
            if self.lists[2].len() > self.main * 80 / 100 {
                let demoted = self.lists[2].remove(0);
                self.lists[1].push(demoted);
            }
            None
        }

        /// The window's oldest line against the oldest of main.
        fn make_room(&mut self) -> Option<u64> {
            if self.lists[0].len() < self.window {
                return None;
            }
            let candidate = self.lists[0].remove(0);
            if self.lists[1].len() + self.lists[2].len() < self.main {
                self.lists[1].push(candidate);
                return None;
            }
            let list = if self.lists[1].is_empty() { 2 } else { 1 };
            let Some(&weakest) = self.lists[list].first() else { return Some(candidate) };
            if self.sketch.frequency(line(candidate)) <= self.sketch.frequency(line(weakest)) {
                return Some(candidate);
            }
            self.lists[1].push(candidate);
            self.lists[list].retain(|&other| other != weakest);
            Some(weakest)
        }
    }

    /// It gives up exactly the lines that the published algorithm does with the same sketch.
    #[test]
    fn victims_are_those_of_the_published_algorithm() {
        for (lines, percent) in [(1, 1), (2, 1), (3, 50), (10, 1), (100, 20), (300, 1)] {
            let mut rng = Rng::stream(u64::from(lines), "w-tinylfu");
            let mut policy = WTinyLfu::new(lines, percent, 10);
            let mut model = Model {
                lists: [(); 3].map(|()| Vec::new()),
                window: policy.window as usize,
                main: policy.main as usize,
                sketch: Sketch::new(lines, 10 * u64::from(lines)),
            };
            let mut resident: Vec<Line> = Vec::new();
            let mut admitted = 0;
            for step in 0..20_000 {
                let spread = u64::from(lines) * (1 + rng.below(4));
                let index = rng.below(spread) * rng.below(spread) / spread;
                let expected = model.access(index);
                if let Some(frame) = resident.iter().position(|&other| other == line(index)) {
                    policy.hit(line(index), Frame(frame as u32));
                    continue;
                }
                let mut gone = None;
                let frame = if resident.len() < lines as usize {
                    resident.push(line(index));
                    resident.len() - 1
                } else {
                    let victim = policy.victim(line(index), &resident).unwrap();
                    admitted += u32::from(policy.part[victim.index()] != Part::Window);
                    gone = Some(resident[victim.index()].index());
                    resident[victim.index()] = line(index);
                    victim.index()
                };
                policy.admit(line(index), Frame(frame as u32));
                assert_eq!(gone, expected, "{lines} lines, step {step}");
            }
            assert!(admitted > 0 || lines < 10, "{lines} lines: no candidate ever won");
        }
    }
}
