//! The devices of a what-if: recorded times, a fitted model, or a named one.

use super::evidence::{Access, Evidence, Times};
use super::fit::{Ends, Model, Servers};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weir_flow::accept::{self, Layout};
use weir_flow::clock::{Duration, Instant};
use weir_flow::pipeline::{Config, StoreIo};
use weir_flow::request::{Outcome, RequestKey};
use weir_flow::rng::Rng;
use weir_model::device::{Device, DeviceIo};

/// What stands for the devices.
pub(super) enum Source<'a> {
    /// Each I/O takes the time of the same access in the recording.
    Recorded,
    /// Models, by station; `None` where nothing was recorded.
    Fitted(&'a [Option<Model>]),
    /// One model for each backend.
    Named(weir_model::Model),
}

/// How the I/Os of a run compare with the recorded ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Support {
    /// I/Os.
    pub(super) begun: u64,
    /// Those whose access was recorded.
    pub(super) found: u64,
    /// Those that began at about the depth of the recorded one.
    pub(super) alike: u64,
    /// Those that began at a depth at which too few were recorded.
    pub(super) unseen: u64,
}

/// All stations, and what is outstanding on them.
pub(super) struct Devices<'a> {
    source: Source<'a>,
    times: &'a Times<'a>,
    taken: Vec<u32>,
    stations: Vec<Station>,
    first: &'a [u32],
    named: Vec<Box<dyn Device>>,
    /// Where each part of a volume begins on a named device.
    begins: BTreeMap<(usize, u32), u64>,
    ends: Ends,
    rng: Rng,
    /// What ends when, by number.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    live: BTreeMap<u64, Live>,
    numbers: BTreeMap<RequestKey, u64>,
    number: u64,
    pub(super) support: Support,
}

struct Station {
    servers: Servers,
    depth: u32,
    /// Recorded I/Os by their depth.
    depths: BTreeMap<u32, u64>,
}

impl Station {
    /// Whether enough I/Os were recorded within a quarter of this depth.
    fn has_seen(&self, depth: u32) -> bool {
        let around = self.depths.range(depth - depth / 4..=depth + depth / 4);
        around.map(|(_, count)| count).sum::<u64>() >= SEEN
    }
}

/// Recorded I/Os that show how a device behaves at a depth.
const SEEN: u64 = 200;

struct Live {
    key: RequestKey,
    station: usize,
    outcome: Outcome,
    /// The pipeline does not expect it any more.
    abandoned: bool,
}

impl<'a> Devices<'a> {
    pub(super) fn new(
        evidence: &'a Evidence,
        times: &'a Times<'a>,
        source: Source<'a>,
        seed: u64,
    ) -> Self {
        let mut depths = vec![BTreeMap::new(); evidence.station_count()];
        for io in &evidence.ios {
            *depths[io.station as usize].entry(io.depth).or_insert(0_u64) += 1;
        }
        let servers = |station: usize| match &source {
            Source::Fitted(models) => {
                models[station].as_ref().map_or(1, |model| model.fitted.servers)
            }
            Source::Recorded | Source::Named(_) => 1,
        };
        let station =
            |(index, depths)| Station { servers: Servers::new(servers(index)), depth: 0, depths };
        let stations = depths.into_iter().enumerate().map(station).collect();
        let (mut named, mut begins) = (Vec::new(), BTreeMap::new());
        if let Source::Named(model) = source {
            for index in 0..evidence.config.backends.len() {
                named.push(model.build(seed, &format!("backend{index}")));
            }
            begins = places(&evidence.config, model);
        }
        Self {
            source,
            times,
            taken: times.untaken(),
            stations,
            first: &evidence.stations,
            named,
            begins,
            ends: Ends::default(),
            rng: Rng::stream(seed, "device"),
            due: BinaryHeap::new(),
            live: BTreeMap::new(),
            numbers: BTreeMap::new(),
            number: 0,
            support: Support::default(),
        }
    }

    /// An I/O begins.
    pub(super) fn start(&mut self, now: Instant, io: &StoreIo) {
        let access = Access {
            volume: io.volume.index(),
            part: io.part,
            op: io.op.code(),
            offset: io.extent.offset,
            length: io.extent.length,
        };
        let index = self.first[io.backend.index()] as usize + io.path.index();
        let kind = self.ends.kind(&access);
        let recorded = self.times.take(&access, &mut self.taken);
        let station = &mut self.stations[index];
        station.depth += 1;
        let depth = station.depth;
        self.support.begun += 1;
        self.support.unseen += u64::from(!station.has_seen(depth));
        if let Some((_, then, _)) = recorded {
            self.support.found += 1;
            let apart = depth.abs_diff(then);
            self.support.alike += u64::from(apart <= 1 || apart * 4 <= then);
        }
        let outcome = recorded.map_or(Ok(()), |(.., outcome)| outcome);
        self.number += 1;
        let number = self.number;
        let live = Live { key: io.key, station: index, outcome, abandoned: false };
        self.live.insert(number, live);
        self.numbers.insert(io.key, number);
        let end = match &self.source {
            Source::Recorded => now + recorded.map_or(Duration::ZERO, |(time, ..)| time),
            Source::Fitted(models) => {
                let model = models[index].as_ref();
                let service = model.map_or(0, |model| model.draw(kind, &mut self.rng));
                station.servers.serve(now, service)
            }
            Source::Named(_) => {
                let mut extent = io.extent;
                extent.offset += self.begins[&(access.volume, access.part)];
                let io_there = DeviceIo { id: number, op: io.op, extent, fua: io.fua };
                self.named[io.backend.index()].start(now, io_there);
                return;
            }
        };
        self.due.push(Reverse((end, number)));
    }

    /// When the next I/O ends.
    pub(super) fn next(&self) -> Option<Instant> {
        let due = self.due.peek().map(|&Reverse((at, _))| at);
        self.named.iter().filter_map(|device| device.next()).chain(due).min()
    }

    /// An I/O that has ended, if the pipeline expects it.
    pub(super) fn happen(&mut self, now: Instant) -> Option<(RequestKey, Outcome)> {
        let mut ended = None;
        if let Some(&Reverse((at, number))) = self.due.peek()
            && at <= now
        {
            self.due.pop();
            ended = Some((number, None));
        }
        for device in &mut self.named {
            if ended.is_none()
                && device.next().is_some_and(|at| at <= now)
                && let Some((number, outcome)) = device.finished(now)
            {
                ended = Some((number, Some(outcome)));
            }
        }
        let (number, outcome) = ended?;
        let live = self.live.remove(&number).expect("what ends has begun");
        self.stations[live.station].depth -= 1;
        if live.abandoned {
            return None;
        }
        self.numbers.remove(&live.key);
        Some((live.key, outcome.unwrap_or(live.outcome)))
    }

    /// The pipeline does not expect this I/O any more.
    pub(super) fn abandon(&mut self, key: RequestKey) {
        let number = self.numbers.remove(&key).expect("what is abandoned is outstanding");
        self.live.get_mut(&number).expect("it has begun").abandoned = true;
    }
}

/// The bytes that each part of a volume takes, by backend.
fn lengths(config: &Config) -> Vec<BTreeMap<(usize, u32), u64>> {
    let mut lengths = vec![BTreeMap::new(); config.backends.len()];
    for (volume, accept::Volume { capacity, layout, .. }) in config.volumes.iter().enumerate() {
        for part in 0..layout.parts() {
            let length = match layout {
                Layout::One(_) => *capacity,
                Layout::Stripe { backends, chunk } => {
                    (capacity / backends.len() as u64).saturating_add(*chunk)
                }
                Layout::Concat(parts) => parts[part].length,
            };
            lengths[layout.backend(part).index()].insert((volume, part as u32), length);
        }
    }
    lengths
}

/// The bytes that the fullest backend needs.
pub(super) fn needed(config: &Config, model: weir_model::Model) -> u64 {
    let end = |parts: BTreeMap<_, u64>| model.regions(parts.into_values()).1;
    lengths(config).into_iter().map(end).max().unwrap_or(0)
}

/// Where the parts of volumes begin: one behind the other on each backend.
fn places(config: &Config, model: weir_model::Model) -> BTreeMap<(usize, u32), u64> {
    let mut begins = BTreeMap::new();
    for parts in lengths(config) {
        let (starts, _) = model.regions(parts.values().copied());
        begins.extend(parts.into_keys().zip(starts));
    }
    begins
}
