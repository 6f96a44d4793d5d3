//! # Device model: flash
//!
//! Chips behind channels, a page-mapping translation layer with garbage collection, and optionally a write buffer.
//!
//! | | |
//! |---|---|
//! | Model    | an I/O is cut into pages. Read: `cell + register`, program: `register + cell`, erase: `erase`, one at a time on a chip, in order of arrival; pipelined: the register of one and the cell of its neighbour at the same time. An I/O completes with its last page; with a buffer a write completes when it is in the buffer, unless it must be durable, and a flush when the whole buffer is programmed. Discards and zeroes take no chip time. The [`ftl`] decides where pages are and which must be moved: moves are spread over the writes that cause them |
//! | Ties     | order of arrival |
//! | Cost     | O(log outstanding) per I/O, O(1) per page; 8 bytes per page, 6 per block |
//! | Source   | table 2 of the flash operation group paper; docs/reference/dispatch.md, section 2 |
//! | Not when | reads overtake programs inside the device, or programs are suspended for them: here a chip executes in order of arrival. There are no planes, no errors and no retention; addresses past the end wrap to zero |

pub mod chips;
pub mod ftl;

use crate::device::{Device, DeviceIo, Wear};
use chips::{Chips, Page};
use ftl::{Ftl, Move};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::{Op, Outcome};

/// The parameters of a flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Chips that work at the same time, each with its own channel; 1 to 4096.
    pub chips: u32,
    /// Blocks of a chip; at least 16.
    pub blocks: u32,
    /// Pages of a block, which are programmed in order and erased together; 1 to 16384.
    pub pages: u32,
    /// Bytes of a page, at least 512.
    pub page: u32,
    /// Spare pages, per thousand; from 20 to 900.
    pub spare_permille: u32,
    /// Pages of the capacity that were written before the start, per thousand.
    pub filled_permille: u32,
    /// Transfer of a page between the controller and a chip's register.
    pub register: Duration,
    /// From cells to the register.
    pub read: Duration,
    /// From the register to cells.
    pub program: Duration,
    /// Of a block.
    pub erase: Duration,
    /// A chip has a second register: one operation's transfer and another's cells go together.
    pub pipelined: bool,
    /// Pages that are acknowledged before they are programmed; 0 is no buffer.
    pub buffer: u32,
    /// The controller's time per command.
    pub command: Duration,
}

impl Config {
    /// The device of the flash operation group paper: 16 GiB on four chips, no buffer, a fifth spare as
    /// the paper does not say.
    pub const fn paper() -> Self {
        Self {
            chips: 4,
            blocks: 4_096,
            pages: 256,
            page: 4_096,
            spare_permille: 200,
            filled_permille: 0,
            register: Duration::from_micros(100),
            read: Duration::from_micros(50),
            program: Duration::from_micros(900),
            erase: Duration::from_micros(2_000),
            pipelined: false,
            buffer: 0,
            command: Duration::ZERO,
        }
    }

    /// A device as an `NVMe` drive of about 2024 looks from outside, with at least this capacity and 9 GiB: 64 dies,
    /// which read 4 KiB in 50 us and program 64 KiB in 600, of which a page is a sixteenth; 7 % spare; a
    /// buffer of 4 MiB. Reads about 1.2 million, programs about 1.5 million pages a second.
    pub const fn nvme(bytes: u64) -> Self {
        let config = Self {
            chips: 64,
            blocks: 0,
            pages: 256,
            page: 4_096,
            spare_permille: 70,
            filled_permille: 0,
            register: Duration::from_nanos(3_400),
            read: Duration::from_micros(50),
            program: Duration::from_nanos(37_500),
            erase: Duration::from_micros(3_000),
            pipelined: true,
            buffer: 1_024,
            command: Duration::from_micros(8),
        };
        config.with_capacity(bytes)
    }

    /// The same with as many blocks as this capacity takes, and as the spare pages take of a small device.
    #[must_use]
    pub const fn with_capacity(self, bytes: u64) -> Self {
        let of_chip =
            bytes.div_ceil(at_least(self.page as u64, 1) * at_least(self.chips as u64, 1));
        let of_chip = of_chip.div_ceil(at_least(self.pages as u64, 1));
        let spare = at_least(self.spare_permille as u64, 1);
        let used = at_least(1_000_u64.saturating_sub(spare), 1);
        let blocks = of_chip.saturating_mul(1_000).div_ceil(used) + ftl::RESERVED as u64 + 2;
        let blocks = at_least(blocks, (ftl::RESERVED as u64 + 3) * 1_000 / spare);
        Self { blocks: if blocks > u32::MAX as u64 { u32::MAX } else { blocks as u32 }, ..self }
    }

    /// Physical pages.
    pub const fn pages_in_all(&self) -> u64 {
        self.chips as u64 * self.blocks as u64 * self.pages as u64
    }

    /// Pages that a host can address.
    pub const fn capacity_pages(&self) -> u64 {
        self.pages_in_all() * (1_000 - self.spare_permille as u64) / 1_000
    }

    /// Bytes that a host can address.
    pub const fn capacity(&self) -> u64 {
        self.capacity_pages() * self.page as u64
    }

    /// The first invalid field, if any, and its required range.
    pub fn validate(&self) -> Result<(), (&'static str, String)> {
        let range = |name: &'static str, value: u32, from: u32, to: u32| {
            let outside = !(from..=to).contains(&value);
            if outside {
                return Err((name, format!("must be from {from} to {to}, not {value}")));
            }
            Ok(())
        };
        let longest = Duration::from_secs(3_600);
        let times = [
            ("register", self.register),
            ("read", self.read),
            ("program", self.program),
            ("erase", self.erase),
            ("command", self.command),
        ];
        range("chips", self.chips, 1, 4_096)?;
        range("blocks", self.blocks, 16, 1 << 24)?;
        range("pages", self.pages, 1, 16_384)?;
        range("page", self.page, 512, 1 << 20)?;
        range("spare_permille", self.spare_permille, 20, 900)?;
        range("filled_permille", self.filled_permille, 0, 1_000)?;
        range("buffer", self.buffer, 0, 1 << 20)?;
        if let Some((name, _)) = times.into_iter().find(|&(_, time)| time > longest) {
            return Err((name, "must be at most an hour".to_owned()));
        }
        // Numbers of pages have 32 bits, one of which says that there is none.
        if self.pages_in_all() >= u64::from(u32::MAX) {
            return Err(("blocks", "a device has at most 4294967294 pages".to_owned()));
        }
        let room =
            u64::from(self.chips) * u64::from(self.blocks - ftl::RESERVED) * u64::from(self.pages);
        if self.capacity_pages() > room - u64::from(self.chips * self.pages) {
            let message = format!("must leave {} blocks of a chip", ftl::RESERVED + 1);
            return Err(("spare_permille", message));
        }
        Ok(())
    }
}

/// The larger of the two.
const fn at_least(number: u64, least: u64) -> u64 {
    if number > least { number } else { least }
}

impl Default for Config {
    fn default() -> Self {
        Self::paper()
    }
}

/// A flash device.
#[derive(Clone, Debug)]
pub struct Ssd {
    config: Config,
    ftl: Ftl,
    chips: Chips,
    /// The time at which each used slot of the buffer becomes free.
    buffer: BinaryHeap<Reverse<Instant>>,
    /// The time at which all earlier writes are programmed.
    programmed: Instant,
    /// Outstanding I/Os: end, order and identifier.
    ends: BinaryHeap<Reverse<(Instant, u64, u64)>>,
    started: u64,
}

impl Ssd {
    /// An idle device. Panics if the configuration is not [valid](Config::validate).
    pub fn new(config: Config) -> Self {
        Self {
            config,
            ftl: Ftl::new(&config),
            chips: Chips::new(&config),
            buffer: BinaryHeap::new(),
            programmed: Instant::ZERO,
            ends: BinaryHeap::new(),
            started: 0,
        }
    }

    /// Page operations and erasures that chips have been given.
    pub const fn operations(&self) -> u64 {
        self.chips.operations()
    }

    fn read(&mut self, at: Instant, page: u32) -> Instant {
        self.chips.submit(at, self.ftl.chip(page), Page::Read)
    }

    /// Writes a page: when its host hears of it, which is when it is programmed if it has to be durable then.
    fn write(&mut self, mut at: Instant, page: u32, durable: bool) -> Instant {
        if self.config.buffer > 0 && self.buffer.len() >= self.config.buffer as usize {
            let Reverse(free) = self.buffer.pop().expect("it is full");
            at = at.max(free);
        }
        let chip = self.ftl.place(0);
        // Moves go first: the erased block may be the one that is written next.
        for _ in 0..self.ftl.moves_due(chip) {
            match self.ftl.step(chip) {
                Some(Move::Copy { .. }) => {
                    self.chips.submit(at, chip, Page::Read);
                    self.chips.submit(at, chip, Page::Program);
                }
                Some(Move::Erase) => {
                    self.chips.submit(at, chip, Page::Erase);
                }
                None => break,
            }
        }
        self.ftl.write(page, chip);
        let end = self.chips.submit(at, chip, Page::Program);
        self.programmed = self.programmed.max(end);
        if self.config.buffer == 0 {
            return end;
        }
        self.buffer.push(Reverse(end));
        if durable { end } else { at }
    }

    /// The end of an I/O that the controller has decoded at `at`.
    fn serve(&mut self, at: Instant, io: DeviceIo) -> Instant {
        let (size, pages) = (u64::from(self.config.page), self.ftl.capacity());
        let (offset, length) = (io.extent.offset, io.extent.length);
        if length == 0 {
            return if io.op == Op::Flush { at.max(self.programmed) } else { at };
        }
        let (first, past) = (offset / size, (offset + length).div_ceil(size));
        let mut end = at;
        for number in first..past {
            let page = (number % u64::from(pages)) as u32;
            let whole = number * size >= offset && (number + 1) * size <= offset + length;
            let done = match io.op {
                Op::Read | Op::Verify => self.read(at, page),
                Op::Write if whole => self.write(at, page, io.fua),
                Op::Discard | Op::WriteZeroes if whole => {
                    self.ftl.trim(page);
                    at
                }
                // The part that is not overwritten has to be read first.
                Op::Write | Op::Update | Op::WriteZeroes => {
                    let read = self.read(at, page);
                    self.write(read, page, io.fua)
                }
                Op::Discard | Op::Flush => at,
            };
            end = end.max(done);
        }
        end
    }
}

impl Device for Ssd {
    fn start(&mut self, now: Instant, io: DeviceIo) {
        let end = self.serve(now + self.config.command, io);
        self.ends.push(Reverse((end, self.started, io.id)));
        self.started += 1;
    }

    fn next(&self) -> Option<Instant> {
        self.ends.peek().map(|&Reverse((end, ..))| end)
    }

    fn finished(&mut self, now: Instant) -> Option<(u64, Outcome)> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, _, id)) = self.ends.pop()?;
        Some((id, Ok(())))
    }

    fn wear(&self) -> Option<Wear> {
        Some(self.ftl.wear())
    }
}

#[cfg(test)]
mod tests;
