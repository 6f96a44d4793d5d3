//! Figures 3 and 5 from recordings: hosts of a gateway did what those of the paper do, over queues that are streams.
//!
//! A recording says when each request came and ended, over which link, and which weight the link had. It is replayed
//! first: one that does not come out the same says nothing. The device may be slower than the paper's by any factor,
//! which follows from the times; what is compared does not depend on it.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use weir_flow::clock::{Duration, Instant};
use weir_flow::dispatch::{Member, Weight};
use weir_flow::pipeline::{Action, Input, StoreIo};
use weir_flow::request::{LinkId, Op, Request, RequestKey, Tag};
use weir_sim::replay::{ReplayError, Tap, Verdict, replay_watched};

/// A figure, live.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Live {
    /// Figure 3.
    Turn(LiveTurn),
    /// Figure 5.
    Shares(LiveShares),
}

/// Figure 3, live.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveTurn {
    /// The recording.
    pub name: String,
    /// The policy of its gateway.
    pub policy: String,
    /// How many times slower than the paper's device its device was.
    pub slower: f64,
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

/// Figure 5, live.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveShares {
    /// The recording.
    pub name: String,
    /// The policy of its gateway.
    pub policy: String,
    /// How many times slower than the paper's device its device was.
    pub slower: f64,
    /// Requests of all streams.
    pub requests: u64,
    /// Shares that the weights of S1 to S8 make due while all have work, in per cent.
    pub due: Vec<f64>,
    /// What each had of the chips' time then.
    pub times: Vec<f64>,
    /// When each ended, in seconds after all had begun.
    pub ends: Vec<f64>,
    /// Streams in the order in which they ended, from 1.
    pub order: Vec<usize>,
}

impl LiveShares {
    /// The error of the worst share, in per cent of what is due.
    pub(super) fn worst(&self) -> f64 {
        let off = self.times.iter().zip(&self.due).map(|(time, due)| (time / due - 1.0).abs());
        100.0 * off.fold(0.0, f64::max)
    }
}

/// Why a recording shows no figure.
#[derive(Debug)]
pub enum LiveError {
    /// It cannot be read, or is damaged.
    Replay(ReplayError),
    /// It has no end, or its replay differs.
    Unproven(Verdict),
    /// Its hosts did something else: what.
    NoFigure(String),
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replay(error) => write!(f, "{error}"),
            Self::Unproven(Verdict::Cut) => {
                f.write_str("the recording has no end: its gateway was killed")
            }
            Self::Unproven(_) => f.write_str("its replay differs from the recorded run"),
            Self::NoFigure(what) => write!(f, "it shows neither figure 3 nor figure 5: {what}"),
        }
    }
}

impl std::error::Error for LiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Replay(error) => Some(error),
            Self::Unproven(_) | Self::NoFigure(_) => None,
        }
    }
}

/// Reads a recording; its name is for tables.
pub fn read(name: &str, source: impl Read) -> Result<Live, LiveError> {
    let mut policy = String::new();
    let begin = |config: &weir_flow::pipeline::Config| {
        config.policies.dispatch.policy().name.clone_into(&mut policy);
        ((), Watch::default())
    };
    let watched = replay_watched(source, begin, |_| ());
    let (replay, (), watch) = watched.map_err(LiveError::Replay)?;
    if replay.verdict() != Verdict::Same {
        return Err(LiveError::Unproven(replay.verdict()));
    }
    let mut streams: Vec<Stream> = watch.links.into_iter().filter_map(Stream::new).collect();
    streams.sort_by_key(|stream| stream.begin);
    let name = name.to_owned();
    match streams.as_slice() {
        [one, two] => turn(name, policy, one, two).map(Live::Turn),
        all if all.len() == 8 => {
            let found = streams.into_iter().map(|stream| {
                let weight = watch.weights.get(&stream.link);
                weight.map(|&weight| (weight, stream)).ok_or_else(|| no("a stream has no weight"))
            });
            shares(name, policy, found.collect::<Result<_, _>>()?).map(Live::Shares)
        }
        all => Err(no(&format!(
            "{} streams had {KEPT} requests of 16 KiB outstanding, figure 3 has 2, and figure 5 has 8",
            all.len()
        ))),
    }
}

fn no(what: &str) -> LiveError {
    LiveError::NoFigure(what.to_owned())
}

/// What a link has done of the experiment's requests.
#[derive(Debug, Default)]
struct Link {
    /// When they came and ended, in any order.
    requests: Vec<(Instant, Instant)>,
    /// When each page was done, in order, and whether it was written.
    pages: Vec<(Instant, bool)>,
    first_write: Option<Instant>,
}

/// The requests of the experiment's size, and their pages.
#[derive(Debug, Default)]
struct Watch {
    links: BTreeMap<LinkId, Link>,
    /// The last weight of each link that was a stream.
    weights: BTreeMap<LinkId, Weight>,
    /// Requests that have not ended, and pages that are at a chip.
    requests: BTreeMap<Tag, (LinkId, Instant)>,
    pages: BTreeMap<RequestKey, (LinkId, bool)>,
}

impl Tap for Watch {
    fn input(&mut self, now: Instant, input: &Input) {
        match *input {
            Input::Substream(Member::Link(link), Some(weight)) => {
                self.weights.insert(link, weight);
            }
            Input::Arrive(Request { tag, link, op, extent, job: false, .. })
                if matches!(op, Op::Read | Op::Write) && extent.length == REQUEST =>
            {
                self.requests.insert(tag, (link, now));
                if op == Op::Write {
                    self.links.entry(link).or_default().first_write.get_or_insert(now);
                }
            }
            Input::Stored { key, outcome: Ok(()) } => {
                if let Some((link, writes)) = self.pages.remove(&key) {
                    self.links.entry(link).or_default().pages.push((now, writes));
                }
            }
            _ => {}
        }
    }

    fn action(&mut self, now: Instant, action: &Action) {
        match *action {
            Action::Store(StoreIo { key, tag, op, .. }) => {
                if let Some(&(link, _)) = self.requests.get(&tag) {
                    self.pages.insert(key, (link, op == Op::Write));
                }
            }
            Action::Transfer { tag, part, .. } if part.last => {
                if let Some((link, arrived)) = self.requests.remove(&tag) {
                    self.links.entry(link).or_default().requests.push((arrived, now));
                }
            }
            _ => {}
        }
    }
}

/// A link that kept requests outstanding, as the paper's hosts do.
#[derive(Debug)]
struct Stream {
    link: LinkId,
    /// When enough were outstanding for the first time: what came before was no part of the experiment.
    begin: Instant,
    /// When the last request came.
    until: Instant,
    /// When the last one ended after there were enough: what came later was none either, such as a read of the partition
    /// table.
    end: Instant,
    requests: u64,
    pages: Vec<(Instant, bool)>,
    first_write: Option<Instant>,
}

impl Stream {
    /// `None` if there were never enough outstanding.
    fn new((link, of): (LinkId, Link)) -> Option<Self> {
        let ends = of.requests.iter().map(|&(_, ended)| (ended, false));
        let arrivals = of.requests.iter().map(|&(arrived, _)| (arrived, true));
        let mut events: Vec<(Instant, bool)> = ends.chain(arrivals).collect();
        events.sort_unstable();
        let (mut begin, mut end, mut outstanding, mut keeps) = (None, None, 0_usize, false);
        for (at, arrives) in events {
            outstanding = if arrives { outstanding + 1 } else { outstanding - 1 };
            if outstanding >= KEPT {
                begin.get_or_insert(at);
                keeps = true;
            }
            if keeps && outstanding == 0 {
                (end, keeps) = (Some(at), false);
            }
        }
        let (begin, end) = begin.zip(end)?;
        let arrivals = of.requests.iter().map(|&(arrived, _)| arrived);
        let is_inside = |ended: Instant| begin < ended && ended <= end;
        Some(Self {
            link,
            begin,
            until: arrivals.filter(|&arrived| arrived <= end).max()?,
            end,
            requests: of.requests.iter().filter(|&&(_, ended)| is_inside(ended)).count() as u64,
            pages: of.pages.into_iter().filter(|&(ended, _)| is_inside(ended)).collect(),
            first_write: of.first_write,
        })
    }

    /// What was done until then, each page at its cost. Between two ends it grows evenly: a page that is half done counts
    /// half.
    fn done(&self, at: Instant, cost: impl Fn(bool) -> f64) -> f64 {
        let (mut sum, mut last) = (0.0, self.begin);
        for &(ended, writes) in &self.pages {
            if ended > at {
                let whole = ended.saturating_since(last).as_nanos() as f64;
                let part = at.saturating_since(last).as_nanos() as f64;
                return sum + cost(writes) * if whole > 0.0 { part / whole } else { 0.0 };
            }
            (sum, last) = (sum + cost(writes), ended);
        }
        sum
    }

    /// The chips' time for it, in nanoseconds of the paper's device.
    fn time(&self, (from, until): (Instant, Instant)) -> f64 {
        let cost = |writes| if writes { PROGRAM_NS } else { READ_NS };
        self.done(until, cost) - self.done(from, cost)
    }

    /// Its rate in MiB/s.
    fn rate(&self, (from, until): (Instant, Instant)) -> f64 {
        let pages = self.done(until, |_| 1.0) - self.done(from, |_| 1.0);
        let seconds = until.saturating_since(from).as_nanos() as f64 / 1e9;
        pages * REQUEST as f64 / PAGES / MIB / seconds
    }

    /// Whether it has only read, or only written.
    fn is_pure(&self, writes: bool) -> bool {
        self.pages.iter().all(|&(_, written)| written == writes)
    }
}

/// A period without its first and last tenth, in which hosts begin and end.
fn inside(from: Instant, until: Instant) -> (Instant, Instant) {
    let tenth = Duration::from_nanos(until.saturating_since(from).as_nanos() / 10);
    (from + tenth, from + tenth * 9)
}

/// How many times slower than the paper's the device is that did `time` for it in a period.
fn slower((from, until): (Instant, Instant), time: f64) -> f64 {
    CHIPS * until.saturating_since(from).as_nanos() as f64 / time
}

/// Figure 3: S1 reads all the time; S2 comes, reads, and turns to writing.
fn turn(name: String, policy: String, one: &Stream, two: &Stream) -> Result<LiveTurn, LiveError> {
    let Some(turns) = two.first_write else {
        return Err(no("of its two streams the second does not write"));
    };
    let until = one.until.min(two.until);
    if !one.is_pure(false) || two.begin >= turns || turns >= until || one.begin >= two.begin {
        return Err(no(
            "its first stream must read, alone, then while the second reads and writes",
        ));
    }
    let (alone, both) = (inside(one.begin, two.begin), inside(two.begin, turns));
    let writes = inside(turns, until);
    let rates = |period| [one.rate(period), two.rate(period)];
    let time = [one.time(writes), two.time(writes)];
    let (both_read, one_writes) = (rates(both), rates(writes));
    Ok(LiveTurn {
        name,
        policy,
        slower: slower(alone, one.time(alone)),
        alone: one.rate(alone),
        both_read,
        one_writes,
        time: time.map(|of| of / time.iter().sum::<f64>()),
        change: 100.0 * (one_writes[0] / both_read[0] - 1.0),
    })
}

/// Figure 5: S1 to S3 read, S4 and S5 do both, S6 to S8 write, with weights that fall.
fn shares(
    name: String,
    policy: String,
    mut streams: Vec<(Weight, Stream)>,
) -> Result<LiveShares, LiveError> {
    streams.sort_by_key(|&(weight, _)| std::cmp::Reverse(weight));
    if streams.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(no("two of its eight streams have the same weight"));
    }
    for ((_, stream), number) in streams.iter().zip(1..) {
        let (reads, writes) = (stream.is_pure(false), stream.is_pure(true));
        let (fits, must) = match number {
            1..=3 => (reads, "read"),
            4 | 5 => (!reads && !writes, "read and write"),
            _ => (writes, "write"),
        };
        if !fits {
            return Err(no(&format!("S{number} must {must}")));
        }
    }
    let begins = streams.iter().map(|(_, stream)| stream.begin).max();
    let ends = streams.iter().map(|(_, stream)| stream.end).min();
    let period = begins.zip(ends).filter(|(begin, end)| begin < end);
    let period = period.ok_or_else(|| no("its eight streams never have work at once"))?;
    let percent = |all: Vec<f64>| -> Vec<f64> {
        let sum: f64 = all.iter().sum();
        all.into_iter().map(|one| 100.0 * one / sum).collect()
    };
    let times: Vec<f64> = streams.iter().map(|(_, stream)| stream.time(period)).collect();
    let due = streams.iter().map(|(weight, _)| f64::from(weight.as_1024ths())).collect();
    let seconds = |end: Instant| end.saturating_since(period.0).as_nanos() as f64 / 1e9;
    let mut order: Vec<usize> = (1..=streams.len()).collect();
    order.sort_by_key(|&number| streams[number - 1].1.end);
    Ok(LiveShares {
        name,
        policy,
        slower: slower(period, times.iter().sum()),
        requests: streams.iter().map(|(_, stream)| stream.requests).sum(),
        due: percent(due),
        times: percent(times),
        ends: streams.iter().map(|(_, stream)| seconds(stream.end)).collect(),
        order,
    })
}

/// Bytes of a request, and its pages.
const REQUEST: u64 = 16 << 10;
const PAGES: f64 = 4.0;

/// A stream has this many outstanding at once, half the paper's window.
const KEPT: usize = 16;

/// The paper's chips (table 2), and nanoseconds of a page there.
const CHIPS: f64 = 4.0;
const READ_NS: f64 = 150_000.0;
const PROGRAM_NS: f64 = 1_000_000.0;

const MIB: f64 = 1_048_576.0;

#[cfg(test)]
mod tests;
