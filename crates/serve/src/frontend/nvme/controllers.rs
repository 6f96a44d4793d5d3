//! The controllers: which host has which, their queues, their keep alive timers, and how they end.
//!
//! A controller lives as long as the connection of its admin queue. What its commands have in the pipeline outlives
//! it: a reset or a shutdown is complete only when that has ended, and expiry waits for nothing, since the order of the
//! pipeline makes every later overlapping write wait for it.

use crate::frontend::nvme::LEAVES;
use crate::frontend::nvme_namespaces::{Namespaces, admitted};
use crate::frontend::nvme_queue::{Ended, Queue};
use crate::frontend::nvme_streams::Hosts;
use crate::ids::ConnectionId;
use crate::tasks::set::Origin;
use crate::tasks::table::{Retries, Task, TaskKind};
use crate::tasks::{CommandEngine, ConnectionAction, Held};
use crate::volume::catalog::Catalog;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration as WireTime;
use tracing::{info, warn};
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::LinkId;
use weir_wire::nvme::controller::{NOT_ABORTED, Subsystem, Transition};
use weir_wire::nvme::discovery::{self, Entry as DiscoveryEntry, Generation, Kind};
use weir_wire::nvme::reservation::Notice;
use weir_wire::nvme::{Completion, Connect, ConnectRefusal, Controller, Limits};
use weir_wire::scsi::cdb::{Media, MediaOp};
use weir_wire::scsi::nexus::HostId;

/// All controllers.
pub(crate) struct Controllers {
    pub(super) limits: Limits,
    by_id: BTreeMap<u16, Entry>,
    /// The identifier that was given last; they come round after 65519 controllers.
    last_id: u16,
    generation: Generation,
    /// Volumes that are withdrawn, as hosts know.
    withdrawn: BTreeSet<usize>,
    /// No keep alive timer expires before this time.
    next_expiry: Instant,
    /// Connections whose Connect waits for the end of an older connection of this queue of this controller.
    connecting: Vec<(u16, u16, ConnectionId)>,
    /// The hosts that are streams.
    hosts: Hosts,
}

/// A controller and its connections.
pub(super) struct Entry {
    pub(super) controller: Controller,
    pub(super) admin: ConnectionId,
    /// The address that its host came to.
    local: Option<SocketAddr>,
    /// The connections of its I/O queues.
    queues: BTreeMap<u16, ConnectionId>,
    /// Serial numbers of connections that have ended with commands in the pipeline.
    past: Vec<u64>,
    pub(super) namespaces: Rc<Namespaces>,
    ending: Ending,
}

/// How far a reset or a shutdown has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Neither was asked for, or it is complete.
    No,
    /// What its commands have in the pipeline ends first.
    Draining { flush: bool },
    /// Its namespaces are flushed.
    Flushing,
}

impl Controllers {
    /// None yet.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            by_id: BTreeMap::new(),
            last_id: 0,
            generation: Generation::default(),
            withdrawn: BTreeSet::new(),
            next_expiry: Instant::ZERO,
            connecting: Vec::new(),
            hosts: Hosts::default(),
        }
    }

    pub(super) fn get_mut(&mut self, id: u16) -> Option<&mut Entry> {
        self.by_id.get_mut(&id)
    }

    /// The identifiers of the controllers of a subsystem.
    pub(super) fn of_subsystem(&self, nqn: &str) -> Vec<u16> {
        let of =
            |(&id, entry): (&u16, &Entry)| (entry.controller.subsystem().nqn == nqn).then_some(id);
        self.by_id.iter().filter_map(of).collect()
    }

    /// Makes a controller for the Connect of an admin queue: its identifier, and what its host sees.
    pub(super) fn admit_admin(
        &mut self,
        engine: &CommandEngine,
        connection: ConnectionId,
        connect: &Connect,
        local: Option<SocketAddr>,
    ) -> Result<(u16, Rc<Namespaces>), ConnectRefusal> {
        let nvme = &engine.catalog.nvme;
        let namespaces = if connect.subsystem == discovery::NQN {
            Namespaces::default()
        } else {
            if !nvme.subsystems.iter().any(|one| one.name == connect.subsystem) {
                return Err(ConnectRefusal::Subsystem);
            }
            let found = admitted(nvme, &connect.subsystem, &connect.host);
            Namespaces::of(
                &engine.catalog,
                found.ok_or(ConnectRefusal::Host)?,
                &connect.host,
                local,
            )
        };
        if self.by_id.len() >= CONTROLLERS_MAX {
            return Err(ConnectRefusal::Busy);
        }
        loop {
            self.last_id = self.last_id % ID_MAX + 1;
            if !self.by_id.contains_key(&self.last_id) {
                break;
            }
        }
        let subsystem = Subsystem {
            nqn: connect.subsystem.clone(),
            serial: engine.catalog.serial_of(&connect.subsystem),
            revision: env!("CARGO_PKG_VERSION").to_owned(),
            quiesce_ms: (nvme.quiesce.as_nanos() / 1_000_000).min(u16::MAX.into()) as u16,
        };
        let now = engine.set.now;
        let (id, limits, namespaces) = (self.last_id, self.limits, Rc::new(namespaces));
        let entry = Entry {
            controller: Controller::new(id, Arc::new(subsystem), limits, connect, wire_time(now)),
            admin: connection,
            local,
            queues: BTreeMap::new(),
            past: Vec::new(),
            namespaces: namespaces.clone(),
            ending: Ending::No,
        };
        self.by_id.insert(id, entry);
        Ok((id, namespaces))
    }

    /// Connects an I/O queue to its controller. `None`: an older connection of the queue has not ended.
    pub(super) fn admit_io(
        &mut self,
        connection: ConnectionId,
        connect: &Connect,
    ) -> Option<Result<Rc<Namespaces>, ConnectRefusal>> {
        // It waits for one queue at most, however often its host tries.
        self.connecting.retain(|&(.., waiting)| waiting != connection);
        let Some(entry) = self.by_id.get_mut(&connect.controller) else {
            return Some(Err(ConnectRefusal::Controller));
        };
        let controller = &entry.controller;
        let refusal =
            if controller.subsystem().nqn != connect.subsystem || controller.is_discovery() {
                Some(ConnectRefusal::Controller)
            } else if controller.host() != connect.host {
                Some(ConnectRefusal::HostName)
            } else if *controller.host_id() != connect.host_id {
                Some(ConnectRefusal::HostId)
            } else if !controller.takes_queues() {
                Some(ConnectRefusal::Sequence)
            } else {
                None
            };
        if let Some(refusal) = refusal {
            return Some(Err(refusal));
        }
        if entry.queues.contains_key(&connect.queue) {
            self.connecting.push((connect.controller, connect.queue, connection));
            return None;
        }
        entry.queues.insert(connect.queue, connection);
        Some(Ok(entry.namespaces.clone()))
    }

    /// Finds out what stream within its tenant a connected queue is a part of, and tells the pipeline.
    pub(crate) fn assign(&mut self, engine: &mut CommandEngine, link: LinkId, queue: &mut Queue) {
        let changes = self.hosts.assign(&engine.catalog.nvme, link, queue);
        engine.set.inputs.extend(changes);
    }

    /// A queue that was admitted was refused after all.
    pub(super) fn forget_queue(&mut self, id: u16, queue: u16) {
        if let Some(entry) = self.by_id.get_mut(&id) {
            entry.queues.remove(&queue);
        }
    }

    /// A command of a queue has ended by itself: the Aborts that have waited for it are answered.
    pub(super) fn ended(&mut self, engine: &mut CommandEngine, queue: &Queue, slot: u32) {
        let entry = queue.controller.and_then(|id| self.by_id.get_mut(&id));
        if let Some((entry, number)) = entry.zip(queue.wire.queue()) {
            let aborts = entry.controller.ended(number, slot);
            engine.set.actions.extend(not_aborted(entry.admin, aborts));
        }
    }

    /// A connection has ended.
    pub(crate) fn left(&mut self, engine: &mut CommandEngine, id: ConnectionId, ended: Ended) {
        engine.set.memory.give_back(ended.reserved);
        engine.set.inputs.extend(ended.stream.map(|member| self.hosts.leave(member)));
        self.connecting.retain(|&(.., waiting)| waiting != id);
        let Some(controller) = ended.controller else { return };
        let Some(entry) = self.by_id.get_mut(&controller) else { return };
        if entry.admin == id {
            let close =
                |&id: &ConnectionId| ConnectionAction::Close(id, "its controller has ended");
            engine.set.actions.extend(entry.queues.values().map(close));
            self.by_id.remove(&controller);
            return;
        }
        let number = ended.number;
        if entry.queues.get(&number) == Some(&id) {
            let aborts = entry.controller.queue_ended(number);
            engine.set.actions.extend(not_aborted(entry.admin, aborts));
            entry.queues.remove(&number);
            entry.past.push(id.serial);
            let owners: BTreeSet<u64> =
                engine.set.tasks.values().map(|task| task.charge.owner).collect();
            entry.past.retain(|serial| owners.contains(serial));
        }
        for &(of, its_queue, waiting) in &self.connecting {
            if (of, its_queue) == (controller, number) {
                engine.set.actions.push_back(ConnectionAction::Feed(waiting));
            }
        }
        self.connecting.retain(|&(of, its_queue, _)| (of, its_queue) != (controller, number));
    }

    /// Tells the controllers of a host that its registration or the reservation of a volume has changed. Returns the
    /// connections of their admin queues.
    pub(crate) fn notice(
        &mut self,
        host: &HostId,
        volume: usize,
        notice: Notice,
    ) -> Vec<ConnectionId> {
        let mut told = Vec::new();
        for entry in self.by_id.values_mut().filter(|one| one.controller.host_id() == host) {
            if let Some(nsid) = entry.namespaces.nsid_of(volume) {
                entry.controller.reservation_notice(nsid, notice);
                told.push(entry.admin);
            }
        }
        told
    }

    /// Begins a reset or a shutdown.
    pub(super) fn begin(&mut self, engine: &mut CommandEngine, id: u16, transition: Transition) {
        let Some(entry) = self.by_id.get_mut(&id) else { return };
        let (flush, reason) = match transition {
            Transition::Enabled => return,
            Transition::Reset => (false, "its controller was reset"),
            Transition::Shutdown => (true, "its controller was shut down"),
        };
        let close = |&id: &ConnectionId| ConnectionAction::Close(id, reason);
        engine.set.actions.extend(entry.queues.values().map(close));
        entry.ending = Ending::Draining { flush };
    }

    /// Continues a reset or a shutdown as far as it can go now.
    pub(super) fn advance(&mut self, engine: &mut CommandEngine, id: u16) {
        let Some(entry) = self.by_id.get_mut(&id) else { return };
        if entry.ending == Ending::No || !entry.queues.is_empty() || entry.has_tasks(engine) {
            return;
        }
        if entry.ending == (Ending::Draining { flush: true }) {
            entry.ending = Ending::Flushing;
            for (name, &volume) in (LEAVES..).zip(&entry.namespaces.volumes) {
                flush(engine, entry.admin, name, volume);
            }
            if entry.has_tasks(engine) {
                return;
            }
        }
        entry.ending = Ending::No;
        entry.controller.quiesced();
    }

    /// Continues every reset and shutdown.
    pub(crate) fn tick(&mut self, engine: &mut CommandEngine) {
        let ending = |(&id, entry): (&u16, &Entry)| (entry.ending != Ending::No).then_some(id);
        for id in self.by_id.iter().filter_map(ending).collect::<Vec<_>>() {
            self.advance(engine, id);
        }
    }

    /// Whether a keep alive timer may have expired.
    pub(crate) fn may_expire(&self, now: Instant) -> bool {
        now >= self.next_expiry && !self.by_id.is_empty()
    }

    /// Ends the controllers whose hosts were silent for too long. `queues`: all connections.
    pub(crate) fn expire<'a>(
        &mut self,
        engine: &mut CommandEngine,
        queues: impl Iterator<Item = &'a Queue>,
    ) {
        let now = engine.set.now;
        let mut heard: BTreeMap<u16, Instant> = BTreeMap::new();
        for queue in queues {
            if let Some(id) = queue.controller {
                let latest = heard.entry(id).or_default();
                *latest = queue.heard.max(*latest);
            }
        }
        let mut next = now + EXPIRY_MAX;
        for (&id, entry) in &mut self.by_id {
            let latest = heard.get(&id).copied().unwrap_or_default();
            let discovers =
                entry.controller.is_discovery() && entry.controller.deadline().is_none();
            if discovers {
                next = next.min(latest + DISCOVERY_SILENCE);
                if now.saturating_since(latest) >= DISCOVERY_SILENCE {
                    let reason = "an idle discovery controller";
                    engine.set.actions.push_back(ConnectionAction::Close(entry.admin, reason));
                }
                continue;
            }
            entry.controller.heard(wire_time(latest));
            if entry.controller.expires(wire_time(now)) {
                let silence = now.saturating_since(latest);
                let host = entry.controller.host().escape_debug();
                let outstanding = entry.outstanding(engine);
                warn!(
                    %host, controller = id, %silence, outstanding,
                    "NVMe host is silent: its keep alive timer has expired"
                );
                let expired = "its keep alive timer has expired";
                let ids = entry.queues.values().copied().chain([entry.admin]);
                engine.set.actions.extend(ids.map(|id| ConnectionAction::Close(id, expired)));
            } else if let Some(at) = entry.controller.deadline() {
                next = next.min(Instant::from_nanos(at.as_nanos() as u64));
            }
        }
        self.next_expiry = next;
    }

    /// Whether volumes were withdrawn, or have come back, since hosts were told last.
    pub(crate) fn access_changed(&mut self, catalog: &Catalog) -> bool {
        let withdrawn = catalog.volumes.iter().enumerate();
        let withdrawn: BTreeSet<usize> =
            withdrawn.filter(|(_, volume)| volume.unit.is_withdrawn()).map(|(at, _)| at).collect();
        let changed = withdrawn != self.withdrawn;
        self.withdrawn = withdrawn;
        changed
    }

    /// Looks at the configuration and the volumes again: raises events, and ends the controllers of hosts that may not
    /// see their subsystem any more. Returns the namespaces of each controller.
    pub(crate) fn refresh(&mut self, engine: &mut CommandEngine) -> BTreeMap<u16, Rc<Namespaces>> {
        let (catalog, nvme) = (&engine.catalog, engine.catalog.nvme.clone());
        self.generation.advance();
        let mut now = BTreeMap::new();
        for (&id, entry) in &mut self.by_id {
            let controller = &mut entry.controller;
            if controller.is_discovery() {
                controller.discovery_changed();
                continue;
            }
            let nqn = controller.subsystem().nqn.clone();
            let Some(subsystem) = admitted(&nvme, &nqn, controller.host()) else {
                let host = controller.host().escape_debug();
                info!(%host, controller = id, subsystem = nqn, "NVMe host no longer authorised");
                let gone = ConnectionAction::Close(entry.admin, "no longer authorised");
                engine.set.actions.push_back(gone);
                // Until then nothing of it begins: its volumes may leave.
                now.insert(id, Rc::default());
                continue;
            };
            let seen = Namespaces::of(catalog, subsystem, controller.host(), entry.local);
            let nsids = seen.facts.iter().chain(&entry.namespaces.facts).map(|one| one.nsid);
            let mut ana_changed = false;
            for nsid in nsids.collect::<BTreeSet<u32>>() {
                let (old, new) = (entry.namespaces.get(nsid), seen.get(nsid));
                ana_changed |= old.map(|one| one.ana) != new.map(|one| one.ana);
                let facts =
                    |one: &weir_wire::nvme::Namespace| (one.blocks, one.read_only, one.nguid);
                if old.map(facts) != new.map(facts) {
                    controller.namespace_changed(nsid);
                }
            }
            if ana_changed {
                controller.ana_changed();
            }
            entry.namespaces = Rc::new(seen);
            now.insert(id, entry.namespaces.clone());
        }
        now
    }

    /// Makes the discovery page of a queue's host, unless it has that of this generation: however often the host reads
    /// it, its answers refer to one page.
    pub(super) fn renew_page(&self, catalog: &Catalog, queue: &mut Queue) {
        let generation = self.generation.get();
        if queue.page.as_ref().is_none_or(|&(of, _)| of != generation) {
            queue.page = Some((generation, self.page(catalog, &queue.host, &queue.portals)));
        }
    }

    /// The discovery page of a host that has reached the gateway at `portals`.
    fn page(&self, catalog: &Catalog, host: &str, portals: &[SocketAddr]) -> Arc<[u8]> {
        let nvme = &catalog.nvme;
        let portals = if nvme.advertise.is_empty() { portals } else { &nvme.advertise };
        let entry = |kind, subsystem: &str, (number, portal): (u16, &SocketAddr)| DiscoveryEntry {
            kind,
            subsystem: subsystem.to_owned(),
            address: portal.ip(),
            port: portal.port(),
            portal: number,
        };
        let first = (0..).zip(portals).take(1);
        let mut entries: Vec<_> =
            first.map(|portal| entry(Kind::Current, discovery::NQN, portal)).collect();
        for subsystem in &nvme.subsystems {
            if admitted(nvme, &subsystem.name, host).is_some() {
                let ways = (0..).zip(portals);
                entries.extend(ways.map(|way| entry(Kind::Subsystem, &subsystem.name, way)));
            }
        }
        discovery::page(&self.generation, &entries)
    }

    /// Answers the events that hosts have asked for, of the controller with this admin queue.
    pub(crate) fn give_events(&mut self, queue: &mut Queue) {
        let Some(entry) = queue.controller.and_then(|id| self.by_id.get_mut(&id)) else { return };
        if queue.wire.queue() != Some(0) {
            return;
        }
        while let Some((slot, dw0)) = entry.controller.take_event() {
            queue.wire.respond(slot, Completion::value(dw0));
        }
    }
}

/// Answers these Aborts: their commands have ended by themselves.
fn not_aborted(admin: ConnectionId, aborts: Vec<u32>) -> impl Iterator<Item = ConnectionAction> {
    let completion = Completion::value(NOT_ABORTED);
    aborts.into_iter().map(move |slot| ConnectionAction::Aborted(admin, slot, completion))
}

impl Entry {
    /// The connection of this I/O queue.
    pub(super) fn connection(&self, queue: u16) -> Option<ConnectionId> {
        self.queues.get(&queue).copied()
    }

    /// Commands that are in the pipeline, those of connections that have ended included.
    fn outstanding(&self, engine: &CommandEngine) -> usize {
        let open = self.queues.values().chain([&self.admin]).map(|id| id.serial);
        let owners: BTreeSet<u64> = open.chain(self.past.iter().copied()).collect();
        engine.set.tasks.values().filter(|task| owners.contains(&task.charge.owner)).count()
    }

    fn has_tasks(&self, engine: &CommandEngine) -> bool {
        self.outstanding(engine) > 0
    }
}

/// Flushes a volume for the shutdown of a controller.
pub(crate) fn flush(engine: &mut CommandEngine, admin: ConnectionId, name: u32, volume: usize) {
    let op = MediaOp::Synchronize { immediate: false };
    let media = Media { op, lba: 0, blocks: 0, fua: false, dpo: false };
    let task = Task::new(engine.set.now, volume, TaskKind::Media(media));
    let origin = Origin { connection: admin, claim: None, name, retries: Retries::Own };
    let tenant = engine.catalog.tenant(None, volume).index();
    if let Some(key) = engine.set.take_in(origin, tenant, Held { data: 0, medium: 0 }, task) {
        engine.begin(key, engine.set.link(key));
    }
}

/// A time as the state machines count it.
pub(super) const fn wire_time(at: Instant) -> WireTime {
    WireTime::from_nanos(at.as_nanos())
}

/// Controllers at once. For one more the gateway is busy.
const CONTROLLERS_MAX: usize = 1_024;

/// The greatest controller identifier.
const ID_MAX: u16 = 65_519;

/// A discovery controller without a keep alive timer ends after this silence.
const DISCOVERY_SILENCE: Duration = Duration::from_secs(120);

/// Keep alive timers are looked at again after this time at the latest.
const EXPIRY_MAX: Duration = Duration::from_secs(1);
