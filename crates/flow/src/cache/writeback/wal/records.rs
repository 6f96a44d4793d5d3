//! The records of a log that are not applied, the newest data of each byte, and what can be written again.

use super::super::effect::{Memory, Part, Source};
use super::super::format::{Descriptor, RecordKind, Span};
use super::super::ranges::{Held, Ranges};
use alloc::collections::{BTreeMap, VecDeque};

/// A record that is not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: RecordKind,
    /// First byte of the volume, and how many.
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// Where on the log device the payload begins.
    pub(crate) at: u64,
    /// Where on the log device its checksums begin.
    pub(crate) sums: u64,
}

impl Record {
    /// Bytes of payload.
    pub(crate) fn payload(&self) -> u64 {
        if self.kind == RecordKind::Write { self.length } else { 0 }
    }

    /// Where a part of it, which is a write, is on the log device.
    pub(crate) const fn span(&self, start: u64, end: u64) -> Span {
        Span {
            at: self.at + (start - self.start),
            length: end - start,
            record: self.at,
            bytes: self.length,
            sums: self.sums,
        }
    }
}

/// A record that is not durable, with what is needed to write it again.
#[derive(Clone, Debug)]
pub(crate) struct Unsynced {
    pub(crate) descriptor: Descriptor,
    /// Where its payload is, if it has any.
    pub(crate) memory: Option<Memory>,
}

/// The records of one log.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    /// Records that are not applied, or that may still be needed; the first has sequence number `base`.
    unapplied: VecDeque<Record>,
    base: u64,
    /// The epochs of those among them that are copies.
    copies: BTreeMap<u64, u64>,
    /// Where epochs begin, from the one that is open at the first record that is not durable.
    begins: VecDeque<u64>,
    /// Which of them has the newest data of each byte.
    index: Ranges,
    /// Records that are not durable; the last of these is the last record of all.
    unsynced: VecDeque<Unsynced>,
    /// Records with data among those that are not applied, and their payload.
    dirty: u64,
    payload: u64,
}

impl Records {
    /// What recovery has found after record `before`, and the epochs of those that are copies.
    pub(crate) fn new(
        before: u64,
        unapplied: VecDeque<Record>,
        copies: BTreeMap<u64, u64>,
        index: Ranges,
    ) -> Self {
        let dirty = unapplied.iter().filter(|record| record.kind.is_data()).count() as u64;
        Self {
            payload: unapplied.iter().map(Record::payload).sum(),
            unapplied,
            base: before + 1,
            copies,
            begins: VecDeque::new(),
            index,
            unsynced: VecDeque::new(),
            dirty,
        }
    }

    /// Appends record number `seq`. A copy is not used before it [replaces](Self::replace) what it is of.
    pub(crate) fn push(&mut self, seq: u64, record: Record, unsynced: Unsynced) {
        assert!(
            seq == self.base + self.unapplied.len() as u64,
            "records are numbered without a gap: {seq} follows {} from {} on",
            self.unapplied.len(),
            self.base
        );
        let copied = unsynced.descriptor.copied();
        let begins = record.kind.is_data() && copied.is_none() && self.begins.is_empty();
        if record.kind.cuts() || begins {
            self.begins.push_back(seq);
        }
        if record.kind.is_data() {
            self.dirty += 1;
            self.payload += record.payload();
        }
        if let Some(epoch) = copied {
            self.copies.insert(seq, epoch);
        } else if record.kind.is_data() {
            self.index.insert(record.start, record.start + record.length, seq, |_| ());
        }
        self.unapplied.push_back(record);
        self.unsynced.push_back(unsynced);
    }

    pub(crate) fn get(&self, seq: u64) -> &Record {
        &self.unapplied[(seq - self.base) as usize]
    }

    /// Record `seq` is in a batch: where its payload and its checksums are on the log device.
    pub(crate) fn place(&mut self, seq: u64, at: u64, sums: u64) {
        let record = &mut self.unapplied[(seq - self.base) as usize];
        (record.at, record.sums) = (at, sums);
    }

    /// The newest data between two bytes of the volume, ascending; the upstream has the rest.
    pub(crate) fn newest(&self, start: u64, end: u64) -> impl Iterator<Item = Held> {
        self.index.within(start, end)
    }

    /// The upstream has this data.
    pub(crate) fn forget(&mut self, held: &Held) {
        self.index.remove(held.start, held.end, held.seq);
    }

    /// All records up to `last` are upstream, or newer data and copies are in their place.
    pub(crate) fn settle(&mut self, last: u64) {
        while self.base <= last {
            let record = self.unapplied.pop_front().expect("a record is kept until it is applied");
            self.dirty -= u64::from(record.kind.is_data());
            self.payload -= record.payload();
            self.copies.remove(&self.base);
            self.base += 1;
        }
        assert!(
            self.dirty <= self.unapplied.len() as u64,
            "dirty records are among those that are not applied: {} of {}",
            self.dirty,
            self.unapplied.len()
        );
    }

    /// Number of the first record that is kept.
    pub(crate) const fn first(&self) -> u64 {
        self.base
    }

    /// Records with data that are not applied.
    pub(crate) const fn dirty(&self) -> u64 {
        self.dirty
    }

    /// Their payload on the log device, superseded or not.
    pub(crate) const fn payload(&self) -> u64 {
        self.payload
    }

    /// A record's place in the order of write-back: its number, or for a copy that of its epoch, which is newer than all of
    /// the epoch before and not newer than what it is of.
    pub(crate) fn order(&self, seq: u64) -> u64 {
        self.copies.get(&seq).copied().unwrap_or(seq)
    }

    /// The data of `held` is in record `copy`, too, which is used from now on.
    pub(crate) fn replace(&mut self, held: &Held, copy: u64) {
        self.index.replace(held, copy);
    }

    /// Where the epoch began that is open at record `first`, which is not durable; 0 if none is.
    pub(crate) fn epoch_at(&self, first: u64) -> u64 {
        self.begins.iter().rev().copied().find(|&begin| begin <= first).unwrap_or(0)
    }

    /// All records up to this one are durable.
    pub(crate) fn synced(&mut self, durable: u64) {
        while self.begins.get(1).is_some_and(|&begin| begin <= durable + 1) {
            self.begins.pop_front();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.unapplied.is_empty()
    }

    /// Where on the log device the oldest data begins.
    pub(crate) fn tail(&self) -> Option<u64> {
        self.unapplied.iter().find(|record| record.kind.is_data()).map(|record| record.at)
    }

    /// Sequence number of the first record that is not durable, or of the next one.
    fn first_unsynced(&self, next: u64) -> u64 {
        next - self.unsynced.len() as u64
    }

    /// The records from `seq` on that are not durable; `next` is the number of the next record.
    pub(crate) fn unsynced_from(&self, seq: u64, next: u64) -> impl Iterator<Item = &Unsynced> {
        self.unsynced.range((seq - self.first_unsynced(next)) as usize..)
    }

    /// One of them.
    pub(crate) fn unsynced_mut(&mut self, seq: u64, next: u64) -> &mut Unsynced {
        let first = self.first_unsynced(next);
        &mut self.unsynced[(seq - first) as usize]
    }

    /// How many records are not durable.
    pub(crate) fn unsynced(&self) -> u64 {
        self.unsynced.len() as u64
    }

    /// The oldest record that is not durable need not be written again.
    pub(crate) fn pop_unsynced(&mut self) -> Option<Unsynced> {
        self.unsynced.pop_front()
    }

    /// Where the data of a range is; records up to `durable` are on the log device.
    pub(crate) fn source(&self, held: &Held, durable: u64, next: u64) -> Source {
        let record = self.get(held.seq);
        let length = held.end - held.start;
        if record.kind != RecordKind::Write {
            return Source::Zeroes(length);
        }
        let first = self.first_unsynced(next);
        if held.seq <= durable || held.seq < first {
            return Source::Log(record.span(held.start, held.end));
        }
        let into = held.start - record.start;
        let from = match self.unsynced[(held.seq - first) as usize].memory {
            Some(Memory::Request(key, offset)) => Memory::Request(key, offset + into),
            Some(Memory::Batch(io, offset)) => Memory::Batch(io, offset + into),
            Some(Memory::Job(..)) | None => {
                unreachable!(
                    "a write that is not durable is in memory, and no copy is used before it is durable"
                )
            }
        };
        Source::Memory(Part { from, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> (Record, Unsynced) {
        let kind = RecordKind::Note;
        let descriptor = Descriptor {
            kind,
            flags: 0,
            tenant: 0,
            lba: 0,
            blocks: 0,
            payload_at: 0,
            payload: 0,
            sums_at: 0,
            initiator: 0,
            time: 0,
        };
        let record = Record { kind, start: 0, length: 0, at: 0, sums: 0 };
        (record, Unsynced { descriptor, memory: None })
    }

    /// A number that is left out would make every later record another one: it is noticed.
    #[test]
    #[should_panic(expected = "numbered without a gap")]
    fn records_have_no_gaps() {
        let mut records = Records::new(4, VecDeque::new(), BTreeMap::new(), Ranges::default());
        let (record, unsynced) = note();
        records.push(5, record, unsynced);
        let (record, unsynced) = note();
        records.push(7, record, unsynced);
    }

    /// No epoch begins with a copy, also where the log that was opened has not begun one yet: a segment that names it as the
    /// open one would give the next records to an epoch that never was.
    #[test]
    fn a_copy_begins_no_epoch() {
        let write = |copied| {
            let (record, unsynced) = note();
            let flags = if copied { Descriptor::FLAG_COPY } else { 0 };
            let kind = RecordKind::Write;
            let descriptor = Descriptor { kind, flags, initiator: 3, ..unsynced.descriptor };
            (Record { kind, length: 512, ..record }, Unsynced { descriptor, memory: None })
        };
        let mut records = Records::new(4, VecDeque::new(), BTreeMap::new(), Ranges::default());
        let (record, unsynced) = write(true);
        records.push(5, record, unsynced);
        assert_eq!(records.epoch_at(6), 0);
        let (record, unsynced) = write(false);
        records.push(6, record, unsynced);
        assert_eq!((records.epoch_at(5), records.epoch_at(7)), (0, 6));
    }
}
