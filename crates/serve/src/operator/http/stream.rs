//! A client's socket as a connection over HTTP reads and writes it: in the clear or under TLS.

use crate::frontend::socket::Socket;
use std::io::{self, IoSlice, Read, Write};

/// The socket of a client. Its calls never block.
#[derive(Debug)]
pub(super) struct ClientStream(pub(super) Socket);

impl Read for ClientStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // What is left of a handshake or an answer, for which the socket had no room.
        self.0.flush()?;
        loop {
            match self.0.read(buffer) {
                // No event comes for what is in memory.
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && self.0.has_buffered() => {}
                read => return read,
            }
        }
    }
}

impl Write for ClientStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_vectored(&[IoSlice::new(bytes)])
    }

    /// Fails with `WouldBlock` while written bytes wait in memory.
    fn flush(&mut self) -> io::Result<()> {
        if self.0.flush()? { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}
