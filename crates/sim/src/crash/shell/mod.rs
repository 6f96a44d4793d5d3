//! Drives a pipeline with a log and a read buffer over two devices, in any order that may happen, with a
//! crash at every turn.
//!
//! It is the pipeline of `weir serve`. What is not the gateway's is drawn here: hosts, both devices, the path
//! to the upstream, the operator, and the order in which answers come.

mod cache;
mod config;
mod copy;
mod end;
mod fence;
mod hosts;
mod log_device;
mod losses;
mod lost;
mod memory;
mod paths;
mod update;
mod upstream;

use super::bug::Bug;
use super::content::SECTOR;
use super::device::{Device, Flush, Id};
use super::events::Event as Happening;
use super::history::Broken;
use super::judge::Judge;
use super::lasting::Lasting;
use super::loss::State;
use super::plan::{Ask, Plan};
use super::recovery::World;
use super::target::Target;
use config::config;
pub(super) use copy::other_volume;
use fence::Tenure;
use hosts::Asked;
use log_device::LogDevice;
use losses::Losses;
use memory::Memory;
use paths::Paths;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use weir_flow::cache::Done;
use weir_flow::cache::stage::FetchKey;
use weir_flow::cache::writeback::format::Span;
use weir_flow::cache::writeback::{Cause, LocalId, Notice, Recovered};
use weir_flow::clock::Instant;
use weir_flow::event::{Event, Observer};
use weir_flow::pipeline::{Action, Input, Pipeline, StoreIo};
use weir_flow::request::{BackendId, PathId, Tag, VolumeId};
use weir_flow::rng::Rng;
use weir_flow::stage::Stage as _;
use weir_flow::units::Extent;

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
///
/// Large, and one type: every event changes the pipeline, the history and the I/Os in flight together, and may be
/// where the gateway crashes. What has rules apart from that is an owner: memory, devices, history, judge.
pub(super) struct Shell<'a> {
    plan: &'a Plan,
    bug: Option<Bug>,
    pub(super) lasting: &'a mut Lasting,
    judge: &'a mut Judge,
    rng: Rng,
    /// What crashes lose is drawn apart, so that counting more of them changes nothing else.
    losses: Rng,
    now: Instant,
    pipeline: Pipeline<Notices>,
    log_device: LogDevice,
    target: Target,
    paths: Paths,
    /// The last batch of the log has copies.
    copies: bool,
    /// What is to be told at once.
    told: VecDeque<Input>,
    ios: Vec<Io>,
    asked: BTreeMap<Tag, Asked>,
    memory: Memory,
    /// Hosts that have written since the start, and whether they have flushed.
    hosts: BTreeMap<u64, bool>,
    closed: bool,
    tenure: Tenure,
    unflushed: Losses,
    /// The atomic write that has the journal, which has one record: others wait for it.
    journaling: Option<Tag>,
    journal_waits: VecDeque<StoreIo>,
}

/// What the pipeline has to tell of its log.
#[derive(Debug, Default)]
struct Notices(Vec<Notice>);

impl Observer for Notices {
    fn event(&mut self, _: Instant, event: Event<'_>) {
        if let Event::Cache(_, notice) = event {
            self.0.push(notice);
        }
    }
}

/// Something that has begun and has not ended.
enum Io {
    Local {
        io: LocalId,
        id: Id,
    },
    LocalFlush {
        io: LocalId,
        flush: Flush,
    },
    Fetch {
        fetch: FetchKey,
        span: Span,
        tag: Tag,
        offset: u64,
    },
    /// An I/O of the upstream.
    Store(StoreIo, Effect),
    /// An I/O of the other volume.
    Other(StoreIo),
    /// An answer that needs no device.
    Answer(Input),
    /// It is being remembered that the log is void.
    Abandon,
    /// The ranges that were given up are being kept.
    Keep {
        told: bool,
    },
    /// A copy continues.
    CopyOn(Tag),
    /// The journal of atomic writes is being written, for a step of an update.
    Journal(StoreIo),
    /// An I/O of the log device or the upstream whose requester was answered before it ended.
    Unseen {
        on_log: bool,
        effect: Effect,
    },
    /// Bytes of the log that arrive after the requester was answered.
    UnseenFetch {
        span: Span,
        tag: Tag,
        offset: u64,
    },
    /// Bytes that are put into a frame late.
    UnseenFill {
        frame: Range<usize>,
        bytes: Vec<u8>,
    },
}

/// What an I/O does to its device.
enum Effect {
    Write(Id),
    Flush(Flush),
    /// Refused, because another gateway owns the unit.
    Conflict,
    /// With what was there when it began.
    Read(Vec<u8>),
    Nothing,
}

const VOLUME: VolumeId = VolumeId::new(0);
/// Another volume, without a log, which copies read and write.
const OTHER: VolumeId = VolumeId::new(1);
const BACKEND: BackendId = BackendId::new(0);

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
        (plan, bug): (&'a Plan, Option<Bug>),
        (lasting, judge): (&'a mut Lasting, &'a mut Judge),
        (life, recovered): (usize, Recovered),
        (log_device, target): (Device, Target),
    ) -> Self {
        let pipeline = Pipeline::new(&config(plan, bug), Notices::default());
        let unflushed = Losses::new(plan.stores.count(), recovered.bypassed());
        let mut paths = Paths::new(plan);
        let lost = match bug {
            Some(Bug::QuarantineForgotten) => Vec::new(),
            _ => lasting.lost.kept().to_vec(),
        };
        let mut told = VecDeque::from([
            Input::Cache(Done::Lost(VOLUME, lost)),
            Input::Cache(Done::Recovered(VOLUME, Arc::new(recovered))),
        ]);
        if plan.fence {
            for path in paths.ids() {
                paths.set_down(path, true);
                told.push_back(Input::PathDown(BACKEND, path));
            }
        }
        Self {
            plan,
            bug,
            lasting,
            judge,
            rng: Rng::stream(plan.seed, &format!("crash/life/{life}")),
            losses: Rng::stream(plan.seed, &format!("crash/losses/{life}")),
            now: Instant::ZERO,
            pipeline,
            log_device: LogDevice::new(log_device),
            target,
            paths,
            copies: false,
            told,
            ios: Vec::new(),
            asked: BTreeMap::new(),
            memory: Memory::new(plan),
            hosts: BTreeMap::new(),
            closed: false,
            tenure: Tenure { life, ..Tenure::default() },
            unflushed,
            journaling: None,
            journal_waits: VecDeque::new(),
        }
    }

    /// The log device and the upstream as a crash finds them.
    pub(super) fn into_devices(mut self) -> (Device, Target) {
        // What a dead gateway has sent past its log may be done or not: that is decided now, since hosts see it.
        let Lasting { history, void, .. } = &*self.lasting;
        let leaves = self.plan.fence && !history.is_in_debt() && !history.is_loose() && !void;
        for io in std::mem::take(&mut self.ios) {
            match io {
                Io::Store(io, Effect::Write(id)) if leaves && !self.asked.contains_key(&io.tag) => {
                    self.target.leave((self.nexus(io.path), self.tenure.life), id, io.fua);
                }
                _ => {}
            }
        }
        if !leaves {
            self.target.abort_all(&mut self.rng);
        }
        (self.log_device.device, self.target)
    }

    /// Lives for this number of steps, or until it was stopped; without a limit until everything is answered
    /// and upstream.
    pub(super) fn live(&mut self, asks: &[Ask], steps: Option<u64>) -> Result<(), Fault> {
        let mut asks = asks.iter().peekable();
        let mut taken = 0;
        self.pump()?;
        while steps.is_none_or(|steps| taken < steps) {
            taken += 1;
            if taken > MOST_STEPS {
                return Err(Broken::Stuck("it goes round and round".to_owned()).into());
            }
            // An epoch is written again after a fault: at some point there must be no more of them.
            self.tenure.calm = taken > MOST_STEPS / 2;
            if !self.tenure.calm && self.rng.below(1_000) < self.plan.resets {
                let path = PathId::new(self.store_at_random());
                self.break_link(path, true)?;
            }
            if self.plan.unit_resets > 0
                && !self.tenure.calm
                && self.rng.below(1_000) < self.plan.unit_resets
            {
                self.reset_unit()?;
            }
            if self.plan.deferred > 0
                && !self.tenure.calm
                && self.rng.below(1_000) < self.plan.deferred
            {
                self.lose_write()?;
            }
            if self.plan.decay > 0 && !self.tenure.calm && self.rng.below(1_000) < self.plan.decay {
                self.decay();
            }
            for path in self.paths.down() {
                if self.rng.below(self.plan.outage) == 0 {
                    self.mend_link(path);
                }
            }
            self.late_writes()?;
            if self.target.rival.is_some() {
                self.tenure.after += 1;
                if self.tenure.after > STEPS_AFTER {
                    return Ok(());
                }
                if self.plan.forgets && self.rng.below(40) == 0 {
                    self.forget_owner()?;
                }
            } else if self.tenure.claimed && self.rng.below(1_000) < self.plan.rivals {
                self.take_over()?;
            }
            let ready = self.asked.len() < self.plan.depth
                && !self.tenure.fenced
                && asks.peek().is_some_and(|ask| !self.collides(ask));
            // Large batches need many writes that wait.
            let eager = self.plan.sparse > 1 && ready && self.rng.below(8) > 0;
            if ready && (eager || self.ios.is_empty() || self.rng.below(3) == 0) {
                let ask = asks.next().expect("it was just seen");
                self.ask(ask)?;
            } else if !self.ios.is_empty() && self.rng.below(20) > 0 {
                let io = self.choose();
                self.end(io)?;
            } else if asks.peek().is_none() && self.is_idle() {
                break;
            } else {
                self.pass_time()?;
            }
            self.pump()?;
        }
        // What another gateway owns is not this one's to finish.
        if steps.is_none() && self.target.rival.is_none() { self.finished() } else { Ok(()) }
    }

    /// Stops as on SIGTERM: what hosts have asked for ends, and what is in the log is made durable.
    pub(super) fn stop(&mut self) -> Result<(), Fault> {
        self.tell(|| "the gateway is asked to stop".to_owned());
        self.tenure.stopping = true;
        let mut taken = 0;
        while !self.asked.is_empty() {
            if self.has_nowhere() {
                return Ok(());
            }
            self.go_on(&mut taken)?;
        }
        self.told.push_back(Input::Cache(Done::Close(VOLUME)));
        self.pump()?;
        while !self.closed && !self.is(Bug::CloseNotWaitedFor) {
            if self.has_nowhere() {
                return Ok(());
            }
            self.go_on(&mut taken)?;
        }
        let history = &mut self.lasting.history;
        if !history.is_in_debt() {
            history.promise(history.last_acked());
        }
        self.lasting.events.count(Happening::Stop);
        self.tell(|| "the gateway has stopped".to_owned());
        self.point()
    }

    /// Neither the log nor the upstream takes what is dirty: the log device has failed, and another gateway owns the unit.
    /// A stop ends by its time-out then, and promises nothing.
    fn has_nowhere(&self) -> bool {
        let log = self.pipeline.cache().log(VOLUME).expect("it was opened first");
        self.target.rival.is_some() && log.status(self.now).failed
    }

    /// Does something, if only to wait.
    fn go_on(&mut self, taken: &mut u64) -> Result<(), Fault> {
        *taken += 1;
        if *taken > MOST_STEPS {
            return Err(Broken::Stuck("the gateway does not stop".to_owned()).into());
        }
        for path in self.paths.down() {
            self.mend_link(path);
        }
        if self.ios.is_empty() {
            self.pass_time()?;
        } else {
            let io = self.choose();
            self.end(io)?;
        }
        self.pump()
    }

    /// What the target may do at any moment with writes whose session is lost.
    fn late_writes(&mut self) -> Result<(), Fault> {
        if self.target.has_late() && self.rng.below(20) == 0 {
            self.execute_late()?;
        }
        match self.paths.holding() {
            Some(path) if self.rng.below(6) == 0 => self.confirm(path),
            _ => Ok(()),
        }
    }

    /// Something that has begun, which is to end now.
    fn choose(&mut self) -> Io {
        let mut one = self.rng.below(self.ios.len() as u64) as usize;
        // Reads take long, so that much happens meanwhile.
        while matches!(self.ios[one], Io::Store(_, Effect::Read(_)) | Io::Fetch { .. })
            && self.rng.below(16) > 0
        {
            one = self.rng.below(self.ios.len() as u64) as usize;
        }
        self.ios.swap_remove(one)
    }

    /// Whether everything is answered, and upstream.
    fn is_idle(&self) -> bool {
        let log = self.pipeline.cache().log(VOLUME).expect("it was opened first");
        self.ios.is_empty()
            && self.told.is_empty()
            && self.asked.is_empty()
            && log.status(self.now).dirty_records == 0
            && self.paths.down().is_empty()
    }

    /// Everything must have been answered and be upstream.
    fn finished(&mut self) -> Result<(), Fault> {
        let upstream = self.lasting.store.all_tokens(self.target.device.visible());
        let history = &mut self.lasting.history;
        history.whole(&upstream).map_err(|broken| {
            Broken::Stuck(format!("nothing is dirty, and not everything is upstream: {broken}"))
                .into()
        })
    }

    /// Lets time pass until the pipeline wants something.
    fn pass_time(&mut self) -> Result<(), Fault> {
        let Some(at) = self.pipeline.next_deadline() else {
            let waits = !self.ios.is_empty() || !self.told.is_empty();
            if self.target.rival.is_some() {
                return Ok(());
            }
            if !waits && self.paths.down().is_empty() {
                let waiting = self.asked.values().next().map(Asked::told);
                let what = waiting.unwrap_or_else(|| "write-back".to_owned());
                let text = format!("nothing happens, and {what} has not ended");
                return Err(Broken::Stuck(text).into());
            }
            return Ok(());
        };
        self.now = self.now.max(at);
        self.pipeline.handle_deadline(self.now);
        Ok(())
    }

    /// One of the stores of the volume.
    fn store_at_random(&mut self) -> u32 {
        match self.plan.stores.count() {
            1 => 0,
            count => self.rng.below(count.into()) as u32,
        }
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
            lasting: self.lasting,
            log: &self.log_device.device,
            target: &self.target,
        };
        let found = self.judge.point(&world, &mut self.losses);
        found.map_err(|(state, broken)| Fault { state: Some(state), broken })
    }

    /// Does what the pipeline asks for, and tells it what is known at once.
    fn pump(&mut self) -> Result<(), Fault> {
        loop {
            while let Some(action) = self.pipeline.poll(self.now) {
                self.act(action)?;
            }
            let notices = std::mem::take(&mut self.pipeline.observer_mut().0);
            for notice in notices {
                self.tell(|| format!("{notice:?}"));
                match notice {
                    Notice::Through(_) => self.pass_outstanding(),
                    Notice::LogFailed(_) => self.lasting.history.loosen(),
                    _ => {}
                }
                if let Notice::Blocked(blocked) = notice
                    && matches!(blocked.cause, Cause::Log(_))
                    && self.lasting.lost.any()
                {
                    self.lasting.events.count(Happening::Quarantine);
                    let sectors = sector(blocked.extent.offset)
                        ..sector(blocked.extent.offset + blocked.extent.length);
                    self.lasting.history.excuse(sectors);
                    let order = Input::Cache(Done::Quarantine(VOLUME, 1));
                    self.ios.push(Io::Answer(order));
                } else if let Notice::Blocked(blocked) = notice
                    && self.target.rival.is_none()
                {
                    let text = format!("write-back stops: {}", blocked.cause);
                    return Err(Broken::Damaged(text).into());
                }
            }
            let Some(input) = self.told.pop_front() else { return Ok(()) };
            self.unflushed.hears(&input);
            self.copy_writes(&input);
            if matches!(input, Input::PathUp(..) | Input::UnitReset(_) | Input::WriteLost(_)) {
                self.lasting.history.found_out();
            }
            self.pipeline.handle(self.now, input);
        }
    }

    fn act(&mut self, action: Action) -> Result<(), Fault> {
        match action {
            Action::Store(io) => return self.store(io),
            Action::Transfer { key, tag, outcome, part } => {
                self.ios.push(Io::Answer(Input::Sent { key, bytes: part.length }));
                if part.last {
                    return self.told(tag, outcome);
                }
            }
            Action::Cache(work) => return self.work(work),
            Action::Check { backend, path } => {
                let own = self.paths.own(backend, path);
                // Who is not there does not answer.
                if own.is_none_or(|path| !self.paths.is_down(path)) {
                    self.ios.push(Io::Answer(Input::Checked(backend, path)));
                }
            }
            Action::Reset { backend, path } => match self.paths.own(backend, path) {
                Some(path) => self.lose_link(path),
                None => self.reset_other(backend, path),
            },
            Action::Abandon { key, .. } => self.abandon(key),
            // The target may have begun everything that it was sent.
            Action::Recall { .. } => {}
            Action::Refuse { tag } => {
                let text =
                    format!("request {} was refused, with {} waiting", tag.0, self.asked.len());
                return Err(Broken::Stuck(text).into());
            }
        }
        Ok(())
    }
}

/// Steps of a life in which another gateway owns the unit.
const STEPS_AFTER: u32 = 80;

/// A workload of this size has ended long before.
const MOST_STEPS: u64 = 100_000;
