//! Random commands of four hosts, compared with a model that knows the rules in another way: it
//! works out who is registered and who holds what, and concludes from before and after who must
//! be told.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const HOSTS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    /// PERSISTENT RESERVE OUT. Without `key` the sender gives its own.
    Out {
        from: usize,
        action: u8,
        scope: u8,
        kind: u8,
        key: Option<u64>,
        action_key: u64,
        aptpl: bool,
        ports: Option<Vec<u8>>,
    },
    Move {
        from: usize,
        to: usize,
        key: Option<u64>,
        action_key: u64,
        aptpl: bool,
        unreg: bool,
    },
    Reserve6(usize),
    Release6(usize),
    Lost(usize),
    Reset,
    PowerLoss,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Good { told: BTreeSet<(usize, u8)>, aborted: BTreeSet<usize>, save: bool },
    Conflict,
    Check(u8, u8),
}

use Answer::{Check, Conflict};

fn good() -> Answer {
    Answer::Good { told: BTreeSet::new(), aborted: BTreeSet::new(), save: false }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    /// Zero: not registered.
    keys: [u64; HOSTS],
    /// TYPE field; zero: not reserved.
    kind: u8,
    /// Of the types with one holder.
    holder: usize,
    six: Option<usize>,
    generation: u32,
    aptpl: bool,
}

impl Model {
    fn registered(&self) -> BTreeSet<usize> {
        (0..HOSTS).filter(|host| self.keys[*host] != 0).collect()
    }

    fn holders(&self) -> BTreeSet<usize> {
        match self.kind {
            0 => BTreeSet::new(),
            7 | 8 => self.registered(),
            _ => BTreeSet::from([self.holder]),
        }
    }

    fn kept(&self) -> Option<([u64; HOSTS], u8, usize)> {
        let holder = if matches!(self.kind, 1..7) { self.holder } else { 0 };
        self.aptpl.then_some((self.keys, self.kind, holder))
    }

    fn may(&self, host: Option<usize>, write: bool) -> bool {
        if let Some(six) = self.six {
            return host == Some(six);
        }
        let registered = host.is_some_and(|host| self.keys[host] != 0);
        let holds = host.is_some_and(|host| self.holders().contains(&host));
        self.kind == 0
            || holds
            || self.kind >= 5 && registered
            || !write && matches!(self.kind, 1 | 5 | 7)
    }

    fn unregister(&mut self, host: usize) {
        let alone = self.holders() == BTreeSet::from([host]);
        self.keys[host] = 0;
        if alone {
            self.kind = 0;
        }
    }

    /// The command itself; an error is how it is refused. Gives the hosts whose tasks end.
    fn out(&mut self, step: &Step) -> Result<BTreeSet<usize>, Answer> {
        let mut aborted = BTreeSet::new();
        let (from, key, sark, aptpl) = match *step {
            Step::Out { from, key, action_key, aptpl, .. }
            | Step::Move { from, key, action_key, aptpl, .. } => {
                (from, key.unwrap_or(self.keys[from]), action_key, aptpl)
            }
            _ => unreachable!("only commands come here"),
        };
        let known = self.keys[from];
        let right_key = known != 0 && known == key;
        if let Step::Move { to, unreg, .. } = *step {
            return match () {
                () if self.six.is_some() || !right_key => Err(Conflict),
                () if self.kind == 0 => Err(Check(0x24, 0)),
                () if self.kind >= 7 || self.holder != from => Err(Conflict),
                () if sark == 0 || to == from => Err(Check(0x26, 0)),
                () => {
                    if unreg {
                        self.keys[from] = 0;
                    }
                    self.keys[to] = sark;
                    self.holder = to;
                    self.aptpl = aptpl;
                    self.generation += 1;
                    Ok(aborted)
                }
            };
        }
        let Step::Out { action, scope, kind, ref ports, .. } = *step else {
            unreachable!("a move is done");
        };
        let fields_fit = scope == 0 && [1, 3, 5, 6, 7, 8].contains(&kind);
        match action {
            8.. => return Err(Check(0x24, 0)),
            _ if self.six.is_some() => return Err(Conflict),
            1.. if ports.is_some() => return Err(Check(0x26, 0)),
            0 if known != key => return Err(Conflict),
            0 if known != 0 && ports.is_some() => return Err(Check(0x26, 0)),
            0 | 6 if known == 0 && sark == 0 => return Ok(aborted),
            1..6 if !right_key => return Err(Conflict),
            1 | 2 if !fields_fit => return Err(Check(0x24, 0)),
            _ => {}
        }
        match action {
            0 | 6 => {
                if sark == 0 {
                    self.unregister(from);
                } else {
                    for port in ports.iter().flatten() {
                        self.keys[usize::from(*port)] = sark;
                    }
                    self.keys[from] = sark;
                }
                self.aptpl = aptpl;
            }
            1 if self.kind == 0 => (self.kind, self.holder) = (kind, from),
            1 if self.kind == kind && self.holders().contains(&from) => {}
            1 => return Err(Conflict),
            2 if !self.holders().contains(&from) => {}
            2 if self.kind != kind => return Err(Check(0x26, 4)),
            2 => self.kind = 0,
            3 => *self = Self { aptpl: self.aptpl, generation: self.generation, ..Self::default() },
            _ => {
                if sark == 0 && self.kind < 7 {
                    return Err(Check(0x26, 0));
                }
                let mut victims = self.registered();
                victims.retain(|host| sark == 0 || self.keys[*host] == sark);
                if victims.is_empty() {
                    return Err(Conflict);
                }
                if victims.is_superset(&self.holders())
                    && self.kind != 0
                    && (self.kind < 7 || sark == 0)
                {
                    if !fields_fit {
                        return Err(Check(0x24, 0));
                    }
                    victims.remove(&from);
                    for host in &victims {
                        self.keys[*host] = 0;
                    }
                    (self.kind, self.holder) = (kind, from);
                } else {
                    for host in &victims {
                        self.unregister(*host);
                    }
                    victims.remove(&from);
                }
                if action == 5 {
                    aborted = victims;
                }
            }
        }
        if ![1, 2].contains(&action) {
            self.generation += 1;
        }
        Ok(aborted)
    }

    /// The command, and the nexuses that are notified.
    fn answer(&mut self, step: &Step) -> Answer {
        let before = self.clone();
        let aborted = match self.out(step) {
            Ok(aborted) => aborted,
            Err(answer) => {
                *self = before;
                return answer;
            }
        };
        let save = self.kept() != before.kept();
        let mut told = BTreeSet::new();
        if let Step::Out { from, action, .. } = *step {
            let gone = &before.registered() - &self.registered();
            let lost = if action == 3 { 3 } else { 5 };
            told.extend(gone.into_iter().map(|host| (host, lost)));
            let ended = before.kind >= 5 && self.kind == 0;
            let replaced = before.kind != 0 && self.kind != 0 && before.kind != self.kind;
            if ended || replaced {
                told.extend(self.registered().into_iter().map(|host| (host, 4)));
            }
            told.retain(|(host, _)| *host != from);
        }
        Answer::Good { told, aborted, save }
    }

    /// RESERVE(6) and RELEASE(6).
    fn six(&mut self, host: usize, reserve: bool) -> Answer {
        let registered = self.registered();
        let part = self.holders().contains(&host) || self.kind >= 5 && registered.contains(&host);
        match () {
            () if part => {}
            () if !registered.is_empty() => return Conflict,
            () if reserve && self.six.is_some_and(|six| six != host) => return Conflict,
            () if reserve => self.six = Some(host),
            () if self.six == Some(host) => self.six = None,
            () => {}
        }
        good()
    }
}

fn number(who: RegistrantRef<'_>) -> usize {
    super::number(who).into()
}

fn host(number: usize) -> Nexus {
    nexus(number as u8)
}

/// What the unit answers to a step.
fn perform(unit: &mut Reservations, step: &Step) -> Answer {
    let own = |from: usize| unit.keys.get(RegistrantRef::Scsi(&host(from))).unwrap_or(0);
    let (from, out, list) = match step {
        Step::Out { from, action, scope, kind, key, action_key, aptpl, ports } => {
            let key = key.unwrap_or(own(*from));
            let list = match ports {
                Some(ports) => with_ports(key, *action_key, u8::from(*aptpl), ports),
                None => basic(key, *action_key, u8::from(*aptpl)),
            };
            (*from, Out { action: *action, scope: *scope, kind: *kind, list_length: 0 }, list)
        }
        Step::Move { from, to, key, action_key, aptpl, unreg } => {
            let flags = u8::from(*unreg) << 1 | u8::from(*aptpl);
            let list = to_port(key.unwrap_or(own(*from)), *action_key, flags, *to as u8);
            (*from, Out { action: 7, scope: 9, kind: 9, list_length: 0 }, list)
        }
        Step::Reserve6(from) => return plain(unit.reserve(&host(*from))),
        Step::Release6(from) => return plain(unit.release(&host(*from))),
        Step::Lost(from) => {
            unit.nexus_lost(&host(*from));
            return good();
        }
        Step::Reset => {
            unit.reset();
            return good();
        }
        Step::PowerLoss => {
            *unit = Reservations::decode(&unit.encode()).unwrap();
            return good();
        }
    };
    let out = Out { list_length: list.len() as u32, ..out };
    match unit.persistent_out(&host(from), out, &list) {
        Ok(change) => {
            *unit = change.next;
            let effects = change.effects;
            assert_eq!(effects.others, None);
            let attentions = effects.attentions.len();
            let told: BTreeSet<_> = effects
                .attentions
                .iter()
                .map(|(who, sense)| (number(who.borrowed()), sense.ascq))
                .collect();
            assert_eq!(told.len(), attentions, "no nexus is notified twice");
            let aborted = effects.aborts.iter().map(|who| number(who.borrowed())).collect();
            Answer::Good { told, aborted, save: change.save }
        }
        Err(Refusal::Conflict) => Conflict,
        Err(Refusal::Check(sense)) => Check(sense.asc, sense.ascq),
    }
}

fn plain(result: Result<(), Refusal>) -> Answer {
    match result {
        Ok(()) => good(),
        Err(Refusal::Conflict) => Conflict,
        Err(Refusal::Check(sense)) => Check(sense.asc, sense.ascq),
    }
}

/// Reads READ FULL STATUS and READ RESERVATION back into a model, as a host would.
fn seen(unit: &Reservations) -> Model {
    let status = unit.persistent_in(3, u32::MAX).unwrap();
    let mut seen = Model {
        generation: u32::from_be_bytes([status[0], status[1], status[2], status[3]]),
        aptpl: unit.persistent_in(2, 8).unwrap()[3] & 1 != 0,
        six: unit.reserved.as_ref().map(|nexus| number(RegistrantRef::Scsi(nexus))),
        ..Model::default()
    };
    let reservation = unit.persistent_in(1, u32::MAX).unwrap();
    if let [_, _, _, _, _, _, _, 16, ..] = reservation[..] {
        seen.kind = reservation[21];
    }
    let mut rest = &status[8..];
    while !rest.is_empty() {
        let (port, _) = transport_id::take(&rest[24..]).unwrap();
        let host = usize::from(port.isid[5]);
        seen.keys[host] = u64::from(rest[7]);
        if rest[12] == 1 {
            assert_eq!(rest[13], seen.kind);
            seen.holder = host;
            let key = if seen.kind >= 7 { 0 } else { rest[7] };
            assert_eq!(reservation[15], key);
        }
        rest = &rest[24 + usize::from(rest[23])..];
    }
    seen
}

fn any_step() -> impl Strategy<Value = Step> {
    let from = 0..HOSTS;
    let key = prop_oneof![5 => Just(None), 1 => (0..4_u64).prop_map(Some)];
    let action = prop_oneof![3 => Just(0_u8), 3 => Just(1_u8), 2 => Just(2_u8), 5 => 3..9_u8];
    let kind = prop_oneof![8 => prop::sample::select(vec![1_u8, 3, 5, 6, 7, 8]), 1 => 0..16_u8];
    let scope = prop_oneof![12 => Just(0_u8), 1 => Just(1_u8)];
    let ports = prop_oneof![
        4 => Just(None),
        1 => prop::collection::vec(0..HOSTS as u8, 0..3).prop_map(Some),
    ];
    let out = (from.clone(), action, scope, kind, key.clone(), 0..4_u64, any::<bool>(), ports);
    let moved = (from.clone(), 0..HOSTS, key, 0..4_u64, any::<bool>(), any::<bool>());
    prop_oneof![
        20 => out.prop_map(|(from, action, scope, kind, key, action_key, aptpl, ports)| {
            // REGISTER AND MOVE has its own step.
            let action = if action == 7 { 0 } else { action };
            Step::Out { from, action, scope, kind, key, action_key, aptpl, ports }
        }),
        3 => moved.prop_map(|(from, to, key, action_key, aptpl, unreg)| {
            Step::Move { from, to, key, action_key, aptpl, unreg }
        }),
        1 => from.clone().prop_map(Step::Reserve6),
        2 => from.clone().prop_map(Step::Release6),
        1 => from.prop_map(Step::Lost),
        1 => Just(Step::Reset),
        1 => Just(Step::PowerLoss),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Unit and model answer every command alike, tell the same hosts, look the same to a host
    /// that asks, and let the same hosts read and write.
    #[test]
    fn the_unit_does_what_the_rules_say(steps in prop::collection::vec(any_step(), 1..40)) {
        let mut unit = Reservations::default();
        let mut model = Model::default();
        for step in &steps {
            let due = match *step {
                Step::Out { .. } | Step::Move { .. } => model.answer(step),
                Step::Reserve6(host) => model.six(host, true),
                Step::Release6(host) => model.six(host, false),
                Step::Lost(host) => {
                    model.six.take_if(|six| *six == host);
                    good()
                }
                Step::Reset => {
                    model.six = None;
                    good()
                }
                Step::PowerLoss => {
                    model = if model.aptpl {
                        Model { six: None, generation: 0, ..model }
                    } else {
                        Model::default()
                    };
                    good()
                }
            };
            prop_assert_eq!(perform(&mut unit, step), due, "{:?}", step);
            let seen = seen(&unit);
            prop_assert_eq!(seen.holders(), model.holders());
            prop_assert_eq!(Model { holder: 0, ..seen }, Model { holder: 0, ..model.clone() });
            for who in [None, Some(0), Some(1), Some(2), Some(3)] {
                let nexus = who.map(host);
                for (access, write) in [(Access::Read, false), (Access::Write, true)] {
                    let nexus = nexus.as_ref().map(RegistrantRef::Scsi);
                    let permitted = unit.permits(nexus, access);
                    prop_assert_eq!(permitted, model.may(who, write), "{:?} {:?}", who, access);
                }
            }
        }
    }
}
