//! Commands with a parameter list.

use super::{Action, Unit};
use crate::scsi::commands::Needs;
use crate::scsi::nexus::{Access, Effects, Nexus, Refusal, RegistrantRef};
use crate::scsi::reservation;
use crate::scsi::sense::Sense;
use crate::scsi::{copy, mode, sanitize};

/// Longest parameter list that is taken, in bytes. A command with a longer one is refused.
pub const PARAMETER_LIST_LENGTH_MAX: u32 = 65_536;

/// A parameter list that a command has announced. The shell fetches it and hands both to
/// [`Unit::parameters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterList {
    kind: Kind,
    length: u32,
    access: Access,
    needs: Needs,
}

/// The command of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    PersistentOut(reservation::Out),
    ModeSelect { is_long: bool },
    ExtendedCopy,
    Overwrite { immediate: bool, ause: bool },
}

/// The result of a command with its parameter list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// See to the effects, then answer GOOD.
    Done(Effects),
    /// Save the reservations if they ask for it, [`install`](Unit::install) them, see to the effects,
    /// then answer GOOD.
    Reserve(reservation::Change),
    /// Copy, then tell the unit by [`copy_progressed`](Unit::copy_progressed).
    Copy(copy::Plan),
    /// Begin a sanitize operation, see [`Unit::sanitize_begun`].
    Sanitize(sanitize::Plan),
}

impl ParameterList {
    /// The number of bytes that the initiator must send: 1 to [`PARAMETER_LIST_LENGTH_MAX`].
    pub const fn length(&self) -> u32 {
        self.length
    }

    /// Whether it belongs to PERSISTENT RESERVE OUT. Such lists are taken in one after another, each
    /// when the one before is saved.
    pub const fn changes_reservations(&self) -> bool {
        matches!(self.kind, Kind::PersistentOut(_))
    }

    /// What to do with a command that announces a list. No list at all is no error where it asks for
    /// nothing (SPC-4 section 4.3.5.5).
    pub(super) fn announce(
        kind: Kind,
        length: u32,
        access: Access,
        needs: Needs,
    ) -> Result<Action, Sense> {
        match kind {
            Kind::ModeSelect { .. } | Kind::ExtendedCopy if length == 0 => Ok(Action::done()),
            // SBC-3: the list of an overwrite begins with a header.
            Kind::Overwrite { .. } if length == 0 => Err(Sense::invalid_cdb_field(7, None)),
            _ if length == 0 || length > PARAMETER_LIST_LENGTH_MAX => {
                Err(Sense::PARAMETER_LIST_LENGTH_ERROR)
            }
            _ => Ok(Action::Parameters(Self { kind, length, access, needs })),
        }
    }
}

impl Unit {
    pub(super) fn take_list(
        &mut self,
        nexus: &Nexus,
        list: ParameterList,
        data: &[u8],
    ) -> Result<Outcome, Refusal> {
        if data.len() != list.length as usize {
            return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
        }
        // Once more: much may have happened while the list was on its way.
        self.permit(Some(RegistrantRef::Scsi(nexus)), list.access, list.needs)?;
        match list.kind {
            Kind::PersistentOut(out) => {
                Ok(Outcome::Reserve(self.reservations.persistent_out(nexus, out, data)?))
            }
            Kind::ModeSelect { is_long } => {
                let next = mode::select(&self.disk, self.mode, is_long, data)?;
                // SPC-4 section 6.9: those who did not ask for the change must hear of it.
                let others = (next != self.mode).then_some(Sense::MODE_PARAMETERS_CHANGED);
                self.mode = next;
                Ok(Outcome::Done(Effects { others, ..Effects::default() }))
            }
            Kind::ExtendedCopy => {
                let plan = copy::parse(data)?;
                // SPC-4 section 6.4.3.2: one at a time by each name.
                let under_way = self.copies.iter().any(|(of, id, progress)| {
                    of == nexus && *id == plan.list_id && progress.state == copy::State::InProgress
                });
                if plan.tracked && under_way {
                    return Err(Sense::OPERATION_IN_PROGRESS.into());
                }
                Ok(Outcome::Copy(plan))
            }
            Kind::Overwrite { immediate, ause } => {
                self.check_protection()?;
                let plan = sanitize::overwrite(data, immediate, ause, self.disk.block_size)?;
                Ok(Outcome::Sanitize(self.sanitize_by(plan)?))
            }
        }
    }
}
