//! The connection to one iSNS server, and the client that uses it.

use super::caller::READ_MAX;
use super::lines::Lines;
use super::{Registration, ServerState};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use weir_wire::isns::{Client, Notice, Settings};

/// One server.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    client: Client,
    stream: Option<TcpStream>,
    /// This end of the connection, once it is made.
    local: Option<IpAddr>,
    /// Received, and not taken by the client.
    input: Vec<u8>,
    lines: Lines,
}

impl Server {
    pub(super) fn new(address: SocketAddr, settings: Settings, now: Duration) -> Self {
        let client = Client::new(settings, now);
        let (stream, local, input, lines) = (None, None, Vec::new(), Lines::default());
        Self { address, client, stream, local, input, lines }
    }

    /// Another registration is in force.
    pub(super) fn change(&mut self, now: Duration, registration: &Registration) {
        match self.local {
            Some(local) => self.client.change(now, registration.objects(local)),
            None => self.client.retry(now),
        }
    }

    /// The server has called back.
    pub(super) fn notice(&mut self, now: Duration, notice: Notice) {
        self.client.notice(now, notice);
    }

    pub(super) fn leave(&mut self, now: Duration) {
        self.client.leave(now);
    }

    pub(super) const fn has_left(&self) -> bool {
        self.client.has_left()
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.client.deadline()
    }

    /// The state; what has changed is logged.
    pub(super) fn state(&mut self, now: Duration) -> ServerState {
        let view = self.client.view();
        for line in self.lines.of(now, &view) {
            line.write(self.address);
        }
        ServerState { address: self.address, view }
    }

    /// Does what is due, and what the connection allows; whether there may be more to read.
    pub(super) fn drive(
        &mut self,
        now: Duration,
        (registry, token): (&Registry, Token),
        registration: &Registration,
    ) -> bool {
        self.client.tick(now);
        self.close_unused();
        if self.client.wants_connection(now) {
            self.client.connecting(now);
            match connect(self.address, registry, token) {
                Ok(stream) => self.stream = Some(stream),
                Err(error) => self.client.disconnected(now, Some(error.to_string())),
            }
        }
        let exchanged = self.exchange(now, registration);
        match exchanged {
            Ok(Some(_)) => {}
            Ok(None) => self.client.disconnected(now, None),
            Err(ref error) => self.client.disconnected(now, Some(error.to_string())),
        }
        self.close_unused();
        self.stream.is_some() && matches!(exchanged, Ok(Some(true)))
    }

    fn close_unused(&mut self) {
        if !self.client.uses_connection() {
            (self.stream, self.local) = (None, None);
            self.input.clear();
        }
    }

    /// Reads up to a limit, and writes what there is; whether there may be more to read, or nothing at the end of the
    /// connection.
    fn exchange(&mut self, now: Duration, registration: &Registration) -> io::Result<Option<bool>> {
        let Some(stream) = &mut self.stream else { return Ok(Some(false)) };
        if self.local.is_none() {
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
            match stream.peer_addr() {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(Some(false)),
                Err(error) => return Err(error),
            }
            let local = stream.local_addr()?.ip().to_canonical();
            self.local = Some(local);
            self.client.connected(now, registration.objects(local));
        }
        let mut bytes = [0; 8 << 10];
        let (mut left, mut more) = (READ_MAX, true);
        while more && left > 0 && self.client.uses_connection() {
            match stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(length) => {
                    left = left.saturating_sub(length);
                    self.input.extend(&bytes[..length]);
                    let taken = self.client.receive(now, &self.input);
                    self.input.drain(..taken);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => more = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        while !self.client.output().is_empty() {
            match stream.write(self.client.output()) {
                Ok(length) => self.client.wrote(length),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(more))
    }
}

/// Begins to connect; does not wait.
fn connect(address: SocketAddr, registry: &Registry, token: Token) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
    Ok(stream)
}
