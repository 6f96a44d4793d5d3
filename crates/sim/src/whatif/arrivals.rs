//! Which issuers wait for replies, and which request waited for which.
//!
//! An issuer is one session on one volume. A request of a closed issuer comes a think time after a reply, and
//! that of an open one when it was recorded. Two statistics tell them apart, each against surrogates whose times are
//! moved by a few responses: the plateau (how often the same number of requests is outstanding after an arrival) and
//! the gap (how often a request follows a reply closely).

use super::evidence::Arrival;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_flow::clock::Instant;
use weir_flow::rng::Rng;

/// How arrivals are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// By the class that each issuer is found to be of.
    #[default]
    Auto,
    /// When they were recorded.
    Open,
    /// Each a think time after a reply.
    Closed,
}

/// Whether an issuer waits for replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// It does not.
    Open,
    /// Some of its requests do.
    Mixed,
    /// All of its requests do.
    Closed,
}

/// One session on one volume.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Issuer {
    /// The session, counted from 0 by the gateway.
    pub link: usize,
    /// The volume, by its place in the configuration.
    pub volume: usize,
    /// Requests.
    pub requests: usize,
    /// How its arrivals are made.
    pub class: Class,
    /// The share of requests that wait for replies, 0 to 1.
    pub feedback: f64,
    /// The most requests that it had outstanding.
    pub depth: u32,
    /// The share of arrivals that brought it to `depth`.
    pub at_depth: f64,
    /// In nanoseconds: of a mixed issuer, requests that follow a reply within this time wait for it.
    #[serde(skip)]
    theta: u64,
}

/// When requests come in a what-if.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    pub(super) issuers: Vec<Issuer>,
    /// The issuer of each request.
    pub(super) issuer: Vec<u32>,
    /// The request that each one waits for, and the think time in nanoseconds.
    pub(super) parents: Vec<Option<(u32, u64)>>,
}

impl Schedule {
    /// Sorts the arrivals of a recording into issuers.
    pub(super) fn new(arrivals: &[Arrival], asked: Arrivals) -> Self {
        let mut by: BTreeMap<(usize, usize), Vec<u32>> = BTreeMap::new();
        for (index, arrival) in (0..).zip(arrivals) {
            let request = &arrival.request;
            by.entry((request.link.index(), request.volume.index())).or_default().push(index);
        }
        let mut schedule = Self {
            issuers: Vec::new(),
            issuer: vec![0; arrivals.len()],
            parents: vec![None; arrivals.len()],
        };
        for ((link, volume), own) in by {
            let flow = Flow::new(arrivals, &own);
            let (feedback, theta) = flow.feedback();
            let class = match (asked, feedback) {
                (Arrivals::Closed, _) => Class::Closed,
                (Arrivals::Auto, feedback) if feedback >= CLOSED => Class::Closed,
                (Arrivals::Auto, feedback) if feedback > OPEN => Class::Mixed,
                (Arrivals::Auto | Arrivals::Open, _) => Class::Open,
            };
            let (depth, at_depth) = flow.depth();
            let requests = own.len();
            let issuer = Issuer { link, volume, requests, class, feedback, depth, at_depth, theta };
            if class != Class::Open {
                let within = if class == Class::Mixed { issuer.theta } else { u64::MAX };
                flow.parents(&own, within, &mut schedule.parents);
            }
            for &index in &own {
                schedule.issuer[index as usize] = schedule.issuers.len() as u32;
            }
            schedule.issuers.push(issuer);
        }
        schedule
    }

    /// The number of requests of each class: open, mixed, closed.
    pub(super) fn shares(&self) -> [usize; 3] {
        let mut shares = [0; 3];
        for issuer in &self.issuers {
            shares[issuer.class as usize] += issuer.requests;
        }
        shares
    }
}

/// The times of one issuer in nanoseconds.
struct Flow {
    arrived: Vec<u64>,
    /// By request; `u64::MAX` for one that did not end.
    ended: Vec<u64>,
}

impl Flow {
    fn new(arrivals: &[Arrival], own: &[u32]) -> Self {
        let of = |&index: &u32| &arrivals[index as usize];
        let ended = |arrival: &Arrival| arrival.ended.map_or(u64::MAX, Instant::as_nanos);
        Self {
            arrived: own.iter().map(|index| of(index).at.as_nanos()).collect(),
            ended: own.iter().map(|index| ended(of(index))).collect(),
        }
    }

    /// The share of requests that wait for replies, and the time within which they follow one.
    fn feedback(&self) -> (f64, u64) {
        let count = self.arrived.len().min(SAMPLE);
        if count < FEWEST {
            return (0.0, 0);
        }
        let arrived = &self.arrived[..count];
        let ended = &self.ended[..count];
        let mut responses: Vec<u64> = arrived
            .iter()
            .zip(ended)
            .filter(|&(_, &ended)| ended != u64::MAX)
            .map(|(arrived, ended)| ended - arrived)
            .collect();
        if responses.len() < FEWEST {
            return (0.0, 0);
        }
        let middle = responses.len() / 2;
        let median = *responses.select_nth_unstable(middle).1;
        let width = (4 * median).max(1);
        let mut rng = Rng::stream(1, "surrogates");
        let mut plateaus = Vec::new();
        let mut gaps = vec![Vec::new(); THETAS.len()];
        for _ in 0..SURROGATES {
            let mut moved_arrived = Vec::with_capacity(count);
            let mut moved_ended = Vec::with_capacity(count);
            for (&arrived, &ended) in arrived.iter().zip(ended) {
                let offset = rng.below(width);
                // All times are later by half of the width, so that none is below zero.
                moved_arrived.push(arrived + offset);
                moved_ended.push(ended.saturating_add(offset));
            }
            moved_arrived.sort_unstable();
            moved_ended.sort_unstable();
            plateaus.push(plateau(&moved_arrived, &moved_ended));
            let late: Vec<u64> = sorted(ended.iter().map(|ended| ended.saturating_add(width / 2)));
            for (theta, gaps) in THETAS.iter().zip(&mut gaps) {
                gaps.push(gap(&moved_arrived, &late, *theta));
            }
        }
        let real = sorted(ended.iter().copied());
        let (mut feedback, _) = excess(plateau(arrived, &real), &plateaus);
        let (mut best, mut theta) = (0.0, THETAS[0]);
        let mut by_gap = 0.0;
        for (&candidate, gaps) in THETAS.iter().zip(&gaps) {
            let (share, z) = excess(gap(arrived, &real, candidate), gaps);
            if z > best {
                (best, theta, by_gap) = (z, candidate, share);
            }
        }
        feedback = f64::max(feedback, by_gap);
        (feedback.clamp(0.0, 1.0), theta)
    }

    /// The most requests outstanding, and the share of arrivals at which it was so.
    fn depth(&self) -> (u32, f64) {
        let ended = sorted(self.ended.iter().copied());
        let depths: Vec<usize> = outstanding(&self.arrived, &ended).collect();
        let most = depths.iter().copied().max().unwrap_or(0);
        let there = depths.iter().filter(|&&depth| depth == most).count();
        (most as u32, there as f64 / depths.len().max(1) as f64)
    }

    /// Gives each request the latest reply before it that no other request has followed, if that is within a time.
    fn parents(&self, own: &[u32], within: u64, parents: &mut [Option<(u32, u64)>]) {
        let mut replies: Vec<usize> =
            (0..own.len()).filter(|&index| self.ended[index] != u64::MAX).collect();
        replies.sort_by_key(|&index| self.ended[index]);
        let (mut next, mut free) = (0, Vec::new());
        for (index, &arrived) in self.arrived.iter().enumerate() {
            while let Some(&reply) = replies.get(next)
                && self.ended[reply].saturating_add(SHORTEST_THINK) <= arrived
            {
                free.push(reply);
                next += 1;
            }
            if let Some(&reply) = free.last()
                && arrived - self.ended[reply] <= within
            {
                parents[own[index] as usize] = Some((own[reply], arrived - self.ended[reply]));
                free.pop();
            }
        }
    }
}

/// How many requests are outstanding after each arrival. Both lists are sorted.
fn outstanding(arrived: &[u64], ended: &[u64]) -> impl Iterator<Item = usize> {
    let mut gone = 0;
    arrived.iter().enumerate().map(move |(index, &arrived)| {
        while ended.get(gone).is_some_and(|&ended| ended <= arrived) {
            gone += 1;
        }
        index + 1 - gone.min(index)
    })
}

/// The share of arrivals after which the number outstanding is the most frequent one of that second.
fn plateau(arrived: &[u64], ended: &[u64]) -> f64 {
    let mut counts: BTreeMap<(u64, usize), usize> = BTreeMap::new();
    for (&at, depth) in arrived.iter().zip(outstanding(arrived, ended)) {
        *counts.entry((at / SECOND, depth)).or_default() += 1;
    }
    let mut most: BTreeMap<u64, usize> = BTreeMap::new();
    for ((second, _), count) in counts {
        let most = most.entry(second).or_default();
        *most = count.max(*most);
    }
    most.values().sum::<usize>() as f64 / arrived.len() as f64
}

/// The share of arrivals within `theta` of the latest reply before them. Both lists are sorted.
fn gap(arrived: &[u64], ended: &[u64], theta: u64) -> f64 {
    let mut gone = 0;
    let close = arrived.iter().filter(|&&arrived| {
        while ended.get(gone).is_some_and(|&ended| ended <= arrived) {
            gone += 1;
        }
        gone > 0 && arrived - ended[gone - 1] <= theta
    });
    close.count() as f64 / arrived.len() as f64
}

/// What a statistic has beyond its surrogates, as a share of what it can have, and in standard deviations. The share is 0 if
/// that is chance.
fn excess(value: f64, surrogates: &[f64]) -> (f64, f64) {
    let count = surrogates.len() as f64;
    let mean = surrogates.iter().sum::<f64>() / count;
    let squares: f64 = surrogates.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / count).sqrt().max(1e-9);
    let z = (value - mean) / deviation;
    if z < SIGNIFICANT || mean >= 1.0 {
        return (0.0, z);
    }
    ((value - mean) / (1.0 - mean), z)
}

fn sorted(times: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut times: Vec<u64> = times.collect();
    times.sort_unstable();
    times
}

/// The requests that follow each request, with their think times.
pub(super) fn children(parents: &[Option<(u32, u64)>]) -> BTreeMap<u32, VecDeque<(u32, u64)>> {
    let mut children: BTreeMap<u32, VecDeque<(u32, u64)>> = BTreeMap::new();
    for (index, parent) in (0..).zip(parents) {
        if let Some((parent, think)) = *parent {
            children.entry(parent).or_default().push_back((index, think));
        }
    }
    children
}

/// The volumes of issuers that reached their depth often: they may have wanted to send more.
pub(super) fn limited(issuers: &[Issuer]) -> BTreeSet<usize> {
    issuers.iter().filter(|issuer| issuer.at_depth > 0.1).map(|issuer| issuer.volume).collect()
}

/// Times within which a request may follow a reply, in nanoseconds.
const THETAS: [u64; 6] = [10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000];

/// Surrogates per issuer.
const SURROGATES: usize = 19;

/// Standard deviations below which a statistic shows nothing.
const SIGNIFICANT: f64 = 5.0;

/// From this feedback share on an issuer is closed.
const CLOSED: f64 = 0.7;

/// Up to this feedback share an issuer is open.
const OPEN: f64 = 0.2;

/// Requests of an issuer that are looked at.
const SAMPLE: usize = 20_000;

/// An issuer with fewer requests is open.
const FEWEST: usize = 100;

/// The shortest time between a reply and a request that waited for it, in nanoseconds.
const SHORTEST_THINK: u64 = 1_000;

const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of a queue with 4 servers and these arrivals; `None` is a loop of this depth.
    fn served(rate: Option<f64>, depth: usize, count: usize) -> Flow {
        let mut rng = Rng::stream(7, "served");
        let mut exponential = |mean: f64| (-(1.0 - rng.unit()).ln() * mean) as u64 + 1;
        let mut servers = [0_u64; 4];
        let mut next: Vec<u64> = vec![1; depth];
        let (mut arrived, mut ended, mut clock) = (Vec::new(), Vec::new(), 0);
        for _ in 0..count {
            let loop_index = (0..depth).min_by_key(|&index| next[index]).unwrap_or(0);
            let at = match rate {
                Some(rate) => {
                    clock += exponential(1e9 / rate);
                    clock
                }
                None => next[loop_index],
            };
            let server = (0..4).min_by_key(|&index| servers[index]).unwrap();
            let end = at.max(servers[server]) + 100_000 + exponential(900_000.0);
            servers[server] = end;
            next[loop_index] = end + 20_000;
            arrived.push(at);
            ended.push(end);
        }
        Flow { arrived, ended }
    }

    /// Loops are found closed, and independent arrivals open, at low and at high load.
    #[test]
    fn loops_are_told_from_open_arrivals() {
        for depth in [1, 8, 32] {
            let (feedback, _) = served(None, depth, 5_000).feedback();
            assert!(feedback >= CLOSED, "depth {depth}: {feedback}");
        }
        for rate in [100.0, 2_400.0, 3_800.0] {
            let (feedback, _) = served(Some(rate), 1, 5_000).feedback();
            assert!(feedback <= OPEN, "rate {rate}: {feedback}");
        }
    }

    /// Each request of a loop follows a reply that no other one follows: of one at depth 1, with the think time.
    #[test]
    fn requests_of_a_loop_follow_replies() {
        for depth in [1, 4] {
            let flow = served(None, depth, 1_000);
            let own: Vec<u32> = (0..1_000).collect();
            let mut parents = vec![None; 1_000];
            flow.parents(&own, u64::MAX, &mut parents);
            let mut used = BTreeSet::new();
            for (parent, think) in parents.iter().flatten() {
                assert!(used.insert(*parent), "a reply starts one request");
                assert!(depth > 1 || *think == 20_000, "{think}");
            }
            assert!(used.len() >= 990, "{}", used.len());
            assert_eq!(flow.depth().0, depth as u32);
        }
    }
}
