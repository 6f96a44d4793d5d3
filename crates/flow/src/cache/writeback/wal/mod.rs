//! The log on the log device: appending records, the space for them, and how far they have come.

mod buffers;
mod commit;
mod cycle;
mod marker;
mod records;
mod space;
mod watermarks;

pub(super) use cycle::{Cycle, CycleEnd, Failure, Plan};
pub(super) use marker::Marks;
pub(super) use records::{Record, Records};
pub use space::Pin;
pub(super) use space::{Segment, Space};
pub(super) use watermarks::Watermarks;

use super::effect::{Effect, LocalId, Memory, Origin, Part, Source, Write};
use super::format::{Batch, Descriptor, PAGE, RecordKind, SegmentHead, Size, encode_batch};
use super::ranges::Held;
use super::settings::{Mode, Settings};
use crate::clock::Instant;
use crate::error::IoError;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use buffers::Buffers;
use marker::Marker;
use records::Unsynced;

/// The log of one volume on its device.
#[derive(Debug)]
pub(super) struct Wal {
    settings: Settings,
    identity: Identity,
    marks: Watermarks,
    marker: Marker,
    space: Space,
    /// Checksum of the header before the next batch.
    chain: u32,
    records: Records,
    buffers: Buffers,
    cycle: Option<Cycle>,
    /// In mode `ram`: a sync is wanted.
    sync_wanted: bool,
    /// What recovery has found is durable. A process that was killed may have left it in a cache.
    opened: bool,
    /// Since when something is written and not durable, in mode `ram`.
    unsynced_since: Option<Instant>,
    /// Failures of the log device in a row.
    failures: u32,
    /// The last failure.
    fault: Option<IoError>,
    /// Not even a super block can be written: write-back continues without marks.
    unmarkable: bool,
    /// Name of the last I/O.
    last_io: u64,
    counters: Counters,
}

/// Which log it is, as its super block says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) log: [u8; 16],
    pub(super) incarnation: u64,
    /// Counts super blocks.
    pub(super) generation: u64,
    /// The highest owner that has written.
    pub(super) owner: u64,
}

/// What the log has written since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Payload bytes of hosts, and of copies.
    pub(super) logged: u64,
    pub(super) copied: u64,
    pub(super) batches: u64,
    /// Failed writes and syncs.
    pub(super) faults: u64,
}

/// Where a batch goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchPlace {
    /// Bytes that it may have.
    pub(super) room: u64,
    /// A segment is begun for it.
    opens: bool,
}

/// Why a batch got no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// Something else has to be durable before.
    Sync,
    /// There is no room.
    Full,
}

/// What a record is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRecord {
    pub(super) kind: RecordKind,
    /// First byte of the volume, and how many.
    pub(super) start: u64,
    pub(super) length: u64,
    /// The same in blocks, as the descriptor has it.
    pub(super) lba: u64,
    pub(super) blocks: u32,
    pub(super) flags: u8,
    pub(super) who: Origin,
    /// It is a copy, and belongs to this epoch.
    pub(super) epoch: Option<u64>,
    /// Where its payload is, if it has any.
    pub(super) memory: Option<Memory>,
}

impl NewRecord {
    /// A record that changes nothing of the volume.
    pub(super) fn control(kind: RecordKind, lba: u64, blocks: u32) -> Self {
        let who = Origin::default();
        Self { kind, start: 0, length: 0, lba, blocks, flags: 0, who, epoch: None, memory: None }
    }

    /// Bytes of payload.
    pub(super) fn payload(&self) -> u64 {
        if self.kind == RecordKind::Write { self.length } else { 0 }
    }
}

impl Wal {
    pub(super) fn new(
        settings: Settings,
        identity: Identity,
        marks: Watermarks,
        on_device: Marks,
        space: Space,
        records: Records,
    ) -> Self {
        Self {
            settings,
            identity,
            marks,
            marker: Marker::new(on_device),
            space,
            chain: 0,
            records,
            buffers: Buffers::default(),
            cycle: None,
            sync_wanted: false,
            opened: false,
            unsynced_since: None,
            failures: 0,
            fault: None,
            unmarkable: false,
            last_io: 0,
            counters: Counters::default(),
        }
    }

    pub(super) const fn marks(&self) -> &Watermarks {
        &self.marks
    }

    /// What is durable on the log device says this.
    pub(super) const fn on_device(&self) -> Marks {
        self.marker.on_device()
    }

    pub(super) const fn counters(&self) -> Counters {
        self.counters
    }

    /// Name of the log.
    pub(super) const fn id(&self) -> [u8; 16] {
        self.identity.log
    }

    /// The last record that is durable and not a note.
    #[cfg(test)]
    pub(super) const fn last_durable_data(&self) -> u64 {
        self.marker.last_durable_data()
    }

    /// Whether the log device has failed for good.
    pub(super) const fn failed(&self) -> bool {
        self.marks.device_failed()
    }

    /// Whether not even a super block can be written any more.
    pub(super) const fn is_unmarkable(&self) -> bool {
        self.unmarkable
    }

    /// Whether records can be written.
    pub(super) const fn is_working(&self) -> bool {
        self.opened && !self.marks.device_failed()
    }

    pub(super) const fn is_committing(&self) -> bool {
        self.cycle.is_some()
    }

    /// Whether records have a number and were not handed to the log device, or have to be once more.
    pub(super) const fn has_unwritten(&self) -> bool {
        self.marks.written() < self.marks.last()
    }

    pub(super) const fn records(&self) -> &Records {
        &self.records
    }

    /// Records up to this one may be read: a read must not return what could still disappear, but in mode `ram`.
    pub(super) fn readable(&self) -> u64 {
        let here = match self.settings.mode {
            Mode::Log => self.marks.durable(),
            Mode::Ram => self.marks.stored(),
        };
        here.max(self.marks.applied())
    }

    /// All records up to this one are acknowledged, or may be: in mode `log` when they are durable; in mode `ram` when
    /// they have a number, also while a failed sync has taken them back and they are written again.
    pub(super) const fn acknowledged(&self) -> u64 {
        match self.settings.mode {
            Mode::Log => self.marks.durable(),
            Mode::Ram => self.marks.last(),
        }
    }

    /// Where the data of a range is.
    pub(super) fn source(&self, held: &Held) -> Source {
        self.records.source(held, self.marks.durable(), self.marks.next())
    }

    // Space.

    pub(super) fn pin(&mut self) -> Pin {
        self.space.pin()
    }

    pub(super) fn unpin(&mut self, pin: Pin) {
        self.space.unpin(pin);
    }

    /// Bytes left in the segment that is written to.
    pub(super) fn room(&self) -> u64 {
        self.space.room()
    }

    /// How many segments are live, free and bad.
    pub(super) fn segments(&self) -> (u64, u64, u64) {
        self.space.count()
    }

    /// How full the log is, in thousandths; 0 when its device has failed.
    pub(super) fn fill(&self) -> u32 {
        if self.failed() { 0 } else { self.space.fill(self.records.tail()) }
    }

    /// Bytes of log that have ever been freed.
    pub(super) fn freed(&self) -> u64 {
        match self.records.tail() {
            _ if self.failed() => 0,
            Some(at) => self.space.position_of(at),
            None => self.space.end(),
        }
    }

    /// Bytes of log since it was opened, and of what was found then.
    pub(super) fn end(&self) -> u64 {
        self.space.end()
    }

    /// Bytes of log that are not upstream.
    pub(super) fn behind(&self) -> u64 {
        self.end().saturating_sub(self.freed())
    }

    // Append.

    /// Whether the log does not say yet who writes it.
    pub(super) const fn lacks_owner(&self) -> bool {
        self.identity.owner < self.settings.owner
    }

    /// Appends the record that says who writes from here on.
    pub(super) fn append_owner(&mut self) {
        self.identity.owner = self.settings.owner;
        self.append(&NewRecord::control(RecordKind::Owner, self.settings.owner, 0));
    }

    /// Gives a record its number.
    pub(super) fn append(&mut self, new: &NewRecord) -> u64 {
        let seq = self.marks.assign();
        let payload = new.payload();
        let descriptor = Descriptor {
            kind: new.kind,
            flags: new.flags | if new.epoch.is_some() { Descriptor::FLAG_COPY } else { 0 },
            tenant: new.who.tenant.index() as u32,
            lba: new.lba,
            blocks: new.blocks,
            payload_at: 0,
            payload: payload as u32,
            sums_at: 0,
            initiator: new.epoch.unwrap_or(new.who.initiator),
            time: new.who.time,
        };
        let NewRecord { kind, start, length, memory, .. } = *new;
        let record = Record { kind, start, length, at: 0, sums: 0 };
        self.records.push(seq, record, Unsynced { descriptor, memory });
        let counter =
            if new.epoch.is_some() { &mut self.counters.copied } else { &mut self.counters.logged };
        *counter += payload;
        seq
    }

    /// Finds room for a batch of this size; in need the reserve may be used.
    pub(super) fn place(&self, size: Size, need: bool) -> Result<BatchPlace, NoPlace> {
        let room = self.space.room();
        if size.bytes() <= room {
            return Ok(BatchPlace { room, opens: false });
        }
        if !self.space.can_open(need) {
            return Err(NoPlace::Full);
        }
        // The header of the next segment seals this one: what it has must be durable.
        if self.unsynced_since.is_some() {
            return Err(NoPlace::Sync);
        }
        Ok(BatchPlace { room: self.settings.segment - PAGE, opens: true })
    }

    /// The most bytes that a batch of copies may have now. Before the first one of a segment, which has not `begun`, all
    /// that the segment has must find room: half a segment of copies frees nothing.
    pub(super) fn room_for_copies(&self, begun: bool) -> u64 {
        if !begun && !self.space.has_room_for_copies() {
            0
        } else if self.space.can_open(false) {
            self.settings.segment - PAGE
        } else {
            self.space.room()
        }
    }

    /// What is left of the segment that is written to, as the place of a batch.
    pub(super) fn rest_of_segment(&self) -> BatchPlace {
        BatchPlace { room: self.space.room(), opens: false }
    }

    /// A batch can only begin when what was written before is durable. Mode `ram` only.
    pub(super) const fn want_sync(&mut self) {
        self.sync_wanted = true;
    }

    /// A batch of a note alone, if there is room for it without need.
    pub(super) fn write_note(&mut self) -> Option<Write> {
        if self.space.room() < PAGE || self.has_unwritten() {
            return None;
        }
        let place = self.rest_of_segment();
        let first = self.append(&NewRecord::control(RecordKind::Note, 0, 0));
        Some(self.write_batch(first, place))
    }

    /// Writes again what was in a batch that failed.
    pub(super) fn write_again(&mut self) -> Option<Write> {
        let (first, size) = self.unwritten();
        let place = self.place(size, true).ok()?;
        Some(self.write_batch(first, place))
    }

    /// The first record that is to be written again, and the size of a batch with it alone.
    fn unwritten(&self) -> (u64, Size) {
        let first = self.marks.written() + 1;
        let next = self.records.unsynced_from(first, self.marks.next()).next();
        let payload = next.expect("there is one").descriptor.payload;
        (first, Size::default().with(payload.into()))
    }

    /// The fault because of which records are to be written again, if there is no place for them until write-back
    /// frees one.
    pub(super) fn stranded(&self) -> Option<IoError> {
        let stranded = self.has_unwritten()
            && !self.space.frees()
            && matches!(self.place(self.unwritten().1, true), Err(NoPlace::Full));
        self.fault.filter(|_| stranded)
    }

    /// Encodes the records from `first` on as one batch, as many as it may hold, and gives them their
    /// places on the device.
    pub(super) fn write_batch(&mut self, first: u64, place: BatchPlace) -> Write {
        let (mut size, mut descriptors) = (Size::default(), Vec::new());
        for unsynced in self.records.unsynced_from(first, self.marks.next()) {
            let with = size.with(unsynced.descriptor.payload.into());
            if with.bytes() > place.room
                || with.records > u64::from(self.settings.batch_records)
                || with.payload > u64::from(self.settings.batch_bytes)
            {
                break;
            }
            size = with;
            descriptors.push(unsynced.descriptor);
        }
        let io = self.next_io();
        let (mut head, mut at) = (Vec::new(), None);
        if place.opens {
            let (place, segment) = {
                let first = (first, self.records.epoch_at(first));
                self.space.open(self.identity.log, self.identity.owner, first)
            };
            let (durable, applied) = (self.marks.durable(), self.marks.applied());
            (head, self.chain) = SegmentHead { durable, applied, ..segment }.encode();
            at = Some(place);
        }
        let open = self.space.head().expect("there is a segment to write to");
        let base = Space::at(open.slot, self.settings.segment) + open.length;
        let mut batch = Batch {
            bytes: 0,
            records: 0,
            first,
            segment: open.number,
            owner: self.identity.owner,
            chain: self.chain,
            durable: self.marks.durable(),
            applied: self.marks.applied(),
        };
        let (bytes, sum, table) = encode_batch(self.identity.log, &mut batch, &mut descriptors);
        self.chain = sum;
        let before = head.len() as u64;
        head.extend(bytes);
        let payload = self.place_records(io, first, base, before, &descriptors);
        let open = self.space.head_mut().expect("as before");
        open.length += u64::from(batch.bytes);
        open.last = batch.last();
        self.marks.hand_over(batch.last());
        self.counters.batches += 1;
        Write {
            io,
            at: at.unwrap_or(base),
            bytes: before + u64::from(batch.bytes),
            sums_at: before as u32 + table,
            sum,
            head,
            payload,
        }
    }

    /// The records of a batch at `base` of the device, `before` bytes into write `io`. Returns their payload.
    fn place_records(
        &mut self,
        io: LocalId,
        first: u64,
        base: u64,
        before: u64,
        descriptors: &[Descriptor],
    ) -> Vec<Part> {
        let next = self.marks.next();
        let (mut payload, mut kept) = (Vec::new(), 0);
        for (seq, descriptor) in (first..).zip(descriptors) {
            let at = u64::from(descriptor.payload_at);
            self.records.place(seq, base + at, base + u64::from(descriptor.sums_at));
            let memory = &mut self.records.unsynced_mut(seq, next).memory;
            let Some(from) = *memory else { continue };
            payload.push(Part { from, length: descriptor.payload.into() });
            if self.settings.mode == Mode::Ram && !matches!(from, Memory::Job(..)) {
                // The request is acknowledged before the record is durable: its memory goes then.
                *memory = Some(Memory::Batch(io, before + at));
                kept += 1;
                if let Memory::Batch(old, _) = from {
                    self.buffers.supersede(old);
                }
            }
        }
        self.buffers.keep(io, kept);
        payload
    }

    fn next_io(&mut self) -> LocalId {
        self.last_io += 1;
        LocalId(self.last_io)
    }

    // Progress of write-back.

    /// The oldest segment, if it may be cleaned.
    pub(super) fn cleanable(&self) -> Option<&Segment> {
        self.space.cleanable().filter(|_| self.is_working())
    }

    /// Number of the oldest segment that is needed.
    pub(super) fn oldest(&self) -> u64 {
        self.space.oldest()
    }

    /// The first and the last record of that segment.
    pub(super) fn oldest_records(&self) -> (u64, u64) {
        self.space.front().map_or((1, 0), |front| (front.first, front.last))
    }

    /// Nothing of the oldest segment is needed any more: what was is in copies, or superseded, by records up to `until`.
    pub(super) fn give_up_oldest(&mut self, until: u64) {
        assert!(until <= self.marks.durable(), "what takes its place is durable: {until}");
        self.space.clean();
        self.retire();
    }

    /// Lets go of segments that are not needed, and of their records.
    fn retire(&mut self) {
        self.space.retire(self.marks.applied());
        let first = self.space.front().map_or(0, |front| front.first);
        self.records.settle(first.saturating_sub(1));
    }

    /// The data of `held` is used from the durable record `copy` from now on.
    pub(super) fn replace(&mut self, held: &Held, copy: u64) {
        assert!(copy <= self.marks.durable(), "a copy is used when it is durable: {copy}");
        self.records.replace(held, copy);
    }

    /// The upstream has this data, flushed.
    pub(super) fn forget(&mut self, held: &Held) {
        self.records.forget(held);
    }

    /// What records up to `seq` have between two bytes is lost.
    pub(super) fn skip(&mut self, (start, end): (u64, u64), seq: u64) {
        let lost: Vec<Held> = self
            .records
            .newest(start, end)
            .filter(|held| self.records.order(held.seq) <= seq)
            .collect();
        for held in &lost {
            self.records.forget(held);
        }
    }

    /// All records up to `last` are upstream, and with `no_data` behind them all that are durable, or all.
    pub(super) fn settle(&mut self, last: u64, no_data: bool, effects: &mut VecDeque<Effect>) {
        self.marks.apply(last);
        if no_data {
            let all = if self.failed() { self.marks.last() } else { self.marks.durable() };
            self.marks.apply(all);
        }
        let applied = self.marks.applied();
        self.records.settle(applied);
        if self.failed() {
            while self.records.unsynced() > 0
                && self.marks.next() - self.records.unsynced() <= applied
            {
                self.pop_unsynced(effects);
            }
        }
        self.retire();
    }
}
