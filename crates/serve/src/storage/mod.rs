//! Reads, writes and flushes the stores of volumes: files and devices, upstreams, and the devices of logs.
//!
//! A shard submits with [`StorageSubmit`] and receives [`StorageDone`]. Storage knows no command, no front
//! end and no host. What it needs of the operating system is behind small traits, so that a test can drive it
//! without a kernel: [`file::Driver`] for disks, [`upstream::network::Network`] for the sockets of upstream
//! sessions, [`blocking::Blocking`] for helper threads and the files that they write, [`random::Random`].

pub(crate) mod blocking;
pub(crate) mod checked_json;
pub(crate) mod emulated;
pub(crate) mod file;
pub(crate) mod io;
pub(crate) mod layout;
pub(crate) mod log_device;
pub(crate) mod memory;
pub(crate) mod memory_driver;
pub(crate) mod random;
pub(crate) mod state_file;
pub(crate) mod store;
#[cfg(test)]
mod tests;
pub(crate) mod upstream;

use crate::limits::Tally;
use file::Driver;
use io::{Done, Ended, Location, StorageDone, StorageSubmit, Submit, tenant_error};
use memory_driver::MemoryDriver;
use tracing::warn;
use upstream::Upstreams;
use upstream::network::{Network, Tcp};
use weir_flow::pipeline::Input;

/// The stores of a shard.
pub(crate) struct Storage<N: Network = Tcp> {
    /// Reads and writes files and devices.
    driver: Box<dyn Driver>,
    /// Reads and writes stores without a disk.
    memory: MemoryDriver,
    /// Sessions with the targets of upstreams.
    pub(crate) upstreams: Upstreams<N>,
    /// Operations that the driver has ended; its memory is used again.
    finished: Vec<Done>,
    /// Answers that need no I/O, for the next collection.
    answers: Vec<StorageDone>,
    /// Operations that ended with an error of the operating system.
    errors: Tally,
    /// Operations wait because the kernel had no room for them.
    unsubmitted: bool,
}

impl<N: Network> Storage<N> {
    /// Storage on this driver and these upstreams.
    pub(crate) fn new(driver: Box<dyn Driver>, upstreams: Upstreams<N>) -> Self {
        Self {
            driver,
            memory: MemoryDriver::new(),
            upstreams,
            finished: Vec::new(),
            answers: Vec::new(),
            errors: Tally::default(),
            unsubmitted: false,
        }
    }

    /// What operators call the disk driver.
    pub(crate) fn driver_name(&self) -> &'static str {
        self.driver.name()
    }

    /// Whether operations wait for the kernel to make room, which it does not announce.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.unsubmitted
    }

    /// The event loop has looked at its sockets: a new turn begins.
    pub(crate) const fn next_turn(&mut self) {
        self.memory.next_turn();
    }

    /// Whether there is more to do at once than one turn of the loop does.
    pub(crate) fn has_more(&self) -> bool {
        self.memory.has_more()
    }

    /// Hands all operations on files to the kernel, does those on memory, and appends those that have ended.
    pub(crate) fn exchange_files(&mut self, done: &mut Vec<StorageDone>) -> std::io::Result<()> {
        // Operations in several steps are handed over again; those that still wait then are waiting for the
        // kernel to make room.
        for _ in 0..STEPS {
            self.driver.flush()?;
            self.unsubmitted = self.driver.reap(&mut self.finished);
            if !self.unsubmitted {
                break;
            }
        }
        if self.memory.has_more() {
            self.memory.exchange(&mut self.finished);
        }
        if self.finished.is_empty() {
            return Ok(());
        }
        for Done { whose, result, flushed, promise } in self.finished.drain(..) {
            let outcome = result.map_err(|problem| {
                if self.errors.speaks() {
                    warn!(%problem, errors_total = self.errors.total(), "disk I/O failed");
                }
                tenant_error(&problem)
            });
            done.push(StorageDone::Ended(Ended { whose, outcome, flushed, promise }));
        }
        Ok(())
    }

    /// Sends everything to upstreams, and appends what has happened there.
    pub(crate) fn exchange_upstreams(&mut self, done: &mut Vec<StorageDone>) {
        self.upstreams.write_all();
        if !self.answers.is_empty() {
            done.append(&mut self.answers);
        }
        self.upstreams.append_done(done);
    }
}

impl<N: Network> Submit for Storage<N> {
    fn submit(&mut self, request: StorageSubmit) {
        match request {
            StorageSubmit::Io(Location::File(fd), io) => self.driver.submit(fd, io),
            StorageSubmit::Io(Location::Memory(memory), io) => self.memory.submit(memory, io),
            StorageSubmit::Io(Location::Path(backend, path), io) => {
                self.upstreams.submit(backend, path, io);
            }
            StorageSubmit::Check(backend, path) if self.upstreams.has(backend) => {
                self.upstreams.check(backend, path);
            }
            // A file has one path, which is always there: no other could take over.
            StorageSubmit::Check(backend, path) => {
                self.answers.push(StorageDone::Input(Input::Checked(backend, path)));
            }
            StorageSubmit::Abandon(backend, path, key) => {
                self.upstreams.abandon(backend, path, key);
            }
            StorageSubmit::Recall(backend, path, key) => self.upstreams.recall(backend, path, key),
            StorageSubmit::Reset(backend, path) => self.upstreams.reset(backend, path),
        }
    }
}

/// How often operations in several steps are handed to the kernel in one exchange.
const STEPS: usize = 4;
