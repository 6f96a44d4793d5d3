//! Service times of flash chips.

use super::Config;
use weir_flow::clock::{Duration, Instant};

/// An operation of a chip on a page, or on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Cells to register, register to controller.
    Read,
    /// Controller to register, register to cells.
    Program,
    /// A block. Its command cycles are neglected.
    Erase,
}

/// Chips with their channels. Each does what it is given in that order.
#[derive(Clone, Debug)]
pub struct Chips {
    register: Duration,
    read: Duration,
    program: Duration,
    erase: Duration,
    pipelined: bool,
    /// By chip: when its channel, and when its cells, are free. One at a time is both.
    free: Vec<(Instant, Instant)>,
    operations: u64,
}

impl Chips {
    /// Idle chips.
    pub fn new(config: &Config) -> Self {
        Self {
            register: config.register,
            read: config.read,
            program: config.program,
            erase: config.erase,
            pipelined: config.pipelined,
            free: vec![(Instant::ZERO, Instant::ZERO); config.chips as usize],
            operations: 0,
        }
    }

    /// The time of an operation on chip and channel, without queueing.
    pub fn service(&self, page: Page) -> Duration {
        match page {
            Page::Read => self.read + self.register,
            Page::Program => self.register + self.program,
            Page::Erase => self.erase,
        }
    }

    /// The end of an operation submitted to this chip at `at`, behind all earlier ones.
    pub fn submit(&mut self, at: Instant, chip: u32, page: Page) -> Instant {
        self.operations += 1;
        let service = self.service(page);
        let (bus, cell) = &mut self.free[chip as usize];
        if !self.pipelined {
            let end = at.max(*bus) + service;
            (*bus, *cell) = (end, end);
            return end;
        }
        match page {
            Page::Read => {
                *cell = at.max(*cell) + self.read;
                *bus = (*cell).max(*bus) + self.register;
                *bus
            }
            Page::Program => {
                *bus = at.max(*bus) + self.register;
                *cell = (*bus).max(*cell) + self.program;
                *cell
            }
            Page::Erase => {
                *cell = at.max(*cell) + self.erase;
                *cell
            }
        }
    }

    /// Operations that chips have been given.
    pub const fn operations(&self) -> u64 {
        self.operations
    }
}
