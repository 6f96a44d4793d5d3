//! Abort: ends commands of I/O queues of which nothing can have taken effect, and waits for the end of others.

use super::{NvmeFrontend, reply};
use crate::frontend::connection::{Connection, Speech};
use crate::frontend::nvme_queue::Queue;
use crate::ids::TaskKey;
use crate::tasks::table::Phase;
use crate::tasks::{Abort, ConnectionAction};
use weir_wire::nvme::controller::NOT_ABORTED;
use weir_wire::nvme::{Completion, Status};

impl NvmeFrontend<'_> {
    /// Handles an Abort: one of a command of another queue goes to that queue's connection.
    pub(super) fn abort(&mut self, queue: &mut Queue, slot: u32, number: u16, cid: u16) {
        let entry = queue.controller.and_then(|id| self.controllers.get_mut(id));
        let mut completion = Completion::value(NOT_ABORTED);
        if let Some(entry) = entry {
            if let Some(of) = entry.connection(number) {
                let abort = Abort { queue: of, cid, admin: entry.admin, slot };
                self.engine.set.actions.push_back(ConnectionAction::Abort(abort));
                return;
            }
            // Of the admin queue only a held request for an event is there to be aborted.
            let held = queue.wire.find(cid).filter(|_| number == 0);
            if let Some(held) = held.filter(|&held| entry.controller.withdraw(held)) {
                queue.wire.respond(held, Completion::failed(Status::ABORTED_BY_REQUEST));
                completion = Completion::SUCCESS;
            }
        }
        queue.wire.respond(slot, completion);
    }

    /// Ends a command of this queue, if nothing of it can have taken effect. Returns how the Abort ends; `None` if it
    /// waits for the end of the command.
    pub(crate) fn abort_here(
        &mut self,
        connection: &mut Connection,
        abort: Abort,
    ) -> Option<Completion> {
        let not_aborted = Some(Completion::value(NOT_ABORTED));
        let Speech::Nvme(queue) = &mut connection.speech else { return not_aborted };
        let found = queue.wire.find(abort.cid).filter(|&slot| queue.leaving != Some(slot));
        let Some(slot) = found else { return not_aborted };
        let gathers = |key: TaskKey| self.engine.set.tasks[key].phase == Phase::Gathering;
        let lead = queue.fused.lead(slot);
        let key = connection.tasks.get(&lead).copied();
        if key.is_some_and(|key| self.engine.set.live(key, connection.id).is_none()) {
            // Another host has just ended it, and its answer is on the way.
            return not_aborted;
        }
        if key.is_some_and(|key| !gathers(key)) || queue.rest.contains_key(&slot) {
            let (number, id) = (queue.wire.queue()?, queue.controller?);
            let entry = self.controllers.get_mut(id)?;
            let waits = entry.controller.abort_waits(abort.slot, number, slot);
            return waits.err().map(Completion::failed);
        }
        queue.waiting.retain(|waiting| waiting.slot != lead);
        connection.tasks.remove(&lead);
        self.end(queue, slot, Completion::failed(Status::ABORTED_BY_REQUEST));
        if let Some(key) = key {
            self.engine.set.finish(key);
        }
        reply::leave(queue);
        Some(Completion::SUCCESS)
    }

    /// Answers a command, unless it is answered, and the Aborts that have waited for it. The other command of its pair ends
    /// with it.
    pub(super) fn end(&mut self, queue: &mut Queue, slot: u32, completion: Completion) {
        if !queue.wire.is_outstanding(slot) {
            return;
        }
        if let Some(other) = queue.fused.part(slot) {
            queue.waiting.retain(|waiting| waiting.slot != slot && waiting.slot != other);
            self.end(queue, other, Completion::failed(Status::ABORTED_FAILED_FUSED));
        }
        queue.rest.remove(&slot);
        queue.wire.respond(slot, completion);
        self.controllers.ended(self.engine, queue, slot);
    }
}
