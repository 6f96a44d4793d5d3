//! Between hosts and the pipeline: commands become requests here, and outcomes become replies.
//!
//! The desk owns what commands need: their table, payload buffers, volumes, targets and sessions. It
//! does no I/O of its own. Sockets belong to the [`Gateway`](crate::shard::Gateway), which hands
//! in what it has read and sends what the desk has put into a connection's outbox.

mod cache;
mod effects;
mod frames;
mod io;
pub(crate) mod jobs;
pub(crate) mod quota;
mod reply;
mod submit;
pub(crate) mod table;
pub(crate) mod task_management;
#[cfg(test)]
mod tests;

pub(crate) use cache::Near;
use io::Update;
pub(crate) use reply::put_data;
pub(crate) use submit::{Held, Refusal};

use crate::buffer::{LARGEST, Pool};
use crate::config::Config;
use crate::frontend::connection::{Connection, Speech, Wire};
use crate::frontend::sessions::Sessions;
use crate::identity::identity;
use crate::ids::{ConnectionId, JobKey, ManagementKey, TaskKey};
use crate::limits::Tally;
use crate::storage::blocking::Blocking;
use crate::storage::emulated::Modelled;
use crate::storage::layout;
use crate::storage::store::Store;
use crate::tasks::jobs::Job;
use crate::tasks::quota::Rooms;
use crate::tasks::table::{Phase, Tasks};
use crate::tasks::task_management::Management;
use crate::volume::reload::node;
use crate::volume::tenants::{Claims, TenantNames};
use crate::volume::{Flushes, Kept, Target, Volume};
use slotmap::SlotMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use weir_flow::cache::Done::Gone;
use weir_flow::clock::{Duration, Instant};
use weir_flow::pipeline::Input;
use weir_flow::request::{LinkId, RequestKey, TenantId, VolumeId};
use weir_wire::iscsi::target_role::{Itt, Limits, Node};
use weir_wire::nbd;
use weir_wire::scsi::Sense;
use weir_wire::scsi::nexus::Nexus;

/// Where commands wait, and what they need.
pub(crate) struct Desk {
    /// What the pipeline is to be told.
    pub(crate) inbox: VecDeque<Input>,
    /// What is to be done with connections, in order.
    pub(crate) errands: VecDeque<Errand>,
    pub(crate) node: Arc<Node>,
    pub(crate) exports: Arc<nbd::Exports>,
    /// Index of the volume behind each export.
    pub(crate) export_volumes: Vec<usize>,
    pub(crate) limits: Limits,
    pub(crate) nbd_limits: nbd::Limits,
    /// Requests that the pipeline takes at a time.
    max_requests: usize,
    pub(crate) targets: Vec<Target>,
    pub(crate) volumes: Vec<Volume>,
    /// The tenants that hosts are by their names.
    pub(crate) claims: Claims,
    pub(crate) tenant_names: TenantNames,
    /// The stores of all volumes, in one row.
    pub(crate) stores: Rc<[Store]>,
    /// The flushes of each of them.
    flushes: Vec<Flushes>,
    pub(crate) modelled: Modelled,
    /// What is near.
    pub(crate) near: Near,
    pub(crate) pool: Pool,
    pub(crate) tasks: Tasks,
    pub(crate) managing: SlotMap<ManagementKey, Management>,
    pub(crate) jobs: SlotMap<JobKey, Job>,
    pub(crate) chores: Box<dyn Blocking>,
    /// Does the maps, which may be many: no reservation waits for them.
    pub(crate) maps: Box<dyn Blocking>,
    /// Who waits for which chore.
    pub(crate) awaited: BTreeMap<u64, Awaited>,
    pub(crate) last_chore: u64,
    /// Updates at their stores, and how far they have come.
    updates: BTreeMap<RequestKey, Update>,
    /// A store was given something since this was looked at last.
    pub(crate) submitted: bool,
    /// Connections that wait for payload memory, in order.
    pub(crate) hungry: VecDeque<ConnectionId>,
    /// Requests of NBD clients that were refused for want of room, to be tried again when something
    /// ends.
    pub(crate) again: VecDeque<TaskKey>,
    /// Steps of jobs that were refused for want of room, to be tried again when something ends.
    pub(crate) stalled: VecDeque<JobKey>,
    pub(crate) sessions: Sessions,
    /// How much of its bounds each tenant uses.
    pub(crate) rooms: Rooms,
    /// A command has ended since room was looked for last.
    pub(crate) ended: bool,
    /// The gateway is about to leave: jobs begin nothing more.
    pub(crate) stopping: bool,
    /// The time of what is being dealt with.
    pub(crate) now: Instant,
    /// Payload memory in use, by the serial number of the connection.
    pub(crate) held: BTreeMap<u64, u64>,
    buffer_bytes: u64,
    /// What hosts did wrong without losing their connection.
    pub(crate) faults: Tally,
    /// Commands that there was no payload memory for.
    pub(crate) refused: Tally,
    /// I/Os that the disk driver ended with an error.
    pub(crate) disk_errors: Tally,
}

/// Who waits for a chore.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// The change of this volume's reservations.
    Reservations(usize),
    /// A command that asks which blocks are mapped.
    Map(TaskKey),
    /// A job, which goes on when its volume's state is saved.
    Job(JobKey),
    /// A command that leaves the failure mode of a sanitize.
    Exit(TaskKey),
    /// A log that has failed, and is remembered as such.
    Void(VolumeId),
    /// Nobody: what control would need after a restart is kept in any case.
    Savings,
}

/// Something to be done with a connection other than the one whose turn it is.
#[derive(Clone, Debug)]
pub(crate) enum Errand {
    /// Its outbox has grown.
    Write(ConnectionId),
    /// Its session is over, for this reason.
    Close(ConnectionId, &'static str),
    /// This command of it was ended by somebody else.
    Abandon(ConnectionId, Itt, TaskKey),
    /// The task management function that it asked for is complete.
    Managed(ConnectionId, Itt),
    /// All sessions but this one must learn something about a volume.
    Attention(Option<ConnectionId>, usize, Sense),
    /// One session must.
    Tell(Box<Nexus>, usize, Sense),
    /// A command that did not end by its requests can be answered.
    Answer(TaskKey),
    /// There may be payload memory for it now.
    Feed(ConnectionId),
    /// The number of sessions has changed, and with it everyone's command window.
    Share,
}

impl Desk {
    pub(crate) fn new(
        config: &Config,
        stores: Rc<[Store]>,
        kept: Vec<Kept>,
        near: Near,
        [chores, maps]: [Box<dyn Blocking>; 2],
    ) -> Self {
        let node_name = identity();
        let volumes: Vec<Volume> = layout::ranges(&config.volumes)
            .zip(kept)
            .map(|(volume, kept)| Volume::new(volume, &stores, kept, &config.limits, &node_name))
            .collect();
        let flushes = |(index, volume): (usize, &Volume)| {
            volume.stores.clone().map(move |_| Flushes { volume: index, ..Flushes::default() })
        };
        let flushes = volumes.iter().enumerate().flat_map(flushes).collect();
        let targets: Vec<Target> = config.targets.iter().map(Target::new).collect();
        let mut sessions = Sessions::default();
        sessions.name_targets(targets.iter().map(|target| target.name.clone()));
        let names: Vec<_> = config.tenants.iter().map(|tenant| tenant.name.clone()).collect();
        let limits = Limits {
            command_window: config.iscsi.commands,
            header_digest: config.iscsi.header_digest,
            data_digest: config.iscsi.data_digest,
            ..Limits::default()
        };
        Self {
            inbox: VecDeque::new(),
            errands: VecDeque::new(),
            node: Arc::new(node(config)),
            exports: Arc::new(crate::frontend::nbd::exports(&config.nbd, &volumes)),
            export_volumes: config.nbd.exports.iter().map(|export| export.volume).collect(),
            limits,
            nbd_limits: crate::frontend::nbd::limits(config),
            max_requests: config.limits.max_requests as usize,
            targets,
            volumes,
            claims: Claims::new(&config.tenants, &config.promises),
            tenant_names: TenantNames::new(names.into()),
            modelled: Modelled::new(config, &stores),
            stores,
            flushes,
            near,
            pool: Pool::new(config.iscsi.buffer_bytes),
            tasks: Tasks::with_key(),
            managing: SlotMap::with_key(),
            jobs: SlotMap::with_key(),
            chores,
            maps,
            awaited: BTreeMap::new(),
            last_chore: 0,
            updates: BTreeMap::new(),
            submitted: false,
            hungry: VecDeque::new(),
            again: VecDeque::new(),
            stalled: VecDeque::new(),
            sessions,
            rooms: Rooms::new(&config.limits),
            ended: false,
            stopping: false,
            now: Instant::ZERO,
            held: BTreeMap::new(),
            buffer_bytes: config.iscsi.buffer_bytes,
            faults: Tally::default(),
            refused: Tally::default(),
            disk_errors: Tally::default(),
        }
    }

    /// Whether a connection may hold so many more bytes of payload memory: its share, or more while
    /// two of the largest buffers stay free for others. So no host can take it all, and none is
    /// refused what nobody else wants.
    pub(crate) fn may_hold(&self, owner: u64, more: u64) -> bool {
        let share = self.buffer_bytes / self.sessions.count().max(1) as u64;
        let held = self.held.get(&owner).copied().unwrap_or(0);
        let all = || self.held.values().sum::<u64>();
        held + more <= share.max(SPARE) || all() + more + SPARE <= self.buffer_bytes
    }

    /// Whether a command of this connection has waited too long for its data.
    pub(crate) fn waits_in_vain(&self, connection: &Connection, limit: Duration) -> bool {
        connection.tasks.values().any(|&key| {
            self.tasks.get(key).is_some_and(|task| {
                task.phase == Phase::Gathering && self.now.saturating_since(task.came) >= limit
            })
        })
    }

    /// The state machine of a new iSCSI connection, which reaches the gateway at `portals`. The challenge is
    /// random.
    pub(crate) fn new_wire(&self, portals: Vec<String>, challenge: [u8; 32]) -> Wire {
        // How many commands it may send is told when the session is known.
        let limits = Limits { command_window: 1, ..self.limits };
        Wire::new(self.node.clone(), limits, portals, challenge)
    }

    /// What the pipeline takes, shared equally by all sessions: no command window is larger.
    pub(crate) fn window(&self) -> u32 {
        let share = self.max_requests / self.sessions.count().max(1);
        self.limits.command_window.min(share.max(1) as u32)
    }

    /// Whose requests for a volume are: the tenant that claims the host, or the volume's own.
    pub(crate) fn tenant(&self, claim: Option<TenantId>, volume: usize) -> TenantId {
        claim.unwrap_or(self.volumes[volume].tenant)
    }

    /// Commands that are under way. What the cache does on its own account goes on after a restart.
    pub(crate) fn outstanding(&self) -> usize {
        self.tasks.len() - self.near.own()
    }

    /// Forgets the commands whose data has not come: nothing of them was promised or done.
    pub(crate) fn drop_gathering(&mut self) {
        let gathering: Vec<TaskKey> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.phase == Phase::Gathering)
            .map(|(key, _)| key)
            .collect();
        for key in gathering {
            self.finish(key);
        }
    }

    /// Forgets the jobs; what they were doing goes on after a restart, or was asked for by a host
    /// that is told that the gateway leaves.
    pub(crate) fn drop_jobs(&mut self) {
        self.stopping = true;
        self.ended = true;
    }

    /// Tries again what found no room, if something has ended since; true if there is more to do now.
    pub(crate) fn retry(&mut self) -> bool {
        if !std::mem::take(&mut self.ended) {
            return false;
        }
        for key in std::mem::take(&mut self.again) {
            self.try_again(key);
        }
        for job in std::mem::take(&mut self.stalled) {
            self.go_on_with(job);
        }
        !self.inbox.is_empty() || !self.errands.is_empty()
    }

    /// The volumes that an initiator sees at the targets that it has logged in to, ascending.
    pub(crate) fn visible(&self, nexus: &Nexus) -> Vec<usize> {
        let name = &nexus.initiator.name;
        let targets = self.sessions.targets_of(nexus);
        let luns = targets.flat_map(|target| &self.targets[target].luns);
        let volumes = luns.map(|&(_, volume)| volume);
        let seen: BTreeSet<usize> =
            volumes.filter(|&volume| self.volumes[volume].initiators.admit(name)).collect();
        seen.into_iter().collect()
    }

    /// The name of a new chore, and who waits for it.
    pub(crate) fn await_chore(&mut self, who: Awaited) -> u64 {
        self.last_chore += 1;
        self.awaited.insert(self.last_chore, who);
        self.last_chore
    }

    /// Forgets a command and tells whoever waits for its end. Its buffers must not be in an outbox.
    pub(crate) fn finish(&mut self, key: TaskKey) {
        let task = self.tasks.remove(key).expect("a command ends once");
        self.leave_room(&task);
        if let Some(held) = self.held.get_mut(&task.owner) {
            *held -= task.held;
        }
        for buffer in [task.data, task.medium].into_iter().flatten() {
            self.pool.give(buffer);
        }
        for waiting in task.awaited_by {
            self.one_less(waiting);
        }
        self.ended = true;
        self.feed_next();
    }

    /// There may be memory for whoever has waited longest for it.
    pub(crate) fn feed_next(&mut self) {
        if let Some(id) = self.hungry.pop_front() {
            self.errands.push_back(Errand::Feed(id));
        }
    }

    /// A connection is gone. What it has in the pipeline goes on; nobody hears of its end.
    pub(crate) fn disconnected(&mut self, connection: Connection, reason: &str) {
        let Connection { id, peer, speech, tasks, seat, widen, .. } = connection;
        speech.said_goodbye(&peer, reason);
        self.sessions.leave(id);
        if widen && matches!(speech, Speech::Nbd(_)) {
            self.sessions.clients -= 1;
        }
        if let Some(seat) = seat {
            for seen in &seat.units {
                self.volumes[seen.volume].unit.nexus_lost(&seat.nexus);
            }
        }
        if self.near.logged().next().is_some() {
            let link = LinkId::new(id.index as u32);
            self.inbox.push_back(Input::Cache(Gone(link)));
        }
        self.held.remove(&id.serial);
        self.hungry.retain(|&hungry| hungry != id);
        self.rooms.forget(id);
        if widen {
            self.errands.push_back(Errand::Share);
        }
        self.forget_managing(id);
        // The outbox holds references to reply buffers.
        drop(speech);
        for key in tasks.into_values() {
            let Some(task) = self.tasks.get_mut(key) else { continue };
            match task.phase {
                Phase::Gathering => self.finish(key),
                Phase::Flowing { .. } | Phase::Aside => task.connection = None,
                Phase::Replying(request) => {
                    // What is still to come of the reply finds nobody.
                    let parts = task.leaving.into_iter().chain(task.behind.drain(..));
                    self.inbox.extend(parts.map(|bytes| Input::Sent { key: request, bytes }));
                    self.finish(key);
                }
            }
        }
    }
}

/// Payload memory that one session leaves to the others, in bytes: two of the largest buffers, which
/// one VERIFY takes.
const SPARE: u64 = 2 * LARGEST as u64;
