//! # Control policy: slack window (TA4)
//!
//! A bucket marks what is guaranteed, a window limits everything else, fair queueing divides it.
//!
//! | | |
//! |---|---|
//! | Model    | a head whose bucket holds its cost pays and goes (green); any other head goes while fewer than W are at the device: those that spend savings (yellow) before others (red), the smallest start tag first. A green ending after more than `theta` of its promise of a share q: `ln W -= kappa q / inflight`; else, while W has held somebody: `ln W += kappa (1 - q) / inflight`. Each promise has an opinion of W; the smallest rules |
//! | Savings  | what overflows the bucket, up to `credit`; spent at up to `peak` times the contract |
//! | Groups   | a green request is paid by the groups above as well; what a group's members do not use it lends to others of them. Limits of tenants and groups hold everything |
//! | Units    | buckets in 10^-15 tokens, `ln W` in 2^-48, start tags in 2^-40 s: exact or cut there |
//! | Ties     | the lowest tenant; within a tenant, order of arrival |
//! | Cost     | O(log(tenants) * levels of groups) per request and ending; O(promises) every 100 ms |
//! | Source   | `docs/reference/control.md` sections 11 and 12, X1 to X4. Brown-out: `guarantee.rs`. What an infeasible promise may cost others is bounded by a test of futility: `window.rs` |
//! | Not when | requests of a tenant must not be delayed even in excess, or promises are far from what the device can do |
//!
//! A tenant without a contract is never green; it shares what is left with the weight of 100 requests
//! of 4 KiB a second. The same holds for requests that no row of the contract is about.

mod direct;
mod guarantee;
mod heritage;
mod lane;
mod lending;
mod limits;
mod marker;
mod release;
mod settings;
mod share;
mod time;
mod window;

use self::guarantee::{Guarantees, TIERS};
use self::lane::{Band, Lane};
use self::marker::{Clock, Passed};
use self::release::{WINDOW, Way};
use self::settings::Settings;
use self::share::Shares;
use self::window::Window;
use super::contract::Tier;
use super::{Build, ControlPolicy, Legacy, Notice, Promises, contract};
use crate::clock::{Duration, Instant};
use crate::policy::{Policy, Property, Rule};
use crate::request::{Request, RequestKey};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use slotmap::SecondaryMap;

pub(super) const POLICY: Policy<Build> = Policy {
    name: "slack",
    summary: "guaranteed requests go at once, all others within a window that holds the promises (TA4)",
    properties: &[Property::KeepsOrder, Property::WorkConserving],
    parameters: settings::PARAMETERS,
    build: |values, list| Box::new(Slack::new(Settings::from(values), list)),
};

struct Slack {
    lanes: Vec<Lane>,
    bands: Vec<Band>,
    /// The root, then the bands, then the lanes.
    shares: Shares,
    guarantees: Guarantees,
    /// For what is not scaled: limits and peaks.
    time: Clock,
    window: Window,
    /// Lanes by when their heads are guaranteed, by tier.
    greens: [BTreeSet<(Passed, u32)>; 3],
    /// Bands by when they may lend to somebody who waits.
    lends: BTreeSet<(Passed, u32)>,
    /// Lanes with savings that are spent fast enough, by when they may spend more.
    peaks: BTreeSet<(Passed, u32)>,
    /// Nodes that a limit holds, by until when.
    held: BTreeSet<(Passed, u32)>,
    waiting: usize,
    /// What is at the device, and the row under which it was guaranteed.
    inflight: SecondaryMap<RequestKey, Option<u8>>,
    ready: VecDeque<(RequestKey, Rule)>,
    notices: VecDeque<Notice>,
}

impl Slack {
    fn new(settings: Settings, list: &Promises) -> Self {
        let Promises { contracts, groups } = list;
        let kept = || contracts.iter().flatten();
        let window = Window::new(settings, lane::promised(kept()));
        let mut shares = Shares::new();
        // A group comes after its parent, so that its node does too.
        let node = |group: Option<u32>| group.map_or(0, |group| group + 1);
        for group in groups {
            shares.add(node(group.parent), group.weight);
        }
        let bands = groups.iter().map(Band::new).collect();
        let mut lane = |contract: Option<&contract::Contract>| {
            let above = node(contract.and_then(|contract| contract.group));
            let leaf = shares.add(above, Lane::weight(contract));
            Lane::new(contract, leaf, &window)
        };
        // The last one is for whoever is not listed.
        let lanes = contracts.iter().map(Option::as_ref).chain([None]).map(&mut lane).collect();
        Self {
            lanes,
            bands,
            shares,
            guarantees: Guarantees::new(settings.margin_permille, kept()),
            time: Clock::new(0),
            window,
            greens: [const { BTreeSet::new() }; 3],
            lends: BTreeSet::new(),
            peaks: BTreeSet::new(),
            held: BTreeSet::new(),
            waiting: 0,
            inflight: SecondaryMap::new(),
            ready: VecDeque::new(),
            notices: VecDeque::new(),
        }
    }

    /// The lane of a leaf; the band of another node.
    fn lane_of(&self, node: u32) -> Option<u32> {
        node.checked_sub(self.bands.len() as u32 + 1)
    }

    /// Lets go what may go.
    fn pump(&mut self, now: Instant) {
        if self.quiet() {
            return;
        }
        self.run(now);
        self.sweep(now);
        // What went for other reasons may have stood before a smaller one that its bucket covers.
        while self.covered() {
            self.sweep(now);
        }
    }

    /// Whether some bucket covers the head before it.
    fn covered(&self) -> bool {
        let mut firsts = TIERS.into_iter().map(|tier| (tier, self.greens[tier as usize].first()));
        firsts.any(|(tier, first)| {
            first.is_some_and(|&(at, _)| at <= self.guarantees.clock(tier).passed())
        })
    }

    /// Looks once at who may go.
    fn sweep(&mut self, now: Instant) {
        self.resume();
        for tier in TIERS.into_iter().rev() {
            let passed = self.guarantees.clock(tier).passed();
            while let Some(&(at, index)) = self.greens[tier as usize].first()
                && at <= passed
            {
                if self.limited(index) {
                    continue;
                }
                let lane = &mut self.lanes[index as usize];
                let head = *lane.queue.front().expect("a waiting lane has a head");
                lane.fill(self.guarantees.clock(tier), head.cost);
                assert!(
                    lane.marker.pay(head.cost),
                    "the clock has come to where the bucket holds it"
                );
                self.release(index, Way::Green);
            }
        }
        self.lend();
        while let Some(&(at, index)) = self.peaks.first()
            && at <= self.time.passed()
        {
            self.peaks.pop_first();
            self.place(index);
        }
        while self.shares.any(0) {
            if !self.window.room(self.inflight.len() as u32) {
                self.window.binds(now);
                return;
            }
            let (leaf, hue) = self.shares.pick(0).expect("somebody competes");
            let index = self.lane_of(leaf).expect("a leaf is a lane");
            if !self.limited(index) {
                self.release(index, Way::Excess(hue));
            }
        }
    }
}

impl ControlPolicy for Slack {
    fn arrive(&mut self, now: Instant, key: RequestKey, request: &Request, row: Option<u8>) {
        if self.unpromised() && self.window.room(self.inflight.len() as u32) {
            self.go(key, None, WINDOW);
            return;
        }
        self.judge(now);
        self.window.rule(now);
        let index = contract::line(request, self.lanes.len());
        let waiting = self.lanes[index].waiting(key, request, row);
        if self.pass(now, index, waiting) {
            return;
        }
        self.run(now);
        let lane = &mut self.lanes[index];
        lane.queue.push_back(waiting);
        self.waiting += 1;
        if lane.queue.len() == 1 {
            self.place(index as u32);
        }
        self.pump(now);
    }

    fn poll(&mut self, _: Instant) -> Option<(RequestKey, Rule)> {
        self.ready.pop_front()
    }

    fn complete(&mut self, now: Instant, key: RequestKey, request: &Request, device: Duration) {
        let inflight = self.inflight.len() as u32;
        let row = self.inflight.remove(key).expect("only what was released can end");
        if self.unpromised() {
            return;
        }
        self.judge(now);
        let lane = &self.lanes[contract::line(request, self.lanes.len())];
        let classes = row.map_or(&[][..], |row| &lane.classes[usize::from(row)]);
        for &class in classes {
            self.window.ended(now, class, device, inflight);
        }
        self.window.rule(now);
        self.pump(now);
    }

    fn adopt(&mut self, key: RequestKey, _: &Request, _: Instant) {
        self.inflight.insert(key, None);
    }

    fn legacy(&self, now: Instant) -> Legacy {
        self.leave(now)
    }

    fn inherit(&mut self, now: Instant, legacy: &Legacy) {
        self.take_over(now, legacy);
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.waiting == 0 {
            return None;
        }
        let gold = self.guarantees.clock(Tier::Gold);
        let green = TIERS.into_iter().filter_map(|tier| {
            let first = self.greens[tier as usize].first();
            first.map(|&(at, _)| self.guarantees.clock(tier).when(at))
        });
        let lent = self.lends.first().map(|&(at, _)| gold.when(at));
        let held = self.held.first().map(|&(until, _)| self.time.when(until));
        let period = (!self.guarantees.whole()).then_some(self.window.period_end());
        green.chain(lent).chain(held).chain(period).min()
    }

    fn handle_deadline(&mut self, now: Instant) {
        self.judge(now);
        self.window.rule(now);
        self.pump(now);
    }

    fn notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}

#[cfg(test)]
mod tests;
