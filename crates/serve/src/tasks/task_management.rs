//! Task management functions: the response waits until every task that they concern has ended.
//!
//! An aborted write that is already on its way to the device still lands. If the host were told
//! before that, its next write to the same bytes could be overtaken. So a function marks its tasks,
//! whose replies are then told to nobody, and is answered when the last of them is over. The same holds
//! for PERSISTENT RESERVE OUT with PREEMPT AND ABORT.

use crate::frontend::connection::Connection;
use crate::ids::{ConnectionId, ManagementKey, TaskKey};
use crate::tasks::table::Phase;
use crate::tasks::{Desk, Errand};
use tracing::info;
use weir_wire::iscsi::target_role::{Itt, TaskFunction, TmfResponse};
use weir_wire::scsi::Sense;

/// Something that waits for tasks to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Management {
    waiter: Waiter,
    /// Tasks that have not ended, and one more while they are being marked.
    pub(crate) left: u32,
}

/// Who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    /// A task management function.
    Function {
        /// Where it came from.
        connection: ConnectionId,
        /// What it is called there.
        itt: Itt,
        /// Its connection is closed when it has been answered.
        closes: bool,
    },
    /// A command, which is answered then.
    Task(TaskKey),
}

impl Management {
    /// For somebody who is about to mark tasks; ended by one
    /// [`one_less`](Desk::one_less) more than there are tasks.
    pub(crate) const fn new(waiter: Waiter) -> Self {
        Self { waiter, left: 1 }
    }
}

impl Desk {
    /// Begins a task management function of the connection.
    pub(crate) fn manage(
        &mut self,
        connection: &mut Connection,
        itt: Itt,
        function: TaskFunction,
        lun: u64,
        referenced: Itt,
    ) {
        let id = connection.id;
        let (peer, known) = (connection.peer.clone(), connection.tasks.contains_key(&referenced.0));
        let seat = connection.seat.take();
        let Some(wire) = connection.iscsi() else { return };
        let Some(seat) = seat else {
            wire.task_management_response(itt, TmfResponse::Rejected);
            return;
        };
        info!(%peer, initiator = wire.initiator(), ?function, lun, "task management");
        let unit = seat.unit(lun);
        let resets_target =
            matches!(function, TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset);
        let response = match function {
            _ if !resets_target && unit.is_none() => Some(TmfResponse::LunDoesNotExist),
            TaskFunction::ClearAca => Some(TmfResponse::NotSupported),
            TaskFunction::AbortTask if !known => Some(TmfResponse::TaskDoesNotExist),
            _ => None,
        };
        if let Some(response) = response {
            wire.task_management_response(itt, response);
            connection.seat = Some(seat);
            return;
        }
        // A volume may be a unit of several targets: what concerns the unit concerns them all. The
        // units that this host does not see are none of its business.
        let volumes: Vec<usize> = if resets_target {
            seat.units.iter().map(|seen| seen.volume).collect()
        } else {
            unit.map(|unit| seat.units[unit].volume).into_iter().collect()
        };
        let target = seat.target;
        connection.seat = Some(seat);
        let victims: Vec<TaskKey> = self
            .tasks
            .iter()
            .filter(|(_, task)| {
                let ours = task.connection == Some(id);
                let here = volumes.contains(&task.volume);
                let of_scsi = task.job.is_none()
                    && task.connection.is_none_or(|id| self.sessions.has_connection(id));
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
        let managing = self.managing.insert(Management::new(waiter));
        for key in victims {
            let ours = self.tasks[key].connection == Some(id);
            if ours && !matches!(self.tasks[key].phase, Phase::Replying(_)) {
                // At once, so that whatever comes for it right behind finds nothing.
                let name = self.tasks[key].name;
                connection.tasks.remove(&name);
                if let Some(wire) = connection.iscsi() {
                    wire.abandon(Itt(name));
                }
            }
            self.abort(key, managing);
        }
        let attention = match function {
            // SAM-5, 7.3: whoever loses commands to somebody else is told so.
            TaskFunction::ClearTaskSet => Some(Sense::COMMANDS_CLEARED),
            TaskFunction::AbortTask | TaskFunction::AbortTaskSet => None,
            _ => Some(Sense::BUS_DEVICE_RESET),
        };
        if let Some(attention) = attention {
            for &volume in &volumes {
                if function != TaskFunction::ClearTaskSet {
                    self.volumes[volume].unit.reset();
                    // At once, for the commands right behind this one.
                    if let Some(seat) = &mut connection.seat {
                        seat.attend(volume, attention);
                    }
                }
                self.errands.push_back(Errand::Attention(Some(id), volume, attention));
            }
        }
        if closes {
            let all = self.sessions.with_target(target);
            // Its own session last, when it has been answered.
            let others = all.filter(|&other| other != id);
            self.errands.extend(others.map(|other| Errand::Close(other, RESET)));
        }
        // The function itself was counted, so that it cannot end while its tasks are being marked.
        self.one_less(managing);
    }

    /// Ends one task without a reply, now or when the pipeline lets go of it.
    pub(crate) fn abort(&mut self, key: TaskKey, by: ManagementKey) {
        let task = &mut self.tasks[key];
        if let Phase::Replying(_) = task.phase {
            // Its reply is on the wire; it is over as far as anybody can tell. If more of that is to
            // come, the answer to the function comes behind it.
            if !task.replied {
                task.awaited_by.push(by);
                self.managing[by].left += 1;
            }
            return;
        }
        if let Some(owner) = task.connection.take() {
            self.errands.push_back(Errand::Abandon(owner, Itt(task.name), key));
        }
        if task.phase == Phase::Gathering || self.disown(key) {
            self.finish(key);
            return;
        }
        let task = &mut self.tasks[key];
        task.awaited_by.push(by);
        self.managing[by].left += 1;
    }

    /// One of the tasks that somebody waits for has ended.
    pub(crate) fn one_less(&mut self, key: ManagementKey) {
        let Some(managing) = self.managing.get_mut(key) else { return };
        managing.left -= 1;
        if managing.left > 0 {
            return;
        }
        let managing = self.managing.remove(key).expect("found above");
        match managing.waiter {
            Waiter::Task(task) => self.errands.push_back(Errand::Answer(task)),
            Waiter::Function { connection, itt, closes } => {
                self.errands.push_back(Errand::Managed(connection, itt));
                if closes {
                    self.errands.push_back(Errand::Close(connection, RESET));
                }
            }
        }
    }

    /// Forgets the functions of a connection that is gone. Commands that wait go on: what they do is
    /// done.
    pub(crate) fn forget_managing(&mut self, id: ConnectionId) {
        self.managing.retain(|_, managing| match managing.waiter {
            Waiter::Function { connection, .. } => connection != id,
            Waiter::Task(_) => true,
        });
    }
}

/// Why sessions end by a cold reset.
const RESET: &str = "the target was reset";
