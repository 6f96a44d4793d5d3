//! An upstream for tests, with paths on which nothing happens but what the test does.

use super::Upstreams;
use super::network::{EventSource, Readiness, Tcp};
use super::probe::Facts;
use super::remembered::RememberedUnit;
use super::session::Session;
use crate::config::{Fence, Portal, Upstream};
use crate::storage::random::KernelRandom;
use mio::Poll;
use mio::net::TcpStream;
use std::fmt::{Debug, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use weir_flow::clock::{Duration, Instant};
use weir_wire::iscsi::target_role::DigestPolicy;

/// The configuration of an upstream with this number of paths to one portal.
pub(crate) fn upstream(paths: usize, address: SocketAddr) -> Upstream {
    Upstream {
        name: String::from("array"),
        target: String::from("iqn.2026-11.org.example:array"),
        lun: 0,
        portals: vec![Portal { address, group: 0 }; paths],
        initiator_name: None,
        account: None,
        mutual: None,
        header_digest: DigestPolicy::Allowed,
        data_digest: DigestPolicy::Allowed,
        max_commands: 8,
        connect_timeout: Duration::from_secs(10),
        login_timeout: Duration::from_secs(3),
        reconnect_interval_max: Duration::from_secs(5),
        fence: Fence::Auto,
    }
}

/// The unit of [`upstream`] as a volume remembers it, which the gateway owned: 2048 blocks of 512 bytes and no cache,
/// so that a new log owes it no flush.
pub(crate) fn remembered() -> RememberedUnit {
    let address = SocketAddr::from(([127, 0, 0, 1], 3260));
    let facts = Facts { write_cache: false, ..Facts::simple(512, 2048) };
    RememberedUnit::new(&upstream(1, address), &facts, true)
}

/// Events of a network on which nothing happens: time passes.
pub(crate) struct Silence(pub(crate) Instant);

impl EventSource for Silence {
    fn now(&self) -> Instant {
        self.0
    }

    fn wait(
        &mut self,
        timeout: Option<Duration>,
        _: &mut Vec<(usize, Readiness)>,
    ) -> std::io::Result<()> {
        self.0 += timeout.expect("there is a deadline");
        Ok(())
    }
}

/// One upstream with this number of paths. Their portal takes connections while the first value lives, and
/// never says anything.
pub(super) fn upstreams(paths: usize) -> ((TcpListener, Poll), Upstreams<Tcp>) {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let upstream = upstream(paths, silent.local_addr().expect("it is bound"));
    let poll = Poll::new().expect("an event queue");
    let registry = poll.registry().try_clone().expect("its registry");
    let mut upstreams = Upstreams::new(&[upstream], 0, Tcp::new(registry), Box::new(KernelRandom));
    upstreams.context.now = Instant::ZERO + Duration::from_secs(100);
    ((silent, poll), upstreams)
}

/// A session whose connection is being made.
pub(super) fn session() -> Box<Session<TcpStream>> {
    let ((silent, _poll), mut upstreams) = upstreams(1);
    let Upstreams { all, context, .. } = &mut upstreams;
    all[0].begin(context, 0);
    drop(silent);
    all[0].paths[0].take_session(Instant::ZERO).expect("its portal takes connections")
}

/// The lines that something logs: `field=value` for each, and the message.
pub(super) fn logged(act: impl FnOnce()) -> Vec<String> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    tracing::subscriber::with_default(Lines(lines.clone()), act);
    std::mem::take(&mut lines.lock().expect("no test thread panicked"))
}

struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").expect("a string takes everything");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("no test thread panicked").push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
