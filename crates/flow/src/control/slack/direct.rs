//! The short way: while nobody waits, what would go at once goes past the queue and the tree.
//!
//! It leaves everything as the long way would have left it.

use super::super::RULE_BUCKET;
use super::Slack;
use super::lane::Waiting;
use super::release::WINDOW;
use crate::clock::Instant;
use crate::policy::Rule;
use crate::request::RequestKey;

impl Slack {
    /// Whether nobody waits, and no clock has anything to do for those who did.
    pub(super) fn quiet(&self) -> bool {
        self.waiting == 0 && self.held.is_empty() && self.lends.is_empty() && self.peaks.is_empty()
    }

    /// Whether nothing is promised to anybody and nobody waits: then nothing is to be learnt, and who comes
    /// to wait later starts even with the others.
    pub(super) fn unpromised(&self) -> bool {
        !self.window.promises() && self.quiet()
    }

    /// Lets a request go that has just come, if nobody waits, its tenant has a bucket at most and the
    /// bucket or the window has room for it. Otherwise it is to be queued.
    pub(super) fn pass(&mut self, now: Instant, index: usize, head: Waiting) -> bool {
        if !self.quiet() || !self.lanes[index].plain {
            return false;
        }
        if head.row.is_some() {
            self.run(now);
            let lane = &mut self.lanes[index];
            lane.fill(self.guarantees.clock(lane.tier), head.cost);
            if lane.marker.pay(head.cost) {
                self.go(head.key, head.row, RULE_BUCKET);
                return true;
            }
        }
        if !self.window.room(self.inflight.len() as u32) {
            return false;
        }
        self.shares.gone(self.lanes[index].leaf, 0, |_| head.cost);
        self.go(head.key, None, WINDOW);
        true
    }

    /// A request is at the device, guaranteed by a row or by none.
    pub(super) fn go(&mut self, key: RequestKey, row: Option<u8>, rule: Rule) {
        self.inflight.insert(key, row);
        self.ready.push_back((key, rule));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Contract, ControlPolicy, Promises};
    use super::super::POLICY;
    use super::super::settings::Settings;
    use super::*;
    use crate::clock::Duration;
    use crate::request::TenantId;
    use crate::rng::Rng;
    use crate::testing;
    use alloc::vec;
    use alloc::vec::Vec;
    use slotmap::SlotMap;

    /// What a run has shown.
    #[derive(Debug, Default)]
    struct Shown {
        releases: Vec<(Instant, RequestKey, Rule)>,
        deadlines: Vec<Option<Instant>>,
        /// Requests that came while nobody waited.
        quiet: u32,
    }

    /// A random load that comes and goes, by a policy that may go the short way or not.
    fn run(short: bool, seed: u64) -> Shown {
        let contract = |iops| Some(Contract::new(iops, 4_096, Duration::from_millis(3)));
        let promises =
            Promises { contracts: vec![contract(300), None, contract(20)], groups: Vec::new() };
        let settings = Settings::from(testing::choice(&POLICY, &[]).values());
        let mut slack = Slack::new(Settings { first: 12, ..settings }, &promises);
        slack.lanes.iter_mut().for_each(|lane| lane.plain &= short);
        let (mut rng, mut now) = (Rng::stream(seed, "short"), Instant::ZERO);
        let mut keys: SlotMap<RequestKey, _> = SlotMap::with_key();
        let (mut out, mut shown) = (Vec::new(), Shown::default());
        for step in 0..20_000 {
            now += Duration::from_nanos(rng.below(1_000_000));
            while let Some(at) = slack.next_deadline().filter(|&at| at <= now) {
                slack.handle_deadline(at);
            }
            if rng.below(100) < if step / 500 % 2 == 0 { 52 } else { 40 } || out.is_empty() {
                let mut request = testing::request(0);
                request.tenant = TenantId::new(rng.below(4) as u32);
                request.extent.length = 512 << rng.below(6);
                let key = keys.insert(request);
                shown.quiet += u32::from(slack.quiet());
                slack.arrive(now, key, &request, testing::row(&promises, &request));
            } else {
                let (key, released) = out.swap_remove(rng.below(out.len() as u64) as usize);
                slack.complete(now, key, &keys[key], now.since(released));
            }
            while let Some((key, rule)) = slack.poll(now) {
                out.push((key, now));
                shown.releases.push((now, key, rule));
            }
            shown.deadlines.push(slack.next_deadline());
        }
        shown
    }

    /// The short way makes no difference but to the work: the same requests go at the same times under
    /// the same rules, and the same deadlines are asked for, whatever came before.
    #[test]
    fn the_short_way_ends_where_the_long_one_does() {
        for seed in 0..20 {
            let (short, long) = (run(true, seed), run(false, seed));
            assert!((1_000..short.releases.len() as u32).contains(&short.quiet), "{}", short.quiet);
            assert!(short.releases.iter().any(|&(.., rule)| rule == WINDOW));
            assert!(short.deadlines.iter().any(Option::is_some), "somebody waited");
            assert!(short.releases == long.releases, "releases, seed {seed}");
            assert!(short.deadlines == long.deadlines, "deadlines, seed {seed}");
        }
    }
}
