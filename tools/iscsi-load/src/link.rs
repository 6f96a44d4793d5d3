//! A socket and the initiator behind it.

use crate::work::Block;
use std::io::{self, IoSlice, Read, Write};
use weir_wire::iscsi::initiator::{Event, Initiator};

/// Bytes of the receive buffer: several of the largest PDUs.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Maximum number of slices in one write.
const PIECES_MAX: usize = 64;

/// One connection.
#[derive(Debug)]
pub(crate) struct Link<S> {
    pub(crate) socket: S,
    pub(crate) initiator: Initiator<Block>,
    memory: Vec<u8>,
    /// The unprocessed part of `memory`.
    start: usize,
    filled: usize,
}

impl<S: Read + Write> Link<S> {
    pub(crate) fn new(socket: S, initiator: Initiator<Block>) -> Self {
        assert!(RECEIVE_BUFFER >= 2 * initiator.settings().pdu_length_max());
        Self { socket, initiator, memory: vec![0; RECEIVE_BUFFER], start: 0, filled: 0 }
    }

    /// The same over another kind of socket.
    pub(crate) fn over<T>(self, change: impl FnOnce(S) -> T) -> Link<T> {
        let Self { socket, initiator, memory, start, filled } = self;
        Link { socket: change(socket), initiator, memory, start, filled }
    }

    /// Sends the outbox, as far as the socket accepts it.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        while !self.initiator.outbox().is_empty() {
            let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
            let mut count = 0;
            for (piece, bytes) in pieces.iter_mut().zip(self.initiator.outbox().slices()) {
                *piece = IoSlice::new(bytes);
                count += 1;
            }
            match self.socket.write_vectored(&pieces[..count]) {
                Ok(written) => self.initiator.written(written),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(format!("cannot send: {error}")),
                },
            }
        }
        Ok(())
    }

    /// Receives once. Returns whether data arrived, and whether more may wait.
    pub(crate) fn fill(&mut self) -> Result<(bool, bool), String> {
        self.memory.copy_within(self.start..self.filled, 0);
        self.filled -= self.start;
        self.start = 0;
        let room = self.memory.len() - self.filled;
        match self.socket.read(&mut self.memory[self.filled..]) {
            Ok(0) if self.initiator.is_over() => Ok((false, false)),
            Ok(0) => Err(String::from("the server has closed the connection")),
            Ok(count) => {
                self.filled += count;
                // A stream socket that gave less than was asked for is empty: epoll(7).
                Ok((true, count == room))
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => Ok((false, false)),
                io::ErrorKind::Interrupted => Ok((false, true)),
                _ => Err(format!("cannot receive: {error}")),
            },
        }
    }

    /// Handles every complete PDU.
    pub(crate) fn hear(
        &mut self,
        mut each: impl FnMut(Event<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            let waiting = &self.memory[self.start..self.filled];
            let received = self.initiator.receive(waiting).map_err(|fault| fault.to_string())?;
            self.start += received.consumed;
            match received.event {
                Some(event) => each(event)?,
                None if received.consumed == 0 => return Ok(()),
                None => {}
            }
        }
    }
}
