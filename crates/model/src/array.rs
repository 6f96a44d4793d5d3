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

use crate::device::{Device, DeviceIo};
use crate::fabric::{self, Fabric, Passed};
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::Outcome;
use weir_flow::rng::Rng;
use weir_flow::units::Bandwidth;

/// The parameters of an array. Each disk `d` sits on bus `d / (disks / buses)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of disks, at least 1 and a multiple of `buses`.
    pub disks: u32,
    /// Mean service time of 4 KiB at a disk; the times are uniform from half to one and a half of
    /// it. Rounded to whole nanoseconds once.
    pub mean_service: Duration,
    /// Rate of a disk's medium, which bytes past the first 4096 are charged for.
    pub media: Bandwidth,
    /// Number of buses, at least 1.
    pub buses: u32,
    /// Rate of each bus.
    pub bus: Bandwidth,
    /// Number of links to the array, at least 1.
    pub links: u32,
    /// Rate of each link.
    pub link: Bandwidth,
}

impl Default for Config {
    /// The array of the token-bucket paper: 8 disks with a mean of 1.443 ms and a medium of
    /// 36.2 MB/s (both fitted), 4 SCSI buses of 80 MB/s, 2 Fibre Channel links of 100 MB/s.
    fn default() -> Self {
        let megabytes = |n: u64| Bandwidth::per_second(n).expect("it is not zero");
        Self {
            disks: 8,
            mean_service: Duration::from_micros(1_443),
            media: megabytes(36_200_000),
            buses: 4,
            bus: megabytes(80_000_000),
            links: 2,
            link: megabytes(100_000_000),
        }
    }
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
