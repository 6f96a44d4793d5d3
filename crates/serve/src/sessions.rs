//! Who is logged in: sessions by name and by handle.

use crate::listen::connection::ConnectionId;
use std::collections::BTreeMap;
use weir_wire::scsi::nexus::{InitiatorPort, Nexus};

/// The sessions that exist.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// By the name of the initiator port and the target; discovery sessions have none.
    by_name: BTreeMap<(InitiatorPort, Option<usize>), (u16, ConnectionId)>,
    by_handle: BTreeMap<u16, ConnectionId>,
    /// Names of the targets, for finding a nexus.
    targets: Vec<String>,
    last_handle: u16,
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
    ) -> (u16, Option<ConnectionId>) {
        let old = self.by_name.remove(&name);
        if let Some((handle, _)) = old {
            self.by_handle.remove(&handle);
        }
        // There are fewer connections than handles, so one is free.
        loop {
            self.last_handle = self.last_handle.checked_add(1).unwrap_or(1);
            if !self.has(self.last_handle) {
                break;
            }
        }
        self.by_handle.insert(self.last_handle, connection);
        self.by_name.insert(name, (self.last_handle, connection));
        (self.last_handle, old.map(|(_, connection)| connection))
    }

    /// Forgets the session of a connection, if it has one.
    pub(crate) fn leave(&mut self, connection: ConnectionId) {
        self.by_handle.retain(|_, &mut of| of != connection);
        self.by_name.retain(|_, &mut (_, of)| of != connection);
    }

    /// How many there are that may send commands.
    pub(crate) fn count(&self) -> usize {
        self.by_name.keys().filter(|(_, target)| target.is_some()).count() + self.clients
    }

    /// The connection of a nexus, if it is logged in.
    pub(crate) fn find(&self, nexus: &Nexus) -> Option<ConnectionId> {
        let target = self.targets.iter().position(|name| *name == nexus.target)?;
        let found = self.by_name.get(&(nexus.initiator.clone(), Some(target)))?;
        Some(found.1)
    }

    /// The targets that an initiator of this name has logged in to.
    pub(crate) fn targets_of(&self, initiator: &str) -> impl Iterator<Item = usize> {
        let of = move |(port, target): &(InitiatorPort, Option<usize>)| {
            target.filter(|_| port.name == initiator)
        };
        self.by_name.keys().filter_map(of)
    }

    /// The connections of the sessions with this target.
    pub(crate) fn with_target(&self, target: usize) -> impl Iterator<Item = ConnectionId> {
        let of =
            move |((_, t), &(_, id)): (&(_, Option<usize>), _)| (*t == Some(target)).then_some(id);
        self.by_name.iter().filter_map(of)
    }
}
