//! Which I/O destage makes and sends next.

use super::super::admission::FILL_PACED;
use super::super::effect::{Effect, JobId, Piece};
use super::super::format::RecordKind;
use super::super::ranges::Held;
use super::super::wal::Wal;
use super::fua::WRITES_MAX;
use super::job::{ActiveEpoch, Job, Step};
use super::share::SMALL;
use super::{Destage, Epochs, YIELD};
use crate::clock::Instant;
use crate::request::Op;
use crate::units::Extent;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

impl Destage {
    /// Whether write-back leaves the upstream to reads. With `awaited`, requests wait for data to be upstream.
    fn yields(&self, now: Instant, awaited: bool) -> bool {
        self.last_read.is_some_and(|at| now < at + YIELD) && !awaited
    }

    /// Sends, or gathers, or makes one job, if that is allowed now. `awaited` as for `yields`.
    pub(crate) fn send_one(
        &mut self,
        now: Instant,
        wal: &mut Wal,
        awaited: bool,
        effects: &mut VecDeque<Effect>,
    ) -> bool {
        let barred = self.outage.is_some_and(|outage| now < outage.until || self.any_sent());
        if !barred && let Some(id) = self.first(Step::Ready) {
            let job = self.jobs.get_mut(&id).expect("it was just found");
            job.step = Step::Sent(now);
            let (op, extent, fua, side) = (job.op, job.extent, job.fua, job.side);
            if let Some(burst) = job.burst {
                self.share.sent(now, burst);
            }
            if let Some(active) = self.active.as_mut().filter(|_| !side) {
                active.sent.get_or_insert(now);
            }
            effects.push_back(Effect::Upstream { job: id, op, extent, fua });
            return true;
        }
        if let Some(id) = self.first(Step::New) {
            effects.push_back(self.gather(id, wal));
            return true;
        }
        let fill = wal.fill();
        let yields = self.outage.is_none() && self.yields(now, awaited) && fill < FILL_PACED;
        let share = if yields {
            let old = self
                .epochs
                .oldest()
                .is_some_and(|epoch| now.saturating_since(epoch.opened) > self.settings.dirty_age);
            self.share.adjust(now, fill, old);
            let (active, epochs) = (self.active.as_ref(), &self.epochs);
            self.share.allows(now, |most| left(active, epochs, most))
        } else {
            u64::MAX
        };
        let probing = self.outage.is_some();
        if !self.has_room() || share == 0 || (probing && (barred || !self.jobs.is_empty())) {
            return false;
        }
        let block = u64::from(self.settings.block);
        let most = (share.min(self.settings.merge) / block * block).max(block);
        let Some((op, pieces)) = self.next_group(most, yields, wal) else {
            return false;
        };
        let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
        let extent = Extent::new(first.start, last.end - first.start);
        let step = if op == Op::Write { Step::New } else { Step::Ready };
        let fua = self.active.is_some_and(|active| active.fua);
        let mut job = Job { op, extent, pieces, step, side: false, fua, burst: None };
        job.burst = yields.then(|| self.share.began(now, job.bytes()));
        self.start(job);
        assert!(
            self.jobs.len() <= self.settings.depth as usize,
            "no more I/Os than the depth of write-back: {} of {}",
            self.jobs.len(),
            self.settings.depth
        );
        true
    }

    /// The next neighbours of the active epoch that can be one I/O; `yields` if they are sent beside reads.
    fn next_group(&mut self, most: u64, yields: bool, wal: &Wal) -> Option<(Op, Vec<Held>)> {
        let active = self.active.as_ref()?;
        let (cursor, pieces_max) = (active.cursor?, if active.apart { 1 } else { PIECES_MAX });
        let epoch = self.epochs.closed().expect("what is active is closed");
        let mut group: Vec<Held> = Vec::new();
        let (mut op, mut limit) = (Op::Write, most);
        let mut next = cursor;
        for mut held in epoch.pieces.within(cursor, u64::MAX) {
            let wanted = match wal.records().get(held.seq).kind {
                RecordKind::Unmap if !self.no_discard => Op::Discard,
                RecordKind::Zero | RecordKind::Unmap if !self.no_zeroes => Op::WriteZeroes,
                _ => Op::Write,
            };
            let Some(last) = group.last() else {
                op = wanted;
                limit = if op == Op::Write { most } else { ZEROES_MAX };
                held.end = held.end.min(held.start + limit);
                next = held.end;
                group.push(held);
                continue;
            };
            if last.end != held.start || wanted != op || group.len() >= pieces_max {
                break;
            }
            let left = limit - (last.end - group[0].start);
            held.end = held.end.min(held.start + left);
            if held.end == held.start {
                break;
            }
            next = held.end;
            group.push(held);
        }
        let whole = epoch.pieces.within(next, u64::MAX).next().is_none();
        let active = self.active.as_mut().expect("as before");
        if cursor == 0 && !group.is_empty() && self.settings.upstream_flush {
            let is_write = |held: Held| wal.records().get(held.seq).kind == RecordKind::Write;
            if op == Op::Write && whole {
                active.fua = true;
            } else if epoch.pieces.iter().take(WRITES_MAX + 1).all(is_write) {
                let writes = epoch.pieces.iter().take(WRITES_MAX + 1).count();
                active.fua = self.fua_choice.takes_fua(writes, yields);
                active.shared = yields;
                active.writes = (writes <= WRITES_MAX).then_some(writes);
            }
        }
        active.cursor = if group.is_empty() { None } else { Some(next) };
        (!group.is_empty()).then_some((op, group))
    }

    /// Asks for the bytes of a job.
    fn gather(&mut self, id: JobId, wal: &mut Wal) -> Effect {
        let job = self.jobs.get_mut(&id).expect("it was just found");
        let mut pieces = Vec::with_capacity(job.pieces.len());
        for held in &job.pieces {
            let offset = held.start - job.extent.offset;
            pieces.push(Piece { offset, source: wal.source(held) });
        }
        job.step = Step::Gathering(wal.pin());
        Effect::Gather { job: id, bytes: job.extent.length, pieces }
    }
}

/// How many bytes of the active epoch are not on their way, as a [share](super::share) counts them: exactly, or anything
/// above `most`.
fn left(active: Option<&ActiveEpoch>, epochs: &Epochs, most: u64) -> u64 {
    let cursor = active.and_then(|active| active.cursor);
    let pieces = cursor.zip(epochs.closed()).map(|(at, epoch)| epoch.pieces.within(at, u64::MAX));
    let mut left = 0;
    for held in pieces.into_iter().flatten() {
        left += (held.end - held.start).max(SMALL);
        if left > most {
            break;
        }
    }
    left
}

/// The largest number of pieces of one write.
const PIECES_MAX: usize = 256;

/// The longest range that is zeroed or unmapped at once.
const ZEROES_MAX: u64 = 1 << 30;
