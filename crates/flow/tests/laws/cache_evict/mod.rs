//! Laws of [`Evict`](weir_flow::cache::evict::Evict), and each policy beside its published algorithm.

mod models;

use crate::{SEEDS, STEPS};
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use weir_flow::cache::evict::{Evict, Frame, Line, POLICIES};
use weir_flow::policy::Choice;
use weir_flow::request::VolumeId;
use weir_flow::rng::Rng;

/// Sizes of the buffer, in lines.
const SIZES: [u32; 6] = [1, 2, 3, 10, 64, 257];

fn policy(name: &str, lines: u32) -> Box<dyn Evict> {
    let choice = Choice::named(POLICIES, name).expect("it is in the list");
    (choice.policy().build)(choice.values(), lines)
}

fn line(index: u64) -> Line {
    Line::new(VolumeId::new(0), index)
}

/// A buffer that uses a policy as it must be used, and knows what is resident.
struct Buffer {
    policy: Box<dyn Evict>,
    frames: BTreeMap<Line, Frame>,
    resident: Vec<Line>,
    free: Vec<Frame>,
}

impl Buffer {
    fn new(name: &str, lines: u32) -> Self {
        Self {
            policy: policy(name, lines),
            frames: BTreeMap::new(),
            resident: vec![Line::default(); lines as usize],
            free: (0..lines).map(Frame::new).collect(),
        }
    }

    /// A line is asked for; the one that had to go for it.
    fn access(&mut self, line: Line) -> Option<Line> {
        if let Some(&frame) = self.frames.get(&line) {
            self.policy.hit(line, frame);
            return None;
        }
        let mut gone = None;
        let frame = self.free.pop().unwrap_or_else(|| {
            let frame = self.policy.victim(line, &self.resident).expect("lines are resident");
            let victim = self.resident[frame.index()];
            assert_eq!(self.frames.remove(&victim), Some(frame), "{victim:?} is resident");
            gone = Some(victim);
            frame
        });
        self.resident[frame.index()] = line;
        self.policy.admit(line, frame);
        self.frames.insert(line, frame);
        gone
    }

    fn remove(&mut self, line: Line) {
        if let Some(frame) = self.frames.remove(&line) {
            self.policy.remove(frame);
            self.free.push(frame);
        }
    }
}

/// Lines as hosts ask for them: some often, some in passing, some in a loop that does not fit.
struct Stream {
    rng: Rng,
    lines: u64,
    scan: u64,
    loops: u64,
}

impl Stream {
    fn new(seed: u64, lines: u32) -> Self {
        Self { rng: Rng::stream(seed, "evict"), lines: u64::from(lines), scan: 1 << 40, loops: 0 }
    }

    fn next(&mut self) -> Line {
        let index = match self.rng.below(8) {
            0..3 => self.rng.below(self.lines) * self.rng.below(self.lines) / self.lines,
            3 | 4 => self.rng.below(4 * self.lines),
            5 | 6 => {
                self.scan += 1;
                self.scan
            }
            _ => {
                self.loops += 1;
                (1 << 20) + self.loops % (self.lines + self.lines / 2 + 1)
            }
        };
        Line::new(VolumeId::new((index % 2) as u32), index)
    }
}

fn storm(name: &str, lines: u32, seed: u64, key: u64) -> Vec<Option<Line>> {
    let mut buffer = Buffer::new(name, lines);
    buffer.policy.set_key(key);
    let mut stream = Stream::new(seed, lines);
    let memory = buffer.policy.memory();
    let mut log = Vec::new();
    for _ in 0..STEPS {
        let line = stream.next();
        if stream.rng.below(10) == 0 {
            let before = buffer.policy.remembered();
            buffer.remove(line);
            assert_eq!(buffer.policy.remembered(), before, "{name} remembers what was overwritten");
        } else {
            log.push(buffer.access(line));
        }
        assert!(buffer.policy.remembered() <= lines, "{name} has more ghosts than lines");
        assert_eq!(buffer.policy.memory(), memory, "{name} took memory");
    }
    // What is resident can be given up, each line once, and then nothing.
    for left in (0..buffer.frames.len()).rev() {
        let incoming = line(u64::MAX - left as u64);
        let frame = buffer.policy.victim(incoming, &buffer.resident).expect("lines are resident");
        log.push(Some(buffer.resident[frame.index()]));
        assert!(buffer.frames.remove(&buffer.resident[frame.index()]).is_some(), "{name}");
    }
    assert_eq!(buffer.policy.victim(line(u64::MAX), &buffer.resident), None, "{name}");
    log
}

/// A victim is always a line that is resident; every resident line is one sooner or later, and none twice;
/// what was removed is neither a victim nor remembered; ghosts are no more than lines, memory does not
/// grow; the same inputs give the same victims, whatever the key.
#[test]
fn victims_are_resident() {
    for policy in POLICIES {
        for lines in SIZES {
            for seed in 0..SEEDS {
                let log = storm(policy.name, lines, seed, 0);
                assert_eq!(log, storm(policy.name, lines, seed, 0), "{}", policy.name);
                assert_eq!(log, storm(policy.name, lines, seed, 1 << 42), "{}", policy.name);
            }
        }
    }
}

/// A use or a removal of a line that is not resident, and a second line in a frame, are bugs of the caller
/// and do not pass unnoticed.
#[test]
fn misuse_is_a_bug() {
    type Misuse = fn(&mut dyn Evict);
    let misuses: [(&str, Misuse); 4] = [
        ("a use of what is not here", |policy| policy.hit(line(9), Frame::new(1))),
        ("a removal of what is not here", |policy| policy.remove(Frame::new(1))),
        ("a second line in a frame", |policy| policy.admit(line(9), Frame::new(0))),
        ("a use of what was given up", |policy| {
            let frame = policy.victim(line(9), &[line(1), line(0)]).expect("a line is resident");
            policy.hit(line(1), frame);
        }),
    ];
    for entry in POLICIES {
        for (what, misuse) in misuses {
            let mut policy = policy(entry.name, 2);
            policy.admit(line(1), Frame::new(0));
            let panics = catch_unwind(AssertUnwindSafe(|| misuse(&mut *policy))).is_err();
            assert!(panics, "{}: {what}", entry.name);
        }
    }
}

/// Every policy but W-TinyLFU, whose sketch its own tests put beside it, gives up exactly the lines that
/// the published algorithm does, written down a second time without regard for speed.
#[test]
fn victims_are_those_of_the_published_algorithm() {
    for entry in POLICIES.iter().filter(|entry| entry.name != "w-tinylfu") {
        for lines in SIZES {
            for seed in 0..SEEDS {
                let mut model = models::named(entry.name, lines as usize);
                let mut buffer = Buffer::new(entry.name, lines);
                let mut stream = Stream::new(seed, lines);
                for step in 0..STEPS {
                    let line = stream.next();
                    if model.can_remove() && seed % 2 == 1 && stream.rng.below(10) == 0 {
                        model.remove(line);
                        buffer.remove(line);
                    } else {
                        let (ours, theirs) = (buffer.access(line), model.access(line));
                        let name = entry.name;
                        assert_eq!(ours, theirs, "{name}, {lines} lines, seed {seed}, step {step}");
                    }
                }
            }
        }
    }
}

/// Lines that are used all the time survive a scan through ten times the buffer, under the policies that say
/// so, and are gone under those that do not.
#[test]
fn scans_pass() {
    for (name, survives) in
        [("s3-fifo", true), ("arc", true), ("w-tinylfu", true), ("lru", false), ("fifo", false)]
    {
        let mut buffer = Buffer::new(name, 100);
        let mut access = |lines: Range<u64>| {
            for index in lines {
                buffer.access(line(index));
            }
        };
        for round in 1..20 {
            access(0..40);
            access(1_000 * round..1_000 * round + 30);
        }
        access(0..40);
        access(100_000..101_000);
        let left = (0..40).filter(|&index| buffer.frames.contains_key(&line(index))).count();
        assert_eq!(left, if survives { 40 } else { 0 }, "{name}");
    }
}
