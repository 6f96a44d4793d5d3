//! What the pipeline wants done with stores, and how it ended.

use super::{Desk, reply};
use crate::ids::TaskKey;
use crate::storage::file::atomic_journal;
use crate::storage::io::{Ended, Io, Location, StorageSubmit, Submit, Whose, Work};
use crate::storage::store::Store;
use crate::tasks::table::Task;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use tracing::error;
use weir_flow::cache::Done::Logged;
use weir_flow::clock::Instant;
use weir_flow::error::IoError;
use weir_flow::pipeline::{Input, StoreIo};
use weir_flow::request::{Op, Outcome, RequestKey};
use weir_flow::units::Extent;
use weir_wire::scsi::cdb::{Compare, MediaOp};

/// An update at its store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update {
    io: StoreIo,
    step: Step,
    /// Why it fails when it has cleaned up.
    failed: Option<IoError>,
}

/// What the store does of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Read what is there.
    Read,
    /// Write what there shall be.
    Write,
    /// Read back what was written.
    Verify,
    /// Write the journal record of an atomic write.
    Journal,
    /// Write its data.
    InPlace,
    /// Make the record invalid.
    Clear,
    /// Zero blocks or give them back; a flush makes that durable.
    Zero,
}

impl Desk {
    /// Performs a store action: what the pipeline wants done with a store.
    pub(crate) fn store(&mut self, now: Instant, io: &StoreIo, stores: &mut dyn Submit) {
        self.modelled.start(now, io, self.store_of(io));
        if io.op == Op::Update {
            self.update(io, stores);
            return;
        }
        let task = &self.tasks[TaskKey::of(io.tag)];
        let at = io.offset_in_request as usize;
        let work = match io.op {
            Op::Read | Op::Verify => {
                let buffer = task.medium.clone().expect("set aside when the command came");
                Work::Read { buffer, at }
            }
            Op::Write => {
                let buffer = task.data.clone().expect("a write has its data before it starts");
                let repeats = matches!(task.media().op, MediaOp::WriteSame { .. });
                Work::Write { buffer, at: if repeats { 0 } else { at }, durable: io.fua }
            }
            Op::Flush => Work::Sync,
            Op::Discard => Work::Discard,
            Op::WriteZeroes => Work::Zero,
            Op::Update => unreachable!("handled above"),
        };
        let index = io.volume.index();
        let flushes = matches!(work, Work::Sync);
        let promises = flushes || io.fua;
        let volume = &mut self.volumes[index];
        if promises && volume.lost {
            self.ended_at_store(io.key, Err(IoError::Medium));
            return;
        }
        if flushes {
            self.flush(io, stores);
            return;
        }
        let Extent { offset, length } = io.extent;
        let zeroes = matches!(work, Work::Discard | Work::Zero);
        if zeroes && io.fua {
            self.updates.insert(io.key, Update { io: *io, step: Step::Zero, failed: None });
        }
        let promise = (promises && !zeroes).then(|| self.store_of(io));
        let place = self.place(io);
        let whose = Whose::Request(io.key);
        stores.submit(StorageSubmit::Io(place, Io { whose, work, offset, length, promise }));
    }

    /// The store of an I/O, in the row of all.
    fn store_of(&self, io: &StoreIo) -> usize {
        self.volumes[io.volume.index()].stores.start + io.part as usize
    }

    /// Where the bytes of an I/O are, by the way that the pipeline has chosen.
    fn place(&self, io: &StoreIo) -> Location {
        match &self.stores[self.store_of(io)] {
            Store::File(backing) => Location::File(backing.as_raw_fd()),
            Store::Upstream(_) => Location::Path(io.backend, io.path),
        }
    }

    /// Makes what was written to a store durable. An upstream tells everybody of an error, so it is
    /// asked each time, on the way that the pipeline has chosen.
    fn flush(&mut self, io: &StoreIo, stores: &mut dyn Submit) {
        let store = self.store_of(io);
        match &self.stores[store] {
            Store::File(_) => self.flush_file(io.key, store, stores),
            Store::Upstream(_) => {
                let (place, promise) = (self.place(io), Some(store));
                self.submitted = true;
                let work = Work::Sync;
                let whose = Whose::Request(io.key);
                let io = Io { whose, work, offset: 0, length: 0, promise };
                stores.submit(StorageSubmit::Io(place, io));
            }
        }
    }

    /// Makes what was written to a file durable, one flush at a time: of two, the kernel may tell the
    /// error of both to only one.
    fn flush_file(&mut self, key: RequestKey, store: usize, stores: &mut dyn Submit) {
        let flushes = &mut self.flushes[store];
        if std::mem::replace(&mut flushes.under_way, true) {
            flushes.waits.push(key);
            return;
        }
        let Store::File(backing) = &self.stores[store] else { unreachable!("asked of a file") };
        let (place, promise) = (Location::File(backing.as_raw_fd()), Some(store));
        self.submitted = true;
        let whose = Whose::Request(key);
        let io = Io { whose, work: Work::Sync, offset: 0, length: 0, promise };
        stores.submit(StorageSubmit::Io(place, io));
    }

    /// Begins an update: several I/Os of one request, which nothing comes between.
    fn update(&mut self, io: &StoreIo, stores: &mut dyn Submit) {
        let index = io.volume.index();
        let op = self.tasks[TaskKey::of(io.tag)].media().op;
        let promises = io.fua || matches!(op, MediaOp::WriteVerify(_) | MediaOp::WriteAtomic);
        if promises && self.volumes[index].lost {
            self.ended_at_store(io.key, Err(IoError::Medium));
            return;
        }
        match op {
            MediaOp::WriteVerify(_) => self.step(io, Step::Write, None, stores),
            MediaOp::CompareAndWrite if self.tasks[TaskKey::of(io.tag)].compared => {
                self.step(io, Step::Write, None, stores);
            }
            MediaOp::WriteAtomic => {
                let volume = &mut self.volumes[index];
                if std::mem::replace(&mut volume.journaling, true) {
                    // There is one record, so there is one atomic write at a time.
                    volume.journal_waits.push_back(*io);
                    return;
                }
                let task = &mut self.tasks[TaskKey::of(io.tag)];
                let record = task.medium.as_mut().expect("set aside when the command came");
                let record = Rc::get_mut(record).expect("nobody else has it").bytes_mut();
                let data = task.data.as_ref().expect("a write has its data before it starts");
                let length = io.extent.length as usize;
                atomic_journal::record(record, io.extent.offset, &data.bytes()[..length]);
                self.step(io, Step::Journal, None, stores);
            }
            _ => self.step(io, Step::Read, None, stores),
        }
    }

    /// Hands one I/O of an update to the store.
    fn step(&mut self, io: &StoreIo, step: Step, failed: Option<IoError>, stores: &mut dyn Submit) {
        let index = io.volume.index();
        let task = &self.tasks[TaskKey::of(io.tag)];
        let op = task.media().op;
        let medium = || task.medium.clone().expect("set aside when the command came");
        let data = || task.data.clone().expect("an update has its data before it starts");
        let Extent { mut offset, mut length } = io.extent;
        let mut place = self.place(io);
        let work = match step {
            Step::Read | Step::Verify => Work::Read { buffer: medium(), at: 0 },
            Step::Write => match op {
                MediaOp::OrWrite => Work::Write { buffer: medium(), at: 0, durable: io.fua },
                MediaOp::CompareAndWrite => {
                    // The data to write stands behind the data to compare with.
                    Work::Write { buffer: data(), at: length as usize, durable: io.fua }
                }
                // What is verified is what the medium has.
                _ => Work::Write { buffer: data(), at: 0, durable: true },
            },
            Step::Zero => unreachable!("begun by the request itself"),
            Step::InPlace => Work::Write { buffer: data(), at: 0, durable: true },
            Step::Journal => {
                (place, offset, length) =
                    (self.journal(index), 0, length + atomic_journal::HEADER as u64);
                Work::Write { buffer: medium(), at: 0, durable: true }
            }
            Step::Clear => {
                (place, offset, length) = (self.journal(index), 0, atomic_journal::HEADER as u64);
                Work::Write { buffer: medium(), at: 0, durable: true }
            }
        };
        // The journal is another file: what it loses, the volume has not promised.
        let durable = matches!(work, Work::Write { durable: true, .. });
        let promised = durable && !matches!(step, Step::Journal | Step::Clear);
        let promise = promised.then(|| self.store_of(io));
        self.submitted = true;
        self.updates.insert(io.key, Update { io: *io, step, failed });
        let whose = Whose::Request(io.key);
        stores.submit(StorageSubmit::Io(place, Io { whose, work, offset, length, promise }));
    }

    fn journal(&self, volume: usize) -> Location {
        let journal = self.volumes[volume].journal.as_ref();
        let journal = journal.expect("atomic writes are offered where there is a journal");
        Location::File(journal.as_raw_fd())
    }

    /// An I/O of an update has ended: does the next, or says how the update has ended.
    fn advance(
        &mut self,
        update: Update,
        outcome: Outcome,
        stores: &mut dyn Submit,
    ) -> Option<Outcome> {
        let Update { io, step, failed } = update;
        let task = &mut self.tasks[TaskKey::of(io.tag)];
        let length = io.extent.length as usize;
        let mut failed = failed;
        let next = match (step, task.media().op, outcome) {
            (Step::Zero, _, Ok(())) => {
                let index = io.volume.index();
                if self.volumes[index].lost {
                    return Some(Err(IoError::Medium));
                }
                self.flush(&io, stores);
                return None;
            }
            (Step::InPlace, ..) | (Step::Journal, _, Err(_)) => {
                // The record goes in any case: applied after later writes it would undo them.
                let record = task.medium.as_mut().expect("it holds the record");
                let record = Rc::get_mut(record).expect("the driver has given it back");
                record.bytes_mut()[..atomic_journal::HEADER].fill(0);
                failed = outcome.err();
                Some(Step::Clear)
            }
            (Step::Clear, _, Err(_)) => {
                self.lose(io.volume.index());
                None
            }
            (Step::Clear, ..) | (_, _, Err(_)) => None,
            (Step::Read, MediaOp::CompareAndWrite, _) => {
                task.differs = first_difference(task, length);
                task.compared = task.differs.is_none();
                task.compared.then_some(Step::Write)
            }
            (Step::Read, ..) => {
                or_into_medium(task, length);
                Some(Step::Write)
            }
            (Step::Write, MediaOp::WriteVerify(_), _) => Some(Step::Verify),
            (Step::Verify, MediaOp::WriteVerify(Compare::Blocks), _) => {
                task.differs = first_difference(task, length);
                None
            }
            (Step::Write | Step::Verify, ..) => None,
            (Step::Journal, ..) => Some(Step::InPlace),
        };
        if let Some(next) = next {
            self.step(&io, next, failed, stores);
            return None;
        }
        if step == Step::Clear {
            self.journaled(io.volume.index(), stores);
        }
        Some(failed.map_or(outcome, Err))
    }

    /// Storage has ended an operation.
    pub(crate) fn ended(&mut self, ended: Ended, stores: &mut dyn Submit) {
        let Ended { whose, mut outcome, flushed, promise } = ended;
        let key = match whose {
            Whose::Request(key) => key,
            Whose::Fetch(fetch) => return self.fetched(fetch, outcome),
            Whose::Log(volume, io) => {
                self.inbox.push_back(Input::Cache(Logged { volume, io, outcome }));
                return;
            }
        };
        self.note_loss(promise, flushed, outcome);
        if !self.updates.is_empty()
            && let Some(update) = self.updates.remove(&key)
        {
            match self.advance(update, outcome, stores) {
                Some(end) => outcome = end,
                None => return,
            }
        }
        self.ended_at_store(key, outcome);
        if flushed && let Some(store) = promise {
            self.flushed(store, outcome, stores);
        }
    }

    /// A store has done with a request; the pipeline hears of it when a modelled device has, too.
    fn ended_at_store(&mut self, key: RequestKey, outcome: Outcome) {
        if let Some(outcome) = self.modelled.stored(self.now, key, outcome) {
            self.inbox.push_back(Input::Stored { key, outcome });
        }
    }

    /// Notes that a volume may have lost what it acknowledged.
    fn note_loss(&mut self, promise: Option<usize>, flushed: bool, outcome: Outcome) {
        let Some(store) = promise else { return };
        // A write that found no space, or may not write, has lost nothing but itself.
        if outcome == Err(IoError::Medium) || flushed && outcome.is_err() {
            self.lose(self.flushes[store].volume);
        }
    }

    /// From here on the volume promises nothing.
    fn lose(&mut self, index: usize) {
        let volume = &mut self.volumes[index];
        if !std::mem::replace(&mut volume.lost, true) {
            // The kernel tells such an error once and then takes the lost data for written.
            error!(
                volume = volume.name,
                "acknowledged data may be lost: no flush of this volume succeeds from here on; \
                 check the storage behind it, then restart"
            );
        }
    }

    /// An atomic write is over; the next one may use the record.
    fn journaled(&mut self, index: usize, stores: &mut dyn Submit) {
        let volume = &mut self.volumes[index];
        volume.journaling = false;
        // One that is refused at once leaves the journal to the next.
        while !self.volumes[index].journaling
            && let Some(io) = self.volumes[index].journal_waits.pop_front()
        {
            self.update(&io, stores);
        }
    }

    /// A flush has ended: it was for all who shared it. Those who came meanwhile share the next.
    fn flushed(&mut self, store: usize, outcome: Outcome, stores: &mut dyn Submit) {
        let mut ended = std::mem::take(&mut self.flushes[store].shared);
        for key in ended.drain(..) {
            self.ended_at_store(key, outcome);
        }
        let flushes = &mut self.flushes[store];
        flushes.shared = ended;
        flushes.under_way = false;
        if self.volumes[flushes.volume].lost {
            for key in std::mem::take(&mut flushes.waits) {
                self.ended_at_store(key, Err(IoError::Medium));
            }
            return;
        }
        let Some(key) = flushes.waits.pop() else { return };
        std::mem::swap(&mut flushes.waits, &mut flushes.shared);
        self.flush_file(key, store, stores);
    }
}

/// Where the first `length` bytes of data and medium differ.
fn first_difference(task: &Task, length: usize) -> Option<u64> {
    let medium = task.medium.as_ref().expect("set aside when the command came");
    reply::difference(&task.bytes()[..length], &medium.bytes()[..length])
}

/// Joins data and medium by OR, in the medium's buffer.
fn or_into_medium(task: &mut Task, length: usize) {
    let data = task.data.as_ref().expect("a write has its data before it starts");
    let medium = task.medium.as_mut().expect("set aside when the command came");
    let medium = Rc::get_mut(medium).expect("the driver has given it back").bytes_mut();
    for (to, from) in medium[..length].iter_mut().zip(&data.bytes()[..length]) {
        *to |= from;
    }
}
