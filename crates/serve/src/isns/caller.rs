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

    /// Reads and answers; what it says, and whether it stays open.
    pub(super) fn drive(&mut self, now: Duration, own: &Own) -> (Vec<Notice>, bool) {
        let mut notices = Vec::new();
        let mut bytes = [0; 8 << 10];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return (notices, false),
                Ok(length) => {
                    self.until = now + IDLE;
                    self.input.extend(&bytes[..length]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return (notices, true),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return (notices, false),
            }
            match self.callback.receive(&self.input, own) {
                Ok((taken, said)) => {
                    self.input.drain(..taken);
                    notices.extend(said);
                }
                Err(fault) => {
                    debug!(server = %self.from, %fault, "a connection of an iSNS server was closed");
                    return (notices, false);
                }
            }
            // An answer is shorter than what the kernel takes at once from a server that reads: one that does not is
            // closed.
            let output = self.callback.output().len();
            match self.stream.write(self.callback.output()) {
                Ok(length) if length == output => self.callback.wrote(length),
                _ => return (notices, false),
            }
        }
    }
}

/// A connection on which nothing comes is closed after this time.
const IDLE: Duration = Duration::from_secs(10);
