//! The controllers of NVMe hosts: their timers, their events, and what a reload changes for them.

use super::Connections;
use crate::frontend::connection::{Connection, Speech};
use crate::frontend::nvme::NvmeFrontend;
use crate::frontend::nvme_queue::Queue;
use crate::frontend::socket::Stream;
use crate::ids::ConnectionId;
use crate::tasks::{Abort, CommandEngine, ConnectionAction};
use weir_flow::clock::Instant;
use weir_wire::nvme::Completion;
use weir_wire::nvme::controller::NOT_ABORTED;
use weir_wire::nvme::reservation::Notice;
use weir_wire::scsi::Sense;
use weir_wire::scsi::nexus::Registrant;

impl<S: Stream> Connections<S> {
    /// Ends the controllers of hosts that were silent for too long, before anything that they have sent is read.
    pub(crate) fn expire(&mut self, engine: &mut CommandEngine, now: Instant) {
        if !self.controllers.may_expire(now) {
            return;
        }
        engine.set.now = now;
        let connections = self.places.iter().flatten().map(|one| &one.connection);
        self.controllers.expire(engine, connections.filter_map(queue_of));
        self.run_actions(engine, now);
    }

    /// Once a second: continues resets, and tells hosts which namespaces cannot be reached.
    pub(super) fn tick_nvme(&mut self, engine: &mut CommandEngine, now: Instant) {
        engine.set.now = now;
        self.controllers.tick(engine);
        for one in self.places.iter_mut().flatten() {
            if let Speech::Nvme(queue) = &mut one.connection.speech {
                queue.watch(now);
            }
        }
        let late = self.all().filter(|one| queue_of(one).is_some_and(|queue| queue.is_late(now)));
        let late: Vec<_> = late.map(|one| ConnectionAction::Feed(one.id)).collect();
        engine.set.actions.extend(late);
        if self.controllers.access_changed(&engine.catalog) {
            self.refresh_namespaces(engine);
        }
    }

    /// Does an Abort of a command of an I/O queue.
    pub(super) fn abort(&mut self, engine: &mut CommandEngine, now: Instant, abort: Abort) {
        engine.set.now = now;
        let place = self.places.get_mut(abort.queue.index).and_then(Option::as_deref_mut);
        let completion = match place.filter(|one| one.connection.id == abort.queue) {
            Some(one) => NvmeFrontend { engine: &mut *engine, controllers: &mut self.controllers }
                .abort_here(&mut one.connection, abort),
            None => Some(Completion::value(NOT_ABORTED)),
        };
        self.mark_dirty(abort.queue);
        let answer = |completion| ConnectionAction::Aborted(abort.admin, abort.slot, completion);
        engine.set.actions.extend(completion.map(answer));
    }

    /// Another host has ended this command by Preempt and Abort; for the host of the queue it is over.
    pub(super) fn preempted(&mut self, engine: &mut CommandEngine, id: ConnectionId, slot: u32) {
        let place = self.places.get_mut(id.index).and_then(Option::as_deref_mut);
        if let Some(one) = place.filter(|one| one.connection.id == id)
            && let Speech::Nvme(queue) = &mut one.connection.speech
        {
            NvmeFrontend { engine, controllers: &mut self.controllers }.preempted(queue, slot);
        }
    }

    /// Another host has ended the commands of this queue for a volume: ends those that have no task.
    pub(super) fn preempt(&mut self, engine: &mut CommandEngine, id: ConnectionId, volume: usize) {
        let place = self.places.get_mut(id.index).and_then(Option::as_deref_mut);
        if let Some(one) = place.filter(|one| one.connection.id == id)
            && let Speech::Nvme(queue) = &mut one.connection.speech
        {
            NvmeFrontend { engine, controllers: &mut self.controllers }.preempt(queue, volume);
            self.mark_dirty(id);
        }
    }

    /// Tells a registrant what has happened to its registration or reservation.
    pub(super) fn tell(
        &mut self,
        engine: &mut CommandEngine,
        who: &Registrant,
        volume: usize,
        attention: Sense,
    ) {
        match who {
            Registrant::Scsi(nexus) => {
                let id = engine.set.sessions.find(nexus);
                if let Some(view) = id.and_then(|id| self.find(id)?.view.as_mut()) {
                    view.attend(volume, attention);
                }
            }
            Registrant::Nvme(host) => {
                let Some(notice) = Notice::of(attention) else { return };
                for id in self.controllers.notice(host, volume, notice) {
                    let place = self.places.get_mut(id.index).and_then(Option::as_deref_mut);
                    if let Some(one) = place.filter(|one| one.connection.id == id)
                        && let Speech::Nvme(queue) = &mut one.connection.speech
                    {
                        self.controllers.give_events(queue);
                        self.mark_dirty(id);
                    }
                }
            }
        }
    }

    /// Shows all NVMe hosts which namespaces there are now, and tells them what has changed.
    pub(super) fn refresh_namespaces(&mut self, engine: &mut CommandEngine) {
        let seen = self.controllers.refresh(engine);
        for one in self.places.iter_mut().flatten() {
            let (id, link) = (one.connection.id, one.connection.link());
            let Speech::Nvme(queue) = &mut one.connection.speech else { continue };
            if queue.controller.is_some() {
                self.controllers.assign(engine, link, queue);
            }
            if let Some(namespaces) = queue.controller.and_then(|id| seen.get(&id)) {
                let controllers = &mut self.controllers;
                NvmeFrontend { engine: &mut *engine, controllers }.see(queue, namespaces);
            }
            self.controllers.give_events(queue);
            engine.set.actions.push_back(ConnectionAction::Write(id));
        }
    }
}

fn queue_of(connection: &Connection) -> Option<&Queue> {
    match &connection.speech {
        Speech::Nvme(queue) => Some(queue),
        Speech::Iscsi(_) | Speech::Nbd(_) => None,
    }
}
