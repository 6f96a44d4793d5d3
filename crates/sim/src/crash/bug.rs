//! The planted bugs, each of which a law must find.
//!
//! Most are bugs of the code that drives the state machines: the shell does on purpose what it must not do.

mod names;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A write is acknowledged when the log device has been given it.
    AckBeforeCommit,
    /// The log device is never told to flush.
    LogSyncDropped,
    /// Its flush is answered when it begins.
    LogSyncAnsweredEarly,
    /// A write to the log that failed is taken for done.
    LogErrorHidden,
    /// A flush of the log that failed is taken for done.
    LogSyncErrorHidden,
    /// A host's flush is answered at once, and the log does not hear of it.
    FlushAnsweredAtOnce,
    /// The log does not hear that a write had FUA, so that it closes no epoch.
    FuaIgnored,
    /// All hosts are taken for one, so that one that flushes speaks for those that never do.
    HostsTakenForOne,
    /// Unmaps go upstream at once, past the log.
    UnmapPastTheLog,
    /// The upstream is never told to flush.
    UpstreamFlushDropped,
    /// Write-back's FUA is ignored by the upstream, which is not flushed after it.
    UpstreamFuaDropped,
    /// A flush of the upstream is answered when it begins, so that log space is used again too early.
    UpstreamFlushAnsweredEarly,
    /// An upstream write is taken for done when it begins, so that it may land behind later ones.
    UpstreamAnsweredEarly,
    /// An upstream write that failed is taken for done.
    UpstreamErrorHidden,
    /// The log is not notified that the upstream has lost its cache.
    UpstreamResetUntold,
    /// An upstream discard is taken for done and not sent.
    DiscardDropped,
    /// An upstream write has the bytes of the job before it.
    StaleBuffer,
    /// What a host writes is not taken out of the read buffer.
    WriteKeepsOldLines,
    /// Bytes are put into the read buffer later than they were to be.
    FillLate,
    /// A read of the log is answered before its bytes are there.
    FetchAnsweredEarly,
    /// Memory that the log has written from is used again at once.
    MemoryUsedAgain,
    /// A flush that goes past the log is answered and not done.
    PassedFlushDropped,
    /// Recovery does not know that writes have bypassed the log.
    DebtForgotten,
    /// What bypassed the log is not flushed when the log is used again.
    DebtFlushDropped,
    /// That flush is answered when it begins, so that write-back and hosts' flushes do not wait for it.
    DebtPaidEarly,
    /// That a failed log is void is not remembered.
    VoidForgotten,
    /// The gateway ends before its log is closed.
    CloseNotWaitedFor,
    /// Recovery believes payload whatever its checksum says.
    PayloadChecksumIgnored,
    /// Recovery believes batches that an earlier use of a segment has left.
    OldSegmentReplayed,
    /// A super block says that everything durable in the log is upstream.
    SuperBlockAhead,
    /// Recovery begins with an empty log.
    LogForgotten,
    /// A write of a lost session is sent again before the target has ended that session.
    HeldWritesNotHeld,
    /// A new session has another name, so that the target does not end the one before.
    SessionsOfOtherNames,
    /// The session that is to end a lost one over another portal has another name.
    HelperOfAnotherName,
    /// After a reset of the unit writes on other paths are taken for done.
    ResetTakenForOwnPath,
    /// A flush of a lost session is taken for done.
    LostFlushTakenForDone,
    /// A start has the reservation key of the one before, so that nothing is preempted.
    KeyNotAdvanced,
    /// A claim does not abort the commands of the key that it preempts.
    PreemptWithoutAbort,
    /// A path is used before the unit is claimed on it.
    UsedBeforeClaimed,
    /// After RESERVATION CONFLICT the gateway registers again and continues.
    RegisteredAgain,
    /// A gateway whose log has data takes the unit from its new owner.
    StaleLogTakesOver,
    /// A gateway whose log has data takes a unit back that its new owner has given up.
    ReleasedUnitTakenBack,
    /// A write that is refused with RESERVATION CONFLICT is taken for done.
    ConflictTakenForDone,
    /// The writes of a lost session are never sent again.
    HeldWritesForgotten,
    /// The writes of a lost session are taken for done when it has ended.
    HeldWritesTakenForDone,
    /// The answer to an abandoned read is taken for that of the read that replaced it.
    AbandonedReadAnswers,
    /// Upstream zeroes are taken for done and not sent.
    ZeroesDropped,
    /// An upstream write that was done in part is taken for whole.
    ShortUpstreamWrite,
    /// A write to the log that was done in part is taken for whole.
    ShortLogWrite,
    /// An upstream write for which there is no space is taken for done.
    NoSpaceTakenForDone,
    /// The log does not know that a flush waits for the upstream.
    SyncNotPassed,
    /// The log acknowledges from memory although its mode is another.
    ModeNotPassed,
    /// The log is not told that each acknowledgement ends an epoch.
    OrderNotPassed,
    /// The upstream's write cache is taken for off.
    CacheTakenForOff,
    /// A start keeps the acknowledgement mode of the one before.
    OldModeKept,
    /// A start keeps the order of write-back of the one before.
    OldOrderKept,
    /// A log that does not fit the configuration is made anew.
    MisfitMadeNew,
    /// A damaged log is made anew.
    DamageMadeNew,
    /// A damaged log is cut off where it is damaged.
    DamageCutOff,
    /// Payload of the log is read without its checksums.
    RottenPayloadServed,
    /// The log does not hear that the unit was reset, since all sessions have stayed.
    UnitResetUntold,
    /// A flush that a reset of the unit has interrupted is taken for done.
    ResetFlushTakenForDone,
    /// The log does not hear of a deferred error.
    DeferredErrorUntold,
    /// A flush after a loss is answered as if nothing were gone.
    LossForgotten,
    /// After a reset of the unit every flush fails, though nothing was there to lose.
    ResetTakenForLoss,
    /// An update reads and writes upstream before what the log has is there.
    UpdatePastTheLog,
    /// The write of an update goes upstream without FUA.
    UpdateFuaDropped,
    /// An update that is sent again after its session was lost compares with what it has written itself.
    ComparedAgain,
    /// COMPARE AND WRITE writes although the data differs.
    MiscompareWritten,
    /// A start ignores the record of an atomic write.
    AtomicRecordForgotten,
    /// An atomic write begins in place before its record is durable.
    AtomicRecordVolatile,
    /// The record of an atomic write stays when that is answered.
    AtomicRecordKept,
    /// Recovery believes checksums of payload that an earlier batch has left in their place.
    TableUnbound,
    /// A start does not know which ranges were given up.
    QuarantineForgotten,
    /// Write-back goes past what is given up before that is kept.
    QuarantineKeptEarly,
    /// What overwrites a lost range past the log goes upstream without FUA.
    HealFuaDropped,
    /// Write-back does not check the payload that it reads from the log.
    RottenWrittenBack,
    /// A gateway takes a unit whose target was restarted, although another one has registered since.
    ForgottenUnitTaken,
    /// A copy is answered when its last write begins.
    CopyAnsweredEarly,
    /// A copy onto a part of its source begins at the front.
    CopyForwards,
    /// The writes of a copy are on the link of another host, which flushes.
    CopyOnOtherLink,
    /// A piece of a copy has the bytes of the piece before it.
    CopyStaleBuffer,
    /// A copy reads its source upstream, past the log.
    CopyPastTheLog,
    /// A copy that was interrupted by an error is taken for done.
    CopyFailureHidden,
    /// A flush of a volume of several stores reaches the first one only.
    OneStoreFlushed,
    /// Such a flush is answered when the first store has done it.
    FirstStoreAnswers,
    /// The log does not hear of a reset of any store but the first.
    StoreResetUntold,
    /// A write that was answered after a loss is sent again, and taken for done.
    LostWriteNotRepeated,
    /// Recovery believes the header of a batch whatever its checksum says.
    TornHeadersBelieved,
    /// Both super blocks are written at once.
    SupersAtOnce,
    /// Only one super block announces an update.
    OneSuperAnnounces,
    /// A write that was partly in the log when that was given up takes it out of the quarantine.
    PartlyLoggedHeals,
    /// A flush of copies in the log is answered when it begins, so that what they are of goes too early.
    CopiesVolatile,
    /// A super block gives up a segment that is still needed.
    SegmentGivenUpEarly,
    /// A copy in the log has other data than what it is of.
    CopyOfOtherData,
    /// Recovery does not know copies.
    CopiesForgotten,
    /// Recovery takes a copy for a write, newer than all before it.
    CopyTakenForWrite,
    /// Recovery does not know copies of the epoch that was being written upstream.
    OldestCopiesForgotten,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 98] = [
        Self::AckBeforeCommit,
        Self::LogSyncDropped,
        Self::LogSyncAnsweredEarly,
        Self::LogErrorHidden,
        Self::LogSyncErrorHidden,
        Self::FlushAnsweredAtOnce,
        Self::FuaIgnored,
        Self::HostsTakenForOne,
        Self::UnmapPastTheLog,
        Self::UpstreamFlushDropped,
        Self::UpstreamFuaDropped,
        Self::UpstreamFlushAnsweredEarly,
        Self::UpstreamAnsweredEarly,
        Self::UpstreamErrorHidden,
        Self::UpstreamResetUntold,
        Self::DiscardDropped,
        Self::StaleBuffer,
        Self::WriteKeepsOldLines,
        Self::FillLate,
        Self::FetchAnsweredEarly,
        Self::MemoryUsedAgain,
        Self::PassedFlushDropped,
        Self::DebtForgotten,
        Self::DebtFlushDropped,
        Self::DebtPaidEarly,
        Self::VoidForgotten,
        Self::CloseNotWaitedFor,
        Self::PayloadChecksumIgnored,
        Self::OldSegmentReplayed,
        Self::SuperBlockAhead,
        Self::LogForgotten,
        Self::HeldWritesNotHeld,
        Self::SessionsOfOtherNames,
        Self::HelperOfAnotherName,
        Self::ResetTakenForOwnPath,
        Self::LostFlushTakenForDone,
        Self::KeyNotAdvanced,
        Self::PreemptWithoutAbort,
        Self::UsedBeforeClaimed,
        Self::RegisteredAgain,
        Self::StaleLogTakesOver,
        Self::ReleasedUnitTakenBack,
        Self::ConflictTakenForDone,
        Self::HeldWritesForgotten,
        Self::HeldWritesTakenForDone,
        Self::AbandonedReadAnswers,
        Self::ZeroesDropped,
        Self::ShortUpstreamWrite,
        Self::ShortLogWrite,
        Self::NoSpaceTakenForDone,
        Self::SyncNotPassed,
        Self::ModeNotPassed,
        Self::OrderNotPassed,
        Self::CacheTakenForOff,
        Self::OldModeKept,
        Self::OldOrderKept,
        Self::MisfitMadeNew,
        Self::DamageMadeNew,
        Self::DamageCutOff,
        Self::RottenPayloadServed,
        Self::UnitResetUntold,
        Self::ResetFlushTakenForDone,
        Self::DeferredErrorUntold,
        Self::LossForgotten,
        Self::ResetTakenForLoss,
        Self::UpdatePastTheLog,
        Self::UpdateFuaDropped,
        Self::ComparedAgain,
        Self::MiscompareWritten,
        Self::AtomicRecordForgotten,
        Self::AtomicRecordVolatile,
        Self::AtomicRecordKept,
        Self::TableUnbound,
        Self::QuarantineForgotten,
        Self::QuarantineKeptEarly,
        Self::HealFuaDropped,
        Self::RottenWrittenBack,
        Self::ForgottenUnitTaken,
        Self::CopyAnsweredEarly,
        Self::CopyForwards,
        Self::CopyOnOtherLink,
        Self::CopyStaleBuffer,
        Self::CopyPastTheLog,
        Self::CopyFailureHidden,
        Self::OneStoreFlushed,
        Self::FirstStoreAnswers,
        Self::StoreResetUntold,
        Self::LostWriteNotRepeated,
        Self::TornHeadersBelieved,
        Self::SupersAtOnce,
        Self::OneSuperAnnounces,
        Self::PartlyLoggedHeals,
        Self::CopiesVolatile,
        Self::SegmentGivenUpEarly,
        Self::CopyOfOtherData,
        Self::CopiesForgotten,
        Self::CopyTakenForWrite,
        Self::OldestCopiesForgotten,
    ];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        self.told().0
    }

    /// What is done wrong.
    pub const fn summary(self) -> &'static str {
        self.told().1
    }

    /// The mistake of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| bug.name() == name)
    }
}
