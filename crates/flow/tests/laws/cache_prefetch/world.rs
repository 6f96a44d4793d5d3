//! Hosts that read through a buffer over a long link, in virtual time.

use std::collections::{BTreeMap, VecDeque};
use weir_flow::cache::evict;
use weir_flow::cache::lines::{Cover, FillId, Lines};
use weir_flow::cache::prefetch::{self, Ended, Found, Prefetch, Reader, Room, WishId};
use weir_flow::clock::{Duration, Instant};
use weir_flow::policy::Choice;
use weir_flow::request::{LinkId, VolumeId};
use weir_flow::units::{Bandwidth, Extent};

pub(crate) const LINE: u32 = 4096;
pub(crate) const VOLUME: VolumeId = VolumeId::new(0);

/// What a host does between the end of a read and the next one.
const THINKING: Duration = Duration::from_micros(10);

/// A fetch on its way.
struct Fetch {
    fill: FillId,
    wish: Option<(WishId, u64)>,
    begun: Instant,
}

/// A reader that keeps a number of reads going.
pub(crate) struct Host {
    pub(crate) link: u32,
    pub(crate) depth: usize,
    pub(crate) reads: VecDeque<Extent>,
}

pub(crate) struct World {
    lines: Lines,
    prefetch: Box<dyn Prefetch>,
    capacity: u64,
    round_trip: Duration,
    link: Bandwidth,
    now: Instant,
    /// When the link has sent all that it was given.
    free: Instant,
    fetches: BTreeMap<(Instant, u64), Fetch>,
    count: u64,
    pub(crate) asked: u64,
    pub(crate) fetched: u64,
    pub(crate) ahead: u64,
    /// Bytes of wishes in flight, now and at most.
    in_flight: u64,
    pub(crate) most_in_flight: u64,
    /// Reads of which something had to be fetched when they came.
    pub(crate) missing: Vec<Extent>,
}

impl World {
    /// A buffer of `lines` lines over a link of 1 Gbit/s and 20 ms, and a volume.
    pub(crate) fn new(policy: &str, lines: u32, capacity: u64) -> Self {
        let choice = Choice::named(prefetch::POLICIES, policy).expect("it is in the list");
        let build = choice.policy().build;
        Self {
            lines: Lines::new(lines, LINE, &Choice::default_of(evict::POLICIES)),
            prefetch: build(choice.values(), Room { line: LINE, lines }),
            capacity,
            round_trip: Duration::from_millis(20),
            link: Bandwidth::per_second(125_000_000).expect("it is not zero"),
            now: Instant::ZERO,
            free: Instant::ZERO,
            fetches: BTreeMap::new(),
            count: 0,
            asked: 0,
            fetched: 0,
            ahead: 0,
            in_flight: 0,
            most_in_flight: 0,
            missing: Vec::new(),
        }
    }

    fn fetch(&mut self, extent: Extent, wish: Option<(WishId, u64)>) -> FillId {
        let extent = Extent::new(extent.offset, extent.length.min(self.capacity - extent.offset));
        let fill = self.lines.begin(VOLUME, extent, wish.is_some());
        let sent = self.link.time_for(extent.length);
        self.free = self.free.max(self.now + self.round_trip) + sent;
        self.fetches.insert((self.free, self.count), Fetch { fill, wish, begun: self.now });
        self.count += 1;
        self.fetched += extent.length;
        if let Some((_, bytes)) = wish {
            self.ahead += extent.length;
            self.in_flight += bytes;
            self.most_in_flight = self.most_in_flight.max(self.in_flight);
        }
        fill
    }

    /// Begins what the policy wishes for.
    fn look_ahead(&mut self) {
        while let Some(judged) = self.lines.take_judged() {
            self.prefetch.judge(judged.volume, judged.used, judged.wasted);
        }
        while let Some(wish) = self.prefetch.poll() {
            let end = wish.extent.end().expect("wishes end");
            assert!(wish.extent.length > 0 && end <= self.capacity, "{wish:?}");
            match self.lines.lacking(VOLUME, wish.extent) {
                Some(extent) => {
                    self.fetch(extent, Some((wish.id, wish.extent.length)));
                }
                None => self.prefetch.ended(self.now, wish.id, Ended::NotNeeded),
            }
        }
    }

    /// A host reads; whether it has it at once, and otherwise what it has fetched itself.
    fn read(&mut self, host: &Host, extent: Extent) -> (bool, Option<FillId>) {
        self.asked += extent.length;
        let cover = self.lines.read(VOLUME, extent, &mut Vec::new());
        let lacking = self.lines.lacking(VOLUME, extent);
        let mut own = None;
        let found = match (cover, lacking) {
            (Cover::All, _) => Found::Ready,
            (_, None) => Found::InFlight,
            (_, Some(lacking)) => {
                self.missing.push(extent);
                own = Some(self.fetch(lacking, None));
                Found::Missing
            }
        };
        let from = Reader { volume: VOLUME, link: LinkId::new(host.link) };
        self.prefetch.read(self.now, from, extent, self.capacity, found);
        self.look_ahead();
        (cover == Cover::All, own)
    }

    /// Until the next fetch has ended.
    fn wait(&mut self) {
        let ((end, _), fetch) = self.fetches.pop_first().expect("a reader waits for a fetch");
        self.now = self.now.max(end);
        self.lines.end(fetch.fill, true, &mut Vec::new());
        if let Some((wish, bytes)) = fetch.wish {
            self.in_flight -= bytes;
            let took = self.now.since(fetch.begun);
            self.prefetch.ended(self.now, wish, Ended::Fetched(took));
        }
        self.look_ahead();
    }

    /// All reads of all hosts, each of which waits for its own; how long they took.
    pub(crate) fn run(&mut self, hosts: &mut [Host]) -> Duration {
        let begun = self.now;
        let mut waiting: Vec<Vec<(Extent, Option<FillId>)>> =
            hosts.iter().map(|_| Vec::new()).collect();
        loop {
            let mut idle = true;
            for (host, waiting) in hosts.iter_mut().zip(&mut waiting) {
                waiting.retain(|&(extent, own)| {
                    // What a read has fetched itself it has, also if no frame keeps it.
                    own.is_none_or(|own| self.fetches.values().any(|fetch| fetch.fill == own))
                        && self.lines.resume(VOLUME, extent, &mut Vec::new()) != Cover::All
                });
                for (extent, own) in waiting.iter_mut().filter(|(_, own)| own.is_none()) {
                    if let Some(lacking) = self.lines.lacking(VOLUME, *extent) {
                        *own = Some(self.fetch(lacking, None));
                    }
                }
                if waiting.len() < host.depth
                    && let Some(extent) = host.reads.pop_front()
                {
                    idle = false;
                    self.now += THINKING;
                    let (ready, own) = self.read(host, extent);
                    if !ready {
                        waiting.push((extent, own));
                    }
                }
            }
            while self.fetches.first_key_value().is_some_and(|(&(end, _), _)| end <= self.now) {
                self.wait();
            }
            if idle && waiting.iter().all(Vec::is_empty) {
                break;
            }
            if idle {
                self.wait();
            }
        }
        let took = self.now.since(begun);
        while !self.fetches.is_empty() {
            self.wait();
        }
        took
    }
}
