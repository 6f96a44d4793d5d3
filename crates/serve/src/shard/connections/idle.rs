//! When a connection is closed because its host is silent.

use super::Connected;
use crate::frontend::channel::Presence;
use crate::frontend::connection::{Protocol, Speech};
use crate::frontend::socket::Stream;
use crate::tasks::CommandEngine;
use weir_flow::clock::{Duration, Instant};

impl<S: Stream> Connected<S> {
    /// Why the connection is to be closed now, if it is.
    pub(super) fn is_over(&self, engine: &CommandEngine, now: Instant) -> Option<&'static str> {
        let connection = &self.connection;
        let since = |then| now.saturating_since(then);
        if connection.leave_by.is_some_and(|at| at <= now) {
            return Some("it did not log out when requested");
        }
        let heard = match self.channel.presence {
            Presence::LoggingIn { since: opened } => {
                return (since(opened) >= login_within(connection.protocol()))
                    .then_some("no login in time");
            }
            Presence::Pinged { at } => {
                return (since(at) >= PING_ANSWER_WITHIN).then_some("no answer to a ping");
            }
            Presence::Heard { at } => at,
        };
        if engine.set.waits_in_vain(connection.tasks.values().copied(), DATA_WITHIN) {
            return Some("write data did not arrive in time");
        }
        if let Speech::Nvme(queue) = &connection.speech
            && queue.stalls(now, DATA_WITHIN)
        {
            return Some("the rest of a PDU, or of the data of a command, did not arrive in time");
        }
        let discovers = matches!(connection.speech, Speech::Iscsi(_)) && connection.view.is_none();
        (discovers && since(heard) >= PING_AFTER).then_some("an idle discovery session")
    }
}

/// Write data of a command, and the rest of a PDU of NVMe, must have come by then.
const DATA_WITHIN: Duration = Duration::from_secs(60);

/// A connection must have logged in, or chosen its export, by then.
const fn login_within(protocol: Protocol) -> Duration {
    match protocol {
        Protocol::Iscsi | Protocol::Nbd => Duration::from_secs(15),
        // Linux opens the connections of all queues before it connects the first of them.
        Protocol::Nvme => Duration::from_secs(30),
    }
}

/// A session that has been silent for so long is pinged; a discovery session is closed. NBD has no
/// pings: the kernel's keep-alive finds clients that are gone.
pub(super) const PING_AFTER: Duration = Duration::from_secs(30);

/// A session that does not answer a ping within this time is given up.
const PING_ANSWER_WITHIN: Duration = Duration::from_secs(30);
