//! The valid list of a selector: the paths that work, the one chosen longest ago first.

use crate::request::PathId;
use alloc::vec::Vec;

/// The paths that are not in the list are the failed ones.
///
/// A path that is chosen moves to the tail, so that among equals the least recently chosen goes
/// first.
#[derive(Debug)]
pub(super) struct LruOrder(Vec<PathId>);

impl LruOrder {
    /// Paths 0 to `paths` - 1, all of which work.
    pub(super) fn new(paths: u32) -> Self {
        Self((0..paths).map(PathId::new).collect())
    }

    /// The paths that work, in order.
    pub(super) fn paths(&self) -> &[PathId] {
        &self.0
    }

    /// Chooses the path at this place.
    pub(super) fn choose(&mut self, place: usize) -> PathId {
        let path = self.0.remove(place);
        self.0.push(path);
        path
    }

    /// Chooses the first path that no other is better than; `None` if all have failed.
    pub(super) fn best(&mut self, better: impl Fn(PathId, PathId) -> bool) -> Option<PathId> {
        let best =
            |best: usize, place| if better(self.0[place], self.0[best]) { place } else { best };
        let place = (0..self.0.len()).reduce(best)?;
        Some(self.choose(place))
    }

    /// Chooses the first path whose key is the smallest; `None` if all have failed.
    pub(super) fn least<K: Ord>(&mut self, key: impl Fn(PathId) -> K) -> Option<PathId> {
        let least = self.0.iter().enumerate().min_by_key(|&(_, &path)| key(path));
        let place = least?.0;
        Some(self.choose(place))
    }

    /// Takes a path out; false if it had failed already.
    pub(super) fn fail(&mut self, path: PathId) -> bool {
        let place = self.0.iter().position(|&valid| valid == path);
        place.map(|place| self.0.remove(place)).is_some()
    }

    /// Puts a failed path in at the head; false if it works already.
    pub(super) fn join_at_head(&mut self, path: PathId) -> bool {
        let news = !self.0.contains(&path);
        if news {
            self.0.insert(0, path);
        }
        news
    }

    /// Puts a failed path in at the tail; false if it works already.
    pub(super) fn join_at_tail(&mut self, path: PathId) -> bool {
        let news = !self.0.contains(&path);
        if news {
            self.0.push(path);
        }
        news
    }
}
