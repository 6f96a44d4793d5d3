//! What a group's members do not use, other members borrow.

use super::super::contract::{TOKEN, Tier};
use super::Slack;
use super::release::Way;

impl Slack {
    /// Lists a band, and those above it, as lenders.
    pub(super) fn borrow(&mut self, node: u32) {
        let mut node = node;
        while node != 0 {
            let band = &mut self.bands[node as usize - 1];
            if band.lends.is_none() && self.shares.any(node) {
                band.marker.fill(self.guarantees.clock(Tier::Gold), TOKEN);
                let at = band.marker.holds(TOKEN);
                band.lends = Some(at);
                self.lends.insert((at, node));
            }
            node = self.shares.parent(node);
        }
    }

    /// Lets go what bands lend.
    pub(super) fn lend(&mut self) {
        while let Some(&(at, node)) = self.lends.first()
            && at <= self.guarantees.clock(Tier::Gold).passed()
        {
            self.lends.pop_first();
            self.bands[node as usize - 1].lends = None;
            let Some((leaf, _)) = self.shares.pick(node) else { continue };
            let index = self.lane_of(leaf).expect("a leaf is a lane");
            let head = *self.lanes[index as usize].queue.front().expect("it competes");
            if self.limited(index) {
                self.borrow(node);
                continue;
            }
            let band = &mut self.bands[node as usize - 1];
            let cost = band.cost(head.bytes);
            band.marker.fill(self.guarantees.clock(Tier::Gold), cost);
            let at = band.marker.holds(cost);
            if at <= self.guarantees.clock(Tier::Gold).passed() {
                self.release(index, Way::Lent(node));
                self.borrow(node);
            } else {
                band.lends = Some(at);
                self.lends.insert((at, node));
            }
        }
    }
}
