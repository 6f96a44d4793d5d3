//! Start-time fair queueing in a tree: picks the next of the requests that compete for the window.
//!
//! Every node has a virtual time. A child that starts to compete starts there or where its last request
//! finished, whichever is later. The smallest start goes first; the virtual time becomes that start, and the
//! child finishes `cost / weight` later. Requests paid from credit go before all others. Ties go to the lower
//! node; O(levels * log children) per request.

use super::super::contract::TOKEN;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// A virtual time, in 2^-40 s.
type Tag = u128;

/// The order in which requests that are not guaranteed compete for the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// Paid from burst credit: before all others.
    Credit = 0,
    /// Excess.
    Excess = 1,
}

const PRIORITIES: usize = 2;

/// The root of the tree.
pub(super) const ROOT: u32 = 0;

/// A tree of nodes; the first is the root.
#[derive(Clone, Debug)]
pub(super) struct FairTree {
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
    virtual_time: Tag,
    children: [Children; PRIORITIES],
    /// Whether it competes, by priority; a suspended node is not listed.
    competes: [bool; PRIORITIES],
    /// The tag under which its parent's children list it, by priority.
    listed: [Option<Tag>; PRIORITIES],
    suspended: bool,
}

/// The children of a node that compete.
#[derive(Clone, Debug, Default)]
struct Children {
    /// They start at the virtual time.
    started: BTreeSet<u32>,
    /// They start where they finished.
    ahead: BTreeSet<(Tag, u32)>,
}

impl FairTree {
    /// A tree with nothing but a root.
    pub(super) fn new() -> Self {
        let mut tree = Self { nodes: Vec::new() };
        tree.add(ROOT, 1);
        tree
    }

    /// Adds a node below `parent` and returns its number.
    pub(super) fn add(&mut self, parent: u32, weight: u32) -> u32 {
        self.nodes.push(Node {
            parent,
            rate: u128::from(weight) * u128::from(TOKEN),
            finish: 0,
            virtual_time: 0,
            children: [Children::default(), Children::default()],
            competes: [false; PRIORITIES],
            listed: [None; PRIORITIES],
            suspended: false,
        });
        (self.nodes.len() - 1) as u32
    }

    /// Continues the virtual times of `old`; `old_node` says which of its nodes a node was. A node that is new, or
    /// below another parent now, starts at its parent's virtual time.
    pub(super) fn succeed(&mut self, old: &Self, old_node: impl Fn(u32) -> Option<u32>) {
        for number in 0..self.nodes.len() as u32 {
            let Some(was) = old_node(number).map(|was| &old.nodes[was as usize]) else { continue };
            let same_parent = old_node(self.parent(number)) == Some(was.parent);
            let node = &mut self.nodes[number as usize];
            node.virtual_time = was.virtual_time;
            if same_parent {
                node.finish = was.finish;
            }
        }
    }

    pub(super) fn parent(&self, node: u32) -> u32 {
        self.nodes[node as usize].parent
    }

    /// Lets a leaf compete with this priority, or not at all.
    pub(super) fn set_priority(&mut self, leaf: u32, priority: Option<Priority>) {
        self.nodes[leaf as usize].competes =
            [Priority::Credit, Priority::Excess].map(|p| priority == Some(p));
        self.update(leaf);
    }

    /// Leaves a node and everything below it out, or lets it compete again.
    pub(super) fn suspend(&mut self, node: u32, suspended: bool) {
        self.nodes[node as usize].suspended = suspended;
        self.update(node);
    }

    /// Whether any leaf below a node competes.
    pub(super) fn has_competitor(&self, node: u32) -> bool {
        self.nodes[node as usize].children.iter().any(|children| !children.is_empty())
    }

    /// The next leaf below a node, and its priority.
    pub(super) fn next(&mut self, node: u32) -> Option<(u32, Priority)> {
        let children = &self.nodes[node as usize].children;
        let mut priorities = [Priority::Credit, Priority::Excess].into_iter();
        let priority = priorities.find(|&p| !children[p as usize].is_empty())?;
        let mut at = node;
        loop {
            let Node { virtual_time, children, .. } = &mut self.nodes[at as usize];
            let Some(child) = children[priority as usize].first(*virtual_time) else {
                return Some((at, priority));
            };
            at = child;
        }
    }

    /// Charges a leaf's request to it and to all nodes above it, up to the children of `top`. `cost` returns
    /// the cost in a node's own milli-tokens.
    pub(super) fn charge(&mut self, leaf: u32, top: u32, cost: impl Fn(u32) -> u64) {
        let mut at = leaf;
        while at != top {
            let parent = self.nodes[at as usize].parent;
            let start =
                self.nodes[parent as usize].virtual_time.max(self.nodes[at as usize].finish);
            self.nodes[parent as usize].virtual_time = start;
            let node = &mut self.nodes[at as usize];
            let finish = start + (u128::from(cost(at)) << 40) / node.rate;
            assert!(finish > node.finish, "virtual time did not advance: a request was free");
            node.finish = finish;
            if node.competes != [false; PRIORITIES] {
                self.unlist(at);
                self.update(at);
            }
            at = parent;
        }
    }

    fn unlist(&mut self, node: u32) {
        for priority in 0..PRIORITIES {
            self.list(node, priority, false);
        }
    }

    /// Lists a node among its parent's children or removes it, and so on upwards.
    fn update(&mut self, node: u32) {
        let mut at = node;
        while at != ROOT {
            let Node { competes, suspended, parent, .. } = self.nodes[at as usize];
            for (priority, competes) in competes.into_iter().enumerate() {
                self.list(at, priority, competes && !suspended);
            }
            let above = &mut self.nodes[parent as usize];
            let competes = [0, 1].map(|priority: usize| !above.children[priority].is_empty());
            if above.competes == competes {
                return;
            }
            above.competes = competes;
            at = parent;
        }
    }

    fn list(&mut self, node: u32, priority: usize, lists: bool) {
        let Node { parent, finish, listed, .. } = self.nodes[node as usize];
        let children = &mut self.nodes[parent as usize].children[priority];
        match listed[priority] {
            None if lists => {
                children.ahead.insert((finish, node));
                self.nodes[node as usize].listed[priority] = Some(finish);
            }
            Some(tag) if !lists => {
                let found = children.ahead.remove(&(tag, node)) || children.started.remove(&node);
                assert!(found, "a node is listed where its parent does not have it");
                self.nodes[node as usize].listed[priority] = None;
            }
            _ => {}
        }
    }
}

impl Children {
    fn is_empty(&self) -> bool {
        self.started.is_empty() && self.ahead.is_empty()
    }

    /// The one with the smallest start, the lowest of equals.
    fn first(&mut self, virtual_time: Tag) -> Option<u32> {
        while let Some(&(finish, child)) = self.ahead.first()
            && finish <= virtual_time
        {
            self.ahead.pop_first();
            self.started.insert(child);
        }
        self.started.first().copied().or_else(|| self.ahead.first().map(|&(_, child)| child))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Serves the next `count` requests of a token each.
    fn run(tree: &mut FairTree, count: usize) -> Vec<u32> {
        let mut order = Vec::new();
        for _ in 0..count {
            let (leaf, _) = tree.next(ROOT).unwrap();
            tree.charge(leaf, ROOT, |_| TOKEN);
            order.push(leaf);
        }
        order
    }

    /// Leaves share by their weights, whatever is below other nodes; a group divides its share by the
    /// weights of its members.
    #[test]
    fn a_tree_divides_by_weight() {
        let mut tree = FairTree::new();
        let group = tree.add(ROOT, 300);
        let leaves = [tree.add(ROOT, 100), tree.add(group, 200), tree.add(group, 100)];
        for leaf in leaves {
            tree.set_priority(leaf, Some(Priority::Excess));
        }
        let order = run(&mut tree, 400);
        let count = |leaf| order.iter().filter(|&&l| l == leaf).count();
        assert_eq!(leaves.map(count), [100, 200, 100]);
        tree.set_priority(leaves[1], None);
        let order = run(&mut tree, 400);
        assert_eq!(order.iter().filter(|&&l| l == leaves[2]).count(), 300);
    }

    /// A leaf that returns starts at the virtual time: it does not make up for its absence, nor pay for it.
    #[test]
    fn absence_earns_nothing() {
        let mut tree = FairTree::new();
        let (one, two) = (tree.add(ROOT, 1), tree.add(ROOT, 1));
        tree.set_priority(one, Some(Priority::Excess));
        run(&mut tree, 50);
        tree.set_priority(two, Some(Priority::Excess));
        assert_eq!(run(&mut tree, 4), [two, one, two, one]);
    }

    /// Credit goes first at every level, and a suspended group is left out with all its members.
    #[test]
    fn credit_goes_first_and_suspended_groups_not_at_all() {
        let mut tree = FairTree::new();
        let (group, outside) = (tree.add(ROOT, 1), tree.add(ROOT, 1));
        let member = tree.add(group, 1);
        tree.set_priority(outside, Some(Priority::Excess));
        tree.set_priority(member, Some(Priority::Credit));
        assert_eq!(run(&mut tree, 3), vec![member; 3]);
        assert_eq!(tree.next(ROOT), Some((member, Priority::Credit)));
        tree.suspend(group, true);
        assert_eq!(run(&mut tree, 2), vec![outside; 2]);
        tree.set_priority(outside, None);
        assert!(!tree.has_competitor(ROOT) && tree.next(ROOT).is_none());
        tree.suspend(group, false);
        assert_eq!(run(&mut tree, 1), vec![member]);
        tree.set_priority(member, None);
        assert!(!tree.has_competitor(ROOT) && !tree.has_competitor(group));
    }

    /// A request that costs nothing does not move virtual time, so its leaf would go for ever.
    #[test]
    #[should_panic(expected = "virtual time did not advance")]
    fn requests_cost_something() {
        let mut tree = FairTree::new();
        let leaf = tree.add(ROOT, 1);
        tree.charge(leaf, ROOT, |_| 0);
    }

    /// A node that lost its place among its parent's children is found out when it leaves.
    #[test]
    #[should_panic(expected = "its parent does not have it")]
    fn listings_agree() {
        let mut tree = FairTree::new();
        let leaf = tree.add(ROOT, 1);
        tree.set_priority(leaf, Some(Priority::Excess));
        tree.nodes[0].children = Default::default();
        tree.set_priority(leaf, None);
    }
}
