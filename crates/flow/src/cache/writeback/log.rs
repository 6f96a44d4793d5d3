//! The log of one volume: its state, what enters it, what it asks for.

use super::append::Fresh;
use super::commit::Cycle;
use super::drain::Writer;
use super::earn::Earn;
use super::effect::{COMMIT, DRAIN, Dirty, Effect, Found, JobId, Kind, LocalId, Notice, Origin};
use super::epoch::Epochs;
use super::format::{RecordKind, Span};
use super::gate::{Gate, Waiting};
use super::index::Ranges;
use super::recovered::Recovered;
use super::settings::{Mode, Settings, Sync};
use super::space::{Pin, Space};
use super::status::Counters;
use super::switch::State;
use crate::clock::Instant;
use crate::policy::Rule;
use crate::request::{Outcome, RequestKey};
use crate::units::Extent;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// The durable log of one volume and its write-back.
///
/// Sequence numbers, in the order in which records pass them:
/// `applied <= durable <= stored <= written < next`.
///
/// | | all records up to it |
/// |---|---|
/// | `written` | have been handed to the log device |
/// | `stored` | have been written there, perhaps to its cache |
/// | `durable` | are durable there |
/// | `applied` | are upstream, and flushed there |
#[derive(Debug)]
pub struct Log {
    pub(super) settings: Settings,
    /// Name of the log.
    pub(super) id: [u8; 16],
    pub(super) incarnation: u64,
    /// Of the newest super block.
    pub(super) generation: u64,
    /// The owner that the log already knows of.
    pub(super) owner_logged: u64,

    pub(super) next: u64,
    pub(super) written: u64,
    pub(super) stored: u64,
    pub(super) durable: u64,
    pub(super) applied: u64,
    /// What a durable header or super block says of `durable` and `applied`.
    pub(super) marked: Marks,
    /// The last record that is durable and not a note.
    pub(super) witness: u64,
    /// Since when something is not marked.
    pub(super) unmarked: Option<Instant>,

    pub(super) space: Space,
    /// Checksum of the header before the next batch.
    pub(super) chain: u32,
    /// Records that are not durable, which could be written again.
    pub(super) fresh: VecDeque<Fresh>,
    /// Records that are not applied; the first has sequence number `base`.
    pub(super) records: VecDeque<Record>,
    pub(super) base: u64,
    pub(super) index: Ranges,
    pub(super) epochs: Epochs,

    pub(super) gate: Gate,
    /// Writes that wait for durability, in order of their last record.
    pub(super) committing: VecDeque<Pending>,
    /// Requests that wait for the upstream, in order of their last record.
    pub(super) landing: VecDeque<Pending>,
    /// Callers of `drained`, with the record that they wait for.
    pub(super) drains: Vec<Drained>,

    pub(super) cycle: Option<Cycle>,
    /// In mode `ram`: a sync is wanted.
    pub(super) sync_due: bool,
    /// What recovery has found is durable for sure.
    pub(super) opened: bool,
    /// Writes whose bytes one record less needs, as soon as the next write has been asked for.
    pub(super) let_go: Vec<LocalId>,
    /// Requests that are acknowledged then.
    pub(super) at_once: Vec<Pending>,
    /// Since when something is written and not durable, in mode `ram`.
    pub(super) unsynced: Option<Instant>,
    /// Writes whose bytes are kept for records that are not durable, and for how many of these.
    pub(super) buffers: BTreeMap<LocalId, u32>,
    /// Failures of the log device in a row.
    pub(super) failures: u32,

    pub(super) writer: Writer,
    pub(super) state: State,
    pub(super) earn: Earn,
    /// The log device has failed for good.
    pub(super) failed: bool,
    /// Not even a super block can be written: write-back goes on without marks.
    pub(super) unmarkable: bool,
    pub(super) closing: bool,
    pub(super) closed: bool,
    pub(super) told_full: bool,
    pub(super) told_strict: bool,

    /// Counts arrivals and acknowledgements.
    pub(super) events: u64,
    pub(super) next_local: u64,
    pub(super) effects: VecDeque<Effect>,
    pub(super) counters: Counters,
}

/// How far what is on the log device says that it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) durable: u64,
    pub(super) applied: u64,
    /// What the newest super block says.
    pub(super) applied_super: u64,
    pub(super) passed: bool,
}

/// A record that is not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: RecordKind,
    /// First byte of the volume.
    pub(super) start: u64,
    /// Bytes of payload.
    pub(super) payload: u64,
    /// Where the payload and its checksums are on the log device.
    pub(super) at: u64,
    pub(super) sums: u64,
}

/// A request whose records are all in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// Its last record, or the last that it waits for.
    pub(super) last: u64,
    pub(super) key: RequestKey,
    /// It closes an epoch when it is acknowledged.
    pub(super) flush: bool,
    /// What held it at the gate, and for how long it was there.
    pub(super) held: Option<Rule>,
    pub(super) arrived: Instant,
    pub(super) admitted: Instant,
}

/// A caller of `drained`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drained {
    /// The record that it waits for.
    last: u64,
    key: RequestKey,
    /// A flush of what went `through` was begun after it came, and has ended.
    pub(super) rides: bool,
    pub(super) covered: bool,
}

impl Log {
    /// Goes on with a log as recovery has found it, or [`Recovered::empty`]. Panics if the settings have
    /// a [`fault`](Settings::fault) or are not those of the log.
    pub fn new(settings: Settings, recovered: &Recovered) -> Self {
        assert!(settings.fault().is_none(), "settings are checked where they are made");
        assert!(
            settings.segments() == recovered.segments
                && settings.segment == recovered.segment
                && settings.block == recovered.block,
            "a log is opened with the sizes that it was made with"
        );
        let last = recovered.next - 1;
        let durable = recovered.witnessed.max(recovered.applied).min(last);
        let (records, index, epochs, dirty) = recovered.rebuild(settings.order);
        let mut log = Self {
            id: recovered.log,
            incarnation: recovered.incarnation,
            generation: recovered.generation,
            owner_logged: recovered.owner,
            next: recovered.next,
            written: last,
            stored: last,
            durable,
            applied: recovered.applied,
            marked: Marks {
                durable: recovered.witnessed,
                applied: recovered.applied,
                applied_super: recovered.applied_super,
                passed: recovered.passed,
            },
            witness: recovered.witnessed,
            unmarked: None,
            space: Space::new(&settings, &recovered.live, recovered.next_segment, durable),
            chain: 0,
            fresh: VecDeque::new(),
            records,
            base: recovered.applied + 1,
            index,
            epochs,
            gate: Gate::new(),
            committing: VecDeque::new(),
            landing: VecDeque::new(),
            drains: Vec::new(),
            cycle: None,
            // What was read may be in a cache of the system, written by a process that was killed
            // before it could sync.
            opened: false,
            let_go: Vec::new(),
            at_once: Vec::new(),
            sync_due: false,
            unsynced: None,
            buffers: BTreeMap::new(),
            failures: 0,
            writer: Writer::new(&settings, recovered),
            state: State::first(&settings, recovered),
            earn: Earn::default(),
            failed: false,
            unmarkable: false,
            closing: false,
            closed: false,
            told_full: false,
            told_strict: true,
            events: 0,
            next_local: 0,
            effects: VecDeque::new(),
            counters: Counters::default(),
            settings,
        };
        (log.counters.dirty, log.counters.records) = (dirty, recovered.dirty().1);
        log.settle(recovered.applied);
        log
    }

    /// A host writes, zeroes or unmaps whole blocks. The payload of a write is under this key until
    /// [`Effect::Ack`]. With `fua` it is answered when a flush after it would be.
    pub fn write(
        &mut self,
        now: Instant,
        key: RequestKey,
        kind: Kind,
        extent: Extent,
        fua: bool,
        who: Origin,
    ) {
        let block = u64::from(self.settings.block);
        assert!(
            extent.offset.is_multiple_of(block)
                && extent.length.is_multiple_of(block)
                && extent.end().is_some(),
            "a volume with a log is written in whole blocks"
        );
        self.events += 1;
        self.epochs.wrote(who.initiator);
        if fua {
            self.epochs.flushed(who.initiator);
        }
        if extent.length == 0 {
            self.flush_or_ack(now, key, fua);
            return;
        }
        if self.pass(key, false) {
            return;
        }
        self.gate.queue.push_back(Waiting {
            key,
            kind,
            extent,
            fua,
            who,
            arrived: now,
            event: self.events,
            done: 0,
            held: None,
        });
    }

    /// A host wants everything that was acknowledged before to be durable. Never waits for room.
    pub fn flush(&mut self, now: Instant, key: RequestKey, who: Origin) {
        self.events += 1;
        self.epochs.flushed(who.initiator);
        self.flush_or_ack(now, key, true);
    }

    fn flush_or_ack(&mut self, now: Instant, key: RequestKey, flush: bool) {
        if !flush {
            self.effects.push_back(Effect::Ack(key, Ok(()), COMMIT));
            return;
        }
        if self.pass(key, true) {
            return;
        }
        // In mode `log` what was acknowledged is durable already.
        let acked = match self.settings.mode {
            Mode::Log => self.durable,
            Mode::Ram => self.written,
        };
        let pending =
            Pending { last: acked, key, flush: true, held: None, arrived: now, admitted: now };
        if self.failed || self.settings.sync == Sync::Upstream || self.resuming() {
            let last = self.next - 1;
            self.landing.push_back(Pending { last, ..pending });
            self.land(now);
        } else if acked <= self.durable {
            self.ack(now, pending, COMMIT);
        } else {
            self.committing.push_back(pending);
        }
    }

    /// [`Effect::Drained`] is to tell when everything that was acknowledged before is upstream and
    /// flushed, and the log says so durably: opened again, it would write nothing of it.
    pub fn drained(&mut self, now: Instant, key: RequestKey) {
        self.drains.push(Drained { last: self.next - 1, key, rides: false, covered: false });
        self.land(now);
    }

    /// An operator wants everything to be written back, and `through` afterwards; or the log to be used
    /// again. What is written meanwhile is acknowledged when it is upstream.
    pub fn drain(&mut self, now: Instant, on: bool) {
        self.switch(now, on);
    }

    /// The gateway stops: nothing more is accepted. What was is made durable and marked, then
    /// [`Effect::Closed`]. Dirty data stays in the log.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// An initiator has left: it does not keep epochs strict any more.
    pub fn gone(&mut self, initiator: u64) {
        self.epochs.gone(initiator);
    }

    /// An operator wants write-back to go on where it was blocked.
    pub fn retry(&mut self) {
        self.unblock();
    }

    /// When a write is acknowledged while the log is in use.
    pub const fn mode(&self) -> Mode {
        self.settings.mode
    }

    /// What the log has for an extent: ascending, disjoint; upstream has what is left out.
    pub fn look_up(&self, extent: Extent, out: &mut Vec<Dirty>) {
        let end = extent.end().expect("a volume ends before the address space does");
        for held in self.index.within(extent.offset, end) {
            let extent = Extent::new(held.start, held.end - held.start);
            let record = self.record(held.seq);
            let found = if held.seq > self.readable() {
                Found::NotYet(held.seq)
            } else if record.kind == RecordKind::Write {
                Found::Log(record.span(held.start, held.end))
            } else {
                Found::Zeroes
            };
            out.push(Dirty { extent, found });
        }
    }

    /// Records up to this one may be read: a read must not return what could still disappear, but in
    /// mode `ram`.
    pub fn readable(&self) -> u64 {
        let here = match self.settings.mode {
            Mode::Log => self.durable,
            Mode::Ram => self.stored,
        };
        here.max(self.applied)
    }

    /// Log space that [`look_up`](Self::look_up) names from now on is not used again before
    /// [`unpin`](Self::unpin).
    pub fn pin(&mut self) -> Pin {
        self.space.pin()
    }

    /// The reads under this pin have ended.
    pub fn unpin(&mut self, pin: Pin) {
        self.space.unpin(pin);
    }

    /// An [`Effect::Write`] or [`Effect::Sync`] has ended.
    pub fn local(&mut self, now: Instant, io: LocalId, outcome: Outcome) {
        self.committed(now, io, outcome);
    }

    /// An [`Effect::Gather`] has ended. An error means that the log cannot be read, or that a checksum is
    /// wrong.
    pub fn gathered(&mut self, now: Instant, job: JobId, outcome: Outcome) {
        self.filled(now, job, outcome);
    }

    /// An [`Effect::Upstream`] has ended.
    pub fn applied(&mut self, now: Instant, job: JobId, outcome: Outcome) {
        self.landed(now, job, outcome);
    }

    /// A request that was given back as [`Effect::Through`] has ended.
    pub fn passed(&mut self, now: Instant, key: RequestKey, outcome: Outcome) {
        let _ = (now, key, outcome);
        self.passed_one();
    }

    /// [`Effect::Abandon`] has been done, or not.
    pub fn abandoned(&mut self, now: Instant, outcome: Outcome) {
        self.left(now, outcome);
    }

    /// The upstream may have lost its volatile cache: a session was lost, or it says that it was reset.
    /// What was not flushed is written again.
    pub fn upstream_reset(&mut self) {
        self.writer.redo();
    }

    /// So many reads of hosts are upstream now: write-back yields to them.
    pub fn demand(&mut self, reads: u32) {
        self.writer.demand = reads;
    }

    /// The next effect to perform, or `None` when there is nothing more to do at `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Effect> {
        loop {
            if let Some(effect) = self.effects.pop_front() {
                return Some(effect);
            }
            if self.closed || !self.step(now) {
                return None;
            }
        }
    }

    /// Does what can be done now; whether that was anything.
    fn step(&mut self, now: Instant) -> bool {
        self.expire(now)
            | self.turn(now)
            | self.commit(now)
            | self.write_back(now)
            | self.change(now)
            | self.finish()
    }

    /// When the log wants to be polled although nothing happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        [
            self.gate_deadline(),
            self.turn_deadline(),
            self.commit_deadline(),
            self.write_back_deadline(),
            self.change_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Time has passed: everything happens in [`poll`](Self::poll).
    pub fn handle_deadline(&mut self, now: Instant) {
        let _ = now;
    }

    /// A record that is not applied.
    pub(super) fn record(&self, seq: u64) -> &Record {
        &self.records[(seq - self.base) as usize]
    }

    /// The next name for an I/O of the log device.
    pub(super) fn local_id(&mut self) -> LocalId {
        self.next_local += 1;
        LocalId(self.next_local)
    }

    /// Answers a host, and closes the epoch if that orders later writes.
    pub(super) fn ack(&mut self, now: Instant, pending: Pending, rule: Rule) {
        self.events += 1;
        self.epochs.acked(self.events, pending.flush);
        let gate = pending.admitted.saturating_since(pending.arrived);
        let rule = match pending.held {
            Some(held) if gate >= now.saturating_since(pending.admitted) => held,
            _ => rule,
        };
        self.counters.acked += 1;
        self.effects.push_back(Effect::Ack(pending.key, Ok(()), rule));
    }

    /// Answers whoever waits for records that are upstream now.
    pub(super) fn land(&mut self, now: Instant) {
        let safe = self.safely_applied();
        while let Some(&first) = self.landing.front() {
            if first.last > safe {
                break;
            }
            self.landing.pop_front();
            self.ack(now, first, DRAIN);
        }
        // Somebody may take the upstream away after that, so the log has to know it for sure as well.
        let known = if self.failed { safe } else { self.marked.applied };
        let (applied, owed) = (self.applied.min(known), self.owes_flush());
        let effects = &mut self.effects;
        self.drains.retain(|drain| {
            let done = drain.last <= applied && (drain.covered || !owed);
            if done {
                effects.push_back(Effect::Drained(drain.key));
            }
            !done
        });
    }

    /// All records up to this one are upstream, and a log that is opened again does not write older ones over
    /// them. Of a log device that has failed this has to be durable, there or elsewhere: it does not have
    /// what was written from memory.
    fn safely_applied(&self) -> u64 {
        if !self.failed || matches!(self.state, State::Through { .. }) {
            self.applied
        } else if self.unmarkable {
            0
        } else {
            self.applied.min(self.marked.applied)
        }
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        self.effects.push_back(Effect::Notice(notice));
    }

    /// How full the log is, in thousandths.
    pub(super) fn fill(&self) -> u32 {
        if self.failed { 0 } else { self.space.fill(self.tail()) }
    }

    /// Where on the device the oldest dirty data begins.
    pub(super) fn tail(&self) -> Option<u64> {
        self.records.iter().find(|record| record.kind.is_data()).map(|record| record.at)
    }
}

impl Record {
    /// Where a part of it, which is a write, is on the log device.
    pub(super) const fn span(&self, start: u64, end: u64) -> Span {
        Span {
            at: self.at + (start - self.start),
            length: end - start,
            record: self.at,
            bytes: self.payload,
            sums: self.sums,
        }
    }
}
