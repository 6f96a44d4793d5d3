//! The write-back log of one volume: joins log, destage and mode, and answers hosts.

mod append;
mod clean;
mod commit;
mod lost;
mod status;
mod update;

use super::acks::{Acks, Pending};
use super::admission::{Admission, Waiting};
use super::clean::Cleaner;
use super::destage::{Destage, JobEnd, PassEnd};
use super::effect::{
    COMMIT, DEBT, DRAIN, Dirty, Effect, Found, Fua, JobId, Kind, LocalId, Notice, Origin,
};
use super::format::RecordKind;
use super::mode::{ModeSwitch, Transition, View};
use super::recovered::Recovered;
use super::settings::{Mode, Settings, Sync};
use super::wal::{CycleEnd, Pin, Wal};
use crate::clock::Instant;
use crate::error::IoError;
use crate::policy::Rule;
use crate::request::{Outcome, RequestKey};
use crate::settings::Settings as _;
use crate::units::Extent;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The durable log of one volume and its write-back.
///
/// Inputs are methods that return nothing; after one or more of them, call [`poll`](Self::poll) until it returns
/// `None` and perform what it returns. There is no order between effects but the order of `poll`.
///
/// Large, and one type: it is the interface of the log, and all that sees more than one of its parts. State and
/// invariants are in the parts (`Wal`, `Destage`, `ModeSwitch`, `Admission`, `Acks`).
#[derive(Debug)]
pub struct Log {
    settings: Settings,
    wal: Wal,
    destage: Destage,
    switch: ModeSwitch,
    admission: Admission,
    acks: Acks,
    cleaner: Cleaner,
    effects: VecDeque<Effect>,
    closing: bool,
    closed: bool,
}

impl Log {
    /// Continues a log as recovery has found it, or [`Recovered::empty`]. Panics if the settings have
    /// not [valid](Settings::validate) or are not those of the log.
    pub fn new(settings: Settings, recovered: &Recovered) -> Self {
        assert!(settings.validate().is_ok(), "settings are checked where they are made");
        assert!(recovered.fits(&settings), "a log is opened with the sizes that it was made with");
        let (wal, epochs, dirty) = recovered.open(&settings);
        let bypassed = recovered.bypassed();
        let applied = recovered.applied();
        let mut log = Self {
            wal,
            destage: Destage::new(settings, epochs, applied, dirty, bypassed),
            switch: ModeSwitch::new(settings.earn),
            admission: Admission::new(),
            acks: Acks::default(),
            cleaner: Cleaner::default(),
            effects: VecDeque::new(),
            closing: false,
            closed: false,
            settings,
        };
        log.settle(applied);
        log
    }

    // Requests of hosts.

    /// A host writes, zeroes or unmaps whole blocks. The payload of a write is under this key until
    /// [`Effect::Ack`]. With `fua` it is answered when a flush after it would be; one that only the gateway
    /// [wants](Fua::Gateway) so does not make its host one that flushes.
    pub fn write(
        &mut self,
        now: Instant,
        key: RequestKey,
        kind: Kind,
        extent: Extent,
        fua: Fua,
        who: Origin,
    ) {
        let block = u64::from(self.settings.block);
        assert!(
            extent.offset.is_multiple_of(block)
                && extent.length.is_multiple_of(block)
                && extent.end().is_some(),
            "a volume with a log is written in whole blocks"
        );
        let epochs = self.destage.epochs_mut();
        let event = epochs.arrived();
        epochs.wrote(who.initiator);
        if fua == Fua::Host {
            epochs.flushed(who.initiator);
        }
        let fua = fua != Fua::No;
        if extent.length == 0 {
            if fua {
                self.flush_now(now, key);
            } else {
                self.effects.push_back(Effect::Ack(key, Ok(()), COMMIT));
            }
            return;
        }
        if self.forward(key, extent.length) {
            return;
        }
        let (arrived, done, held) = (now, 0, None);
        let write = Waiting { key, kind, extent, fua, who, arrived, event, done, held };
        self.admission.push(write, self.acks.committing());
    }

    /// A host wants everything that was acknowledged before to be durable. Never waits for room.
    pub fn flush(&mut self, now: Instant, key: RequestKey, who: Origin) {
        let epochs = self.destage.epochs_mut();
        epochs.arrived();
        epochs.flushed(who.initiator);
        self.flush_now(now, key);
    }

    fn flush_now(&mut self, now: Instant, key: RequestKey) {
        if self.forward(key, 0) {
            return;
        }
        self.switch.load_mut().flushed();
        let last = self.wal.acknowledged();
        let pending = Pending { last, key, flush: true, held: None, arrived: now, admitted: now };
        if self.in_debt() {
            self.destage.debt_mut().note(now);
            self.acks.await_debt(pending);
        } else {
            self.flush_logged(now, pending);
        }
    }

    /// What bypassed the log is durable upstream: a flush waits for the records before it.
    fn flush_logged(&mut self, now: Instant, flush: Pending) {
        if self.wal.failed() || self.settings.sync == Sync::Upstream {
            let last = self.wal.marks().last();
            self.acks.await_upstream(Pending { last, ..flush });
            self.ack_applied(now);
        } else if flush.last <= self.wal.marks().durable() {
            self.ack(now, flush, COMMIT);
        } else {
            self.acks.await_commit(flush);
        }
    }

    /// What the log has for an extent: ascending, disjoint; upstream has what is left out.
    pub fn look_up(&self, extent: Extent, out: &mut Vec<Dirty>) {
        let end = extent.end().expect("a volume ends before the address space does");
        let readable = self.readable();
        let records = self.wal.records();
        for held in records.newest(extent.offset, end) {
            let extent = Extent::new(held.start, held.end - held.start);
            let record = records.get(held.seq);
            let found = if held.seq > readable {
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
        self.wal.readable()
    }

    /// Log space that [`look_up`](Self::look_up) names from now on is not used again before
    /// [`unpin`](Self::unpin).
    pub fn pin(&mut self) -> Pin {
        self.wal.pin()
    }

    /// The reads under this pin have ended.
    pub fn unpin(&mut self, pin: Pin) {
        self.wal.unpin(pin);
    }

    /// The number of reads of hosts that are upstream now: write-back yields to them. `begun` are the bytes of
    /// those that were not there before.
    pub fn set_reads(&mut self, reads: u32, begun: u64) {
        self.destage.set_reads(reads, begun);
    }

    /// An initiator has left: it does not keep epochs strict any more.
    pub fn initiator_left(&mut self, initiator: u64) {
        self.destage.epochs_mut().gone(initiator);
    }

    // Orders of operators.

    /// With `on`, everything is to be written back, and writes go upstream past the log afterwards; else the log is
    /// to be used again. What is written meanwhile is acknowledged when it is upstream.
    pub fn drain(&mut self, now: Instant, on: bool) {
        let transition = self.switch.request(on, self.view());
        self.follow(now, transition);
    }

    /// Write-back is to continue where it was blocked.
    pub fn retry(&mut self) {
        self.cleaner.try_again();
        self.destage.unblock(&mut self.effects);
    }

    /// The gateway stops: nothing more is accepted. What was is made durable and marked, then
    /// [`Effect::Closed`]. Dirty data stays in the log.
    pub const fn close(&mut self) {
        self.closing = true;
    }

    /// Whether it has closed after [`close`](Self::close).
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// When a write is acknowledged while the log is in use.
    pub const fn mode(&self) -> Mode {
        self.settings.mode
    }

    // Answers to effects.

    /// An [`Effect::Write`] or [`Effect::Sync`] has ended.
    pub fn log_io_ended(&mut self, now: Instant, io: LocalId, outcome: Outcome) {
        match self.wal.io_ended(io, outcome, &mut self.effects) {
            CycleEnd::None => {}
            CycleEnd::Synced(cycle) => self.synced(now, &cycle),
            CycleEnd::Failed(cycle, error) => self.cycle_failed(now, &cycle, error),
        }
    }

    /// An [`Effect::Gather`] has ended. An error means that the log cannot be read, or that a checksum is
    /// wrong.
    pub fn gathered(&mut self, now: Instant, job: JobId, outcome: Outcome) {
        if !self.gathered_copies(now, job, outcome) {
            self.destage.gathered(now, job, outcome, &mut self.wal, &mut self.effects);
        }
    }

    /// An [`Effect::Upstream`] has ended.
    pub fn upstream_ended(&mut self, now: Instant, job: JobId, outcome: Outcome) {
        match self.destage.job_ended(now, job, outcome, &self.wal, &mut self.effects) {
            JobEnd::None => {}
            JobEnd::SideFlushed => {
                self.acks.side_flush_ended();
                self.ack_applied(now);
            }
            JobEnd::EpochFlushed => self.end_epoch(now),
            JobEnd::Written(bytes, took, outstanding) => {
                self.switch.latency_mut().wrote(bytes, took);
                self.switch.load_mut().wrote(bytes, took, outstanding);
            }
        }
    }

    /// A request that was given back as [`Effect::Through`] has ended.
    pub fn forward_ended(&mut self) {
        self.destage.forward_ended();
    }

    /// [`Effect::Abandon`] has been done, or not.
    pub fn abandoned(&mut self, now: Instant, outcome: Outcome) {
        let transition = self.switch.abandoned(now, outcome, self.view());
        self.follow(now, transition);
    }

    /// The upstream may have lost its volatile cache: a session was lost, or it says that it was reset.
    /// What was not flushed is written again.
    pub const fn upstream_reset(&mut self) {
        self.destage.redo();
    }

    // Progress.

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
            | self.settle_debt(now)
            | self.close_epoch_if_due(now)
            | self.commit(now)
            | self.write_back(now)
            | self.clean(now)
            | self.change_mode(now)
            | self.finish()
    }

    /// When the log wants to be polled although nothing happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        // A batch that must be written again goes before those that wait.
        let blocked = self.wal.is_committing() || self.wal.has_unwritten() || self.wal.failed();
        let open = !blocked && self.switch.admits(false);
        let rests = self.destage.rests(self.closing && !self.wal.failed());
        [
            self.admission.deadline(self.settings.hold, open),
            self.acks.debt_deadline(self.settings.hold),
            self.destage.epoch_deadline(),
            self.wal.commit_deadline(),
            if rests { None } else { self.destage.deadline() },
            self.switch.deadline(),
            self.cleaner.deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn notice(&mut self, notice: Notice) {
        self.effects.push_back(Effect::Notice(notice));
    }

    /// Answers writes that have found no room in time and have not begun.
    fn expire(&mut self, now: Instant) -> bool {
        let mut expired = false;
        while let Some(one) = self.admission.expire(now, self.settings.hold) {
            let rule = self.waits_for(&one);
            self.effects.push_back(Effect::Ack(one.key, Err(IoError::Busy), rule));
            expired = true;
        }
        while let Some(flush) = self.acks.expire_awaiting_debt(now, self.settings.hold) {
            self.effects.push_back(Effect::Ack(flush.key, Err(IoError::Busy), DEBT));
            expired = true;
        }
        if self.destage.is_fenced() && self.refuse_waiting() {
            // An update that waited was announced on the log device.
            self.mark_soon_if_behind(now);
            expired = true;
        }
        if let Some(full) = self.admission.full_changed() {
            self.notice(Notice::Full(full));
        }
        if let Some(strict) = self.destage.epochs_mut().strict_changed() {
            self.notice(Notice::Relaxed(!strict));
        }
        expired
    }

    /// What a write before the log waits for.
    fn waits_for(&self, one: &Waiting) -> Rule {
        one.held.unwrap_or(if self.switch.admits(false) { COMMIT } else { DRAIN })
    }

    fn close_epoch_if_due(&mut self, now: Instant) -> bool {
        let first = self.admission.front();
        let next = first.map(|first| first.event);
        let hurried = first.is_some_and(|first| first.held.is_some())
            || self.acks.awaiting_upstream() > 0
            || self.acks.has_drains()
            || self.switch.drains();
        let closed = self.destage.close_epoch_if_due(now, next, hurried);
        self.destage.merge_epochs(&self.wal);
        closed
    }

    // Answers to hosts.

    /// Answers a host, and closes the epoch if that orders later writes.
    fn ack(&mut self, now: Instant, pending: Pending, rule: Rule) {
        self.destage.epochs_mut().acked(pending.flush);
        let waited = pending.admitted.saturating_since(pending.arrived);
        let rule = match pending.held {
            Some(held) if waited >= now.saturating_since(pending.admitted) => held,
            _ => rule,
        };
        self.acks.count_acked();
        self.admission.width.acked(now);
        self.effects.push_back(Effect::Ack(pending.key, Ok(()), rule));
    }

    fn ack_committed(&mut self, now: Instant) {
        let durable = self.wal.marks().durable();
        while let Some(pending) = self.acks.pop_committed(durable) {
            self.ack(now, pending, COMMIT);
        }
    }

    /// Answers the requests that wait for records that are upstream now.
    fn ack_applied(&mut self, now: Instant) {
        let safe = self.safely_applied();
        while let Some(pending) = self.acks.pop_applied(safe) {
            self.ack(now, pending, DRAIN);
        }
        self.pass_drained(safe);
    }

    /// All records up to this one are upstream, and a log that is opened again does not write older ones over
    /// them. Of a log device that has failed this has to be durable, there or elsewhere: it does not have
    /// what was written from memory.
    fn safely_applied(&self) -> u64 {
        let applied = self.wal.marks().applied();
        if !self.wal.failed() || self.switch.is_through() {
            applied
        } else if self.wal.is_unmarkable() {
            0
        } else {
            applied.min(self.wal.on_device().applied)
        }
    }

    // Write-back.

    /// Begins and ends epochs and jobs; whether it did anything.
    fn write_back(&mut self, now: Instant) -> bool {
        self.destage.note_reads(now);
        if self.destage.rests(self.closing && !self.wal.failed()) {
            return false;
        }
        let mut changed = self.destage.begin_epoch(&self.wal);
        if changed {
            self.admission.freed(now, 0);
        }
        let flushes = if self.switch.is_through() {
            self.acks.has_drains()
        } else {
            self.destage.debt().has_arrived()
        };
        if flushes && self.destage.begin_side_flush() {
            self.acks.side_flush_began();
            changed = true;
        }
        let awaited = self.acks.awaiting_upstream() > 0;
        while self.destage.send_one(now, &mut self.wal, awaited, &mut self.effects) {
            changed = true;
        }
        match self.destage.end_pass() {
            PassEnd::None => changed,
            PassEnd::Continued => true,
            PassEnd::Done => {
                self.end_epoch(now);
                true
            }
        }
    }

    /// The oldest epoch is upstream and flushed.
    fn end_epoch(&mut self, now: Instant) {
        let before = self.wal.freed();
        let last = self.destage.end_epoch(now, &mut self.wal);
        self.settle(last);
        self.admission.freed(now, self.wal.freed().saturating_sub(before));
        if self.destage.epochs().is_empty() {
            self.admission.idle();
        }
        self.mark_soon_if_behind(now);
        self.ack_applied(now);
    }

    fn mark_soon_if_behind(&mut self, now: Instant) {
        if self.wal.is_unmarked(self.bypasses()) {
            self.wal.mark_soon(now);
        }
    }

    /// Whether the log is used although what bypassed it may not be durable upstream.
    fn in_debt(&self) -> bool {
        !self.switch.is_through() && self.destage.debt().is_open()
    }

    /// Whether the log has to say that writes may have bypassed it and not be durable upstream.
    fn bypasses(&self) -> bool {
        self.switch.bypasses() || self.in_debt() || self.updates()
    }

    /// When the debt is paid, flushes that waited continue and the log says so. Whether it has just been.
    fn settle_debt(&mut self, now: Instant) -> bool {
        if self.in_debt() {
            self.destage.debt_mut().note(now);
            return false;
        }
        let paid = self.destage.debt_mut().take_paid();
        if paid {
            for flush in self.acks.take_awaiting_debt() {
                self.flush_logged(now, flush);
            }
            self.mark_soon_if_behind(now);
        }
        paid
    }

    /// All records up to `last` are upstream, and so are all that have no data behind them.
    fn settle(&mut self, last: u64) {
        self.wal.settle(last, self.destage.epochs().is_empty(), &mut self.effects);
    }

    // Mode.

    /// Gives a request of `bytes` back if it is to go upstream past the log.
    fn forward(&mut self, key: RequestKey, bytes: u64) -> bool {
        let forwards = self.switch.is_through();
        if forwards {
            self.switch.load_mut().forwarded(bytes);
            self.destage.debt_mut().forward();
            self.effects.push_back(Effect::Through(key));
        }
        forwards
    }

    fn view(&self) -> View {
        let marks = self.wal.marks();
        View {
            failed: self.wal.failed(),
            last: marks.last(),
            applied: marks.applied(),
            all_applied: marks.durable() == marks.applied(),
            all_written: !self.wal.has_unwritten(),
            no_epochs: self.destage.epochs().is_empty(),
            committing: self.wal.is_committing(),
            partial: self.admission.is_partial(),
            void: self.wal.is_void(),
            end: self.wal.end(),
            behind: self.wal.behind(),
            low: self.wal.failed() || self.admission.catches_up(self.wal.behind()),
            in_debt: self.in_debt(),
        }
    }

    fn change_mode(&mut self, now: Instant) -> bool {
        let transition = self.switch.step(now, self.view());
        self.follow(now, transition);
        transition != Transition::None
    }

    /// Does what a transition of the mode asks for.
    fn follow(&mut self, now: Instant, transition: Transition) {
        match transition {
            Transition::None | Transition::Changed => {}
            Transition::Undo => {
                self.acks.stop_deferring(self.settings.sync == Sync::Upstream);
                self.ack_committed(now);
                self.notice(Notice::Resumed);
            }
            Transition::Resumed => {
                self.destage.debt_mut().note(now);
                self.notice(Notice::Resumed);
            }
            Transition::Through(why) => {
                self.notice(Notice::Through(why));
                self.ack_applied(now);
                for one in self.admission.take_all() {
                    self.forward(one.key, one.extent.length);
                }
            }
            Transition::Abandon => self.effects.push_back(Effect::Abandon),
        }
    }

    /// After [`close`](Self::close), the end.
    fn finish(&mut self) -> bool {
        let quiet = !self.wal.is_committing()
            && self.admission.is_empty()
            && self.acks.committing() == 0
            && if self.wal.failed() {
                // What is in memory only is nowhere else.
                self.switch.is_through()
            } else {
                let marks = self.wal.marks();
                marks.durable() == marks.last() && !self.wal.is_unmarked(self.bypasses())
            };
        let ends = self.closing && quiet && !self.closed;
        if ends {
            self.closed = true;
            self.effects.push_back(Effect::Closed);
        }
        ends
    }
}
