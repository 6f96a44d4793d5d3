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
        for _ in 0..EMPTY_READS_MAX {
            match self.0.read(buffer) {
                // No event comes for what is in memory.
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && self.0.has_buffered() => {}
                read => return read,
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "TLS records without data"))
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

/// Reads in a row that find bytes and no data in them: a handshake needs a few. A client that sends more holds up others.
const EMPTY_READS_MAX: usize = 64;
