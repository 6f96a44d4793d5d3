//! What a command does to other sessions, and commands that end by something else than requests.

use super::{Awaited, Desk, Errand};
use crate::ids::TaskKey;
use crate::storage::blocking::{BlockingCall, BlockingResult};
use crate::storage::state_file::StateError;
use crate::storage::store::Store;
use crate::tasks::table::{Answer, Deed, Phase};
use crate::tasks::task_management::{Management, Waiter};
use tracing::{error, info, warn};
use weir_flow::cache::Done;
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_wire::scsi::Sense;
use weir_wire::scsi::nexus::{Effects, Nexus, Refusal};
use weir_wire::scsi::reservation::Change;
use weir_wire::scsi::sense::SenseKey;
use weir_wire::scsi::unit::Outcome;

impl Desk {
    /// Decides how a command that waits aside is answered.
    pub(crate) fn decide(&mut self, key: TaskKey, answer: Answer) {
        let task = &mut self.tasks[key];
        task.phase = Phase::Aside;
        task.answer = Some(answer);
        self.errands.push_back(Errand::Answer(key));
    }

    /// Asks which blocks are mapped.
    pub(crate) fn map(&mut self, key: TaskKey) {
        let task = &mut self.tasks[key];
        task.phase = Phase::Aside;
        let Deed::Map { offset, length, max, .. } = task.deed else {
            unreachable!("only a map is asked for")
        };
        let index = task.volume;
        let stores = &self.stores[self.volumes[index].stores.clone()];
        let logged = self.near.has_log(index);
        let ([Store::File(backing)], false) = (stores, logged) else {
            // What is written may be in the log, of which its store knows nothing yet. What an upstream has mapped is its own affair; as far as hosts see, all of it is, and all of
            // what is on several stores.
            self.decide(key, Answer::Runs(vec![(length, true)]));
            return;
        };
        let (file, block) = (backing.file(), self.volumes[index].block_size().into());
        let token = self.await_chore(Awaited::Map(key));
        self.maps.submit(BlockingCall::Map { token, file, offset, length, block, max });
    }

    /// A chore is done.
    pub(crate) fn chore_done(&mut self, finished: BlockingResult) {
        let (token, result) = match finished {
            BlockingResult::Saved { owner, result } => (owner, Ok(result)),
            BlockingResult::Mapped { token, result } => (token, Err(result)),
        };
        let who = self.awaited.remove(&token).expect("every chore is awaited");
        match (who, result) {
            (Awaited::Reservations(index), Ok(saved)) => self.reserved(index, saved),
            (Awaited::Job(job), Ok(saved)) => self.job_saved(job, &saved),
            (Awaited::Exit(key), Ok(saved)) => self.left_failure(key, &saved),
            (Awaited::Void(volume), Ok(saved)) => {
                if let Err(problem) = &saved {
                    error!(%problem, "cannot save the mark of a failed log: nothing is destaged");
                }
                let outcome = saved.map_err(|_| IoError::Medium);
                self.inbox.push_back(Input::Cache(Done::Abandoned(volume, outcome)));
            }
            (Awaited::Savings, Ok(saved)) => {
                if let Err(problem) = saved {
                    warn!(%problem, "what tenants have saved was not kept");
                }
            }
            (Awaited::Map(key), Err(Ok(runs))) => self.decide(key, Answer::Runs(runs)),
            (Awaited::Map(key), Err(Err(problem))) => {
                if self.disk_errors.speaks() {
                    let errors_total = self.disk_errors.total();
                    warn!(%problem, errors_total, "cannot tell which blocks are mapped");
                }
                let sense = Sense::new(SenseKey::MediumError, 0x11, 0);
                self.decide(key, Answer::Refused(Refusal::Check(sense)));
            }
            _ => unreachable!("a chore ends as what it began"),
        }
    }

    /// Takes in a complete parameter list.
    pub(crate) fn parameters(&mut self, key: TaskKey) {
        let task = &mut self.tasks[key];
        let index = task.volume;
        let Deed::Parameters(list, nexus) = task.deed.clone() else {
            unreachable!("only parameter lists are taken in")
        };
        task.phase = Phase::Aside;
        if task.connection.is_none() {
            // Aborted, or without a host any more: what it asks for must not happen after that.
            self.decide(key, Answer::Good);
            return;
        }
        let volume = &mut self.volumes[index];
        if list.changes_reservations() && volume.change.is_some() {
            // In order: a change is judged against what the one before has left.
            volume.changes.push_back(key);
            return;
        }
        match volume.unit.parameters(&nexus, list, task.bytes()) {
            Err(refusal) => self.decide(key, Answer::Refused(refusal)),
            Ok(Outcome::Done(effects)) => self.settle(key, index, &nexus, effects),
            Ok(Outcome::Reserve(change)) => self.reserve(key, index, &nexus, change),
            Ok(Outcome::Copy(plan)) => {
                let volumes = self.visible(&nexus);
                self.copy(key, &nexus, plan, volumes);
            }
            Ok(Outcome::Sanitize(plan)) => self.sanitize(key, index, plan),
        }
    }

    /// Changes reservations, after what must survive a restart is durable.
    fn reserve(&mut self, key: TaskKey, index: usize, nexus: &Nexus, change: Change) {
        let volume = &mut self.volumes[index];
        if !change.save {
            volume.unit.install(change.next);
            self.settle(key, index, nexus, change.effects);
            return;
        }
        let Some(path) = volume.state.clone() else {
            // SPC-4 section 5.13.5: who cannot keep them over a loss of power says so.
            let refusal = Refusal::Check(Sense::INSUFFICIENT_REGISTRATION_RESOURCES);
            self.decide(key, Answer::Refused(refusal));
            return;
        };
        let Some(bytes) = volume.state_with(&change.next) else {
            let refusal = Refusal::Check(Sense::INSUFFICIENT_REGISTRATION_RESOURCES);
            self.decide(key, Answer::Refused(refusal));
            return;
        };
        volume.change = Some((key, change));
        let owner = self.await_chore(Awaited::Reservations(index));
        self.chores.submit(BlockingCall::Save { owner, path, bytes });
    }

    /// The state file with changed reservations is durable, or could not be written.
    pub(crate) fn reserved(&mut self, index: usize, saved: Result<(), StateError>) {
        let volume = &mut self.volumes[index];
        let (key, change) = volume.change.take().expect("a change was being saved");
        match saved {
            Ok(()) => {
                volume.unit.install(change.next);
                let Deed::Parameters(_, nexus) = self.tasks[key].deed.clone() else {
                    unreachable!("only a parameter list changes reservations")
                };
                self.settle(key, index, &nexus, change.effects);
            }
            Err(problem) => {
                error!(volume = volume.name, %problem, "reservations cannot be saved: refused");
                let refusal = Refusal::Check(Sense::INSUFFICIENT_REGISTRATION_RESOURCES);
                self.decide(key, Answer::Refused(refusal));
            }
        }
        let waiting = std::mem::take(&mut self.volumes[index].changes);
        for key in waiting {
            self.parameters(key);
        }
    }

    /// Carries out what a command does to others; it is answered when that is done.
    fn settle(&mut self, key: TaskKey, volume: usize, nexus: &Nexus, effects: Effects) {
        let aborts = effects.aborts.clone();
        self.spread(volume, nexus, effects);
        let managing = self.managing.insert(Management::new(Waiter::Task(key)));
        self.tasks[key].answer = Some(Answer::Good);
        let victims: Vec<_> = aborts.iter().filter_map(|nexus| self.sessions.find(nexus)).collect();
        if !victims.is_empty() {
            info!(volume = self.volumes[volume].name, sessions = victims.len(), "commands aborted");
        }
        let concerned: Vec<TaskKey> = self
            .tasks
            .iter()
            .filter(|&(other, task)| {
                other != key
                    && task.volume == volume
                    && task.connection.is_some_and(|id| victims.contains(&id))
            })
            .map(|(other, _)| other)
            .collect();
        for victim in concerned {
            self.abort(victim, managing);
        }
        self.one_less(managing);
    }

    /// Tells other sessions what they must know.
    pub(crate) fn spread(&mut self, volume: usize, nexus: &Nexus, effects: Effects) {
        for (nexus, sense) in effects.attentions {
            self.errands.push_back(Errand::Tell(Box::new(nexus), volume, sense));
        }
        if let Some(sense) = effects.others {
            let from = self.sessions.find(nexus);
            self.errands.push_back(Errand::Attention(from, volume, sense));
        }
    }
}
