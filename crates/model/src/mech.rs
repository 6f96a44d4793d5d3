//! # Device model: array M2
//!
//! Eight disks that seek and rotate, each with a queue that it orders itself, behind four buses and two
//! links.
//!
//! | | |
//! |---|---|
//! | Model    | disk: uniform among `disks`; cylinder uniform among 1024, angle uniform. Of the first `window` that wait, the one with the shortest positioning time goes next (SPTF), the others wait in order of arrival. Service `50 us + seek + rotation to the angle + bytes / media`, seek `0.6 + 8.44 sqrt(d) ms`, d in strokes, none on the same cylinder. Then bus and link as [`array`](mod@crate::array) |
//! | Ties     | order of arrival; disks whose service ends at one time in order of being scheduled |
//! | Cost     | O(window + log outstanding) per I/O |
//! | Source   | docs/reference/control.md, section 5, with its one fitted constant: the data occupy 2.04 % of the stroke, for which the mean at 5000 requests of 4 KiB per second is 41 ms |
//! | Not when | addresses matter: positions are drawn, not derived from extents, so a sequential stream is as slow as a random one. There is no cache and no read-ahead |
//!
//! An I/O is assumed not to cross a stripe unit, so it meets one disk. Operations without payload take
//! a position, but no time at the medium, on buses and links.

use crate::PARTS_MAX;
use crate::array::whole_buses;
use crate::device::{Device, DeviceIo};
use crate::fabric::{self, Fabric, Passed};
use std::collections::VecDeque;
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::Outcome;
use weir_flow::rng::Rng;
use weir_flow::settings;
use weir_flow::settings::{Invalid, PIB};
use weir_flow::units::Bandwidth;

settings! {
    /// The parameters of an array M2. Each disk `d` is on bus `d / (disks / buses)`. The default is the array of the token-bucket paper: 8 disks of 10 000
    /// rpm and 60 MB/s with 64 tags, data on 2.04 % of the stroke (fitted), 4 SCSI buses of 80 MB/s, 2 Fibre
    /// Channel links of 100 MB/s.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Config {
        /// Number of disks, a multiple of `buses`.
        pub disks: u32 = Count(1, PARTS_MAX), 8;
        /// Millionths of the stroke that the data occupy; more takes longer seeks.
        pub stroke_ppm: u32 = Count(0, 1_000_000), 20_400;
        /// Requests among which a disk chooses the nearest.
        pub window: u32 = Count(1, 65_536), 64;
        /// Rate of a disk's medium.
        pub media: Bandwidth = Bandwidth(1, PIB), 60_000_000;
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

/// An array M2.
#[derive(Clone, Debug)]
pub struct Mech {
    config: Config,
    /// Nanoseconds of a seek, by cylinders crossed.
    seek: Vec<u64>,
    disks: Vec<Disk>,
    fabric: Fabric,
    which_disk: Rng,
    cylinder: Rng,
    angle: Rng,
}

#[derive(Clone, Debug, Default)]
struct Disk {
    cylinder: u32,
    busy: bool,
    waiting: VecDeque<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: u64,
    bytes: u64,
    draw: Draw,
}

/// The random values of one I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The disk, less than [`Config::disks`].
    pub disk: u32,
    /// The cylinder, less than [`CYLINDERS`].
    pub cylinder: u32,
    /// The angle at which the data begin, in nanoseconds of [`TURN`].
    pub angle: u32,
}

impl Draw {
    /// From three numbers of [0, 1).
    pub fn from_units(config: &Config, disk: f64, cylinder: f64, angle: f64) -> Self {
        Self {
            disk: (disk * f64::from(config.disks)) as u32,
            cylinder: (cylinder * f64::from(CYLINDERS)) as u32,
            angle: (angle * TURN.as_nanos() as f64) as u32,
        }
    }
}

impl Mech {
    /// An idle array, all arms at the outermost cylinder. `name` names its random streams under `seed`.
    /// Panics if a count is zero or the disks cannot be spread evenly over the buses.
    pub fn new(config: Config, seed: u64, name: &str) -> Self {
        let Config { disks, window, buses, bus, links, link, .. } = config;
        assert!(window > 0, "a disk looks at something");
        let stream = |what| Rng::stream(seed, &format!("model/mech/{name}/{what}"));
        let strokes = f64::from(config.stroke_ppm) / 1e6 / f64::from(CYLINDERS);
        let nanos = |crossed: u32| match crossed {
            0 => 0,
            _ => libm::rint(0.6e6 + 8.44e6 * libm::sqrt(f64::from(crossed) * strokes)) as u64,
        };
        Self {
            config,
            seek: (0..CYLINDERS).map(nanos).collect(),
            disks: vec![Disk::default(); disks as usize],
            fabric: Fabric::new(disks, (buses, bus), (links, link)),
            which_disk: stream("disk"),
            cylinder: stream("cylinder"),
            angle: stream("angle"),
        }
    }

    /// Starts an I/O with these draws, for callers that draw per request, so that equal requests meet
    /// equal devices.
    pub fn start_drawn(&mut self, now: Instant, io: DeviceIo, draw: Draw) {
        let waiting = Waiting { id: io.id, bytes: fabric::payload(io), draw };
        self.disks[draw.disk as usize].waiting.push_back(waiting);
        self.serve(now, draw.disk);
    }

    /// An idle disk takes the request with the shortest positioning time.
    fn serve(&mut self, now: Instant, index: u32) {
        let disk = &mut self.disks[index as usize];
        if disk.busy {
            return;
        }
        let (seek, here) = (&self.seek, disk.cylinder);
        let position = |io: &Waiting| {
            let over = seek[here.abs_diff(io.draw.cylinder) as usize] + OVERHEAD.as_nanos();
            let turn = TURN.as_nanos();
            let under_head = (now.as_nanos() + over) % turn;
            over + (turn + u64::from(io.draw.angle) - under_head) % turn
        };
        let times = disk.waiting.iter().take(self.config.window as usize).map(position);
        let Some((at, time)) = times.enumerate().min_by_key(|&(at, time)| (time, at)) else {
            return;
        };
        let io = disk.waiting.remove(at).expect("it was there");
        disk.busy = true;
        disk.cylinder = io.draw.cylinder;
        let end = now + Duration::from_nanos(time) + self.config.media.time_for(io.bytes);
        self.fabric.leave_disk(end, index, io.bytes, io.id);
    }
}

impl Device for Mech {
    fn start(&mut self, now: Instant, io: DeviceIo) {
        let draw = Draw {
            disk: self.which_disk.below(u64::from(self.config.disks)) as u32,
            cylinder: self.cylinder.below(u64::from(CYLINDERS)) as u32,
            angle: self.angle.below(TURN.as_nanos()) as u32,
        };
        self.start_drawn(now, io, draw);
    }

    fn next(&self) -> Option<Instant> {
        self.fabric.next()
    }

    fn finished(&mut self, now: Instant) -> Option<(u64, Outcome)> {
        loop {
            match self.fabric.pass(now)? {
                Passed::Out(id) => return Some((id, Ok(()))),
                Passed::Disk(disk, at) => {
                    self.disks[disk as usize].busy = false;
                    self.serve(at, disk);
                }
            }
        }
    }
}

/// Cylinders over which the data are spread.
pub const CYLINDERS: u32 = 1_024;

/// A revolution at 10 000 rpm.
pub const TURN: Duration = Duration::from_millis(6);

/// The command overhead of a disk.
const OVERHEAD: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests;
