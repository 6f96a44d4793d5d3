//! Reservation commands: they share the table of the volume with SCSI hosts.

use super::{NvmeFrontend, reply};
use crate::buffer::Payload;
use crate::frontend::connection::{Connection, Speech};
use crate::frontend::nvme_queue::Queue;
use crate::tasks::Held;
use crate::tasks::set::Origin;
use crate::tasks::table::{HostReserve, Retries, Task, TaskKind};
use std::rc::Rc;
use weir_wire::nvme::{Completion, Status};
use weir_wire::scsi::reservation::{HostAction, HostOut};

impl NvmeFrontend<'_> {
    /// Answers a Reservation Report.
    pub(super) fn report(&self, queue: &mut Queue, slot: u32, volume: usize) {
        let report = self.engine.catalog.volumes[volume].unit.reservations().host_report();
        let length = report.len();
        queue.wire.respond_padded(slot, Payload::Small(Rc::from(report)), 0..length);
    }

    /// Answers whether reservations outlive a loss of power, or returns what has them do so, or not.
    pub(super) fn persistence(
        &self,
        queue: &mut Queue,
        slot: u32,
        volume: usize,
        set: Option<bool>,
    ) -> Option<(usize, HostOut)> {
        if set.is_none() {
            let survives = self.engine.catalog.volumes[volume].unit.reservations().survives();
            queue.wire.respond(slot, Completion::value(survives.into()));
            return None;
        }
        let action = HostAction::Persist;
        Some((volume, HostOut { action, rtype: 0, ignores_key: false, persistence: set }))
    }

    /// Begins a change of reservations, whose keys are here.
    pub(super) fn reserve(
        &mut self,
        connection: &mut Connection,
        slot: u32,
        (volume, out): (usize, HostOut),
        keys: [u64; 2],
    ) {
        let (id, link) = (connection.id, connection.link());
        let Speech::Nvme(queue) = &mut connection.speech else { return };
        let asked = HostReserve { host: queue.host_id, out, keys };
        let task = Task::new(self.engine.set.now, volume, TaskKind::Reserve(asked));
        let tenant = self.engine.catalog.tenant(queue.claim, volume).index();
        let origin =
            Origin { connection: id, claim: queue.claim, name: slot, retries: Retries::Judged };
        match self.engine.set.take_in(origin, tenant, Held { data: 0, medium: 0 }, task) {
            Some(key) => {
                connection.tasks.insert(slot, key);
                self.engine.begin(key, link);
            }
            None => queue.wire.respond(slot, Completion::failed(Status::INTERRUPTED)),
        }
    }

    /// A Preempt and Abort has ended this command, and its host hears of it.
    pub(crate) fn preempted(&mut self, queue: &mut Queue, slot: u32) {
        self.end(queue, slot, Completion::failed(Status::PREEMPTED));
        reply::leave(queue);
    }
}
