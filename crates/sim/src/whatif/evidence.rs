//! What a recording holds about arrivals, devices and links: the input of a what-if.

use crate::replay::Tap;
use std::collections::{BTreeMap, VecDeque};
use weir_flow::clock::{Duration, Instant};
use weir_flow::pipeline::{Action, Config, Input};
use weir_flow::request::{Op, Outcome, Request, RequestKey, Tag};

/// Most requests that a what-if holds in memory: about 8 GiB.
pub(super) const REQUESTS_MAX: usize = 20_000_000;

/// A request, and what became of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Instant,
    pub(super) request: Request,
    /// When its last byte left, or when it was refused; `None` if it was outstanding at the end.
    pub(super) ended: Option<Instant>,
    pub(super) refused: bool,
    /// Time of the link for its reply, without the wait for earlier replies.
    pub(super) link_ns: u64,
}

/// An access: the same bytes of the same store, in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Access {
    pub(super) volume: usize,
    pub(super) part: u32,
    pub(super) op: u8,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// An I/O of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Io {
    pub(super) access: Access,
    /// The path, counted over all backends.
    pub(super) station: u32,
    /// I/Os outstanding at the station when it began, this one included.
    pub(super) depth: u32,
    pub(super) begun: Instant,
    /// `None` if it was outstanding at the end.
    pub(super) ended: Option<(Instant, Outcome)>,
}

/// Everything that was seen.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) config: Config,
    /// The first station of each backend; a station is a path.
    pub(super) stations: Vec<u32>,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) ios: Vec<Io>,
    /// Inputs that no policy caused, in order.
    pub(super) events: Vec<(Instant, Input)>,
    /// What a what-if cannot reproduce yet: when, and what.
    pub(super) trouble: Vec<(Instant, &'static str)>,
    /// The control policy or the weights were changed during the run.
    pub(super) changed: Option<Instant>,
    pub(super) end: Instant,
    live: BTreeMap<Tag, usize>,
    at_station: Vec<u32>,
    begun: BTreeMap<RequestKey, usize>,
    replies: BTreeMap<RequestKey, VecDeque<Part>>,
    /// When each link is free.
    free: Vec<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    arrival: Option<usize>,
    at: Instant,
    last: bool,
}

impl Evidence {
    pub(super) fn new(config: &Config) -> Self {
        let mut stations = Vec::new();
        let mut next = 0_u32;
        for backend in &config.backends {
            stations.push(next);
            next += backend.groups.len() as u32;
        }
        Self {
            config: config.clone(),
            stations,
            arrivals: Vec::new(),
            ios: Vec::new(),
            events: Vec::new(),
            trouble: Vec::new(),
            changed: None,
            end: Instant::ZERO,
            live: BTreeMap::new(),
            at_station: vec![0; next as usize],
            begun: BTreeMap::new(),
            replies: BTreeMap::new(),
            free: Vec::new(),
        }
    }

    /// How many stations there are.
    pub(super) fn station_count(&self) -> usize {
        self.at_station.len()
    }

    fn trouble(&mut self, now: Instant, what: &'static str) {
        if !self.trouble.iter().any(|&(_, known)| known == what) {
            self.trouble.push((now, what));
        }
    }

    fn event(&mut self, now: Instant, input: &Input) {
        self.events.push((now, input.clone()));
    }

    fn arrive(&mut self, now: Instant, request: Request) {
        if self.arrivals.len() == REQUESTS_MAX {
            self.trouble(now, "it has more than 20 million requests");
            return;
        }
        self.live.insert(request.tag, self.arrivals.len());
        self.arrivals.push(Arrival { at: now, request, ended: None, refused: false, link_ns: 0 });
    }

    fn stored(&mut self, now: Instant, key: RequestKey, outcome: Outcome) {
        let Some(index) = self.begun.remove(&key) else { return };
        let io = &mut self.ios[index];
        io.ended = Some((now, outcome));
        self.at_station[io.station as usize] -= 1;
    }

    fn sent(&mut self, now: Instant, key: RequestKey) {
        let Some(parts) = self.replies.get_mut(&key) else { return };
        let Some(Part { arrival, at, last }) = parts.pop_front() else { return };
        if parts.is_empty() {
            self.replies.remove(&key);
        }
        let Some(arrival) = arrival else { return };
        let arrival = &mut self.arrivals[arrival];
        // The replies of jobs leave by no link.
        if !arrival.request.job {
            let link = arrival.request.link.index();
            if link >= self.free.len() {
                self.free.resize(link + 1, Instant::ZERO);
            }
            let begun = at.max(self.free[link]);
            arrival.link_ns += now.saturating_since(begun).as_nanos();
            self.free[link] = now;
        }
        if last {
            arrival.ended = Some(now);
        }
    }
}

impl Tap for Evidence {
    fn input(&mut self, now: Instant, input: &Input) {
        self.end = now;
        match *input {
            Input::Arrive(request) => self.arrive(now, request),
            Input::Stored { key, outcome } => self.stored(now, key, outcome),
            Input::Sent { key, .. } => self.sent(now, key),
            Input::Link(..)
            | Input::Substream(..)
            | Input::PathUp(..)
            | Input::PathAccess(..)
            | Input::Resized(..)
            | Input::Capped(..)
            | Input::TakeOver(_) => self.event(now, input),
            Input::SetControl(_) | Input::SetWeights(_) => {
                self.changed.get_or_insert(now);
                self.event(now, input);
            }
            Input::VolumeAdded(ref added) => {
                for backend in &added.backends {
                    self.stations.push(self.at_station.len() as u32);
                    self.at_station.resize(self.at_station.len() + backend.groups.len(), 0);
                }
                self.trouble(now, "a volume came");
            }
            Input::VolumeRemoved(_) => self.trouble(now, "a volume went"),
            Input::PathDown(..) => self.trouble(now, "a path failed"),
            Input::UnitReset(_) => self.trouble(now, "a unit was reset"),
            Input::WriteLost(_) => self.trouble(now, "a unit lost a write"),
            Input::PathOrder(..) => self.trouble(now, "an operator changed a path"),
            // Answers to the policy's own actions.
            Input::Checked(..) | Input::Cache(_) => {}
        }
    }

    fn action(&mut self, now: Instant, action: &Action) {
        match *action {
            Action::Store(io) => {
                let station = self.stations[io.backend.index()] + io.path.index() as u32;
                let depth = &mut self.at_station[station as usize];
                *depth += 1;
                let access = Access {
                    volume: io.volume.index(),
                    part: io.part,
                    op: io.op.code(),
                    offset: io.extent.offset,
                    length: io.extent.length,
                };
                let io_index = self.ios.len();
                self.ios.push(Io { access, station, depth: *depth, begun: now, ended: None });
                self.begun.insert(io.key, io_index);
            }
            Action::Transfer { key, tag, part, .. } => {
                let arrival = self.live.get(&tag).copied();
                if part.last {
                    self.live.remove(&tag);
                }
                let part = Part { arrival, at: now, last: part.last };
                self.replies.entry(key).or_default().push_back(part);
            }
            Action::Refuse { tag } => {
                if let Some(index) = self.live.remove(&tag) {
                    self.arrivals[index].ended = Some(now);
                    self.arrivals[index].refused = true;
                }
            }
            Action::Abandon { .. } => self.trouble(now, "an I/O was moved from a slow path"),
            Action::Reset { .. } => self.trouble(now, "a path was reset"),
            Action::Recall { .. } | Action::Check { .. } | Action::Cache(_) => {}
        }
    }
}

/// The recorded time of each access, in order.
#[derive(Debug)]
pub(super) struct Times<'a> {
    ios: &'a [Io],
    /// Where the I/Os of an access are in `order`.
    places: BTreeMap<Access, (usize, usize)>,
    order: Vec<u32>,
}

impl<'a> Times<'a> {
    pub(super) fn new(ios: &'a [Io]) -> Self {
        let mut order: Vec<u32> = (0..ios.len() as u32).collect();
        order.sort_by_key(|&index| (ios[index as usize].access, index));
        let mut places: BTreeMap<Access, (usize, usize)> = BTreeMap::new();
        for (place, &index) in order.iter().enumerate() {
            let access = ios[index as usize].access;
            places.entry(access).or_insert((place, 0)).1 += 1;
        }
        Self { ios, places, order }
    }

    /// Nothing taken yet of each access; one counter per I/O, at the place where those of its access begin.
    pub(super) fn untaken(&self) -> Vec<u32> {
        vec![0; self.order.len()]
    }

    /// The next recorded I/O of an access: its time, depth and outcome.
    pub(super) fn take(
        &self,
        access: &Access,
        taken: &mut [u32],
    ) -> Option<(Duration, u32, Outcome)> {
        let &(place, count) = self.places.get(access)?;
        let nth = taken[place] as usize;
        taken[place] += 1;
        let io = (nth < count).then(|| &self.ios[self.order[place + nth] as usize])?;
        let (ended, outcome) = io.ended?;
        Some((ended.since(io.begun), io.depth, outcome))
    }
}

/// The operation of an access.
pub(super) fn op(access: &Access) -> Op {
    Op::from_code(access.op).expect("an access has the code of an operation")
}
