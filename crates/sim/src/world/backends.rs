//! The devices behind and the paths to them.

use super::FAR;
use crate::plan::Plan;
use crate::slots::Slots;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weir_flow::clock::{Duration, Instant};
use weir_flow::error::IoError;
use weir_flow::pipeline::{Input, StoreIo};
use weir_flow::request::{BackendId, PathId, RequestKey};
use weir_model::device::{Device, DeviceIo};

/// All devices with their paths, and what is outstanding on them.
pub(super) struct Backends {
    all: Vec<Backend>,
    /// When a device wants to be asked, its number last. An entry may be out of date; asking early
    /// is harmless.
    wakes: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    /// What paths have to say.
    notices: BinaryHeap<Reverse<(Instant, u64, Notice)>>,
    ios: Slots<Io>,
    scheduled: u64,
    lost: u64,
    /// I/Os that will be given up: when, and on which path they are.
    losing: BTreeMap<RequestKey, (Instant, (BackendId, u32))>,
}

struct Backend {
    device: Box<dyn Device>,
    /// The earliest wake that is scheduled.
    armed: Option<Instant>,
    /// For each path that is down, how long an I/O on it takes to be given up.
    down: Vec<Option<Duration>>,
}

/// An I/O at a device.
struct Io {
    key: RequestKey,
    backend: BackendId,
    path: u32,
    /// The pipeline does not hear of its end at the device.
    lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Notice {
    /// An I/O is given up.
    GivenUp(RequestKey, BackendId, u32),
    /// A path that had been up again before its failure was noticed is found to work.
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
            down: vec![None; backend.paths as usize],
        };
        Self {
            all: plan.backends.iter().map(backend).collect(),
            wakes: BinaryHeap::new(),
            notices: BinaryHeap::new(),
            ios: Slots::new(),
            scheduled: 0,
            lost: 0,
            losing: BTreeMap::new(),
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
        if let Some(detect) = self.all[backend.index()].down[path as usize] {
            self.lose(now + detect, io.key, backend, path);
            return;
        }
        let id = self.ios.insert(Io { key: io.key, backend, path, lost: false });
        let io = DeviceIo { id: u64::from(id), op: io.op, extent: io.extent };
        self.all[backend.index()].device.start(now, io);
        self.arm(now, backend.index());
    }

    /// What happens here at `now`, if it concerns the pipeline.
    pub(super) fn happen(&mut self, now: Instant) -> Option<Input> {
        if self.notices.peek().is_some_and(|Reverse(notice)| notice.0 <= now) {
            let Reverse((_, _, notice)) = self.notices.pop()?;
            return self.tell(now, notice);
        }
        let Reverse((at, _, index)) = self.wakes.pop()?;
        let backend = &mut self.all[index as usize];
        backend.armed = backend.armed.filter(|&armed| armed != at);
        let finished = backend.device.finished(now);
        self.arm(now, index as usize);
        let (id, outcome) = finished?;
        let io = self.ios.remove(id as u32);
        (!io.lost).then_some(Input::Stored { key: io.key, outcome })
    }

    /// A path stops working; what is on it is given up after `detect`.
    pub(super) fn take_down(
        &mut self,
        now: Instant,
        backend: BackendId,
        path: u32,
        detect: Duration,
    ) {
        self.all[backend.index()].down[path as usize] = Some(detect);
        let mut keys = Vec::new();
        for io in self.ios.iter_mut() {
            if io.backend == backend && io.path == path && !io.lost {
                io.lost = true;
                keys.push(io.key);
            }
        }
        for key in keys {
            self.lose(now + detect, key, backend, path);
        }
    }

    /// Answers whether anybody is at the other end of a path; if nobody is, with silence.
    pub(super) fn check(&mut self, now: Instant, backend: BackendId, path: PathId) {
        self.notice(now + CHECK, Notice::Checked(backend, path.index() as u32));
    }

    /// Forgets an I/O: the pipeline will send it another way.
    pub(super) fn abandon(&mut self, key: RequestKey) {
        self.losing.remove(&key);
        for io in self.ios.iter_mut() {
            io.lost |= io.key == key;
        }
    }

    /// Ends what is on a path at once.
    pub(super) fn reset(&mut self, now: Instant, backend: BackendId, path: PathId) {
        let path = path.index() as u32;
        let mut keys: Vec<_> = self.losing.iter().map(|(&key, &(at, _))| (at, key)).collect();
        keys.retain(|&(at, key)| self.losing[&key].1 == (backend, path) && at > now);
        keys.sort_unstable();
        for (_, key) in keys {
            self.lose(now, key, backend, path);
        }
        let down = self.all[backend.index()].down[path as usize];
        self.take_down(now, backend, path, Duration::ZERO);
        self.all[backend.index()].down[path as usize] = down;
        if down.is_none() {
            self.notice(now + RECONNECT, Notice::Works(backend, path));
        }
    }

    /// An I/O will be given up at `at`.
    fn lose(&mut self, at: Instant, key: RequestKey, backend: BackendId, path: u32) {
        self.losing.insert(key, (at, (backend, path)));
        self.notice(at, Notice::GivenUp(key, backend, path));
    }

    /// A path works again.
    pub(super) fn bring_up(&mut self, backend: BackendId, path: u32) {
        self.all[backend.index()].down[path as usize] = None;
    }

    fn tell(&mut self, now: Instant, notice: Notice) -> Option<Input> {
        match notice {
            Notice::GivenUp(key, backend, path) => {
                // It has been given up before, or somebody else has the key by now.
                let due = self.losing.get(&key).is_some_and(|&(at, _)| at <= now);
                if !due {
                    return None;
                }
                self.losing.remove(&key);
                self.lost += 1;
                if self.all[backend.index()].down[path as usize].is_none() {
                    self.notice(now, Notice::Works(backend, path));
                }
                Some(Input::Stored { key, outcome: Err(IoError::PathFailed) })
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

    fn is_up(&self, backend: BackendId, path: u32) -> bool {
        self.all[backend.index()].down[path as usize].is_none()
    }

    fn notice(&mut self, at: Instant, notice: Notice) {
        self.scheduled += 1;
        self.notices.push(Reverse((at, self.scheduled, notice)));
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

/// How long a check of a path that works takes.
const CHECK: Duration = Duration::from_micros(200);

/// How long it takes to get a path back that was given up and works.
const RECONNECT: Duration = Duration::from_millis(10);
