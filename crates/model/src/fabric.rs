//! The buses and links between an array's disks and its hosts.
//!
//! Data from a disk waits for the disk's bus, then for the less busy link (of two equally busy ones the first), each
//! in order of arrival. Source: docs/reference/control.md, section 5.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::Op;
use weir_flow::units::Bandwidth;

use crate::device::DeviceIo;

/// Buses and links, and what is outstanding in the array: each I/O with the end of its step.
#[derive(Clone, Debug)]
pub(crate) struct Fabric {
    bus: Bandwidth,
    link: Bandwidth,
    disks_per_bus: u32,
    bus_free: Vec<Instant>,
    link_free: Vec<Instant>,
    steps: BinaryHeap<Reverse<Step>>,
    scheduled: u64,
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

/// The stage of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Disk(u32),
    Bus,
    Link,
}

/// An event in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// A disk is done with an I/O.
    Disk(u32, Instant),
    /// An I/O has left the array.
    Out(u64),
}

impl Fabric {
    /// Idle buses, each of as many of the `disks`, and idle links. Panics if a count is zero or the
    /// disks cannot be spread evenly over the buses.
    pub(crate) fn new(disks: u32, buses: (u32, Bandwidth), links: (u32, Bandwidth)) -> Self {
        assert!(disks > 0 && buses.0 > 0 && links.0 > 0, "an array has disks, buses and links");
        assert!(disks.is_multiple_of(buses.0), "every bus has as many disks");
        Self {
            bus: buses.1,
            link: links.1,
            disks_per_bus: disks / buses.0,
            bus_free: vec![Instant::ZERO; buses.0 as usize],
            link_free: vec![Instant::ZERO; links.0 as usize],
            steps: BinaryHeap::new(),
            scheduled: 0,
        }
    }

    /// An I/O leaves its disk at `at`.
    pub(crate) fn leave_disk(&mut self, at: Instant, disk: u32, bytes: u64, id: u64) {
        self.schedule(at, Place::Disk(disk), bytes, id);
    }

    /// The time of the next event.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.steps.peek().map(|Reverse(step)| step.at)
    }

    /// The next thing that has happened by `now` and concerns anybody.
    pub(crate) fn pass(&mut self, now: Instant) -> Option<Passed> {
        while self.next().is_some_and(|at| at <= now) {
            let Reverse(Step { at, place, bytes, id, .. }) = self.steps.pop()?;
            match place {
                Place::Disk(disk) => {
                    let bus = disk / self.disks_per_bus;
                    let passage = self.bus.time_for(bytes);
                    let end = take(&mut self.bus_free[bus as usize], at, passage);
                    self.schedule(end, Place::Bus, bytes, id);
                    return Some(Passed::Disk(disk, at));
                }
                Place::Bus => {
                    let passage = self.link.time_for(bytes);
                    let link = self.link_free.iter_mut().min_by_key(|free| **free);
                    let end = take(link.expect("an array has a link"), at, passage);
                    self.schedule(end, Place::Link, bytes, id);
                }
                Place::Link => return Some(Passed::Out(id)),
            }
        }
        None
    }

    fn schedule(&mut self, at: Instant, place: Place, bytes: u64, id: u64) {
        self.scheduled += 1;
        self.steps.push(Reverse(Step { at, scheduled: self.scheduled, place, bytes, id }));
    }
}

/// Bytes that an operation moves.
pub(crate) const fn payload(io: DeviceIo) -> u64 {
    match io.op {
        Op::Read | Op::Write | Op::Verify | Op::Update => io.extent.length,
        Op::Flush | Op::Discard | Op::WriteZeroes => 0,
    }
}

/// Occupies a server for `service` from `now`, or from when it is free, and says until when.
pub(crate) fn take(free: &mut Instant, now: Instant, service: Duration) -> Instant {
    *free = now.max(*free) + service;
    *free
}
