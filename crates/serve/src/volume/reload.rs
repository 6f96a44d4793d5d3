//! A configuration that is read again while hosts are connected: what changes live, and what does not.
//!
//! | changes live | how hosts learn of it |
//! |---|---|
//! | the cap of a volume | not at all; it also holds for requests that wait |
//! | size of a volume on one store, upwards | CAPACITY DATA HAS CHANGED; NBD clients are not told, but may use it |
//! | targets, their LUNs, who may see them | REPORTED LUNS DATA HAS CHANGED; initiators without access receive a logout request |
//! | NVMe subsystems, their namespaces, hosts and addresses | events, or the end of the controllers of hosts without access |
//! | contracts, groups and the control policy | not at all: requests that wait are handed over, and wait by the new rules |
//! | shares of tenants and of the background | not at all: they hold for what is charged from then on |
//! | tenants, the hosts that they claim, the tenants of volumes | not at all: what arrives from then on is theirs |
//! | accounts, authentication, redirects, advertised addresses | at the next login |
//!
//! Everything else needs a restart. A file that asks for that as well changes nothing: half of a
//! configuration is none.
//!
//! Tenants keep their ids, in whatever order they are: see [`keep_ids`].

use crate::config::{Config, Nvme, Rejected, Volume as VolumeConfig, Where};
use crate::volume::catalog::Catalog;
use crate::volume::tenants::{Claims, keep_ids};
use std::sync::Arc;
use tracing::{error, info};
use weir_flow::control::CONTRACTS_MAX;
use weir_flow::pipeline::{Input, Policies, SetControl};
use weir_flow::request::{TenantId, VolumeId};
use weir_flow::units::ByteCount;

/// A new configuration that can be put into force.
#[derive(Debug)]
pub(crate) struct Planned {
    config: Config,
    /// The size of each volume in bytes.
    sizes: Vec<u64>,
}

/// What a reload has changed, for others.
#[derive(Debug)]
pub(crate) struct Reloaded {
    /// The configuration that is in force now.
    pub(crate) config: Config,
    /// The inputs for the pipeline.
    pub(crate) inputs: Vec<Input>,
    /// The volumes whose hosts must learn of a new size.
    pub(crate) resized: Vec<usize>,
}

impl Catalog {
    /// Checks whether a new configuration can be put into force; changes nothing. `room` is the size that the
    /// volume on a store may have.
    pub(crate) fn plan_reload(
        &self,
        old: &Config,
        new: Config,
        room: impl Fn(usize) -> u64,
    ) -> Result<Planned, Rejected> {
        let mut new = new;
        let tenants = std::mem::take(&mut new.tenants);
        let volumes = new.volumes.iter_mut().map(|volume| &mut volume.tenant);
        let (contracts, weights) = (&mut new.promises.contracts, &mut new.shares.tenants);
        new.tenants = keep_ids(&old.tenants, tenants, contracts, weights, volumes);
        let reasons = restarts(old, &new);
        if !reasons.is_empty() {
            for reason in &reasons {
                error!(reason, "this needs a restart; the configuration stays as it was");
            }
            return Err(Rejected::NeedsRestart(reasons));
        }
        let sizes = new
            .volumes
            .iter()
            .enumerate()
            .map(|(index, volume)| self.size(index, volume, &room))
            .collect::<Result<_, _>>()?;
        Ok(Planned { config: new, sizes })
    }

    /// Puts a planned configuration into force. An error: a file could not be extended.
    pub(crate) fn reload(&mut self, old: &Config, planned: Planned) -> Result<Reloaded, Rejected> {
        let Planned { config: mut new, sizes } = planned;
        for (index, &size) in sizes.iter().enumerate() {
            let only = self.only_store(index);
            if let Some(Err(problem)) = only.map(|store| store.grow(size)) {
                let (volume, wanted) = (&new.volumes[index].name, ByteCount(size));
                error!(volume, %wanted, %problem, "cannot extend the volume's file; nothing was changed");
                return Err(Rejected::Unavailable(format!(
                    "cannot extend the file of volume `{volume}` to {wanted}: {problem}"
                )));
            }
        }
        let (mut inputs, mut resized) = (Vec::new(), Vec::new());
        for (index, size) in sizes.into_iter().enumerate() {
            if self.resize(index, size) {
                inputs.push(Input::Resized(VolumeId::new(index as u32), size));
                resized.push(index);
            }
            let (volume, new) = (&mut self.volumes[index], &new.volumes[index]);
            volume.initiators = new.initiators.clone();
            volume.tenant = TenantId::new(new.tenant as u32);
            let (was, cap) = (old.volumes[index].cap, new.cap);
            if was != cap {
                inputs.push(Input::Capped(VolumeId::new(index as u32), cap));
            }
        }
        self.set_control(old, &new, &mut inputs);
        self.export(&new.nbd);
        self.set_nvme(&new.nvme);
        self.retarget(&mut new);
        info!("the new configuration is in force");
        Ok(Reloaded { config: new, inputs, resized })
    }

    /// Puts new promises, a new policy that keeps them, and new shares into force.
    fn set_control(&mut self, old: &Config, new: &Config, inputs: &mut Vec<Input>) {
        let names = new.tenants.iter().map(|tenant| tenant.name.clone());
        self.tenant_names.replace(names.collect());
        self.claims = Claims::new(&new.tenants, &new.promises);
        let (control, promises) = (&new.policies.control, &new.promises);
        // A policy that is replaced by itself forgets what it has learnt.
        if (control, promises) != (&old.policies.control, &old.promises) {
            let contracts = promises.contracts.iter().flatten().count();
            info!(policy = control.policy().name, contracts, "control changed");
            let set_control = SetControl { control: control.clone(), promises: promises.clone() };
            inputs.push(Input::SetControl(Arc::new(set_control)));
        }
        if new.shares != old.shares {
            info!("shares changed");
            inputs.push(Input::SetWeights(Arc::new(new.shares.clone())));
        }
    }

    /// The size that a volume shall have.
    fn size(
        &self,
        index: usize,
        volume: &VolumeConfig,
        room: impl Fn(usize) -> u64,
    ) -> Result<u64, Rejected> {
        let now = self.capacity(index);
        // Where the bytes of several stores are depends on their sizes, which are computed at the start.
        let Some(store) = self.only_store(index) else { return Ok(now) };
        let size = match volume.file().and_then(|file| file.size) {
            Some(size) => size,
            None => match store.measure() {
                Ok(size) => size - size % u64::from(volume.block_size),
                Err(problem) => {
                    error!(volume = volume.name, %problem, "cannot read the size of the volume's file");
                    return Err(Rejected::Unavailable(format!(
                        "cannot read the size of the file of volume `{}`: {problem}",
                        volume.name
                    )));
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
            return Err(Rejected::Shrinks(format!(
                "volume `{}` would shrink from {} to {}",
                volume.name,
                ByteCount(now),
                ByteCount(size)
            )));
        }
        let room = room(self.volumes[index].stores.start);
        if size > now && size > room {
            let (wanted, room) = (ByteCount(size), ByteCount(room));
            error!(
                volume = volume.name,
                %wanted,
                %room,
                "the volume cannot grow: the space behind it on its modelled device is taken or \
                 missing; the configuration stays as it was"
            );
            return Err(Rejected::Unavailable(format!(
                "volume `{}` cannot grow to {wanted}: its modelled device has room for {room}",
                volume.name
            )));
        }
        if let Err(problem) = store.can_grow(size) {
            let wanted = ByteCount(size);
            error!(volume = volume.name, %wanted, %problem, "the volume cannot grow");
            return Err(Rejected::Unavailable(format!(
                "volume `{}` cannot grow to {wanted}: {problem}",
                volume.name
            )));
        }
        Ok(size)
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
        nvme,
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
        http,
        savings,
        take_over: _,
        record: _,
        recorder,
        stop,
    } = new;
    differs("`listen` of [iscsi]", old.listen == *listen);
    differs("a limit of [iscsi]", old.iscsi == *iscsi);
    differs("[nbd]", old.nbd == *nbd);
    differs("a key other than `advertise` of [nvme]", {
        let Nvme { advertise, subsystems, .. } = nvme.clone();
        Nvme { advertise, subsystems, ..old.nvme.clone() } == *nvme
    });
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
    let places = [&old.http, http].map(|one| one.as_ref().map(|http| &http.listen));
    differs("`listen` of [http]", places[0] == places[1]);
    differs("[burst_credits]", old.savings == *savings);
    differs("[recorder]", old.recorder == *recorder);
    differs("`timeout` of [stop]", old.stop == *stop);
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
