//! # Prefetch policy: next block
//!
//! After every read the block behind it is fetched.
//!
//! | | |
//! |---|---|
//! | Model    | a read that ends in block i wishes for block i + 1; a block is a line |
//! | Units    | lines |
//! | Ties     | wishes in the order of the reads |
//! | Cost     | O(log wishes) per read; memory for at most 256 wishes that were not polled, and for those in flight |
//! | Source   | the published intermediate target (docs/reference/intermediate.md, sections 4.1 and 8, 14 to 16) |
//! | Differs  | a wish that was polled but has not ended is not wished again; whether a block is here its caller knows |
//! | Not when | the link is long: one block ahead is read before it has come. Or reads are at random: every block that is fetched ahead is one too many. `adaptive` |

use super::{Build, Ended, Found, Prefetch, Reader, Room, Wish, WishId};
use crate::clock::Instant;
use crate::policy::Policy;
use crate::request::VolumeId;
use crate::units::Extent;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) const POLICY: Policy<Build> = Policy {
    name: "next-block",
    summary: "after every read the block behind it is fetched",
    properties: &[],
    parameters: &[],
    build: |_, room| Box::new(NextBlock::new(room)),
};

/// Wishes that are kept until they are polled.
const MOST_WISHES: usize = 256;

/// A line of a volume.
type Block = (VolumeId, u64);

#[derive(Debug)]
struct NextBlock {
    line: u64,
    wishes: VecDeque<Wish>,
    under_way: BTreeMap<WishId, Block>,
    /// All that is wished or in flight.
    requested: BTreeSet<Block>,
    next_id: u64,
}

impl NextBlock {
    fn new(room: Room) -> Self {
        Self {
            line: u64::from(room.line),
            wishes: VecDeque::new(),
            under_way: BTreeMap::new(),
            requested: BTreeSet::new(),
            next_id: 0,
        }
    }

    const fn block(&self, wish: &Wish) -> Block {
        (wish.volume, wish.extent.offset / self.line)
    }
}

impl Prefetch for NextBlock {
    fn read(&mut self, _: Instant, from: Reader, extent: Extent, capacity: u64, _: Found) {
        let Some(end) = extent.end() else { return };
        let index = end.div_ceil(self.line);
        let offset = index * self.line;
        if offset >= capacity || !self.requested.insert((from.volume, index)) {
            return;
        }
        if self.wishes.len() == MOST_WISHES
            && let Some(oldest) = self.wishes.pop_front()
        {
            self.requested.remove(&self.block(&oldest));
        }
        let extent = Extent::new(offset, self.line.min(capacity - offset));
        self.wishes.push_back(Wish { id: WishId(self.next_id), volume: from.volume, extent });
        self.next_id += 1;
    }

    fn poll(&mut self) -> Option<Wish> {
        let wish = self.wishes.pop_front()?;
        self.under_way.insert(wish.id, self.block(&wish));
        Some(wish)
    }

    fn ended(&mut self, _: Instant, id: WishId, _: Ended) {
        let block = self.under_way.remove(&id).expect("a wish that was polled ends once");
        self.requested.remove(&block);
    }

    fn judge(&mut self, _: VolumeId, _: u32, _: u32) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::LinkId;
    use alloc::vec::Vec;

    const FROM: Reader = Reader { volume: VolumeId::new(1), link: LinkId::new(0) };

    fn policy(line: u32) -> NextBlock {
        NextBlock::new(Room { line, lines: 64 })
    }

    fn read(policy: &mut NextBlock, offset: u64, length: u64) {
        let extent = Extent::new(offset, length);
        policy.read(Instant::ZERO, FROM, extent, 10_000, Found::Ready);
    }

    fn polled(policy: &mut NextBlock) -> Vec<Wish> {
        core::iter::from_fn(|| policy.poll()).collect()
    }

    /// After every read, hit or miss, exactly the block behind its last byte is wished for, and none behind
    /// the end of the volume, where the last one is as long as what is left.
    #[test]
    fn wishes_for_the_next() {
        let mut policy = policy(512);
        for (offset, length, expected) in [
            (0, 512, Some((512, 512))),
            (1_024, 1_024, Some((2_048, 512))),
            (5_000, 100, Some((5_120, 512))),
            (9_216, 512, Some((9_728, 272))),
            (9_728, 272, None),
        ] {
            read(&mut policy, offset, length);
            let wish = policy.poll().map(|wish| (wish.extent.offset, wish.extent.length));
            assert_eq!(wish, expected, "after {length} bytes at {offset}");
            assert_eq!(policy.poll(), None);
        }
    }

    /// What is wished or in flight is not wished again; what has ended is.
    #[test]
    fn wishes_once() {
        let mut policy = policy(512);
        read(&mut policy, 0, 512);
        read(&mut policy, 0, 512);
        let first = polled(&mut policy);
        assert_eq!(first.len(), 1);
        read(&mut policy, 0, 512);
        assert_eq!(policy.poll(), None);
        policy.ended(Instant::ZERO, first[0].id, Ended::NotNeeded);
        read(&mut policy, 0, 512);
        assert_eq!(polled(&mut policy).len(), 1);
    }

    /// Without a poll the newest 256 wishes stay, and one that was dropped may be wished again.
    #[test]
    fn wishes_are_bounded() {
        let mut policy = NextBlock::new(Room { line: 512, lines: 64 });
        for block in 0..1_000 {
            policy.read(
                Instant::ZERO,
                FROM,
                Extent::new(block * 512, 512),
                1 << 30,
                Found::Missing,
            );
        }
        assert_eq!(policy.requested.len(), MOST_WISHES);
        assert_eq!(policy.wishes.front().unwrap().extent.offset, (1_000 - 255) * 512);
        policy.read(Instant::ZERO, FROM, Extent::new(0, 512), 1 << 30, Found::Missing);
        assert_eq!(policy.wishes.back().unwrap().extent.offset, 512);
    }
}
