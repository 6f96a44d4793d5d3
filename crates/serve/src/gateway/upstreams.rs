//! What the event loop has to do with upstreams.

use super::Gateway;
use crate::disk::{Driver, Io, Place, Stores};
use crate::remote::{Happened, Remotes, volume_on};
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

    /// Makes what was written to upstreams durable, and logs out. What cannot be made durable is lost.
    pub(crate) fn leave_upstreams(&mut self) {
        let within = self.config.stop_within;
        let failed = self.behind.remotes.close(&mut self.poll, self.clock, within);
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
