//! Task management functions, which are answered when every task that they concern has ended.
//!
//! An aborted write that was submitted to the device is still executed. If the host got the response
//! before that, its next write to the same bytes could be overtaken. So a function marks its tasks,
//! whose replies are then discarded, and is answered when the last of them is over. The same holds
//! for PERSISTENT RESERVE OUT with PREEMPT AND ABORT.

use crate::ids::{ConnectionId, ManagementKey, TaskKey};
use crate::tasks::set::RESET;
use crate::tasks::table::Phase;
use crate::tasks::waiters::Waiter;
use crate::tasks::{CommandEngine, ConnectionAction};
use weir_wire::iscsi::target_role::{Itt, TaskFunction};
use weir_wire::scsi::Sense;

/// A task management function that a session has asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ManagementRequest<'a> {
    pub(crate) connection: ConnectionId,
    /// What it is called there.
    pub(crate) itt: Itt,
    pub(crate) function: TaskFunction,
    /// The task to abort, of a function that names one.
    pub(crate) referenced: Itt,
    /// The volumes that it concerns. A volume may be a unit of several targets: what concerns the unit
    /// concerns them all.
    pub(crate) volumes: &'a [usize],
    /// Index of the session's target.
    pub(crate) target: usize,
}

impl CommandEngine {
    /// Begins a task management function: aborts the tasks of `connection` and others that it concerns,
    /// and answers it when the last of them has ended. `unsent` is called with each task of the
    /// connection whose reply has not begun.
    pub(crate) fn manage(
        &mut self,
        request: &ManagementRequest<'_>,
        mut unsent: impl FnMut(u32),
    ) -> Option<Sense> {
        let &ManagementRequest { connection: id, itt, function, referenced, volumes, target } =
            request;
        let victims: Vec<TaskKey> = self
            .set
            .tasks
            .iter()
            .filter(|(_, task)| {
                let ours = task.connection == Some(id);
                let here = volumes.contains(&task.volume);
                let of_scsi = task.job.is_none()
                    && task.connection.is_none_or(|id| self.set.sessions.has_connection(id));
                match function {
                    TaskFunction::AbortTask => ours && task.name == referenced.0,
                    TaskFunction::AbortTaskSet => ours && here,
                    _ => here && of_scsi,
                }
            })
            .map(|(key, _)| key)
            .collect();
        let closes = function == TaskFunction::TargetColdReset;
        let waiter = Waiter::Function { connection: id, itt, closes };
        let managing = self.set.waiters.add(waiter);
        for key in victims {
            let task = &self.set.tasks[key];
            if task.connection == Some(id) && !matches!(task.phase, Phase::Replying(_)) {
                // At once, so that whatever comes for it right behind finds nothing.
                unsent(task.name);
            }
            self.abort(key, managing);
        }
        let attention = match function {
            // SAM-5, 7.3: a session that loses commands to another one gets a unit attention.
            TaskFunction::ClearTaskSet => Some(Sense::COMMANDS_CLEARED),
            TaskFunction::AbortTask | TaskFunction::AbortTaskSet => None,
            _ => Some(Sense::BUS_DEVICE_RESET),
        };
        let resets = attention.is_some() && function != TaskFunction::ClearTaskSet;
        if let Some(attention) = attention {
            for &volume in volumes {
                if resets {
                    self.catalog.volumes[volume].unit.reset();
                }
                self.set.actions.push_back(ConnectionAction::Attention(
                    Some(id),
                    volume,
                    attention,
                ));
            }
        }
        if closes {
            let all = self.set.sessions.with_target(target);
            // Its own session last, when it has been answered.
            let others = all.filter(|&other| other != id);
            self.set.actions.extend(others.map(|other| ConnectionAction::Close(other, RESET)));
        }
        // The function itself was counted, so that it cannot end while its tasks are being marked.
        self.set.one_less(managing);
        attention.filter(|_| resets)
    }

    /// Ends one task without a reply, now or when it has left the pipeline.
    pub(crate) fn abort(&mut self, key: TaskKey, by: ManagementKey) {
        let task = &mut self.set.tasks[key];
        if let Phase::Replying(_) = task.phase {
            // Its reply is on the wire; for the host it is over. If more of that is to
            // come, the answer to the function comes behind it.
            if !task.reply.complete {
                task.awaited_by.push(by);
                self.set.waiters.one_more(by);
            }
            return;
        }
        if let Some(owner) = task.connection.take() {
            self.set.actions.push_back(ConnectionAction::Abandon(owner, Itt(task.name), key));
        }
        if task.phase == Phase::Gathering || self.jobs.disown(key) {
            self.set.finish(key);
            return;
        }
        let task = &mut self.set.tasks[key];
        task.awaited_by.push(by);
        self.set.waiters.one_more(by);
    }
}
