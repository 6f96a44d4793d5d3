//! Commands of I/O queues that have no task: those that wait for memory, and those whose list or keys have not come whole.
//! What ends the tasks of a volume must end these as well.

use super::{NvmeFrontend, reply};
use crate::frontend::nvme_namespaces::Namespaces;
use crate::frontend::nvme_part::Part;
use crate::frontend::nvme_queue::Queue;
use std::collections::VecDeque;
use std::rc::Rc;
use weir_wire::nvme::{Completion, Status};

impl NvmeFrontend<'_> {
    /// Another host has ended the commands of this queue for a volume by Preempt and Abort.
    pub(crate) fn preempt(&mut self, queue: &mut Queue, volume: usize) {
        let seen = queue.namespaces.clone();
        let is_behind = |nsid| seen.volume_of(nsid) == Some(volume);
        self.end_without_tasks(queue, Status::PREEMPTED, |of| of == volume, is_behind);
    }

    /// The host of a queue sees these namespaces from now on. What it has asked of others is not done, nor of another
    /// volume that is a namespace in their place.
    pub(crate) fn see(&mut self, queue: &mut Queue, namespaces: &Rc<Namespaces>) {
        let old = std::mem::replace(&mut queue.namespaces, namespaces.clone());
        let is_gone = |volume| !namespaces.volumes.contains(&volume);
        let has_changed = |nsid| namespaces.volume_of(nsid) != old.volume_of(nsid);
        self.end_without_tasks(queue, Status::INVALID_NAMESPACE, is_gone, has_changed);
    }

    /// Ends the commands without a task for some of the volumes, or namespaces. One that is done in parts, and has one for
    /// such a volume to come, ends before that.
    fn end_without_tasks(
        &mut self,
        queue: &mut Queue,
        status: Status,
        of_volume: impl Fn(usize) -> bool,
        of_namespace: impl Fn(u32) -> bool,
    ) {
        let waiting = queue.waiting.iter().filter(|one| of_volume(one.part.volume));
        let gathering = queue.wire.gathering().filter(|&(_, nsid)| of_namespace(nsid));
        let waiting = waiting.map(|one| one.slot);
        let slots: Vec<u32> = waiting.chain(gathering.map(|(slot, _)| slot)).collect();
        queue.waiting.retain(|one| !of_volume(one.part.volume));
        for slot in slots {
            self.end(queue, slot, Completion::failed(status));
        }
        for rest in queue.rest.values_mut() {
            let ends = |parts: &VecDeque<Part>| parts.iter().any(|part| of_volume(part.volume));
            if rest.as_ref().is_ok_and(ends) {
                *rest = Err(status);
            }
        }
        reply::leave(queue);
    }
}
