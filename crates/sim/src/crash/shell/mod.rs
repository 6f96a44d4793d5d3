//! Drives a log, a read buffer and two devices, in any order that may happen, with a crash at every turn.

mod effects;
mod hosts;
mod reads;

use super::bug::Bug;
use super::content::{Content, Image, SECTOR, Store};
use super::device::{Device, Flush, Id};
use super::history::{Broken, History};
use super::judge::{Judge, State, World, tokens};
use super::plan::{Ask, Plan};
use reads::{Fill, Place};
use std::collections::BTreeMap;
use std::ops::Range;
use weir_flow::cache::evict;
use weir_flow::cache::lines::Lines;
use weir_flow::cache::writeback::{JobId, LocalId, Log, Piece, Pin, Recovered};
use weir_flow::clock::Instant;
use weir_flow::policy::Choice;
use weir_flow::request::{RequestKey, VolumeId};
use weir_flow::rng::Rng;
use weir_flow::units::Extent;

/// What lasts over crashes.
pub(super) struct Lasting {
    pub(super) store: Store,
    pub(super) history: History,
    /// What happened, in words, if that is wanted.
    pub(super) story: Option<Vec<String>>,
    /// How often payload was asked of hosts: keys are never used again.
    pub(super) keys: u64,
}

/// A law was broken.
pub(super) struct Fault {
    /// The crash, unless it was seen without one.
    pub(super) state: Option<Box<State>>,
    pub(super) broken: Broken,
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        Self { state: None, broken }
    }
}

/// One life of a gateway: from its start to a crash, or to the end.
pub(super) struct Shell<'a> {
    plan: &'a Plan,
    bug: Option<Bug>,
    pub(super) lasting: &'a mut Lasting,
    judge: &'a mut Judge,
    rng: Rng,
    /// What crashes lose is drawn apart, so that counting more of them changes nothing else.
    losses: Rng,
    now: Instant,
    log: Log,
    pub(super) near: Device,
    pub(super) far: Device,
    lines: Lines,
    frames: Vec<Image>,
    ios: Vec<Io>,
    asked: BTreeMap<RequestKey, Asked>,
    payloads: BTreeMap<RequestKey, Vec<u8>>,
    batches: BTreeMap<LocalId, Vec<u8>>,
    buffers: BTreeMap<JobId, Vec<u8>>,
    /// The bytes of the last job, for whoever takes them for the next one's.
    stale: Vec<u8>,
    /// Hosts that have written since the start, and whether they have flushed.
    hosts: BTreeMap<u64, bool>,
    /// The log device has failed and not worked since: a second failure would end the log.
    faulty: bool,
}

/// What a host waits for.
enum Asked {
    Change {
        place: usize,
        sectors: Range<u32>,
        fua: bool,
        told: bool,
    },
    /// So many changes had been acknowledged before.
    Flush {
        before: usize,
    },
    Read {
        sectors: Range<u32>,
        before: usize,
        begun: bool,
    },
}

/// Something that has begun on a device.
enum Io {
    Local {
        io: LocalId,
        id: Id,
    },
    LocalFlush {
        io: LocalId,
        flush: Flush,
    },
    Gather {
        job: JobId,
        bytes: u64,
        pieces: Vec<Piece>,
    },
    Upstream {
        job: JobId,
        id: Id,
    },
    UpstreamFlush {
        job: JobId,
        flush: Flush,
    },
    Read {
        key: RequestKey,
        pin: Option<Pin>,
        parts: Vec<Place>,
        fill: Option<Fill>,
    },
    /// A host's flush that the log has given back.
    Passed {
        key: RequestKey,
        flush: Flush,
    },
    /// An upstream write that ends unseen: whoever asked was answered before.
    Unseen {
        id: Id,
    },
    /// A flush that does.
    UnseenFlush {
        near: bool,
        flush: Flush,
    },
}

const VOLUME: VolumeId = VolumeId::new(0);

/// Lines of the read buffer.
const FRAMES: u32 = 4;

fn bytes(sectors: &Range<u32>) -> Extent {
    let at = |sector: u32| u64::from(sector) * SECTOR as u64;
    Extent::new(at(sectors.start), at(sectors.end) - at(sectors.start))
}

fn sector(at: u64) -> u32 {
    (at / SECTOR as u64) as u32
}

impl<'a> Shell<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        bug: Option<Bug>,
        lasting: &'a mut Lasting,
        judge: &'a mut Judge,
        life: usize,
        recovered: &Recovered,
        [near, far]: [Device; 2],
    ) -> Self {
        let evict = Choice::named(evict::POLICIES, "fifo").expect("it is among the policies");
        Self {
            plan,
            bug,
            lasting,
            judge,
            rng: Rng::stream(plan.seed, &format!("crash/life/{life}")),
            losses: Rng::stream(plan.seed, &format!("crash/losses/{life}")),
            now: Instant::ZERO,
            log: Log::new(plan.settings, recovered),
            near,
            far,
            lines: Lines::new(FRAMES, plan.line * SECTOR as u32, &evict),
            frames: vec![vec![Content::default(); plan.line as usize]; FRAMES as usize],
            ios: Vec::new(),
            asked: BTreeMap::new(),
            payloads: BTreeMap::new(),
            batches: BTreeMap::new(),
            buffers: BTreeMap::new(),
            stale: Vec::new(),
            hosts: BTreeMap::new(),
            faulty: true,
        }
    }

    /// Lives until it has done so many steps; without a limit until everything is answered and upstream.
    pub(super) fn live(&mut self, asks: &[Ask], steps: Option<u64>) -> Result<(), Fault> {
        let mut asks = asks.iter().peekable();
        let mut taken = 0;
        self.pump()?;
        while steps.is_none_or(|steps| taken < steps) {
            taken += 1;
            if asks.peek().is_none() && self.asked.is_empty() && steps.is_some() {
                // Nothing more is asked: what is left is write-back.
                if self.ios.is_empty() && !self.pass_time() {
                    break;
                }
            }
            if self.rng.below(1_000) < self.plan.resets {
                self.reset()?;
            }
            let room = asks.peek().is_some() && self.asked.len() < self.plan.depth;
            if room && (self.ios.is_empty() || self.rng.below(3) == 0) {
                let ask = asks.next().expect("it was just seen");
                self.ask(ask)?;
            } else if !self.ios.is_empty() && self.rng.below(20) > 0 {
                let mut one = self.rng.below(self.ios.len() as u64) as usize;
                // Reads take long, so that much happens meanwhile.
                while matches!(self.ios[one], Io::Read { .. }) && self.rng.below(16) > 0 {
                    one = self.rng.below(self.ios.len() as u64) as usize;
                }
                let io = self.ios.swap_remove(one);
                self.end(io)?;
            } else if !self.pass_time() && self.ios.is_empty() && !room {
                break;
            }
            self.pump()?;
            if taken > MOST_STEPS {
                return Err(Broken::Stuck("write-back goes round and round".to_owned()).into());
            }
        }
        if steps.is_none() { self.finished() } else { Ok(()) }
    }

    /// Everything must have been answered and be upstream.
    fn finished(&mut self) -> Result<(), Fault> {
        if let Some(asked) = self.asked.values().next() {
            let text = match asked {
                Asked::Change { sectors, .. } => format!("a write of {sectors:?}"),
                Asked::Flush { .. } => "a flush".to_owned(),
                Asked::Read { sectors, .. } => format!("a read of {sectors:?}"),
            };
            return Err(Broken::Stuck(format!("nothing happens, and {text} has no answer")).into());
        }
        let upstream = tokens(&self.lasting.store, self.far.visible());
        let all = self.lasting.history.arrived();
        self.lasting.history.promise(all);
        match self.lasting.history.prefix(&upstream) {
            Ok(_) => Ok(()),
            Err(broken) => {
                let text = format!("nothing happens, and not everything is upstream: {broken}");
                Err(Broken::Stuck(text).into())
            }
        }
    }

    /// Lets time pass until the log wants something. Whether it does.
    fn pass_time(&mut self) -> bool {
        let Some(at) = self.log.next_deadline() else { return false };
        self.now = self.now.max(at);
        self.log.handle_deadline(self.now);
        true
    }

    fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        let now = self.now.as_nanos() as f64 / 1e6;
        if let Some(story) = &mut self.lasting.story {
            story.push(format!("{now:9.3} ms  {}", what()));
        }
    }

    /// Everything may be lost now.
    fn point(&mut self) -> Result<(), Fault> {
        let world = World {
            plan: self.plan,
            bug: self.bug,
            store: &self.lasting.store,
            log: &self.near,
            upstream: &self.far,
            history: &self.lasting.history,
        };
        let found = self.judge.point(&world, &mut self.losses);
        found.map_err(|(state, broken)| Fault { state: Some(state), broken })
    }

    /// Does what the log asks for, and begins reads that may be.
    fn pump(&mut self) -> Result<(), Fault> {
        while let Some(effect) = self.log.poll(self.now) {
            self.effect(effect)?;
        }
        let waiting = self.asked.iter().filter_map(|(&key, asked)| match asked {
            Asked::Read { sectors, begun: false, .. } => Some((key, sectors.clone())),
            _ => None,
        });
        for (key, sectors) in waiting.collect::<Vec<_>>() {
            self.read(key, &sectors);
        }
        Ok(())
    }
}

/// A workload of this size has ended long before.
const MOST_STEPS: u64 = 100_000;
