//! Between hosts and the pipeline: commands become requests here, and outcomes become replies.
//!
//! The desk owns what commands need: their table, payload buffers, volumes, targets and sessions. It
//! does no I/O of its own. Sockets belong to the [`Gateway`](crate::gateway::Gateway), which hands
//! in what it has read and sends what the desk has put into a connection's outbox.

use crate::buffer::{LARGEST, Pool, Shared};
use crate::config::Config;
use crate::disk::backing::Backing;
use crate::disk::{Done, Driver, Io, Work, tenant_error};
use crate::listen::connection::{Connection, ConnectionId, Payload, Wire};
use crate::listen::management::Management;
use crate::sessions::Sessions;
use crate::task::{End, ManagementKey, Phase, TaskKey, Tasks};
use crate::unit::{Target, Volume, node};
use slotmap::SlotMap;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use tracing::{error, info, warn};
use weir_flow::clock::{Duration, Instant};
use weir_flow::error::{IoError, SenseTriple};
use weir_flow::pipeline::{Input, StoreIo};
use weir_flow::request::{LinkId, Op, Outcome, Request, RequestKey, Tag, TenantId, VolumeId};
use weir_flow::units::Extent;
use weir_wire::iscsi::target::{Advertised, Itt, Limits, Node, TargetEntry};
use weir_wire::scsi::cdb::{Compare, Media, MediaOp};
use weir_wire::scsi::sense::SenseKey;
use weir_wire::scsi::{ScsiStatus, Sense};

/// Where commands wait, and what they need.
pub(crate) struct Desk {
    /// What the pipeline is to be told.
    pub(crate) inbox: VecDeque<Input>,
    /// What is to be done with connections, in order.
    pub(crate) errands: VecDeque<Errand>,
    pub(crate) node: Arc<Node>,
    pub(crate) limits: Limits,
    /// Requests that the pipeline takes at a time.
    max_requests: usize,
    pub(crate) targets: Vec<Target>,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) backings: Rc<[Backing]>,
    pub(crate) pool: Pool,
    pub(crate) tasks: Tasks,
    pub(crate) managing: SlotMap<ManagementKey, Management>,
    pub(crate) sessions: Sessions,
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
    disk_errors: Tally,
}

/// Counts something that a host can cause at will, and says it once per power of two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally(u64);

impl Tally {
    /// Counts one more; whether it is worth a line in the log.
    pub(crate) const fn speaks(&mut self) -> bool {
        self.0 += 1;
        self.0.is_power_of_two()
    }

    /// How many there were.
    pub(crate) const fn total(self) -> u64 {
        self.0
    }
}

/// Something to be done with a connection other than the one whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Errand {
    /// Its outbox has grown.
    Write(ConnectionId),
    /// Its session is over.
    Close(ConnectionId),
    /// Its command was ended by somebody else.
    Abandon(ConnectionId, Itt),
    /// The task management function that it asked for is complete.
    Managed(ConnectionId, Itt),
    /// All sessions but this one must learn something about a volume.
    Attention(ConnectionId, usize, Sense),
    /// The number of sessions has changed, and with it everyone's command window.
    Share,
}

impl Desk {
    pub(crate) fn new(config: &Config, backings: Rc<[Backing]>) -> Self {
        let node_name = node();
        let volumes: Vec<Volume> = config
            .volumes
            .iter()
            .zip(backings.iter())
            .map(|(volume, backing)| Volume::new(volume, backing, &config.limits, &node_name))
            .collect();
        let targets = config.targets.iter().map(Target::new).collect();
        let entry = |target: &crate::config::Target| TargetEntry {
            iqn: target.name.clone(),
            alias: target.alias.clone(),
            initiators: target.initiators.clone(),
            authentication: target.authentication.clone(),
            redirect: target.redirect.clone(),
            removed: false,
        };
        let node = Node {
            targets: config.targets.iter().map(entry).collect(),
            portals: config.advertise.iter().cloned().map(Advertised).collect(),
            portal_group: PORTAL_GROUP,
            accounts: config.accounts.clone(),
            discovery: config.discovery.clone(),
        };
        let limits = Limits { command_window: config.iscsi.commands, ..Limits::default() };
        Self {
            inbox: VecDeque::new(),
            errands: VecDeque::new(),
            node: Arc::new(node),
            limits,
            max_requests: config.limits.max_requests as usize,
            targets,
            volumes,
            backings,
            pool: Pool::new(config.iscsi.buffer_bytes),
            tasks: Tasks::with_key(),
            managing: SlotMap::with_key(),
            sessions: Sessions::default(),
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

    /// The state machine of a new connection that came in at `local`.
    pub(crate) fn new_wire(&self, local: SocketAddr) -> Wire {
        Wire::new(self.node.clone(), self.limits, local.to_string())
    }

    /// The command window of each session: an equal share of what the pipeline takes, so that a
    /// host meets its window before it meets a full task set.
    pub(crate) fn window(&self) -> u32 {
        let share = self.max_requests / self.sessions.count().max(1);
        self.limits.command_window.min(share.max(1) as u32)
    }

    /// Commands that are under way.
    pub(crate) fn outstanding(&self) -> usize {
        self.tasks.len()
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

    /// Turns a command whose data is complete into requests; none if there is nothing to do.
    pub(crate) fn start(&mut self, key: TaskKey, link: LinkId) -> Result<(), Refusal> {
        let task = &self.tasks[key];
        let volume = &self.volumes[task.volume];
        let block = u64::from(volume.block_size());
        let media = task.media;
        let base = Request {
            tag: key.tag(),
            tenant: TenantId::new(volume.tenant as u32),
            volume: VolumeId::new(task.volume as u32),
            link,
            op: Op::Read,
            extent: Extent::new(media.lba * block, media.blocks * block),
            fua: media.fua,
            ordered: task.ordered,
        };
        let op = match media.op {
            MediaOp::Read => Op::Read,
            MediaOp::Write => Op::Write,
            MediaOp::Verify(_) => Op::Verify,
            MediaOp::Synchronize { .. } => Op::Flush,
            MediaOp::WriteSame { unmap, .. } => self.write_same(key, unmap)?,
            MediaOp::Unmap { .. } => {
                let data = task.data.as_ref().map_or(&[][..], |data| data.bytes());
                let extents = volume.unmap_list(&data[..task.data_length as usize])?;
                self.unmap(key, &base, &extents);
                return Ok(());
            }
        };
        let extent = match media.op {
            MediaOp::Synchronize { .. } => Extent::default(),
            // The host may have fewer blocks than its CDB says; what it has is written.
            MediaOp::Write => Extent::new(base.extent.offset, self.tasks[key].data_length.into()),
            _ => base.extent,
        };
        if op != Op::Flush && extent.length == 0 {
            // Nothing to do is done at once, in order with nothing.
            self.tasks[key].phase = Phase::Flowing { left: 0, end: End::Good };
            return Ok(());
        }
        self.tasks[key].phase = Phase::Flowing { left: 1, end: End::Good };
        self.inbox.push_back(Input::Arrive(Request { op, extent, ..base }));
        Ok(())
    }

    /// What WRITE SAME amounts to. A pattern that is not zero is repeated over a whole buffer, so
    /// that it can be written in large pieces.
    fn write_same(&mut self, key: TaskKey, unmap: bool) -> Result<Op, Refusal> {
        let task = &mut self.tasks[key];
        let zeroes = match &task.data {
            None => true,
            Some(data) => data.bytes()[..task.data_length as usize].iter().all(|&byte| byte == 0),
        };
        if zeroes {
            return Ok(if unmap { Op::Discard } else { Op::WriteZeroes });
        }
        let block = task.data_length as usize;
        let length = (task.media.blocks as usize).saturating_mul(block).min(PIECE as usize);
        let Some(mut repeated) = self.pool.take(length) else {
            return Err(Refusal::Full);
        };
        let source = task.data.take().expect("it is not zero, so it is there");
        let memory = Rc::get_mut(&mut repeated).expect("fresh from the pool").bytes_mut();
        for target in memory.chunks_exact_mut(block) {
            target.copy_from_slice(&source.bytes()[..block]);
        }
        self.pool.give(source);
        task.data = Some(repeated);
        Ok(Op::Write)
    }

    fn unmap(&mut self, key: TaskKey, base: &Request, extents: &[Extent]) {
        let left = extents.len() as u32;
        self.tasks[key].phase = Phase::Flowing { left, end: End::Good };
        for &extent in extents {
            self.inbox.push_back(Input::Arrive(Request { op: Op::Discard, extent, ..*base }));
        }
    }

    /// Performs a store action: what the pipeline wants done with a file.
    pub(crate) fn store(&mut self, io: &StoreIo, driver: &mut dyn Driver) {
        let task = &self.tasks[TaskKey::of(io.tag)];
        let at = io.offset_in_request as usize;
        let work = match io.op {
            Op::Read | Op::Verify => {
                let buffer = task.medium.clone().expect("set aside when the command came");
                Work::Read { buffer, at }
            }
            Op::Write => {
                let buffer = task.data.clone().expect("a write has its data before it starts");
                let repeats = matches!(task.media.op, MediaOp::WriteSame { .. });
                Work::Write { buffer, at: if repeats { 0 } else { at }, durable: io.fua }
            }
            Op::Flush => Work::Sync,
            Op::Discard => Work::Discard,
            Op::WriteZeroes => Work::Zero,
        };
        let index = io.volume.index();
        let flushes = matches!(work, Work::Sync);
        let promises = flushes || io.fua;
        let volume = &mut self.volumes[index];
        if promises && volume.lost {
            self.inbox.push_back(Input::Stored { key: io.key, outcome: Err(IoError::Medium) });
            return;
        }
        if flushes && std::mem::replace(&mut volume.flushing, true) {
            // One at a time: of two, the kernel may tell the error of both to only one.
            volume.flush_waits.push(io.key);
            return;
        }
        let Extent { offset, length } = io.extent;
        let promise = promises.then_some(index);
        let fd = self.backings[index].as_raw_fd();
        driver.submit(Io { key: io.key, fd, work, offset, length, promise });
    }

    /// The driver has ended an I/O.
    pub(crate) fn stored(&mut self, done: Done, driver: &mut dyn Driver) {
        let Done { key, result, flushed, promise } = done;
        let outcome = result.map_err(|problem| {
            if self.disk_errors.speaks() {
                warn!(%problem, errors_total = self.disk_errors.total(), "disk I/O failed");
            }
            tenant_error(&problem)
        });
        self.inbox.push_back(Input::Stored { key, outcome });
        let Some(index) = promise else { return };
        let volume = &mut self.volumes[index];
        // A write that found no space, or may not write, has lost nothing but itself.
        let breaks = outcome == Err(IoError::Medium) || flushed && outcome.is_err();
        if breaks && !std::mem::replace(&mut volume.lost, true) {
            // The kernel tells such an error once and then takes the lost data for written.
            error!(
                volume = volume.name,
                "acknowledged data may be lost: no flush of this volume succeeds from here on; \
                 check the storage behind it, then restart"
            );
        }
        if flushed {
            self.flushed(index, outcome, driver);
        }
    }

    /// A flush has ended: it was for all who shared it. Those who came meanwhile share the next.
    fn flushed(&mut self, index: usize, outcome: Outcome, driver: &mut dyn Driver) {
        let volume = &mut self.volumes[index];
        let shared = volume.flush_shared.drain(..);
        self.inbox.extend(shared.map(|key| Input::Stored { key, outcome }));
        volume.flushing = false;
        if volume.lost {
            let outcome = Err(IoError::Medium);
            let waiting = volume.flush_waits.drain(..);
            self.inbox.extend(waiting.map(|key| Input::Stored { key, outcome }));
            return;
        }
        let Some(key) = volume.flush_waits.pop() else { return };
        std::mem::swap(&mut volume.flush_waits, &mut volume.flush_shared);
        volume.flushing = true;
        let fd = self.backings[index].as_raw_fd();
        let promise = Some(index);
        driver.submit(Io { key, fd, work: Work::Sync, offset: 0, length: 0, promise });
    }

    /// Performs a transfer action: a request has ended, and its reply may leave.
    pub(crate) fn reply(
        &mut self,
        connections: &mut [Option<Box<Connection>>],
        key: RequestKey,
        tag: Tag,
        outcome: Outcome,
    ) {
        let end = match outcome {
            Ok(()) => End::Good,
            Err(error) => End::Failed(error),
        };
        if self.count_down(TaskKey::of(tag), end) {
            self.answer(connections, TaskKey::of(tag), Some(key));
        } else {
            self.inbox.push_back(Input::Sent { key });
        }
    }

    /// Performs a refuse action.
    pub(crate) fn refuse(&mut self, connections: &mut [Option<Box<Connection>>], tag: Tag) {
        if self.count_down(TaskKey::of(tag), End::Full) {
            self.answer(connections, TaskKey::of(tag), None);
        }
    }

    /// One request of a command has ended; true if it was the last.
    fn count_down(&mut self, key: TaskKey, how: End) -> bool {
        let task = &mut self.tasks[key];
        let Phase::Flowing { left, end } = &mut task.phase else {
            unreachable!("a command without requests has none that end")
        };
        *left -= 1;
        *end = end.and(how);
        *left == 0
    }

    /// Writes the reply of a command to its connection. `request` is the pipeline's request that is
    /// over when the reply has left.
    pub(crate) fn answer(
        &mut self,
        connections: &mut [Option<Box<Connection>>],
        key: TaskKey,
        request: Option<RequestKey>,
    ) {
        let (id, itt) = (self.tasks[key].connection, self.tasks[key].itt);
        let connection =
            id.and_then(|id| connections.get_mut(id.index)?.as_deref_mut().filter(|c| c.id == id));
        let Some(connection) = connection else {
            self.inbox.extend(request.map(|key| Input::Sent { key }));
            self.finish(key);
            return;
        };
        self.errands.push_back(Errand::Write(connection.id));
        self.put_reply(&mut connection.wire, key);
        if let Some(request) = request {
            self.tasks[key].phase = Phase::Replying(request);
        } else {
            // A refusal carries no data, so its buffers are free at once.
            connection.tasks.remove(&itt);
            self.finish(key);
        }
    }

    /// Puts the reply into the outbox.
    pub(crate) fn put_reply(&self, wire: &mut Wire, key: TaskKey) {
        let task = &self.tasks[key];
        let block = self.volumes[task.volume].block_size();
        let Phase::Flowing { end, .. } = task.phase else {
            unreachable!("only what has flowed is answered")
        };
        let moved = (task.media.data_out_length(block) + task.media.data_in_length(block)) as u32;
        match end {
            End::Full => wire.respond(task.itt, ScsiStatus::TaskSetFull, None, 0),
            End::Failed(error) => {
                let sense = sense_of(error, &task.media);
                wire.respond(task.itt, ScsiStatus::CheckCondition, Some(&sense), 0);
            }
            End::Good => match (task.media.op, &task.medium) {
                (MediaOp::Read, Some(medium)) => {
                    let payload = Payload::Pooled(medium.clone());
                    wire.respond_data(task.itt, payload, 0..moved as usize, moved);
                }
                (MediaOp::Verify(compare), Some(medium)) => {
                    let wanted =
                        task.data.as_deref().map(|d| &d.bytes()[..task.data_length as usize]);
                    match miscompare(compare, wanted, medium, &task.media, block) {
                        None => wire.respond(task.itt, ScsiStatus::Good, None, moved),
                        Some(at) => {
                            let sense = Sense::MISCOMPARE.with_information(at);
                            wire.respond(task.itt, ScsiStatus::CheckCondition, Some(&sense), moved);
                        }
                    }
                }
                _ => wire.respond(task.itt, ScsiStatus::Good, None, moved),
            },
        }
    }

    /// The last byte of a reply has left.
    pub(crate) fn sent(&mut self, connection: &mut Connection, itt: Itt) {
        // Replies that never went through the pipeline have no task.
        let Some(&key) = connection.tasks.get(&itt) else { return };
        let Phase::Replying(request) = self.tasks[key].phase else { return };
        connection.tasks.remove(&itt);
        self.inbox.push_back(Input::Sent { key: request });
        self.finish(key);
    }

    /// Forgets a command and tells whoever waits for its end. Its buffers must not be in an outbox.
    pub(crate) fn finish(&mut self, key: TaskKey) {
        let task = self.tasks.remove(key).expect("a command ends once");
        if let Some(held) = self.held.get_mut(&task.owner) {
            *held -= task.held;
        }
        for buffer in [task.data, task.medium].into_iter().flatten() {
            self.pool.give(buffer);
        }
        for waiting in task.awaited_by {
            self.one_less(waiting);
        }
    }

    /// A connection is gone. What it has in the pipeline goes on; nobody hears of its end.
    pub(crate) fn disconnected(&mut self, connection: Connection, reason: &str) {
        let Connection { id, peer, wire, tasks, .. } = connection;
        if wire.tsih() != 0 {
            info!(%peer, initiator = wire.initiator(), tsih = wire.tsih(), reason, "session ended");
        } else {
            info!(%peer, reason, "connection closed before login");
        }
        self.sessions.leave(id);
        self.held.remove(&id.serial);
        self.errands.push_back(Errand::Share);
        self.forget_managing(id);
        // The outbox holds references to reply buffers.
        drop(wire);
        for key in tasks.into_values() {
            let Some(task) = self.tasks.get_mut(key) else { continue };
            match task.phase {
                Phase::Gathering => self.finish(key),
                Phase::Flowing { .. } => task.connection = None,
                Phase::Replying(request) => {
                    self.inbox.push_back(Input::Sent { key: request });
                    self.finish(key);
                }
            }
        }
    }
}

/// Why a command is answered without a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// It is wrong.
    Wrong(Sense),
    /// There is no memory for it now; the host may try again.
    Full,
}

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Self {
        Self::Wrong(sense)
    }
}

/// The sense data for a failed command.
fn sense_of(error: IoError, media: &Media) -> Sense {
    let SenseTriple { key, asc, ascq } = error.sense(media.is_write());
    let key = match key {
        0x3 => SenseKey::MediumError,
        0x4 => SenseKey::HardwareError,
        0x5 => SenseKey::IllegalRequest,
        0x7 => SenseKey::DataProtect,
        _ => unreachable!("the table of errors has no other key"),
    };
    Sense::new(key, asc, ascq)
}

/// The offset of the first byte that differs, if any does.
fn miscompare(
    compare: Compare,
    wanted: Option<&[u8]>,
    medium: &Shared,
    media: &Media,
    block: u32,
) -> Option<u64> {
    let length = (media.blocks * u64::from(block)) as usize;
    let found = &medium.bytes()[..length];
    let period = match compare {
        Compare::Nothing => return None,
        Compare::Blocks => length,
        Compare::OneBlock => block as usize,
    };
    let wanted = &wanted?[..period];
    let parts = found.chunks_exact(period).enumerate();
    parts.filter(|(_, part)| *part != wanted).find_map(|(index, part)| {
        let at = part.iter().zip(wanted).position(|(a, b)| a != b)?;
        Some((index * period + at) as u64)
    })
}

/// Payload memory that one session leaves to the others, in bytes: two of the largest buffers, which
/// one VERIFY takes.
const SPARE: u64 = 2 * LARGEST as u64;

/// The one portal group of a gateway.
pub(crate) const PORTAL_GROUP: u16 = 1;

/// Requests are cut into pieces of this many bytes, so that a large one lets others in between.
pub(crate) const PIECE: u64 = 1 << 20;

const _: () = assert!(LARGEST as u64 >= PIECE, "a pattern buffer holds a whole piece");

#[cfg(test)]
mod tests;
