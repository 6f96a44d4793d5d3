//! The command engine: commands of hosts become requests of the pipeline, and outcomes become replies.
//!
//! [`CommandEngine`] joins the owners of this folder; what one of them owns, only it changes. It does no
//! I/O itself and knows neither sockets nor protocols: front ends hand in commands
//! ([`table::TaskKind`]) and get messages for their connections ([`ConnectionAction`],
//! [`reply::Reply`]); storage takes operations
//! ([`StorageSubmit`](crate::storage::io::StorageSubmit)) and reports their ends ([`Ended`]).

mod blocking_calls;
mod cache;
mod effects;
mod frames;
mod io;
pub(crate) mod jobs;
mod memory;
mod moving;
mod order;
pub(crate) mod quota;
mod reload;
pub(crate) mod reply;
pub(crate) mod sessions;
pub(crate) mod set;
mod submit;
pub(crate) mod table;
pub(crate) mod task_management;
#[cfg(test)]
mod tests;
mod waiters;

pub(crate) use blocking_calls::{BlockingCalls, CallDone, SavedFor};
pub(crate) use cache::CacheMemory;
pub(crate) use memory::Held;

use crate::config::Config;
use crate::ids::{ConnectionId, TaskKey};
use crate::storage::blocking::Blocking;
use crate::storage::emulated::Modelled;
use crate::storage::io::{Ended, Submit, Whose};
use crate::storage::store::Store;
use crate::volume::PersistedState;
use crate::volume::catalog::Catalog;
use io::{IoContext, StorageRequests};
use jobs::{JobContext, Jobs};
use memory::PayloadMemory;
use order::LineId;
use quota::TenantQuotas;
use reload::LeavingVolumes;
use set::TaskSet;
use submit::{FULL, Refusal};
use table::{Answer, TaskKind};
use weir_flow::cache::{Done as CacheDone, Work as CacheWork};
use weir_flow::clock::Instant;
use weir_flow::pipeline::{Input, StoreIo};
use weir_flow::request::LinkId;
use weir_wire::iscsi::target_role::Itt;
use weir_wire::nvme::Completion;
use weir_wire::scsi::Sense;
use weir_wire::scsi::nexus::Registrant;

/// The owners of what commands need.
pub(crate) struct CommandEngine {
    pub(crate) set: TaskSet,
    pub(crate) catalog: Catalog,
    pub(crate) storage: StorageRequests,
    pub(crate) cache: CacheMemory,
    pub(crate) blocking: BlockingCalls,
    jobs: Jobs,
    leaving: LeavingVolumes,
}

/// A message to the front ends: something to be done with a connection other than the one that is
/// being handled.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionAction {
    /// Its outbox has grown.
    Write(ConnectionId),
    /// Its session is over, for this reason.
    Close(ConnectionId, &'static str),
    /// Another session ended this command of it.
    Abandon(ConnectionId, Itt, TaskKey),
    /// Another host aborts the commands of this queue for a volume: those that have no task end here.
    Preempt(ConnectionId, usize),
    /// The task management function that it asked for is complete.
    Managed(ConnectionId, Itt),
    /// All sessions but this one must learn something about a volume.
    Attention(Option<ConnectionId>, usize, Sense),
    /// One registrant must: a session, or all controllers of an NVMe host.
    Tell(Box<Registrant>, usize, Sense),
    /// A command that did not end by its requests can be answered.
    Answer(TaskKey),
    /// There may be payload memory for it now.
    Feed(ConnectionId),
    /// A command of an NVMe queue is to be aborted.
    Abort(Abort),
    /// The Abort in this slot of this admin queue has ended so.
    Aborted(ConnectionId, u32, Completion),
    /// The number of sessions has changed, and with it everyone's command window.
    Share,
}

/// An Abort of a command of an I/O queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abort {
    /// The connection of the queue.
    pub(crate) queue: ConnectionId,
    /// The identifier of the command.
    pub(crate) cid: u16,
    /// The connection of the admin queue, and the slot of the Abort there.
    pub(crate) admin: ConnectionId,
    pub(crate) slot: u32,
}

impl CommandEngine {
    pub(crate) fn new(
        config: &Config,
        stores: Vec<Store>,
        persisted: Vec<PersistedState>,
        cache: CacheMemory,
        helpers: [Box<dyn Blocking>; 2],
    ) -> Self {
        let emulated = Modelled::new(config, &stores);
        let catalog = Catalog::new(config, stores, persisted);
        let memory = PayloadMemory::new(config.iscsi.buffer);
        let quotas = TenantQuotas::new(&config.limits);
        let max_requests = config.limits.max_requests as usize;
        let mut set = TaskSet::new(memory, quotas, max_requests, config.iscsi.max_commands);
        set.sessions.name_targets(catalog.targets.iter().map(|target| target.name.clone()));
        Self {
            set,
            storage: StorageRequests::new(&catalog.volumes, emulated),
            catalog,
            cache,
            blocking: BlockingCalls::new(helpers),
            jobs: Jobs::default(),
            leaving: LeavingVolumes::default(),
        }
    }

    /// The jobs, and what they need from others.
    fn jobs(&mut self) -> (&mut Jobs, JobContext<'_>) {
        let Self { set, catalog, blocking, jobs, .. } = self;
        (jobs, JobContext { set, catalog, blocking })
    }

    /// The requests at stores, and what they need from others.
    fn storage<'a>(
        &'a mut self,
        drivers: &'a mut dyn Submit,
    ) -> (&'a mut StorageRequests, IoContext<'a>) {
        let Self { set, catalog, storage, .. } = self;
        let Catalog { volumes, stores, .. } = catalog;
        (storage, IoContext { set, volumes, stores, drivers })
    }

    /// Continues what a restart has interrupted.
    pub(crate) fn resume(&mut self) {
        let (jobs, mut cx) = self.jobs();
        for volume in 0..cx.catalog.volumes.len() {
            jobs.resume(&mut cx, volume);
        }
    }

    /// Commands that have not ended. What the cache does for itself continues after a restart.
    pub(crate) fn outstanding(&self) -> usize {
        self.set.tasks.len() - self.cache.own()
    }

    /// Ends the jobs at their next step.
    pub(crate) fn drop_jobs(&mut self) {
        self.jobs.stop();
        self.set.ended = true;
    }

    /// Tries again what found no room, if a task has ended since; true if there is more to do now.
    pub(crate) fn retry(&mut self) -> bool {
        if !std::mem::take(&mut self.set.ended) {
            return false;
        }
        for key in std::mem::take(&mut self.set.again) {
            self.set.try_again(&self.catalog, key);
        }
        for line in self.set.order.take_due() {
            self.release(line);
        }
        let (jobs, mut cx) = self.jobs();
        jobs.retry(&mut cx);
        self.has_messages()
    }

    /// Whether the pipeline or the front ends have messages to take.
    pub(crate) fn has_messages(&self) -> bool {
        !self.set.inputs.is_empty() || !self.set.actions.is_empty()
    }

    /// The data of a command is yet to arrive.
    pub(crate) fn await_data(&mut self, key: TaskKey) {
        if let Some(line) = self.line_of(key) {
            self.stand(key, line, false);
        }
    }

    /// All data of a command of the connection with this link is here: begins it, or as soon as the order of commands
    /// allows.
    pub(crate) fn begin(&mut self, key: TaskKey, link: LinkId) {
        let order = self.set.tasks[key].order;
        if let Some(place) = order.place {
            self.set.order.complete(place);
            self.release(place.line);
        } else if let Some(line) = self.line_of(key)
            && !self.set.order.passes(line, order.ordered)
        {
            self.stand(key, line, true);
        } else {
            self.enter(key, link);
        }
    }

    /// The line for commands like this one, if it is for the medium.
    fn line_of(&self, key: TaskKey) -> Option<LineId> {
        let task = &self.set.tasks[key];
        let TaskKind::Media(_) = task.kind else { return None };
        Some(LineId { connection: task.connection?, volume: task.volume })
    }

    /// Puts a command into its line.
    fn stand(&mut self, key: TaskKey, line: LineId, complete: bool) {
        let TaskSet { tasks, order, .. } = &mut self.set;
        let place = &mut tasks[key].order;
        place.place = Some(order.enter(line, key, place.ordered, complete));
    }

    /// Begins what may begin of a line.
    fn release(&mut self, line: LineId) {
        while let Some(key) = self.set.order.next_of(line) {
            self.set.tasks[key].order.place = None;
            self.enter(key, self.set.link(key));
        }
    }

    /// Begins a command.
    fn enter(&mut self, key: TaskKey, link: LinkId) {
        match self.set.tasks[key].kind {
            TaskKind::Parameters(..) => self.parameters(key),
            TaskKind::Reserve(_) => self.reserve_for_host(key),
            TaskKind::Map { .. } => self.map(key),
            TaskKind::Internal => {
                let (_, mut cx) = self.jobs();
                jobs::Jobs::leave_failure(&mut cx, key);
            }
            TaskKind::Media(_) => match self.set.start(&self.catalog, key, link) {
                Ok(true) => {}
                Ok(false) => self.set.actions.push_back(ConnectionAction::Answer(key)),
                Err(Refusal::Full) => {
                    self.set.tasks[key].phase = FULL;
                    self.set.actions.push_back(ConnectionAction::Answer(key));
                }
                Err(Refusal::Wrong(sense)) => {
                    self.set.decide(key, Answer::Refused(sense.into()));
                }
            },
        }
    }

    /// Performs a store action: what the pipeline wants done with a store.
    pub(crate) fn store(&mut self, now: Instant, io: &StoreIo, drivers: &mut dyn Submit) {
        let (storage, mut cx) = self.storage(drivers);
        storage.start(&mut cx, now, io);
    }

    /// Performs an action of the cache.
    pub(crate) fn cache(&mut self, work: CacheWork, drivers: &mut dyn Submit) {
        self.cache.perform(&mut self.set, drivers, &mut self.blocking, work);
    }

    /// Storage has ended an operation.
    pub(crate) fn ended(&mut self, ended: Ended, drivers: &mut dyn Submit) {
        match ended.whose {
            Whose::Request(key) => {
                let (storage, mut cx) = self.storage(drivers);
                storage.ended(&mut cx, key, ended);
            }
            Whose::Fetch(fetch) => self.cache.fetched(&mut self.set, fetch, ended.outcome),
            Whose::Log(volume, io) => {
                let logged = CacheDone::Logged { volume, io, outcome: ended.outcome };
                self.set.inputs.push_back(Input::Cache(logged));
            }
            Whose::Last(store) => self.flushed_last(store, ended.outcome),
        }
    }

    /// Has every log make durable what it has, the first time; true when that is done.
    pub(crate) fn close_logs(&mut self) -> bool {
        self.cache.close_logs(&mut self.set)
    }

    /// An upstream of a volume has grown, and the volume with it if it is on nothing else.
    pub(crate) fn grown(&mut self, index: usize, capacity: u64) {
        if let Some(size) = self.catalog.grown(index, capacity)
            && self.catalog.resize(index, size)
        {
            let volume = weir_flow::request::VolumeId::new(index as u32);
            self.set.inputs.push_back(Input::Resized(volume, size));
            self.capacity_changed(index);
        }
    }

    fn capacity_changed(&mut self, volume: usize) {
        let attention = ConnectionAction::Attention(None, volume, Sense::CAPACITY_CHANGED);
        self.set.actions.push_back(attention);
    }

    /// A connection is gone, with these commands. What they have in the pipeline runs to its end, without
    /// a reply. The connection's outbox must be gone as well: it refers to buffers.
    pub(crate) fn disconnected(
        &mut self,
        id: ConnectionId,
        shares: bool,
        keys: impl Iterator<Item = TaskKey>,
    ) {
        if self.cache.logged().next().is_some() {
            let link = LinkId::new(id.index as u32);
            self.set.inputs.push_back(Input::Cache(CacheDone::Gone(link)));
        }
        self.set.memory.forget(id);
        self.set.quotas.forget(id);
        if shares {
            self.set.actions.push_back(ConnectionAction::Share);
        }
        self.set.waiters.forget(id);
        self.set.disconnected(keys);
    }
}
