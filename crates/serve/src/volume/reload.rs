//! A configuration that is read again while hosts are connected: what changes live, and what does not.
//!
//! | changes live | how hosts learn of it |
//! |---|---|
//! | the cap of a volume | not at all; it holds for what waits as well |
//! | size of a volume on one store, upwards | CAPACITY DATA HAS CHANGED; NBD clients are not told, but may use it |
//! | targets, their LUNs, who may see them | REPORTED LUNS DATA HAS CHANGED; whoever may not stay is asked to log out |
//! | contracts, groups and the control policy | not at all: requests that wait are handed over, and wait by the new rules |
//! | shares of tenants and of the background | not at all: they hold for what is charged from then on |
//! | tenants, the hosts that they claim, the tenants of volumes | not at all: what arrives from then on is theirs |
//! | accounts, authentication, redirects, advertised addresses | at the next login |
//!
//! Everything else needs a restart. A file that asks for that as well changes nothing: half of a
//! configuration is none.
//!
//! Tenants keep their ids, in whatever order they are: see [`keep_ids`].

use crate::config::{Config, Target as TargetConfig, Volume as VolumeConfig, Where};
use crate::frontend::connection::{Connection, Speech};
use crate::frontend::session_view::Seat;
use crate::limits::PORTAL_GROUP;
use crate::storage::store::Store;
use crate::tasks::{Desk, Errand};
use crate::volume::Target;
use crate::volume::tenants::{Claims, keep_ids};
use std::sync::Arc;
use tracing::{error, info, warn};
use weir_flow::clock::Duration;
use weir_flow::control::CONTRACTS_MAX;
use weir_flow::pipeline::{Govern, Input, Policies};
use weir_flow::request::{TenantId, VolumeId};
use weir_flow::units::ByteCount;
use weir_wire::iscsi::target_role::{Advertised, Node, TargetEntry};
use weir_wire::scsi::Sense;
use weir_wire::scsi::nexus::Nexus;

/// What the targets are to hosts that log in.
pub(crate) fn node(config: &Config) -> Node {
    let entry = |target: &TargetConfig| TargetEntry {
        iqn: target.name.clone(),
        alias: target.alias.clone(),
        initiators: target.initiators.clone(),
        units: target
            .luns
            .iter()
            .map(|&(_, volume)| config.volumes[volume].initiators.clone())
            .collect(),
        authentication: target.authentication.clone(),
        redirect: target.redirect.clone(),
        removed: false,
    };
    Node {
        targets: config.targets.iter().map(entry).collect(),
        portals: config.advertise.iter().cloned().map(Advertised).collect(),
        portal_group: PORTAL_GROUP,
        accounts: config.accounts.clone(),
        discovery: config.discovery.clone(),
    }
}

impl Desk {
    /// Applies what can change live, and returns the configuration that is in force now; `None` if
    /// nothing was changed.
    pub(crate) fn reload(&mut self, old: &Config, new: Config) -> Option<Config> {
        let mut new = new;
        let tenants = std::mem::take(&mut new.tenants);
        let volumes = new.volumes.iter_mut().map(|volume| &mut volume.tenant);
        let (contracts, weights) = (&mut new.promises.contracts, &mut new.shares.tenants);
        new.tenants = keep_ids(&old.tenants, tenants, contracts, weights, volumes);
        let reasons = restarts(old, &new);
        if !reasons.is_empty() {
            for reason in reasons {
                error!(reason, "this needs a restart; the configuration stays as it was");
            }
            return None;
        }
        let sizes: Vec<Option<u64>> = new
            .volumes
            .iter()
            .enumerate()
            .map(|(index, volume)| self.size(index, volume))
            .collect();
        let sizes: Vec<u64> = sizes.into_iter().collect::<Option<_>>()?;
        for (index, &size) in sizes.iter().enumerate() {
            let only = self.only_store(index);
            if let Some(Err(problem)) = only.map(|store| store.grow(size)) {
                let (volume, wanted) = (&new.volumes[index].name, ByteCount(size));
                error!(volume, %wanted, %problem, "cannot extend the volume's file; nothing was changed");
                return None;
            }
        }
        for (index, size) in sizes.into_iter().enumerate() {
            self.resize(index, size);
            let (volume, new) = (&mut self.volumes[index], &new.volumes[index]);
            volume.initiators = new.initiators.clone();
            volume.tenant = TenantId::new(new.tenant as u32);
            let (was, cap) = (old.volumes[index].cap, new.cap);
            if was != cap {
                self.inbox.push_back(Input::Capped(VolumeId::new(index as u32), cap));
            }
        }
        self.govern(old, &new);
        self.exports = Arc::new(crate::frontend::nbd::exports(&new.nbd, &self.volumes));
        self.retarget(&mut new);
        info!("the new configuration is in force");
        Some(new)
    }

    /// Puts new promises, a new policy that keeps them, and new shares into force.
    fn govern(&mut self, old: &Config, new: &Config) {
        let names = new.tenants.iter().map(|tenant| tenant.name.clone());
        self.tenant_names.replace(names.collect());
        self.claims = Claims::new(&new.tenants, &new.promises);
        let (control, promises) = (&new.policies.control, &new.promises);
        // A policy that is replaced by itself forgets what it has learnt.
        if (control, promises) != (&old.policies.control, &old.promises) {
            let contracts = promises.contracts.iter().flatten().count();
            info!(policy = control.policy().name, contracts, "control changed");
            let govern = Govern { control: control.clone(), promises: promises.clone() };
            self.inbox.push_back(Input::Govern(Arc::new(govern)));
        }
        if new.shares != old.shares {
            info!("shares changed");
            self.inbox.push_back(Input::Reweigh(Arc::new(new.shares.clone())));
        }
    }

    /// The size that a volume shall have; `None` if it cannot.
    fn size(&self, index: usize, volume: &VolumeConfig) -> Option<u64> {
        let now = self.capacity(index);
        // Where the bytes of several stores are depends on their sizes, which a restart looks at.
        let Some(store) = self.only_store(index) else { return Some(now) };
        let size = match volume.file().and_then(|file| file.size) {
            Some(size) => size,
            None => match store.measure() {
                Ok(size) => size - size % u64::from(volume.block_size),
                Err(problem) => {
                    error!(volume = volume.name, %problem, "cannot read the size of the volume's file");
                    return None;
                }
            },
        };
        if size < now {
            error!(
                volume = volume.name,
                now = %ByteCount(now),
                wanted = %ByteCount(size),
                "a volume does not shrink while it is served, hosts would lose its end; the \
                 configuration stays as it was"
            );
            return None;
        }
        let room = self.modelled.room(self.volumes[index].stores.start);
        if size > now && size > room {
            let (wanted, room) = (ByteCount(size), ByteCount(room));
            error!(
                volume = volume.name,
                %wanted,
                %room,
                "the volume cannot grow: the space behind it on its modelled device is taken or \
                 missing; the configuration stays as it was"
            );
            return None;
        }
        if let Err(problem) = store.can_grow(size) {
            let wanted = ByteCount(size);
            error!(volume = volume.name, %wanted, %problem, "the volume cannot grow");
            return None;
        }
        Some(size)
    }

    /// The store of a volume that is on one alone.
    fn only_store(&self, index: usize) -> Option<&Store> {
        match &self.stores[self.volumes[index].stores.clone()] {
            [store] => Some(store),
            _ => None,
        }
    }

    /// Bytes of a volume.
    fn capacity(&self, index: usize) -> u64 {
        let disk = self.volumes[index].unit.disk();
        disk.blocks * u64::from(disk.block_size)
    }

    /// An upstream of a volume has grown, and the volume with it if it is on nothing else.
    pub(crate) fn grown(&mut self, index: usize, capacity: u64) {
        let Some(Store::Upstream(unit)) = self.only_store(index) else {
            let (volume, size) = (&self.volumes[index].name, ByteCount(capacity));
            info!(volume, %size, "an upstream has grown; the volume grows with it after a restart");
            return;
        };
        unit.capacity.set(capacity);
        let block = u64::from(self.volumes[index].block_size());
        self.resize(index, capacity - capacity % block);
    }

    fn resize(&mut self, index: usize, size: u64) {
        if size == self.capacity(index) {
            return;
        }
        let volume = &mut self.volumes[index];
        info!(volume = volume.name, size = %ByteCount(size), "volume resized");
        volume.unit.resize(size / u64::from(volume.unit.disk().block_size));
        self.inbox.push_back(Input::Resized(VolumeId::new(index as u32), size));
        self.errands.push_back(Errand::Attention(None, index, Sense::CAPACITY_CHANGED));
    }

    /// Puts the new targets into force. Targets keep their places, which sessions know them by.
    fn retarget(&mut self, new: &mut Config) {
        let fresh = node(new);
        let mut entries: Vec<TargetEntry> = Vec::new();
        let mut targets: Vec<Target> = Vec::new();
        for (entry, target) in self.node.targets.iter().zip(&self.targets) {
            let place = fresh.targets.iter().position(|one| one.iqn == entry.iqn);
            if let Some(place) = place {
                entries.push(fresh.targets[place].clone());
                targets.push(Target::new(&new.targets[place]));
            } else {
                entries.push(TargetEntry { removed: true, ..entry.clone() });
                targets.push(Target { luns: Vec::new(), ..target.clone() });
            }
        }
        for (entry, target) in fresh.targets.iter().zip(&new.targets) {
            if !entries.iter().any(|one| one.iqn == entry.iqn) {
                entries.push(entry.clone());
                targets.push(Target::new(target));
            }
        }
        self.targets = targets;
        self.sessions.name_targets(self.targets.iter().map(|target| target.name.clone()));
        self.node = Arc::new(Node { targets: entries, ..fresh });
    }

    /// Shows a session what has changed for it, or shows it out.
    pub(crate) fn reseat(&mut self, connection: &mut Connection) {
        if let Speech::Nbd(wire) = &mut connection.speech {
            if let Some(export) = wire.export() {
                wire.resize(self.capacity(self.export_volumes[export]));
            }
            return;
        }
        let Connection { speech: Speech::Iscsi(wire), seat: Some(seat), id, .. } = connection
        else {
            // A discovery session, which knows the old targets, or a login that is under way.
            if connection.speech.is_established() {
                self.errands.push_back(Errand::Close(connection.id, "the targets have changed"));
            }
            return;
        };
        let before: Vec<usize> = seat.units.iter().map(|seen| seen.volume).collect();
        let changed = seat.look(&self.targets[seat.target], &self.volumes, &self.claims);
        for volume in before {
            if seat.units.iter().all(|seen| seen.volume != volume) {
                self.volumes[volume].unit.nexus_lost(&seat.nexus);
            }
        }
        if self.may_stay(seat) {
            if changed {
                for seen in &mut seat.units {
                    seen.attention.raise(Sense::REPORTED_LUNS_CHANGED);
                }
            }
            self.warn_of_depth(seat);
        } else {
            let Nexus { initiator, target } = &*seat.nexus;
            warn!(peer = %connection.peer, initiator = initiator.name, target,
                "initiator no longer authorised; logout requested");
            wire.request_logout(LEAVE_WITHIN_SECONDS);
            let within = Duration::from_secs(LEAVE_WITHIN_SECONDS.into());
            connection.leave_by = Some(self.now + within);
        }
        self.errands.push_back(Errand::Write(*id));
    }

    /// Whether a session has anything to do at its target, by the configuration in force.
    pub(crate) fn may_stay(&self, seat: &Seat) -> bool {
        let entry = &self.node.targets[seat.target];
        !entry.removed
            && entry.redirect.is_none()
            && entry.is_for(&seat.nexus.initiator.name)
            && !seat.units.is_empty()
    }

    /// Whether an account, or none, is enough for a new session by the configuration in force. What the
    /// login asked for was in force when its connection came.
    pub(crate) fn is_proof(&self, seat: &Seat, account: Option<&str>) -> bool {
        let wanted = &self.node.targets[seat.target].authentication.accounts;
        let name = |&index: &usize| Some(self.node.accounts[index].name.as_str());
        wanted.is_empty() || account.is_some() && wanted.iter().map(name).any(|one| one == account)
    }

    /// Tells a session that the gateway leaves.
    pub(crate) fn take_leave(&mut self, connection: &mut Connection) {
        let id = connection.id;
        if connection.seat.is_some()
            && let Some(wire) = connection.iscsi()
        {
            wire.announce_drop(COME_BACK_AFTER_SECONDS, 0);
            self.errands.push_back(Errand::Write(id));
        }
    }
}

/// What a new configuration asks for that does not change live.
fn restarts(old: &Config, new: &Config) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut differs = |what: &str, same: bool| {
        if !same {
            reasons.push(format!("{what} differs"));
        }
    };
    // Each field is named, so that none is forgotten; what changes live is left out.
    let Config {
        listen,
        advertise: _,
        accounts: _,
        discovery: _,
        nbd,
        tenants,
        promises: _,
        shares: _,
        backends,
        upstreams,
        volumes,
        targets: _,
        policies,
        limits,
        paths,
        cache,
        iscsi,
        links,
        control,
        savings,
        take_over: _,
        record: _,
        stop_within,
    } = new;
    differs("`listen` of [iscsi]", old.listen == *listen);
    differs("a limit of [iscsi]", old.iscsi == *iscsi);
    differs("[nbd]", old.nbd == *nbd);
    differs("[[link]]", old.links == *links);
    differs("[limits]", old.limits == *limits);
    differs("[path]", old.paths == *paths);
    differs("[cache]", old.cache == *cache);
    differs("another policy than `control` of [policy]", {
        let control = old.policies.control.clone();
        old.policies == Policies { control, ..policies.clone() }
    });
    differs("the number of tenants", tenants.len() <= CONTRACTS_MAX);
    differs("[control]", old.control == *control);
    differs("[burst_credits]", old.savings == *savings);
    differs("`timeout` of [stop]", old.stop_within == *stop_within);
    differs("[[backend]]", old.backends == *backends);
    differs("[[upstream]]", old.upstreams == *upstreams);
    differs("the number of volumes, or their order,", {
        let name = |volume: &VolumeConfig| volume.name.clone();
        old.volumes.iter().map(name).eq(volumes.iter().map(name))
    });
    for (one, other) in old.volumes.iter().zip(volumes).filter(|(a, b)| a.name == b.name) {
        let VolumeConfig { tenant, cap, initiators, .. } = other.clone();
        let mut one = VolumeConfig { tenant, cap, initiators, ..one.clone() };
        if let ([Where::File(one)], [Where::File(other)]) = (&mut one.stores[..], &other.stores[..])
        {
            one.size = other.size;
        }
        let same = one == *other;
        let what = "a key other than the size, the cap, the initiators or the tenant";
        differs(&format!("{what} of volume `{}`", one.name), same);
    }
    reasons
}

/// How long a session that may not stay has for logging out.
const LEAVE_WITHIN_SECONDS: u16 = 10;

/// When hosts try again after the gateway has left.
const COME_BACK_AFTER_SECONDS: u16 = 2;
