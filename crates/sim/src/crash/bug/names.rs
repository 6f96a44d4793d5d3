//! What the planted bugs are called, and what each does wrong.

use super::Bug;

impl Bug {
    pub(super) const fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::AckBeforeCommit => {
                ("ack-before-commit", "a write is acknowledged when the log device is given it")
            }
            Self::LogSyncDropped => ("log-sync-dropped", "the log device is never flushed"),
            Self::LogSyncAnsweredEarly => {
                ("log-sync-early", "a flush of the log is answered when it begins")
            }
            Self::LogErrorHidden => {
                ("log-error-hidden", "a failed write to the log is taken for done")
            }
            Self::LogSyncErrorHidden => {
                ("log-sync-error-hidden", "a failed flush of the log is taken for done")
            }
            Self::FlushAnsweredAtOnce => {
                ("flush-at-once", "a host's flush is answered, and the log does not hear of it")
            }
            Self::FuaIgnored => ("fua-ignored", "a write with FUA closes no epoch"),
            Self::HostsTakenForOne => {
                ("hosts-as-one", "a host that flushes speaks for one that never does")
            }
            Self::UnmapPastTheLog => ("unmap-past-log", "an unmap goes upstream past the log"),
            Self::UpstreamFlushDropped => {
                ("upstream-flush-dropped", "the upstream is not flushed between epochs")
            }
            Self::UpstreamFuaDropped => {
                ("upstream-fua-dropped", "an epoch that is one write goes upstream without FUA")
            }
            Self::UpstreamFlushAnsweredEarly => {
                ("upstream-flush-early", "log space is used again before the upstream is flushed")
            }
            Self::UpstreamAnsweredEarly => (
                "upstream-early",
                "an upstream write is taken for done and lands behind later ones",
            ),
            Self::UpstreamErrorHidden => {
                ("upstream-error-hidden", "a failed upstream write is taken for done")
            }
            Self::UpstreamResetUntold => {
                ("upstream-reset-untold", "what a lost upstream cache had is not written again")
            }
            Self::DiscardDropped => ("discard-dropped", "an upstream discard is not sent"),
            Self::StaleBuffer => {
                ("stale-buffer", "an upstream write has the bytes of the one before it")
            }
            Self::WriteKeepsOldLines => {
                ("write-keeps-lines", "a write leaves old data in the read buffer")
            }
            Self::FillLate => ("fill-late", "bytes are put into the read buffer too late"),
            Self::FetchAnsweredEarly => {
                ("fetch-early", "a read of the log is answered before its bytes are there")
            }
            Self::MemoryUsedAgain => {
                ("memory-used-again", "memory that the log may still ask for is overwritten")
            }
            Self::PassedFlushDropped => {
                ("passed-flush-dropped", "a flush that goes past the log is answered and not done")
            }
            Self::DebtForgotten => {
                ("debt-forgotten", "recovery does not know that writes have bypassed the log")
            }
            Self::DebtFlushDropped => {
                ("debt-unpaid", "what bypassed the log is not flushed before write-back begins")
            }
            Self::DebtPaidEarly => (
                "debt-paid-early",
                "write-back begins before what bypassed the log is durable upstream",
            ),
            Self::VoidForgotten => {
                ("void-forgotten", "that a failed log is void is not remembered")
            }
            Self::CloseNotWaitedFor => {
                ("close-not-waited-for", "the gateway ends before its log is closed")
            }
            Self::PayloadChecksumIgnored => {
                ("payload-unchecked", "recovery ignores checksums of payload")
            }
            Self::OldSegmentReplayed => {
                ("old-segment-replayed", "recovery replays batches of an earlier use of a segment")
            }
            Self::SuperBlockAhead => {
                ("super-ahead", "a super block says that all of the log is upstream")
            }
            Self::LogForgotten => ("log-forgotten", "recovery makes a new log"),
            Self::HeldWritesNotHeld => (
                "held-writes-not-held",
                "a write of a lost session is sent again before the target has ended that session",
            ),
            Self::SessionsOfOtherNames => (
                "session-renamed",
                "a new session has another name, so that the target does not end the one before",
            ),
            Self::HelperOfAnotherName => (
                "helper-renamed",
                "the session that is to end a lost one over another portal has another name",
            ),
            Self::ResetTakenForOwnPath => (
                "reset-own-path",
                "after a reset of the unit writes on other paths are taken for done",
            ),
            Self::LostFlushTakenForDone => {
                ("lost-flush-done", "a flush of a lost session is taken for done")
            }
            Self::KeyNotAdvanced => (
                "key-not-advanced",
                "a start has the reservation key of the one before, so that nothing is preempted",
            ),
            Self::PreemptWithoutAbort => (
                "preempt-without-abort",
                "a claim does not abort the commands of the key that it preempts",
            ),
            Self::UsedBeforeClaimed => {
                ("used-before-claimed", "a path is used before the unit is claimed on it")
            }
            Self::RegisteredAgain => (
                "registered-again",
                "after RESERVATION CONFLICT the gateway registers again and continues",
            ),
            Self::StaleLogTakesOver => (
                "stale-log-takes-over",
                "a gateway whose log has data takes the unit from its new owner",
            ),
            Self::ReleasedUnitTakenBack => (
                "released-unit-taken-back",
                "a gateway whose log has data takes a unit back that its new owner has given up",
            ),
            Self::ConflictTakenForDone => (
                "conflict-done",
                "a write that is refused with RESERVATION CONFLICT is taken for done",
            ),
            Self::HeldWritesForgotten => {
                ("held-writes-forgotten", "the writes of a lost session are never sent again")
            }
            Self::HeldWritesTakenForDone => (
                "held-writes-done",
                "the writes of a lost session are taken for done when it has ended",
            ),
            Self::AbandonedReadAnswers => (
                "abandoned-read-answers",
                "the answer to an abandoned read is taken for that of the read that replaced it",
            ),
            Self::ZeroesDropped => {
                ("zeroes-dropped", "upstream zeroes are taken for done and not sent")
            }
            Self::ShortUpstreamWrite => (
                "short-upstream-write",
                "an upstream write that was done in part is taken for whole",
            ),
            Self::ShortLogWrite => {
                ("short-log-write", "a write to the log that was done in part is taken for whole")
            }
            Self::NoSpaceTakenForDone => {
                ("no-space-done", "an upstream write for which there is no space is taken for done")
            }
            Self::SyncNotPassed => {
                ("sync-not-passed", "the log does not know that a flush waits for the upstream")
            }
            Self::ModeNotPassed => {
                ("mode-not-passed", "the log acknowledges from memory although its mode is another")
            }
            Self::OrderNotPassed => {
                ("order-not-passed", "the log is not told that each acknowledgement ends an epoch")
            }
            Self::CacheTakenForOff => {
                ("cache-taken-for-off", "the upstream's write cache is taken for off")
            }
            Self::OldModeKept => {
                ("old-mode-kept", "a start keeps the acknowledgement mode of the one before")
            }
            Self::OldOrderKept => {
                ("old-order-kept", "a start keeps the order of write-back of the one before")
            }
            Self::MisfitMadeNew => {
                ("misfit-made-new", "a log that does not fit the configuration is made anew")
            }
            Self::DamageMadeNew => ("damage-made-new", "a damaged log is made anew"),
            Self::DamageCutOff => {
                ("damage-cut-off", "a damaged log is cut off where it is damaged")
            }
            Self::RottenPayloadServed => {
                ("rotten-payload-served", "payload of the log is read without its checksums")
            }
            Self::UnitResetUntold => (
                "unit-reset-untold",
                "the log does not hear that the unit was reset, since all sessions have stayed",
            ),
            Self::ResetFlushTakenForDone => (
                "reset-flush-done",
                "a flush that a reset of the unit has interrupted is taken for done",
            ),
            Self::DeferredErrorUntold => {
                ("deferred-error-untold", "the log does not hear of a deferred error")
            }
            Self::LossForgotten => {
                ("loss-forgotten", "a flush after a loss is answered as if nothing were gone")
            }
            Self::ResetTakenForLoss => (
                "reset-taken-for-loss",
                "after a reset of the unit every flush fails, though nothing was there to lose",
            ),
            Self::UpdatePastTheLog => (
                "update-past-log",
                "an update reads and writes upstream before what the log has is there",
            ),
            Self::UpdateFuaDropped => {
                ("update-fua-dropped", "the write of an update goes upstream without FUA")
            }
            Self::ComparedAgain => {
                ("compared-again", "an update that is sent again compares with what it has written")
            }
            Self::MiscompareWritten => {
                ("miscompare-written", "COMPARE AND WRITE writes although the data differs")
            }
            Self::AtomicRecordForgotten => {
                ("atomic-record-forgotten", "a start ignores the record of an atomic write")
            }
            Self::AtomicRecordVolatile => {
                ("atomic-record-volatile", "an atomic write begins before its record is durable")
            }
            Self::AtomicRecordKept => {
                ("atomic-record-kept", "the record of an atomic write stays when that is answered")
            }
            Self::TableUnbound => (
                "table-unbound",
                "recovery believes checksums of payload that an earlier batch has left in their place",
            ),
            Self::QuarantineForgotten => {
                ("quarantine-forgotten", "a start does not know what was given up")
            }
            Self::QuarantineKeptEarly => (
                "quarantine-kept-early",
                "write-back goes past what is given up before that is kept",
            ),
            Self::HealFuaDropped => (
                "heal-fua-dropped",
                "what overwrites a lost range past the log goes upstream without FUA",
            ),
            Self::RottenWrittenBack => {
                ("rotten-written-back", "write-back does not check the payload that it reads")
            }
            Self::ForgottenUnitTaken => (
                "forgotten-unit-taken",
                "a gateway takes a unit whose target has forgotten the new owner",
            ),
            Self::CopyAnsweredEarly => {
                ("copy-early", "a copy is answered when its last write begins")
            }
            Self::CopyForwards => {
                ("copy-forwards", "a copy onto a part of its source begins at the front")
            }
            Self::CopyOnOtherLink => (
                "copy-on-other-link",
                "the writes of a copy are taken for those of another host, which flushes",
            ),
            Self::CopyStaleBuffer => {
                ("copy-stale-buffer", "a piece of a copy has the bytes of the piece before it")
            }
            Self::CopyPastTheLog => {
                ("copy-past-log", "a copy reads its source upstream, past the log")
            }
            Self::CopyFailureHidden => {
                ("copy-failure-hidden", "a copy that an error has interrupted is taken for done")
            }
            Self::TornHeadersBelieved => {
                ("torn-header-believed", "recovery ignores the checksums of headers of batches")
            }
            Self::SupersAtOnce => ("supers-at-once", "both super blocks are written at once"),
            Self::OneSuperAnnounces => (
                "one-super-announces",
                "only one super block says that updates and writes may have bypassed the log",
            ),
            Self::PartlyLoggedHeals => (
                "partly-logged-heals",
                "a write of which a part was given up takes that out of the quarantine",
            ),
            Self::OneStoreFlushed => (
                "one-store-flushed",
                "a flush of a volume of several stores reaches the first one only",
            ),
            Self::FirstStoreAnswers => (
                "first-store-answers",
                "a flush of several stores is answered when the first one has done it",
            ),
            Self::StoreResetUntold => (
                "store-reset-untold",
                "the log hears of a reset of the first of several stores only",
            ),
            Self::LostWriteNotRepeated => (
                "lost-write-not-repeated",
                "a write that a loss of the upstream may have taken is not sent again",
            ),
            Self::CopiesVolatile => {
                ("copies-volatile", "what was copied in the log goes before the copies are durable")
            }
            Self::SegmentGivenUpEarly => {
                ("segment-given-up-early", "a super block gives up a segment that is needed")
            }
            Self::CopyOfOtherData => {
                ("copy-of-other-data", "a copy in the log has other data than what it is of")
            }
            Self::CopiesForgotten => ("copies-forgotten", "recovery does not know copies"),
            Self::CopyTakenForWrite => (
                "copy-taken-for-write",
                "recovery takes a copy for a write that is newer than all before it",
            ),
            Self::OldestCopiesForgotten => (
                "oldest-copies-forgotten",
                "recovery does not know copies of the epoch that was being written upstream",
            ),
        }
    }
}
