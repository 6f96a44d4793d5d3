//! The thread-pool driver: plain positioned reads and writes, where no ring is to be had.

#![expect(unsafe_code, reason = "worker threads read and write lent memory by address")]

use super::{Driver, ZEROES, cut_short, no_holes};
use crate::buffer::{Shared, Use};
use crate::storage::io::{Done, Io, Whose, Work};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Worker threads and what they work on.
pub(crate) struct Threads {
    jobs: Option<Sender<Job>>,
    finished: Arc<Mutex<VecDeque<(usize, i32)>>>,
    workers: Vec<JoinHandle<()>>,
    flying: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Reaped in one go, so that workers wait for the lock as little as possible.
    batch: VecDeque<(usize, i32)>,
}

/// A job that has not been reaped.
struct Flight {
    whose: Whose,
    buffer: Option<(Shared, Use)>,
    flushes: bool,
    promise: Option<usize>,
}

/// What a worker needs: numbers and an address, nothing that is counted or shared.
struct Job {
    index: usize,
    fd: RawFd,
    call: Call,
    offset: u64,
    length: u64,
}

enum Call {
    Read(Lent),
    Write(Lent, bool),
    Sync,
    Allocate(i32),
}

/// The address of memory that stays lent until the job is reaped.
struct Lent(*mut u8);

// SAFETY: the memory is lent to exactly one job, and its owner does not touch it until the job has
// been reaped.
unsafe impl Send for Lent {}

impl Threads {
    /// Starts `count` workers. They call `wake` after each job.
    pub(crate) fn new(count: usize, wake: impl Fn() + Send + Clone + 'static) -> io::Result<Self> {
        let (jobs, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let finished = Arc::new(Mutex::new(VecDeque::new()));
        let mut workers = Vec::new();
        for number in 0..count {
            let (queue, finished, wake) = (queue.clone(), finished.clone(), wake.clone());
            let worker = std::thread::Builder::new()
                .name(format!("weir-disk-{number}"))
                .spawn(move || work(&queue, &finished, &wake))?;
            workers.push(worker);
        }
        Ok(Self {
            jobs: Some(jobs),
            finished,
            workers,
            flying: Vec::new(),
            free: Vec::new(),
            batch: VecDeque::new(),
        })
    }
}

impl Driver for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn submit(&mut self, fd: RawFd, io: Io) {
        let length = io.length as usize;
        let lend = |buffer: &Shared, at: usize, what_for| Lent(buffer.lend(at, length, what_for));
        let (call, buffer) = match io.work {
            Work::Read { buffer, at } => {
                (Call::Read(lend(&buffer, at, Use::Fill)), Some((buffer, Use::Fill)))
            }
            Work::Write { buffer, at, durable } => {
                (Call::Write(lend(&buffer, at, Use::Read), durable), Some((buffer, Use::Read)))
            }
            Work::Sync => (Call::Sync, None),
            Work::Discard => {
                (Call::Allocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE), None)
            }
            Work::Zero => {
                (Call::Allocate(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE), None)
            }
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.flying.push(None);
            self.flying.len() - 1
        });
        let flushes = matches!(call, Call::Sync);
        self.flying[index] = Some(Flight { whose: io.whose, buffer, flushes, promise: io.promise });
        let job = Job { index, fd, call, offset: io.offset, length: io.length };
        let jobs = self.jobs.as_ref().expect("open until dropped");
        assert!(jobs.send(job).is_ok(), "workers live as long as the queue");
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> bool {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *finished, &mut self.batch);
        drop(finished);
        for (index, code) in self.batch.drain(..) {
            let flight = self.flying[index].take().expect("a job ends once");
            self.free.push(index);
            if let Some((buffer, what_for)) = flight.buffer {
                buffer.take_back(what_for);
            }
            let result = match code {
                0 => Ok(()),
                CUT_SHORT => Err(cut_short()),
                code => Err(io::Error::from_raw_os_error(code)),
            };
            let Flight { whose, flushes: flushed, promise, .. } = flight;
            done.push(Done { whose, result, flushed, promise });
        }
        false
    }
}

/// Lets the workers finish what they have: they write to memory that we free.
impl Drop for Threads {
    fn drop(&mut self) {
        self.jobs = None;
        for worker in self.workers.drain(..) {
            // A worker that panicked has said so itself.
            let _ = worker.join();
        }
        self.reap(&mut Vec::new());
    }
}

/// Stands for the end of the file where an error number is expected; no error has it.
const CUT_SHORT: i32 = -1;

fn work(queue: &Mutex<Receiver<Job>>, finished: &Mutex<VecDeque<(usize, i32)>>, wake: &impl Fn()) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        let index = job.index;
        let code = perform(job);
        finished.lock().unwrap_or_else(PoisonError::into_inner).push_back((index, code));
        wake();
    }
}

/// Zero, or the error number.
fn perform(job: Job) -> i32 {
    let Job { fd, call, mut offset, mut length, .. } = job;
    match call {
        // SAFETY: a plain system call on an open file.
        Call::Sync => retried(|| unsafe { libc::fdatasync(fd) }),
        Call::Allocate(mode) => {
            let (start, count) = (offset.cast_signed(), length.cast_signed());
            // SAFETY: as above.
            match retried(|| unsafe { libc::fallocate(fd, mode, start, count) }) {
                code if no_holes(code) => write_zeroes(fd, offset, length),
                code => code,
            }
        }
        Call::Read(Lent(mut memory)) => {
            while length > 0 {
                // SAFETY: the memory is lent for `length` bytes from `memory` on.
                let result = unsafe {
                    libc::pread(fd, memory.cast(), length as usize, offset.cast_signed())
                };
                match errno_of(result) {
                    (libc::EINTR, _) => {}
                    (0, 0) => return CUT_SHORT,
                    (0, moved) => {
                        offset += moved;
                        length -= moved;
                        // SAFETY: within the lent range, since `moved` is at most `length`.
                        memory = unsafe { memory.add(moved as usize) };
                    }
                    (code, _) => return code,
                }
            }
            0
        }
        Call::Write(Lent(memory), durable) => {
            // SAFETY: the memory is lent for `length` bytes, and no other code writes to it meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts(memory, length as usize) };
            write_all(fd, bytes, offset, if durable { libc::RWF_DSYNC } else { 0 })
        }
    }
}

fn write_all(fd: RawFd, mut bytes: &[u8], mut offset: u64, flags: i32) -> i32 {
    while !bytes.is_empty() {
        let vector =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: one vector over a live slice, which the call only reads.
        let result =
            unsafe { libc::pwritev2(fd, &raw const vector, 1, offset.cast_signed(), flags) };
        match errno_of(result) {
            (libc::EINTR, _) => {}
            (0, 0) => return CUT_SHORT,
            (0, moved) => {
                offset += moved;
                bytes = &bytes[moved as usize..];
            }
            (code, _) => return code,
        }
    }
    0
}

fn write_zeroes(fd: RawFd, offset: u64, length: u64) -> i32 {
    // Aligned as direct I/O needs it.
    let mut pool = crate::buffer::Pool::new(ZEROES as u64);
    let zeroes = pool.take(ZEROES).expect("it fits its own limit");
    let mut done = 0;
    while done < length {
        let piece = (length - done).min(ZEROES as u64);
        let code = write_all(fd, &zeroes.bytes()[..piece as usize], offset + done, 0);
        if code != 0 {
            return code;
        }
        done += piece;
    }
    0
}

/// The error number of a call that signals may interrupt, or zero.
fn retried(call: impl Fn() -> i32) -> i32 {
    loop {
        match errno_of(call() as isize).0 {
            libc::EINTR => {}
            code => return code,
        }
    }
}

/// The error number of a call, or zero and its result.
fn errno_of(result: isize) -> (i32, u64) {
    match u64::try_from(result) {
        Ok(moved) => (0, moved),
        Err(_) => (io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO), 0),
    }
}
