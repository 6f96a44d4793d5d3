//! The devices behind and the paths to them.

use super::FAR;
use crate::plan::Plan;
use crate::slots::Slots;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
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
    /// Its path went down; the pipeline hears of that, not of the device.
    lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Notice {
    /// An I/O is given up.
    GivenUp(RequestKey, BackendId, u32),
    /// A path that had been up again before its failure was noticed is found to work.
    Works(BackendId, u32),
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
            self.notice(now + detect, Notice::GivenUp(io.key, backend, path));
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
            return Some(self.tell(now, notice));
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
        for io in self.ios.iter_mut() {
            if io.backend == backend && io.path == path && !io.lost {
                io.lost = true;
                self.scheduled += 1;
                let notice = Notice::GivenUp(io.key, backend, path);
                self.notices.push(Reverse((now + detect, self.scheduled, notice)));
            }
        }
    }

    /// A path works again.
    pub(super) fn bring_up(&mut self, backend: BackendId, path: u32) {
        self.all[backend.index()].down[path as usize] = None;
    }

    fn tell(&mut self, now: Instant, notice: Notice) -> Input {
        match notice {
            Notice::GivenUp(key, backend, path) => {
                self.lost += 1;
                if self.all[backend.index()].down[path as usize].is_none() {
                    self.notice(now, Notice::Works(backend, path));
                }
                Input::Stored { key, outcome: Err(IoError::PathFailed) }
            }
            Notice::Works(backend, path) => Input::PathUp(backend, PathId::new(path)),
        }
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
