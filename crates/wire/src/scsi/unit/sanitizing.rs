//! Effects of a sanitize operation on other commands of its unit (SBC-4 section 4.11).

use super::parameters::{Kind, ParameterList};
use super::{Action, Unit};
use crate::scsi::commands::Needs;
use crate::scsi::nexus::Access;
use crate::scsi::sanitize::{self, Step};
use crate::scsi::sense::Sense;

/// Whether one is going on or has failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sanitizing {
    state: State,
    /// AUSE of the operation that began last: after a failure, EXIT FAILURE MODE is enough.
    unrestricted: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Running {
        /// In 65536ths.
        done: u16,
    },
    Failed,
}

impl Sanitizing {
    pub(super) const fn begun(&mut self, unrestricted: bool) {
        self.unrestricted = unrestricted;
        self.state = State::Running { done: 0 };
    }

    pub(super) const fn progress(&mut self, done: u16) {
        if let State::Running { .. } = self.state {
            self.state = State::Running { done };
        }
    }

    pub(super) fn has_failed(self) -> bool {
        self.state == State::Failed
    }

    pub(super) const fn ended(&mut self, ok: bool) {
        self.state = if ok { State::Idle } else { State::Failed };
    }

    /// Why a command with such needs cannot run now.
    pub(super) const fn obstacle(self, needs: Needs) -> Option<Sense> {
        match (self.state, needs) {
            (State::Idle, _)
            | (_, Needs::Nothing | Needs::Presence)
            | (State::Failed, Needs::Sanitizable) => None,
            (State::Running { done }, _) => Some(Sense::SANITIZE_IN_PROGRESS.with_progress(done)),
            (State::Failed, _) => Some(Sense::SANITIZE_COMMAND_FAILED),
        }
    }

    /// Whether an operation may begin.
    // SBC-4 section 4.11.3: after a failure in restricted completion mode only an operation that is
    // restricted again is taken.
    fn may_begin(self, unrestricted: bool) -> Result<(), Sense> {
        if self.state == State::Failed && !self.unrestricted && unrestricted {
            return Err(Sense::invalid_cdb_field(1, Some(5)));
        }
        Ok(())
    }
}

impl Unit {
    /// SANITIZE up to its parameter list.
    pub(super) fn sanitize(
        &mut self,
        cdb: &[u8; 16],
        access: Access,
        needs: Needs,
    ) -> Result<Action, Sense> {
        match sanitize::decode(cdb)? {
            Step::Start(plan) => {
                self.check_protection()?;
                Ok(Action::Sanitize(self.sanitize_by(plan)?))
            }
            Step::Parameters { length, immediate, ause } => {
                self.check_protection()?;
                let kind = Kind::Overwrite { immediate, ause };
                ParameterList::announce(kind, length, access, needs)
            }
            Step::ExitFailureMode => {
                if self.sanitizing.state == State::Failed {
                    if !self.sanitizing.unrestricted {
                        return Err(Sense::invalid_cdb_field(1, Some(4)));
                    }
                    self.sanitizing.state = State::Idle;
                }
                Ok(Action::done())
            }
        }
    }

    /// Hands a sanitize operation out to the shell.
    pub(super) fn sanitize_by(&self, plan: sanitize::Plan) -> Result<sanitize::Plan, Sense> {
        self.sanitizing.may_begin(plan.ause)?;
        Ok(plan)
    }
}
