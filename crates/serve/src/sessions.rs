//! Who is logged in: sessions by name and by handle.

use crate::listen::connection::ConnectionId;
use std::collections::BTreeMap;
use weir_wire::iscsi::target::Isid;

/// The sessions that exist.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// By the three parts of their name: initiator, its session identifier, target.
    by_name: BTreeMap<(String, Isid, Option<usize>), (u16, ConnectionId)>,
    by_handle: BTreeMap<u16, ConnectionId>,
    last_handle: u16,
}

impl Sessions {
    /// Whether a session has this handle.
    pub(crate) fn has(&self, tsih: u16) -> bool {
        self.by_handle.contains_key(&tsih)
    }

    /// Enters a session and returns its handle, and the older session that it replaces.
    pub(crate) fn enter(
        &mut self,
        name: (String, Isid, Option<usize>),
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

    /// How many sessions there are that may send commands.
    pub(crate) fn count(&self) -> usize {
        self.by_name.keys().filter(|(_, _, target)| target.is_some()).count()
    }

    /// The connections of the sessions with this target.
    pub(crate) fn with_target(&self, target: usize) -> impl Iterator<Item = ConnectionId> {
        let of = move |((_, _, t), &(_, id)): (&(_, _, Option<usize>), _)| {
            (*t == Some(target)).then_some(id)
        };
        self.by_name.iter().filter_map(of)
    }
}
