//! Epochs: the groups of records that may go upstream together, and what closes them.
//!
//! | | |
//! |---|---|
//! | Model  | the log is cut into epochs; all of one is upstream, and flushed there, before any of the next is sent; inside one only the newest data of each byte counts |
//! | Closed | by an acknowledged flush or FUA write, by size, by age; while strict, by every acknowledgement |
//! | Source | a completed flush makes what was completed before it durable, a completed FUA write is durable (SBC-3, 4.15 and 5.22): nothing else orders writes of a host that flushes |
//!
//! A record belongs to the open epoch if its request had arrived before the closing acknowledgement was
//! given: then the host cannot have meant it to come after.

use super::super::ranges::{Held, Ranges};
use super::super::settings::Order;
use crate::clock::Instant;
use alloc::collections::{BTreeMap, VecDeque};

/// Why an epoch was closed; the number stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The log was opened.
    Start,
    /// A flush or a FUA write was acknowledged.
    Flush,
    /// It was large.
    Size,
    /// It was old.
    Age,
    /// A write was acknowledged, to hosts that do not flush.
    Strict,
    /// A request waits for its data to be upstream.
    Wanted,
}

impl Reason {
    /// The number that stands for it.
    pub const fn code(self) -> u32 {
        self as u32
    }
}

/// One epoch.
#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    /// Its first record, after which it is named, and its last one. Copies, which are later, do not count.
    pub(crate) id: u64,
    pub(crate) last: u64,
    /// The newest data of each byte.
    pub(crate) pieces: Ranges,
    /// Payload bytes, overwritten ones with them.
    pub(crate) bytes: u64,
    /// When its first record came.
    pub(crate) opened: Instant,
    /// Hosts were promised no order between it and the next one.
    pub(crate) soft: bool,
    /// It was made of several: a log that is opened again has several.
    pub(crate) merged: bool,
}

impl Epoch {
    /// Bytes of the volume that it changes.
    fn size(&self) -> u64 {
        self.pieces.iter().map(|held| held.end - held.start).sum()
    }
}

/// All epochs that are not upstream, and what closes them.
#[derive(Clone, Debug)]
pub(crate) struct Epochs {
    list: VecDeque<Epoch>,
    /// The last of the list takes records.
    open: bool,
    /// Requests that arrive after this event belong to the next epoch.
    barrier: Option<(u64, Reason)>,
    /// Why the last one was closed, if records were written since the last cut in the log.
    cut: Option<Reason>,
    /// One was closed, and not compared with the one before it.
    compare: bool,
    order: Order,
    /// Initiators that write, and whether they have flushed.
    initiators: BTreeMap<u64, bool>,
    /// How many of them have not.
    silent: u32,
    /// There are more initiators than are kept: strict until the log is opened again.
    crowded: bool,
    /// Whether observers were last told that it is strict.
    strict_reported: bool,
    /// Counts arrivals and acknowledgements.
    events: u64,
}

impl Epochs {
    pub(crate) fn new(order: Order, list: VecDeque<Epoch>, cut: bool) -> Self {
        Self {
            list,
            open: false,
            barrier: None,
            cut: cut.then_some(Reason::Start),
            compare: false,
            order,
            initiators: BTreeMap::new(),
            silent: 0,
            crowded: false,
            strict_reported: true,
            events: 0,
        }
    }

    /// A request has arrived: its place among arrivals and acknowledgements.
    pub(crate) const fn arrived(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    /// An initiator writes.
    pub(crate) fn wrote(&mut self, initiator: u64) {
        if self.initiators.contains_key(&initiator) {
            return;
        }
        if self.initiators.len() >= INITIATORS {
            self.crowded = true;
            return;
        }
        self.initiators.insert(initiator, false);
        self.silent += 1;
        self.check();
    }

    /// The number of initiators that have not flushed is right.
    fn check(&self) {
        let silent = || self.initiators.values().filter(|&&flushes| !flushes).count();
        debug_assert!(
            self.silent as usize == silent(),
            "each initiator counts once: {}",
            self.silent
        );
        assert!(
            self.silent as usize <= self.initiators.len(),
            "only known initiators have not flushed: {}",
            self.silent
        );
    }

    /// An initiator flushes, or writes with FUA.
    pub(crate) fn flushed(&mut self, initiator: u64) {
        if self.initiators.len() >= INITIATORS && !self.initiators.contains_key(&initiator) {
            return;
        }
        if self.initiators.insert(initiator, true) == Some(false) {
            self.silent -= 1;
        }
        self.check();
    }

    /// An initiator has left.
    pub(crate) fn gone(&mut self, initiator: u64) {
        if self.initiators.remove(&initiator) == Some(false) {
            self.silent -= 1;
        }
        self.check();
    }

    /// Whether every acknowledgement closes.
    pub(crate) fn strict(&self) -> bool {
        match self.order {
            Order::Auto => self.crowded || self.silent > 0,
            Order::Flush => false,
            Order::Strict => true,
        }
    }

    /// Whether it has become strict, or is no longer, since this was asked last.
    pub(crate) fn strict_changed(&mut self) -> Option<bool> {
        let strict = self.strict();
        let changed = strict != self.strict_reported;
        self.strict_reported = strict;
        changed.then_some(strict)
    }

    /// A request was acknowledged: a flush or FUA write, or another write.
    pub(crate) fn acked(&mut self, flush: bool) {
        self.events += 1;
        let event = self.events;
        if !flush && !self.strict() {
            return;
        }
        let reason = if flush { Reason::Flush } else { Reason::Strict };
        if self.open {
            self.barrier.get_or_insert((event, reason));
        } else if let Some(last) = self.list.back_mut().filter(|last| last.soft) {
            last.soft = false;
            self.cut = Some(reason);
        }
    }

    /// Whether the request that arrived as event number `next` begins an epoch.
    pub(crate) fn begins(&self, next: u64) -> bool {
        !self.open || self.barrier.is_some_and(|(event, _)| next > event)
    }

    /// Closes the open epoch if the request that arrived as event number `next` must not be in it; with `None`,
    /// no request waits.
    pub(crate) fn close_before(&mut self, next: Option<u64>) -> bool {
        match self.barrier {
            Some((event, reason)) if next.is_none_or(|next| next > event) => self.close(reason),
            _ => false,
        }
    }

    /// Closes the open epoch.
    pub(crate) fn close(&mut self, reason: Reason) -> bool {
        let reason = self.barrier.take().map_or(reason, |(_, reason)| reason);
        if !core::mem::take(&mut self.open) {
            return false;
        }
        self.cut = Some(reason);
        let last = self.list.back_mut().expect("it was open");
        last.soft = matches!(reason, Reason::Size | Reason::Age | Reason::Wanted);
        self.compare = true;
        true
    }

    /// Makes one of the last closed epoch and the one before it, if hosts were promised no order between them, both write
    /// much of the same data, and together at most `most` bytes: what is superseded of the older one need not be written. The
    /// first `begun` epochs stay as they are. `taken` learns of what is superseded.
    pub(crate) fn merge(&mut self, begun: usize, most: u64, mut taken: impl FnMut(Held)) {
        if !core::mem::take(&mut self.compare) {
            return;
        }
        let last = self.list.len().saturating_sub(1 + usize::from(self.open));
        if last < begun + 1 || !self.list[last - 1].soft {
            return;
        }
        let (older, newer) = (&self.list[last - 1], &self.list[last]);
        let parts = newer.pieces.iter().flat_map(|held| older.pieces.within(held.start, held.end));
        let (both, size) = (parts.map(|part| part.end - part.start).sum::<u64>(), newer.size());
        if both < size / 8 || both == 0 || older.size() + size - both > most {
            return;
        }
        let newer = self.list.remove(last).expect("it was just found");
        let older = &mut self.list[last - 1];
        for held in newer.pieces.iter() {
            // Copies in the older one have higher numbers.
            older.pieces.cover(held.start, held.end, held.seq, &mut taken);
        }
        // Copies name the newer one from now on: it has no older data in their ranges.
        (older.id, older.last, older.soft) = (newer.id, newer.last, newer.soft);
        older.bytes += newer.bytes;
        older.merged = true;
    }

    /// The reason to be written into the log before the next record, if that begins an epoch.
    pub(crate) fn cut(&self) -> Option<Reason> {
        self.cut.filter(|_| !self.open)
    }

    /// The cut is written as record `seq`: it belongs to the epoch that it begins.
    pub(crate) fn cut_written(&mut self, now: Instant, seq: u64) {
        assert!(!self.open && self.cut.is_some(), "a cut is written between two epochs");
        self.cut = None;
        self.begin(now, seq);
    }

    fn begin(&mut self, now: Instant, seq: u64) {
        assert!(
            self.list.back().is_none_or(|last| last.last < seq),
            "an epoch begins behind the one before it: {seq}"
        );
        self.open = true;
        self.list.push_back(Epoch {
            id: seq,
            last: seq,
            pieces: Ranges::default(),
            bytes: 0,
            opened: now,
            soft: false,
            merged: false,
        });
    }

    /// Record `seq` has written from `start` to `end`, with so much payload. How many bytes of the same
    /// epoch it overwrote.
    pub(crate) fn add(
        &mut self,
        now: Instant,
        seq: u64,
        (start, end): (u64, u64),
        payload: u64,
        taken: impl FnMut(Held),
    ) {
        if !self.open {
            self.begin(now, seq);
        }
        let epoch = self.list.back_mut().expect("one was begun");
        assert!(seq >= epoch.last, "records enter epochs in order: {seq} after {}", epoch.last);
        epoch.last = seq;
        epoch.bytes += payload;
        epoch.pieces.insert(start, end, seq, taken);
    }

    /// The oldest epoch, if it is closed.
    pub(crate) fn closed(&self) -> Option<&Epoch> {
        self.list.front().filter(|_| !self.open || self.list.len() > 1)
    }

    /// The oldest epoch.
    pub(crate) fn oldest(&self) -> Option<&Epoch> {
        self.list.front()
    }

    /// The open epoch.
    pub(crate) fn open(&self) -> Option<&Epoch> {
        self.list.back().filter(|_| self.open)
    }

    /// The oldest epoch is upstream.
    pub(crate) fn pop(&mut self) -> Epoch {
        assert!(self.closed().is_some(), "only a closed epoch is applied");
        self.list.pop_front().expect("there is one")
    }

    /// The epoch that has the records of this [order](super::super::wal::Records::order).
    pub(crate) fn of(&self, order: u64) -> Option<&Epoch> {
        self.list.get(self.list.partition_point(|epoch| epoch.last < order))
    }

    /// The data of `held`, whose record has this order, is in record `copy` from now on.
    pub(crate) fn replace(&mut self, order: u64, held: &Held, copy: u64) {
        let place = self.list.partition_point(|epoch| epoch.last < order);
        if let Some(epoch) = self.list.get_mut(place) {
            epoch.pieces.replace(held, copy);
        }
    }

    /// What records up to `seq` in the `order` of write-back have between two bytes is not to be written; `lost` learns of
    /// each part.
    pub(crate) fn skip(
        &mut self,
        (start, end): (u64, u64),
        seq: u64,
        order: impl Fn(u64) -> u64,
        mut lost: impl FnMut(Held),
    ) {
        for epoch in &mut self.list {
            epoch.pieces.cut(start, end, |held| {
                let skipped = order(held.seq) <= seq;
                if skipped {
                    lost(held);
                }
                skipped
            });
        }
    }

    /// Whether the oldest epoch writes this part of a record.
    pub(crate) fn writes(&self, part: &Held) -> bool {
        let pieces = self.list.front().map(|epoch| &epoch.pieces);
        pieces.is_some_and(|pieces| {
            pieces.within(part.start, part.end).any(|held| held.seq == part.seq)
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Most initiators that are watched; with more the volume stays strict.
const INITIATORS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn epochs() -> Epochs {
        let mut epochs = Epochs::new(Order::Auto, VecDeque::new(), false);
        epochs.add(Instant::ZERO, 2, (0, 512), 512, |_| ());
        epochs
    }

    /// A record that enters an epoch after a later one would leave that epoch with a wrong end.
    #[test]
    #[should_panic(expected = "records enter epochs in order")]
    fn records_enter_in_order() {
        epochs().add(Instant::ZERO, 1, (0, 512), 512, |_| ());
    }

    /// Two epochs that overwrite each other and that only size has parted become one. An answer that orders what comes after
    /// it keeps them apart: before the first was closed, or before the second began.
    #[test]
    fn what_has_no_order_is_one_epoch() {
        let merged = |acked: [bool; 3], (from, length): (u64, u64), (begun, most): (usize, u64)| {
            let mut epochs = Epochs::new(Order::Flush, VecDeque::new(), false);
            let mut superseded = 0;
            for (i, acked) in acked.into_iter().enumerate() {
                let (seq, from) = (10 * (i as u64 + 1), if i == 1 { from } else { 0 });
                if epochs.cut().is_some() {
                    epochs.cut_written(Instant::ZERO, seq);
                }
                let length = if i == 1 { length } else { 8 };
                epochs.add(Instant::ZERO, seq + 1, (from, from + length), length, |_| ());
                if acked && i == 0 {
                    epochs.acked(true);
                }
                epochs.close(Reason::Size);
                if acked && i > 0 {
                    epochs.acked(true);
                }
                epochs.merge(begun, most, |held| superseded += held.end - held.start);
            }
            let ids: Vec<_> = epochs.list.iter().map(|epoch| (epoch.id, epoch.last)).collect();
            (ids, superseded)
        };
        let (all, open) = ((0, 8), (0, 20));
        assert_eq!(merged([false; 3], all, open), ([(30, 31)].to_vec(), 16));
        assert_eq!(merged([true, false, false], all, open), ([(11, 11), (30, 31)].to_vec(), 8));
        assert_eq!(merged([false, true, false], all, open), ([(20, 21), (30, 31)].to_vec(), 8));
        assert_eq!(merged([false; 3], (4, 8), open), ([(30, 31)].to_vec(), 12));
        let left = |range, limits| merged([false; 3], range, limits).0.len();
        assert_eq!(left((100, 8), open), 3, "they have nothing in common");
        assert_eq!(
            left((7, 16), (0, 100)),
            2,
            "an eighth of the second is more than it has of the first"
        );
        assert_eq!(left((4, 8), (0, 11)), 3, "they are too large together");
        assert_eq!(left((0, 8), (1, 20)), 2, "the first one is on its way");
    }

    /// An epoch that still takes records is not written back.
    #[test]
    #[should_panic(expected = "only a closed epoch is applied")]
    fn an_open_epoch_stays() {
        epochs().pop();
    }
}
