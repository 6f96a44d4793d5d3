//! The bugs that can be planted, and the laws that they break.

/// A mistake of what drives the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The log counts as drained while it has data.
    DrainedEarly,
    /// Requests start while the key is granted.
    NoFreeze,
    /// A grant that was not used in time is forgotten, and the key stays.
    ThawWithoutClaim,
    /// The claim that makes a grant void has the same key.
    SameKeyAgain,
    /// A claim preempts whatever key holds the unit.
    AnyHolder,
    /// A claim takes a unit that no key holds any more, because it was given over once.
    FromNobody,
    /// A gateway whose key is granted reserves the unit again when the target has forgotten it.
    ReservesAgain,
    /// A claim does not look whether it has won.
    NoVerify,
    /// A cancellation thaws a volume whose key is granted.
    CancelAfterGrant,
    /// What was cached in an earlier tenure is not dropped.
    OldCache,
    /// The old owner serves on when it sees the key of the next one.
    ServesOn,
    /// A gateway that starts takes itself for the owner, since it was when it ended.
    StartsAsOwner,
    /// A key that was preempted still lets commands through.
    NoAbort,
    /// A grant that was not used in time makes the old owner a standby.
    LeavesInTime,
}

impl Bug {
    pub(crate) const ALL: [Self; 14] = [
        Self::DrainedEarly,
        Self::NoFreeze,
        Self::ThawWithoutClaim,
        Self::SameKeyAgain,
        Self::AnyHolder,
        Self::FromNobody,
        Self::ReservesAgain,
        Self::NoVerify,
        Self::CancelAfterGrant,
        Self::OldCache,
        Self::ServesOn,
        Self::StartsAsOwner,
        Self::NoAbort,
        Self::LeavesInTime,
    ];
}

/// A law that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Both gateways start requests.
    TwoOwners,
    /// A read would give `sees` although `acknowledged` was.
    Lost { sees: u8, acknowledged: u8 },
    /// An owner has lost the volume without a move.
    Deprived,
    /// A gateway starts with data that is only in its log, and another one owns the volume.
    Superseded,
    /// No order of steps makes a gateway the owner again.
    NoOwnerAgain,
}
