//! Copies what is needed of the oldest segment, and gives that up.

use super::super::clean::{AGAIN, Copying, PAUSE, Step};
use super::super::effect::{Effect, JobId, Memory, Origin, Piece, Write};
use super::super::format::{RecordKind, Size};
use super::super::ranges::Held;
use super::super::wal::{NewRecord, NoPlace};
use super::Log;
use crate::clock::Instant;
use crate::request::Outcome;
use alloc::vec::Vec;

impl Log {
    /// Continues cleaning; whether it did anything.
    pub(super) fn clean(&mut self, now: Instant) -> bool {
        self.cleaner.wake(now);
        if self.cleaner.job.is_some() {
            return self.go_on_copying();
        }
        if !self.cleans() {
            return false;
        }
        let oldest = self.wal.oldest();
        if self.cleaner.segment != Some(oldest) {
            let Some(front) = self.wal.cleanable().map(|front| front.first) else { return false };
            let needed = self.destage.counters().dirty;
            let superseded = self.wal.records().payload().saturating_sub(needed);
            let unreadable = self.cleaner.unreadable.is_some_and(|(segment, _)| segment == oldest);
            if superseded <= needed / 2 || unreadable {
                return false;
            }
            let cleaner = &mut self.cleaner;
            (cleaner.segment, cleaner.cursor, cleaner.until) = (Some(oldest), (front, 0), None);
            (cleaner.found, cleaner.begun) = (false, false);
        }
        self.look(now)
    }

    /// Whether the log may be cleaned now.
    fn cleans(&self) -> bool {
        let open = !self.closing && !self.destage.is_fenced();
        let logs = !self.switch.drains() && !self.switch.defers();
        open && logs && self.wal.is_working() && !self.wal.lacks_owner()
    }

    /// Takes what is needed of the next pieces of the segment. Whether it did anything.
    fn look(&mut self, now: Instant) -> bool {
        let (first, last) = self.wal.oldest_records();
        let records = self.wal.records();
        let (mut at, mut from) = self.cleaner.cursor;
        if at < records.first() {
            (at, from) = (records.first(), 0);
        }
        // Looked for only with the first piece that is needed: a segment without one is given up however full the log is.
        let room = self.wal.room_for_copies(self.cleaner.begun);
        let most = u64::from(self.settings.batch_bytes);
        let (mut pieces, mut size, mut full) = (Vec::new(), Size::default(), false);
        'records: while at <= last && self.cleaner.may_look() {
            let is_write = records.get(at).kind == RecordKind::Write;
            for held in self.destage.pieces(at, (from, u64::MAX), &self.wal) {
                from = held.start;
                if !self.cleaner.may_look() {
                    break 'records;
                }
                if held.seq != at {
                    continue;
                }
                let length = held.end - held.start;
                let payload = if is_write { length.min(most - size.payload) } else { 0 };
                let with = size.with(payload);
                full = (is_write && payload == 0)
                    || with.records > self.settings.batch_records.into()
                    || with.bytes() > room;
                if full {
                    break 'records;
                }
                let end = if is_write { held.start + payload } else { held.end };
                pieces.push((Held { end, ..held }, size.payload));
                (size, from, full) = (with, end, end < held.end);
                if full {
                    break 'records;
                }
            }
            (at, from) = (at + 1, 0);
        }
        self.cleaner.cursor = (at, from);
        if !pieces.is_empty() {
            (self.cleaner.found, self.cleaner.begun) = (true, true);
            self.gather(pieces, size.payload);
        } else if at <= last {
            // Without room it continues when there is some, at the piece that wants it. A pause that has begun ends when it
            // would have, however often it is asked meanwhile.
            if !full {
                self.cleaner.pause.get_or_insert(now + PAUSE);
            }
            return false;
        } else if self.cleaner.found {
            // What was left out, and what has changed meanwhile, is found by another pass.
            (self.cleaner.cursor, self.cleaner.found) = ((first, 0), false);
        } else {
            let marks = self.wal.marks();
            let until = *self.cleaner.until.get_or_insert(marks.last());
            if marks.durable() < until {
                return false;
            }
            self.cleaner.segment = None;
            self.wal.give_up_oldest(until);
        }
        true
    }

    /// Reads what is to be copied.
    fn gather(&mut self, pieces: Vec<(Held, u64)>, bytes: u64) {
        let id = self.destage.name_job();
        let step = if bytes > 0 { Step::Gathering(self.wal.pin()) } else { Step::Ready };
        if bytes > 0 {
            let is_write = |held: &Held| self.wal.records().get(held.seq).kind == RecordKind::Write;
            let from = pieces.iter().filter(|(held, _)| is_write(held));
            let pieces = from
                .map(|(held, offset)| Piece { offset: *offset, source: self.wal.source(held) })
                .collect();
            self.effects.push_back(Effect::Gather { job: id, bytes, pieces });
        }
        self.cleaner.job = Some(Copying { id, pieces, step });
    }

    /// An [`Effect::Gather`] has ended; whether it was for copies.
    pub(super) fn gathered_copies(&mut self, now: Instant, id: JobId, outcome: Outcome) -> bool {
        let Some(job) = self.cleaner.job.as_mut().filter(|job| job.id == id) else { return false };
        if let Step::Gathering(pin) = job.step {
            self.wal.unpin(pin);
            job.step = Step::Ready;
            if outcome.is_err() {
                self.cleaner.unreadable =
                    self.cleaner.segment.map(|segment| (segment, now + AGAIN));
                self.end_copying();
            }
        }
        true
    }

    /// Ends the job if it is done, or of no use any more. Whether it did.
    fn go_on_copying(&mut self) -> bool {
        let useless = !self.cleans() || self.cleaner.segment != Some(self.wal.oldest());
        let Some(job) = &mut self.cleaner.job else { return false };
        match &mut job.step {
            Step::Gathering(_) => return false,
            Step::Ready if !useless => return false,
            Step::Ready => {}
            Step::Written(copies) => {
                let last = copies.last().map_or(0, |&(_, copy)| copy);
                if self.wal.marks().durable() < last {
                    // Until they are durable they may have to be written again.
                    if !self.wal.failed() {
                        return false;
                    }
                } else {
                    for (held, copy) in core::mem::take(copies) {
                        self.destage.replace(&held, copy, &mut self.wal);
                    }
                    self.drop_job();
                    return true;
                }
            }
        }
        self.end_copying();
        true
    }

    /// Ends the job without copies; the segment is looked at from its beginning if it is cleaned again.
    fn end_copying(&mut self) {
        self.cleaner.segment = None;
        self.drop_job();
    }

    fn drop_job(&mut self) {
        if let Some(job) = self.cleaner.job.take() {
            self.effects.push_back(Effect::Done(job.id));
        }
    }

    /// Makes a batch of what was read, as far as it is needed still.
    pub(super) fn compose_copies(&mut self) -> Option<Write> {
        let job = self.cleaner.ready()?;
        let id = job.id;
        let (mut parts, mut size) = (Vec::new(), Size::default());
        for (held, offset) in &job.pieces {
            if held.seq < self.wal.records().first() {
                continue;
            }
            let is_write = self.wal.records().get(held.seq).kind == RecordKind::Write;
            let Some(epoch) = self.destage.epoch_of(held.seq, &self.wal).map(|epoch| epoch.id)
            else {
                continue;
            };
            // What hosts have written since it was looked at has taken parts of it.
            let pieces = self.destage.pieces(held.seq, (held.start, held.end), &self.wal);
            for part in pieces.filter(|part| part.seq == held.seq) {
                if size.records < self.settings.batch_records.into() {
                    size = size.with(if is_write { part.end - part.start } else { 0 });
                    parts.push((part, epoch, offset + (part.start - held.start)));
                }
            }
        }
        if parts.is_empty() {
            self.drop_job();
            return None;
        }
        let place = match self.wal.place(size, false) {
            Ok(place) => place,
            Err(NoPlace::Sync) => {
                self.wal.want_sync();
                return None;
            }
            Err(NoPlace::Full) => {
                self.end_copying();
                return None;
            }
        };
        let first = self.wal.marks().next();
        let block = u64::from(self.settings.block);
        let mut copies = Vec::with_capacity(parts.len());
        for (part, epoch, offset) in parts {
            let kind = self.wal.records().get(part.seq).kind;
            let length = part.end - part.start;
            let copy = self.wal.append(&NewRecord {
                kind,
                start: part.start,
                length,
                lba: part.start / block,
                blocks: (length / block) as u32,
                flags: 0,
                who: Origin::default(),
                epoch: Some(epoch),
                memory: (kind == RecordKind::Write).then_some(Memory::Job(id, offset)),
            });
            copies.push((part, copy));
        }
        if let Some(job) = &mut self.cleaner.job {
            job.step = Step::Written(copies);
        }
        Some(self.wal.write_batch(first, place))
    }
}
