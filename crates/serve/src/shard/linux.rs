//! The event loop's kernel: epoll, a timerfd, signals and the only clock.

use super::kernel::{Event, Kernel, Sleep};
use super::signals::Signals;
use super::timer::Timer;
use crate::clock::Clock;
use crate::frontend::listener::{Bound, Listener};
use crate::frontend::socket::{HostStream, Socket};
use crate::operator::socket::Socket as ControlSocket;
use crate::storage::upstream::FIRST_TOKEN;
use crate::storage::upstream::network::{Readiness, Tcp};
use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time;
use weir_flow::clock::{Duration, Instant};

/// The kernel.
pub(crate) struct Linux {
    pub(super) clock: Clock,
    pub(super) poll: Poll,
    events: Events,
    timer: Timer,
    stop: Signals,
    reload: Signals,
    summary: Signals,
}

impl Linux {
    /// Watches signals and a timer besides what `poll` watches. An error names what was tried.
    pub(crate) fn new(poll: Poll, clock: Clock) -> Result<Self, (&'static str, io::Error)> {
        let registry = poll.registry();
        let signals = |signals: io::Result<Signals>, token| {
            let mut signals = signals?;
            registry.register(&mut signals, token, Interest::READABLE)?;
            Ok(signals)
        };
        let failed = |source| ("watch for signals", source);
        let stop = signals(Signals::stop(), STOP).map_err(failed)?;
        let reload = signals(Signals::reload(), RELOAD).map_err(failed)?;
        let summary = signals(Signals::summary(), SUMMARY).map_err(failed)?;
        let timer = Timer::new().map_err(|source| ("make a timer", source))?;
        SourceFd(&timer.as_raw_fd())
            .register(registry, TIMER, Interest::READABLE)
            .map_err(|source| ("watch a timer", source))?;
        let events = Events::with_capacity(EVENTS);
        Ok(Self { clock, poll, events, timer, stop, reload, summary })
    }

    /// A handle for sockets that register themselves.
    pub(crate) fn registry(&self) -> io::Result<Registry> {
        self.poll.registry().try_clone()
    }

    /// Wakes the event loop from another thread.
    pub(crate) fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), WAKE)
    }

    /// Has the event loop woken when the ring has ended operations.
    pub(crate) fn watch_ring(&self, ring: RawFd) -> io::Result<()> {
        SourceFd(&ring).register(self.poll.registry(), RING, Interest::READABLE)
    }

    /// Has the event loop woken when hosts connect.
    pub(crate) fn watch_listeners(&self, listeners: &mut [Listener]) -> io::Result<()> {
        for (index, listener) in listeners.iter_mut().enumerate() {
            listener.register(self.poll.registry(), Token(LISTENERS + index))?;
        }
        Ok(())
    }
}

impl Kernel for Linux {
    type Stream = HostStream;
    type Listener = Bound;
    type Network = Tcp;

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn wake_by(&mut self, at: Instant) -> io::Result<()> {
        self.timer.wake_by(self.clock.now(), at)
    }

    fn lead(&self) -> Duration {
        self.timer.lead()
    }

    fn wait(&mut self, sleep: Sleep, into: &mut Vec<Event>) -> io::Result<()> {
        let timeout = match sleep {
            Sleep::No => Some(0),
            Sleep::Until(at) => at.map(|at| at.saturating_since(self.clock.now()).as_nanos()),
        };
        let timeout = timeout.map(time::Duration::from_nanos);
        if let Err(problem) = self.poll.poll(&mut self.events, timeout) {
            self.events.clear();
            // The ring interrupts the wait when it has something; so do signals.
            return match problem.kind() {
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(problem),
            };
        }
        for event in &self.events {
            into.push(match event.token() {
                STOP => Event::Stop(self.stop.take()),
                RELOAD if self.reload.take() > 0 => Event::Reload,
                SUMMARY if self.summary.take() > 0 => Event::Summary,
                TIMER => {
                    if sleep != Sleep::No {
                        self.timer.woke(self.clock.now());
                    }
                    continue;
                }
                RELOAD | SUMMARY | RING | WAKE => continue,
                Token(token) if token >= FIRST_TOKEN => {
                    Event::Upstream(token - FIRST_TOKEN, Readiness::of(event))
                }
                Token(token) if token >= CONNECTIONS => {
                    Event::Connection(token - CONNECTIONS, Readiness::of(event))
                }
                Token(token) if ControlSocket::owns(token) => Event::Control(token),
                Token(token) => Event::Listener(token - LISTENERS),
            });
        }
        Ok(())
    }

    fn watch(&mut self, socket: &mut Socket, index: usize) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(socket, Token(CONNECTIONS + index), interest)
    }
}

const STOP: Token = Token(0);
const RELOAD: Token = Token(1);
const RING: Token = Token(2);
const WAKE: Token = Token(3);
const TIMER: Token = Token(4);
const SUMMARY: Token = Token(5);
/// Listeners have the tokens from here on; there are fewer than 400. The control socket has some from
/// [`FIRST_TOKEN`](crate::operator::socket::FIRST_TOKEN) on.
const LISTENERS: usize = 16;
/// Connections have the tokens from here on.
const CONNECTIONS: usize = 1024;

/// Events of one wait; more stay in the kernel.
const EVENTS: usize = 256;
