//! Gives the ends of storage operations to the command engine, and leaves upstreams at the end.

use super::Gateway;
use super::kernel::Kernel;
use crate::storage::io::StorageDone;
use crate::storage::upstream::network::KernelEvents;
use crate::storage::upstream::{remembered, volume_on};
use crate::tasks::SavedFor;
use tracing::warn;

impl<K: Kernel> Gateway<'_, K> {
    /// Takes in what storage has done.
    pub(super) fn take_in_storage(&mut self) {
        if self.done.is_empty() {
            return;
        }
        let mut done = std::mem::take(&mut self.done);
        for one in done.drain(..) {
            match one {
                StorageDone::Ended(ended) => self.engine.ended(ended, &mut self.storage),
                StorageDone::Input(input) => self.engine.set.inputs.push_back(input),
                StorageDone::Claimed(upstream) => {
                    self.unit_claimed(upstream);
                }
                StorageDone::Left(upstream) => {
                    self.unit_left(upstream);
                    if let Some(volume) = volume_on(&self.config, upstream) {
                        self.remember_units(volume);
                    }
                }
                StorageDone::Fenced(upstream) => {
                    self.unit_left(upstream);
                    if let Some(volume) = volume_on(&self.config, upstream) {
                        self.engine.catalog.volumes[volume].unit.withdraw();
                        self.remember_units(volume);
                    }
                }
                StorageDone::Resized(upstream, capacity) => {
                    if let Some(volume) = volume_on(&self.config, upstream) {
                        self.engine.grown(volume, capacity);
                        self.remember_units(volume);
                    }
                }
            }
        }
        self.done = done;
    }

    /// Has a volume remember what is known of its units now.
    fn remember_units(&mut self, volume: usize) {
        let units = self.storage.upstreams.to_remember(&self.config, volume, false);
        if let Some((path, bytes)) = remembered::saved(&self.config.volumes[volume], &units) {
            self.engine.blocking.save(SavedFor::Units, path, bytes);
        }
    }
}

impl Gateway<'_> {
    /// Makes what was written to upstreams durable, and logs out. What cannot be made durable is lost.
    /// `clean`: the volumes of which no data is only in a log; their reservations are given up.
    pub(crate) fn leave_upstreams(&mut self, clean: &[bool]) {
        // Before the reservations are given up: another gateway may own the units then.
        for (index, volume) in self.config.volumes.iter().enumerate() {
            let units = self.storage.upstreams.to_remember(&self.config, index, clean[index]);
            if let Err(problem) = remembered::save(volume, &units) {
                warn!(volume = volume.name, %problem, "what is known of the upstreams is not saved");
            }
        }
        let of = |upstream| volume_on(&self.config, upstream).is_some_and(|volume| clean[volume]);
        let clean: Vec<bool> = (0..self.config.upstreams.len()).map(of).collect();
        let within = self.config.stop.timeout;
        let events = &mut KernelEvents::new(&mut self.kernel.poll, self.kernel.clock);
        let failed = self.storage.upstreams.close(events, within, &clean);
        for (upstream, problem) in failed {
            let volume = volume_on(&self.config, upstream);
            if let Some(volume) = volume.filter(|&volume| !self.config.volumes[volume].read_only) {
                let name = &self.config.volumes[volume].name;
                warn!(volume = name, %problem, "cannot flush the upstream during the stop");
                self.engine.catalog.volumes[volume].lost = true;
            }
        }
    }
}
