//! Reads and writes stores without a disk.
//!
//! Their I/O needs no kernel and no helper thread: the event loop copies. What has ended brings new operations at once, of
//! a copy for instance, so that the loop would not get to its sockets. Therefore a turn of the loop has a budget, which
//! all its exchanges share, and only [`next_turn`](MemoryDriver::next_turn) renews it: the rest waits for that.

use crate::storage::io::{Done, Io, Work};
use crate::storage::memory::{Memory, PAGE};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

/// Operations on stores without a disk that have not been done. The limits of the pipeline bound them.
#[derive(Debug)]
pub(crate) struct MemoryDriver {
    waiting: VecDeque<(Rc<Memory>, Io)>,
    /// Bytes that may still be moved in this turn of the loop.
    left: u64,
}

impl MemoryDriver {
    /// No operations.
    pub(crate) const fn new() -> Self {
        Self { waiting: VecDeque::new(), left: MOVED_AT_ONCE }
    }

    /// Takes an operation.
    pub(crate) fn submit(&mut self, memory: Rc<Memory>, io: Io) {
        self.waiting.push_back((memory, io));
    }

    /// The event loop has looked at its sockets.
    pub(crate) const fn next_turn(&mut self) {
        self.left = MOVED_AT_ONCE;
    }

    /// Whether operations wait.
    pub(crate) fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Does operations, in order, until the bytes of this turn were moved.
    pub(crate) fn exchange(&mut self, done: &mut Vec<Done>) {
        while self.left > 0
            && let Some((memory, mut io)) = self.waiting.pop_front()
        {
            let whole =
                io.offset.checked_add(io.length).is_some_and(|end| end <= memory.capacity());
            let clears = matches!(io.work, Work::Discard | Work::Zero);
            let cost = if clears { io.length / CLEARED_PER_MOVED } else { io.length };
            if whole && clears && cost > self.left {
                // The rest of a long range is for the next turn. No page is cut: its memory would stay.
                let end = (io.offset + self.left * CLEARED_PER_MOVED) / PAGE as u64 * PAGE as u64;
                let now = end.saturating_sub(io.offset);
                memory.clear(io.offset, now);
                io.offset += now;
                io.length -= now;
                self.left = 0;
                self.waiting.push_front((memory, io));
                return;
            }
            self.left = self.left.saturating_sub(cost.max(COST_MIN));
            let result = whole.then(|| work(&memory, &io)).ok_or_else(beyond);
            done.push(Done { whose: io.whose, result, flushed: false, promise: io.promise });
        }
    }
}

fn work(memory: &Memory, io: &Io) {
    match &io.work {
        Work::Read { buffer, at } => memory.read(io.offset, buffer, *at, io.length as usize),
        Work::Write { buffer, at, .. } => {
            memory.write(io.offset, &buffer.bytes()[*at..*at + io.length as usize]);
        }
        // Nothing that is here survives the process, so that there is nothing to make durable.
        Work::Sync => {}
        Work::Discard | Work::Zero => memory.clear(io.offset, io.length),
    }
}

fn beyond() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the I/O ends beyond the store")
}

/// Bytes that are moved in one turn of the loop. The operation that passes this is finished, and is as long as a
/// request at a store may be; others wait.
const MOVED_AT_ONCE: u64 = 4 << 20;

/// Bytes of a range that are freed at the cost of moving one.
const CLEARED_PER_MOVED: u64 = 16;

/// What the shortest operation costs: about what the rest of the gateway does for it.
const COST_MIN: u64 = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Pool;
    use crate::storage::io::Whose;
    use crate::storage::memory::PAGE;
    use weir_flow::request::RequestKey;
    use weir_flow::rng::mix;

    fn io(work: Work, offset: u64, length: u64) -> Io {
        let whose = Whose::Request(RequestKey::default());
        Io { whose, work, offset, length, promise: Some(7) }
    }

    /// Does one operation, which ends in one turn.
    fn one(memory: &Rc<Memory>, io: Io) -> io::Result<()> {
        let (mut driver, mut done) = (MemoryDriver::new(), Vec::new());
        driver.submit(memory.clone(), io);
        driver.exchange(&mut done);
        assert_eq!((done.len(), driver.has_more()), (1, false));
        let Done { result, flushed, promise, .. } = done.pop().unwrap();
        assert_eq!((flushed, promise), (false, Some(7)));
        result
    }

    fn read(memory: &Rc<Memory>, offset: u64, length: usize) -> Vec<u8> {
        let mut buffer = Pool::new(1 << 24).take(length + 3).unwrap();
        Rc::get_mut(&mut buffer).unwrap().bytes_mut().fill(0xaa);
        let work = Work::Read { buffer: buffer.clone(), at: 3 };
        one(memory, io(work, offset, length as u64)).unwrap();
        assert_eq!(buffer.bytes()[..3], [0xaa; 3]);
        buffer.bytes()[3..3 + length].to_vec()
    }

    fn write(memory: &Rc<Memory>, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut buffer = Pool::new(1 << 24).take(bytes.len() + 5).unwrap();
        Rc::get_mut(&mut buffer).unwrap().bytes_mut()[5..5 + bytes.len()].copy_from_slice(bytes);
        let work = Work::Write { buffer, at: 5, durable: true };
        one(memory, io(work, offset, bytes.len() as u64))
    }

    /// Random writes, clears and reads have the result that a flat array has, across pages and tables, and no page
    /// is held of which nothing was written since it was cleared as a whole.
    #[test]
    fn it_is_an_array() {
        const SIZE: usize = 5 << 20;
        let memory = Rc::new(Memory::new(SIZE as u64, true));
        let (mut flat, mut there) = (vec![0_u8; SIZE], vec![false; SIZE / PAGE]);
        let mut state = 5;
        let mut draw = |below: usize| {
            state = mix(state + 1);
            (state % below as u64) as usize
        };
        for _ in 0..400 {
            let unit = [1, 512, PAGE][draw(3)];
            let offset = draw(SIZE / unit) * unit;
            let most = [unit, 3 * PAGE, 3 << 20][draw(3)];
            let length = (SIZE - offset).min((1 + draw(most / unit)) * unit);
            let pages = offset / PAGE..(offset + length).div_ceil(PAGE);
            match draw(3) {
                0 => {
                    let bytes: Vec<u8> =
                        (0..length.min(1 << 20)).map(|_| draw(256) as u8).collect();
                    write(&memory, offset as u64, &bytes).unwrap();
                    flat[offset..offset + bytes.len()].copy_from_slice(&bytes);
                    there[pages.start..(offset + bytes.len()).div_ceil(PAGE)].fill(true);
                }
                1 => {
                    let work = [Work::Discard, Work::Zero].into_iter().nth(draw(2)).unwrap();
                    one(&memory, io(work, offset as u64, length as u64)).unwrap();
                    flat[offset..offset + length].fill(0);
                    let whole = offset.div_ceil(PAGE)..(offset + length) / PAGE;
                    there[whole.start.min(whole.end)..whole.end].fill(false);
                }
                _ => {
                    let length = length.min(1 << 20);
                    assert_eq!(
                        read(&memory, offset as u64, length),
                        &flat[offset..offset + length],
                        "{offset} {length}"
                    );
                }
            }
            assert_eq!(memory.pages_held(), there.iter().filter(|&&there| there).count());
        }
        one(&memory, io(Work::Discard, 0, SIZE as u64)).unwrap();
        assert_eq!(memory.pages_held(), 0);
    }

    /// A null store drops writes and reads as zeroes, whatever was in the buffer.
    #[test]
    fn null_keeps_nothing() {
        let memory = Rc::new(Memory::new(1 << 40, false));
        write(&memory, 512, &[7; 10_000]).unwrap();
        assert_eq!(read(&memory, 0, 12_000), [0; 12_000]);
        one(&memory, io(Work::Sync, 0, 0)).unwrap();
        one(&memory, io(Work::Zero, 0, 1 << 20)).unwrap();
    }

    /// What ends beyond the store is an error, and changes nothing; a store that has grown takes it.
    #[test]
    fn its_size_is_a_bound() {
        let memory = Rc::new(Memory::new(8_192, true));
        for (offset, length) in [(8_192, 512), (4_096, 8_192), (u64::MAX, 512)] {
            let error = write(&memory, offset, &vec![1; length]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            one(&memory, io(Work::Discard, offset, length as u64)).unwrap_err();
        }
        assert_eq!(memory.pages_held(), 0);
        memory.grow(16_384);
        write(&memory, 4_096, &[1; 8_192]).unwrap();
        memory.grow(512);
        assert_eq!((memory.capacity(), memory.pages_held()), (16_384, 2));
    }

    /// One turn moves a bounded number of bytes, however often it exchanges: a long queue and a long range take several,
    /// in order, each operation ends once, and a range that is cut frees all its pages.
    #[test]
    fn one_turn_is_short() {
        let memory = Rc::new(Memory::new(1 << 40, true));
        // The page in which the first turn that frees ends, the last page that is freed, and the one behind it.
        for page in [8_174 * 4_096, (300 << 20) - 4_096, 300 << 20] {
            write(&memory, page, &[1; 4_096]).unwrap();
        }
        let mut driver = MemoryDriver::new();
        let buffer = Pool::new(1 << 24).take(1 << 20).unwrap();
        for at in 0..10 {
            let work = Work::Write { buffer: buffer.clone(), at: 0, durable: false };
            driver.submit(memory.clone(), io(work, at << 20, 1 << 20));
        }
        // What these cost is no multiple of a page.
        driver.submit(memory.clone(), io(Work::Zero, 512, 70_000));
        driver.submit(memory.clone(), io(Work::Discard, 0, 300 << 20));
        let mut turns = Vec::new();
        while driver.has_more() {
            let mut done = Vec::new();
            driver.next_turn();
            for _ in 0..3 {
                driver.exchange(&mut done);
            }
            turns.push((done.len(), memory.pages_held()));
        }
        // A MiB has 256 pages. The discard begins with the nearly 2 MiB that the third turn has left.
        let rest = [(0, 2), (0, 2), (0, 2), (0, 2), (1, 1)];
        assert_eq!(turns, [&[(4, 1_027), (4, 2_051), (3, 3)][..], &rest].concat());
        assert_eq!(read(&memory, 300 << 20, 512), [1; 512]);
    }
}
