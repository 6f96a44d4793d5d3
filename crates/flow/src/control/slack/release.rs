//! Where the head of a lane waits, and what happens when it goes: who pays for it, and under which rule it
//! went.

use super::super::RULE_BUCKET;
use super::super::contract::Tier;
use super::Slack;
use super::share::Hue;
use crate::policy::Rule;

pub(super) const WINDOW: Rule = Rule("control/window");
const CREDIT: Rule = Rule("control/credit");
const GROUP: Rule = Rule("control/group");
const LIMIT: Rule = Rule("control/limit");

/// Why a request may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Its tenant's bucket has paid.
    Green,
    /// A band has lent.
    Lent(u32),
    /// The window has room.
    Excess(Hue),
}

impl Slack {
    /// Puts a lane where its head belongs. To be called when that has changed.
    pub(super) fn place(&mut self, index: u32) {
        let lane = &mut self.lanes[index as usize];
        let greens = &mut self.greens[lane.tier as usize];
        if let Some(at) = lane.green.take() {
            greens.remove(&(at, index));
        }
        let Some(&head) = lane.queue.front() else {
            if lane.hue.take().is_some() {
                self.shares.want(lane.leaf, None);
            }
            return;
        };
        lane.fill(self.guarantees.clock(lane.tier), head.cost);
        if head.row.is_some() && lane.held.is_none() {
            let at = lane.marker.holds(head.cost);
            lane.green = Some(at);
            greens.insert((at, index));
        }
        let hue = lane.competes(&self.time, head);
        if hue == Hue::Red
            && let Some(savings) = &lane.savings
            && savings.hold(head.cost)
        {
            self.peaks.insert((savings.peak.holds(head.cost), index));
        }
        if lane.hue != Some(hue) {
            lane.hue = Some(hue);
            self.shares.want(lane.leaf, Some(hue));
        }
        let leaf = lane.leaf;
        self.borrow(self.shares.parent(leaf));
    }

    /// Lets the head of a lane go.
    pub(super) fn release(&mut self, index: u32, way: Way) {
        let lane = &mut self.lanes[index as usize];
        let head = lane.queue.pop_front().expect("a waiting lane has a head");
        let (leaf, cost) = (lane.leaf, head.cost);
        let stopped = core::mem::take(&mut lane.stopped);
        self.waiting -= 1;
        if let Some(limit) = &mut lane.limit {
            limit.drain(cost);
        }
        if let Some(savings) = &mut lane.savings {
            if way == Way::Excess(Hue::Yellow) {
                savings.spend(cost);
            }
            if way != Way::Excess(Hue::Red) {
                savings.peak.fill(&self.time, cost);
                savings.peak.drain(cost);
            }
        }
        // Bands below a lender have nothing left that they could pay with.
        let mut node = self.shares.parent(leaf);
        let mut pays = way == Way::Green;
        while node != 0 {
            pays |= way == Way::Lent(node);
            let band = &mut self.bands[node as usize - 1];
            let cost = band.cost(head.bytes);
            if pays {
                band.marker.fill(self.guarantees.clock(Tier::Gold), cost);
                band.marker.drain(cost);
            }
            if let Some(limit) = &mut band.limit {
                limit.drain(cost);
            }
            node = self.shares.parent(node);
        }
        let (rule, behalf) = match way {
            Way::Green => (RULE_BUCKET, None),
            Way::Lent(node) => (GROUP, Some(node)),
            Way::Excess(Hue::Yellow) => (CREDIT, Some(0)),
            Way::Excess(Hue::Red) => (WINDOW, Some(0)),
        };
        if let Some(behalf) = behalf {
            let bands = &self.bands;
            let cost = |node: u32| match bands.get(node as usize - 1) {
                Some(band) => band.cost(head.bytes),
                None => cost,
            };
            self.shares.gone(leaf, behalf, cost);
        }
        let row = head.row.filter(|_| way == Way::Green);
        self.go(head.key, row, if stopped { LIMIT } else { rule });
        self.place(index);
    }
}
