//! What recovery has found of a log, from which the log continues. It can be put into a recording.

use super::destage::{Epoch, Epochs};
use super::format::RecordKind;
use super::ranges::Ranges;
use super::settings::{Order, Settings};
use super::wal::{Identity, Marks, Record, Records, Segment, Space, Wal, Watermarks};
use crate::clock::Instant;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt;

/// A log as it was found, or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    pub(super) log: [u8; 16],
    pub(super) incarnation: u64,
    pub(super) generation: u64,
    pub(super) owner: u64,
    pub(super) block: u32,
    pub(super) segment: u64,
    pub(super) segments: u64,
    pub(super) applied: u64,
    /// The record before the first that is there; between this one and `applied` all is superseded, or in copies.
    pub(super) before: u64,
    pub(super) applied_super: u64,
    pub(super) bypassed: bool,
    pub(super) witnessed: u64,
    pub(super) next: u64,
    /// The oldest segment that the newest super block names.
    pub(super) oldest: u64,
    pub(super) next_segment: u64,
    pub(super) live: Vec<Segment>,
    /// Records after `before`, without a gap.
    pub(super) found: Vec<FoundRecord>,
}

/// A record that is to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundRecord {
    pub(super) kind: RecordKind,
    pub(super) copy: bool,
    /// The epoch that it belongs to.
    pub(super) epoch: u64,
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) at: u64,
    pub(super) sums: u64,
}

impl FoundRecord {
    /// Whether it has data of which not all is known to be upstream.
    const fn is_dirty(&self, applied: u64) -> bool {
        self.kind.is_data() && (!self.copy || self.epoch > applied)
    }
}

impl Recovered {
    /// What there is to recover of a log that has just been made by
    /// [`format_new`](super::format_new) with the same arguments.
    pub fn empty(settings: &Settings, log: [u8; 16], incarnation: u64, first: u64) -> Self {
        Self {
            log,
            incarnation,
            generation: 2,
            owner: 0,
            block: settings.block,
            segment: settings.segment,
            segments: settings.segments(),
            applied: first - 1,
            before: first - 1,
            applied_super: first - 1,
            bypassed: true,
            witnessed: first - 1,
            next: first,
            oldest: 1,
            next_segment: 1,
            live: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Name of the log.
    pub const fn log(&self) -> [u8; 16] {
        self.log
    }

    /// The last record that is there.
    pub const fn last(&self) -> u64 {
        self.next - 1
    }

    /// All records up to this one are known to be upstream.
    pub const fn applied(&self) -> u64 {
        self.applied
    }

    /// The highest owner that has written.
    pub const fn owner(&self) -> u64 {
        self.owner
    }

    /// Payload bytes, and records, that are not known to be upstream; overwritten ones count as well.
    pub fn dirty(&self) -> (u64, u64) {
        let data = || self.found.iter().filter(|record| record.is_dirty(self.applied));
        let payload =
            |one: &FoundRecord| if one.kind == RecordKind::Write { one.length } else { 0 };
        (data().map(payload).sum(), data().count() as u64)
    }

    /// Whether writes may have gone upstream past the log, and not be flushed there.
    pub const fn bypassed(&self) -> bool {
        self.bypassed
    }

    /// Whether the log was made with these sizes.
    pub(super) const fn fits(&self, settings: &Settings) -> bool {
        settings.segments() == self.segments
            && settings.segment == self.segment
            && settings.block == self.block
    }

    /// The log as it was, its epochs, and the bytes to be written upstream.
    pub(super) fn open(&self, settings: &Settings) -> (Wal, Epochs, u64) {
        let (records, index, epochs, dirty) = self.rebuild(settings.order);
        let identity = Identity {
            log: self.log,
            incarnation: self.incarnation,
            generation: self.generation,
            owner: self.owner,
        };
        let last = self.next - 1;
        let durable = self.witnessed.max(self.applied).min(last);
        let marks = Watermarks::new(self.next, durable, self.applied);
        let on_device = Marks {
            durable: self.witnessed,
            applied: self.applied,
            applied_super: self.applied_super,
            bypassed: self.bypassed,
        };
        let numbers = (self.oldest, self.next_segment);
        let space = Space::new(settings, &self.live, numbers, durable);
        let seqs = (self.before + 1..).zip(&self.found);
        let copies = seqs.filter(|(_, one)| one.copy).map(|(seq, one)| (seq, one.epoch)).collect();
        let records = Records::new(self.before, records, copies, index);
        (Wal::new(*settings, identity, marks, on_device, space, records), epochs, dirty)
    }

    /// Records, index and epochs as they were, and the bytes to be written upstream.
    fn rebuild(&self, order: Order) -> (VecDeque<Record>, Ranges, Epochs, u64) {
        let records: VecDeque<Record> = self
            .found
            .iter()
            .map(|&FoundRecord { kind, start, length, at, sums, .. }| Record {
                kind,
                start,
                length,
                at,
                sums,
            })
            .collect();
        let (mut dirty, mut epochs) = (0, BTreeMap::<u64, Epoch>::new());
        let dirty_records =
            (self.before + 1..).zip(&self.found).filter(|(_, one)| one.is_dirty(self.applied));
        for (seq, found) in dirty_records {
            // What is known to be upstream ends an epoch.
            let id = found.epoch.max(self.applied + 1);
            let epoch = epochs.entry(id).or_insert_with(|| Epoch {
                id,
                last: id,
                pieces: Ranges::default(),
                bytes: 0,
                opened: Instant::ZERO,
                soft: false,
                merged: false,
            });
            if !found.copy {
                epoch.last = epoch.last.max(seq);
            }
            let is_write =
                |seq: u64| records[(seq - self.before - 1) as usize].kind == RecordKind::Write;
            let payload = if is_write(seq) { found.length } else { 0 };
            epoch.bytes += payload;
            dirty += payload;
            epoch.pieces.insert(found.start, found.start + found.length, seq, |held| {
                if is_write(held.seq) {
                    dirty -= held.end - held.start;
                }
            });
        }
        let mut epochs: VecDeque<Epoch> = epochs.into_values().collect();
        let mut index = Ranges::default();
        for i in 0..epochs.len() {
            let next = epochs.get(i + 1).map_or(u64::MAX, |next| next.id);
            epochs[i].last = epochs[i].last.min(next - 1);
            for held in epochs[i].pieces.iter() {
                index.cover(held.start, held.end, held.seq, |_| ());
            }
        }
        (records, index, Epochs::new(order, epochs, !self.live.is_empty()), dirty)
    }

    /// Bytes for a recording, of which a later version of this program may not know anything.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.log);
        out.extend(self.block.to_le_bytes());
        let mut put = |value: u64| out.extend(value.to_le_bytes());
        for value in [
            self.incarnation,
            self.generation,
            self.owner,
            self.segment,
            self.segments,
            self.applied,
            self.before,
            self.applied_super,
            u64::from(self.bypassed),
            self.witnessed,
            self.next,
            self.oldest,
            self.next_segment,
            self.live.len() as u64,
        ] {
            put(value);
        }
        for one in &self.live {
            for value in [one.number, one.slot, one.first, one.last, one.length] {
                put(value);
            }
        }
        for one in &self.found {
            put(one.kind.code().into());
            for value in [u64::from(one.copy), one.epoch, one.start, one.length, one.at, one.sums] {
                put(value);
            }
        }
        out
    }

    /// Reads what [`encode`](Self::encode) has made.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut rest = bytes;
        let log = *take::<16>(&mut rest)?;
        let block = u32::from_le_bytes(*take(&mut rest)?);
        let mut values = [0; 14];
        for value in &mut values {
            *value = number(&mut rest)?;
        }
        let [
            incarnation,
            generation,
            owner,
            segment,
            segments,
            applied,
            before,
            applied_super,
            passed,
            witnessed,
            next,
            oldest,
            next_segment,
            count,
        ] = values;
        if next <= before
            || before < applied
            || witnessed >= next
            || count > segments
            || segment == 0
            || passed > 1
        {
            return Err(DecodeError);
        }
        let mut live = Vec::new();
        for _ in 0..count {
            let mut values = [0; 5];
            for value in &mut values {
                *value = number(&mut rest)?;
            }
            let [number, slot, first, last, length] = values;
            if slot >= segments || length > segment || number >= next_segment || last >= next {
                return Err(DecodeError);
            }
            live.push(Segment {
                number,
                slot,
                first,
                last,
                length,
                sealed: length,
                position: 0,
                frozen: true,
            });
        }
        if live.first().map_or(next_segment, |first| first.number) < oldest {
            return Err(DecodeError);
        }
        let mut found = Vec::new();
        while !rest.is_empty() {
            let kind = u8::try_from(number(&mut rest)?).ok().and_then(RecordKind::from_code);
            let kind = kind.ok_or(DecodeError)?;
            let mut values = [0; 6];
            for value in &mut values {
                *value = number(&mut rest)?;
            }
            let [copy, epoch, start, length, at, sums] = values;
            let empty = kind.is_data() && length == 0;
            if start.checked_add(length).is_none() || empty || copy > 1 {
                return Err(DecodeError);
            }
            found.push(FoundRecord { kind, copy: copy == 1, epoch, start, length, at, sums });
        }
        if found.len() as u64 != next - 1 - before {
            return Err(DecodeError);
        }
        Ok(Self {
            log,
            incarnation,
            generation,
            owner,
            block,
            segment,
            segments,
            applied,
            before,
            applied_super,
            bypassed: passed == 1,
            witnessed,
            next,
            oldest,
            next_segment,
            live,
            found,
        })
    }
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], DecodeError> {
    let (first, behind) = rest.split_first_chunk().ok_or(DecodeError)?;
    *rest = behind;
    Ok(first)
}

fn number(rest: &mut &[u8]) -> Result<u64, DecodeError> {
    take(rest).map(|bytes| u64::from_le_bytes(*bytes))
}

/// Bytes are not what [`Recovered::encode`] has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError;

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these bytes are not what recovery has found of a log")
    }
}

impl core::error::Error for DecodeError {}
