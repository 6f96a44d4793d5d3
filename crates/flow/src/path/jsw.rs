//! # Path policy: join the shortest work
//!
//! The path that will be done first with the I/O, as far as its own past tells.
//!
//! | | |
//! |---|---|
//! | Model    | least predicted end: the work in front, and the I/O itself, each I/O `fixed + bytes * per byte` with a speed that is learnt for every path |
//! | Units    | nanoseconds, rounded down |
//! | Ties     | the least recently chosen; a reinstated path joins at the tail |
//! | Cost     | O(paths) per choice, O(log outstanding) to find an I/O that ends; memory for what is outstanding |
//! | Source   | `docs/reference/path.md` section 7 |
//! | Differs  | a probe may be larger after a longer time, waits for 16 other I/Os, and an I/O alone may speed a path up; ends at one instant are one sample |
//! | Not when | a path must keep to a share that was given to it: `service-time` |
//!
//! **Learning.** An I/O counts from its start or from the end before it on its path, whichever is later
//! ([`Fit`]). A path that has ended nothing yet borrows the best speed known. I/Os without bytes teach
//! nothing.
//!
//! **Overdue.** When the oldest I/O of a path takes longer than predicted, it is taken to need as long
//! again as it has taken so far. So a path that stalls looks worse at each look, without a time-out.
//!
//! **Probe.** A path that has had nothing to do for 100 ms for each 64 KiB of an I/O gets it, if the others
//! have been given 16 since. So one slow answer does not keep a path out for ever, and a path that
//! is slow costs little.

use super::lru_order::LruOrder;
use super::speed::{Fit, Line, Sample};
use super::{Build, PathIo, PathPolicy, Speed};
use crate::clock::{Duration, Instant};
use crate::policy::{Policy, Property};
use crate::request::PathId;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "jsw",
    summary: "the path that will be done first, by speeds that are learnt",
    properties: &[Property::UsesEveryPath],
    parameters: &[],
    build: |_, paths| Box::new(Jsw::new(paths)),
};

/// An idle path is probed after this time for each [`PROBE_BYTES`] or part of it.
const PROBE_AFTER: Duration = Duration::from_millis(100);

/// The largest I/O of the first probe.
const PROBE_BYTES: u64 = 64 << 10;

/// I/Os that go other states between two probes of a path.
const PROBE_GAP: u64 = 16;

#[derive(Debug)]
struct Jsw {
    order: LruOrder,
    states: Vec<PathState>,
    /// How often a path was chosen.
    chosen: u64,
}

#[derive(Clone, Debug, Default)]
struct PathState {
    /// When each I/O started and its bytes, oldest first.
    outstanding: VecDeque<(Instant, u64)>,
    /// Bytes of all of them.
    bytes: u64,
    last_end: Instant,
    /// How often any path had been chosen when this one last was.
    last_choice: u64,
    /// All samples, and what they say.
    fit: Fit,
    line: Option<Line>,
    /// The same without the last sample, which may still grow.
    past: Fit,
    expected: Option<Line>,
    last: Option<(Instant, Sample)>,
}

impl PathState {
    /// When an I/O of `bytes` would end, from now, if it started now.
    fn cost(&self, now: Instant, bytes: u64, best_known: Line) -> u64 {
        let line = self.line.unwrap_or(best_known);
        let all = line.time(self.outstanding.len() as u64 + 1, self.bytes.saturating_add(bytes));
        let Some(&(started, head)) = self.outstanding.front() else { return all };
        let served = now.saturating_since(started.max(self.last_end)).as_nanos();
        let expected = line.time(1, head);
        if served > expected {
            all.saturating_sub(expected).saturating_add(served)
        } else {
            all.saturating_sub(served)
        }
    }

    /// Whether an I/O of `bytes`, the `choice`-th of all, should find out how fast the path is.
    fn probe_is_due(&self, now: Instant, bytes: u64, choice: u64) -> bool {
        if !self.outstanding.is_empty() || choice - self.last_choice <= PROBE_GAP {
            return false;
        }
        let idle = now.saturating_since(self.last_end).as_nanos() / PROBE_AFTER.as_nanos();
        (1..=idle.saturating_mul(PROBE_BYTES)).contains(&bytes)
    }

    /// Takes an I/O off the list; false if it is not there, since its path has failed meanwhile.
    fn remove(&mut self, started: Instant, bytes: u64) -> bool {
        let first = self.outstanding.partition_point(|&(at, _)| at < started);
        let found = (first..self.outstanding.len())
            .take_while(|&place| self.outstanding[place].0 == started)
            .find(|&place| self.outstanding[place].1 == bytes);
        if let Some(place) = found {
            self.outstanding.remove(place);
            self.bytes -= bytes;
        }
        found.is_some()
    }

    /// Learns from an I/O of `bytes`, at least one, that ends now.
    fn learn(&mut self, now: Instant, bytes: u64, started: Instant) {
        let sample = match self.last {
            Some((at, sample)) if at == now => Sample {
                count: sample.count + 1,
                bytes: sample.bytes.saturating_add(bytes),
                ..sample
            },
            _ => {
                self.past = self.fit;
                self.expected = self.line;
                let begun = started.max(self.last_end);
                let time = now.saturating_since(begun).as_nanos();
                Sample { count: 1, bytes, time, alone: begun == started }
            }
        };
        self.last = Some((now, sample));
        self.fit = self.past.with(sample, self.expected);
        self.line = Some(self.fit.line());
    }
}

impl Jsw {
    fn new(paths: u32) -> Self {
        Self {
            order: LruOrder::new(paths),
            states: alloc::vec![PathState::default(); paths as usize],
            chosen: 0,
        }
    }

    /// The speed assumed of a path without one: the best for an I/O of `bytes` among
    /// the paths that work.
    fn best_known(&self, bytes: u64) -> Line {
        let lines = || self.order.paths().iter().map(|path| self.states[path.index()].line);
        if lines().all(|line| line.is_some()) {
            // No selection will need it.
            return Line::GUESS;
        }
        lines().flatten().min_by_key(|line| line.time(1, bytes)).unwrap_or(Line::GUESS)
    }
}

impl PathPolicy for Jsw {
    fn select(&mut self, now: Instant, &PathIo { bytes, .. }: &PathIo) -> Option<PathId> {
        self.chosen += 1;
        let due = |path: &PathId| self.states[path.index()].probe_is_due(now, bytes, self.chosen);
        let path = if let Some(place) = self.order.paths().iter().position(due) {
            self.order.choose(place)
        } else {
            let best_known = self.best_known(bytes);
            self.order.least(|path| self.states[path.index()].cost(now, bytes, best_known))?
        };
        let path_state = &mut self.states[path.index()];
        path_state.outstanding.push_back((now, bytes));
        path_state.bytes += bytes;
        path_state.last_choice = self.chosen;
        Some(path)
    }

    fn end(
        &mut self,
        now: Instant,
        path: PathId,
        &PathIo { bytes, .. }: &PathIo,
        started: Instant,
    ) {
        let path_state = &mut self.states[path.index()];
        if path_state.remove(started, bytes) {
            if bytes > 0 {
                path_state.learn(now, bytes, started);
            }
            path_state.last_end = now;
        }
    }

    fn fail(&mut self, now: Instant, path: PathId) {
        if self.order.fail(path) {
            // How long a path takes to fail is not its speed.
            let path_state = &mut self.states[path.index()];
            path_state.outstanding.clear();
            path_state.bytes = 0;
            path_state.last_end = now;
        }
    }

    fn reinstate(&mut self, _: Instant, path: PathId) {
        self.order.join_at_tail(path);
    }

    fn learned(&self, path: PathId) -> Option<Speed> {
        self.states[path.index()].line.map(Line::speed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// Gives a path `count` I/Os of 48 KiB, one at a time, each of which takes this long.
    fn teach(policy: &mut Jsw, path: usize, nanos: u64, count: usize) {
        let path_state = &mut policy.states[path];
        for _ in 0..count {
            let started = path_state.last_end;
            path_state.outstanding.push_back((started, 48 << 10));
            path_state.bytes += 48 << 10;
            policy_end(path_state, started, nanos);
        }
    }

    fn policy_end(path_state: &mut PathState, started: Instant, nanos: u64) {
        let now = started + Duration::from_nanos(nanos);
        assert!(path_state.remove(started, 48 << 10));
        path_state.learn(now, 48 << 10, started);
        path_state.last_end = now;
    }

    /// Two paths, of which the first takes 64 us for 48 KiB (1 ns for each byte and 16 us) and the second
    /// 128 us, with nothing outstanding at the time that is returned.
    fn two() -> (Jsw, u64) {
        let mut policy = Jsw::new(2);
        teach(&mut policy, 0, 65_536, 40);
        teach(&mut policy, 1, 131_072, 20);
        let now =
            policy.states.iter().map(|path_state| path_state.last_end.as_nanos()).max().unwrap();
        (policy, now)
    }

    fn select(policy: &mut Jsw, now: u64, bytes: u64) -> usize {
        policy.select(at(now), &PathIo::sized(bytes)).unwrap().index()
    }

    /// At half the speed a path gets every third of equal I/Os, the first when the other would take as
    /// long for two.
    #[test]
    fn work_is_shared_by_speed() {
        let (mut policy, now) = two();
        let chosen = [(); 6].map(|()| select(&mut policy, now, 48 << 10));
        assert_eq!(chosen.iter().sum::<usize>(), 2, "{chosen:?}");
        assert_eq!(chosen[0], 0);
    }

    /// A small I/O does not wait behind a large one, even on the slower path.
    #[test]
    fn size_is_work() {
        let (mut policy, now) = two();
        assert_eq!(select(&mut policy, now, 1 << 20), 0);
        let small = [(); 5].map(|()| select(&mut policy, now, 4_096));
        assert_eq!(small, [1; 5]);
    }

    /// What the oldest I/O has been served already is no work any more; from when it is overdue, the
    /// path looks worse with every look.
    #[test]
    fn a_stalled_path_gets_worse_by_itself() {
        let (mut policy, start) = two();
        assert_eq!(select(&mut policy, start, 48 << 10), 0);
        let cost = |now: u64| policy.states[0].cost(at(now), 48 << 10, Line::GUESS);
        let whole = cost(start);
        assert!(whole.abs_diff(2 * 65_536) < 300, "{whole}");
        assert_eq!(cost(start + 30_000), whole - 30_000);
        assert!(cost(start + 66_000).abs_diff(65_536 + 66_000) < 300);
        assert!(cost(start + MS).abs_diff(65_536 + MS) < 300);
        for n in 0..20 {
            let now = start + MS + n * 200_000;
            assert_eq!(select(&mut policy, now, 48 << 10), 1, "I/O {n}");
            policy.end(at(now + 131_072), PathId::new(1), &PathIo::sized(48 << 10), at(now));
        }
    }

    /// A path that was not used for 100 ms gets the next I/O of at most 64 KiB after sixteen others; a
    /// larger one only after as many times as long. It gets one.
    #[test]
    fn an_idle_path_is_probed() {
        for (bytes, millis) in [(64 << 10, 100), ((64 << 10) + 1, 200), (1 << 20, 1_600)] {
            let (mut policy, start) = two();
            // One stall, and the second path is out.
            teach(&mut policy, 1, 4_000 * MS, 1);
            let start = start.max(policy.states[1].last_end.as_nanos());
            let serve = |policy: &mut Jsw, now: u64| -> usize {
                let path = select(policy, now, bytes);
                policy.end(
                    at(now + 1_000),
                    PathId::new(path as u32),
                    &PathIo::sized(bytes),
                    at(now),
                );
                path
            };
            for n in 0..20 {
                assert_eq!(serve(&mut policy, start + n * 10_000), 0, "{bytes} bytes, I/O {n}");
            }
            assert_eq!(serve(&mut policy, start + millis * MS - 1), 0, "{bytes} bytes");
            assert_eq!(select(&mut policy, start + millis * MS, bytes), 1, "{bytes} bytes");
            assert_eq!(serve(&mut policy, start + millis * MS), 0, "{bytes} bytes");
        }
    }

    /// Where I/Os are few, a slow path is not probed instead of every other I/O.
    #[test]
    fn probes_are_few_where_ios_are_few() {
        let mut policy = Jsw::new(2);
        teach(&mut policy, 0, 65_536, 40);
        teach(&mut policy, 1, 20 * 65_536, 40);
        let mut slow = 0;
        for n in 0..180 {
            let now = 1_000 * MS * (n + 1);
            let path = select(&mut policy, now, 48 << 10);
            let time = [65_536, 20 * 65_536][path];
            policy.end(at(now + time), PathId::new(path as u32), &PathIo::sized(48 << 10), at(now));
            slow += path;
        }
        assert_eq!(slow, 10);
    }

    /// I/Os that end at one instant are one sample: three in 3 ms teach 1 ms each, not 3 ms and
    /// nothing twice.
    #[test]
    fn ends_at_one_instant_are_one_sample() {
        let mut policy = Jsw::new(1);
        for round in 0..30 {
            for _ in 0..3 {
                select(&mut policy, round * 3 * MS, 4_096);
            }
            for _ in 0..3 {
                policy.end(
                    at((round + 1) * 3 * MS),
                    PathId::new(0),
                    &PathIo::sized(4_096),
                    at(round * 3 * MS),
                );
            }
            let time = policy.states[0].line.unwrap().time(1, 4_096);
            assert!(time.abs_diff(MS) < 3_000, "round {round}: {time}");
        }
    }

    /// What was on a path when it failed is neither work nor a sample when it is back, nor is its end
    /// taken for the end of another.
    #[test]
    fn a_failed_path_leaves_no_work() {
        let (mut policy, now) = two();
        let (path, learned) = (PathId::new(0), policy.learned(PathId::new(0)));
        assert_eq!(select(&mut policy, now, 48 << 10), 0);
        policy.fail(at(now + 1), path);
        policy.reinstate(at(now + 2), path);
        assert_eq!(policy.states[0].bytes, 0);
        assert_eq!(select(&mut policy, now + 3, 48 << 10), 0);
        policy.end(at(now + 4), path, &PathIo::sized(48 << 10), at(now));
        assert_eq!(policy.states[0].outstanding.len(), 1);
        assert_eq!(policy.learned(path), learned);
    }

    /// What is remembered is what is outstanding, on paths that work, and nothing once all has ended.
    #[test]
    fn memory_is_what_is_outstanding() {
        let (mut policy, mut rng) = (Jsw::new(3), crate::rng::Rng::stream(1, "jsw"));
        let mut on_way: Vec<(PathId, Instant)> = Vec::new();
        for step in 0..5_000 {
            let now = at(step / 3 * 1_000);
            let path = PathId::new(rng.below(3) as u32);
            match rng.below(20) {
                0 => policy.fail(now, path),
                1..4 => policy.reinstate(now, path),
                4..12 if !on_way.is_empty() => {
                    let index = rng.below(on_way.len() as u64) as usize;
                    let (path, started) = on_way.swap_remove(index);
                    policy.end(now, path, &PathIo::sized(4_096), started);
                }
                _ => {
                    on_way
                        .extend(policy.select(now, &PathIo::sized(4_096)).map(|path| (path, now)));
                }
            }
            for (index, path_state) in policy.states.iter().enumerate() {
                let most = on_way.iter().filter(|(path, _)| path.index() == index).count();
                assert!(path_state.outstanding.len() <= most, "step {step}: {policy:?}");
                assert_eq!(
                    path_state.bytes,
                    4_096 * path_state.outstanding.len() as u64,
                    "step {step}"
                );
            }
        }
        for (path, started) in on_way {
            policy.end(at(1 << 40), path, &PathIo::sized(4_096), started);
        }
        assert!(
            policy.states.iter().all(|path_state| path_state.outstanding.is_empty()),
            "{policy:?}"
        );
    }

    /// A path that has ended nothing is taken to be as fast as the best, and says that it knows nothing.
    #[test]
    fn an_unmeasured_path_borrows() {
        let mut policy = Jsw::new(3);
        teach(&mut policy, 0, 65_536, 40);
        teach(&mut policy, 1, 131_072, 20);
        assert_eq!(policy.learned(PathId::new(2)), None);
        let now = policy.states[0].last_end.as_nanos();
        let chosen = [(); 5].map(|()| select(&mut policy, now, 48 << 10));
        assert_eq!(chosen.iter().filter(|&&path| path == 2).count(), 2, "{chosen:?}");
        let speed = policy.learned(PathId::new(0)).unwrap();
        assert!(speed.fixed.as_nanos().abs_diff(16_384) < 100, "{speed:?}");
        assert!(speed.per_mib.as_nanos().abs_diff(1 << 20) < 5_000, "{speed:?}");
    }

    /// An I/O without bytes is work, but teaches nothing.
    #[test]
    fn no_bytes_teach_nothing() {
        let (mut policy, now) = two();
        let learned = policy.learned(PathId::new(0));
        assert_eq!(select(&mut policy, now, 0), 0);
        assert!(policy.states[0].cost(at(now), 0, Line::GUESS) > 30_000);
        policy.end(at(now + 50 * MS), PathId::new(0), &PathIo::sized(0), at(now));
        assert_eq!(policy.learned(PathId::new(0)), learned);
    }
}
