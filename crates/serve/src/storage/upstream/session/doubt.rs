//! Doubts about the reservation: what another gateway's take-over looks like in a session.

use super::super::claim;
use super::super::sense::{CHECK_CONDITION, Sense, Verdict, judge};
use super::{Loss, SessionEvent, UnitState};
use weir_wire::scsi::ScsiStatus;

/// The holder of the reservation was read.
pub(super) fn holder_read(
    (status, sense): (u8, Sense),
    answer: &[u8],
    unit: &mut UnitState<'_>,
) -> Result<(), Loss> {
    if is_doubt(status, sense) {
        return Err(doubt(status, sense));
    }
    // After a temporary refusal it is read again a second later.
    if judge(status, sense, false) == Verdict::Good {
        let (_, holder) = claim::holder_of(answer).map_err(Loss::Denied)?;
        unit.events.push(SessionEvent::Owner(holder));
    }
    Ok(())
}

/// Whether another gateway may have taken the unit over: RESERVATION CONFLICT, or a unit attention for reservations
/// or registrations (SPC-4, 5.13.11).
pub(super) const fn is_doubt(status: u8, sense: Sense) -> bool {
    status == RESERVATION_CONFLICT
        || status == CHECK_CONDITION
            && sense.key == UNIT_ATTENTION
            && sense.asc == PARAMETERS_CHANGED
            && matches!(sense.ascq, 0x03..=0x05)
}

pub(super) fn doubt(status: u8, sense: Sense) -> Loss {
    Loss::Doubtful(match (status, sense.ascq) {
        (RESERVATION_CONFLICT, _) => String::from("RESERVATION CONFLICT"),
        (_, 0x03) => String::from("reservations preempted"),
        (_, 0x04) => String::from("reservations released"),
        _ => String::from("registrations preempted"),
    })
}

const RESERVATION_CONFLICT: u8 = ScsiStatus::ReservationConflict as u8;
const UNIT_ATTENTION: u8 = 6;
const PARAMETERS_CHANGED: u8 = 0x2a;
