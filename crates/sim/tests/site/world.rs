//! Two gateways, the unit between them, and the messages in flight; with the bugs that can be planted.

use super::bugs::{Broken, Bug};
use weir_flow::clock::{Duration, Instant};
use weir_flow::site::{Action, Event, Limits, Mover, Order, State};

/// A write on its way to the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    of: usize,
    key: u64,
    content: u8,
    /// Its gateway waits for the answer. A killed one does not.
    awaited: bool,
    /// Its data is in the log.
    logged: bool,
}

/// How far a claim has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    None,
    Look,
    Register,
    Preempt(u64),
    Reserve,
    Verify,
    Withdraw,
}

#[derive(Clone, Copy, Debug)]
struct Gateway {
    alive: bool,
    /// The start has not ended: there is no machine yet.
    starts: bool,
    mover: Mover,
    key: u64,
    claim: Claim,
    /// The claim is from exactly this key.
    from: Option<u64>,
    /// The key that held the unit when the claim looked.
    seen: u64,
    /// What is only in the log; 0: nothing.
    log: u8,
    /// New writes pass the log.
    through: bool,
    /// What reads find in memory; 0: nothing.
    cache: u8,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    bug: Option<Bug>,
    gateways: [Gateway; 2],
    /// The key that holds the unit; 0: none.
    holder: u64,
    /// Registered keys, one of each gateway; 0: none.
    registered: [u64; 2],
    /// A registration was made since the target has forgotten all.
    changed: bool,
    medium: u8,
    flying: Vec<Flying>,
    /// The last grant of each gateway, which its courier may deliver at any moment, and more than once; 0: none.
    grants: [u64; 2],
    /// What was written last, and acknowledged last.
    written: u8,
    acknowledged: u8,
    /// What may still happen.
    orders: u8,
    kills: u8,
    forgets: u8,
    epoch: u64,
    deprived: bool,
    superseded: bool,
    /// The step that led here: whose, and what.
    pub(crate) last: (usize, &'static str),
}

const WRITES: u8 = 2;
const EPOCHS: u64 = 5;

/// Takes a step that can be done next: its name, and what it does.
type Add<'a> = dyn FnMut(&'static str, &dyn Fn(&mut World)) + 'a;

impl World {
    pub(crate) fn new(bug: Option<Bug>) -> Self {
        let gateway = |owns| Gateway {
            alive: true,
            starts: false,
            mover: Mover::new(owns, Limits::default()),
            key: if owns { 1 << 1 } else { 0 },
            claim: Claim::None,
            from: None,
            seen: 0,
            log: 0,
            through: false,
            cache: 0,
        };
        Self {
            bug,
            gateways: [gateway(true), gateway(false)],
            holder: 1 << 1,
            registered: [1 << 1, 0],
            changed: true,
            medium: 0,
            flying: Vec::new(),
            grants: [0; 2],
            written: 0,
            acknowledged: 0,
            orders: 2,
            kills: 1,
            forgets: 1,
            epoch: 1,
            deprived: false,
            superseded: false,
            last: (0, "owns the volume"),
        }
    }

    /// The state as numbers, without the bug.
    pub(crate) fn code(&self) -> Vec<u64> {
        let mut code = vec![
            self.holder,
            self.registered[0],
            self.registered[1],
            u64::from(self.changed),
            self.medium.into(),
            self.grants[0],
            self.grants[1],
            self.written.into(),
            self.acknowledged.into(),
            self.orders.into(),
            self.kills.into(),
            self.forgets.into(),
            self.epoch,
        ];
        for one in &self.gateways {
            code.extend([
                u64::from(one.alive),
                u64::from(one.starts),
                one.key,
                one.from.unwrap_or(0),
                one.seen,
            ]);
            code.extend([one.log.into(), u64::from(one.through), one.cache.into()]);
            code.extend(match one.claim {
                Claim::None => [0, 0],
                Claim::Look => [1, 0],
                Claim::Register => [2, 0],
                Claim::Preempt(key) => [3, key],
                Claim::Reserve => [4, 0],
                Claim::Verify => [5, 0],
                Claim::Withdraw => [6, 0],
            });
            code.extend(match one.mover.state() {
                State::Owner => [0, 0],
                State::Draining { .. } => [1, 0],
                State::Freezing { .. } => [2, 0],
                State::Granted { key, .. } => [3, key],
                State::Revoking { .. } => [4, 0],
                State::Standby => [5, 0],
                State::Claiming { from, .. } => [6, from],
                State::Fenced => [7, 0],
            });
        }
        let mut flying = self.flying.clone();
        flying.sort_unstable();
        for one in flying {
            let bits = u64::from(one.awaited) << 1 | u64::from(one.logged);
            code.extend([one.of as u64, one.key, one.content.into(), bits]);
        }
        code
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn serves(&self, of: usize) -> bool {
        let one = &self.gateways[of];
        let granted = matches!(one.mover.state(), State::Granted { .. });
        one.alive && !one.starts && (one.mover.starts() || granted && self.has(Bug::NoFreeze))
    }

    pub(crate) fn has_owner(&self) -> bool {
        (0..2).any(|of| self.serves(of))
    }

    /// Whether the enumeration ends here although more could happen; or the target has forgotten who owns the unit, in
    /// which case a person may have to start the last owner again.
    pub(crate) const fn is_at_the_limit(&self) -> bool {
        self.epoch >= EPOCHS || self.forgets == 0
    }

    pub(crate) fn check(&self) -> Result<(), Broken> {
        if self.deprived {
            return Err(Broken::Deprived);
        }
        if self.superseded {
            return Err(Broken::Superseded);
        }
        if self.serves(0) && self.serves(1) {
            return Err(Broken::TwoOwners);
        }
        for (of, one) in self.gateways.iter().enumerate() {
            let sees = [one.log, one.cache, self.medium]
                .into_iter()
                .find(|&content| content > 0)
                .unwrap_or(0);
            if self.serves(of) && sees < self.acknowledged {
                return Err(Broken::Lost { sees, acknowledged: self.acknowledged });
            }
        }
        Ok(())
    }

    /// The worlds that can follow.
    pub(crate) fn steps(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for of in 0..2 {
            let one = &self.gateways[of];
            let mut add = |what: &'static str, change: &dyn Fn(&mut Self)| {
                let mut next = self.clone();
                change(&mut next);
                next.last = (of, what);
                all.push(next);
            };
            if !one.alive {
                add("starts", &|next| next.start(of));
                continue;
            }
            if self.kills > 0 {
                add("is killed", &|next| next.kill(of));
            }
            if one.claim == Claim::None {
                self.gateway_steps(of, &mut add);
            } else if self.epoch < EPOCHS || one.claim != Claim::Look {
                add("claims", &|next| next.claim(of));
            }
        }
        for place in 0..self.flying.len() {
            let mut next = self.clone();
            next.last = (self.flying[place].of, "has its write land");
            next.land(place);
            all.push(next);
        }
        // Without a kill: a gateway that starts beside an owner cannot tell a target that has forgotten it (decision 12).
        if self.forgets > 0 && self.kills > 0 {
            let mut next = self.clone();
            next.last = (0, "has its reservation forgotten");
            (next.forgets, next.kills, next.changed) = (0, 0, false);
            (next.holder, next.registered) = (0, [0; 2]);
            // It was started again: all sessions have ended, and a claim begins anew in the next one.
            next.flying.clear();
            for one in &mut next.gateways {
                if one.claim != Claim::None {
                    one.claim = Claim::Look;
                }
            }
            all.push(next);
        }
        all
    }

    /// What a gateway without a claim may do.
    fn gateway_steps(&self, of: usize, add: &mut Add<'_>) {
        let one = &self.gateways[of];
        let awaited = self.flying.iter().any(|write| write.of == of && write.awaited);
        if self.serves(of) && self.written < WRITES && !awaited {
            add("takes a write", &|next| next.write(of));
        }
        if one.log > 0 && !awaited {
            add("writes back", &|next| {
                let content = next.gateways[of].log;
                next.send(of, content, true);
            });
        }
        match one.mover.state() {
            State::Owner if self.orders > 0 => add("is ordered to move", &|next| {
                next.orders -= 1;
                next.tell(
                    of,
                    Event::Offer(Order { number: 1, drain_within: Duration::from_secs(1) }),
                );
            }),
            State::Draining { .. } if one.through => {
                add("is drained", &|next| next.tell(of, Event::Drained));
            }
            State::Draining { .. } if !awaited && (one.log == 0 || self.has(Bug::DrainedEarly)) => {
                add("passes its log", &|next| next.gateways[of].through = true);
            }
            State::Freezing { .. } if !awaited => {
                add("is quiet", &|next| next.tell(of, Event::Quiet(next.gateways[of].key)));
            }
            State::Granted { .. } if self.has(Bug::CancelAfterGrant) => {
                add("is cancelled", &|next| {
                    next.gateways[of].mover = Mover::new(true, Limits::default());
                    next.gateways[of].through = false;
                });
            }
            State::Standby if self.grants[1 - of] > 0 => add("gets a grant", &|next| {
                let key = next.grants[1 - of];
                next.tell(of, Event::Grant { number: 1, key });
            }),
            _ => {}
        }
        if self.grants[of] > 0 {
            add("loses its grant", &|next| next.grants[of] = 0);
        }
        if one.mover.deadline().is_some() {
            add("has waited", &|next| next.tell(of, Event::Time));
        }
        // A gateway that owns the unit, as far as it knows, reads the reservation.
        if one.key > 0 {
            add("looks", &|next| next.look(of));
        }
    }

    fn look(&mut self, of: usize) {
        let own = self.gateways[of].key;
        // A granted key may have been preempted before the target forgot it.
        let granted = matches!(self.gateways[of].mover.state(), State::Granted { .. });
        if self.holder == 0 && !self.changed && (!granted || self.has(Bug::ReservesAgain)) {
            // The target has forgotten all, and no gateway has registered since.
            (self.holder, self.registered[of], self.changed) = (own, own, true);
        } else if self.holder != own {
            self.tell(of, Event::Other);
        }
    }

    /// A host writes.
    fn write(&mut self, of: usize) {
        self.written += 1;
        let content = self.written;
        self.gateways[of].cache = content;
        if self.gateways[of].through {
            self.send(of, content, false);
        } else {
            self.gateways[of].log = content;
            self.acknowledged = content;
        }
    }

    fn send(&mut self, of: usize, content: u8, logged: bool) {
        let key = self.gateways[of].key;
        self.flying.push(Flying { of, key, content, awaited: true, logged });
    }

    /// A write arrives at the unit, or what is left of it.
    fn land(&mut self, place: usize) {
        let write = self.flying.remove(place);
        // Write Exclusive, Registrants Only: while it is held, only a registered key may write.
        if self.holder > 0 && self.registered[write.of] != write.key && !self.has(Bug::NoAbort) {
            return;
        }
        self.medium = write.content;
        if !write.awaited {
            return;
        }
        let one = &mut self.gateways[write.of];
        if write.logged {
            if one.log == write.content {
                one.log = 0;
            }
        } else {
            self.acknowledged = self.acknowledged.max(write.content);
        }
    }

    fn kill(&mut self, of: usize) {
        self.kills -= 1;
        let one = &mut self.gateways[of];
        let Gateway { log, .. } = *one;
        *one = Gateway {
            alive: false,
            starts: false,
            mover: Mover::new(false, Limits::default()),
            key: 0,
            claim: Claim::None,
            from: None,
            seen: 0,
            log,
            through: false,
            cache: 0,
        };
        for write in &mut self.flying {
            write.awaited &= write.of != of;
        }
    }

    fn start(&mut self, of: usize) {
        let own = self.has(Bug::StartsAsOwner) && self.registered[of] > 0;
        let key = self.registered[of];
        let one = &mut self.gateways[of];
        (one.alive, one.starts, one.claim) = (true, true, Claim::Look);
        if own {
            (one.starts, one.claim, one.key) = (false, Claim::None, key);
            one.mover = Mover::new(true, Limits::default());
        }
    }

    /// Gives the machine an event, and does what it wants.
    fn tell(&mut self, of: usize, event: Event) {
        let mover = &mut self.gateways[of].mover;
        let now = match event {
            Event::Time => mover.deadline().unwrap_or(Instant::ZERO),
            _ => Instant::ZERO,
        };
        let before = mover.state();
        for action in mover.step(now, event) {
            self.act(of, *action, before);
        }
    }

    fn act(&mut self, of: usize, action: Action, before: State) {
        let granted = match before {
            State::Granted { key, .. } => key,
            _ => 0,
        };
        let one = &mut self.gateways[of];
        match action {
            // Whether requests start is asked of the machine.
            Action::Drain | Action::Freeze | Action::Thaw | Action::Withdraw => {}
            Action::Resume => one.through = false,
            Action::Watch => self.grants[of] = one.key,
            Action::Revoke if self.bug == Some(Bug::ThawWithoutClaim) => self.tell(of, Event::Held),
            Action::Revoke if self.bug == Some(Bug::LeavesInTime) => {
                (one.mover, one.key) = (Mover::new(false, Limits::default()), 0);
            }
            Action::Revoke => (one.claim, one.from) = (Claim::Look, Some(granted)),
            Action::Claim => {
                let State::Claiming { from, .. } = one.mover.state() else {
                    unreachable!("it claims")
                };
                (one.claim, one.from) = (Claim::Look, Some(from));
            }
            Action::Serve => {
                one.through = false;
                if self.bug != Some(Bug::OldCache) {
                    one.cache = 0;
                }
            }
            Action::Leave if self.bug == Some(Bug::ServesOn) => {
                one.mover = Mover::new(true, Limits::default());
            }
            Action::Leave => {
                one.key = 0;
                if self.bug != Some(Bug::OldCache) {
                    one.cache = 0;
                }
            }
            Action::Fence => self.deprived = true,
        }
    }

    /// The next command of a claim (site.md 3.3, and the table of `claim.rs`).
    fn claim(&mut self, of: usize) {
        let key = self.gateways[of].key;
        self.gateways[of].claim = match self.gateways[of].claim {
            Claim::None => Claim::None,
            Claim::Look => match self.decide(of) {
                Some(()) => Claim::Register,
                None => return self.ended(of, false),
            },
            Claim::Register => {
                (self.registered[of], self.changed) = (key, true);
                match self.gateways[of].seen {
                    _ if self.has(Bug::AnyHolder) => Claim::Preempt(self.holder),
                    0 => Claim::Reserve,
                    seen if seen == key => Claim::Verify,
                    seen => Claim::Preempt(seen),
                }
            }
            Claim::Preempt(victim) => {
                let place = self.registered.iter().position(|&one| one == victim);
                if place.is_some() || self.holder == victim {
                    if let Some(place) = place.filter(|&place| place != of) {
                        self.registered[place] = 0;
                    }
                    if !self.has(Bug::NoAbort) {
                        self.flying.retain(|write| write.key != victim);
                    }
                    if self.holder == victim {
                        self.holder = key;
                    }
                }
                Claim::Reserve
            }
            Claim::Reserve => {
                if self.holder == 0 {
                    self.holder = key;
                }
                Claim::Verify
            }
            Claim::Verify if self.holder == key || self.has(Bug::NoVerify) => {
                return self.ended(of, true);
            }
            Claim::Verify => Claim::Withdraw,
            Claim::Withdraw => {
                if self.registered[of] == key {
                    self.registered[of] = 0;
                }
                return self.ended(of, false);
            }
        };
    }

    /// What a claim does about what it has seen: it continues, with a key, or has no right to.
    fn decide(&mut self, of: usize) -> Option<()> {
        let one = &self.gateways[of];
        let ours = self.holder > 0 && (self.holder & 1) as usize == of;
        let allowed = match one.from {
            Some(_) if self.holder == 0 => self.has(Bug::FromNobody),
            Some(from) => self.holder == from || ours || self.has(Bug::AnyHolder),
            None => ours || self.holder == 0,
        };
        if !allowed {
            self.superseded |= one.starts && one.log > 0;
            return None;
        }
        self.gateways[of].seen = self.holder;
        if self.has(Bug::SameKeyAgain) && ours {
            self.gateways[of].key = self.holder;
        } else {
            self.epoch += 1;
            self.gateways[of].key = self.epoch << 1 | of as u64;
        }
        Some(())
    }

    fn ended(&mut self, of: usize, held: bool) {
        let one = &mut self.gateways[of];
        (one.claim, one.from, one.seen) = (Claim::None, None, 0);
        if !held {
            one.key = 0;
        }
        if std::mem::take(&mut one.starts) {
            one.mover = Mover::new(held, Limits::default());
            return;
        }
        self.tell(of, if held { Event::Held } else { Event::Other });
    }
}
