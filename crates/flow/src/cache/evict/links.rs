//! Lists through numbered nodes: eight bytes for each node, no allocation after the start.

use alloc::vec::Vec;

/// No node: what lies before the first and after the last.
const END: u32 = u32::MAX;

/// In the place of a neighbour: the node is in no list.
const OUT: u32 = u32::MAX - 1;

/// The neighbours of every node. A node is in one list at most; all lists share these.
#[derive(Debug)]
pub(super) struct Links(Vec<Neighbours>);

#[derive(Clone, Copy, Debug)]
struct Neighbours {
    newer: u32,
    older: u32,
}

/// One list: its two ends and how many nodes it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    newest: u32,
    oldest: u32,
    len: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { newest: END, oldest: END, len: 0 };

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) const fn oldest(&self) -> Option<u32> {
        if self.oldest == END { None } else { Some(self.oldest) }
    }
}

impl Links {
    /// Links for nodes `0..nodes`, none of them in a list.
    pub(super) fn new(nodes: u32) -> Self {
        assert!(nodes < OUT, "two numbers are no nodes");
        Self(alloc::vec![Neighbours { newer: OUT, older: OUT }; nodes as usize])
    }

    pub(super) fn is_linked(&self, node: u32) -> bool {
        self.0[node as usize].newer != OUT
    }

    /// The neighbour on the newer side.
    pub(super) fn newer(&self, node: u32) -> Option<u32> {
        let newer = self.0[node as usize].newer;
        assert_ne!(newer, OUT, "node {node} is in no list");
        (newer != END).then_some(newer)
    }

    /// Makes a node that is in no list the newest of this one.
    pub(super) fn push(&mut self, list: &mut List, node: u32) {
        assert!(!self.is_linked(node), "node {node} is in a list");
        self.0[node as usize] = Neighbours { newer: END, older: list.newest };
        match list.newest {
            END => list.oldest = node,
            newest => self.0[newest as usize].newer = node,
        }
        list.newest = node;
        list.len += 1;
    }

    /// Takes a node out of the list it is in.
    pub(super) fn remove(&mut self, list: &mut List, node: u32) {
        let Neighbours { newer, older } = self.0[node as usize];
        assert_ne!(newer, OUT, "node {node} is in no list");
        match newer {
            END => list.newest = older,
            newer => self.0[newer as usize].older = older,
        }
        match older {
            END => list.oldest = newer,
            older => self.0[older as usize].newer = newer,
        }
        self.0[node as usize] = Neighbours { newer: OUT, older: OUT };
        list.len -= 1;
    }

    /// Makes a node of this list its newest.
    pub(super) fn renew(&mut self, list: &mut List, node: u32) {
        self.remove(list, node);
        self.push(list, node);
    }

    /// Takes the oldest node out.
    pub(super) fn pop(&mut self, list: &mut List) -> Option<u32> {
        let node = list.oldest()?;
        self.remove(list, node);
        Some(node)
    }

    pub(super) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<Neighbours>()
    }
}
