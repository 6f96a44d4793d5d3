//! Modelled devices and the paths to them.

use super::FAR;
use crate::plan::{PathChange, Plan};
use crate::slots::Slots;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_flow::clock::{Duration, Instant};
use weir_flow::error::IoError;
use weir_flow::pipeline::{Input, StoreIo};
use weir_flow::request::{BackendId, Outcome, PathId, RequestKey};
use weir_flow::units::Extent;
use weir_model::device::{Device, DeviceIo};

/// All devices with their paths, and what is outstanding on them.
pub(super) struct Backends {
    all: Vec<Backend>,
    /// Where each volume begins on its device.
    begins: Vec<u64>,
    /// When a device wants to be asked, its number last. An entry may be out of date; asking early
    /// is harmless.
    wakes: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    /// What paths have to say.
    notices: BinaryHeap<Reverse<(Instant, u64, Notice)>>,
    ios: Slots<Io>,
    scheduled: u64,
    lost: u64,
}

struct Backend {
    device: Box<dyn Device>,
    /// The earliest wake that is scheduled.
    armed: Option<Instant>,
    /// How each path is.
    paths: Vec<PathChange>,
}

/// An I/O that is at a device, or that the pipeline waits for.
struct Io {
    key: RequestKey,
    backend: BackendId,
    path: u32,
    started: Instant,
    /// The device has not done with it.
    at_device: bool,
    /// What the pipeline will be told of it; `None`: nothing any more.
    awaited: Option<Awaited>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// How the device ends it.
    End,
    /// This, when the path speaks again.
    Withheld(Outcome),
    /// What the notice of this number says.
    Notice(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Notice {
    /// An I/O is given up.
    GivenUp(u32),
    /// An answer has come over a slow path; the code of the error, if it is one.
    Answer(u32, Option<u8>),
    /// A path that the pipeline takes for dead is found to work.
    Works(BackendId, u32),
    /// A check is answered.
    Checked(BackendId, u32),
}

impl Backends {
    /// Idle devices, every path up.
    pub(super) fn new(plan: &Plan) -> Self {
        let backend = |backend: &crate::plan::Backend| Backend {
            device: backend.model.build(plan.seed, &backend.name),
            armed: None,
            paths: vec![PathChange::Up; backend.paths as usize],
        };
        Self {
            all: plan.backends.iter().map(backend).collect(),
            begins: begins(plan),
            wakes: BinaryHeap::new(),
            notices: BinaryHeap::new(),
            ios: Slots::new(),
            scheduled: 0,
            lost: 0,
        }
    }

    /// I/Os that were lost with their path.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// When something happens here next; [`FAR`] if nothing does.
    pub(super) fn next(&self) -> Instant {
        let wake = self.wakes.peek().map_or(FAR, |Reverse(wake)| wake.0);
        let notice = self.notices.peek().map_or(FAR, |Reverse(notice)| notice.0);
        wake.min(notice)
    }

    /// Gives an I/O to its device, or to a dead path.
    pub(super) fn start(&mut self, now: Instant, io: &StoreIo) {
        let (backend, path) = (io.backend, io.path.index() as u32);
        let change = self.path(backend, path);
        let at_device = !matches!(change, PathChange::Down { .. });
        let awaited = Some(Awaited::End);
        let (key, started) = (io.key, now);
        let id = self.ios.insert(Io { key, backend, path, started, at_device, awaited });
        if let PathChange::Down { detect } = change {
            self.give_up(now + detect, id);
            return;
        }
        let offset = self.begins[io.volume.index()] + io.extent.offset;
        let extent = Extent { offset, ..io.extent };
        let io = DeviceIo { id: u64::from(id), op: io.op, extent, fua: io.fua };
        self.all[backend.index()].device.start(now, io);
        self.arm(now, backend.index());
    }

    /// What happens here at `now`, if it concerns the pipeline.
    pub(super) fn happen(&mut self, now: Instant) -> Option<Input> {
        if self.notices.peek().is_some_and(|Reverse(notice)| notice.0 <= now) {
            let Reverse((_, number, notice)) = self.notices.pop()?;
            return self.tell(now, number, notice);
        }
        let Reverse((at, _, index)) = self.wakes.pop()?;
        let backend = &mut self.all[index as usize];
        backend.armed = backend.armed.filter(|&armed| armed != at);
        let finished = backend.device.finished(now);
        self.arm(now, index as usize);
        let (id, outcome) = finished?;
        self.ended(now, id as u32, outcome)
    }

    /// A device has done with an I/O: its path says so, later, or not.
    fn ended(&mut self, now: Instant, id: u32, outcome: Outcome) -> Option<Input> {
        let io = self.ios.get_mut(id);
        io.at_device = false;
        let Io { key, backend, path, started, awaited, .. } = *io;
        if awaited != Some(Awaited::End) {
            self.drop_if_done(id);
            return None;
        }
        match self.path(backend, path) {
            PathChange::Slow { factor } => {
                let at = started + now.since(started) * u64::from(factor);
                let notice = Notice::Answer(id, outcome.err().map(IoError::code));
                let number = self.notice(at, notice);
                self.ios.get_mut(id).awaited = Some(Awaited::Notice(number));
                None
            }
            PathChange::Stall => {
                self.ios.get_mut(id).awaited = Some(Awaited::Withheld(outcome));
                None
            }
            PathChange::Up | PathChange::Down { .. } => {
                self.ios.remove(id);
                Some(Input::Stored { key, outcome })
            }
        }
    }

    /// A path is different from now on. True if it works again.
    pub(super) fn change(
        &mut self,
        now: Instant,
        backend: BackendId,
        path: u32,
        change: PathChange,
    ) -> bool {
        self.all[backend.index()].paths[path as usize] = change;
        match change {
            PathChange::Down { detect } => self.give_up_all(now + detect, backend, path),
            PathChange::Up => {
                for (id, outcome) in self.withheld(backend, path) {
                    let notice = Notice::Answer(id, outcome.err().map(IoError::code));
                    let number = self.notice(now, notice);
                    self.ios.get_mut(id).awaited = Some(Awaited::Notice(number));
                }
            }
            PathChange::Slow { .. } | PathChange::Stall => {}
        }
        change == PathChange::Up
    }

    /// Answers a probe of a path; a path that is down gives no answer.
    pub(super) fn check(&mut self, now: Instant, backend: BackendId, path: PathId) {
        let path = path.index() as u32;
        let factor = match self.path(backend, path) {
            PathChange::Slow { factor } => u64::from(factor),
            PathChange::Up | PathChange::Down { .. } | PathChange::Stall => 1,
        };
        self.notice(now + CHECK * factor, Notice::Checked(backend, path));
    }

    /// Forgets an I/O: the pipeline sends it another way.
    pub(super) fn abandon(&mut self, key: RequestKey) {
        let found = self.ios.iter().find(|(_, io)| io.key == key && io.awaited.is_some());
        let (id, _) = found.expect("what is abandoned is outstanding");
        self.ios.get_mut(id).awaited = None;
        self.drop_if_done(id);
    }

    /// Ends what is on a path at once, and gets it back if it works.
    pub(super) fn reset(&mut self, now: Instant, backend: BackendId, path: PathId) {
        let path = path.index() as u32;
        self.give_up_all(now, backend, path);
        if self.is_up(backend, path) {
            self.notice(now + RECONNECT, Notice::Works(backend, path));
        }
    }

    /// What is on a path is given up at `at`, in the order in which it began.
    fn give_up_all(&mut self, at: Instant, backend: BackendId, path: u32) {
        let here = |(_, io): &(u32, &Io)| io.backend == backend && io.path == path;
        let on_path = self.ios.iter().filter(here).filter(|(_, io)| io.awaited.is_some());
        let mut on_path: Vec<_> = on_path.map(|(id, io)| (io.started, io.key, id)).collect();
        on_path.sort_unstable();
        for (_, _, id) in on_path {
            self.give_up(at, id);
        }
    }

    fn give_up(&mut self, at: Instant, id: u32) {
        let number = self.notice(at, Notice::GivenUp(id));
        self.ios.get_mut(id).awaited = Some(Awaited::Notice(number));
    }

    fn withheld(&self, backend: BackendId, path: u32) -> Vec<(u32, Outcome)> {
        let here = self.ios.iter().filter(|(_, io)| io.backend == backend && io.path == path);
        let mut withheld: Vec<_> = here
            .filter_map(|(id, io)| match io.awaited {
                Some(Awaited::Withheld(outcome)) => Some((io.started, io.key, id, outcome)),
                _ => None,
            })
            .collect();
        withheld.sort_unstable_by_key(|&(started, key, ..)| (started, key));
        withheld.into_iter().map(|(_, _, id, outcome)| (id, outcome)).collect()
    }

    fn tell(&mut self, now: Instant, number: u64, notice: Notice) -> Option<Input> {
        match notice {
            Notice::GivenUp(id) => {
                let (key, backend, path) = self.due(id, number)?;
                self.lost += 1;
                if self.path(backend, path) == PathChange::Up {
                    // It had been up again before its failure was noticed.
                    self.notice(now, Notice::Works(backend, path));
                }
                Some(Input::Stored { key, outcome: Err(IoError::PathFailed) })
            }
            Notice::Answer(id, code) => {
                let Io { backend, path, .. } = *self.ios.get(id)?;
                let error = code.and_then(IoError::from_code);
                let outcome = error.map_or(Ok(()), Err);
                if self.path(backend, path) == PathChange::Stall {
                    let io = self.ios.get_mut(id);
                    if io.awaited == Some(Awaited::Notice(number)) {
                        io.awaited = Some(Awaited::Withheld(outcome));
                    }
                    return None;
                }
                let (key, ..) = self.due(id, number)?;
                Some(Input::Stored { key, outcome })
            }
            Notice::Works(backend, path) if self.is_up(backend, path) => {
                Some(Input::PathUp(backend, PathId::new(path)))
            }
            Notice::Checked(backend, path) if self.is_up(backend, path) => {
                Some(Input::Checked(backend, PathId::new(path)))
            }
            Notice::Works(..) | Notice::Checked(..) => None,
        }
    }

    /// The I/O of a notice, if the pipeline still waits for that.
    fn due(&mut self, id: u32, number: u64) -> Option<(RequestKey, BackendId, u32)> {
        let io = self.ios.get(id).filter(|io| io.awaited == Some(Awaited::Notice(number)))?;
        let Io { key, backend, path, .. } = *io;
        self.ios.get_mut(id).awaited = None;
        self.drop_if_done(id);
        Some((key, backend, path))
    }

    /// Frees the entry of an I/O that has no further use.
    fn drop_if_done(&mut self, id: u32) {
        let io = self.ios.get_mut(id);
        if !io.at_device && io.awaited.is_none() {
            self.ios.remove(id);
        }
    }

    fn path(&self, backend: BackendId, path: u32) -> PathChange {
        self.all[backend.index()].paths[path as usize]
    }

    /// Whether the path answers.
    fn is_up(&self, backend: BackendId, path: u32) -> bool {
        matches!(self.path(backend, path), PathChange::Up | PathChange::Slow { .. })
    }

    fn notice(&mut self, at: Instant, notice: Notice) -> u64 {
        self.scheduled += 1;
        self.notices.push(Reverse((at, self.scheduled, notice)));
        self.scheduled
    }

    /// Schedules the next wake of a device, if none as early is.
    fn arm(&mut self, now: Instant, index: usize) {
        let backend = &mut self.all[index];
        let Some(at) = backend.device.next().map(|at| at.max(now)) else { return };
        if backend.armed.is_none_or(|armed| at < armed) {
            backend.armed = Some(at);
            self.scheduled += 1;
            self.wakes.push(Reverse((at, self.scheduled, index as u32)));
        }
    }
}

/// Where each volume begins on its device: volumes that share one lie on it one behind the other.
fn begins(plan: &Plan) -> Vec<u64> {
    let mut begins = vec![0; plan.volumes.len()];
    for (index, backend) in plan.backends.iter().enumerate() {
        let here = |&volume: &usize| plan.volumes[volume].backend.index() == index;
        let here: Vec<usize> = (0..begins.len()).filter(here).collect();
        let sizes = here.iter().map(|&volume| plan.volumes[volume].size);
        for (&volume, begin) in here.iter().zip(backend.model.regions(sizes).0) {
            begins[volume] = begin;
        }
    }
    begins
}

/// How long a check of a path that works takes.
const CHECK: Duration = Duration::from_micros(200);

/// How long it takes to get a path back that was given up and works.
const RECONNECT: Duration = Duration::from_millis(10);
