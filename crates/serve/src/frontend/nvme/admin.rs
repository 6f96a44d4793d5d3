//! The admin queue: properties, admin commands and discovery.

use super::NvmeFrontend;
use crate::buffer::Payload;
use crate::frontend::nvme_queue::Queue;
use weir_wire::nvme::controller::{Action, Property, View};
use weir_wire::nvme::{Completion, Sqe, Status, Transfer, discovery};
use weir_wire::scsi::reservation::HostOut;

impl NvmeFrontend<'_> {
    /// Reads or writes a property.
    pub(super) fn property(&mut self, queue: &mut Queue, slot: u32, property: Property) {
        let Some(id) = queue.controller else { return };
        // A host that waits for the end of a reset asks for the status again and again.
        self.controllers.advance(self.engine, id);
        let Some(entry) = self.controllers.get_mut(id) else { return };
        let completion = match entry.controller.property(property) {
            Ok((value, transition)) => {
                if let Some(transition) = transition {
                    self.controllers.begin(self.engine, id, transition);
                }
                let (dw0, dw1) = (value as u32, (value >> 32) as u32);
                Completion { status: Status::SUCCESS, dw0, dw1 }
            }
            Err(status) => Completion::failed(status),
        };
        queue.wire.respond(slot, completion);
    }

    /// Handles an admin command. Returns what is to be done with the reservations of a volume.
    pub(super) fn admin(
        &mut self,
        queue: &mut Queue,
        slot: u32,
        sqe: &Sqe,
        transfer: Transfer,
    ) -> Option<(usize, HostOut)> {
        let id = queue.controller?;
        let siblings = self.controllers.of_subsystem(&queue.subsystem);
        if queue.subsystem == discovery::NQN {
            self.controllers.renew_page(&self.engine.catalog, queue);
        }
        let entry = self.controllers.get_mut(id)?;
        let namespaces = entry.namespaces.clone();
        let view = View {
            namespaces: &namespaces.facts,
            controllers: &siblings,
            discovery: queue.page.as_ref().map(|(_, page)| page),
        };
        let action = entry.controller.admin(slot, sqe, transfer, &view);
        if let Action::Persistence { nsid, set } = action {
            return self.persistence(queue, slot, namespaces.volume_of(nsid)?, set);
        }
        self.act(queue, slot, sqe, transfer, action);
        self.controllers.give_events(queue);
        None
    }

    /// The data of an admin command is here.
    pub(super) fn gathered(&mut self, queue: &mut Queue, slot: u32, sqe: &Sqe, data: &[u8]) {
        let Some(entry) = queue.controller.and_then(|id| self.controllers.get_mut(id)) else {
            return;
        };
        let action = entry.controller.gathered(sqe, data);
        self.act(queue, slot, sqe, Transfer::None, action);
    }

    fn act(&mut self, queue: &mut Queue, slot: u32, sqe: &Sqe, transfer: Transfer, action: Action) {
        match action {
            Action::Complete(completion) => queue.wire.respond(slot, completion),
            Action::Data { data, from } => {
                let due = transfer.to_host().unwrap_or(0) as usize;
                let end = data.len().min(from + due);
                queue.wire.respond_padded(slot, Payload::Page(data), from..end);
            }
            Action::Gather(length) => queue.wire.gather(slot, *sqe, length),
            Action::Persistence { .. } => unreachable!("it was taken before"),
            Action::Hold => {}
            Action::Abort { queue: number, cid } => self.abort(queue, slot, number, cid),
        }
    }
}
