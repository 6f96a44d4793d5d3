//! What becomes of the pieces of an epoch when their records move, or are lost.

use super::super::effect::{Effect, JobId};
use super::super::format::RecordKind;
use super::super::ranges::Held;
use super::super::settings::Sync;
use super::super::wal::Wal;
use super::job::{Job, Step};
use super::{Destage, Epoch};
use crate::clock::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

impl Destage {
    /// The epoch of a record, if it is not upstream.
    pub(crate) fn epoch_of(&self, seq: u64, wal: &Wal) -> Option<&Epoch> {
        self.epochs.of(wal.records().order(seq))
    }

    /// What is to be written between two bytes of a record, by this record and by others of its epoch: those have superseded
    /// it there.
    pub(crate) fn pieces(
        &self,
        seq: u64,
        (start, end): (u64, u64),
        wal: &Wal,
    ) -> impl Iterator<Item = Held> {
        let record = wal.records().get(seq);
        let end = end.min(record.start + record.length);
        let start = start.max(record.start).min(end);
        let epoch = self.epoch_of(seq, wal).filter(|_| record.kind.is_data());
        let pieces = epoch.into_iter().flat_map(move |epoch| epoch.pieces.within(start, end));
        #[cfg(test)]
        let pieces = pieces.inspect(move |_| self.visited.set(self.visited.get() + 1));
        pieces
    }

    /// Makes one of the last two closed epochs if that saves much, and none of them has begun. Not where a host learns that
    /// data is upstream: a log that is opened again has several epochs, and would write the older ones over it.
    pub(crate) fn merge_epochs(&mut self, wal: &Wal) {
        if self.settings.sync == Sync::Upstream {
            return;
        }
        let most = self.settings.epoch_bytes.saturating_mul(MERGED_MOST);
        let (counters, begun) = (&mut self.counters, usize::from(self.active.is_some()));
        self.epochs.merge(begun, most, |held| {
            if wal.records().get(held.seq).kind == RecordKind::Write {
                counters.dirty -= held.end - held.start;
                counters.collapsed += held.end - held.start;
            }
        });
    }

    /// The data of `held` is written from the durable record `copy` from now on.
    pub(crate) fn replace(&mut self, held: &Held, copy: u64, wal: &mut Wal) {
        self.epochs.replace(wal.records().order(held.seq), held, copy);
        wal.replace(held, copy);
        for job in self.jobs.values_mut() {
            job.replace(held, copy);
        }
    }

    /// What records up to `seq` have between two bytes is lost, and is not written.
    pub(crate) fn skip(
        &mut self,
        now: Instant,
        range: (u64, u64),
        seq: u64,
        wal: &Wal,
        effects: &mut VecDeque<Effect>,
    ) {
        let dirty = &mut self.counters.dirty;
        let order = |seq| wal.records().order(seq);
        self.epochs.skip(range, seq, order, |held| {
            if wal.records().get(held.seq).kind == RecordKind::Write {
                *dirty -= held.end - held.start;
            }
        });
        // Those that are being filled end when they are.
        let stale = |job: &Job| {
            let waits = matches!(job.step, Step::New | Step::Ready);
            waits && job.pieces.iter().any(|piece| !self.epochs.writes(piece))
        };
        let stale: Vec<JobId> =
            self.jobs.iter().filter(|(_, job)| stale(job)).map(|(&id, _)| id).collect();
        for id in stale {
            self.end_job(now, id, effects);
            self.redo();
        }
    }
}

/// The largest epoch that is made of several, as a multiple of the size at which one is closed: it is written again from its
/// start after an error.
const MERGED_MOST: u64 = 4;
