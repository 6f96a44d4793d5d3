//! The path selectors on the workloads of the `RounG` paper, and on paths that go bad.
//!
//! Every selector is the one that the gateway uses, behind its public trait; paths are links that do one
//! I/O after the other, in whole nanoseconds. [`study`] runs what the paper claims something about and
//! what it does not tell: general workloads, paths of different speeds, paths that become slow or stall
//! without an error, paths that fail, and traces.

mod cells;
mod claims;
mod contestants;
mod ejection;
mod ejection_claims;
mod link;
mod noise;
pub(crate) mod page;
mod rows;
mod run;
mod score;
pub mod study;
mod tables;
mod traces;
mod work;

pub use score::Sample;
pub use traces::Trace;

use super::contestant::Contestant;
use crate::chapter::Chapter;
use crate::{Progress, Settings, Traces};
use link::{Link, Trouble};
use run::{Change, Machine};
use score::{Outcome, Score, Wanted};
use std::sync::Arc;
use weir_flow::path::POLICIES;
use work::{Arrivals, Io, Sizes};

/// Runs the experiment and judges its claims.
pub(crate) fn chapter(settings: Settings, traces: &Traces, progress: &Progress) -> Chapter {
    let study = study::run(settings, &traces.path, progress);
    let claims = claims::judge(&study);
    Chapter::new("path", study.seed, claims, &study, page::parts(&study))
}

/// All of a run but its seed.
#[derive(Clone, Debug)]
struct Case {
    selector: Contestant,
    /// A link for each path, and its priority group.
    paths: Vec<(Link, u32)>,
    asked: Asked,
    fault: Fault,
}

/// The I/Os of a run.
#[derive(Clone, Debug)]
enum Asked {
    /// Generated I/Os: sizes, arrivals and their number.
    Drawn(Sizes, Arrivals, usize),
    /// Those of a trace.
    Recorded(Arc<[Io]>),
}

/// The fault of a run. Thirds are those of the time in which the I/Os come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The second path is 20 times slower in the second third.
    Slow,
    /// The second path does nothing for 2 s from the end of the first third on.
    Stall,
    /// The four paths fail, one after the other, and are repaired in turn, the last group first; if
    /// wanted, what finds no path waits.
    Outage {
        holds: bool,
    },
}

impl Case {
    /// Whether chance has no part in what is asked for.
    const fn is_given(&self) -> bool {
        match self.asked {
            Asked::Drawn(_, Arrivals::Poisson(_), _) => false,
            Asked::Drawn(sizes, ..) => sizes.are_given(),
            Asked::Recorded(_) => true,
        }
    }

    /// Plays it; `course` asks for the response over time too.
    fn play(&self, seed: u64, course: bool) -> Outcome {
        let links: Vec<Link> = self.paths.iter().map(|&(link, _)| link).collect();
        let (ios, outstanding, length): (Arc<[Io]>, _, _) = match &self.asked {
            Asked::Recorded(ios) => (Arc::clone(ios), None, ios.last().map_or(0, |io| io.at)),
            &Asked::Drawn(sizes, arrivals, count) => {
                let sizes = sizes.draw(count, seed);
                let needed = needed(&links, &sizes);
                let (outstanding, length) = match arrivals {
                    Arrivals::Closed(outstanding) => (Some(outstanding), 0.0),
                    Arrivals::AtOnce => (None, 0.0),
                    Arrivals::Interval(load) | Arrivals::Poisson(load) => {
                        (None, needed / load * count as f64)
                    }
                };
                (work::ios(&sizes, arrivals, needed, seed).into(), outstanding, length as u64)
            }
        };
        let (mut machine, after) = self.fault.machine(length);
        machine.paths.clone_from(&self.paths);
        let outage = machine.outage();
        let wanted = Wanted { after, outage, course: course.then_some(length) };
        let mut score = Score::new(links, ios.len(), wanted);
        let mut choice = self.selector.choice(POLICIES);
        if choice.policy().parameters.iter().any(|parameter| parameter.name == "seed") {
            choice.set("seed", seed & u64::from(u32::MAX)).expect("it has 32 bits");
        }
        let paths = self.paths.len() as u32;
        let build = || (choice.policy().build)(choice.values(), paths);
        run::play(&machine, &ios, outstanding, &build, &mut |done| score.add(done));
        let trouble = machine.trouble.map(|(_, trouble)| (trouble.from, trouble.until));
        Outcome { trouble, ..score.outcome() }
    }
}

impl Fault {
    /// What happens in a run of this length, and from when on it is over. The paths are still missing.
    fn machine(self, length: u64) -> (Machine, Option<u64>) {
        let mut machine =
            Machine { paths: Vec::new(), trouble: None, changes: Vec::new(), holds: true };
        let third = length / 3;
        let after = match self {
            Self::None => return (machine, None),
            Self::Slow => {
                let trouble = Trouble { from: third, until: 2 * third, slower: Some(SLOWER) };
                machine.trouble = Some((1, trouble));
                2 * third + SETTLED
            }
            Self::Stall => {
                let trouble = Trouble { from: third, until: third + STALL, slower: None };
                machine.trouble = Some((1, trouble));
                2 * third + SETTLED
            }
            Self::Outage { holds } => {
                machine.holds = holds;
                let change =
                    |(step, (path, works))| Change { at: (step as u64 + 2) * OUTAGE, path, works };
                let order = [(0, false), (1, false), (2, false), (3, false)].into_iter();
                let order = order.chain([(3, true), (2, true), (1, true), (0, true)]);
                machine.changes = order.enumerate().map(change).collect();
                machine.changes.last().expect("there are eight").at
            }
        };
        (machine, Some(after))
    }
}

/// What an I/O of the mean of these sizes takes of all links together, in nanoseconds.
fn needed(links: &[Link], sizes: &[u64]) -> f64 {
    let bytes: f64 = sizes.iter().map(|&bytes| bytes as f64).sum();
    let rates: f64 = links.iter().map(|link| link.rate as f64).sum();
    let fixed: f64 = links.iter().map(|link| link.fixed as f64).sum();
    let count = links.len() as f64;
    bytes / sizes.len() as f64 / rates * 1e9 + fixed / count / count
}

/// How much slower a slow path is.
const SLOWER: u64 = 20;

/// How long a path stalls, in nanoseconds.
const STALL: u64 = 2_000_000_000;

/// A run has recovered so long after its second third, in nanoseconds.
const SETTLED: u64 = 1_000_000_000;

/// Between two failures or repairs, in nanoseconds; so long nothing works.
const OUTAGE: u64 = 200_000_000;

#[cfg(test)]
mod tests;
