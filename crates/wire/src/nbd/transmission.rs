//! The transmission phase: checks requests, and receives the payload of writes.

use zerocopy::FromBytes;

use super::connection::Phase;
use super::limits::PAYLOAD_SKIP_MAX;
use super::protocol::{REQUEST_MAGIC, RequestHeader, command, flag};
use super::{Command, Connection, Error, Event, Export, PeerError, Received, Request};

/// A request that has no reply yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    /// The client's name for it, which the reply repeats. It need not be unique.
    pub(super) cookie: u64,
    pub(super) command: Command,
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// The payload of a write that is being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    /// Bytes received.
    taken: u32,
    /// Bytes that are still to come.
    left: u32,
    pub(super) fate: Fate,
}

/// The destination of a payload.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// It goes to the shell.
    Wanted {
        slot: u32,
    },
    /// The shell has answered before the payload was complete. The rest is skipped before the reply is sent: a client
    /// need not look for replies to a request that it has not sent completely.
    Answered {
        slot: u32,
        result: Result<(), Error>,
    },
    Refused(Fault),
}

/// A request that is refused without an event to the shell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) cookie: u64,
    pub(super) error: Error,
    /// The error as a message.
    pub(super) says: &'static str,
    /// The offset in the export, if useful.
    pub(super) offset: Option<u64>,
}

impl<P: AsRef<[u8]>> Connection<P> {
    pub(super) fn receive_transmission<'a>(
        &mut self,
        input: &'a [u8],
    ) -> Result<Received<'a>, PeerError> {
        if let Some(payload) = self.payload {
            return Ok(self.receive_payload(payload, input));
        }
        let Ok((header, _)) = RequestHeader::ref_from_prefix(input) else {
            return Ok(Received { consumed: 0, event: None });
        };
        if header.magic != REQUEST_MAGIC {
            return Err(PeerError::RequestMagic);
        }
        let event = self.on_request(header)?;
        Ok(Received { consumed: size_of::<RequestHeader>(), event })
    }

    fn receive_payload<'a>(&mut self, mut payload: Payload, input: &'a [u8]) -> Received<'a> {
        let consumed = input.len().min(payload.left as usize);
        let (bytes, offset) = (&input[..consumed], payload.taken);
        payload.taken += consumed as u32;
        payload.left -= consumed as u32;
        let complete = payload.left == 0;
        self.payload = (!complete).then_some(payload);
        let mut event = None;
        match payload.fate {
            Fate::Wanted { slot } if consumed > 0 => {
                event = Some(Event::Data { slot, offset, bytes, complete });
            }
            Fate::Answered { slot, result } if complete => self.respond(slot, result),
            Fate::Refused(fault) if complete => self.push_fault(fault),
            _ => {}
        }
        if complete {
            self.transmit();
        }
        Received { consumed, event }
    }

    fn on_request<'a>(&mut self, header: &RequestHeader) -> Result<Option<Event<'a>>, PeerError> {
        let (kind, length) = (header.kind.get(), header.length.get());
        if kind == command::DISC {
            self.phase = Phase::Disconnecting;
            return Ok(Some(Event::Disconnect));
        }
        let has_payload = kind == command::WRITE && length > 0;
        let checked = self.check(header);
        if let (true, Err(_)) = (has_payload, &checked)
            && length > PAYLOAD_SKIP_MAX.max(self.export_in_use().block_size.maximum)
        {
            return Err(PeerError::PayloadTooLong { length });
        }
        let (fate, event) = match checked {
            Ok(command) => {
                let request = self.take(command, header);
                (Fate::Wanted { slot: request.slot }, Some(Event::Request(request)))
            }
            Err(fault) => (Fate::Refused(fault), None),
        };
        if has_payload {
            self.payload = Some(Payload { taken: 0, left: length, fate });
            self.needed = 1;
        } else if let Fate::Refused(fault) = fate {
            self.push_fault(fault);
        }
        Ok(event)
    }

    fn take(&mut self, command: Command, header: &RequestHeader) -> Request {
        let (offset, length) = (header.offset.get(), header.length.get());
        let cookie = header.cookie.get();
        let slot = self.slots.take(Outstanding { cookie, command, offset, length }, &self.outbox);
        // Section "Command flags": FUA must be accepted with every request, and means something
        // with those that write.
        let fua = command.writes() && header.flags.get() & flag::FUA != 0;
        Request { slot, command, offset, length, fua }
    }

    fn export_in_use(&self) -> &Export {
        &self.exports.as_slice()[self.export.expect("requests come for an export")]
    }

    /// The command of the request, or the reason why it is refused.
    fn check(&self, header: &RequestHeader) -> Result<Command, Fault> {
        let (offset, length) = (header.offset.get(), header.length.get());
        let fault = |error, says| Fault { cookie: header.cookie.get(), error, says, offset: None };
        let export = self.export_in_use();
        let (command, allowed) = self.command(header);
        // Section "Error values": an unknown command is answered with EINVAL. So is one that was
        // not offered.
        let Some(command) = command else {
            return Err(fault(Error::Einval, "command not supported"));
        };
        if command.writes() && export.read_only {
            return Err(fault(Error::Eperm, "export is read-only"));
        }
        match command {
            Command::Trim if !export.trim => {
                return Err(fault(Error::Einval, "trim was not offered"));
            }
            Command::BlockStatus { .. } if self.haggling.allocation != self.export => {
                return Err(fault(Error::Einval, "no metadata context was selected"));
            }
            _ => {}
        }
        if header.flags.get() & !(allowed | flag::FUA) != 0 {
            return Err(fault(Error::Einval, "flag does not apply"));
        }
        if command == Command::Flush {
            // NBD_CMD_FLUSH: both are reserved and must be zero.
            let clean = offset == 0 && length == 0;
            return clean.then_some(command).ok_or(fault(Error::Einval, "flush has no range"));
        }
        if length == 0 {
            return Err(fault(Error::Einval, "length is zero"));
        }
        if offset.checked_add(length.into()).is_none_or(|end| end > self.size) {
            // Section "Error values": EINVAL for reads and trims, ENOSPC for writes.
            let writes = matches!(command, Command::Write | Command::WriteZeroes { .. });
            let error = if writes { Error::Enospc } else { Error::Einval };
            let mut fault = fault(error, "range ends past the end of the export");
            if command == Command::Read {
                // The bytes before this offset are readable.
                fault.offset = Some(self.size.max(offset));
            }
            return Err(fault);
        }
        let block = export.block_size;
        if offset % u64::from(block.minimum) != 0 || length % block.minimum != 0 {
            return Err(fault(Error::Einval, "range is not aligned to the minimum block size"));
        }
        if length > block.maximum {
            // NBD_CMD_READ: EOVERFLOW tells a client that a smaller read may pass, but is known
            // only to clients with structured replies.
            match command {
                Command::Read if self.haggling.structured => {
                    return Err(fault(Error::Eoverflow, "length is above the maximum payload"));
                }
                Command::Read | Command::Write => {
                    return Err(fault(Error::Einval, "length is above the maximum payload"));
                }
                _ => {}
            }
        }
        Ok(command)
    }

    /// The command, if there is such a one, and the flags that apply to it besides FUA.
    fn command(&self, header: &RequestHeader) -> (Option<Command>, u16) {
        let flags = header.flags.get();
        match header.kind.get() {
            // Section "Transmission flags": DF is offered with structured replies only. Every read
            // is answered in one chunk, so that there is nothing to do about it.
            command::READ if self.haggling.structured => (Some(Command::Read), flag::DF),
            command::READ => (Some(Command::Read), 0),
            command::WRITE => (Some(Command::Write), 0),
            command::FLUSH => (Some(Command::Flush), 0),
            command::TRIM => (Some(Command::Trim), 0),
            command::WRITE_ZEROES => {
                let command = Command::WriteZeroes {
                    may_punch: flags & flag::NO_HOLE == 0,
                    fast: flags & flag::FAST_ZERO != 0,
                };
                let fast = if self.export_in_use().fast_zero { flag::FAST_ZERO } else { 0 };
                (Some(command), flag::NO_HOLE | fast)
            }
            command::BLOCK_STATUS => {
                (Some(Command::BlockStatus { one: flags & flag::REQ_ONE != 0 }), flag::REQ_ONE)
            }
            _ => (None, 0),
        }
    }
}
