//! Payload memory: aligned, pooled, bounded.
//!
//! A [`Buffer`] is page-aligned, so that it can be read and written past the page cache, and is
//! shared by reference count between the task that owns it, the disk driver that fills it and the
//! connection that sends it. Nothing is allocated per request once the pool has warmed up.

#![expect(unsafe_code, reason = "aligned memory that the kernel reads and writes by address")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

/// Page-aligned bytes that the kernel may be reading or writing.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: NonNull<u8>,
    layout: Layout,
    /// I/Os by which the kernel, or a session with an upstream, may be changing this memory.
    filled: Cell<u32>,
    /// I/Os by which the kernel may be reading it.
    read: Cell<u32>,
}

/// What the kernel does with memory that is lent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It changes it.
    Fill,
    /// It reads it, as others may meanwhile: the pieces of one write may go to several stores.
    Read,
}

/// A shared buffer.
pub(crate) type Shared = Rc<Buffer>;

impl Buffer {
    fn new(size: usize) -> Self {
        let layout = Layout::from_size_align(size, ALIGNMENT).expect("classes are powers of two");
        // SAFETY: the layout has a size of at least `SMALLEST`.
        let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        Self { memory, layout, filled: Cell::new(0), read: Cell::new(0) }
    }

    /// How many bytes it holds.
    pub(crate) const fn len(&self) -> usize {
        self.layout.size()
    }

    /// The bytes. Panics while the kernel may be changing them.
    pub(crate) fn bytes(&self) -> &[u8] {
        assert!(self.filled.get() == 0, "the kernel has this buffer");
        // SAFETY: the memory is live and initialised for `len` bytes. The kernel does not write to
        // it (asserted), and Rust code writes only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.len()) }
    }

    /// The bytes, to be filled. Panics while the kernel has them.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(!self.is_lent(), "the kernel has this buffer");
        // SAFETY: as in `bytes`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.len()) }
    }

    /// Lends a range to the kernel until [`take_back`](Self::take_back). The driver that asks keeps
    /// a reference to the buffer as long.
    pub(crate) fn lend(&self, offset: usize, length: usize, what_for: Use) -> *mut u8 {
        assert!(offset.checked_add(length).is_some_and(|end| end <= self.len()));
        let count = self.lendings(what_for);
        count.set(count.get() + 1);
        // SAFETY: the offset is within the allocation.
        unsafe { self.memory.as_ptr().add(offset) }
    }

    /// Copies bytes into a range that is lent, for its borrower.
    pub(crate) fn fill(&self, offset: usize, bytes: &[u8]) {
        assert!(self.filled.get() > 0, "only what is lent is filled");
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len()));
        // SAFETY: the range is within the allocation, and cannot be part of `bytes`, which are borrowed
        // from elsewhere: while memory is lent, no code gets a reference to it (asserted in `bytes`).
        unsafe {
            let to = self.memory.as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Ends one lending.
    pub(crate) fn take_back(&self, what_for: Use) {
        let count = self.lendings(what_for);
        count.set(count.get().checked_sub(1).expect("it was lent"));
    }

    const fn lendings(&self, what_for: Use) -> &Cell<u32> {
        match what_for {
            Use::Fill => &self.filled,
            Use::Read => &self.read,
        }
    }

    const fn is_lent(&self) -> bool {
        self.filled.get() > 0 || self.read.get() > 0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        assert!(!self.is_lent(), "the kernel has this buffer");
        // SAFETY: allocated in `new` with this layout, and no reference to it is left.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}

/// Buffers by size class, within one limit.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: [Vec<Shared>; CLASSES],
    allocated: u64,
    limit: u64,
}

impl Pool {
    /// A pool that never holds more than `limit` bytes, lent and idle together.
    pub(crate) fn new(limit: u64) -> Self {
        Self { idle: [const { Vec::new() }; CLASSES], allocated: 0, limit }
    }

    /// A buffer of at least `length` bytes, with any content; `None` when the limit is reached or
    /// nothing that large is made.
    pub(crate) fn take(&mut self, length: usize) -> Option<Shared> {
        let class = class_of(length)?;
        if let Some(buffer) = self.idle[class].pop() {
            return Some(buffer);
        }
        let size = SMALLEST << class;
        // Idle buffers of other classes make room, the largest first.
        let mut other = CLASSES;
        while self.allocated + size as u64 > self.limit {
            let Some(buffer) = self.idle.get_mut(other.checked_sub(1)?)?.pop() else {
                other -= 1;
                continue;
            };
            self.allocated -= buffer.len() as u64;
        }
        self.allocated += size as u64;
        Some(Rc::new(Buffer::new(size)))
    }

    /// Takes a buffer back. Only the last reference may be given back, so that the next owner has
    /// it alone.
    pub(crate) fn give(&mut self, mut buffer: Shared) {
        assert!(Rc::get_mut(&mut buffer).is_some(), "the buffer has another user");
        let class = class_of(buffer.len()).expect("it came from a class");
        self.idle[class].push(buffer);
    }
}

/// A reply's bytes.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// Data from the medium, shared between the task and the connection's outbox.
    Pooled(Shared),
    /// What the gateway itself has to say.
    Small(Rc<[u8]>),
    /// A page that many replies refer to.
    Page(Arc<[u8]>),
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Pooled(buffer) => buffer.bytes(),
            Self::Small(bytes) => bytes,
            Self::Page(bytes) => bytes,
        }
    }
}

/// Bytes that have come and are not dealt with yet.
#[derive(Default)]
pub(crate) struct Received {
    memory: Vec<u8>,
    start: usize,
    filled: usize,
}

impl Received {
    /// The bytes that wait.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.filled]
    }

    /// Notes that this number of bytes has come into the room that [`spare`](Self::spare) gave.
    pub(crate) const fn arrived(&mut self, count: usize) {
        self.filled += count;
    }

    /// Notes that the first `count` of them are dealt with.
    pub(crate) const fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.filled {
            self.start = 0;
            self.filled = 0;
        }
    }

    /// Room for at least the rest of a message of `needed` bytes. Grows only for one that is larger
    /// than what there is, so a connection that never logs in stays small.
    pub(crate) fn spare(&mut self, needed: usize, smallest: usize) -> &mut [u8] {
        let wanted = needed.max(smallest).next_power_of_two();
        if self.memory.len() < wanted {
            self.memory.resize(wanted, 0);
        }
        if self.memory.len() - self.start < needed || self.filled == self.memory.len() {
            self.memory.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.start = 0;
        }
        let spare = &mut self.memory[self.filled..];
        assert!(!spare.is_empty(), "the received bytes are less than the message that is needed");
        spare
    }
}

/// What direct I/O asks of memory; a page satisfies every device.
const ALIGNMENT: usize = 4096;

/// Bytes in the smallest class; each class holds twice as much as the one before.
const SMALLEST: usize = 4096;

/// Classes from 4 KiB to [`LARGEST`].
const CLASSES: usize = 12;

/// The largest buffer, and with it the largest single transfer: 8 MiB.
pub(crate) const LARGEST: usize = SMALLEST << (CLASSES - 1);

fn class_of(length: usize) -> Option<usize> {
    let pages = length.max(1).div_ceil(SMALLEST).next_power_of_two();
    let class = pages.trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit covers lent and idle buffers; idle ones of another size make room.
    #[test]
    fn the_limit_holds() {
        let mut pool = Pool::new(16 << 10);
        let (a, b) = (pool.take(8 << 10).unwrap(), pool.take(5_000).unwrap());
        assert_eq!((a.len(), b.len()), (8 << 10, 8 << 10));
        assert!(pool.take(1).is_none());
        pool.give(a);
        let c = pool.take(1).expect("the idle 8 KiB make room for 4 KiB");
        assert_eq!(c.len(), 4 << 10);
        assert!(pool.take(8 << 10).is_none());
        drop(b);
    }

    /// What comes back is handed out again, and nothing larger than the largest class exists.
    #[test]
    fn buffers_are_reused() {
        let mut pool = Pool::new(u64::MAX);
        let a = pool.take(LARGEST).unwrap();
        let address = a.bytes().as_ptr();
        pool.give(a);
        assert_eq!(pool.take(LARGEST).unwrap().bytes().as_ptr(), address);
        assert!(pool.take(LARGEST + 1).is_none());
    }

    /// Bytes that the kernel may be changing cannot be looked at.
    #[test]
    #[should_panic(expected = "the kernel has this buffer")]
    fn lent_bytes_are_out_of_reach() {
        let buffer = std::mem::ManuallyDrop::new(Buffer::new(4096));
        buffer.lend(0, 512, Use::Fill);
        let _ = buffer.bytes();
    }

    /// Bytes that the kernel reads can be read by others, until the end as well as after it.
    #[test]
    fn lent_bytes_can_be_read_meanwhile() {
        let buffer = Buffer::new(4096);
        buffer.lend(0, 512, Use::Read);
        assert_eq!(buffer.bytes()[..512], [0; 512]);
        buffer.take_back(Use::Read);
    }

    /// Bytes that the kernel reads cannot be changed.
    #[test]
    #[should_panic(expected = "the kernel has this buffer")]
    fn bytes_that_are_read_stay() {
        let mut buffer = std::mem::ManuallyDrop::new(Buffer::new(4096));
        buffer.lend(0, 512, Use::Read);
        let _ = buffer.bytes_mut();
    }
}
