//! Runs the dispatch experiment on all cores and gives its rows.

use super::contestants::{self, Rival};
use super::hosts::{Host, Kind};
use super::live::Live;
use super::score::Outcome;
use super::{Case, Garbage};
use crate::Settings;
use serde::Serialize;
use weir_sim::cores;

/// Everything that the study found.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// The first seed.
    pub seed: u64,
    /// Runs of each cell; tables have the mean of rates and the worst of errors.
    pub runs: u32,
    /// Figure 3: two streams, of which the second turns to writing.
    pub turns: Vec<TurnRow>,
    /// Figures 4 to 6: eight streams, without and with weights and garbage collection.
    pub shares: Vec<ShareRow>,
    /// One stream that can use a single chip.
    pub hot: Vec<HotRow>,
    /// Small reads among writers.
    pub probes: Vec<ProbeRow>,
    /// Garbage collection of real blocks.
    pub debts: Vec<DebtRow>,
    /// Figures 3 and 5 of gateways, from their recordings.
    pub live: Vec<Live>,
}

/// Figure 3 under a policy.
#[derive(Clone, Debug, Serialize)]
pub struct TurnRow {
    /// The policy.
    pub policy: &'static str,
    /// S1 alone, in MiB/s.
    pub alone: f64,
    /// S1 and S2 while both read.
    pub both_read: [f64; 2],
    /// S1 and S2 while S2 writes.
    pub one_writes: [f64; 2],
    /// Their shares of the chips' time then.
    pub time: [f64; 2],
    /// By how much S1's rate changed as S2 turned, in per cent.
    pub change: f64,
}

/// One of figures 4 to 6 under a policy. Errors are relative to the share that is due, in per cent.
#[derive(Clone, Debug, Serialize)]
pub struct ShareRow {
    /// 4, 5 or 6.
    pub figure: u32,
    /// The policy.
    pub policy: &'static str,
    /// What each stream had of the chips' time while all had work, in per cent.
    pub times: Vec<f64>,
    /// The worst stream's error while all have work: the mean of the runs.
    pub all: f64,
    /// That of the worst interval between two ends.
    pub any: f64,
    /// That of the worst 100 ms.
    pub window: f64,
    /// When each stream ended, in seconds.
    pub ends: Vec<f64>,
    /// When it would have if the chips were one server, divided without a remainder.
    pub fluid: Vec<f64>,
    /// Streams in the order in which they ended, from 1.
    pub order: Vec<usize>,
    /// Share of the chips' time that was used until the first end, in per cent.
    pub used: f64,
    /// Figure 6: garbage collection's share of time while all have work, in per cent.
    pub garbage: f64,
    /// Figure 6: garbage collection's time for each of S8's.
    pub ratio: f64,
}

/// A reads the first chip only, B all of them, and C writes.
#[derive(Clone, Debug, Serialize)]
pub struct HotRow {
    /// The policy.
    pub policy: &'static str,
    /// Shares of what the chips could do, in per cent.
    pub shares: [f64; 3],
    /// How much of it was used.
    pub used: f64,
    /// How many times faster each would be alone.
    pub slowdowns: [f64; 3],
    /// The largest slowdown over the smallest.
    pub spread: f64,
}

/// 400 reads of 4 KiB a second at weight 2, among two writers and a mixed stream.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeRow {
    /// The policy.
    pub policy: &'static str,
    /// Responses of the reads in milliseconds.
    pub p50_ms: f64,
    /// 99 of 100 were faster.
    pub p99_ms: f64,
    /// 999 of 1000.
    pub p999_ms: f64,
    /// The longest.
    pub longest_ms: f64,
    /// MiB/s of the others.
    pub others: f64,
}

/// A reader and two writers on a filled device, at equal weights.
#[derive(Clone, Debug, Serialize)]
pub struct DebtRow {
    /// The policy, and who pays for garbage collection.
    pub policy: &'static str,
    /// The reader's share of time over a third.
    pub reader: f64,
    /// MiB/s of both writers.
    pub writers: f64,
    /// Share of the chips' time in which nothing could be written before a block was erased, in per cent.
    pub stalled: f64,
    /// Blocks erased.
    pub erased: f64,
}

/// Runs everything; `live` was read from recordings. `progress` hears of the share that is done.
pub fn run(settings: Settings, live: &[Live], progress: &(dyn Fn(f64) + Sync)) -> Study {
    let seeds: Vec<_> = settings.seeds(RUNS).collect();
    let mut jobs = Vec::new();
    for figure in [6, 5, 4] {
        jobs.extend(contestants::ALL.iter().map(|&rival| Job::Shares(figure, rival)));
    }
    jobs.extend(contestants::ALL.iter().map(|&rival| Job::Turn(rival)));
    let three = [contestants::FIFO, contestants::FOG, contestants::FAIR_TIME_4];
    jobs.extend(three.map(Job::Hot));
    jobs.extend(contestants::PROBED.iter().map(|&rival| Job::Probe(rival)));
    jobs.extend([contestants::FOG, contestants::FAIR_TIME_4].map(Job::Debt));
    let rows = cores::run(&jobs, progress, |job| job.run(&seeds));
    let mut study = Study {
        seed: settings.seed,
        runs: seeds.len() as u32,
        turns: Vec::new(),
        shares: Vec::new(),
        hot: Vec::new(),
        probes: Vec::new(),
        debts: Vec::new(),
        live: live.to_vec(),
    };
    for row in rows {
        match row {
            Row::Turn(row) => study.turns.push(row),
            Row::Shares(row) => study.shares.push(row),
            Row::Hot(row) => study.hot.push(row),
            Row::Probe(row) => study.probes.push(row),
            Row::Debt(row) => study.debts.push(row),
        }
    }
    study.shares.sort_by_key(|row| row.figure);
    study
}

enum Job {
    Turn(Rival),
    Shares(u32, Rival),
    Hot(Rival),
    Probe(Rival),
    Debt(Rival),
}

enum Row {
    Turn(TurnRow),
    Shares(ShareRow),
    Hot(HotRow),
    Probe(ProbeRow),
    Debt(DebtRow),
}

impl Job {
    fn run(&self, seeds: &[u64]) -> Row {
        match *self {
            Self::Turn(rival) => Row::Turn(turn(rival, seeds)),
            Self::Shares(figure, rival) => Row::Shares(shares(figure, rival, seeds)),
            Self::Hot(rival) => Row::Hot(hot(rival, seeds)),
            Self::Probe(rival) => Row::Probe(probe(rival, seeds)),
            Self::Debt(rival) => Row::Debt(debt(rival, seeds)),
        }
    }
}

/// Plays a case under each seed.
fn outcomes(case: &Case, seeds: &[u64]) -> Vec<Outcome> {
    seeds.iter().map(|&seed| case.play(seed)).collect()
}

fn mean(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(figure).sum::<f64>() / outcomes.len() as f64
}

fn worst(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(figure).fold(0.0, f64::max)
}

fn turn(rival: Rival, seeds: &[u64]) -> TurnRow {
    let [t1, t2, t3] = TURNS;
    let first = Host::of(Kind::Read);
    let second = Host { from: t1, writes_from: Some(t2), ..first };
    let case = Case { rival, hosts: vec![first, second], garbage: Garbage::None, until: Some(t3) };
    let outcomes = outcomes(&case, seeds);
    let rates = |from, until| [0, 1].map(|s| mean(&outcomes, |o| o.rate(s, from, until)));
    // What S2 had asked for as it turned is still read for a moment.
    let time = [0, 1].map(|stream| {
        mean(&outcomes, |outcome| {
            let time = outcome.time(t2 + SETTLED, t3);
            time[stream] / (time[0] + time[1])
        })
    });
    let (both_read, one_writes) = (rates(t1 + SETTLED, t2), rates(t2 + SETTLED, t3));
    TurnRow {
        policy: rival.policy.label,
        alone: rates(SETTLED, t1)[0],
        both_read,
        one_writes,
        time,
        change: 100.0 * (one_writes[0] / both_read[0] - 1.0),
    }
}

/// S1 to S3 read, S4 and S5 are mixed, S6 to S8 write; with weights that fall by a quarter if wanted.
fn eight(weighted: bool) -> Vec<Host> {
    let host = |index: usize| {
        let kind = match index {
            0..3 => Kind::Read,
            3..5 => Kind::Mixed,
            _ => Kind::Write,
        };
        let weight = 1_024.0 * if weighted { 1.25_f64.powf(7.0 - index as f64) } else { 1.0 };
        Host { weight: weight.round() as u32, count: Some(REQUESTS), ..Host::of(kind) }
    };
    (0..8).map(host).collect()
}

/// One of figures 4 to 6.
fn figure(number: u32, rival: Rival) -> Case {
    let garbage = match number {
        6 => Garbage::Periodic { period: 200_000_000, pages: 64 },
        _ => Garbage::None,
    };
    let rival = Rival { debts: false, ..rival };
    Case { rival, hosts: eight(number > 4), garbage, until: None }
}

/// Runs figure 5 under the paper's policy, for the speed benchmark: how many page operations
/// the chips did.
pub fn figure_5(seed: u64) -> u64 {
    figure(5, contestants::FOG).play(seed).operations()
}

fn shares(number: u32, rival: Rival, seeds: &[u64]) -> ShareRow {
    let case = figure(number, rival);
    let outcomes = outcomes(&case, seeds);
    // The first end, until which all have work.
    let all = |outcome: &Outcome| {
        outcome.lives.iter().take(8).map(|life| life.1).min().expect("there are eight")
    };
    let time = |outcome: &Outcome| outcome.time(0, all(outcome));
    let seconds = |figure: &dyn Fn(&Outcome, usize) -> f64| {
        (0..8).map(|stream| mean(&outcomes, |outcome| figure(outcome, stream))).collect()
    };
    let part = |stream: usize| {
        let share =
            |o: &Outcome| time(o).get(stream).map_or(0.0, |t| t / time(o).iter().sum::<f64>());
        mean(&outcomes, share)
    };
    ShareRow {
        figure: number,
        policy: rival.policy.label,
        times: (0..8).map(|stream| 100.0 * part(stream)).collect(),
        all: 100.0 * mean(&outcomes, |o| o.error(0, all(o)).unwrap_or(0.0)),
        any: 100.0 * worst(&outcomes, |o| o.worst().0),
        window: 100.0 * worst(&outcomes, |o| o.worst().1),
        ends: seconds(&|outcome, stream| outcome.lives[stream].1 as f64 / 1e9),
        fluid: seconds(&|outcome, stream| outcome.fluid()[stream] / 1e9),
        order: outcomes[0].order(8).into_iter().map(|stream| stream + 1).collect(),
        used: 100.0 * mean(&outcomes, |o| o.used(0, all(o))),
        garbage: 100.0 * part(8),
        ratio: part(8) / part(7),
    }
}

fn hot(rival: Rival, seeds: &[u64]) -> HotRow {
    let (from, until) = LONG_RUN;
    let hosts =
        [Host { hot: true, ..Host::of(Kind::Read) }, Host::of(Kind::Read), Host::of(Kind::Write)];
    let play = |hosts: Vec<Host>| {
        let case = Case { rival, hosts, garbage: Garbage::None, until: Some(until) };
        outcomes(&case, seeds)
    };
    let together = play(hosts.to_vec());
    let device = |o: &Outcome| (until - from) as f64 * f64::from(o.chips);
    let slowdowns = [0, 1, 2].map(|stream| {
        let alone = play(vec![hosts[stream]]);
        let alone = mean(&alone, |outcome| outcome.rate(0, from, until));
        alone / mean(&together, |outcome| outcome.rate(stream, from, until))
    });
    let most = slowdowns.into_iter().fold(0.0, f64::max);
    HotRow {
        policy: rival.policy.label,
        shares: [0, 1, 2]
            .map(|stream| 100.0 * mean(&together, |o| o.time(from, until)[stream] / device(o))),
        used: 100.0 * mean(&together, |o| o.used(from, until)),
        slowdowns,
        spread: most / slowdowns.into_iter().fold(f64::INFINITY, f64::min),
    }
}

fn probe(rival: Rival, seeds: &[u64]) -> ProbeRow {
    let (_, until) = LONG_RUN;
    let probe = Host {
        weight: 2_048,
        pages: 1,
        every: Some(2_500_000),
        from: PROBED_FROM,
        ..Host::of(Kind::Read)
    };
    let hosts = vec![probe, Host::of(Kind::Write), Host::of(Kind::Write), Host::of(Kind::Mixed)];
    let case = Case { rival, hosts, garbage: Garbage::None, until: Some(until) };
    let outcomes = outcomes(&case, seeds);
    let percentile = |permille| mean(&outcomes, |outcome| outcome.percentile(0, permille));
    ProbeRow {
        policy: rival.policy.label,
        p50_ms: percentile(500),
        p99_ms: percentile(990),
        p999_ms: percentile(999),
        longest_ms: percentile(1_000),
        others: mean(&outcomes, |o| (1..4).map(|stream| o.rate(stream, 0, until)).sum()),
    }
}

fn debt(rival: Rival, seeds: &[u64]) -> DebtRow {
    let (from, until) = LONG_RUN;
    let hosts = vec![Host::of(Kind::Read), Host::of(Kind::Write), Host::of(Kind::Write)];
    let case = Case { rival, hosts, garbage: Garbage::Real, until: Some(until) };
    let outcomes = outcomes(&case, seeds);
    let reader = |outcome: &Outcome| {
        let time = outcome.time(from, until);
        3.0 * time[0] / time.iter().sum::<f64>()
    };
    DebtRow {
        policy: rival.policy.label,
        reader: mean(&outcomes, reader),
        writers: mean(&outcomes, |o| o.rate(1, from, until) + o.rate(2, from, until)),
        stalled: 100.0
            * mean(&outcomes, |o| o.stalled as f64 / (until as f64 * f64::from(o.chips))),
        erased: mean(&outcomes, |outcome| outcome.erased as f64),
    }
}

/// Runs of a cell if nothing else is asked for.
const RUNS: u32 = 10;

/// Figure 3: when S2 comes, when it turns to writing, and the end, in nanoseconds.
const TURNS: [u64; 3] = [1_000_000_000, 3_000_000_000, 5_000_000_000];

/// So long after a change nothing is counted, in nanoseconds.
const SETTLED: u64 = 200_000_000;

/// Requests of each of the eight streams.
const REQUESTS: u64 = 2_000;

/// When small reads begin to come, in nanoseconds: a policy that finds out its depth has found it by then.
const PROBED_FROM: u64 = 8_000_000_000;

/// What is counted of a run in which nothing changes, in nanoseconds.
const LONG_RUN: (u64, u64) = (2_000_000_000, 12_000_000_000);
