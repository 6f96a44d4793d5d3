//! The hosts that find something, for who wants to change it.

use super::Connections;
use crate::frontend::connection::{Connection, Speech};
use crate::frontend::iscsi::session::tenants_of;
use crate::frontend::socket::Stream;
use crate::operator::changes::Host;
use crate::tasks::CommandEngine;

/// The hosts that are connected, and what they find.
pub(super) fn hosts<S: Stream>(connections: &Connections<S>, engine: &CommandEngine) -> Vec<Host> {
    let catalog = &engine.catalog;
    let of = |connection: &Connection| {
        let peer = &connection.peer;
        match &connection.speech {
            Speech::Iscsi(_) => {
                let view = connection.view.as_ref()?;
                Some(Host {
                    words: format!("{} at {peer}", view.nexus.initiator.name.escape_debug()),
                    is_nbd: false,
                    place: view.nexus.target.clone(),
                    volumes: view.units.iter().map(|seen| seen.volume).collect(),
                    tenants: tenants_of(catalog, Some(view)).collect(),
                })
            }
            Speech::Nbd(wire) => {
                let export = wire.export()?;
                let volumes: Vec<usize> = catalog.export_volumes[export].into_iter().collect();
                let tenants = volumes.iter().map(|&volume| catalog.tenant(None, volume).index());
                let place = catalog.exports.as_slice()[export].name.clone();
                let words = format!("{peer} (NBD)");
                Some(Host { words, is_nbd: true, place, tenants: tenants.collect(), volumes })
            }
            Speech::Nvme(queue) => {
                queue.controller.filter(|_| queue.wire.queue() == Some(0))?;
                let volumes = queue.volumes().to_vec();
                let tenant = |&volume: &usize| catalog.tenant(queue.claim, volume).index();
                let tenants = volumes.iter().map(tenant).collect();
                let words = format!("{} at {peer}", queue.host.escape_debug());
                let place = queue.subsystem.clone();
                Some(Host { words, is_nbd: false, place, volumes, tenants })
            }
        }
    };
    connections.all().filter_map(of).collect()
}

/// The hosts that find a volume, each in words.
pub(super) fn users<S: Stream>(
    connections: &Connections<S>,
    engine: &CommandEngine,
    volume: usize,
) -> Vec<String> {
    let used = |connection: &Connection| {
        let peer = &connection.peer;
        match &connection.speech {
            Speech::Iscsi(wire) => {
                let view = connection.view.as_ref()?;
                let lun = view.lun_of(volume)?;
                let (initiator, target) = (&view.nexus.initiator.name, &view.nexus.target);
                let initiator = initiator.escape_debug();
                let session = wire.tsih();
                Some(format!(
                    "{initiator} at {peer} (iSCSI session {session}, LUN {lun} of {target})"
                ))
            }
            Speech::Nbd(wire) => {
                let export = wire.export()?;
                let catalog = &engine.catalog;
                let name = &catalog.exports.as_slice()[export].name;
                let here = catalog.export_volumes[export] == Some(volume);
                here.then(|| format!("{peer} (NBD export `{name}`)"))
            }
            Speech::Nvme(queue) => {
                let controller = queue.controller.filter(|_| queue.wire.queue() == Some(0))?;
                let nsid = queue.nsid_of(volume)?;
                let (host, subsystem) = (queue.host.escape_debug(), &queue.subsystem);
                Some(format!(
                    "{host} at {peer} (NVMe controller {controller}, namespace {nsid} of {subsystem})"
                ))
            }
        }
    };
    connections.all().filter_map(used).collect()
}

/// The clients of an NBD export, each in words.
pub(super) fn clients<S: Stream>(connections: &Connections<S>, export: usize) -> Vec<String> {
    let of = |connection: &&Connection| matches!(&connection.speech, Speech::Nbd(wire) if wire.export() == Some(export));
    connections.all().filter(of).map(|connection| format!("{} (NBD)", connection.peer)).collect()
}
