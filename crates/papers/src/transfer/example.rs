//! The worked example of the paper: five replies of 32 ticks in all, a tick being a page and a millisecond.

use super::engine::{Done, Job, play};
use crate::contestant::Contestant;
use serde::Serialize;
use weir_flow::transfer::POLICIES;

/// How the five replies were sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExampleRow {
    /// The rule.
    pub policy: &'static str,
    /// Replies in the order in which they began, counted from 1.
    pub order: Vec<usize>,
    /// Ticks that each waited.
    pub delays: Vec<u64>,
    /// Ticks from becoming ready to the end.
    pub responses: Vec<u64>,
    /// Ticks waited in all.
    pub waited: u64,
    /// Responses in all.
    pub responded: u64,
    /// When the last ends.
    pub end: u64,
}

/// When they become ready, and how long they are.
pub(super) const JOBS: [Job; 5] = [
    Job { at: 0, bytes: 4 },
    Job { at: 1, bytes: 10 },
    Job { at: 2, bytes: 8 },
    Job { at: 3, bytes: 6 },
    Job { at: 9, bytes: 4 },
];

/// The order of figure 4(a): by length, whatever is ready.
pub(super) const BY_LENGTH: [usize; 5] = [0, 4, 3, 2, 1];

/// The policies that the worked example is played under (docs/reference/transfer.md, section 4).
const RULES: [Contestant; 7] = [
    Contestant::new("fifo", "fifo", &[]),
    Contestant::new("sjf", "sjf", &[]),
    Contestant::new("dqbs literal", "dqbs", &[]),
    Contestant::new("dqbs dyn", "dqbs", &[("key", 2)]),
    Contestant::new("dqbs gate", "dqbs", &[("guard", 2), ("key", 1)]),
    Contestant::new("aged 1", "aged", &[("weight", 100)]),
    Contestant::new("hrrn", "hrrn", &[]),
];

/// The example under each policy, and last in the order of lengths.
pub(super) fn rows(jobs: &[Job; 5]) -> Vec<ExampleRow> {
    let rules = RULES.iter();
    let rules = rules.map(|rule| row(rule.label, jobs, &play(&rule.choice(POLICIES), jobs)));
    rules.chain([row("by length, idling", jobs, &in_order(jobs, BY_LENGTH))]).collect()
}

/// Sends them in this order, and waits for those that are not ready.
fn in_order(jobs: &[Job; 5], order: [usize; 5]) -> [Done; 5] {
    let (mut done, mut now) = ([Done::default(); 5], 0);
    for index in order {
        let start = jobs[index].at.max(now);
        now = start + jobs[index].bytes;
        done[index] = Done { start, end: now };
    }
    done
}

fn row(policy: &'static str, jobs: &[Job], done: &[Done]) -> ExampleRow {
    let pairs = || jobs.iter().zip(done);
    let delays: Vec<u64> = pairs().map(|(job, done)| done.start - job.at).collect();
    let responses: Vec<u64> = pairs().map(|(job, done)| done.end - job.at).collect();
    let mut order: Vec<usize> = (1..=jobs.len()).collect();
    order.sort_by_key(|&number| done[number - 1].start);
    ExampleRow {
        policy,
        order,
        waited: delays.iter().sum(),
        responded: responses.iter().sum(),
        end: done.iter().map(|done| done.end).max().unwrap_or(0),
        delays,
        responses,
    }
}
