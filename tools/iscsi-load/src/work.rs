//! The commands to send, their data, and their results.

use crate::login::Disk;
use hdrhistogram::Histogram;
use std::rc::Rc;

/// The order of block accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Uniformly at random, without end.
    Random,
    /// Each once, in ascending order.
    Sequential,
    /// No more.
    Stopped,
}

/// The commands that are to be sent next.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    disk: Disk,
    /// Bytes per command.
    pub(crate) block: u32,
    pub(crate) write: bool,
    /// Compare what is read with the pattern.
    pub(crate) check: bool,
    order: Order,
    next: u64,
    random: u64,
}

impl Work {
    /// Nothing yet.
    pub(crate) fn new(disk: Disk, block: u32, seed: u64) -> Self {
        // Any seed will do but the state must not be zero: xorshift stays there.
        let random = (seed ^ 0x9e37_79b9_7f4a_7c15).max(1);
        let order = Order::Stopped;
        Self { disk, block, write: false, check: false, order, next: 0, random }
    }

    /// Starts a new order of accesses.
    pub(crate) const fn start(&mut self, order: Order, write: bool, check: bool) {
        (self.order, self.write, self.check, self.next) = (order, write, check, 0);
    }

    /// Sends no more commands.
    pub(crate) const fn stop(&mut self) {
        self.order = Order::Stopped;
    }

    /// The offset of the next command in bytes; `None` if there is none.
    pub(crate) fn next(&mut self) -> Option<u64> {
        let places = self.disk.bytes() / u64::from(self.block);
        let place = match self.order {
            Order::Stopped => return None,
            Order::Random => ((u128::from(self.bits()) * u128::from(places)) >> 64) as u64,
            Order::Sequential if self.next == places => return None,
            Order::Sequential => {
                self.next += 1;
                self.next - 1
            }
        };
        Some(place * u64::from(self.block))
    }

    /// The first logical block at this byte, and how many blocks a command moves.
    pub(crate) fn extent(&self, offset: u64) -> (u64, u32) {
        (offset / u64::from(self.disk.block_size), self.block / self.disk.block_size)
    }

    /// 64 random bits: xorshift64* (Vigna, 2016).
    const fn bits(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// The data of a write.
#[derive(Clone, Debug)]
pub(crate) struct Block(Rc<Vec<u8>>);

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The pattern for `length` bytes at `offset`: every eight bytes contain their offset, so that a misplaced block is
/// detected. Both are multiples of eight.
pub(crate) fn pattern(offset: u64, length: usize) -> Block {
    let mut block = Vec::with_capacity(length);
    for at in (offset..offset + length as u64).step_by(8) {
        block.extend_from_slice(&word(at).to_le_bytes());
    }
    Block(Rc::new(block))
}

/// READ(16) or WRITE(16): SBC-4, 5.16 and 5.46.
pub(crate) fn read_write_16(write: bool, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = if write { 0x8a } else { 0x88 };
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// The offset of the first byte that is not the pattern at `offset`, if any.
pub(crate) fn find_difference(bytes: &[u8], offset: u64) -> Option<u64> {
    let (words, rest) = bytes.as_chunks::<8>();
    let places = (offset..).step_by(8);
    let wrong = words.iter().zip(places).find(|(found, at)| **found != word(*at).to_le_bytes());
    match wrong {
        Some((_, at)) => Some(at),
        None if rest.is_empty() => None,
        None => Some(offset + (words.len() * 8) as u64),
    }
}

const fn word(at: u64) -> u64 {
    at ^ 0x5765_6972_5765_6972
}

/// The results of the commands.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Response times in nanoseconds of all commands that ended, with any status.
    pub(crate) times: Histogram<u64>,
    /// Commands that failed.
    pub(crate) errors: u64,
    /// The error of the first of them.
    pub(crate) first_problem: Option<String>,
}

impl Default for Tally {
    fn default() -> Self {
        let times = Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order");
        Self { times, errors: 0, first_problem: None }
    }
}

impl Tally {
    /// Forgets the response times of the warm-up. Errors stay.
    pub(crate) fn clear(&mut self) {
        self.times.reset();
    }

    /// Records a failed command.
    pub(crate) fn error(&mut self, describe: impl FnOnce() -> String) {
        self.errors += 1;
        self.first_problem.get_or_insert_with(describe);
    }
}

/// Longer response times count as this one: an hour, in nanoseconds.
const LONGEST: u64 = 3_600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// A pattern is found whole where it was written, and a wrong byte, a block in the wrong place and
    /// a torn word are found at their first byte.
    #[test]
    fn differences_are_found() {
        let block = pattern(4_096, 512);
        assert_eq!(find_difference(block.as_ref(), 4_096), None);
        assert_eq!(find_difference(block.as_ref(), 8_192), Some(8_192));
        let mut bytes = block.as_ref().to_vec();
        bytes[130] ^= 1;
        assert_eq!(find_difference(&bytes, 4_096), Some(4_096 + 128));
        assert_eq!(find_difference(&block.as_ref()[..12], 4_096), Some(4_096 + 8));
    }

    /// The response times of the warm-up are not in the result, but its errors are.
    #[test]
    fn the_warm_up_leaves_only_errors() {
        let mut tally = Tally::default();
        tally.times.saturating_record(7);
        tally.error(|| String::from("first"));
        tally.error(|| String::from("second"));
        tally.clear();
        assert_eq!((tally.times.len(), tally.errors), (0, 2));
        assert_eq!(tally.first_problem.as_deref(), Some("first"));
    }
}
