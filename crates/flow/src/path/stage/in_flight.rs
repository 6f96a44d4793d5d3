//! The I/Os on one path, in the order in which they started.
//!
//! They form a list through the records of the I/Os, so that starting, ending and abandoning one takes
//! constant time.

use super::Io;
use crate::clock::Instant;
use crate::request::RequestKey;
use slotmap::SecondaryMap;

/// The list of one path, with its count and sum.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// The first and the last I/O.
    ends: Option<(RequestKey, RequestKey)>,
    count: u32,
    bytes: u64,
}

impl InFlight {
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// The bytes of all I/Os.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The I/O that started first.
    pub(super) fn first(&self) -> Option<RequestKey> {
        self.ends.map(|(first, _)| first)
    }

    /// Puts an I/O on path number `path`, behind those that are there.
    pub(super) fn attach(
        &mut self,
        ios: &mut SecondaryMap<RequestKey, Io>,
        now: Instant,
        path: usize,
        key: RequestKey,
    ) {
        let last = self.ends.map(|(_, last)| last);
        if let Some(last) = last {
            ios[last].behind = Some(key);
        }
        self.ends = Some((self.ends.map_or(key, |(first, _)| first), key));
        let io = &mut ios[key];
        assert!(io.path.is_none(), "an I/O is on one path at a time");
        (io.path, io.since, io.before, io.behind) = (Some(path), now, last, None);
        io.alone = last.is_none();
        self.count += 1;
        self.bytes += io.context.bytes;
    }

    /// Takes an I/O off the path; true if it was the first there.
    pub(super) fn detach(
        &mut self,
        ios: &mut SecondaryMap<RequestKey, Io>,
        key: RequestKey,
    ) -> bool {
        let io = ios[key];
        if let Some(before) = io.before {
            ios[before].behind = io.behind;
        }
        if let Some(behind) = io.behind {
            ios[behind].before = io.before;
        }
        self.ends = self.ends.and_then(|(first, last)| {
            let first = if first == key { io.behind? } else { first };
            let last = if last == key { io.before? } else { last };
            Some((first, last))
        });
        ios[key].path = None;
        assert!(
            self.count > 0 && self.bytes >= io.context.bytes,
            "an I/O ended on a path that it was not on"
        );
        self.count -= 1;
        self.bytes -= io.context.bytes;
        assert!(
            (self.count == 0) == self.ends.is_none(),
            "the list of a path is not what it counts"
        );
        io.before.is_none()
    }

    /// The count and the sum are those of the list.
    pub(super) fn check(&self, ios: &SecondaryMap<RequestKey, Io>, path: usize) {
        if cfg!(debug_assertions) {
            let (mut count, mut bytes, mut next) = (0, 0, self.first());
            while let Some(key) = next {
                let io = &ios[key];
                assert_eq!(io.path, Some(path), "an I/O is in the list of another path");
                (count, bytes, next) = (count + 1, bytes + io.context.bytes, io.behind);
            }
            assert_eq!((count, bytes), (self.count, self.bytes), "a path's count is not its list");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathIo;
    use crate::testing::keys;

    fn rig() -> (SecondaryMap<RequestKey, Io>, [RequestKey; 2]) {
        let keys = keys(2);
        let mut ios = SecondaryMap::new();
        for &key in &keys {
            ios.insert(key, Io::new(0, 0, PathIo::sized(512), Instant::ZERO));
        }
        (ios, [keys[0], keys[1]])
    }

    /// I/Os leave in any order; what is left is in order, and counted.
    #[test]
    fn the_list_is_counted() {
        let (mut ios, [one, two]) = rig();
        let mut path = InFlight::default();
        path.attach(&mut ios, Instant::ZERO, 0, one);
        path.attach(&mut ios, Instant::ZERO, 0, two);
        path.check(&ios, 0);
        assert!(path.detach(&mut ios, one));
        path.check(&ios, 0);
        assert_eq!((path.first(), path.count(), path.bytes()), (Some(two), 1, 512));
        assert!(path.detach(&mut ios, two));
        assert_eq!((path.first(), path.count(), path.bytes()), (None, 0, 0));
    }

    /// An I/O that is on a path is not started on another one.
    #[test]
    #[should_panic(expected = "one path at a time")]
    fn an_io_starts_once() {
        let (mut ios, [one, _]) = rig();
        let mut paths = [InFlight::default(), InFlight::default()];
        paths[0].attach(&mut ios, Instant::ZERO, 0, one);
        paths[1].attach(&mut ios, Instant::ZERO, 1, one);
    }

    /// An I/O does not end on a path that it is not on.
    #[test]
    #[should_panic(expected = "that it was not on")]
    fn an_io_ends_where_it_started() {
        let (mut ios, [one, _]) = rig();
        InFlight::default().detach(&mut ios, one);
    }

    /// A count that is not that of the list is found out, in a debug build: the check adds up a list.
    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "count is not its list")]
    fn a_wrong_count_is_noticed() {
        let (mut ios, [one, _]) = rig();
        let mut path = InFlight::default();
        path.attach(&mut ios, Instant::ZERO, 0, one);
        path.bytes += 1;
        path.check(&ios, 0);
    }
}
