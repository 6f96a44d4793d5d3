//! Counts SIGTERM, SIGINT, SIGHUP and SIGUSR1 in a pipe that the event loop watches.

use mio::event::Source;
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::{SigId, low_level};
use std::io::{self, Read};

/// Signals of some kinds that have come. Forgets its handlers when dropped.
#[derive(Debug)]
pub(crate) struct Signals {
    receiver: UnixStream,
    handlers: Vec<SigId>,
}

impl Signals {
    /// The signals that ask the gateway to stop.
    pub(crate) fn stop() -> io::Result<Self> {
        Self::new(&[SIGTERM, SIGINT])
    }

    /// The signal that asks it to read its configuration again.
    pub(crate) fn reload() -> io::Result<Self> {
        Self::new(&[SIGHUP])
    }

    /// The signal that asks it to log its status.
    pub(crate) fn summary() -> io::Result<Self> {
        Self::new(&[SIGUSR1])
    }

    fn new(kinds: &[i32]) -> io::Result<Self> {
        let (sender, receiver) = std::os::unix::net::UnixStream::pair()?;
        receiver.set_nonblocking(true)?;
        let mut signals = Self { receiver: UnixStream::from_std(receiver), handlers: Vec::new() };
        for &signal in kinds {
            signals.handlers.push(low_level::pipe::register(signal, sender.try_clone()?)?);
        }
        Ok(signals)
    }

    /// How many signals have come since the last call.
    pub(crate) fn take(&mut self) -> usize {
        let mut bytes = [0; 16];
        let mut count = 0;
        while let Ok(read @ 1..) = self.receiver.read(&mut bytes) {
            count += read;
        }
        count
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            low_level::unregister(handler);
        }
    }
}

impl Source for Signals {
    fn register(
        &mut self,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.receiver.register(registry, token, interest)
    }

    fn reregister(
        &mut self,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.receiver.reregister(registry, token, interest)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.receiver.deregister(registry)
    }
}
