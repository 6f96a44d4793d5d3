//! The paths of a life to the upstream, and the writes that wait for the end of a lost session.

use weir_flow::request::{PathId, RequestKey};

/// The paths of a life.
pub(super) struct Paths(Vec<Path>);

#[derive(Default)]
struct Path {
    down: bool,
    /// Writes of its lost session: the pipeline hears of them when the target has ended that session.
    held: Vec<RequestKey>,
}

impl Paths {
    pub(super) fn new(count: u32) -> Self {
        Self((0..count).map(|_| Path::default()).collect())
    }

    /// Whether no session works on a path.
    pub(super) fn is_down(&self, path: PathId) -> bool {
        self.0[path.index()].down
    }

    pub(super) fn set_down(&mut self, path: PathId, down: bool) -> bool {
        std::mem::replace(&mut self.0[path.index()].down, down) != down
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
        (0..self.0.len() as u32).map(PathId::new)
    }

    /// Holds a write until the target has ended its session.
    pub(super) fn hold(&mut self, path: PathId, write: RequestKey) {
        self.0[path.index()].held.push(write);
    }

    /// The writes that a path holds.
    pub(super) fn release(&mut self, path: PathId) -> Vec<RequestKey> {
        std::mem::take(&mut self.0[path.index()].held)
    }

    /// A path that holds writes.
    pub(super) fn holding(&self) -> Option<PathId> {
        self.ids().find(|&path| !self.0[path.index()].held.is_empty())
    }
}
