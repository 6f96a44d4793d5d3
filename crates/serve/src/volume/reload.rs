//! A configuration that is read again while hosts are connected: what changes live, and what does not.
//!
//! | changes live | how hosts learn of it |
//! |---|---|
//! | the cap of a volume | not at all; it also holds for requests that wait |
//! | size of a volume on one store, upwards, in memory as well | CAPACITY DATA HAS CHANGED; NBD clients are not told, but may use it |
//! | targets, their LUNs, who may see them | REPORTED LUNS DATA HAS CHANGED; initiators without access receive a logout request |
//! | NVMe subsystems, their namespaces, hosts and addresses | events, or the end of the controllers of hosts without access |
//! | contracts, groups and the control policy | not at all: requests that wait are handed over, and wait by the new rules |
//! | shares of tenants and of the background | not at all: they hold for what is charged from then on |
//! | tenants, the hosts that they claim, the tenants of volumes | not at all: what arrives from then on is theirs |
//! | how long a stop takes | not at all |
//! | accounts, authentication, redirects, advertised addresses | at the next login |
//! | targets, portals and servers of iSNS | by a notification of the server, if they ask for one |
//! | volumes on files and devices of this machine, with their logs, in memory, and null volumes | as of targets and namespaces; NBD clients at their next connection |
//! | NBD exports | at the next connection |
//!
//! A volume that hosts find, or of which something is only in its log, or an export that has clients, is only taken away by
//! force ([`Uses`]).
//!
//! Everything else needs a restart. A file that asks for that as well changes nothing: half of a
//! configuration is none.
//!
//! Tenants and volumes keep their ids, in whatever order they are: see [`keep_ids`] and [`keep_places`].

use crate::config::{Config, Nbd, Nvme, Places, Rejected, Volume as VolumeConfig, Where};
use crate::storage::file::backing::Backing;
use crate::storage::layout;
use crate::storage::log_device;
use crate::storage::state_file;
use crate::volume::catalog::Catalog;
use crate::volume::live::keep_places;
use crate::volume::tenants::{Claims, keep_ids};
use crate::volume::{Life, paths_of};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tracing::{error, info};
use weir_flow::control::CONTRACTS_MAX;
use weir_flow::dispatch::Member;
use weir_flow::pipeline::{Input, Policies, SetControl, VOLUMES_MAX};
use weir_flow::request::{TenantId, VolumeId};
use weir_flow::units::ByteCount;

/// A new configuration that can be put into force.
#[derive(Debug)]
pub(crate) struct Planned {
    config: Config,
    /// The size in bytes of each volume that stays.
    sizes: Vec<(usize, u64)>,
    /// The volumes that come, and the sizes of their stores.
    added: Vec<(usize, Vec<u64>)>,
    /// The volumes that go.
    removed: Vec<usize>,
}

impl Planned {
    /// The configuration, with volumes and tenants at their places.
    pub(crate) const fn config(&self) -> &Config {
        &self.config
    }

    /// The volumes that come, and the sizes of their stores in bytes.
    pub(crate) fn added(&self) -> impl Iterator<Item = (usize, &[u64])> {
        self.added.iter().map(|(index, sizes)| (*index, &sizes[..]))
    }

    /// The size in bytes that a volume that stays shall have.
    pub(crate) fn size(&self, volume: usize) -> Option<u64> {
        self.sizes.iter().find(|(index, _)| *index == volume).map(|&(_, size)| size)
    }

    /// The volumes that grow.
    pub(crate) fn growth(&self, catalog: &Catalog) -> Vec<Growth> {
        let sizes = self.sizes.iter();
        let all = sizes.map(|&(volume, to)| Growth { volume, from: catalog.capacity(volume), to });
        all.filter(|one| one.from < one.to).collect()
    }

    /// The volumes that go.
    pub(crate) fn removed(&self) -> impl Iterator<Item = usize> {
        self.removed.iter().copied()
    }
}

/// The capacity of a volume that grows, in bytes.
#[derive(Debug)]
pub(crate) struct Growth {
    pub(crate) volume: usize,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Who uses what may be taken away.
pub(crate) struct Uses<'a> {
    /// It goes nevertheless.
    pub(crate) force: bool,
    /// The hosts that find a volume, and how, in words.
    pub(crate) of_volume: &'a dyn Fn(usize) -> Vec<String>,
    /// What is only in the logs of volumes.
    pub(crate) in_log: &'a InLogs,
    /// The volumes whose logs were opened for this reload.
    pub(crate) opened: &'a dyn Fn(usize) -> bool,
    /// The clients of an NBD export, by its place, in words.
    pub(crate) of_export: &'a dyn Fn(usize) -> Vec<String>,
}

/// What the log of a volume has that the volume's own storage does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InLog {
    pub(crate) bytes: ByteCount,
    /// Some have no bytes, such as those that unmap.
    pub(crate) records: u64,
}

impl fmt::Display for InLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} records", self.bytes, self.records)
    }
}

/// That of each volume whose log has something.
pub(crate) type InLogs = BTreeMap<usize, InLog>;

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

/// What is wrong with a new configuration, by what there is to do about it.
#[derive(Debug, Default)]
struct Faults {
    restarts: Vec<String>,
    in_use: Vec<String>,
    shrinks: Vec<String>,
    unavailable: Vec<String>,
}

impl Faults {
    /// All of them, as the kind that is hardest to put right.
    fn verdict(self) -> Result<(), Rejected> {
        let Self { restarts, in_use, shrinks, unavailable } = self;
        for reason in &restarts {
            error!(reason, "this needs a restart; the configuration stays as it was");
        }
        for reason in &in_use {
            error!(reason, "this is in use; the configuration stays as it was");
        }
        for reason in &shrinks {
            error!(
                reason,
                "a volume does not shrink while it is served; the configuration stays as it was"
            );
        }
        for reason in &unavailable {
            error!(reason, "this cannot be had; the configuration stays as it was");
        }
        let rejected = if !restarts.is_empty() {
            Rejected::NeedsRestart
        } else if !in_use.is_empty() {
            Rejected::InUse
        } else if !shrinks.is_empty() {
            Rejected::Shrinks
        } else if !unavailable.is_empty() {
            Rejected::Unavailable
        } else {
            return Ok(());
        };
        Err(rejected([restarts, in_use, shrinks, unavailable].concat()))
    }
}

impl Catalog {
    /// Checks whether a new configuration can be put into force; changes nothing. `job` is the job that keeps a volume from
    /// going, `room` the size that the volume on a store may have, `places` where the new one names files.
    pub(crate) fn plan_reload(
        &self,
        old: &Config,
        mut new: Config,
        (uses, job): (&Uses<'_>, &dyn Fn(usize) -> Option<&'static str>),
        (room, places): (&dyn Fn(usize) -> u64, &Places),
    ) -> Result<Planned, Rejected> {
        let tenants = std::mem::take(&mut new.tenants);
        let volumes = new.volumes.iter_mut().map(|volume| &mut volume.tenant);
        let (contracts, weights) = (&mut new.promises.contracts, &mut new.shares.tenants);
        new.tenants = keep_ids(&old.tenants, tenants, contracts, weights, volumes);
        keep_places(&old.volumes, &mut new);
        let mut faults = Faults { restarts: restarts(old, &new), ..Faults::default() };
        let (mut sizes, mut added, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for (index, volume) in new.volumes.iter().enumerate() {
            let before = old.volumes.get(index).filter(|volume| volume.is_there());
            match (before, volume.is_there()) {
                (None, false) => {}
                (None, true) => {
                    let opened = (uses.opened)(index);
                    let sizes = self.come((index, opened), volume, places, &mut faults);
                    added.push((index, sizes));
                }
                (Some(_), true) => {
                    sizes.push((index, self.size(index, volume, (room, places), &mut faults)));
                }
                (Some(_), false) => {
                    removed.push(index);
                    let told = used_by(index, uses, job);
                    let name = &volume.name;
                    faults
                        .in_use
                        .extend(told.map(|by| format!("volume `{name}` is in use by {by}")));
                    if let (Some(in_log), false) = (uses.in_log.get(&index), uses.force) {
                        faults.in_use.push(format!(
                            "volume `{name}` has {in_log} in its log that its own storage does not have: `weir volume drain \
                             {name}` writes that there, --force leaves it in the log"
                        ));
                    }
                }
            }
        }
        for (place, export) in self.exports.as_slice().iter().enumerate() {
            let Some(volume) = self.export_volumes[place] else { continue };
            let stays =
                |one: &crate::config::Export| one.name == export.name && one.volume == volume;
            if removed.contains(&volume) || uses.force || new.nbd.exports.iter().any(stays) {
                continue;
            }
            if let Some(by) = list((uses.of_export)(place)) {
                faults.in_use.push(format!("export `{}` is in use by {by}", export.name));
            }
        }
        faults.verdict()?;
        Ok(Planned { config: new, sizes, added, removed })
    }

    /// Whether a volume can come, whose log may be open; the sizes of its stores.
    fn come(
        &self,
        (index, opened): (usize, bool),
        volume: &VolumeConfig,
        places: &Places,
        faults: &mut Faults,
    ) -> Vec<u64> {
        let name = &volume.name;
        let at = |keys: &[&'static str], told: &str| places.at("volume", name, keys, told);
        if self.volumes.get(index).is_some_and(|before| before.life == Life::Leaves) {
            let told = format!("volume `{name}` was removed, and its last requests have not ended");
            faults.unavailable.push(at(&["name"], &told));
            return Vec::new();
        }
        let mut sizes = Vec::new();
        // What leaves still has its files, and may write to them.
        let there = self.volumes.iter().filter(|other| other.life != Life::Gone);
        let paths = paths_of(volume);
        let taken = there.flat_map(|other| other.paths.iter().map(move |path| (path, &other.name)));
        let taken: Vec<_> = taken.filter(|(path, _)| paths.contains(path)).collect();
        for (path, other) in &taken {
            let told = format!(
                "volume `{name}`: {} is that of volume `{other}` until it has been removed: add this one after that",
                path.display(),
            );
            let is_data = volume.files().any(|file| file.path == **path);
            let is_log = volume.log.as_ref().is_some_and(|log| log.path == **path);
            let keys: &[_] = match (is_data, is_log) {
                (true, _) => &["file", "stores"],
                (false, true) => &["log"],
                _ => &["state", "file"],
            };
            faults.unavailable.push(at(keys, &told));
        }
        if !taken.is_empty() {
            return Vec::new();
        }
        for store in &volume.stores {
            match store {
                Where::File(file) => match Backing::check(volume, file) {
                    Ok(size) => sizes.push(size),
                    Err(problem) => faults.unavailable.push(layout::at(places, volume, &problem)),
                },
                Where::Memory(memory) => sizes.push(memory.size),
                // That is refused elsewhere.
                Where::Upstream { .. } => {}
            }
        }
        if sizes.len() == volume.stores.len() {
            let name = |store: usize| volume.stores[store].name().to_owned();
            let fits = layout::fits(volume, &sizes, name);
            faults
                .unavailable
                .extend(fits.err().map(|problem| layout::at(places, volume, &problem)));
        }
        let checked = volume.state.as_deref().map_or(Ok(()), state_file::check);
        let told = checked.err().map(|problem| format!("volume `{name}`: {problem}"));
        faults.unavailable.extend(told.map(|told| at(&["state", "file"], &told)));
        if !opened && let Err(problem) = log_device::check(volume) {
            faults.unavailable.push(at(&["log", "state"], &problem.to_string()));
        }
        sizes
    }

    /// Extends the files of volumes that grow. Those that were extended before an error keep their length.
    pub(crate) fn grow(&self, planned: &Planned) -> Result<(), Rejected> {
        for &(index, size) in &planned.sizes {
            let only = self.only_store(index);
            if let Some(Err(problem)) = only.map(|store| store.grow(size)) {
                let (volume, wanted) = (&self.volumes[index].name, ByteCount(size));
                error!(volume, %wanted, %problem, "cannot extend the volume's file; nothing was changed");
                return Err(Rejected::Unavailable(vec![format!(
                    "cannot extend the file of volume `{volume}` to {wanted}: {problem}"
                )]));
            }
        }
        Ok(())
    }

    /// Puts a planned configuration into force. Volumes that come have come.
    pub(crate) fn reload(&mut self, old: &Config, planned: Planned) -> Reloaded {
        let Planned { config: mut new, sizes, .. } = planned;
        let (mut inputs, mut resized) = (Vec::new(), Vec::new());
        for (index, size) in sizes {
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
        inputs.extend(volume_streams(&old.nvme, &new.nvme));
        self.export(&new.nbd);
        self.set_nvme(&new.nvme);
        self.retarget(&mut new);
        info!("the new configuration is in force");
        Reloaded { config: new, inputs, resized }
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

    /// The size that a volume shall have: the one that it has, if that is at fault.
    fn size(
        &self,
        index: usize,
        volume: &VolumeConfig,
        (room, places): (&dyn Fn(usize) -> u64, &Places),
        faults: &mut Faults,
    ) -> u64 {
        let (now, name) = (self.capacity(index), &volume.name);
        let at = |told: String| {
            layout::store_at(places, volume, volume.file(), &["size", "file"], &told)
        };
        // Where the bytes of several stores are depends on their sizes, which are computed when they are opened.
        let Some(store) = self.only_store(index) else { return now };
        let size = match volume.size() {
            Some(size) => size,
            None => match store.measure() {
                Ok(size) => size - size % u64::from(volume.block_size),
                Err(problem) => {
                    faults.unavailable.push(at(format!(
                        "cannot read the size of the file of volume `{name}`: {problem}"
                    )));
                    return now;
                }
            },
        };
        let wanted = ByteCount(size);
        if size < now {
            let now = ByteCount(now);
            faults.shrinks.push(at(format!("volume `{name}` would shrink from {now} to {wanted}")));
        }
        let room = room(self.volumes[index].stores.start);
        if size > now && size > room {
            faults.unavailable.push(at(format!(
                "volume `{name}` cannot grow to {wanted}: its modelled device has room for {}",
                ByteCount(room)
            )));
        } else if let Err(problem) = store.can_grow(size) {
            faults
                .unavailable
                .push(at(format!("volume `{name}` cannot grow to {wanted}: {problem}")));
        }
        size
    }
}

/// Who uses a volume, if that keeps it from going.
fn used_by(
    index: usize,
    uses: &Uses<'_>,
    job: &dyn Fn(usize) -> Option<&'static str>,
) -> Option<String> {
    let mut by = if uses.force { Vec::new() } else { (uses.of_volume)(index) };
    by.extend(job(index).map(ToOwned::to_owned));
    list(by)
}

/// The first of these on one line, and the number of the others; `None` if there is none.
fn list(mut all: Vec<String>) -> Option<String> {
    let more = all.len().saturating_sub(USERS);
    all.truncate(USERS);
    let text = all.join(", ");
    match (all.len(), more) {
        (0, _) => None,
        (_, 0) => Some(text),
        (_, more) => Some(format!("{text} and {more} more")),
    }
}

/// Users of a volume in a message.
const USERS: usize = 8;

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
        isns,
        savings,
        take_over: _,
        record: _,
        recorder,
        log_format,
        stop: _,
    } = new;
    differs("`listen` of [iscsi]", old.listen == *listen);
    differs("a limit of [iscsi]", old.iscsi == *iscsi);
    differs("a key other than `exports` of [nbd]", {
        Nbd { exports: old.nbd.exports.clone(), ..nbd.clone() } == old.nbd
    });
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
    let ports = [&old.isns, isns].map(|one| one.as_ref().map(|isns| isns.port));
    differs("`port` of [isns], or whether there is one", ports[0] == ports[1]);
    differs("[burst_credits]", old.savings == *savings);
    differs("[recorder]", old.recorder == *recorder);
    differs("[log]", old.log_format == *log_format);
    differs("[[backend]]", old.backends == *backends);
    differs("[[upstream]]", old.upstreams == *upstreams);
    differs("the number of names of volumes since the start", volumes.len() <= VOLUMES_MAX);
    for (one, other) in old.volumes.iter().zip(volumes) {
        if !one.is_there() || !other.is_there() {
            continue;
        }
        let VolumeConfig { tenant, cap, initiators, .. } = other.clone();
        let mut one = VolumeConfig { tenant, cap, initiators, ..one.clone() };
        if let ([Where::File(one)], [Where::File(other)]) = (&mut one.stores[..], &other.stores[..])
        {
            one.size = other.size;
        }
        if let ([Where::Memory(one)], [Where::Memory(other)]) =
            (&mut one.stores[..], &other.stores[..])
        {
            one.size = other.size;
        }
        let same = one == *other;
        let moved = !one.files().map(|file| &file.path).eq(other.files().map(|file| &file.path));
        let what = if moved {
            "the file"
        } else {
            "a key other than the size, the cap, the initiators or the tenant"
        };
        differs(&format!("{what} of volume `{}`", one.name), same);
    }
    for (index, volume) in volumes.iter().enumerate() {
        let before = old.volumes.get(index).filter(|volume| volume.is_there());
        let (volume, does) = match before {
            Some(before) if !volume.is_there() => (before, "goes"),
            None if volume.is_there() => (volume, "comes"),
            _ => continue,
        };
        let name = &volume.name;
        if volume.stores.iter().any(|store| matches!(store, Where::Upstream { .. })) {
            reasons.push(format!("volume `{name}` is on an upstream and {does}"));
        }
    }
    reasons
}
/// What the pipeline must know of volumes that are streams within their tenants, or not any more.
pub(crate) fn volume_streams(old: &Nvme, new: &Nvme) -> Vec<Input> {
    let (old, new) = (old.volume_streams(), new.volume_streams());
    let member = |&volume: &usize| Member::Volume(VolumeId::new(volume as u32));
    let ended = old.keys().filter(|volume| !new.contains_key(volume));
    let ended = ended.map(|volume| Input::Substream(member(volume), None));
    let changed = new.iter().filter(|(volume, weight)| old.get(volume) != Some(weight));
    let changed = changed.map(|(volume, &weight)| Input::Substream(member(volume), Some(weight)));
    ended.chain(changed).collect()
}
