//! The event loop of a run: I/Os, a selector for each priority group, links.
//!
//! It does not drive `weir_flow::Pipeline`: its path stage suspects, probes and fails slow paths on its own,
//! and would hide the selector's choices, which are measured here. An I/O starts on the selected path at
//! once, and an I/O without a path waits in the hold queue of docs/reference/path.md, section 5. Of what happens at one
//! time ends come first, in the order in which the I/Os began to be served, then failures and repairs, then
//! arrivals.

use super::link::{Link, Trouble};
use super::work::Io;
use std::collections::VecDeque;
use weir_flow::clock::Instant;
use weir_flow::path::{PathIo, PathPolicy};
use weir_flow::request::PathId;

/// The paths and what happens to them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Machine {
    /// A link for each path, and its priority group; smaller is better.
    pub(super) paths: Vec<(Link, u32)>,
    /// A path that is not well for a time.
    pub(super) trouble: Option<(usize, Trouble)>,
    /// Paths that fail or are repaired, in order of time.
    pub(super) changes: Vec<Change>,
    /// Whether what finds no path waits for one; else it fails at once.
    pub(super) holds: bool,
}

impl Machine {
    /// From when to when no path works; the first such time, which ends never if no path is repaired.
    pub(super) fn outage(&self) -> Option<(u64, u64)> {
        let mut works = vec![true; self.paths.len()];
        let mut from = None;
        for change in &self.changes {
            works[change.path] = change.works;
            match from {
                Some(from) if change.works => return Some((from, change.at)),
                None if !works.contains(&true) => from = Some(change.at),
                _ => {}
            }
        }
        from.map(|from| (from, u64::MAX))
    }
}

/// A path fails or is repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// When, in nanoseconds.
    pub(super) at: u64,
    pub(super) path: usize,
    /// Whether it works from now on.
    pub(super) works: bool,
}

/// An I/O that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// Its place in the order of arrival.
    pub(super) index: usize,
    pub(super) arrived: u64,
    pub(super) ended: u64,
    /// Where it was done, `None` if it failed.
    pub(super) path: Option<usize>,
    pub(super) bytes: u64,
    /// How often it had to be given to a path again.
    pub(super) retries: u32,
}

/// Plays a run. `outstanding` is that of a closed loop, whose I/Os come when one ends; `None` takes the
/// times of the I/Os. `build` makes a selector; it is called for each priority group.
pub(super) fn play(
    machine: &Machine,
    ios: &[Io],
    outstanding: Option<usize>,
    build: &dyn Fn() -> Box<dyn PathPolicy>,
    over: &mut dyn FnMut(Done),
) {
    let lines = machine.paths.iter().enumerate().map(|(path, &(link, _))| Line {
        link,
        trouble: machine.trouble.filter(|&(troubled, _)| troubled == path).map(|(_, t)| t),
        queue: VecDeque::new(),
        head: None,
    });
    let run = Run {
        holds: machine.holds,
        lines: lines.collect(),
        ways: Ways::new(machine, build),
        held: VecDeque::new(),
        begun: 0,
        over,
    };
    run.play(&machine.changes, ios, outstanding);
}

/// An I/O on its way.
#[derive(Clone, Copy, Debug)]
struct Task {
    index: usize,
    arrived: u64,
    started: u64,
    bytes: u64,
    retries: u32,
}

struct Line {
    link: Link,
    trouble: Option<Trouble>,
    queue: VecDeque<Task>,
    /// When the first of the queue ends, and which of all I/Os it was that began to be served.
    head: Option<(u64, u64)>,
}

impl Line {
    fn serve(&mut self, now: u64, begun: &mut u64) {
        self.head = self.queue.front().map(|task| {
            let service = self.link.service(task.bytes);
            let end = self.trouble.map_or(now + service, |trouble| trouble.end(now, service));
            *begun += 1;
            (end, *begun)
        });
    }
}

struct Run<'a> {
    holds: bool,
    lines: Vec<Line>,
    ways: Ways,
    held: VecDeque<Task>,
    begun: u64,
    over: &'a mut dyn FnMut(Done),
}

impl Run<'_> {
    fn play(mut self, changes: &[Change], ios: &[Io], outstanding: Option<usize>) {
        let mut changes = changes.iter().peekable();
        let mut coming = ios.iter().enumerate();
        let mut next = None;
        match outstanding {
            Some(count) => {
                for (index, io) in coming.by_ref().take(count) {
                    self.arrive(0, index, io.bytes);
                }
            }
            None => next = coming.next(),
        }
        loop {
            let heads = self.lines.iter().enumerate();
            let heads = heads.filter_map(|(path, line)| line.head.map(|head| (head, path)));
            let end = heads.min().map(|((at, _), path)| (at, path));
            let change = changes.peek().map(|change| change.at);
            let arrival = next.map(|(_, io)| io.at);
            let before = |at: u64, others: [Option<u64>; 2]| {
                others.into_iter().flatten().all(|other| at <= other)
            };
            match (end, change, arrival) {
                (Some((at, path)), ..) if before(at, [change, arrival]) => {
                    self.end(at, path);
                    if outstanding.is_some()
                        && let Some((index, io)) = coming.next()
                    {
                        self.arrive(at, index, io.bytes);
                    }
                }
                (_, Some(at), _) if before(at, [arrival, None]) => {
                    let change = changes.next().expect("it was there when we looked");
                    self.change(*change);
                }
                (_, _, Some(at)) => {
                    let (index, io) = next.expect("it has a time");
                    self.arrive(at, index, io.bytes);
                    next = coming.next();
                }
                _ => break,
            }
        }
        assert!(self.held.is_empty(), "a run ends with a path that works");
    }

    fn arrive(&mut self, now: u64, index: usize, bytes: u64) {
        self.held.push_back(Task { index, arrived: now, started: now, bytes, retries: 0 });
        self.retry(now);
    }

    /// Gives what is held to paths, in order; without any, it is held on or fails.
    fn retry(&mut self, now: u64) {
        while let Some(&task) = self.held.front() {
            if let Some(path) = self.ways.select(now, task.bytes) {
                self.held.pop_front();
                let line = &mut self.lines[path];
                line.queue.push_back(Task { started: now, ..task });
                if line.head.is_none() {
                    line.serve(now, &mut self.begun);
                }
            } else if self.holds {
                break;
            } else {
                self.held.pop_front();
                self.done(now, task, None);
            }
        }
    }

    fn done(&mut self, now: u64, task: Task, path: Option<usize>) {
        let Task { index, arrived, bytes, retries, .. } = task;
        (self.over)(Done { index, arrived, ended: now, path, bytes, retries });
    }

    fn end(&mut self, now: u64, path: usize) {
        let line = &mut self.lines[path];
        let task = line.queue.pop_front().expect("it has a head");
        line.serve(now, &mut self.begun);
        self.ways.end(now, path, task);
        self.done(now, task, Some(path));
        self.retry(now);
    }

    fn change(&mut self, Change { at, path, works }: Change) {
        if works {
            self.ways.reinstate(at, path);
        } else {
            self.ways.fail(at, path);
            let line = &mut self.lines[path];
            line.head = None;
            let lost: Vec<Task> = line.queue.drain(..).collect();
            for task in &lost {
                self.ways.end(at, path, *task);
            }
            for task in lost.into_iter().rev() {
                self.held.push_front(Task { retries: task.retries + 1, ..task });
            }
        }
        self.retry(at);
    }
}

/// A selector for each group, and which of them is asked.
struct Ways {
    /// By group, best first.
    selectors: Vec<Box<dyn PathPolicy>>,
    /// By path: the place of its group, and whether it works.
    paths: Vec<(usize, bool)>,
    /// The group in use: until none of its paths works, since no operator orders a failback.
    current: usize,
}

impl Ways {
    /// Every selector knows all paths; those of other groups have failed for it.
    fn new(machine: &Machine, build: &dyn Fn() -> Box<dyn PathPolicy>) -> Self {
        let mut groups: Vec<u32> = machine.paths.iter().map(|&(_, group)| group).collect();
        groups.sort_unstable();
        groups.dedup();
        let place = |group| groups.iter().position(|&other| other == group).expect("it is there");
        let paths: Vec<_> = machine.paths.iter().map(|&(_, group)| (place(group), true)).collect();
        let selector = |own| {
            let mut selector = build();
            for (path, _) in paths.iter().enumerate().filter(|(_, (group, _))| *group != own) {
                selector.fail(Instant::ZERO, id(path));
            }
            selector
        };
        Self { selectors: (0..groups.len()).map(selector).collect(), paths, current: 0 }
    }

    fn select(&mut self, now: u64, bytes: u64) -> Option<usize> {
        let works = |place: usize| self.paths.contains(&(place, true));
        if !works(self.current) {
            self.current = (0..self.selectors.len()).find(|&place| works(place))?;
        }
        let path =
            self.selectors[self.current].select(Instant::from_nanos(now), &PathIo::sized(bytes));
        let path = path.expect("a selector with a path that works finds one").index();
        assert_eq!(self.paths[path], (self.current, true), "a selector chooses what works");
        Some(path)
    }

    fn end(&mut self, now: u64, path: usize, task: Task) {
        let (now, started) = (Instant::from_nanos(now), Instant::from_nanos(task.started));
        self.selectors[self.paths[path].0].end(now, id(path), &PathIo::sized(task.bytes), started);
    }

    fn fail(&mut self, now: u64, path: usize) {
        self.paths[path].1 = false;
        self.selectors[self.paths[path].0].fail(Instant::from_nanos(now), id(path));
    }

    fn reinstate(&mut self, now: u64, path: usize) {
        self.paths[path].1 = true;
        self.selectors[self.paths[path].0].reinstate(Instant::from_nanos(now), id(path));
    }
}

fn id(path: usize) -> PathId {
    PathId::new(u32::try_from(path).expect("a handful of paths"))
}
