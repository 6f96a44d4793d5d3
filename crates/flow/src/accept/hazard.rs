//! Overlap hazards: requests that touch the same bytes keep their order of arrival.
//!
//! | | |
//! |---|---|
//! | Rule     | a request waits for every earlier one that shares a byte with it, if either writes |
//! | Ties     | none: arrival order is total |
//! | Cost     | O(log n + overlaps) per arrival and per end; no allocation after warm-up |
//! | Source   | SAM-5, 8.2 leaves the order of simple tasks open; hosts do not expect it, but a gateway that caches, retries and reroutes must not invent an order that no single disk could show |
//!
//! A height-balanced (AVL) tree of intervals per volume, ordered by first byte and augmented with the
//! largest end below each node; balanced by height, so that no pattern of a host makes it deep, and
//! recursion is safe. Every node counts the earlier conflicting requests that have not ended (`blockers`);
//! an ending request subtracts itself from the later ones that it conflicts with. Since a request
//! counts at arrival exactly those that will subtract themselves, no list of edges is needed.

use crate::request::{RequestKey, VolumeId};
use alloc::vec::Vec;

/// The requests that have entered and not ended, by volume and range.
#[derive(Debug, Default)]
pub(crate) struct Hazards {
    nodes: Vec<Node>,
    free: Vec<u32>,
    volumes: Vec<Tree>,
    arrivals: u64,
    released: Vec<(u64, RequestKey)>,
}

/// A request's place among the hazards, to be given back when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim(u32);

/// A half-open range of bytes and whether it is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) writes: bool,
}

impl Access {
    /// Conflicts with everything on its volume.
    pub(crate) const EXCLUSIVE: Self = Self { start: 0, end: u64::MAX, writes: true };

    const fn conflicts(self, other: Self) -> bool {
        (self.writes || other.writes) && self.start < other.end && other.start < self.end
    }
}

#[derive(Clone, Copy, Debug)]
struct Tree {
    root: u32,
    /// Number of writing nodes: while it is zero, nothing can conflict with a read.
    writers: u32,
}

impl Tree {
    const EMPTY: Self = Self { root: NIL, writers: 0 };
}

#[derive(Clone, Copy, Debug)]
struct Node {
    access: Access,
    arrival: u64,
    key: RequestKey,
    volume: VolumeId,
    blockers: u32,
    height: u32,
    max_end: u64,
    left: u32,
    right: u32,
}

impl Hazards {
    pub(crate) fn new(volumes: usize) -> Self {
        Self { volumes: alloc::vec![Tree::EMPTY; volumes], ..Self::default() }
    }

    /// There is a place for this volume, with nothing in it.
    pub(crate) fn reach(&mut self, volume: VolumeId) {
        if volume.index() >= self.volumes.len() {
            self.volumes.resize(volume.index() + 1, Tree::EMPTY);
        }
        assert!(self.volumes[volume.index()].root == NIL, "nothing of the volume is outstanding");
    }

    /// Enters a request. It may run at once if the second value is true; otherwise some
    /// [`leave`](Self::leave) will name it.
    pub(crate) fn enter(
        &mut self,
        volume: VolumeId,
        access: Access,
        key: RequestKey,
    ) -> (Claim, bool) {
        let tree = self.volumes[volume.index()];
        let mut blockers = 0;
        if access.writes || tree.writers > 0 {
            self.visit(tree.root, access, &mut |node| {
                blockers += u32::from(node.access.conflicts(access));
            });
        }
        self.arrivals += 1;
        let node = Node {
            access,
            arrival: self.arrivals,
            key,
            volume,
            blockers,
            height: 1,
            max_end: access.end,
            left: NIL,
            right: NIL,
        };
        let index = self.place(node);
        let root = self.insert(tree.root, index);
        self.volumes[volume.index()] =
            Tree { root, writers: tree.writers + u32::from(access.writes) };
        (Claim(index), blockers == 0)
    }

    /// Ends a request and returns, in order of arrival, those that may run now because of it.
    pub(crate) fn leave(&mut self, claim: Claim) -> &[(u64, RequestKey)] {
        let Node { access, arrival, volume, .. } = self.nodes[claim.0 as usize];
        let tree = self.volumes[volume.index()];
        assert!(tree.writers >= u32::from(access.writes), "a writer leaves once");
        let root = self.remove(tree.root, claim.0);
        let tree = Tree { root, writers: tree.writers - u32::from(access.writes) };
        self.volumes[volume.index()] = tree;
        self.free.push(claim.0);
        self.released.clear();
        if access.writes || tree.writers > 0 {
            let mut released = core::mem::take(&mut self.released);
            self.unblock(root, access, arrival, &mut released);
            released.sort_unstable_by_key(|&(arrival, _)| arrival);
            self.released = released;
        }
        &self.released
    }

    /// Whether nothing that came before it and conflicts with it is left.
    pub(crate) fn may_run(&self, claim: Claim) -> bool {
        self.nodes[claim.0 as usize].blockers == 0
    }

    fn place(&mut self, node: Node) -> u32 {
        if let Some(index) = self.free.pop() {
            self.nodes[index as usize] = node;
            return index;
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("requests in flight are bounded")
    }

    /// Calls `f` for every node below `root` whose range overlaps that of `access`.
    fn visit(&self, root: u32, access: Access, f: &mut impl FnMut(&Node)) {
        let Some(node) = self.nodes.get(root as usize) else { return };
        if node.max_end <= access.start {
            return;
        }
        self.visit(node.left, access, f);
        if node.access.start < access.end {
            if node.access.end > access.start {
                f(node);
            }
            self.visit(node.right, access, f);
        }
    }

    fn unblock(
        &mut self,
        root: u32,
        ended: Access,
        arrival: u64,
        released: &mut Vec<(u64, RequestKey)>,
    ) {
        let Some(&node) = self.nodes.get(root as usize) else { return };
        if node.max_end <= ended.start {
            return;
        }
        self.unblock(node.left, ended, arrival, released);
        if node.access.start < ended.end {
            if node.arrival > arrival && node.access.conflicts(ended) {
                let blockers = &mut self.nodes[root as usize].blockers;
                *blockers = blockers.checked_sub(1).expect("it counted us when it arrived");
                if *blockers == 0 {
                    released.push((node.arrival, node.key));
                }
            }
            self.unblock(node.right, ended, arrival, released);
        }
    }

    /// Where a node stands among the others.
    fn order(&self, index: u32) -> (u64, u64) {
        let node = &self.nodes[index as usize];
        (node.access.start, node.arrival)
    }

    /// Adds a node to the tree below `root` and returns the new root.
    fn insert(&mut self, root: u32, index: u32) -> u32 {
        if root == NIL {
            return index;
        }
        if self.order(index) < self.order(root) {
            self.nodes[root as usize].left = self.insert(self.nodes[root as usize].left, index);
        } else {
            self.nodes[root as usize].right = self.insert(self.nodes[root as usize].right, index);
        }
        self.balance(root)
    }

    /// Takes a node out of the tree below `root` and returns the new root.
    fn remove(&mut self, root: u32, target: u32) -> u32 {
        let Node { left, right, .. } = self.nodes[root as usize];
        if root == target {
            if right == NIL {
                return left;
            }
            let (rest, first) = self.pop_first(right);
            self.nodes[first as usize].left = left;
            self.nodes[first as usize].right = rest;
            return self.balance(first);
        }
        if self.order(target) < self.order(root) {
            self.nodes[root as usize].left = self.remove(left, target);
        } else {
            self.nodes[root as usize].right = self.remove(right, target);
        }
        self.balance(root)
    }

    /// Takes the first node out of a tree: what is left of it, and the node.
    fn pop_first(&mut self, root: u32) -> (u32, u32) {
        let Node { left, right, .. } = self.nodes[root as usize];
        if left == NIL {
            return (right, root);
        }
        let (rest, first) = self.pop_first(left);
        self.nodes[root as usize].left = rest;
        (self.balance(root), first)
    }

    /// Restores height and balance at `root`, whose subtrees are in order; returns the new root.
    fn balance(&mut self, root: u32) -> u32 {
        let Node { left, right, .. } = self.nodes[root as usize];
        let (high, low) = (self.height(left), self.height(right));
        if high > low + 1 {
            let Node { left: outer, right: inner, .. } = self.nodes[left as usize];
            if self.height(inner) > self.height(outer) {
                self.nodes[root as usize].left = self.rotate_left(left);
            }
            return self.rotate_right(root);
        }
        if low > high + 1 {
            let Node { left: inner, right: outer, .. } = self.nodes[right as usize];
            if self.height(inner) > self.height(outer) {
                self.nodes[root as usize].right = self.rotate_right(right);
            }
            return self.rotate_left(root);
        }
        self.refresh(root);
        root
    }

    fn rotate_left(&mut self, root: u32) -> u32 {
        let up = self.nodes[root as usize].right;
        self.nodes[root as usize].right = self.nodes[up as usize].left;
        self.nodes[up as usize].left = root;
        self.refresh(root);
        self.refresh(up);
        up
    }

    fn rotate_right(&mut self, root: u32) -> u32 {
        let up = self.nodes[root as usize].left;
        self.nodes[root as usize].left = self.nodes[up as usize].right;
        self.nodes[up as usize].right = root;
        self.refresh(root);
        self.refresh(up);
        up
    }

    fn height(&self, index: u32) -> u32 {
        self.nodes.get(index as usize).map_or(0, |node| node.height)
    }

    /// Works out a node's height and furthest end from its children.
    fn refresh(&mut self, index: u32) {
        let Node { left, right, access, .. } = self.nodes[index as usize];
        let end = |child: u32| self.nodes.get(child as usize).map_or(0, |node| node.max_end);
        let max_end = access.end.max(end(left)).max(end(right));
        let height = 1 + self.height(left).max(self.height(right));
        let node = &mut self.nodes[index as usize];
        (node.max_end, node.height) = (max_end, height);
    }
}

/// No node: larger than every index.
const NIL: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use slotmap::SlotMap;

    /// A volume that counts fewer writers than it has would let reads pass them: that is noticed.
    #[test]
    #[should_panic(expected = "a writer leaves once")]
    fn writers_are_counted() {
        let mut keys = SlotMap::<RequestKey, ()>::with_key();
        let mut hazards = Hazards::new(1);
        let access = Access { start: 0, end: 1, writes: true };
        let (claim, _) = hazards.enter(VolumeId::new(0), access, keys.insert(()));
        hazards.volumes[0].writers = 0;
        hazards.leave(claim);
    }

    /// However the ranges come, the tree stays flat: 1.44 log2(n) at most.
    #[test]
    fn no_order_of_arrival_makes_it_deep() {
        let orders: [fn(u64) -> u64; 3] = [|n| n, |n| 10_000 - n, |n| (n * 7_919) % 10_007];
        for order in orders {
            let mut keys = SlotMap::<RequestKey, ()>::with_key();
            let mut hazards = Hazards::new(1);
            let volume = VolumeId::new(0);
            let claims: Vec<Claim> = (0..10_000)
                .map(|n| {
                    let start = order(n) * 8;
                    let access = Access { start, end: start + 8, writes: true };
                    hazards.enter(volume, access, keys.insert(())).0
                })
                .collect();
            assert!(hazards.height(hazards.volumes[0].root) <= 19);
            for (left, claim) in (0..10_000_u32).rev().zip(claims) {
                hazards.leave(claim);
                let height = hazards.height(hazards.volumes[0].root);
                assert!(f64::from(height) <= 1.4405 * f64::from((left + 2).ilog2() + 1));
            }
        }
    }

    /// Against a model that compares every pair: the same requests run at the same moments, in the
    /// same order, for random ranges, directions and ends, on two volumes.
    #[test]
    fn agrees_with_comparing_every_pair() {
        struct Known {
            arrival: u64,
            volume: u32,
            access: Access,
            claim: Claim,
            running: bool,
        }
        let mut rng = Rng::stream(1, "hazard");
        let mut keys = SlotMap::<RequestKey, ()>::with_key();
        let mut hazards = Hazards::new(2);
        let mut known: Vec<(RequestKey, Known)> = Vec::new();
        let mut waited = 0;
        for arrival in 0..20_000 {
            if known.len() < 40 && rng.below(2) == 0 {
                let start = rng.below(64);
                let mut access =
                    Access { start, end: start + 1 + rng.below(8), writes: rng.below(3) == 0 };
                if rng.below(50) == 0 {
                    access = Access::EXCLUSIVE;
                }
                let (key, volume) = (keys.insert(()), rng.below(2) as u32);
                let blocked =
                    known.iter().any(|(_, k)| k.volume == volume && k.access.conflicts(access));
                let (claim, running) = hazards.enter(VolumeId::new(volume), access, key);
                assert_eq!(running, !blocked);
                waited += u32::from(blocked);
                known.push((key, Known { arrival, volume, access, claim, running }));
            } else if known.iter().any(|(_, k)| k.running) {
                let running: Vec<usize> =
                    (0..known.len()).filter(|&i| known[i].1.running).collect();
                let victim = running[rng.below(running.len() as u64) as usize];
                let (_, ended) = known.remove(victim);
                let released: Vec<RequestKey> =
                    hazards.leave(ended.claim).iter().map(|&(_, key)| key).collect();
                let mut expected = Vec::new();
                for i in 0..known.len() {
                    let k = &known[i].1;
                    let free = !known.iter().any(|(_, other)| {
                        other.arrival < k.arrival
                            && other.volume == k.volume
                            && other.access.conflicts(k.access)
                    });
                    if free && !k.running {
                        expected.push(known[i].0);
                        known[i].1.running = true;
                    }
                }
                assert_eq!(released, expected);
            }
        }
        assert!(waited > 1_000, "the test must meet conflicts, met {waited}");
    }
}
