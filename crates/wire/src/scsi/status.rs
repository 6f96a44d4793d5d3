//! SCSI status codes (SAM-5 section 5.3).

/// The status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ScsiStatus {
    /// Done.
    Good = 0x00,
    /// Failed; sense data says why.
    CheckCondition = 0x02,
    /// A comparison that found what it looked for.
    ConditionMet = 0x04,
    /// Cannot be taken now; try again.
    Busy = 0x08,
    /// Another initiator holds a reservation.
    ReservationConflict = 0x18,
    /// The task set has no room for another command.
    TaskSetFull = 0x28,
    /// Ended by a task management function of another initiator.
    TaskAborted = 0x40,
}
