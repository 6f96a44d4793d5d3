//! What the event loop needs of the operating system, behind one trait, so that a test can replace the kernel.

use crate::frontend::listener::Accept;
use crate::frontend::socket::{Socket, Stream};
use crate::storage::upstream::network::{Network, Readiness};
use std::io;
use weir_flow::clock::{Duration, Instant};

/// Events, time and the sockets on which both depend.
///
/// Time and events are one trait, since a virtual clock moves when the event loop sleeps.
pub(crate) trait Kernel {
    /// Connections of hosts.
    type Stream: Stream;

    /// Sockets on which hosts connect.
    type Listener: Accept<Stream = Self::Stream>;

    /// Connections to upstreams.
    type Network: Network;

    /// The time.
    fn now(&self) -> Instant;

    /// Ends a later [`wait`](Self::wait) at `at`, to the microsecond, or earlier.
    fn wake_by(&mut self, at: Instant) -> io::Result<()>;

    /// How late [`wake_by`](Self::wake_by) is, smoothed. What must not be late spends this time awake.
    fn lead(&self) -> Duration;

    /// Waits for events, and appends them.
    fn wait(&mut self, sleep: Sleep, events: &mut Vec<Event>) -> io::Result<()>;

    /// Has the events of a connection delivered as those of the connection `index`, until it is closed.
    fn watch(&mut self, socket: &mut Socket<Self::Stream>, index: usize) -> io::Result<()>;
}

/// How long to wait for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// Not at all: there is other work.
    No,
    /// Until an event, or this time, to the millisecond.
    Until(Option<Instant>),
}

/// Something that has happened outside.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// This number of signals asked for a stop.
    Stop(usize),
    /// A signal asked to read the configuration again.
    Reload,
    /// A signal asked for a summary.
    Summary,
    /// A listener of this index has connections.
    Listener(usize),
    /// A connection of this index.
    Connection(usize, Readiness),
    /// A socket of upstreams, by its number there.
    Upstream(usize, Readiness),
    /// The control socket, by its token.
    Control(usize),
}
