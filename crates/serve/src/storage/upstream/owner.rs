//! One owner of each unit, and what follows when it is somebody else.
//!
//! Before anything is served the units of volumes with a log are claimed, on every way there is; a way that comes
//! later is claimed before it is used ([`claim`](super::claim)). From then on the reservation is looked at once a
//! second, and at once when a target refuses a command for it or tells that it has changed. When it is not ours any
//! more the upstream is fenced, for good: its sessions are ended, everything that goes there fails, and the volume
//! is withdrawn from hosts. Nothing makes it ours again but a person, and another start.

use super::claim::{Denied, Holder, Key, Owner};
use super::network::Network;
use super::path::Link;
use super::session::Loss;
use super::{Farewell, StorageDone, Upstreams, fold, volume_on};
use crate::ServeError;
use crate::clock::Clock;
use crate::config::{Config, Fence};
use crate::identity::identity;
use crate::storage::log_device::Logged;
use mio::{Events, Poll};
use std::ops::Range;
use thiserror::Error;
use tracing::{error, info, warn};
use weir_flow::clock::{Duration, Instant};
use weir_flow::path::Access;
use weir_flow::pipeline::Input;
use weir_flow::rng::mix;

/// A unit that this gateway must not write to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("volume `{volume}`: upstream `{upstream}` must not be written to: {why}")]
pub struct Unowned {
    /// The volume.
    pub volume: String,
    /// Its upstream.
    pub upstream: String,
    /// Why not.
    pub why: Denied,
}

/// Who owns a unit, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// The gateway's key.
    pub(crate) key: u64,
    /// Since when it is somebody else's, and with which key, if that is known.
    pub(crate) lost: Option<(Instant, Option<u64>)>,
}

/// The owner of each upstream's unit, by its index; `None` where nobody is kept from it.
pub(crate) fn owners(config: &Config, logs: &[Option<Logged>]) -> Vec<Option<Owner>> {
    let node = identity();
    let owner = |(index, upstream): (usize, &crate::config::Upstream)| {
        let volume = volume_on(config, index)?;
        let name = &config.volumes[volume].name;
        let log = logs.get(volume).copied().flatten();
        let wanted = match upstream.fence {
            Fence::Auto => log.is_some(),
            Fence::On => true,
            Fence::Off => false,
        };
        if !wanted {
            if log.is_some() {
                warn!(
                    volume = name,
                    upstream = upstream.name,
                    "another gateway could write there: `fence = \"off\"`"
                );
            }
            return None;
        }
        // Whoever has the log is the same gateway, on whatever machine.
        let id = if let Some(log) = log {
            let number = u128::from_be_bytes(log.id);
            mix(number as u64 ^ mix((number >> 64) as u64))
        } else {
            let initiator = upstream.initiator_name.as_deref().unwrap_or(&node);
            fold(&[initiator, &upstream.name, name])
        };
        let expected = config.take_over.iter().filter(|&&(of, _)| of == volume);
        let expected = expected.map(|&(_, key)| key).collect();
        Some(Owner::new(id, log.is_some_and(|log| log.dirty), expected))
    };
    config.upstreams.iter().enumerate().map(owner).collect()
}

impl<N: Network> Upstreams<N> {
    /// Becomes the owner of every unit that has one, or says why not. Nothing was written to any.
    pub(crate) fn claim(
        &mut self,
        (poll, clock): (&mut Poll, Clock),
        config: &Config,
        owners: Vec<Option<Owner>>,
    ) -> Result<(), ServeError> {
        let mut events = Events::with_capacity(EVENTS);
        self.now = clock.now();
        let began = self.now;
        for (upstream, owner) in owners.into_iter().enumerate() {
            if owner.is_none() {
                continue;
            }
            self.all[upstream].owner = owner;
            for index in self.ways(upstream) {
                if self.paths[index].is_ready() {
                    self.claim_on(index);
                }
            }
        }
        let mut owned = None;
        loop {
            let claimed = |index: &usize| self.all[*index].owner.is_some();
            let claimed: Vec<usize> = (0..self.all.len()).filter(claimed).collect();
            let owned_by = |index: usize| self.all[index].owner.as_ref().expect("it has one");
            let waiting: Vec<usize> =
                claimed.iter().copied().filter(|&index| !owned_by(index).holds).collect();
            for &index in &waiting {
                if let Some(why) = owned_by(index).denied.clone() {
                    let volume = volume_on(config, index);
                    let volume = volume.map(|volume| config.volumes[volume].name.clone());
                    let (volume, upstream) =
                        (volume.unwrap_or_default(), self.all[index].config.name.clone());
                    return Err(ServeError::Owned(Unowned { volume, upstream, why }));
                }
            }
            let by = |index: &usize| began + self.all[*index].config.connect_timeout;
            let until = if let Some(until) = waiting.iter().map(by).min() {
                if until <= self.now {
                    let late = waiting.into_iter().find(|index| by(index) <= self.now);
                    return Err(self.unreachable(late.expect("one of them is")).into());
                }
                until
            } else {
                // The other ways are claimed in the same moment.
                let all = *owned.get_or_insert(self.now) + OTHERS_WITHIN;
                let on_its_way =
                    |&index: &usize| self.ways(index).any(|way| self.paths[way].is_on_its_way());
                if all <= self.now || !claimed.iter().any(on_its_way) {
                    return Ok(());
                }
                all
            };
            let turned = self.turn(poll, &mut events, clock, Some(until));
            turned.map_err(|source| ServeError::Setup { action: "wait for events", source })?;
        }
    }

    /// The paths of an upstream.
    fn ways(&self, upstream: usize) -> Range<usize> {
        let super::Upstream { first, config, .. } = &self.all[upstream];
        *first..first + config.portals.len()
    }

    /// Whether an upstream is somebody else's now.
    pub(super) fn is_lost(&self, upstream: usize) -> bool {
        self.all[upstream].owner.as_ref().is_some_and(|owner| owner.lost.is_some())
    }

    /// Who owns the unit of an upstream, if somebody is kept from it.
    pub(crate) fn ownership(&self, upstream: usize) -> Option<Ownership> {
        let owner = self.all[upstream].owner.as_ref()?;
        Some(Ownership { key: owner.key?, lost: owner.lost })
    }

    /// Has the session of a path settle whose the unit is.
    pub(super) fn claim_on(&mut self, index: usize) {
        let within = self.all[self.paths[index].upstream].config.login_timeout;
        if let Link::Up(_, by) = &mut self.paths[index].link {
            *by = (*by).max(self.now + within);
        }
        self.with(index, |session, around| {
            session.claim(around);
            Ok(())
        });
    }

    /// The unit is ours on a path.
    pub(super) fn claimed(&mut self, index: usize) {
        let (now, upstream) = (self.now, self.paths[index].upstream);
        if let Some(owner) = &mut self.all[upstream].owner {
            owner.look_at = owner.look_at.max(now + LOOK_EVERY);
            let key = Key(owner.key.unwrap_or(0));
            let path = &self.paths[index];
            info!(upstream = path.who, %key, access = %path.access, "path is ready: the unit is reserved");
        }
        self.paths[index].failure = None;
        self.accessible(index, self.paths[index].access);
    }

    /// A session has found out that the unit must not be written to.
    pub(super) fn denied(&mut self, upstream: usize, denied: &Denied) {
        let Some(owner) = &mut self.all[upstream].owner else { return };
        match denied {
            Denied::Held { key, .. } if owner.holds => self.fence(upstream, Some(*key)),
            Denied::Gone { .. } if owner.holds => self.fence(upstream, None),
            denied if !owner.holds && denied.is_final() => owner.denied = Some(denied.clone()),
            _ => {}
        }
    }

    /// What a target says of who has reserved a unit.
    pub(super) fn owner_told(&mut self, upstream: usize, holder: Option<Holder>) {
        let owner = self.all[upstream].owner.as_ref();
        if owner.is_some_and(|owner| owner.holds && !owner.is_ours(holder)) {
            self.fence(upstream, holder.map(|holder| holder.key));
        }
    }

    /// Nothing is done at an upstream any more.
    fn fence(&mut self, upstream: usize, holder: Option<u64>) {
        let super::Upstream { owner, config, .. } = &mut self.all[upstream];
        let Some(owner) = owner.as_mut().filter(|owner| owner.lost.is_none()) else { return };
        owner.lost = Some((self.now, holder));
        let (ours, upstream_name) = (Key(owner.key.unwrap_or(0)), &config.name);
        let holder = holder.map_or_else(|| String::from("none"), |key| Key(key).to_string());
        error!(
            upstream = upstream_name,
            %holder,
            %ours,
            "FENCED: another gateway has taken the reservation. This gateway writes nothing \
             there, refuses the volume to hosts and keeps its log. If the other gateway is the \
             right one, stop this one and keep its log for `weir log`; if this one is, stop the \
             other and start this one again with --take-over"
        );
        for index in self.ways(upstream) {
            // The target has ended what the old owner had under way, and refuses what is still to come.
            self.confirm(index);
            self.lose(index, &Loss::Fenced);
            let (backend, id) = (self.backend(upstream), self.paths[index].id);
            // Everything that is sent there is answered at once.
            self.input(Input::PathAccess(backend, id, Access::Optimized));
            self.input(Input::PathUp(backend, id));
        }
        self.done.push(StorageDone::Fenced(upstream));
    }

    /// When whose a unit is has to be looked at.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let owners = self.all.iter().filter_map(|upstream| upstream.owner.as_ref());
        owners.filter(|owner| owner.holds && owner.lost.is_none()).map(|owner| owner.look_at).min()
    }

    /// Looks whose the units are, where that is due.
    pub(super) fn look_at_owners(&mut self) {
        for upstream in 0..self.all.len() {
            let now = self.now;
            let due =
                |owner: &&mut Owner| owner.holds && owner.lost.is_none() && owner.look_at <= now;
            let Some(owner) = self.all[upstream].owner.as_mut().filter(due) else { continue };
            owner.look_at = now + LOOK_EVERY;
            let ready = |index: &usize| self.paths[*index].is_ready();
            if let Some(index) = self.ways(upstream).find(ready) {
                self.with(index, |session, _| {
                    session.look_at_owner();
                    Ok(())
                });
            }
        }
    }

    /// Gives up the units for which that is right: the next owner need not ask. True if one is not done.
    pub(super) fn ask_for_releases(&mut self, clean: &[bool]) -> bool {
        for upstream in 0..self.all.len() {
            let name = self.all[upstream].config.name.clone();
            let Some(owner) = &mut self.all[upstream].owner else { continue };
            if !std::mem::take(&mut owner.holds) || owner.lost.is_some() {
                continue;
            }
            let key = owner.key.unwrap_or(0);
            if !clean.get(upstream).copied().unwrap_or(false) {
                info!(
                    upstream = name,
                    key = %Key(key),
                    "the unit stays reserved for this gateway: its log has dirty data"
                );
                continue;
            }
            let ready = |index: &usize| self.paths[*index].is_ready();
            let Some(index) = self.ways(upstream).find(ready) else {
                warn!(upstream = name, key = %Key(key), "no path works: the unit stays reserved");
                continue;
            };
            self.all[upstream].release = Farewell::Asked(index);
            self.with(index, |session, _| {
                session.give_up(key);
                Ok(())
            });
        }
        self.all.iter().any(|one| matches!(one.release, Farewell::Asked(_)))
    }
}

/// How often it is looked whose a unit is: for so long a gateway without I/O may not know that it is not its own
/// any more, and answer reads from what it has near.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When every unit is owned over one way, the others have so long.
const OTHERS_WITHIN: Duration = Duration::from_millis(250);

/// Events taken in at a time.
const EVENTS: usize = 256;

#[cfg(test)]
mod tests;
