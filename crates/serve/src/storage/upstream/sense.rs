//! Judges the status and sense data of an upstream's responses.

use std::fmt;
use weir_flow::error::IoError;
use weir_flow::path::Access;
use weir_wire::scsi::ScsiStatus;

/// The sense data of a response, as far as it is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sense {
    /// An earlier command, which had ended well, has failed. The one that reports it was not executed (SPC-4, 4.5).
    pub(super) deferred: bool,
    pub(super) key: u8,
    pub(super) asc: u8,
    pub(super) ascq: u8,
}

impl Sense {
    /// Reads fixed or descriptor format (SPC-4, 4.5). What is too short has zeroes.
    pub(super) fn parse(sense: &[u8]) -> Self {
        let at = |index: usize| sense.get(index).copied().unwrap_or(0);
        let deferred = matches!(at(0) & 0x7f, 0x71 | 0x73);
        match at(0) & 0x7f {
            0x72 | 0x73 => Self { deferred, key: at(1) & 0xf, asc: at(2), ascq: at(3) },
            _ => Self { deferred, key: at(2) & 0xf, asc: at(12), ascq: at(13) },
        }
    }

    /// The unit was reset or powered on: its volatile cache may be lost.
    pub(super) const fn is_reset(self) -> bool {
        !self.deferred && matches!(self, Self { key: 0x6, asc: 0x29, ascq: 0..=4, .. })
    }
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match self.key {
            0x0 => "NO SENSE",
            0x1 => "RECOVERED ERROR",
            0x2 => "NOT READY",
            0x3 => "MEDIUM ERROR",
            0x4 => "HARDWARE ERROR",
            0x5 => "ILLEGAL REQUEST",
            0x6 => "UNIT ATTENTION",
            0x7 => "DATA PROTECT",
            0x8 => "BLANK CHECK",
            0xb => "ABORTED COMMAND",
            0xd => "VOLUME OVERFLOW",
            _ => "another sense key",
        };
        let deferred = if self.deferred { "deferred " } else { "" };
        write!(f, "{deferred}{key} ({:x}/{:02X}/{:02X})", self.key, self.asc, self.ascq)
    }
}

/// What follows from the end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was done.
    Good,
    /// It was not done, and should be sent again at once: something is to be known first.
    Again(News),
    /// It was not done, and may be sent again a little later.
    Later,
    /// It has failed, on any path.
    Failed(IoError),
    /// It was not done, and the target will not do it on this path for now.
    NotHere(Access),
    /// It was not done, and the unit is not there on this path.
    Lost,
}

/// What a unit attention reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing that concerns the gateway.
    Nothing,
    /// The size of the unit may have changed.
    Capacity,
    /// The ALUA state may have changed.
    Access,
}

/// What follows from a status and its sense. `writes`: the command changes the medium.
pub(super) const fn judge(status: u8, sense: Sense, writes: bool) -> Verdict {
    match status {
        GOOD => Verdict::Good,
        BUSY | TASK_SET_FULL | ACA_ACTIVE | TASK_ABORTED => Verdict::Later,
        RESERVATION_CONFLICT if writes => Verdict::Failed(IoError::WriteProtected),
        CHECK_CONDITION => judge_sense(sense),
        RESERVATION_CONFLICT => Verdict::Failed(IoError::Medium),
        // No target has a reason to answer so (SAM-5, 5.3.1): this one cannot be relied on.
        _ => Verdict::Lost,
    }
}

const GOOD: u8 = ScsiStatus::Good as u8;
pub(super) const CHECK_CONDITION: u8 = ScsiStatus::CheckCondition as u8;
const BUSY: u8 = ScsiStatus::Busy as u8;
const RESERVATION_CONFLICT: u8 = ScsiStatus::ReservationConflict as u8;
const TASK_SET_FULL: u8 = ScsiStatus::TaskSetFull as u8;
/// Another command's error has not been cleared by its initiator yet (SAM-5, 5.3.1).
const ACA_ACTIVE: u8 = 0x30;
const TASK_ABORTED: u8 = ScsiStatus::TaskAborted as u8;

const fn judge_sense(Sense { deferred, key, asc, ascq }: Sense) -> Verdict {
    match (key, asc, ascq) {
        _ if deferred => Verdict::Again(News::Nothing),
        (0x0 | 0x1, ..) => Verdict::Good,
        // SPC-4, 5.15.2.4: target port groups that are not accessible.
        (0x2, 0x04, 0x0a) => Verdict::NotHere(Access::Transitioning),
        (0x2, 0x04, 0x0b) => Verdict::NotHere(Access::Standby),
        (0x2, 0x04, 0x0c) => Verdict::NotHere(Access::Unavailable),
        // In progress of becoming ready; or ended for reasons of the transport, or by task
        // management.
        (0x2, 0x04, 0x01) | (0xb, ..) => Verdict::Later,
        (0x2, ..) | (0x5, 0x25, 0x00) => Verdict::Lost,
        (0x6, 0x2a, 0x09) => Verdict::Again(News::Capacity),
        (0x6, 0x2a, 0x06 | 0x07) => Verdict::Again(News::Access),
        (0x6, ..) => Verdict::Again(News::Nothing),
        (0x5, 0x21, 0x00) | (0xd, ..) => Verdict::Failed(IoError::OutOfRange),
        (0x5, ..) => Verdict::Failed(IoError::Unsupported),
        (0x7, 0x27, 0x07) => Verdict::Failed(IoError::NoSpace),
        (0x7, ..) => Verdict::Failed(IoError::WriteProtected),
        _ => Verdict::Failed(IoError::Medium),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: u8, asc: u8, ascq: u8) -> Verdict {
        judge(CHECK_CONDITION, Sense { deferred: false, key, asc, ascq }, true)
    }

    /// Both formats of sense data say the same, and what was cut off is nothing.
    #[test]
    fn sense_is_read_in_both_formats() {
        let mut fixed = [0; 18];
        (fixed[0], fixed[2], fixed[12], fixed[13]) = (0xf0, 0x26, 0x2a, 0x09);
        let sense = Sense { deferred: false, key: 6, asc: 0x2a, ascq: 9 };
        assert_eq!(Sense::parse(&fixed), sense);
        assert_eq!(Sense::parse(&[0x72, 0x06, 0x2a, 0x09, 0, 0, 0, 0]), sense);
        assert_eq!(Sense::parse(&fixed[..4]), Sense { key: 6, ..Sense::default() });
        assert_eq!(Sense::parse(&[]), Sense::default());
        fixed[0] = 0xf1;
        let deferred = Sense { deferred: true, ..sense };
        assert_eq!(Sense::parse(&fixed), deferred);
        assert_eq!(Sense::parse(&[0x73, 0x06, 0x2a, 0x09, 0, 0, 0, 0]), deferred);
        assert_eq!(deferred.to_string(), "deferred UNIT ATTENTION (6/2A/09)");
    }

    /// A deferred error says nothing of the command that reports it, which is sent again.
    #[test]
    fn a_deferred_error_is_of_another_command() {
        for key in 0..16 {
            let sense = Sense { deferred: true, key, asc: 0x0c, ascq: 0 };
            assert_eq!(judge(CHECK_CONDITION, sense, true), Verdict::Again(News::Nothing));
        }
    }

    /// A lost nexus or a changed mode of the transport loses no cache.
    #[test]
    fn a_reset_is_told_from_other_attentions() {
        let is_reset = |key, asc, ascq| Sense { deferred: false, key, asc, ascq }.is_reset();
        assert!((0..=4).all(|ascq| is_reset(6, 0x29, ascq)));
        assert!(!(5..=7).any(|ascq| is_reset(6, 0x29, ascq)));
        assert!(!is_reset(6, 0x2a, 0) && !is_reset(2, 0x29, 0));
    }

    /// An error of the medium is the same on every path; what only this path cannot do is not reported
    /// the host.
    #[test]
    fn errors_of_the_medium_are_not_errors_of_the_path() {
        assert_eq!(check(3, 0x11, 0), Verdict::Failed(IoError::Medium));
        assert_eq!(check(4, 0x44, 0), Verdict::Failed(IoError::Medium));
        assert_eq!(check(7, 0x27, 7), Verdict::Failed(IoError::NoSpace));
        assert_eq!(check(7, 0x27, 0), Verdict::Failed(IoError::WriteProtected));
        assert_eq!(check(5, 0x21, 0), Verdict::Failed(IoError::OutOfRange));
        assert_eq!(check(5, 0x20, 0), Verdict::Failed(IoError::Unsupported));
        assert_eq!(check(2, 0x04, 0x0b), Verdict::NotHere(Access::Standby));
        assert_eq!(check(2, 0x3a, 0), Verdict::Lost);
        assert_eq!(check(5, 0x25, 0), Verdict::Lost);
        assert_eq!(check(6, 0x29, 0), Verdict::Again(News::Nothing));
        assert_eq!(check(6, 0x2a, 9), Verdict::Again(News::Capacity));
        assert_eq!(check(0xb, 0x47, 3), Verdict::Later);
        assert_eq!(judge(TASK_SET_FULL, Sense::default(), false), Verdict::Later);
    }

    /// A target that answers with an unknown status is not asked again; a reservation is one on
    /// every path.
    #[test]
    fn an_unknown_status_is_an_error_of_the_path() {
        assert_eq!(judge(0x77, Sense::default(), true), Verdict::Lost);
        assert_eq!(judge(0x77, Sense::default(), false), Verdict::Lost);
        let conflict = |writes| judge(RESERVATION_CONFLICT, Sense::default(), writes);
        assert_eq!(conflict(true), Verdict::Failed(IoError::WriteProtected));
        assert_eq!(conflict(false), Verdict::Failed(IoError::Medium));
    }
}
