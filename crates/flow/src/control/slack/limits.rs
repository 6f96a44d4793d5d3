//! What a limit holds, and for how long.

use super::Slack;
use super::marker::Passed;

impl Slack {
    /// Whether a limit holds the head of a lane; then the limited node is left out until it does not.
    pub(super) fn limited(&mut self, index: u32) -> bool {
        let lane = &mut self.lanes[index as usize];
        let head = *lane.queue.front().expect("a waiting lane has a head");
        let (leaf, mut found) = (lane.leaf, None);
        if let Some(limit) = &mut lane.limit {
            limit.fill(&self.time, head.cost);
            found = Some((limit.holds(head.cost), leaf));
        }
        let mut node = self.shares.parent(leaf);
        while node != 0 {
            let band = &mut self.bands[node as usize - 1];
            let cost = band.cost(head.bytes);
            if let Some(limit) = &mut band.limit {
                limit.fill(&self.time, cost);
                found = found.max(Some((limit.holds(cost), node)));
            }
            node = self.shares.parent(node);
        }
        let Some((until, node)) = found.filter(|&(until, _)| until > self.time.passed()) else {
            return false;
        };
        self.hold(node, until);
        // What is guaranteed goes past the tree, so the lane itself must know.
        self.hold(leaf, until);
        true
    }

    fn hold(&mut self, node: u32, until: Passed) {
        let held = match self.lane_of(node) {
            Some(index) => {
                let lane = &mut self.lanes[index as usize];
                if let Some(at) = lane.green.take() {
                    self.greens[lane.tier as usize].remove(&(at, index));
                }
                lane.stopped = true;
                &mut lane.held
            }
            None => &mut self.bands[node as usize - 1].held,
        };
        if held.is_none() {
            *held = Some(until);
            self.held.insert((until, node));
            self.shares.suspend(node, true);
        }
    }

    /// Lets go on what limits no longer hold.
    pub(super) fn resume(&mut self) {
        while let Some(&(until, node)) = self.held.first()
            && until <= self.time.passed()
        {
            self.held.pop_first();
            self.shares.suspend(node, false);
            if let Some(index) = self.lane_of(node) {
                self.lanes[index as usize].held = None;
                self.place(index);
            } else {
                self.bands[node as usize - 1].held = None;
                self.borrow(node);
            }
        }
    }
}
