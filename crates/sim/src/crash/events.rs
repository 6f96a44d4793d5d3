//! Counts the events of each class, so that a class that is not generated any more is noticed.

use serde::Serialize;
use std::ops::{AddAssign, Index, IndexMut};

/// What befalls a gateway, its devices or its upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A life has ended in a crash.
    Crash,
    /// A gateway was stopped.
    Stop,
    /// A write or a flush of the log device has failed.
    LogFault,
    /// A log was given up, because its device has failed.
    VoidLog,
    /// An operator has switched write-back off or on.
    Drain,
    /// The session of a path was lost.
    LostPath,
    /// The upstream has lost its power, and all sessions.
    PowerLoss,
    /// The unit was reset, and has lost its cache; all sessions have stayed.
    UnitReset,
    /// The unit has lost writes that it had acknowledged, and said so with a deferred error.
    WriteLost,
    /// The upstream had no space for a write.
    NoSpace,
    /// A write of a lost session or a dead gateway was executed.
    LateWrite,
    /// A lost session was ended over another portal, or by a reset of the unit.
    Confirmed,
    /// Another gateway has taken the unit over.
    TakeOver,
    /// A life began with other settings.
    Settings,
    /// A log with a rotten sector was opened.
    Rot,
    /// A host has updated in steps.
    Update,
    /// A command compared and found a difference.
    Miscompare,
    /// The steps of an update were begun again on another session.
    UpdateAgain,
    /// A start has applied the record of an atomic write.
    Journal,
    /// A batch of more records than its first sector has room for has begun.
    LargeBatch,
    /// Payload of the log has rotted while a gateway ran.
    Decay,
    /// An operator has ordered to give up what cannot be read.
    Quarantine,
    /// A host has overwritten what was given up.
    Heal,
    /// The target was restarted and has forgotten that another gateway owns the unit.
    Forgotten,
    /// A host has had blocks copied.
    Copy,
    /// To another volume, or from there.
    CopyAcross,
    /// Onto a part of its source, from the end.
    CopyOverlap,
    /// A crash has left a part of a sector of the log device.
    Tear,
    /// A store of several was flushed.
    StoreFlush,
    /// A write was done before the upstream lost its cache, and is answered after it has said so.
    AnswerAfterReset,
    /// Data was copied to the end of the log.
    LogCopy,
    /// More records at once than the first sector of their batch has room for.
    LargeLogCopy,
    /// A write of a dead gateway was executed late, beside a log that was cleaned.
    LateWriteCleaned,
    /// Another gateway has taken the unit over whose log was cleaned.
    TakeOverCleaned,
}

impl Event {
    /// All of them.
    pub(super) const ALL: [Self; 34] = [
        Self::Crash,
        Self::Stop,
        Self::LogFault,
        Self::VoidLog,
        Self::Drain,
        Self::LostPath,
        Self::PowerLoss,
        Self::UnitReset,
        Self::WriteLost,
        Self::NoSpace,
        Self::LateWrite,
        Self::Confirmed,
        Self::TakeOver,
        Self::Settings,
        Self::Rot,
        Self::Update,
        Self::Miscompare,
        Self::UpdateAgain,
        Self::Journal,
        Self::LargeBatch,
        Self::Decay,
        Self::Quarantine,
        Self::Heal,
        Self::Forgotten,
        Self::Copy,
        Self::CopyAcross,
        Self::CopyOverlap,
        Self::Tear,
        Self::StoreFlush,
        Self::AnswerAfterReset,
        Self::LogCopy,
        Self::LargeLogCopy,
        Self::LateWriteCleaned,
        Self::TakeOverCleaned,
    ];

    /// What it is called.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Crash => "gateway crashes",
            Self::Stop => "gateway stops",
            Self::LogFault => "log device errors",
            Self::VoidLog => "logs given up",
            Self::Drain => "drain or resume orders",
            Self::LostPath => "lost paths",
            Self::PowerLoss => "upstream power losses",
            Self::UnitReset => "unit resets that no session notices",
            Self::WriteLost => "writes lost by the unit",
            Self::NoSpace => "writes without space upstream",
            Self::LateWrite => "late writes executed",
            Self::Confirmed => "lost sessions ended from elsewhere",
            Self::TakeOver => "take-overs",
            Self::Settings => "starts with other settings",
            Self::Rot => "logs opened with a rotten sector",
            Self::Update => "updates in steps",
            Self::Miscompare => "comparisons that differ",
            Self::UpdateAgain => "updates begun again",
            Self::Journal => "atomic writes finished by a start",
            Self::LargeBatch => "batches of nine records and more",
            Self::Decay => "sectors rotten while a gateway runs",
            Self::Quarantine => "quarantine orders",
            Self::Heal => "lost ranges overwritten",
            Self::Forgotten => "reservations of others forgotten",
            Self::Copy => "copies",
            Self::CopyAcross => "copies between volumes",
            Self::CopyOverlap => "copies onto their source",
            Self::Tear => "log devices with torn sectors",
            Self::StoreFlush => "flushes of another store than the first",
            Self::AnswerAfterReset => "writes answered after a loss that came behind them",
            Self::LogCopy => "batches of copies in the log",
            Self::LargeLogCopy => "batches of nine copies and more",
            Self::LateWriteCleaned => "late writes of dead gateways with cleaned logs",
            Self::TakeOverCleaned => "take-overs from gateways with cleaned logs",
        }
    }
}

/// How often each of them has happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Events([u64; Event::ALL.len()]);

impl Default for Events {
    fn default() -> Self {
        Self([0; Event::ALL.len()])
    }
}

impl Events {
    /// It has happened once more.
    pub(super) fn count(&mut self, event: Event) {
        self[event] += 1;
    }

    /// All counts, by name.
    pub(super) fn told(&self) -> Vec<EventCount> {
        Event::ALL.map(|event| EventCount { event: event.name(), count: self[event] }).to_vec()
    }
}

impl Index<Event> for Events {
    type Output = u64;

    fn index(&self, event: Event) -> &u64 {
        &self.0[event as usize]
    }
}

impl IndexMut<Event> for Events {
    fn index_mut(&mut self, event: Event) -> &mut u64 {
        &mut self.0[event as usize]
    }
}

impl AddAssign for Events {
    fn add_assign(&mut self, other: Self) {
        for event in Event::ALL {
            self[event] += other[event];
        }
    }
}

/// How often something has happened.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EventCount {
    /// What.
    pub event: &'static str,
    /// In all workloads together.
    pub count: u64,
}
