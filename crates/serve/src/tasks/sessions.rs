//! The sessions that are logged in, by name and by connection.

use crate::ids::ConnectionId;
use std::collections::BTreeMap;
use weir_wire::scsi::nexus::{HostId, InitiatorPort, Nexus, Registrant};

/// One of them.
#[derive(Debug)]
struct Session {
    handle: u16,
    connection: ConnectionId,
    /// The account by which its host has proven who it is.
    account: Option<String>,
}

/// The sessions that exist.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// By the name of the initiator port and the target; discovery sessions have none.
    by_name: BTreeMap<(InitiatorPort, Option<usize>), Session>,
    by_handle: BTreeMap<u16, ConnectionId>,
    /// Names of the targets, for finding a nexus.
    targets: Vec<String>,
    last_handle: u16,
    /// The NVMe hosts of the connections of I/O queues.
    hosts: BTreeMap<ConnectionId, HostId>,
    /// NBD clients, which share what sessions share.
    pub(crate) clients: usize,
}

impl Sessions {
    /// Learns the targets' names.
    pub(crate) fn name_targets(&mut self, targets: impl Iterator<Item = String>) {
        self.targets = targets.collect();
    }

    /// Whether a session has this handle.
    pub(crate) fn has(&self, tsih: u16) -> bool {
        self.by_handle.contains_key(&tsih)
    }

    /// Whether this is the connection of a session.
    pub(crate) fn has_connection(&self, connection: ConnectionId) -> bool {
        self.by_handle.values().any(|&of| of == connection)
    }

    /// Enters a session and returns its handle, and the older session that it replaces.
    pub(crate) fn enter(
        &mut self,
        name: (InitiatorPort, Option<usize>),
        connection: ConnectionId,
        account: Option<String>,
    ) -> (u16, Option<ConnectionId>) {
        let old = self.by_name.remove(&name);
        if let Some(old) = &old {
            self.by_handle.remove(&old.handle);
        }
        // There are fewer connections than handles, so one is free.
        loop {
            self.last_handle = self.last_handle.checked_add(1).unwrap_or(1);
            if !self.has(self.last_handle) {
                break;
            }
        }
        self.by_handle.insert(self.last_handle, connection);
        let handle = self.last_handle;
        self.by_name.insert(name, Session { handle, connection, account });
        (handle, old.map(|old| old.connection))
    }

    /// Enters the connection of an I/O queue of an NVMe host.
    pub(crate) fn enter_queue(&mut self, connection: ConnectionId, host: HostId) {
        self.hosts.insert(connection, host);
    }

    /// The NVMe host of the connection of an I/O queue.
    pub(crate) fn host_of(&self, connection: ConnectionId) -> Option<&HostId> {
        self.hosts.get(&connection)
    }

    /// Forgets the session of a connection, if it has one.
    pub(crate) fn leave(&mut self, connection: ConnectionId) {
        self.hosts.remove(&connection);
        self.by_handle.retain(|_, &mut of| of != connection);
        self.by_name.retain(|_, session| session.connection != connection);
    }

    /// How many there are that may send commands.
    pub(crate) fn count(&self) -> usize {
        self.by_name.keys().filter(|(_, target)| target.is_some()).count() + self.clients
    }

    /// The connection of a nexus, if it is logged in.
    pub(crate) fn find(&self, nexus: &Nexus) -> Option<ConnectionId> {
        self.session(nexus).map(|session| session.connection)
    }

    /// The connections through which a registrant sends commands.
    pub(crate) fn of(&self, who: &Registrant) -> Vec<ConnectionId> {
        match who {
            Registrant::Scsi(nexus) => self.find(nexus).into_iter().collect(),
            Registrant::Nvme(host) => {
                let theirs = self.hosts.iter().filter(|(_, of)| *of == host);
                theirs.map(|(&connection, _)| connection).collect()
            }
        }
    }

    fn session(&self, nexus: &Nexus) -> Option<&Session> {
        let target = self.targets.iter().position(|name| *name == nexus.target)?;
        self.by_name.get(&(nexus.initiator.clone(), Some(target)))
    }

    /// The targets at which the host of a nexus has logged in, here and under the same name elsewhere
    /// with the same proof: a name alone is no proof.
    pub(crate) fn targets_of(&self, nexus: &Nexus) -> impl Iterator<Item = usize> {
        let account = self.session(nexus).map(|session| &session.account);
        let of = move |((port, target), session): (&(InitiatorPort, Option<usize>), &Session)| {
            let same = port.name == nexus.initiator.name && Some(&session.account) == account;
            target.filter(|_| same)
        };
        self.by_name.iter().filter_map(of)
    }

    /// The connections of the sessions with this target.
    pub(crate) fn with_target(&self, target: usize) -> impl Iterator<Item = ConnectionId> {
        let of = move |((_, t), session): (&(_, Option<usize>), &Session)| {
            (*t == Some(target)).then_some(session.connection)
        };
        self.by_name.iter().filter_map(of)
    }
}
