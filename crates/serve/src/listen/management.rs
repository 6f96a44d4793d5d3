//! Task management functions: the response waits until every task that they concern has ended.
//!
//! An aborted write that is already on its way to the device still lands. If the host were told
//! before that, its next write to the same bytes could be overtaken. So a function marks its tasks,
//! whose replies are then told to nobody, and is answered when the last of them is over.

use crate::desk::{Desk, Errand};
use crate::listen::connection::{Connection, ConnectionId};
use crate::task::{ManagementKey, Phase, TaskKey};
use tracing::info;
use weir_wire::iscsi::target::{Itt, TaskFunction, TmfResponse};
use weir_wire::scsi::Sense;

/// A function that waits for tasks to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Management {
    pub(crate) connection: ConnectionId,
    pub(crate) itt: Itt,
    /// Tasks that have not ended.
    left: u32,
    /// Its connection is closed when it has been answered.
    closes: bool,
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
        let Some(target) = connection.wire.target() else {
            connection.wire.task_management_response(itt, TmfResponse::Rejected);
            return;
        };
        let unit = self.targets[target].unit(lun);
        info!(peer = %connection.peer, initiator = connection.wire.initiator(), ?function, lun,
            "task management");
        let concerns_unit =
            !matches!(function, TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset);
        let response = match function {
            _ if concerns_unit && unit.is_none() => Some(TmfResponse::LunDoesNotExist),
            TaskFunction::ClearAca => Some(TmfResponse::NotSupported),
            TaskFunction::AbortTask if !connection.tasks.contains_key(&referenced) => {
                Some(TmfResponse::TaskDoesNotExist)
            }
            _ => None,
        };
        if let Some(response) = response {
            connection.wire.task_management_response(itt, response);
            return;
        }
        // A volume may be a unit of several targets: what concerns the unit concerns them all.
        let volume = unit.map(|unit| self.targets[target].volume(unit));
        let volumes: Vec<usize> = match function {
            TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset => {
                self.targets[target].volumes().to_vec()
            }
            _ => volume.into_iter().collect(),
        };
        let victims: Vec<TaskKey> = self
            .tasks
            .iter()
            .filter(|(_, task)| {
                let ours = task.connection == Some(connection.id);
                let here = volumes.contains(&task.volume);
                match function {
                    TaskFunction::AbortTask => ours && task.itt == referenced,
                    TaskFunction::AbortTaskSet => ours && here,
                    _ => here,
                }
            })
            .map(|(key, _)| key)
            .collect();
        let id = connection.id;
        let managing =
            self.managing.insert(Management { connection: id, itt, left: 1, closes: false });
        for key in victims {
            self.abort(connection, key, managing);
        }
        let attention = match function {
            // SAM-5, 7.3: whoever loses commands to somebody else is told so.
            TaskFunction::ClearTaskSet => Some(Sense::COMMANDS_CLEARED),
            TaskFunction::AbortTask | TaskFunction::AbortTaskSet => None,
            _ => Some(Sense::BUS_DEVICE_RESET),
        };
        if let Some(attention) = attention {
            if function != TaskFunction::ClearTaskSet {
                // At once, for the commands right behind this one.
                self.attend(connection, &volumes, attention);
            }
            let others = volumes.into_iter();
            self.errands.extend(others.map(|volume| Errand::Attention(id, volume, attention)));
        }
        if function == TaskFunction::TargetColdReset {
            let all = self.sessions.with_target(target);
            // Its own session last, when it has been answered.
            self.errands.extend(all.filter(|&other| other != id).map(Errand::Close));
            self.managing[managing].closes = true;
        }
        // The function itself was counted, so that it cannot end while its tasks are being marked.
        self.one_less(managing);
    }

    /// Raises an attention on every unit of a connection that is one of these volumes.
    pub(crate) fn attend(&self, connection: &mut Connection, volumes: &[usize], attention: Sense) {
        let Some(target) = connection.wire.target() else { return };
        for (unit, waiting) in connection.units.iter_mut().enumerate() {
            if volumes.contains(&self.targets[target].volume(unit)) {
                waiting.raise(attention);
            }
        }
    }

    /// Ends one task without a reply, now or when the pipeline lets go of it.
    fn abort(&mut self, connection: &mut Connection, key: TaskKey, by: ManagementKey) {
        let task = &mut self.tasks[key];
        if let Phase::Replying(_) = task.phase {
            // Its reply is on the wire; it is over as far as anybody can tell.
            return;
        }
        match task.connection.take() {
            Some(owner) if owner == connection.id => {
                connection.wire.abandon(task.itt);
                connection.tasks.remove(&task.itt);
            }
            Some(owner) => self.errands.push_back(Errand::Abandon(owner, task.itt)),
            None => {}
        }
        if task.phase == Phase::Gathering {
            self.finish(key);
            return;
        }
        task.awaited_by.push(by);
        self.managing[by].left += 1;
    }

    /// One of the tasks that a function waits for has ended.
    pub(crate) fn one_less(&mut self, key: ManagementKey) {
        let Some(managing) = self.managing.get_mut(key) else { return };
        managing.left -= 1;
        if managing.left == 0 {
            let managing = self.managing.remove(key).expect("found above");
            let Management { connection, itt, closes, .. } = managing;
            self.errands.push_back(Errand::Managed(connection, itt));
            if closes {
                self.errands.push_back(Errand::Close(connection));
            }
        }
    }

    /// Forgets the functions of a connection that is gone.
    pub(crate) fn forget_managing(&mut self, connection: ConnectionId) {
        self.managing.retain(|_, managing| managing.connection != connection);
    }
}
