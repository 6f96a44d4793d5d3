//! From admission into the log: which writes the next batch takes, and what they become.

use super::super::acks::Pending;
use super::super::admission::FILL_PACED;
use super::super::effect::{DRAIN, FULL, Kind, Memory, PACE, Write};
use super::super::format::{Descriptor, PAGE, RecordKind, SECTOR, Size};
use super::super::settings::{Mode, Sync};
use super::super::wal::{BatchPlace, NewRecord, NoPlace};
use super::super::width::Candidate;
use super::Log;
use crate::clock::{Duration, Instant};
use alloc::vec::Vec;

impl Log {
    /// Makes the next batch, if there is one: what must be written again, or else the writes that are admitted.
    /// Copies go first, and yet there are no two batches of them in a row while a write waits: see below. With the batch,
    /// whether it is of copies.
    pub(super) fn compose(&mut self, now: Instant) -> Option<(Write, bool)> {
        if self.wal.has_unwritten() {
            return self.wal.write_again().map(|write| (write, false));
        }
        // A job is ready again after a cycle of the log at the earliest: writes that wait have their batch before that.
        let copies = self.compose_copies().map(|write| (write, true));
        copies.or_else(|| self.compose_writes(now).map(|write| (write, false)))
    }

    /// Makes a batch of writes that are admitted.
    fn compose_writes(&mut self, now: Instant) -> Option<Write> {
        let first = self.wal.marks().next();
        let mut acks = Vec::new();
        let place = self.admit(now, &mut acks)?;
        let write = self.wal.write_batch(first, place);
        for pending in acks {
            self.await_ack(pending);
        }
        Some(write)
    }

    /// Appends as many writes as fit into one batch.
    fn admit(&mut self, now: Instant, acks: &mut Vec<Pending>) -> Option<BatchPlace> {
        let fill = self.wal.fill();
        let lowers = self.switch.lowers();
        let (quantum, mut taken) = (self.admission.quantum(now, fill, lowers), 0);
        let batch = if quantum.is_ok() { self.candidate() } else { None };
        if self.admission.width.holds(now, batch) {
            self.admission.hold(PACE);
            return None;
        }
        let (mut size, mut place) = (Size::default(), None::<BatchPlace>);
        while let Some(first) = self.admission.front() {
            let (event, kind, arrived) = (first.event, first.kind, first.arrived);
            let left = first.extent.length - first.done;
            let begun = first.done > 0;
            let held = match quantum {
                _ if !self.switch.admits(begun) => Some(DRAIN),
                Err(rule) if !begun => Some(rule),
                Ok(quantum) if !begun && taken >= quantum => Some(PACE),
                _ => None,
            };
            if let Some(rule) = held {
                self.admission.hold(rule);
                break;
            }
            self.destage.epochs_mut().close_before(Some(event));
            let cut = self.destage.epochs().cut();
            if cut.is_some() && size.records > 0 && fill >= FILL_PACED {
                // What goes upstream together begins with all that waits: an epoch takes a round trip, however small.
                self.admission.hold(PACE);
                break;
            }
            let owner = self.wal.lacks_owner();
            let mut before = size;
            for _ in 0..u8::from(cut.is_some()) + u8::from(owner) {
                before = before.with(0);
            }
            let block = u64::from(self.settings.block);
            let most = match kind {
                Kind::Write => u64::from(self.settings.batch_bytes),
                Kind::Zero | Kind::Unmap => u64::from(u32::MAX) * block,
            };
            let mut take = left.min(most);
            let payload = |take| if kind == Kind::Write { take } else { 0 };
            let with = before.with(payload(take));
            let room = match place {
                Some(BatchPlace { room, .. }) => room,
                None => match self.wal.place(with, false) {
                    Ok(found) => {
                        place = Some(found);
                        found.room
                    }
                    Err(NoPlace::Sync) => {
                        self.wal.want_sync();
                        break;
                    }
                    Err(NoPlace::Full) => self.wal.room(),
                },
            };
            if with.bytes() > room
                || with.payload > u64::from(self.settings.batch_bytes)
                || with.records > u64::from(self.settings.batch_records)
            {
                if place.is_some() {
                    break;
                }
                // A piece goes into what is left; a write larger than the free log must not hang.
                let spare = room.saturating_sub(before.with(0).bytes().max(PAGE));
                take = take.min(spare / block * block);
                if payload(take) == 0 || before.with(take).bytes() > room {
                    self.admission.hold(FULL);
                    break;
                }
                place = Some(self.wal.rest_of_segment());
            }
            if owner {
                self.wal.append_owner();
            }
            if let Some(reason) = cut {
                let seq = self.wal.append(&NewRecord::control(RecordKind::Epoch, 0, reason.code()));
                self.destage.epochs_mut().cut_written(now, seq);
            }
            acks.extend(self.admit_first(now, take));
            size = before.with(payload(take));
            let bytes = payload(take) + SECTOR;
            taken += bytes;
            self.admission.took(now, (fill, lowers), bytes);
            self.switch.load_mut().admitted(now, arrived, bytes, fill >= FILL_PACED);
        }
        place.filter(|_| size.records > 0)
    }

    /// The next batch, if it begins an epoch that should be wide: write-back has more epochs than it can catch up with before
    /// hosts fill a part of the log.
    fn candidate(&self) -> Option<Candidate> {
        let first = self.admission.front()?;
        let (epochs, expected) = (self.destage.epochs(), self.admission.width.expected());
        let payload = if first.kind == Kind::Write { first.extent.length } else { 0 };
        let bytes = payload + SECTOR;
        let meanwhile = (epochs.len() as u64 * expected as u64).saturating_mul(bytes);
        let behind =
            epochs.len() >= BEHIND_EPOCHS && meanwhile >= self.settings.capacity / BEHIND_PART;
        let begins = first.done == 0 && epochs.strict() && epochs.begins(first.event);
        if !behind || !begins || self.switch.defers() {
            return None;
        }
        let fits = u64::from(self.settings.batch_bytes) / bytes;
        Some(Candidate {
            waiting: self.admission.len(),
            most: fits.clamp(1, self.settings.batch_records.into()) as usize,
            trip: self.switch.load().trip().unwrap_or(TRIP),
        })
    }

    /// Appends `take` bytes of the first write that waits. Returns it if that was the last of it.
    pub(super) fn admit_first(&mut self, now: Instant, take: u64) -> Option<Pending> {
        let piece = self.admission.take(take);
        let (of, extent) = (piece.of, piece.extent);
        let block = u64::from(self.settings.block);
        let (kind, memory) = match of.kind {
            Kind::Write => (RecordKind::Write, Some(Memory::Request(of.key, of.done))),
            Kind::Zero => (RecordKind::Zero, None),
            Kind::Unmap => (RecordKind::Unmap, None),
        };
        let record = NewRecord {
            kind,
            start: extent.offset,
            length: extent.length,
            lba: extent.offset / block,
            blocks: (extent.length / block) as u32,
            flags: if of.fua { Descriptor::FLAG_FUA } else { 0 }
                | if piece.more { Descriptor::FLAG_MORE } else { 0 },
            who: of.who,
            epoch: None,
            memory,
        };
        let seq = self.wal.append(&record);
        let range = (extent.offset, extent.offset + extent.length);
        self.destage.add(now, seq, range, record.payload(), &self.wal);
        (!piece.more).then_some(Pending {
            last: seq,
            key: of.key,
            flush: of.fua,
            held: of.held,
            arrived: of.arrived,
            admitted: now,
        })
    }

    /// A request is in the log: it waits for durability, or for the upstream, or only for its batch to be sent,
    /// which takes its payload.
    fn await_ack(&mut self, pending: Pending) {
        let upstream = pending.flush && self.settings.sync == Sync::Upstream;
        if upstream || self.switch.defers() {
            self.acks.await_upstream(pending);
        } else if self.settings.mode == Mode::Log || pending.flush {
            self.acks.await_commit(pending);
        } else {
            self.acks.await_effect(pending);
        }
    }
}

/// A batch waits for other writes while write-back has this many epochs, and hosts, without a log, would fill one part in
/// [`BEHIND_PART`] of the log in the time that these take.
const BEHIND_EPOCHS: usize = 4;
const BEHIND_PART: u64 = 64;

/// What a write upstream is assumed to take until one was answered.
const TRIP: Duration = Duration::from_millis(20);
