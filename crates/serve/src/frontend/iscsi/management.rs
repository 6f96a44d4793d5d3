//! Task management functions of iSCSI: selects the tasks of a function, and answers those that need no wait.

use super::IscsiFrontend;
use crate::frontend::connection::{Connection, Speech};
use crate::tasks::set::TaskSet;
use crate::tasks::task_management::ManagementRequest;
use tracing::info;
use weir_wire::iscsi::target_role::{Itt, TaskFunction, TmfResponse};

impl IscsiFrontend<'_> {
    /// Begins a task management function of the connection.
    pub(super) fn manage(
        &mut self,
        connection: &mut Connection,
        itt: Itt,
        function: TaskFunction,
        lun: u64,
        referenced: Itt,
    ) {
        let known = connection.tasks.contains_key(&referenced.0);
        let Connection { speech: Speech::Iscsi(wire), view, tasks, id, peer, .. } = connection
        else {
            return;
        };
        let Some(view) = view else {
            wire.task_management_response(itt, TmfResponse::Rejected);
            return;
        };
        let TaskSet { log, now, .. } = &self.engine.set;
        log.line(*now, peer.source(), "task management", |text| {
            info!(%peer, initiator = wire.initiator(), ?function, lun, "{text}");
        });
        let unit = view.unit(lun);
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
            return;
        }
        // A function affects only the units that this host may access.
        let volumes: Vec<usize> = if resets_target {
            view.units.iter().map(|seen| seen.volume).collect()
        } else {
            unit.map(|unit| view.units[unit].volume).into_iter().collect()
        };
        let target = view.target;
        let volumes = &volumes[..];
        let request =
            ManagementRequest { connection: *id, itt, function, referenced, volumes, target };
        let reset = self.engine.manage(&request, |name| {
            tasks.remove(&name);
            wire.abandon(Itt(name));
        });
        if let Some(attention) = reset {
            // At once, for the commands right behind this one.
            for &volume in volumes {
                view.attend(volume, attention);
            }
        }
    }
}
