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
use weir_flow::settings;
use weir_flow::settings::{HOUR, Invalid, KIB, MIB, MICROSECOND, MILLISECOND};

settings! {
    /// The parameters of a flash device. The default is [`Config::paper`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Config {
        /// Chips that work at the same time, each with its own channel.
        pub chips: u32 = Count(1, 4_096), 4;
        /// Blocks of a chip.
        pub blocks: u32 = Count(16, 1 << 24), 4_096;
        /// Pages of a block, which are programmed in order and erased together.
        pub pages: u32 = Count(1, 16_384), 256;
        /// Bytes of a page; a write of a part of one reads the rest first.
        pub page: u32 = Size(512, MIB), 4 * KIB;
        /// Pages of a thousand that are not capacity; more make garbage collection cheaper.
        pub spare_permille: u32 = Count(20, 900), 200;
        /// Pages of the capacity, of a thousand, that are written when the device starts, whatever files
        /// hold: each start forgets the places of pages and wear.
        pub filled_permille: u32 = Count(0, 1_000), 0;
        /// Transfer of a page between the controller and a chip's register.
        pub register: Duration = Time(0, HOUR), 100 * MICROSECOND;
        /// From cells to a chip's register.
        pub read: Duration = Time(0, HOUR), 50 * MICROSECOND;
        /// From a chip's register to cells.
        pub program: Duration = Time(0, HOUR), 900 * MICROSECOND;
        /// Erasure of a block.
        pub erase: Duration = Time(0, HOUR), 2 * MILLISECOND;
        /// A chip transfers one page while its cells are busy with another.
        pub pipelined: bool = Flag, 0;
        /// Pages that are acknowledged before they are programmed, which a flush and FUA wait for; 0 is no
        /// buffer.
        pub buffer: u32 = Count(0, 1 << 20), 0;
        /// Time of the controller for a command.
        pub command: Duration = Time(0, HOUR), 0;
    }
    check Config::consistent;
}

impl Config {
    /// The device of the flash operation group paper: 16 GiB on four chips, no buffer, a fifth spare as
    /// the paper does not say.
    pub fn paper() -> Self {
        Self::default()
    }

    /// A device as an `NVMe` drive of about 2024 looks from outside, with at least this capacity and 9 GiB: 64 dies,
    /// which read 4 KiB in 50 us and program 64 KiB in 600, of which a page is a sixteenth; 7 % spare; a
    /// buffer of 4 MiB. Reads about 1.2 million, programs about 1.5 million pages a second.
    pub fn nvme(bytes: u64) -> Self {
        let config = Self {
            chips: 64,
            spare_permille: 70,
            register: Duration::from_nanos(3_400),
            program: Duration::from_nanos(37_500),
            erase: Duration::from_micros(3_000),
            pipelined: true,
            buffer: 1_024,
            command: Duration::from_micros(8),
            ..Self::paper()
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

    fn consistent(&self) -> Result<(), Invalid> {
        // Numbers of pages have 32 bits, one of which says that there is none.
        if self.pages_in_all() >= u64::from(u32::MAX) {
            return Err(Invalid::Rule("blocks", "makes more than 4294967294 pages"));
        }
        let room =
            u64::from(self.chips) * u64::from(self.blocks - ftl::RESERVED) * u64::from(self.pages);
        if self.capacity_pages() > room - u64::from(self.chips * self.pages) {
            return Err(Invalid::Rule("spare_permille", "leaves too few blocks of a chip free"));
        }
        Ok(())
    }
}

/// The larger of the two.
const fn at_least(number: u64, least: u64) -> u64 {
    if number > least { number } else { least }
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
    /// An idle device. Panics if the configuration is not valid (`Settings::validate`).
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
