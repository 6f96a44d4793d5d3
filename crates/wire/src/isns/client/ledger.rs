//! What a server has of the gateway, and what it shall have.

use crate::isns::objects::{Object, Objects};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// What is asked for before the registration is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Round {
    Nothing,
    /// All portals: with them a server that has lost everything is found out.
    Portals,
    /// All portals, and the next of the nodes.
    All,
}

/// See the file.
#[derive(Debug)]
pub(super) struct Ledger {
    wanted: BTreeSet<Object>,
    /// The port for callbacks of the portals that are wanted.
    pub(super) callback: u16,
    /// Objects that no server would take.
    unfit: usize,
    /// What the server has acknowledged.
    has: BTreeSet<Object>,
    /// What it may have, and perhaps otherwise: it is registered again, or deregistered if it is not wanted.
    stale: BTreeSet<Object>,
    /// What the server does not take, and until when it is not tried again.
    refused: BTreeMap<Object, Duration>,
    /// Objects in one registration: half as many after one was refused, until the object is found that the server does
    /// not take.
    pub(super) at_once: usize,
    /// Whether this connection's server takes portal groups. It makes its own if it does not.
    pub(super) takes_groups: bool,
    round: Round,
    /// What is to be checked in this round.
    checks: VecDeque<Object>,
    /// The node that was checked last.
    last: Option<String>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            wanted: BTreeSet::new(),
            callback: 0,
            unfit: 0,
            has: BTreeSet::new(),
            stale: BTreeSet::new(),
            refused: BTreeMap::new(),
            at_once: usize::MAX,
            takes_groups: true,
            round: Round::Nothing,
            checks: VecDeque::new(),
            last: None,
        }
    }
}

impl Ledger {
    /// Other objects are wanted: whether they differ, and one that no server would take.
    pub(super) fn want(
        &mut self,
        objects: Objects,
        source: (&str, &str),
    ) -> (bool, Option<Object>) {
        let callback = objects.callback;
        let (wanted, unfit): (BTreeSet<_>, BTreeSet<_>) =
            Object::all(objects, source).into_iter().partition(Object::fits);
        let same_callback = self.callback == callback;
        if wanted == self.wanted && same_callback {
            return (false, None);
        }
        if !same_callback {
            let all = std::mem::take(&mut self.has).into_iter();
            let (portals, others) = all.partition(|one| matches!(one, Object::Portal(_)));
            self.has = others;
            self.stale.extend(portals);
        }
        self.refused.clear();
        self.checks.clear();
        (self.wanted, self.callback, self.unfit) = (wanted, callback, unfit.len());
        (true, unfit.into_iter().next())
    }

    pub(super) fn wanted_portals(&self) -> impl Iterator<Item = SocketAddr> {
        self.wanted.iter().filter_map(|one| match one {
            Object::Portal(portal) => Some(*portal),
            _ => None,
        })
    }

    /// Another connection: the server may have been started again, or changed by others.
    pub(super) fn connected(&mut self) {
        (self.takes_groups, self.at_once) = (true, usize::MAX);
        self.check(if self.has.is_empty() { Round::Portals } else { Round::All });
    }

    /// What is to be registered, in order.
    pub(super) fn missing(&self) -> impl Iterator<Item = &Object> {
        let refused = |one: &Object| self.refused.keys().any(|other| one.belongs_to(other));
        let missing = self.wanted.difference(&self.has);
        missing
            .filter(|one| self.takes_groups || !matches!(one, Object::Group(..)))
            .filter(move |one| self.refused.is_empty() || !refused(one))
            .take(self.at_once)
    }

    /// Whether the server may have an alias for a node.
    pub(super) fn has_alias(&self, node: &str) -> bool {
        let alias =
            |one: &Object| matches!(one, Object::Node { name, alias: Some(_), .. } if name == node);
        self.there().any(alias)
    }

    /// What is to be deregistered: groups go with their node or portal, and what was registered again with other
    /// attributes stays.
    pub(super) fn gone(&self) -> impl Iterator<Item = &Object> {
        let wanted = |one: &Object| self.wanted.iter().any(|other| other.has_key_of(one));
        let difference = self.there().filter(|one| !self.wanted.contains(one));
        difference.filter(move |one| !matches!(one, Object::Group(..)) && !wanted(one))
    }

    /// The portals that the server has or may have.
    pub(super) fn portals_there(&self) -> impl Iterator<Item = &Object> {
        self.there().filter(|one| matches!(one, Object::Portal(_)))
    }

    fn there(&self) -> impl Iterator<Item = &Object> {
        self.has.union(&self.stale)
    }

    /// What the server has acknowledged.
    pub(super) const fn has(&self) -> &BTreeSet<Object> {
        &self.has
    }

    /// The server has taken these objects.
    pub(super) fn registered(&mut self, objects: Vec<Object>) {
        self.at_once = usize::MAX;
        let old = |one: &Object| !objects.iter().any(|object| object.has_key_of(one));
        self.stale.retain(old);
        self.has.retain(old);
        self.has.extend(objects);
        self.check(Round::Portals);
    }

    /// The server does not have these objects any more.
    pub(super) fn deregistered(&mut self, objects: &[Object]) {
        let stays = |one: &Object| !objects.iter().any(|object| one.belongs_to(object));
        self.has.retain(stays);
        self.stale.retain(stays);
    }

    /// The server has lost the registration, or parts of it.
    pub(super) fn forget(&mut self) {
        self.stale.append(&mut self.has);
        self.refused.clear();
        self.checks.clear();
        self.check(Round::Portals);
    }

    /// The server has lost a target: it is registered again with its groups.
    pub(super) fn lost(&mut self, target: &Object) {
        let all = std::mem::take(&mut self.has).into_iter();
        let (lost, has) = all.partition(|one| one.belongs_to(target));
        self.has = has;
        self.stale.extend(lost);
    }

    /// The server does not take an object before then. Whether there is still a portal to be registered at it.
    pub(super) fn refuse(&mut self, object: Object, until: Duration) -> bool {
        self.at_once = usize::MAX;
        self.refused.insert(object, until);
        let portal = |one: &&Object| matches!(one, Object::Portal(_));
        if self.wanted.iter().filter(portal).any(|one| !self.refused.contains_key(one)) {
            return true;
        }
        self.refused.clear();
        false
    }

    /// Objects that the server does not take, or no server would.
    pub(super) fn refused(&self) -> usize {
        self.unfit + self.refused.len()
    }

    /// When something that was refused is tried again.
    pub(super) fn next_try(&self) -> Option<Duration> {
        self.refused.values().min().copied()
    }

    /// Lets that be tried again which is due.
    pub(super) fn try_again(&mut self, now: Duration) {
        self.refused.retain(|_, until| *until > now);
    }

    /// Begins a round of checks, when everything is registered.
    pub(super) fn check(&mut self, round: Round) {
        self.round = self.round.max(round);
    }

    /// Whether a round has begun: it is ended before what it finds is registered.
    pub(super) fn is_checking(&self) -> bool {
        self.round == Round::Nothing && !self.checks.is_empty()
    }

    /// The next object of the round.
    pub(super) fn next_check(&mut self) -> Option<Object> {
        match std::mem::replace(&mut self.round, Round::Nothing) {
            Round::Nothing => {}
            Round::Portals => self.checks = self.portals().collect(),
            Round::All => {
                self.checks = self.portals().collect();
                let nodes = self.next_nodes();
                self.last = nodes.last().and_then(Object::node).map(str::to_owned);
                self.checks.extend(nodes);
            }
        }
        self.checks.pop_front()
    }

    fn portals(&self) -> impl Iterator<Item = Object> {
        self.has.iter().filter(|one| matches!(one, Object::Portal(_))).cloned()
    }

    /// As many nodes that all have had their turn after some rounds.
    fn next_nodes(&self) -> Vec<Object> {
        let node = |one: &&Object| matches!(one, Object::Node { .. });
        let nodes: Vec<&Object> = self.has.iter().filter(node).collect();
        let turn = nodes.len().div_ceil(ROUNDS);
        let last = self.last.as_deref();
        let (before, behind): (Vec<&Object>, Vec<&Object>) =
            nodes.into_iter().partition(|node| node.node() <= last);
        behind.into_iter().chain(before).take(turn).cloned().collect()
    }
}

/// Rounds in which all nodes are asked for: in two periods. One round that asks for all would be long.
const ROUNDS: usize = 6;
