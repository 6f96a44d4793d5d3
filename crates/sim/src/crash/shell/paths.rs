//! The paths of a life to the upstream, and the writes that wait for the end of a lost session.

use super::super::plan::Plan;
use super::BACKEND;
use weir_flow::request::{BackendId, PathId, RequestKey};

/// The paths of a life. Of several stores each has one, which has the number of the store here.
pub(super) struct Paths {
    list: Vec<Path>,
    stores: u32,
}

#[derive(Default)]
struct Path {
    down: bool,
    /// Writes of its lost session: the pipeline hears of them when the target has ended that session.
    held: Vec<RequestKey>,
}

impl Paths {
    pub(super) fn new(plan: &Plan) -> Self {
        let stores = plan.stores.count();
        let count = if stores > 1 { stores } else { plan.paths };
        Self { list: (0..count).map(|_| Path::default()).collect(), stores }
    }

    /// The number that a path of the pipeline has here; none if it is not one to the volume.
    pub(super) fn own(&self, backend: BackendId, path: PathId) -> Option<PathId> {
        if self.stores > 1 {
            let store = backend.index() as u32;
            return (store < self.stores).then(|| PathId::new(store));
        }
        (backend == BACKEND).then_some(path)
    }

    /// What the pipeline calls a path.
    pub(super) const fn way(&self, path: PathId) -> (BackendId, PathId) {
        if self.stores > 1 {
            return (BackendId::new(path.index() as u32), PathId::new(0));
        }
        (BACKEND, path)
    }

    /// Whether no session works on a path.
    pub(super) fn is_down(&self, path: PathId) -> bool {
        self.list[path.index()].down
    }

    pub(super) fn set_down(&mut self, path: PathId, down: bool) -> bool {
        std::mem::replace(&mut self.list[path.index()].down, down) != down
    }

    /// The paths without a session.
    pub(super) fn down(&self) -> Vec<PathId> {
        self.ids().filter(|&path| self.is_down(path)).collect()
    }

    /// The paths with a session.
    pub(super) fn up(&self) -> Vec<PathId> {
        self.ids().filter(|&path| !self.is_down(path)).collect()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.list.len() as u32).map(PathId::new)
    }

    /// Holds a write until the target has ended its session.
    pub(super) fn hold(&mut self, path: PathId, write: RequestKey) {
        self.list[path.index()].held.push(write);
    }

    /// The writes that a path holds.
    pub(super) fn release(&mut self, path: PathId) -> Vec<RequestKey> {
        std::mem::take(&mut self.list[path.index()].held)
    }

    /// A path that holds writes.
    pub(super) fn holding(&self) -> Option<PathId> {
        self.ids().find(|&path| !self.list[path.index()].held.is_empty())
    }
}
