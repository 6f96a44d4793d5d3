//! What the event loop has to do with upstreams.

use super::Gateway;
use crate::storage::file::Driver;
use crate::storage::io::{Io, Place, Stores};
use crate::storage::upstream::{Happened, Ownership, Remotes, volume_on};
use tracing::warn;

/// Everything behind the gateway.
pub(super) struct Behind {
    /// Files and devices.
    pub(super) driver: Box<dyn Driver>,
    /// Upstreams.
    pub(super) remotes: Remotes,
}

impl Stores for Behind {
    fn submit(&mut self, place: Place, io: Io) {
        match place {
            Place::File(fd) => self.driver.submit(fd, io),
            Place::Path(backend, path) => self.remotes.submit(backend, path, io),
        }
    }
}

impl Gateway<'_> {
    /// Takes in what has happened at upstreams.
    pub(super) fn hear_remotes(&mut self) {
        let mut happened = std::mem::take(&mut self.behind.remotes.happened);
        for one in happened.drain(..) {
            match one {
                Happened::Ended(ended) => self.desk.ended(ended, &mut self.behind),
                Happened::Input(input) => self.desk.inbox.push_back(input),
                Happened::Fenced(upstream) => {
                    if let Some(volume) = volume_on(&self.config, upstream) {
                        self.desk.volumes[volume].unit.withdraw();
                    }
                }
                Happened::Grown(upstream, capacity) => {
                    if let Some(volume) = volume_on(&self.config, upstream) {
                        self.desk.grown(volume, capacity);
                    }
                }
            }
        }
        // What happened meanwhile stands behind.
        happened.append(&mut self.behind.remotes.happened);
        self.behind.remotes.happened = happened;
    }

    /// Who owns the units that a volume is on, by the names of their upstreams, where somebody is kept from them.
    pub(crate) fn ownership(&self, volume: usize) -> impl Iterator<Item = (&str, Ownership)> {
        let upstreams = self.config.upstreams.iter().enumerate();
        let of = move |(index, _): &(usize, _)| volume_on(&self.config, *index) == Some(volume);
        upstreams.filter(of).filter_map(|(index, upstream)| {
            Some((&upstream.name[..], self.behind.remotes.ownership(index)?))
        })
    }

    /// Makes what was written to upstreams durable, and logs out. What cannot be made durable is lost.
    /// `clean`: the volumes of which nothing is only in a log; their units are given up.
    pub(crate) fn leave_upstreams(&mut self, clean: &[bool]) {
        let of = |upstream| volume_on(&self.config, upstream).is_some_and(|volume| clean[volume]);
        let clean: Vec<bool> = (0..self.config.upstreams.len()).map(of).collect();
        let within = self.config.stop_within;
        let failed = self.behind.remotes.close(&mut self.poll, self.clock, within, &clean);
        for (upstream, problem) in failed {
            let volume = volume_on(&self.config, upstream);
            if let Some(volume) = volume.filter(|&volume| !self.config.volumes[volume].read_only) {
                let name = &self.config.volumes[volume].name;
                warn!(volume = name, %problem, "its upstream could not be flushed at the end");
                self.desk.volumes[volume].lost = true;
            }
        }
    }
}
