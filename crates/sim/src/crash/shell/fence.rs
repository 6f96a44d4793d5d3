//! Claims the unit for a life, and what becomes of a life when another gateway takes the unit over.
//!
//! Of the claim only its contract is here: before a path is used, the commands of every earlier life are dead at the
//! target, and a unit that another gateway owns, or owned since, is not claimed with a log that has data. The commands
//! by which `weir-serve` keeps it have an enumeration of their own beside them.

use super::super::bug::Bug;
use super::super::events::Event as Happening;
use super::super::target::Nexus;
use super::{Effect, Fault, Io, Shell};
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_flow::request::PathId;

/// The part of a life in which the unit is the gateway's.
#[derive(Default)]
pub(super) struct Tenure {
    /// The number of the life, from 0.
    pub(super) life: usize,
    /// The unit is claimed in this life.
    pub(super) claimed: bool,
    /// Another gateway owns the unit, which this one knows.
    pub(super) fenced: bool,
    /// Nothing fails any more.
    pub(super) calm: bool,
    /// The gateway was asked to stop.
    pub(super) stopping: bool,
    /// Another gateway owns the unit, and the target admits this one all the same.
    pub(super) admitted: bool,
    /// Steps since another gateway has taken the unit over.
    pub(super) after: u32,
}

impl Shell<'_> {
    /// The name of the sessions on a path: the same in every life, unless the gateway has another machine now.
    pub(super) const fn nexus(&self, path: PathId) -> Nexus {
        let machine = if self.plan.moves { self.tenure.life } else { 0 };
        Nexus { machine, path: path.index() }
    }

    /// Claims the unit on a path that has a session again. Whether the path may be used.
    pub(super) fn claim(&mut self, path: PathId) -> bool {
        if self.is(Bug::UsedBeforeClaimed) && self.paths.down() != [path] {
            return true;
        }
        if let Some(rival) = &self.target.rival {
            let restarted = self.tenure.life > rival.life;
            let ignored = (!restarted && self.is(Bug::RegisteredAgain))
                || (restarted && !rival.released && self.is(Bug::StaleLogTakesOver))
                || (restarted && rival.released && self.is(Bug::ReleasedUnitTakenBack))
                || (rival.forgotten && self.is(Bug::ForgottenUnitTaken));
            if !ignored {
                self.fence();
            }
            self.tenure.admitted = ignored;
            return ignored;
        }
        let first = !std::mem::replace(&mut self.tenure.claimed, true);
        if first && !self.is(Bug::KeyNotAdvanced) && !self.is(Bug::PreemptWithoutAbort) {
            self.tell(|| "the unit is claimed, which ends the writes of earlier lives".to_owned());
            self.target.preempt(self.tenure.life, &mut self.rng);
        }
        true
    }

    /// Whether the target refuses what is to change the unit: another gateway owns it.
    pub(super) const fn is_refused(&self) -> bool {
        self.target.rival.is_some() && !self.tenure.admitted
    }

    /// Another gateway owns the unit: every operation fails from now on.
    fn fence(&mut self) {
        self.tell(|| "the gateway finds that another one owns the unit".to_owned());
        self.tenure.fenced = true;
        for path in self.paths.up() {
            let (backend, way) = self.paths.way(path);
            self.told.push_back(Input::PathDown(backend, way));
            self.lose_link(path);
        }
        for path in self.paths.ids() {
            self.release(path);
            self.paths.set_down(path, false);
            let (backend, way) = self.paths.way(path);
            self.told.push_back(Input::PathUp(backend, way));
        }
    }

    /// An operator lets another gateway take the unit over, which writes there at once.
    pub(super) fn take_over(&mut self) -> Result<(), Fault> {
        self.lasting.events.count(Happening::TakeOver);
        let cleaned = self.lasting.has_cleaned();
        self.lasting.events[Happening::TakeOverCleaned] += u64::from(cleaned);
        self.tell(|| "another gateway takes the unit over and writes".to_owned());
        let aborts = !self.is(Bug::PreemptWithoutAbort);
        if aborts {
            self.target.abort_all(&mut self.rng);
            for io in &mut self.ios {
                if let Io::Store(_, effect) = io
                    && let Effect::Write(id) = *effect
                {
                    self.target.device.fail(id, &mut self.rng);
                    *effect = Effect::Conflict;
                }
            }
        }
        let store = &mut self.lasting.store;
        self.target.taken_over(store, self.tenure.life, &mut self.rng);
        self.point()
    }

    /// The target restarts, and has forgotten who owned the unit. The new owner registers again before this gateway has a
    /// session: that a restart hides an owner who does not is beyond what reservations show.
    pub(super) fn forget_owner(&mut self) -> Result<(), Fault> {
        self.lasting.events.count(Happening::Forgotten);
        self.tell(|| "the target restarts and forgets who owned the unit".to_owned());
        if let Some(rival) = &mut self.target.rival {
            rival.forgotten = true;
        }
        self.break_link(PathId::new(0), true)
    }

    /// The target refuses a command of a gateway that is not registered any more, and its session ends.
    pub(super) fn conflict(&mut self, io: weir_flow::pipeline::StoreIo) -> Result<(), Fault> {
        self.tell(|| "the upstream answers RESERVATION CONFLICT".to_owned());
        if self.is(Bug::ConflictTakenForDone) {
            self.stored(io.key, Ok(()));
            return self.point();
        }
        self.stored(io.key, Err(IoError::PathFailed));
        self.break_link(io.path, false)
    }
}
