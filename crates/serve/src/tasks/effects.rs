//! The effects of commands on other sessions, and commands that end without requests.

use super::blocking_calls::{CallDone, MappedFor, SavedFor};
use super::{CommandEngine, ConnectionAction};
use crate::ids::{ConnectionId, TaskKey};
use crate::storage::state_file::StateError;
use crate::storage::store::Store;
use crate::tasks::jobs::Jobs;
use crate::tasks::set::TaskSet;
use crate::tasks::table::{Answer, HostReserve, Phase, TaskKind};
use crate::tasks::waiters::Waiter;
use tracing::{error, info, warn};
use weir_flow::cache::Done;
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_flow::units::ByteCount;
use weir_wire::scsi::Sense;
use weir_wire::scsi::nexus::{Effects, Nexus, Refusal, Registrant};
use weir_wire::scsi::reservation::Change;
use weir_wire::scsi::sanitize::{Method, Plan};
use weir_wire::scsi::sense::SenseKey;
use weir_wire::scsi::unit::Outcome;

impl CommandEngine {
    /// Asks which blocks are mapped.
    pub(crate) fn map(&mut self, key: TaskKey) {
        let task = &mut self.set.tasks[key];
        task.phase = Phase::Blocked;
        let TaskKind::Map { offset, length, max, .. } = task.kind else {
            unreachable!("only a map is asked for")
        };
        let index = task.volume;
        let stores = &self.catalog.stores[self.catalog.volumes[index].stores.clone()];
        let logged = self.cache.has_log(index);
        let ([Store::File(backing)], false) = (stores, logged) else {
            // Data may be in the log only, of which the file knows nothing yet. Of upstreams, and of volumes on several
            // stores, hosts see every block as mapped.
            self.set.decide(key, Answer::Runs(vec![(length, true)]));
            return;
        };
        let (file, block) = (backing.file(), self.catalog.volumes[index].block_size().into());
        self.blocking.map(MappedFor::Task(key), file, (offset, length), block, max);
    }

    /// A blocking call has ended.
    pub(crate) fn call_done(&mut self, done: CallDone) {
        match done {
            CallDone::Saved(SavedFor::Reservations(index), saved) => self.reserved(index, saved),
            CallDone::Saved(SavedFor::Job(job), saved) => {
                let (jobs, mut cx) = self.jobs();
                jobs.job_saved(&mut cx, job, &saved);
            }
            CallDone::Saved(SavedFor::Exit(key), saved) => {
                let (_, mut cx) = self.jobs();
                Jobs::left_failure(&mut cx, key, &saved);
            }
            CallDone::Saved(SavedFor::Void(volume), saved) => {
                if let Err(problem) = &saved {
                    error!(%problem, "cannot save the mark of a failed log: nothing is destaged");
                }
                let outcome = saved.map_err(|_| IoError::Medium);
                self.set.inputs.push_back(Input::Cache(Done::Abandoned(volume, outcome)));
            }
            CallDone::Saved(SavedFor::Lost(volume, ranges), saved) => {
                let name = &self.catalog.volumes[volume.index()].name;
                if let Err(problem) = &saved {
                    error!(
                        volume = name,
                        %problem,
                        "cannot keep the lost ranges of the volume: the order, or the write, has failed"
                    );
                } else {
                    info!(volume = name, ranges, "the lost ranges of the volume are kept");
                }
                let outcome = saved.map_err(|_| IoError::Medium);
                self.set.inputs.push_back(Input::Cache(Done::LostKept(volume, outcome)));
            }
            CallDone::Saved(SavedFor::Units, saved) => {
                if let Err(problem) = saved {
                    warn!(%problem, "what is known of the upstreams is not saved");
                }
            }
            CallDone::Saved(SavedFor::Credits, saved) => {
                if let Err(problem) = saved {
                    warn!(%problem, "burst-credit state not saved");
                }
            }
            CallDone::Mapped(MappedFor::Job(job), runs) => {
                let (jobs, mut cx) = self.jobs();
                jobs.job_mapped(&mut cx, job, runs);
            }
            CallDone::Mapped(MappedFor::Task(key), Ok(runs)) => {
                self.set.decide(key, Answer::Runs(runs));
            }
            CallDone::Mapped(MappedFor::Task(key), Err(problem)) => {
                let errors = &mut self.storage.errors;
                if errors.speaks() {
                    let errors_total = errors.total();
                    warn!(%problem, errors_total, "cannot tell which blocks are mapped");
                }
                let sense = Sense::new(SenseKey::MediumError, 0x11, 0);
                self.set.decide(key, Answer::Refused(Refusal::Check(sense)));
            }
        }
    }

    /// Takes in a complete parameter list.
    pub(crate) fn parameters(&mut self, key: TaskKey) {
        let task = &mut self.set.tasks[key];
        let index = task.volume;
        let TaskKind::Parameters(list, nexus) = task.kind.clone() else {
            unreachable!("only parameter lists are taken in")
        };
        task.phase = Phase::Blocked;
        if task.connection.is_none() {
            // Aborted, or without a host any more: what it asks for must not happen after that.
            self.set.decide(key, Answer::Good);
            return;
        }
        let volume = &mut self.catalog.volumes[index];
        if list.changes_reservations() && volume.change.is_some() {
            // In order: a change is judged against what the one before has left.
            volume.changes.push_back(key);
            return;
        }
        match volume.unit.parameters(&nexus, list, task.bytes()) {
            Err(refusal) => self.set.decide(key, Answer::Refused(refusal)),
            Ok(Outcome::Done(effects)) => {
                self.tell_others(index, &nexus, effects.others);
                self.settle(key, index, effects);
            }
            Ok(Outcome::Reserve(change)) => self.reserve(key, index, change),
            Ok(Outcome::Copy(plan)) => {
                let targets = self.set.sessions.targets_of(&nexus);
                let volumes = self.catalog.visible(&nexus.initiator.name, targets);
                let (jobs, mut cx) = self.jobs();
                jobs.copy(&mut cx, key, &nexus, plan, volumes);
            }
            Ok(Outcome::Sanitize(plan)) => self.sanitize(key, index, plan),
        }
    }

    /// Takes in a complete reservation command of an NVMe host.
    pub(crate) fn reserve_for_host(&mut self, key: TaskKey) {
        let task = &mut self.set.tasks[key];
        let TaskKind::Reserve(HostReserve { host, out, keys }) = task.kind else {
            unreachable!("only reservation commands are taken in")
        };
        task.phase = Phase::Blocked;
        let (index, is_heard) = (task.volume, task.connection.is_some());
        if !is_heard {
            // Without a host any more: what it asks for must not happen after that.
            self.set.decide(key, Answer::Good);
            return;
        }
        let volume = &mut self.catalog.volumes[index];
        if volume.change.is_some() {
            // In order: a change is judged against what the one before has left.
            volume.changes.push_back(key);
            return;
        }
        match volume.unit.reserve_for_host(&host, out, keys, volume.state.is_some()) {
            Err(refusal) => self.set.decide(key, Answer::Refused(refusal)),
            Ok(change) => self.reserve(key, index, change),
        }
    }

    /// Changes reservations, after what must survive a restart is durable.
    fn reserve(&mut self, key: TaskKey, index: usize, change: Change) {
        let volume = &mut self.catalog.volumes[index];
        if !change.save {
            volume.unit.install(change.next);
            self.settle(key, index, change.effects);
            return;
        }
        let Some(path) = volume.state.clone() else {
            // SPC-4 section 5.13.5: who cannot keep them over a loss of power says so.
            let refusal = Refusal::Check(Sense::INSUFFICIENT_REGISTRATION_RESOURCES);
            self.set.decide(key, Answer::Refused(refusal));
            return;
        };
        let Some(bytes) = volume.state_with(&change.next) else {
            let refusal = Refusal::Check(Sense::INSUFFICIENT_REGISTRATION_RESOURCES);
            self.set.decide(key, Answer::Refused(refusal));
            return;
        };
        volume.change = Some((key, change));
        self.blocking.save(SavedFor::Reservations(index), path, bytes);
    }

    /// The state file with changed reservations is durable, or could not be written.
    pub(crate) fn reserved(&mut self, index: usize, saved: Result<(), StateError>) {
        let volume = &mut self.catalog.volumes[index];
        let (key, change) = volume.change.take().expect("a change was being saved");
        match saved {
            Ok(()) => {
                volume.unit.install(change.next);
                self.settle(key, index, change.effects);
            }
            Err(problem) => {
                let (name, TaskSet { log, now, .. }) = (&volume.name, &self.set);
                let text = "reservations cannot be saved: refused";
                log.line(*now, format_args!("volume {name}"), text, |text| {
                    error!(volume = name, %problem, "{text}");
                });
                let refusal = Refusal::Check(Sense::INSUFFICIENT_REGISTRATION_RESOURCES);
                self.set.decide(key, Answer::Refused(refusal));
            }
        }
        let waiting = std::mem::take(&mut self.catalog.volumes[index].changes);
        for key in waiting {
            match self.set.tasks[key].kind {
                TaskKind::Reserve(_) => self.reserve_for_host(key),
                _ => self.parameters(key),
            }
        }
    }

    /// Carries out what a command does to others; it is answered when that is done.
    fn settle(&mut self, key: TaskKey, volume: usize, effects: Effects) {
        let Effects { attentions, aborts, others: _ } = effects;
        self.tell(volume, attentions);
        let managing = self.set.waiters.add(Waiter::Task(key));
        self.set.tasks[key].answer = Some(Answer::Good);
        let victims: Vec<ConnectionId> =
            aborts.iter().flat_map(|who| self.set.sessions.of(who)).collect();
        if !victims.is_empty() {
            let (name, TaskSet { log, now, .. }) = (&self.catalog.volumes[volume].name, &self.set);
            log.line(*now, format_args!("volume {name}"), "commands aborted", |text| {
                info!(volume = name, connections = victims.len(), "{text}");
            });
        }
        for &victim in &victims {
            // First: what there is to do for the connection may begin a command that has waited.
            self.set.actions.push_front(ConnectionAction::Preempt(victim, volume));
        }
        let concerned: Vec<TaskKey> = self
            .set
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
        self.set.one_less(managing);
    }

    /// Begins a sanitize for a blocked command. Refuses to overwrite a sparse volume on several stores: that would take
    /// the free space of file systems from other volumes. On one store [`Jobs`] leaves holes as they are.
    pub(crate) fn sanitize(&mut self, key: TaskKey, index: usize, plan: Plan) {
        let volume = &self.catalog.volumes[index];
        if let Method::Overwrite { .. } = plan.method
            && volume.stores.len() > 1
        {
            let unallocated = match self.catalog.unallocated(index) {
                Ok(bytes) => bytes,
                Err(problem) => {
                    let (name, TaskSet { log, now, .. }) = (&volume.name, &self.set);
                    let text = "sanitize refused: cannot measure the file";
                    log.line(*now, format_args!("volume {name}"), text, |text| {
                        warn!(volume = name, %problem, "{text}");
                    });
                    self.set.decide(key, Answer::Refused(Sense::SANITIZE_COMMAND_FAILED.into()));
                    return;
                }
            };
            if unallocated > 0 {
                let (name, TaskSet { log, now, .. }) = (&volume.name, &self.set);
                log.line(*now, format_args!("volume {name}"), SPARSE, |text| {
                    warn!(volume = name, unallocated = %ByteCount(unallocated), "{text}");
                });
                self.set.decide(key, Answer::Refused(Sense::SPACE_ALLOCATION_FAILED.into()));
                return;
            }
        }
        let (jobs, mut cx) = self.jobs();
        jobs.sanitize(&mut cx, key, index, plan);
    }

    /// Tells registrants what they must know.
    fn tell(&mut self, volume: usize, attentions: Vec<(Registrant, Sense)>) {
        for (who, sense) in attentions {
            self.set.actions.push_back(ConnectionAction::Tell(Box::new(who), volume, sense));
        }
    }

    /// Tells other sessions what they must know of a command of this nexus.
    pub(crate) fn spread(&mut self, volume: usize, nexus: &Nexus, effects: Effects) {
        self.tell(volume, effects.attentions);
        self.tell_others(volume, nexus, effects.others);
    }

    fn tell_others(&mut self, volume: usize, nexus: &Nexus, sense: Option<Sense>) {
        if let Some(sense) = sense {
            let from = self.set.sessions.find(nexus);
            self.set.actions.push_back(ConnectionAction::Attention(from, volume, sense));
        }
    }
}

const SPARSE: &str = "sanitize refused: overwriting a sparse volume on several stores would allocate all of it; BLOCK ERASE \
                      erases it";
