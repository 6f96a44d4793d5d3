//! The requests at stores: updates in steps, shared flushes, and the loss of acknowledged data.

use super::reply;
use super::set::TaskSet;
use crate::ids::TaskKey;
use crate::limits::Tally;
use crate::storage::emulated::Modelled;
use crate::storage::file::atomic_journal;
use crate::storage::io::{Ended, Io, Location, StorageSubmit, Submit, Whose, Work};
use crate::storage::store::Store;
use crate::tasks::table::Task;
use crate::volume::{Flushes, Volume};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use tracing::error;
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

/// The requests that are at stores.
///
/// Invariant: a file has one flush at its driver at most, and a volume that has lost acknowledged data
/// ends no flush well.
pub(crate) struct StorageRequests {
    /// The flushes of each store, in the row of all.
    flushes: Vec<Flushes>,
    /// Updates at their stores, and how far they have come.
    updates: BTreeMap<RequestKey, Update>,
    /// The devices that are emulated.
    pub(crate) emulated: Modelled,
    /// Maps that the operating system ended with an error.
    pub(crate) errors: Tally,
}

/// What the requests at stores need from others.
pub(crate) struct IoContext<'a> {
    pub(crate) set: &'a mut TaskSet,
    pub(crate) volumes: &'a mut [Volume],
    /// The stores of all volumes, in one row.
    pub(crate) stores: &'a [Store],
    pub(crate) drivers: &'a mut dyn Submit,
}

impl StorageRequests {
    pub(crate) fn new(volumes: &[Volume], emulated: Modelled) -> Self {
        let mut requests = Self {
            flushes: Vec::new(),
            updates: BTreeMap::new(),
            emulated,
            errors: Tally::default(),
        };
        for (index, volume) in volumes.iter().enumerate() {
            requests.opened(index, volume.stores.clone());
        }
        requests
    }

    /// These stores, in the row of all, are of this volume now. Nothing is at them.
    pub(crate) fn opened(&mut self, volume: usize, stores: Range<usize>) {
        if self.flushes.len() < stores.end {
            self.flushes.resize_with(stores.end, Flushes::default);
        }
        for flushes in &mut self.flushes[stores] {
            assert!(!flushes.under_way, "a store changes its volume when nothing is at it");
            *flushes = Flushes { volume, ..Flushes::default() };
        }
    }

    /// Performs a store action: what the pipeline wants done with a store.
    pub(crate) fn start(&mut self, cx: &mut IoContext<'_>, now: Instant, io: &StoreIo) {
        let store = store_of(cx.volumes, io);
        self.flushes[store].backend = io.backend;
        self.emulated.start(now, io, store);
        if io.op == Op::Update {
            self.update(cx, io);
            return;
        }
        let task = &cx.set.tasks[TaskKey::of(io.tag)];
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
        let volume = &mut cx.volumes[index];
        if promises && volume.lost {
            self.ended_at_store(cx, io.key, Err(IoError::Medium));
            return;
        }
        if flushes {
            self.flush(cx, io);
            return;
        }
        let Extent { offset, length } = io.extent;
        let zeroes = matches!(work, Work::Discard | Work::Zero);
        if zeroes && io.fua {
            self.updates.insert(io.key, Update { io: *io, step: Step::Zero, failed: None });
        }
        let promise = promise_of(cx, store).filter(|_| promises && !zeroes);
        let place = place(cx.stores, store, io);
        cx.drivers.submit(StorageSubmit::Io(
            place,
            Io { whose: Whose::Request(io.key), work, offset, length, promise },
        ));
    }

    /// Makes what was written to a store durable, if it can be. An upstream reports an error to every flush, so it is
    /// asked each time, on the path that the pipeline has chosen.
    fn flush(&mut self, cx: &mut IoContext<'_>, io: &StoreIo) {
        let store = store_of(cx.volumes, io);
        match &cx.stores[store] {
            Store::Closed => unreachable!("{CLOSED}"),
            Store::File(_) => self.flush_file(cx, io.key, store),
            Store::Upstream(_) | Store::Memory(_) => {
                let (place, promise) = (place(cx.stores, store, io), Some(store));
                cx.set.submitted = true;
                let work = Work::Sync;
                cx.drivers.submit(StorageSubmit::Io(
                    place,
                    Io { whose: Whose::Request(io.key), work, offset: 0, length: 0, promise },
                ));
            }
        }
    }

    /// Makes what was written to a file durable, one flush at a time: of two, the kernel may report the
    /// error of both to only one.
    fn flush_file(&mut self, cx: &mut IoContext<'_>, key: RequestKey, store: usize) {
        let flushes = &mut self.flushes[store];
        if std::mem::replace(&mut flushes.under_way, true) {
            flushes.waits.push(key);
            return;
        }
        let Store::File(backing) = &cx.stores[store] else { unreachable!("asked of a file") };
        let (place, promise) = (Location::File(backing.as_raw_fd()), Some(store));
        cx.set.submitted = true;
        cx.drivers.submit(StorageSubmit::Io(
            place,
            Io { whose: Whose::Request(key), work: Work::Sync, offset: 0, length: 0, promise },
        ));
    }

    /// Begins an update: several I/Os of one request, without another one between them.
    fn update(&mut self, cx: &mut IoContext<'_>, io: &StoreIo) {
        let index = io.volume.index();
        let op = cx.set.tasks[TaskKey::of(io.tag)].media().op;
        let promises = io.fua || matches!(op, MediaOp::WriteVerify(_) | MediaOp::WriteAtomic);
        if promises && cx.volumes[index].lost {
            self.ended_at_store(cx, io.key, Err(IoError::Medium));
            return;
        }
        match op {
            MediaOp::WriteVerify(_) => self.step(cx, io, Step::Write, None),
            MediaOp::CompareAndWrite if cx.set.tasks[TaskKey::of(io.tag)].comparison.equal => {
                self.step(cx, io, Step::Write, None);
            }
            MediaOp::WriteAtomic => {
                let volume = &mut cx.volumes[index];
                if std::mem::replace(&mut volume.journaling, true) {
                    // There is one record, so there is one atomic write at a time.
                    volume.journal_waits.push_back(*io);
                    return;
                }
                let task = &mut cx.set.tasks[TaskKey::of(io.tag)];
                let record = task.medium.as_mut().expect("set aside when the command came");
                let record = Rc::get_mut(record).expect("it has one owner").bytes_mut();
                let data = task.data.as_ref().expect("a write has its data before it starts");
                let length = io.extent.length as usize;
                atomic_journal::record(record, io.extent.offset, &data.bytes()[..length]);
                self.step(cx, io, Step::Journal, None);
            }
            _ => self.step(cx, io, Step::Read, None),
        }
    }

    /// Hands one I/O of an update to the store.
    fn step(&mut self, cx: &mut IoContext<'_>, io: &StoreIo, step: Step, failed: Option<IoError>) {
        let index = io.volume.index();
        let task = &cx.set.tasks[TaskKey::of(io.tag)];
        let op = task.media().op;
        let medium = || task.medium.clone().expect("set aside when the command came");
        let data = || task.data.clone().expect("an update has its data before it starts");
        let Extent { mut offset, mut length } = io.extent;
        let store = store_of(cx.volumes, io);
        let mut place = place(cx.stores, store, io);
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
                    (journal(cx.volumes, index), 0, length + atomic_journal::HEADER as u64);
                Work::Write { buffer: medium(), at: 0, durable: true }
            }
            Step::Clear => {
                (place, offset, length) =
                    (journal(cx.volumes, index), 0, atomic_journal::HEADER as u64);
                Work::Write { buffer: medium(), at: 0, durable: true }
            }
        };
        // The journal is another file: what it loses, the volume has not promised.
        let durable = matches!(work, Work::Write { durable: true, .. });
        let promised = durable && !matches!(step, Step::Journal | Step::Clear);
        let promise = promise_of(cx, store).filter(|_| promised);
        cx.set.submitted = true;
        self.updates.insert(io.key, Update { io: *io, step, failed });
        cx.drivers.submit(StorageSubmit::Io(
            place,
            Io { whose: Whose::Request(io.key), work, offset, length, promise },
        ));
    }

    /// An I/O of an update has ended: does the next, or says how the update has ended.
    fn advance(
        &mut self,
        cx: &mut IoContext<'_>,
        update: Update,
        outcome: Outcome,
    ) -> Option<Outcome> {
        let Update { io, step, failed } = update;
        let task = &mut cx.set.tasks[TaskKey::of(io.tag)];
        let length = io.extent.length as usize;
        let mut failed = failed;
        let next = match (step, task.media().op, outcome) {
            (Step::Zero, _, Ok(())) => {
                let index = io.volume.index();
                if cx.volumes[index].lost {
                    return Some(Err(IoError::Medium));
                }
                self.flush(cx, &io);
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
                lose(&mut cx.volumes[io.volume.index()]);
                None
            }
            (Step::Clear, ..) | (_, _, Err(_)) => None,
            (Step::Read, MediaOp::CompareAndWrite, _) => {
                task.comparison.differs = first_difference(task, length);
                task.comparison.equal = task.comparison.differs.is_none();
                task.comparison.equal.then_some(Step::Write)
            }
            (Step::Read, ..) => {
                or_into_medium(task, length);
                Some(Step::Write)
            }
            (Step::Write, MediaOp::WriteVerify(_), _) => Some(Step::Verify),
            (Step::Verify, MediaOp::WriteVerify(Compare::Blocks), _) => {
                task.comparison.differs = first_difference(task, length);
                None
            }
            (Step::Write | Step::Verify, ..) => None,
            (Step::Journal, ..) => Some(Step::InPlace),
        };
        if let Some(next) = next {
            self.step(cx, &io, next, failed);
            return None;
        }
        if step == Step::Clear {
            self.journaled(cx, io.volume.index());
        }
        Some(failed.map_or(outcome, Err))
    }

    /// A store has ended an I/O.
    pub(crate) fn ended(&mut self, cx: &mut IoContext<'_>, key: RequestKey, ended: Ended) {
        let Ended { mut outcome, flushed, promise, .. } = ended;
        self.note_loss(cx, promise, flushed, outcome);
        if !self.updates.is_empty()
            && let Some(update) = self.updates.remove(&key)
        {
            match self.advance(cx, update, outcome) {
                Some(end) => outcome = end,
                None => return,
            }
        }
        self.ended_at_store(cx, key, outcome);
        if flushed && let Some(store) = promise {
            self.flushed(cx, store, outcome);
        }
    }

    /// A store has ended a request; it is reported when a modelled device has ended it, too.
    fn ended_at_store(&mut self, cx: &mut IoContext<'_>, key: RequestKey, outcome: Outcome) {
        if let Some(outcome) = self.emulated.stored(cx.set.now, key, outcome) {
            cx.set.inputs.push_back(Input::Stored { key, outcome });
        }
    }

    /// Notes that a volume may have lost what it acknowledged. A log has what it has written and not flushed, and writes
    /// it again: of such a volume the pipeline knows what else there was to lose.
    fn note_loss(
        &mut self,
        cx: &mut IoContext<'_>,
        promise: Option<usize>,
        flushed: bool,
        outcome: Outcome,
    ) {
        let Some(store) = promise else { return };
        // A write that found no space, or may not write, has lost nothing but itself.
        if outcome == Err(IoError::Medium) || flushed && outcome.is_err() {
            let Flushes { volume, backend, .. } = self.flushes[store];
            let volume = &mut cx.volumes[volume];
            if volume.has_log {
                cx.set.inputs.push_back(Input::WriteLost(backend));
            } else {
                lose(volume);
            }
        }
    }

    /// An atomic write is over; the next one may use the record.
    fn journaled(&mut self, cx: &mut IoContext<'_>, index: usize) {
        let volume = &mut cx.volumes[index];
        volume.journaling = false;
        // One that is refused at once leaves the journal to the next.
        while !cx.volumes[index].journaling
            && let Some(io) = cx.volumes[index].journal_waits.pop_front()
        {
            self.update(cx, &io);
        }
    }

    /// A flush has ended, for all requests that shared it. Those that arrived meanwhile share the next.
    fn flushed(&mut self, cx: &mut IoContext<'_>, store: usize, outcome: Outcome) {
        let flushes = &mut self.flushes[store];
        assert!(flushes.under_way, "a file has one flush at its driver, which ends once");
        let mut ended = std::mem::take(&mut flushes.shared);
        for key in ended.drain(..) {
            self.ended_at_store(cx, key, outcome);
        }
        let flushes = &mut self.flushes[store];
        flushes.shared = ended;
        flushes.under_way = false;
        if cx.volumes[flushes.volume].lost {
            for key in std::mem::take(&mut flushes.waits) {
                self.ended_at_store(cx, key, Err(IoError::Medium));
            }
            return;
        }
        let Some(key) = flushes.waits.pop() else { return };
        std::mem::swap(&mut flushes.waits, &mut flushes.shared);
        self.flush_file(cx, key, store);
    }
}

/// Begins the last flush of a store whose volume goes; false if there is nothing to flush.
pub(super) fn flush_last(cx: &mut IoContext<'_>, store: usize) -> bool {
    let Store::File(backing) = &cx.stores[store] else { return false };
    let (place, whose) = (Location::File(backing.as_raw_fd()), Whose::Last(store));
    cx.set.submitted = true;
    let io = Io { whose, work: Work::Sync, offset: 0, length: 0, promise: None };
    cx.drivers.submit(StorageSubmit::Io(place, io));
    true
}

/// From here on no flush of the volume succeeds.
pub(crate) fn lose(volume: &mut Volume) {
    if !std::mem::replace(&mut volume.lost, true) {
        // The kernel reports such an error once and then takes the lost data for written; so does a unit.
        error!(
            volume = volume.name,
            "acknowledged data may be lost: no flush of this volume succeeds from here on; \
             check the storage behind it, then restart"
        );
    }
}

/// The store of an I/O, in the row of all.
fn store_of(volumes: &[Volume], io: &StoreIo) -> usize {
    volumes[io.volume.index()].stores.start + io.part as usize
}

/// What a durable write to a store says of earlier writes when it fails: the kernel may report with it that one of
/// them is lost. A unit says that with a deferred error, and a write that it refuses has lost nothing but itself.
fn promise_of(cx: &IoContext<'_>, store: usize) -> Option<usize> {
    matches!(cx.stores[store], Store::File(_)).then_some(store)
}

/// Where the bytes of an I/O are, by the path that the pipeline has chosen.
fn place(stores: &[Store], store: usize, io: &StoreIo) -> Location {
    match &stores[store] {
        Store::File(backing) => Location::File(backing.as_raw_fd()),
        Store::Upstream(_) => Location::Path(io.backend, io.path),
        Store::Memory(memory) => Location::Memory(memory.clone()),
        Store::Closed => unreachable!("{CLOSED}"),
    }
}

/// The journal of a volume's atomic writes.
fn journal(volumes: &[Volume], volume: usize) -> Location {
    let journal = volumes[volume].journal.as_ref();
    let journal = journal.expect("atomic writes are offered where there is a journal");
    Location::File(journal.as_raw_fd())
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

const CLOSED: &str = "a store is closed when nothing of its volume is outstanding";
