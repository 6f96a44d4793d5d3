//! Front ends: connections, and the protocols that turn their bytes into commands and replies into bytes.
//!
//! A new front end is a folder here: a state machine in `weir-wire`, a variant of
//! [`Speech`](connection::Speech), a `receive` that hands commands to the
//! [`CommandEngine`], and a `word` that puts a [`Reply`] into the outbox.

pub(crate) mod brake;
pub(crate) mod channel;
pub(crate) mod connection;
pub(crate) mod iscsi;
pub(crate) mod listener;
pub(crate) mod login_queue;
pub(crate) mod login_throttle;
pub(crate) mod logins;
pub(crate) mod nbd;
pub(crate) mod nvme;
mod nvme_fused;
pub(crate) mod nvme_namespaces;
mod nvme_part;
pub(crate) mod nvme_queue;
mod nvme_streams;
pub(crate) mod session_view;
pub(crate) mod socket;
pub(crate) mod tls;
pub(crate) mod turned_away;
pub(crate) mod unix_socket;

use crate::tasks::reply::{Reply, Worded};
use crate::tasks::set::Origin;
use crate::tasks::table::{Answer, Retries, Task, TaskKind};
use crate::tasks::{CommandEngine, ConnectionAction, Held};
use connection::{Connection, Speech};
use logins::Logins;
use nvme::controllers::Controllers;
use weir_wire::scsi::nexus::Refusal;

/// Handles everything that a connection has received.
pub(crate) fn receive(
    engine: &mut CommandEngine,
    logins: &mut Logins,
    controllers: &mut Controllers,
    connection: &mut Connection,
) -> Verdict {
    match &connection.speech {
        Speech::Iscsi(_) => iscsi::IscsiFrontend { engine, logins }.receive(connection),
        Speech::Nbd(_) => nbd::NbdFrontend { engine }.receive(connection),
        Speech::Nvme(_) => nvme::NvmeFrontend { engine, controllers }.receive(connection),
    }
}

/// Puts a reply into the outbox of its connection.
pub(crate) fn reply(
    engine: &mut CommandEngine,
    controllers: &mut Controllers,
    connection: &mut Connection,
    reply: Reply,
) {
    let task = &engine.set.tasks[reply.task];
    let name = task.name;
    let worded: Worded = match &mut connection.speech {
        Speech::Iscsi(wire) => {
            iscsi::reply::word(wire, task, &engine.catalog.volumes[task.volume], &reply)
        }
        Speech::Nbd(wire) => nbd::word(wire, task, &reply),
        Speech::Nvme(_) => return nvme::reply::reply(engine, controllers, connection, reply),
    };
    if engine.worded(reply, worded) {
        connection.tasks.remove(&name);
    }
}

/// Ends the reply, or the part of one, with this name: it has left the outbox.
pub(crate) fn sent(engine: &mut CommandEngine, connection: &mut Connection, name: u32) {
    // Replies that never went through the pipeline have no task.
    let Some(&key) = connection.tasks.get(&name) else { return };
    if engine.sent(key) {
        connection.tasks.remove(&name);
    }
}

/// Shows a connection what a reload has changed for it.
pub(crate) fn refresh(engine: &mut CommandEngine, connection: &mut Connection) {
    match &mut connection.speech {
        Speech::Iscsi(_) => iscsi::session::refresh(engine, connection),
        Speech::Nbd(wire) => {
            let Some(export) = wire.export() else { return };
            if let Some(volume) = engine.catalog.export_volumes[export] {
                wire.resize(engine.catalog.capacity(volume));
            } else {
                let close = ConnectionAction::Close(connection.id, "its export was removed");
                engine.set.actions.push_back(close);
            }
        }
        // Namespaces belong to controllers.
        Speech::Nvme(_) => {}
    }
}

/// Ends a connection and its session. Its requests in the pipeline end without a reply.
pub(crate) fn disconnected(
    engine: &mut CommandEngine,
    controllers: &mut Controllers,
    connection: Connection,
    reason: &str,
) {
    let Connection { id, peer, speech, tasks, view, serves, .. } = connection;
    speech.said_goodbye(&engine.set.log, engine.set.now, &peer, reason);
    engine.set.sessions.leave(id);
    if serves && matches!(speech, Speech::Nbd(_) | Speech::Nvme(_)) {
        engine.set.sessions.clients -= 1;
    }
    if let Some(view) = view {
        for seen in &view.units {
            engine.catalog.volumes[seen.volume].unit.nexus_lost(&view.nexus);
        }
    }
    // The outbox holds references to reply buffers: it must be gone before the tasks are.
    let ended = match speech {
        Speech::Nvme(queue) => Some(queue.ended()),
        Speech::Iscsi(wire) => {
            drop(wire);
            None
        }
        Speech::Nbd(wire) => {
            drop(wire);
            None
        }
    };
    engine.disconnected(id, serves, tasks.into_values());
    if let Some(ended) = ended {
        controllers.left(engine, id, ended);
    }
}

/// Takes a refused command in if its error is to be delayed; false if it is to be sent at once. `name`: the
/// connection's name for the command.
pub(crate) fn delays(
    engine: &mut CommandEngine,
    connection: &mut Connection,
    name: u32,
    volume: usize,
    refusal: Refusal,
) -> bool {
    if !engine.catalog.volumes[volume].unit.is_withdrawn() {
        return false;
    }
    let now = engine.set.now;
    let Some(at) = connection.brake.delay(now) else { return false };
    let tenant = engine.catalog.tenant(None, volume).index();
    let origin = Origin { connection: connection.id, claim: None, name, retries: Retries::Host };
    let task = Task::new(now, volume, TaskKind::Internal);
    let Some(key) = engine.set.take_in(origin, tenant, Held { data: 0, medium: 0 }, task) else {
        return false;
    };
    connection.tasks.insert(name, key);
    engine.set.decide_at(at, key, Answer::Refused(refusal));
    true
}

/// Whether a connection stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It stays open.
    Keep,
    /// It is closed: the host broke the protocol.
    Close,
}
