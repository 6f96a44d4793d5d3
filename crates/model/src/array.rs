//! # Device model: array M1
//!
//! Eight disks of random service time, each with its own queue, behind four buses and two links.
//!
//! | | |
//! |---|---|
//! | Model    | disk: uniform among `disks`, FCFS, service `mean * (0.5 + U[0, 1)) + max(0, bytes - 4096) / media`; then the disk's bus, FCFS, `bytes / bus`; then the less busy link, `bytes / link` |
//! | Ties     | order of being scheduled; of two equally busy links the first |
//! | Cost     | O(log outstanding) per I/O and per step |
//! | Source   | spec/control.md section 5, with its two fitted constants. At 5000 requests of 4 KiB per second the 99th percentile is 37 ms in a long run and from 27 to 60 ms in runs of 10 s, among them the 41 ms of the fit |
//! | Not when | positions matter: there is no seek, no rotation and no cache, and a disk here is five to six times faster than a real one in FCFS order |
//!
//! An I/O is assumed not to cross a stripe unit, so it meets one disk. Operations without payload
//! take the mean part of the service time and no time on buses and links.

use crate::device::{Device, DeviceIo};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::{Op, Outcome};
use weir_flow::rng::Rng;
use weir_flow::units::Bandwidth;

/// What an array is made from. Each disk `d` sits on bus `d / (disks / buses)`.
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
    /// When each disk, bus and link is free.
    disk_free: Vec<Instant>,
    bus_free: Vec<Instant>,
    link_free: Vec<Instant>,
    /// What is outstanding, by the end of the step that each I/O is in.
    steps: BinaryHeap<Reverse<Step>>,
    scheduled: u64,
    which_disk: Rng,
    service: Rng,
}

/// The end of one step of an I/O. The order of the fields is that of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    at: Instant,
    scheduled: u64,
    place: Place,
    bytes: u64,
    id: u64,
}

/// Where an I/O is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Disk(u32),
    Bus,
    Link,
}

impl Array {
    /// An idle array. `name` names its random streams under `seed`. Panics if a count is zero or
    /// the disks cannot be spread evenly over the buses.
    pub fn new(config: Config, seed: u64, name: &str) -> Self {
        let Config { disks, buses, links, .. } = config;
        assert!(disks > 0 && buses > 0 && links > 0, "an array has disks, buses and links");
        assert!(disks.is_multiple_of(buses), "every bus has as many disks");
        let stream = |what| Rng::stream(seed, &format!("model/array/{name}/{what}"));
        Self {
            config,
            disk_free: vec![Instant::ZERO; disks as usize],
            bus_free: vec![Instant::ZERO; buses as usize],
            link_free: vec![Instant::ZERO; links as usize],
            steps: BinaryHeap::new(),
            scheduled: 0,
            which_disk: stream("disk"),
            service: stream("service"),
        }
    }

    /// Starts an I/O on this disk, with this place in the spread of the service time, from 0 up to 1:
    /// for whoever draws them per request, so that equal requests meet equal devices.
    pub fn start_drawn(&mut self, now: Instant, io: DeviceIo, disk: u32, spread: f64) {
        let bytes = match io.op {
            Op::Read | Op::Write | Op::Verify | Op::Update => io.extent.length,
            Op::Flush | Op::Discard | Op::WriteZeroes => 0,
        };
        let mean = self.config.mean_service.as_nanos() as f64;
        let spread = libm::rint(mean * (0.5 + spread)) as u64;
        let service =
            Duration::from_nanos(spread) + self.config.media.time_for(bytes.saturating_sub(4_096));
        let end = take(&mut self.disk_free[disk as usize], now, service);
        self.schedule(end, Place::Disk(disk), bytes, io.id);
    }

    fn schedule(&mut self, at: Instant, place: Place, bytes: u64, id: u64) {
        self.scheduled += 1;
        self.steps.push(Reverse(Step { at, scheduled: self.scheduled, place, bytes, id }));
    }
}

impl Device for Array {
    fn start(&mut self, now: Instant, io: DeviceIo) {
        let disk = self.which_disk.below(u64::from(self.config.disks)) as u32;
        let spread = self.service.unit();
        self.start_drawn(now, io, disk, spread);
    }

    fn next(&self) -> Option<Instant> {
        self.steps.peek().map(|Reverse(step)| step.at)
    }

    fn finished(&mut self, now: Instant) -> Option<(u64, Outcome)> {
        while self.next().is_some_and(|at| at <= now) {
            let Reverse(Step { at, place, bytes, id, .. }) = self.steps.pop()?;
            match place {
                Place::Disk(disk) => {
                    let bus = disk / (self.config.disks / self.config.buses);
                    let passage = self.config.bus.time_for(bytes);
                    let end = take(&mut self.bus_free[bus as usize], at, passage);
                    self.schedule(end, Place::Bus, bytes, id);
                }
                Place::Bus => {
                    let passage = self.config.link.time_for(bytes);
                    let link = self.link_free.iter_mut().min_by_key(|free| **free);
                    let end = take(link.expect("an array has a link"), at, passage);
                    self.schedule(end, Place::Link, bytes, id);
                }
                Place::Link => return Some((id, Ok(()))),
            }
        }
        None
    }
}

/// Occupies a server for `service` from `now`, or from when it is free, and says until when.
fn take(free: &mut Instant, now: Instant, service: Duration) -> Instant {
    *free = now.max(*free) + service;
    *free
}

#[cfg(test)]
mod tests;
