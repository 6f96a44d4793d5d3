//! # Device model: array M1
//!
//! Eight disks of random service time, each with its own queue, behind four buses and two links.
//!
//! | | |
//! |---|---|
//! | Model    | disk: uniform among `disks`, FCFS, service `mean * (0.5 + U[0, 1)) + max(0, bytes - 4096) / media`; then the disk's bus, FCFS, `bytes / bus`; then the less busy link, `bytes / link` |
//! | Ties     | order of being scheduled; of two equally busy links the first |
//! | Cost     | O(log outstanding) per I/O and per step |
//! | Source   | docs/reference/control.md, section 5, with its two fitted constants. At 5000 requests of 4 KiB per second the 99th percentile is 37 ms in a long run and from 27 to 60 ms in runs of 10 s, among them the 41 ms of the fit |
//! | Not when | positions matter: there is no seek, no rotation and no cache, and a disk here is five to six times faster than a real one in FCFS order |
//!
//! An I/O is assumed not to cross a stripe unit, so it meets one disk. Operations without payload
//! take the mean part of the service time and no time on buses and links.

use crate::PARTS_MAX;
use crate::device::{Device, DeviceIo};
use crate::fabric::{self, Fabric, Passed};
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::Outcome;
use weir_flow::rng::Rng;
use weir_flow::settings;
use weir_flow::settings::{HOUR, Invalid, MICROSECOND, PIB};
use weir_flow::units::Bandwidth;

settings! {
    /// The parameters of an array M1. Each disk `d` is on bus `d / (disks / buses)`.
    /// The default is the array of the token-bucket paper: 8 disks with a mean of 1.443 ms and a medium of 36.2 MB/s (both fitted), 4 SCSI buses of 80 MB/s, 2 Fibre Channel
    /// links of 100 MB/s.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Config {
        /// Number of disks, a multiple of `buses`.
        pub disks: u32 = Count(1, PARTS_MAX), 8;
        /// Mean service time of 4 KiB at a disk; the times are uniform from half to one and a half of it.
        pub mean_service: Duration = Time(2, HOUR), 1_443 * MICROSECOND;
        /// Rate of a disk's medium, for bytes past the first 4096.
        pub media: Bandwidth = Bandwidth(1, PIB), 36_200_000;
        /// Number of buses.
        pub buses: u32 = Count(1, PARTS_MAX), 4;
        /// Rate of each bus.
        pub bus: Bandwidth = Bandwidth(1, PIB), 80_000_000;
        /// Number of links to the array.
        pub links: u32 = Count(1, PARTS_MAX), 2;
        /// Rate of each link to the array.
        pub link: Bandwidth = Bandwidth(1, PIB), 100_000_000;
    }
    check Config::consistent;
}

impl Config {
    fn consistent(&self) -> Result<(), Invalid> {
        whole_buses(self.disks, self.buses)
    }
}

/// Every bus has as many disks.
pub(crate) const fn whole_buses(disks: u32, buses: u32) -> Result<(), Invalid> {
    if disks.is_multiple_of(buses) {
        return Ok(());
    }
    Err(Invalid::Rule("disks", "must be a multiple of the number of buses"))
}

/// An array M1.
#[derive(Clone, Debug)]
pub struct Array {
    config: Config,
    disk_free: Vec<Instant>,
    fabric: Fabric,
    which_disk: Rng,
    service: Rng,
}

/// The random values of one I/O.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// The disk, less than [`Config::disks`].
    pub disk: u32,
    /// Its place in the spread of the service time, from 0 up to 1.
    pub spread: f64,
    /// Factor of the random part of the service time: 1, or more while the array has lost capacity.
    pub slower: f64,
    /// Additional time at its disk: a stall.
    pub stall: Duration,
}

impl Draw {
    /// On this disk, with this place in the spread, in an array that is well.
    pub const fn new(disk: u32, spread: f64) -> Self {
        Self { disk, spread, slower: 1.0, stall: Duration::ZERO }
    }
}

impl Array {
    /// An idle array. `name` names its random streams under `seed`. Panics if a count is zero or
    /// the disks cannot be spread evenly over the buses.
    pub fn new(config: Config, seed: u64, name: &str) -> Self {
        let Config { disks, buses, bus, links, link, .. } = config;
        let stream = |what| Rng::stream(seed, &format!("model/array/{name}/{what}"));
        Self {
            config,
            disk_free: vec![Instant::ZERO; disks as usize],
            fabric: Fabric::new(disks, (buses, bus), (links, link)),
            which_disk: stream("disk"),
            service: stream("service"),
        }
    }

    /// The time at which this disk begins an I/O that arrives now.
    pub fn begins(&self, now: Instant, disk: u32) -> Instant {
        now.max(self.disk_free[disk as usize])
    }

    /// Starts an I/O with these draws, for callers that draw per request, so that equal requests meet
    /// equal devices.
    pub fn start_drawn(&mut self, now: Instant, io: DeviceIo, draw: Draw) {
        let bytes = fabric::payload(io);
        let mean = self.config.mean_service.as_nanos() as f64;
        let spread = libm::rint(mean * (0.5 + draw.spread) * draw.slower) as u64;
        let media = self.config.media.time_for(bytes.saturating_sub(4_096));
        let service = Duration::from_nanos(spread) + media + draw.stall;
        let end = fabric::take(&mut self.disk_free[draw.disk as usize], now, service);
        self.fabric.leave_disk(end, draw.disk, bytes, io.id);
    }
}

impl Device for Array {
    fn start(&mut self, now: Instant, io: DeviceIo) {
        let disk = self.which_disk.below(u64::from(self.config.disks)) as u32;
        let spread = self.service.unit();
        self.start_drawn(now, io, Draw::new(disk, spread));
    }

    fn next(&self) -> Option<Instant> {
        self.fabric.next()
    }

    fn finished(&mut self, now: Instant) -> Option<(u64, Outcome)> {
        loop {
            if let Passed::Out(id) = self.fabric.pass(now)? {
                return Some((id, Ok(())));
            }
        }
    }
}

#[cfg(test)]
mod tests;
