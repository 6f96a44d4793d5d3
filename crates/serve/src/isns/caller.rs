//! A connection that an iSNS server has made to the gateway.

use mio::net::TcpStream;
use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::time::Duration;
use tracing::debug;
use weir_wire::isns::{Callback, Notice, Own};

/// One connection.
pub(super) struct Caller {
    stream: TcpStream,
    callback: Callback,
    input: Vec<u8>,
    /// The server.
    pub(super) from: IpAddr,
    /// The address that it called.
    pub(super) local: IpAddr,
    /// When it is closed unless something comes.
    pub(super) until: Duration,
}

impl Caller {
    pub(super) fn new(stream: TcpStream, (from, local): (IpAddr, IpAddr), now: Duration) -> Self {
        let (callback, input, until) = (Callback::default(), Vec::new(), now + IDLE);
        Self { stream, callback, input, from, local, until }
    }

    /// Reads and answers up to a limit: a server that never ceases does not keep the thread from the others.
    pub(super) fn drive(&mut self, now: Duration, own: &Own) -> Heard {
        let mut heard = Heard::default();
        let mut bytes = [0; 8 << 10];
        let mut left = READ_MAX;
        while left > 0 {
            match self.stream.read(&mut bytes) {
                Ok(0) => return heard,
                Ok(length) => {
                    left = left.saturating_sub(length);
                    self.until = now + IDLE;
                    self.input.extend(&bytes[..length]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    heard.then = Then::Wait;
                    return heard;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return heard,
            }
            match self.callback.receive(&self.input, own) {
                Ok((taken, said)) => {
                    self.input.drain(..taken);
                    heard.inquired |= said.contains(&Notice::Inquired);
                    heard.removed |= said.contains(&Notice::Removed);
                }
                Err(fault) => {
                    debug!(server = %self.from, %fault, "a connection of an iSNS server was closed");
                    return heard;
                }
            }
            // An answer is shorter than what the kernel takes at once from a server that reads: one that does not is
            // closed.
            let output = self.callback.output().len();
            match self.stream.write(self.callback.output()) {
                Ok(length) if length == output => self.callback.wrote(length),
                _ => return heard,
            }
        }
        heard.then = Then::Read;
        heard
    }
}

/// What a server has said, however often.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) inquired: bool,
    pub(super) removed: bool,
    pub(super) then: Then,
}

impl Heard {
    /// What the client shall know.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        let inquired = self.inquired.then_some(Notice::Inquired);
        inquired.into_iter().chain(self.removed.then_some(Notice::Removed))
    }
}

/// What is to be done with a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Then {
    /// There may be more to read.
    Read,
    /// It tells when there is more to read.
    Wait,
    #[default]
    Close,
}

/// Bytes that are read of a connection before the others have their turn.
pub(super) const READ_MAX: usize = 64 << 10;

/// A connection on which nothing comes is closed after this time.
const IDLE: Duration = Duration::from_secs(10);
