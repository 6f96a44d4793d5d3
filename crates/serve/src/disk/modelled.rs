//! Modelled devices: files keep the bytes, models say how long that takes.
//!
//! An I/O of a volume on a modelled device goes to its file and to the model at the same time, and ends
//! when both have done with it. A model that is done last ends the I/O at its own time, to the
//! nanosecond, however late the timer was: what the pipeline starts because of it begins at the device
//! at that time, so lateness does not add up.

use crate::config::Config;
use slotmap::{Key, KeyData, SecondaryMap};
use std::collections::BTreeSet;
use weir_flow::clock::Instant;
use weir_flow::pipeline::{Input, StoreIo};
use weir_flow::request::{Outcome, RequestKey};
use weir_model::device::{Device, DeviceIo};

/// All modelled devices, and what they have.
pub(crate) struct Modelled {
    devices: Vec<Box<dyn Device>>,
    /// The device of each store.
    stores: Vec<Option<usize>>,
    /// When each device wants to be asked, if it does.
    armed: Vec<Option<Instant>>,
    wakes: BTreeSet<(Instant, usize)>,
    /// Who is not done with an I/O.
    ios: SecondaryMap<RequestKey, Left>,
}

/// What an I/O waits for.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// The file and the model.
    Both,
    /// The file; the model said this.
    File(Outcome),
    /// The model; the file said this.
    Model(Outcome),
}

impl Modelled {
    /// Idle devices.
    pub(crate) fn new(config: &Config) -> Self {
        let stores = config.volumes.iter().flat_map(|volume| &volume.stores);
        let devices = config.backends.iter().map(|one| one.model.build(SEED, &one.name));
        Self {
            devices: devices.collect(),
            stores: stores.map(|store| store.file()?.backend).collect(),
            armed: vec![None; config.backends.len()],
            wakes: BTreeSet::new(),
            ios: SecondaryMap::new(),
        }
    }

    /// Gives an I/O to the model of its store, if that has one.
    pub(crate) fn start(&mut self, now: Instant, io: &StoreIo, store: usize) {
        let Some(index) = self.stores[store] else { return };
        let id = io.key.data().as_ffi();
        self.devices[index].start(now, DeviceIo { id, op: io.op, extent: io.extent });
        self.ios.insert(io.key, Left::Both);
        self.arm(index);
    }

    /// The file has done with an I/O; how that ends if nothing else is waited for.
    pub(crate) fn stored(&mut self, key: RequestKey, outcome: Outcome) -> Option<Outcome> {
        match self.ios.get_mut(key) {
            None => Some(outcome),
            Some(&mut Left::File(modelled)) => {
                self.ios.remove(key);
                Some(outcome.and(modelled))
            }
            Some(left) => {
                *left = Left::Model(outcome);
                None
            }
        }
    }

    /// When something happens at a device next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.wakes.first().map(|&(at, _)| at)
    }

    /// The next I/O that a model has ended by `now` and nothing else is waited for, and when that was.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(Instant, Input)> {
        while let Some(&(at, index)) = self.wakes.first().filter(|&&(at, _)| at <= now) {
            let finished = self.devices[index].finished(at);
            self.arm(index);
            let Some((id, modelled)) = finished else { continue };
            let key: RequestKey = KeyData::from_ffi(id).into();
            let left = self.ios.get_mut(key).expect("a model ends what it was given, once");
            if let Left::Model(stored) = *left {
                self.ios.remove(key);
                return Some((at, Input::Stored { key, outcome: stored.and(modelled) }));
            }
            *left = Left::File(modelled);
        }
        None
    }

    /// Notes when a device wants to be asked.
    fn arm(&mut self, index: usize) {
        let next = self.devices[index].next();
        if self.armed[index] != next {
            let old = std::mem::replace(&mut self.armed[index], next);
            if let Some(at) = old {
                self.wakes.remove(&(at, index));
            }
            if let Some(at) = next {
                self.wakes.insert((at, index));
            }
        }
    }
}

/// The seed of the models' random streams: a gateway that is started again has the same devices.
const SEED: u64 = 1;

#[cfg(test)]
mod tests;
