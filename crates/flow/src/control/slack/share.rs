//! Start-time fair queueing in a tree: who of those that compete for the window goes next.
//!
//! Every node has a virtual time. A child that competes starts there or where its last request finished,
//! whichever is later, and the smallest start goes first; the virtual time becomes that start, and the
//! child finishes `cost / weight` later. What spends savings goes before everything else that competes.
//! Ties go to the lower node; O(levels * log children) per request.

use super::super::contract::TOKEN;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// A time of a virtual clock, in 2^-40 s.
type Tag = u128;

/// What a request competes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hue {
    /// Savings.
    Yellow = 0,
    /// Nothing.
    Red = 1,
}

const HUES: usize = 2;

/// A tree of nodes; the first is the root.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    parent: u32,
    /// Milli-tokens per virtual second.
    rate: u128,
    /// Where its last request finished, in its parent's virtual time.
    finish: Tag,
    /// The virtual time of its children.
    now: Tag,
    children: [Children; HUES],
    /// Whether it wants to compete, and is among its parent's children.
    wants: [bool; HUES],
    listed: [Option<Tag>; HUES],
    suspended: bool,
}

/// Those that compete below a node.
#[derive(Clone, Debug, Default)]
struct Children {
    /// Start at the virtual time.
    behind: BTreeSet<u32>,
    /// Start where they finished.
    ahead: BTreeSet<(Tag, u32)>,
}

impl Shares {
    /// A root.
    pub(super) fn new() -> Self {
        let mut shares = Self { nodes: Vec::new() };
        shares.add(0, 1);
        shares
    }

    /// A node below `parent`, at the end.
    pub(super) fn add(&mut self, parent: u32, weight: u32) -> u32 {
        self.nodes.push(Node {
            parent,
            rate: u128::from(weight) * u128::from(TOKEN),
            finish: 0,
            now: 0,
            children: [Children::default(), Children::default()],
            wants: [false; HUES],
            listed: [None; HUES],
            suspended: false,
        });
        (self.nodes.len() - 1) as u32
    }

    pub(super) fn parent(&self, node: u32) -> u32 {
        self.nodes[node as usize].parent
    }

    /// A leaf competes with this, or with nothing.
    pub(super) fn want(&mut self, leaf: u32, hue: Option<Hue>) {
        self.nodes[leaf as usize].wants = [Hue::Yellow, Hue::Red].map(|h| hue == Some(h));
        self.list(leaf);
    }

    /// A node, with everything below it, is left out until it is resumed.
    pub(super) fn suspend(&mut self, node: u32, suspended: bool) {
        self.nodes[node as usize].suspended = suspended;
        self.list(node);
    }

    /// Whether anybody competes below a node.
    pub(super) fn any(&self, node: u32) -> bool {
        self.nodes[node as usize].children.iter().any(|children| !children.is_empty())
    }

    /// Who goes next below a node, and with what.
    pub(super) fn pick(&mut self, node: u32) -> Option<(u32, Hue)> {
        let children = &self.nodes[node as usize].children;
        let hue =
            [Hue::Yellow, Hue::Red].into_iter().find(|&h| !children[h as usize].is_empty())?;
        let mut at = node;
        loop {
            let Node { now, children, .. } = &mut self.nodes[at as usize];
            let Some(child) = children[hue as usize].first(*now) else { return Some((at, hue)) };
            at = child;
        }
    }

    /// A request of a leaf has gone, on behalf of a node above it. `cost` says what it costs there.
    pub(super) fn gone(&mut self, leaf: u32, behalf: u32, cost: impl Fn(u32) -> u64) {
        let mut at = leaf;
        while at != behalf {
            let parent = self.nodes[at as usize].parent;
            let start = self.nodes[parent as usize].now.max(self.nodes[at as usize].finish);
            self.nodes[parent as usize].now = start;
            let node = &mut self.nodes[at as usize];
            node.finish = start + (u128::from(cost(at)) << 40) / node.rate;
            if node.wants != [false; HUES] {
                self.unlist(at);
                self.list(at);
            }
            at = parent;
        }
    }

    fn unlist(&mut self, node: u32) {
        for hue in 0..HUES {
            self.set(node, hue, false);
        }
    }

    /// Puts a node among its parent's children or takes it away, and so on upwards.
    fn list(&mut self, node: u32) {
        let mut at = node;
        while at != 0 {
            let Node { wants, suspended, parent, .. } = self.nodes[at as usize];
            for (hue, wants) in wants.into_iter().enumerate() {
                self.set(at, hue, wants && !suspended);
            }
            let above = &mut self.nodes[parent as usize];
            let wants = [0, 1].map(|hue: usize| !above.children[hue].is_empty());
            if above.wants == wants {
                return;
            }
            above.wants = wants;
            at = parent;
        }
    }

    fn set(&mut self, node: u32, hue: usize, lists: bool) {
        let Node { parent, finish, listed, .. } = self.nodes[node as usize];
        let children = &mut self.nodes[parent as usize].children[hue];
        match listed[hue] {
            None if lists => {
                children.ahead.insert((finish, node));
                self.nodes[node as usize].listed[hue] = Some(finish);
            }
            Some(tag) if !lists => {
                if !children.ahead.remove(&(tag, node)) {
                    children.behind.remove(&node);
                }
                self.nodes[node as usize].listed[hue] = None;
            }
            _ => {}
        }
    }
}

impl Children {
    fn is_empty(&self) -> bool {
        self.behind.is_empty() && self.ahead.is_empty()
    }

    /// The one with the smallest start, the lowest of equals.
    fn first(&mut self, now: Tag) -> Option<u32> {
        while let Some(&(finish, child)) = self.ahead.first()
            && finish <= now
        {
            self.ahead.pop_first();
            self.behind.insert(child);
        }
        self.behind.first().copied().or_else(|| self.ahead.first().map(|&(_, child)| child))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Lets the next so many requests of a token each go.
    fn run(shares: &mut Shares, count: usize) -> Vec<u32> {
        let mut order = Vec::new();
        for _ in 0..count {
            let (leaf, _) = shares.pick(0).unwrap();
            shares.gone(leaf, 0, |_| TOKEN);
            order.push(leaf);
        }
        order
    }

    /// Leaves share by their weights, whatever is below other nodes; a group shares what it gets by the
    /// weights of its members.
    #[test]
    fn a_tree_divides_by_weight() {
        let mut shares = Shares::new();
        let group = shares.add(0, 300);
        let leaves = [shares.add(0, 100), shares.add(group, 200), shares.add(group, 100)];
        for leaf in leaves {
            shares.want(leaf, Some(Hue::Red));
        }
        let order = run(&mut shares, 400);
        let count = |leaf| order.iter().filter(|&&l| l == leaf).count();
        assert_eq!(leaves.map(count), [100, 200, 100]);
        shares.want(leaves[1], None);
        let order = run(&mut shares, 400);
        assert_eq!(order.iter().filter(|&&l| l == leaves[2]).count(), 300);
    }

    /// Who comes back starts at the virtual time: it does not make up for what it missed, nor pay again.
    #[test]
    fn absence_earns_nothing() {
        let mut shares = Shares::new();
        let (one, two) = (shares.add(0, 1), shares.add(0, 1));
        shares.want(one, Some(Hue::Red));
        run(&mut shares, 50);
        shares.want(two, Some(Hue::Red));
        assert_eq!(run(&mut shares, 4), [two, one, two, one]);
    }

    /// Savings go first, deep down as well, and a suspended group is passed over with all its members.
    #[test]
    fn savings_go_first_and_suspended_groups_not_at_all() {
        let mut shares = Shares::new();
        let (group, near) = (shares.add(0, 1), shares.add(0, 1));
        let far = shares.add(group, 1);
        shares.want(near, Some(Hue::Red));
        shares.want(far, Some(Hue::Yellow));
        assert_eq!(run(&mut shares, 3), vec![far; 3]);
        assert_eq!(shares.pick(0), Some((far, Hue::Yellow)));
        shares.suspend(group, true);
        assert_eq!(run(&mut shares, 2), vec![near; 2]);
        shares.want(near, None);
        assert!(!shares.any(0) && shares.pick(0).is_none());
        shares.suspend(group, false);
        assert_eq!(run(&mut shares, 1), vec![far]);
        shares.want(far, None);
        assert!(!shares.any(0) && !shares.any(group));
    }
}
