//! Modelled devices: files keep the bytes, models say how long that takes.
//!
//! An I/O of a volume on a modelled device goes to its file and to the model at the same time, and ends
//! when both have done with it. A model that is done last ends the I/O at its own time, to the
//! nanosecond, however late the timer was: what the pipeline starts because of it begins at the device
//! at that time, so lateness does not add up. A file that is done last is counted, with how late it was: more
//! than a few of those, and what hosts see is the file and not the model.
//!
//! What a model knows of the past, such as where the pages of a flash device are and how worn its blocks, is not
//! kept over a restart: a device begins as its configuration says (`filled_permille`), and the bytes are the
//! files'.

use crate::config::{Backend, Config};
use crate::storage::store::Store;
use slotmap::{Key, KeyData, SecondaryMap};
use std::collections::BTreeSet;
use weir_flow::account::histogram::Histogram;
use weir_flow::clock::Instant;
use weir_flow::pipeline::{Input, StoreIo};
use weir_flow::request::{Outcome, RequestKey};
use weir_flow::units::Extent;
use weir_model::device::{Device, DeviceIo, Wear};

/// All modelled devices, and what they have.
pub(crate) struct Modelled {
    devices: Vec<Emulated>,
    /// The part of a device that each store is on.
    stores: Regions,
    wakes: BTreeSet<(Instant, usize)>,
    /// The device of an I/O, and who is not done with it.
    ios: SecondaryMap<RequestKey, (usize, Left)>,
}

struct Emulated {
    device: Box<dyn Device>,
    /// When it wants to be asked, if it does.
    armed: Option<Instant>,
    kept: Kept,
}

/// How well a model's time is kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// I/Os that have ended.
    pub(crate) ios: u64,
    /// Those whose file was later than the model: by how much.
    pub(crate) late: Histogram,
    /// The others: how long after the model's time the gateway went on with them.
    pub(crate) timer: Histogram,
}

/// Where a store is on its device.
#[derive(Clone, Copy, Debug)]
struct Region {
    device: usize,
    begin: u64,
    /// Bytes from there to the next store, or to the end of the device.
    room: u64,
}

/// What an I/O waits for.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// The file and the model.
    Both,
    /// The file; the model said this, for this time.
    File(Outcome, Instant),
    /// The model; the file said this.
    Model(Outcome),
}

impl Modelled {
    /// Idle devices. Stores that share one lie on it one behind the other, in the order of the configuration.
    pub(crate) fn new(config: &Config, stores: &[Store]) -> Self {
        let device = |one: &crate::config::Backend| Emulated {
            device: one.model.build(SEED, &one.name),
            armed: None,
            kept: Kept::default(),
        };
        Self {
            devices: config.backends.iter().map(device).collect(),
            stores: Regions::new(config, stores),
            wakes: BTreeSet::new(),
            ios: SecondaryMap::new(),
        }
    }

    /// Gives an I/O to the model of its store, if that has one.
    pub(crate) fn start(&mut self, now: Instant, io: &StoreIo, store: usize) {
        let Some(Region { device, begin, .. }) = self.stores.0[store] else { return };
        let extent = Extent { offset: begin + io.extent.offset, ..io.extent };
        let id = io.key.data().as_ffi();
        self.devices[device].device.start(now, DeviceIo { id, op: io.op, extent, fua: io.fua });
        self.ios.insert(io.key, (device, Left::Both));
        self.arm(device);
    }

    /// The file has done with an I/O; how that ends if nothing else is waited for.
    pub(crate) fn stored(
        &mut self,
        now: Instant,
        key: RequestKey,
        outcome: Outcome,
    ) -> Option<Outcome> {
        let Some((device, left)) = self.ios.get_mut(key) else { return Some(outcome) };
        if let Left::File(modelled, at) = *left {
            let kept = &mut self.devices[*device].kept;
            kept.ios += 1;
            kept.late.record(now.saturating_since(at));
            self.ios.remove(key);
            return Some(outcome.and(modelled));
        }
        *left = Left::Model(outcome);
        None
    }

    /// How well the time of each device was kept, and what its flash has been through.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (&Kept, Option<Wear>)> {
        self.devices.iter().map(|one| (&one.kept, one.device.wear()))
    }

    /// The most bytes that a store may have.
    pub(crate) fn room(&self, store: usize) -> u64 {
        self.stores.0[store].map_or(u64::MAX, |region| region.room)
    }

    /// Where stores are on devices.
    pub(crate) const fn regions(&self) -> &Regions {
        &self.stores
    }

    /// Stores are there from now on. Nothing is at one whose place changes.
    pub(crate) fn set_regions(&mut self, regions: Regions) {
        self.stores = regions;
    }

    /// A store has gone. Nothing is at it.
    pub(crate) fn remove(&mut self, store: usize) {
        self.stores.0[store] = None;
    }

    /// When something happens at a device next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.wakes.first().map(|&(at, _)| at)
    }

    /// The next I/O that a model has ended by `now` and nothing else is waited for, and when that was.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(Instant, Input)> {
        while let Some(&(at, index)) = self.wakes.first().filter(|&&(at, _)| at <= now) {
            let finished = self.devices[index].device.finished(at);
            self.arm(index);
            let Some((id, modelled)) = finished else { continue };
            let key: RequestKey = KeyData::from_ffi(id).into();
            let (_, left) = self.ios.get_mut(key).expect("a model ends what it was given, once");
            if let Left::Model(stored) = *left {
                self.ios.remove(key);
                let kept = &mut self.devices[index].kept;
                kept.ios += 1;
                kept.timer.record(now.saturating_since(at));
                return Some((at, Input::Stored { key, outcome: stored.and(modelled) }));
            }
            *left = Left::File(modelled, at);
        }
        None
    }

    /// Notes when a device wants to be asked.
    fn arm(&mut self, index: usize) {
        let Emulated { device, armed, .. } = &mut self.devices[index];
        let next = device.next();
        if *armed != next {
            let old = std::mem::replace(armed, next);
            if let Some(at) = old {
                self.wakes.remove(&(at, index));
            }
            if let Some(at) = next {
                self.wakes.insert((at, index));
            }
        }
    }
}

/// The part of a device that each store is on, in the row of all stores.
#[derive(Clone, Debug)]
pub(crate) struct Regions(Vec<Option<Region>>);

impl Regions {
    fn new(config: &Config, stores: &[Store]) -> Self {
        let places: Vec<_> = config.volumes.iter().flat_map(|volume| &volume.stores).collect();
        let mut regions = vec![None; places.len()];
        for (device, backend) in config.backends.iter().enumerate() {
            let on = |&store: &usize| {
                places[store].file().is_some_and(|file| file.backend == Some(device))
            };
            let here: Vec<usize> = (0..places.len()).filter(on).collect();
            let sizes = here.iter().map(|&store| stores[store].capacity());
            let (begins, _) = backend.model.regions(sizes);
            for (&begin, &store) in begins.iter().zip(&here) {
                regions[store] = Some(Region { device, begin, room: 0 });
            }
        }
        let mut regions = Self(regions);
        for (device, backend) in config.backends.iter().enumerate() {
            regions.share(device, backend.model.capacity());
        }
        regions
    }

    /// Finds room for a store of `size` bytes on a device, behind others or where one has gone; false if there is none.
    /// `used` has the bytes of the stores that there are.
    pub(crate) fn put(
        &mut self,
        store: usize,
        (device, backend): (usize, &Backend),
        size: u64,
        used: impl Fn(usize) -> u64,
    ) -> bool {
        let span = |size: u64| backend.model.regions([size]).1;
        let on = |region: &&(usize, Region)| region.1.device == device;
        let all = self.0.iter().enumerate().filter_map(|(store, region)| Some((store, (*region)?)));
        let all: Vec<(usize, Region)> = all.collect();
        let taken = all
            .iter()
            .filter(on)
            .map(|&(store, Region { begin, .. })| (begin, begin.saturating_add(span(used(store)))));
        let mut taken: Vec<(u64, u64)> = taken.collect();
        taken.sort_unstable();
        let mut begin = 0_u64;
        for (first, end) in taken {
            if begin.saturating_add(span(size)) <= first {
                break;
            }
            begin = begin.max(end);
        }
        let end = begin.saturating_add(span(size));
        if backend.model.capacity().is_some_and(|capacity| end > capacity) {
            return false;
        }
        if self.0.len() <= store {
            self.0.resize(store + 1, None);
        }
        self.0[store] = Some(Region { device, begin, room: 0 });
        self.share(device, backend.model.capacity());
        true
    }

    /// There are places for this number of stores.
    pub(crate) fn reach(&mut self, count: usize) {
        self.0.resize(self.0.len().max(count), None);
    }

    /// Gives each store of a device the room to the next one, or to the end.
    fn share(&mut self, device: usize, capacity: Option<u64>) {
        let mut here: Vec<&mut Region> =
            self.0.iter_mut().flatten().filter(|region| region.device == device).collect();
        here.sort_unstable_by_key(|region| region.begin);
        let mut end = capacity;
        for region in here.into_iter().rev() {
            region.room = capacity.and(end).map_or(u64::MAX, |end| end - region.begin);
            end = Some(region.begin);
        }
    }
}

/// The seed of the models' random streams: a gateway that is started again has the same devices.
const SEED: u64 = 1;

#[cfg(test)]
mod tests;
