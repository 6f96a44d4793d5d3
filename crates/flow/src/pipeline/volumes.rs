//! Volumes that come, change and go while others are served.
//!
//! A volume has a place in every table of the pipeline, which its [`VolumeId`] is. One that goes leaves its place
//! empty, and only a volume that comes as its successor has that place again: what refers to an id, such as a
//! recording, never means another volume by it.

use super::{Config, Pipeline};
use crate::accept::{Cap, Layout, Volume};
use crate::cache::writeback;
use crate::clock::Instant;
use crate::event::{Event, Observer};
use crate::path::Backend;
use crate::request::{TenantId, VolumeId};
use crate::settings::Settings as _;
use alloc::vec::Vec;

/// A volume that comes while others are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeAdded {
    /// Its place: the first that there is none for, or an empty one.
    pub id: VolumeId,
    /// What it is.
    pub volume: Volume,
    /// The backends that come with it. Their ids follow those that there are.
    pub backends: Vec<Backend>,
    /// The tenant that pays for background I/O.
    pub owner: TenantId,
    /// Its log, if it has one: what was found there is the next input of the volume.
    pub log: Option<writeback::Settings>,
}

impl VolumeAdded {
    /// What contradicts itself here, in a pipeline with `volumes` places and `backends` backends, as a message.
    pub fn validate(&self, volumes: usize, backends: usize) -> Result<(), &'static str> {
        let Self { id, volume, backends: more, log, .. } = self;
        if id.index() > volumes || id.index() >= VOLUMES_MAX {
            return Err("a volume comes to a place that is not the next");
        }
        if more.iter().any(|backend| backend.groups.is_empty()) {
            return Err("a backend has no path");
        }
        if log.is_some_and(|log| log.validate().is_err()) {
            return Err("the settings of a log contradict each other");
        }
        volume.validate(backends + more.len())
    }
}

/// Most places of volumes, those that are empty included.
pub const VOLUMES_MAX: usize = 65_536;

impl Config {
    /// What a pipeline of this configuration has when a volume has come, and these backends with it.
    pub fn add(
        &mut self,
        id: VolumeId,
        volume: &Volume,
        backends: &[Backend],
        log: Option<&writeback::Settings>,
    ) {
        self.backends.extend(backends.iter().cloned());
        if id.index() == self.volumes.len() {
            self.volumes.push(gone());
        }
        self.volumes[id.index()] = volume.clone();
        let logs = &mut self.cache.logs;
        logs.resize(logs.len().max(id.index() + 1), None);
        logs[id.index()] = log.copied();
    }

    /// What it has when a volume has gone.
    pub fn remove(&mut self, id: VolumeId) {
        self.volumes[id.index()] = gone();
        if let Some(log) = self.cache.logs.get_mut(id.index()) {
            *log = None;
        }
    }
}

impl<O: Observer> Pipeline<O> {
    /// A volume has another capacity: requests that arrive from now on are held to it.
    pub(super) fn resize(&mut self, volume: VolumeId, capacity: u64) {
        self.volumes[volume.index()].capacity = capacity;
        self.cache.resized(volume);
    }

    /// A volume comes. O(backends), if it brings any.
    pub(super) fn add_volume(&mut self, now: Instant, added: &VolumeAdded) {
        let VolumeAdded { id, volume, backends, owner, log } = added;
        let places = (self.volumes.len(), self.dispatch.backends().count());
        assert_eq!(added.validate(places.0, places.1), Ok(()), "it is checked before it comes");
        if self.volumes.get(id.index()).is_some_and(|here| !is_gone(here)) {
            self.observer.event(now, Event::Stray);
            return;
        }
        if !backends.is_empty() {
            self.dispatch.add_backends(backends.len());
            self.paths.add(now, backends);
        }
        if id.index() == self.volumes.len() {
            self.volumes.push(gone());
        }
        self.put(*id, volume, Some((*owner, *log)));
        self.observer.event(now, Event::VolumeAdded(*id, volume, backends, log.as_ref()));
    }

    /// A volume goes, unless it has requests: a reply to a host that has gone may still be on its way. Nor does it go
    /// before its log [has closed](crate::cache::Done::Close). The caller asks again; to look at each end of a request would
    /// cost every request. O(outstanding).
    pub(super) fn remove_volume(&mut self, now: Instant, id: VolumeId) {
        if is_gone(&self.volumes[id.index()]) {
            self.observer.event(now, Event::Stray);
            return;
        }
        let has_requests = self.requests.values().any(|entry| entry.request.volume == id);
        if has_requests || !self.cache.may_go(id) {
            return;
        }
        self.put(id, &gone(), None);
        self.observer.event(now, Event::VolumeRemoved(id));
    }

    /// Puts a volume, or none, into a place of which nothing is outstanding.
    fn put(
        &mut self,
        id: VolumeId,
        volume: &Volume,
        cached: Option<(TenantId, Option<writeback::Settings>)>,
    ) {
        self.volumes[id.index()] = volume.clone();
        self.losses.put(id, volume);
        self.caps.put(id, volume);
        self.hazards.reach(id);
        self.cache.put(id, cached);
    }
}

/// Whether this is in an empty place.
const fn is_gone(volume: &Volume) -> bool {
    volume.layout.parts() == 0
}

/// What is in an empty place.
const fn gone() -> Volume {
    Volume {
        capacity: 0,
        layout: Layout::Concat(Vec::new()),
        max_transfer: u64::MAX,
        cap: Cap::NONE,
    }
}
