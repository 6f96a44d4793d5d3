//! Drives one path policy and nothing else, to count the instructions that an I/O costs.
//!
//! Ends when IOS have been chosen a path for and have ended. The count includes the set-up:
//! take the difference of two runs, as `bench/path_cost.sh` does. The policy `driver` takes turns, and its cost
//! is that of this program.
//!
//! [`OUTSTANDING`] I/Os for each path, of 4 to 128 KiB, are outstanding at a time. A path serves its own one
//! after the other; those with an odd number take twice as long as those with an even one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_flow::clock::{Duration, Instant};
use weir_flow::path::{POLICIES, PathIo, PathPolicy};
use weir_flow::policy::Choice;
use weir_flow::request::PathId;
use weir_flow::rng::Rng;

/// I/Os outstanding at once, for each path.
const OUTSTANDING: u32 = 8;

/// What an I/O takes on a fast path, and for each 4 KiB.
const SERVICE: Duration = Duration::from_micros(10);

/// The least that a selector can do.
struct Driver {
    paths: u32,
    next: u32,
}

impl PathPolicy for Driver {
    fn select(&mut self, _: Instant, _: &PathIo) -> Option<PathId> {
        self.next = if self.next + 1 == self.paths { 0 } else { self.next + 1 };
        Some(PathId::new(self.next))
    }

    fn end(&mut self, _: Instant, _: PathId, _: &PathIo, _: Instant) {}

    fn fail(&mut self, _: Instant, _: PathId) {}

    fn reinstate(&mut self, _: Instant, _: PathId) {}
}

/// The policy and the paths.
struct Bench {
    policy: Box<dyn PathPolicy>,
    rng: Rng,
    /// Until when each path is busy.
    busy: Vec<Instant>,
    /// End, path, bytes and start of what is outstanding.
    outstanding: BinaryHeap<Reverse<(Instant, PathId, u64, Instant)>>,
}

impl Bench {
    fn start(&mut self, now: Instant) {
        let pages = 1 + self.rng.below(32);
        let path = self.policy.select(now, &PathIo::sized(pages * 4_096)).expect("all paths work");
        let busy = &mut self.busy[path.index()];
        *busy = (*busy).max(now) + SERVICE * ((1 + pages) * (1 + path.index() as u64 % 2));
        self.outstanding.push(Reverse((*busy, path, pages * 4_096, now)));
    }

    fn end(&mut self) -> Instant {
        let Reverse((now, path, bytes, started)) = self.outstanding.pop().expect("some are");
        self.policy.end(now, path, &PathIo::sized(bytes), started);
        now
    }
}

#[expect(clippy::print_stdout, reason = "the figures are this program's output")]
/// Until `ios` have ended. Fails if there is no such policy.
pub(crate) fn run(name: &str, paths: u32, ios: u64) -> Result<(), String> {
    let policy: Box<dyn PathPolicy> = match Choice::named(POLICIES, name) {
        Ok(choice) => (choice.policy().build)(choice.values(), paths),
        Err(_) if name == "driver" => Box::new(Driver { paths, next: 0 }),
        Err(error) => return Err(error.to_string()),
    };
    let mut bench = Bench {
        policy,
        rng: Rng::stream(1, "path_cost"),
        busy: vec![Instant::ZERO; paths as usize],
        outstanding: BinaryHeap::new(),
    };
    for _ in 0..OUTSTANDING * paths {
        bench.start(Instant::ZERO);
    }
    let mut now = Instant::ZERO;
    for _ in 0..ios {
        now = bench.end();
        bench.start(now);
    }
    println!("{ios} ended by {now:?}");
    Ok(())
}
