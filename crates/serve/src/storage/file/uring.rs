//! The `io_uring` driver: one system call hands over a batch and collects what has ended.
//!
//! Reads that the page cache can answer end inside that same call.

#![expect(unsafe_code, reason = "submission entries carry raw addresses")]

use super::{Driver, ZEROES, cut_short, no_holes};
use crate::buffer::{Pool, Shared, Use};
use crate::storage::io::{Done, Io, Whose, Work};
use io_uring::{IoUring, opcode, squeue, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// A ring and what is on it.
pub(crate) struct Uring {
    ring: IoUring,
    /// Operations that the kernel has, by the number in their user data.
    flying: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Entries that did not fit the submission queue yet.
    overflow: VecDeque<usize>,
    zeroes: Shared,
}

/// An operation and how much of it is still to be done.
struct Flight {
    whose: Whose,
    fd: RawFd,
    step: Step,
    offset: u64,
    length: u64,
    promise: Option<usize>,
}

enum Step {
    Read {
        buffer: Shared,
        at: usize,
    },
    Write {
        buffer: Shared,
        at: usize,
        durable: bool,
    },
    Sync,
    Allocate {
        mode: i32,
    },
    /// Zeroes written in pieces, where the file system cannot make a hole.
    WriteZeroes {
        piece: u32,
    },
}

impl Uring {
    /// A ring with room for `entries` operations at a time, or the kernel's reason not to give one.
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(entries)
            .or_else(|_| IoUring::new(entries))?;
        let zeroes = Pool::new(ZEROES as u64).take(ZEROES).expect("it fits its own limit");
        Ok(Self { ring, flying: Vec::new(), free: Vec::new(), overflow: VecDeque::new(), zeroes })
    }

    fn place(&mut self, flight: Flight) -> usize {
        if let Some(index) = self.free.pop() {
            self.flying[index] = Some(flight);
            return index;
        }
        self.flying.push(Some(flight));
        self.flying.len() - 1
    }

    fn push(&mut self, index: usize) {
        let flight = self.flying[index].as_mut().expect("only what flies is pushed");
        if self.ring.submission().is_full() {
            self.overflow.push_back(index);
            return;
        }
        let entry = flight.entry(&self.zeroes).user_data(index as u64);
        // SAFETY: the memory that the entry names belongs to buffers which `flying` keeps alive,
        // and lends out, until the completion is reaped.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "there was room");
    }

    /// Moves an operation on by what the kernel did; the result if it has ended.
    fn advance(&mut self, index: usize, result: i32) -> Option<io::Result<()>> {
        let flight = self.flying[index].as_mut().expect("a completion is for what flies");
        flight.take_back(&self.zeroes);
        if result < 0 {
            let error = io::Error::from_raw_os_error(-result);
            if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) {
                return None;
            }
            let holes = matches!(flight.step, Step::Allocate { .. });
            if holes && no_holes(-result) {
                flight.step = Step::WriteZeroes { piece: 0 };
                return None;
            }
            return Some(Err(error));
        }
        let moved = u64::from(result.unsigned_abs());
        match &mut flight.step {
            Step::Sync | Step::Allocate { .. } => return Some(Ok(())),
            Step::Read { at, .. } | Step::Write { at, .. } => *at += moved as usize,
            Step::WriteZeroes { .. } => {}
        }
        if moved == 0 {
            return Some(Err(cut_short()));
        }
        flight.offset += moved;
        flight.length -= moved;
        (flight.length == 0).then_some(Ok(()))
    }
}

impl Flight {
    /// The submission entry for the rest of the operation. Lends its memory to the kernel.
    fn entry(&mut self, zeroes: &Shared) -> squeue::Entry {
        let fd = types::Fd(self.fd);
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        match &mut self.step {
            Step::Read { buffer, at } => {
                let memory = buffer.lend(*at, length as usize, Use::Fill);
                opcode::Read::new(fd, memory, length).offset(self.offset).build()
            }
            Step::Write { buffer, at, durable } => {
                let memory = buffer.lend(*at, length as usize, Use::Read);
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(fd, memory, length).offset(self.offset).rw_flags(flags).build()
            }
            Step::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Step::Allocate { mode } => {
                opcode::Fallocate::new(fd, self.length).offset(self.offset).mode(*mode).build()
            }
            Step::WriteZeroes { piece } => {
                *piece = length.min(ZEROES as u32);
                let memory = zeroes.lend(0, *piece as usize, Use::Read);
                opcode::Write::new(fd, memory, *piece).offset(self.offset).build()
            }
        }
    }

    /// Takes back what `entry` lent.
    fn take_back(&self, zeroes: &Shared) {
        match &self.step {
            Step::Read { buffer, .. } => buffer.take_back(Use::Fill),
            Step::Write { buffer, .. } => buffer.take_back(Use::Read),
            Step::WriteZeroes { .. } => zeroes.take_back(Use::Read),
            Step::Sync | Step::Allocate { .. } => {}
        }
    }
}

impl Driver for Uring {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn submit(&mut self, fd: RawFd, io: Io) {
        let step = match io.work {
            Work::Read { buffer, at } => Step::Read { buffer, at },
            Work::Write { buffer, at, durable } => Step::Write { buffer, at, durable },
            Work::Sync => Step::Sync,
            Work::Discard => {
                Step::Allocate { mode: libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE }
            }
            Work::Zero => {
                Step::Allocate { mode: libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE }
            }
        };
        let Io { whose, offset, length, promise, .. } = io;
        let index = self.place(Flight { whose, fd, step, offset, length, promise });
        self.push(index);
    }

    fn flush(&mut self) -> io::Result<()> {
        loop {
            let queue = self.ring.submission();
            // Completions that found no room, or were left for us to run, need a call as well.
            let call = !queue.is_empty() || queue.cq_overflow() || queue.taskrun();
            drop(queue);
            if call {
                match self.ring.submit() {
                    Ok(_) => {}
                    // The completion queue is full, or memory is short: reap first, then come back.
                    Err(error)
                        if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) =>
                    {
                        return Ok(());
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                }
            }
            if self.overflow.is_empty() || self.ring.submission().is_full() {
                return Ok(());
            }
            while !self.ring.submission().is_full() {
                let Some(index) = self.overflow.pop_front() else { break };
                self.push(index);
            }
        }
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> bool {
        if self.flying.len() == self.free.len() {
            return false;
        }
        while let Some(entry) = { self.ring.completion().next() } {
            let index = entry.user_data() as usize;
            match self.advance(index, entry.result()) {
                Some(result) => {
                    let flight = self.flying[index].take().expect("it flew until now");
                    self.free.push(index);
                    let flushed = matches!(flight.step, Step::Sync);
                    let Flight { whose, promise, .. } = flight;
                    done.push(Done { whose, result, flushed, promise });
                }
                None => self.push(index),
            }
        }
        !self.ring.submission().is_empty() || !self.overflow.is_empty()
    }
}

impl AsRawFd for Uring {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

/// Waits until the kernel has nothing of ours any more: it writes to memory that we free.
impl Drop for Uring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        loop {
            // What the kernel has not been given is not lent, and need not be waited for.
            for index in self.overflow.drain(..) {
                self.flying[index] = None;
                self.free.push(index);
            }
            if self.flying.len() == self.free.len() {
                return;
            }
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    // Without the ring there is no way to know when it ends; leaking is the safe
                    // end.
                    self.flying.drain(..).for_each(std::mem::forget);
                    std::mem::forget(self.zeroes.clone());
                    return;
                }
                _ => {
                    self.reap(&mut done);
                }
            }
        }
    }
}
