//! One session under load: its socket, what it has received and what it has outstanding.

use crate::login::{Login, Numbers, RECEIVE_SEGMENT};
use crate::pdu::{HEADER, Header, NO_TAG, Transfer, opcode, padding, precedes, read_write_16};
use crate::process::now;
use crate::work::{Tally, Work, append_pattern, find_difference};
use mio::net::TcpStream;
use std::io::{self, Read, Write};
use std::time::Instant;

/// Bytes of the receive buffer: several of the largest PDUs.
const RECEIVE_BUFFER: usize = 4 * RECEIVE_SEGMENT;

/// One session.
pub(crate) struct Session {
    socket: TcpStream,
    memory: Vec<u8>,
    /// The part of `memory` that is not dealt with.
    start: usize,
    filled: usize,
    dialogue: Dialogue,
}

impl Session {
    /// Takes a session over from the login.
    pub(crate) fn new(login: Login, depth: u32) -> Result<Self, String> {
        login
            .socket
            .set_nonblocking(true)
            .map_err(|error| format!("cannot make a socket non-blocking: {error}"))?;
        let dialogue = Dialogue {
            lun: login.lun,
            numbers: login.numbers,
            immediate: login.immediate,
            send_segment: login.send_segment,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            out: Vec::new(),
            written: 0,
            leaving: Leaving::No,
        };
        let socket = TcpStream::from_std(login.socket);
        Ok(Self { socket, memory: vec![0; RECEIVE_BUFFER], start: 0, filled: 0, dialogue })
    }

    /// The socket, to be registered.
    pub(crate) const fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Whether nothing is outstanding.
    pub(crate) const fn is_idle(&self) -> bool {
        let Dialogue { free, slots, leaving, .. } = &self.dialogue;
        free.len() == slots.len() && !matches!(leaving, Leaving::Asked)
    }

    /// Makes as many commands as depth and command window allow.
    pub(crate) fn refill(&mut self, work: &mut Work, now: Instant) {
        self.dialogue.refill(work, now);
    }

    /// Takes in all that has come and answers it.
    pub(crate) fn read(&mut self, work: &mut Work, tally: &mut Tally) -> Result<(), String> {
        loop {
            if self.start > 0 {
                self.memory.copy_within(self.start..self.filled, 0);
                self.filled -= self.start;
                self.start = 0;
            }
            let room = self.memory.len() - self.filled;
            let count = match self.socket.read(&mut self.memory[self.filled..]) {
                Ok(0) if self.dialogue.leaving == Leaving::Granted => return Ok(()),
                Ok(0) => return Err(String::from("the server has closed the connection")),
                Ok(count) => count,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(format!("cannot receive: {error}")),
                },
            };
            self.filled += count;
            let now = now();
            self.take_pdus(work, tally, now)?;
            self.dialogue.refill(work, now);
            self.flush()?;
            // A stream socket that gave less than was asked for is empty: epoll(7).
            if count < room {
                return Ok(());
            }
        }
    }

    /// Deals with every PDU that is complete.
    fn take_pdus(&mut self, work: &Work, tally: &mut Tally, now: Instant) -> Result<(), String> {
        loop {
            let waiting = &self.memory[self.start..self.filled];
            let Some(header) = waiting.first_chunk::<HEADER>() else { return Ok(()) };
            let header = Header(*header);
            let length = header.data_length();
            if length > RECEIVE_SEGMENT {
                return Err(format!("the target sent {length} bytes in one PDU"));
            }
            let data = HEADER + header.ahs_length();
            let end = data + length + padding(length);
            if waiting.len() < end {
                return Ok(());
            }
            self.dialogue.take(&header, &waiting[data..data + length], work, tally, now)?;
            self.start += end;
        }
    }

    /// Sends what waits, as far as the socket takes it.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        let Dialogue { out, written, .. } = &mut self.dialogue;
        while *written < out.len() {
            match self.socket.write(&out[*written..]) {
                Ok(count) => *written += count,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(format!("cannot send: {error}")),
                },
            }
        }
        out.clear();
        *written = 0;
        Ok(())
    }

    /// Asks to end the session; the answer is outstanding until it comes.
    pub(crate) fn log_out(&mut self) {
        self.dialogue.send(Header::logout(), 0);
        self.dialogue.leaving = Leaving::Asked;
    }
}

/// How far a logout has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    Asked,
    Granted,
}

/// A command that is outstanding.
#[derive(Clone, Copy, Debug)]
struct Slot {
    made: Instant,
    /// Where it reads or writes, in bytes.
    offset: u64,
    /// How many bytes.
    length: u32,
    write: bool,
    /// How many bytes have come, or, for a write, were asked for or sent with the command.
    moved: u32,
}

/// The iSCSI state of a session.
struct Dialogue {
    lun: u8,
    numbers: Numbers,
    /// Bytes that may come with a write command.
    immediate: usize,
    /// Most bytes of data in a PDU to the target.
    send_segment: usize,
    /// What is outstanding, by initiator task tag.
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// What waits to be sent, of which `written` bytes are.
    out: Vec<u8>,
    written: usize,
    leaving: Leaving,
}

impl Dialogue {
    fn refill(&mut self, work: &mut Work, now: Instant) {
        while let Some(&itt) = self.free.last()
            && !precedes(self.numbers.window, self.numbers.command)
            && let Some(offset) = work.next()
        {
            self.free.pop();
            let (lba, blocks) = work.extent(offset);
            let cdb = read_write_16(work.write, lba, blocks);
            let length = work.block;
            let (transfer, sent) = if work.write {
                (Transfer::Write(length), self.immediate.min(length as usize))
            } else {
                (Transfer::Read(length), 0)
            };
            self.send(Header::command(self.lun, itt, &cdb, transfer), sent);
            append_pattern(&mut self.out, offset, sent);
            self.numbers.command = self.numbers.command.wrapping_add(1);
            let (write, moved) = (work.write, sent as u32);
            self.slots[itt as usize] = Some(Slot { made: now, offset, length, write, moved });
        }
    }

    /// Puts a header into the buffer; its data follows.
    fn send(&mut self, mut header: Header, data_length: usize) {
        header.set_numbers(self.numbers.command, self.numbers.status);
        header.set_data_length(data_length);
        self.out.extend_from_slice(&header.0);
    }

    /// Deals with one PDU.
    fn take(
        &mut self,
        header: &Header,
        data: &[u8],
        work: &Work,
        tally: &mut Tally,
        now: Instant,
    ) -> Result<(), String> {
        // RFC 7143, 4.2.2.1: numbers that would close what is open are out of date.
        let max = header.max_cmd_sn();
        if precedes(self.numbers.window, max) && !precedes(max.wrapping_add(1), header.exp_cmd_sn())
        {
            self.numbers.window = max;
        }
        match header.opcode() {
            opcode::DATA_IN => {
                let slot = self.slot(header)?;
                let at = header.get(40);
                slot.moved = slot.moved.saturating_add(data.len() as u32);
                let place = slot.offset + u64::from(at);
                if work.check
                    && let Some(wrong) = find_difference(data, place)
                {
                    tally.error(|| format!("wrong data at byte {wrong}"));
                }
                if header.flags() & 1 != 0 {
                    self.complete(header, tally, now)?;
                }
            }
            opcode::SCSI_RESPONSE => self.complete(header, tally, now)?,
            opcode::R2T => self.send_data(header)?,
            opcode::LOGOUT_RESPONSE => self.leaving = Leaving::Granted,
            opcode::NOP_IN => {
                if header.ttt() != NO_TAG {
                    self.send(Header::pong(header), 0);
                }
            }
            opcode::ASYNC_MESSAGE => {
                return Err(format!(
                    "the target sent an asynchronous message, code {}",
                    header.0[36]
                ));
            }
            opcode::REJECT => {
                return Err(format!("the target rejected a PDU, reason {:#04x}", header.0[2]));
            }
            other => return Err(format!("the target sent opcode {other:#04x}")),
        }
        Ok(())
    }

    fn slot(&mut self, header: &Header) -> Result<&mut Slot, String> {
        let itt = header.itt();
        let slot = self.slots.get_mut(itt as usize).and_then(Option::as_mut);
        slot.ok_or_else(|| format!("the target answered {itt:#x}, which is not outstanding"))
    }

    /// Ends a command whose status has come.
    fn complete(&mut self, header: &Header, tally: &mut Tally, now: Instant) -> Result<(), String> {
        let slot = *self.slot(header)?;
        self.numbers.status = header.stat_sn().wrapping_add(1);
        self.slots[header.itt() as usize] = None;
        self.free.push(header.itt());
        // A Data-In has nothing where a SCSI Response says that there was no status.
        let delivered = header.opcode() == opcode::DATA_IN || header.0[2] == 0;
        let status = header.status();
        let Slot { offset, length, moved, write, .. } = slot;
        if !delivered || status != 0 {
            tally.error(|| format!("byte {offset}: status {status:#04x}, response {delivered}"));
        } else if moved != length {
            let done = if write { "taken" } else { "given" };
            tally.error(|| format!("byte {offset}: only {moved} of {length} bytes were {done}"));
        }
        let nanos = now.saturating_duration_since(slot.made).as_nanos();
        tally.histogram.add(u64::try_from(nanos).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Sends the data that an R2T asks for.
    fn send_data(&mut self, r2t: &Header) -> Result<(), String> {
        let (from, wanted) = (r2t.get(40), r2t.get(44));
        let slot = self.slot(r2t)?;
        let end = from.checked_add(wanted).filter(|end| slot.write && *end <= slot.length);
        let Some(end) = end else {
            return Err(format!("an R2T asks for {wanted} bytes at {from} that do not exist"));
        };
        slot.moved = slot.moved.saturating_add(wanted);
        let offset = slot.offset;
        let segment = self.send_segment as u32;
        for (number, at) in (from..end).step_by(segment as usize).enumerate() {
            let length = segment.min(end - at);
            let mut header = Header::data_out(self.lun, r2t.itt(), r2t.ttt(), number as u32, at);
            if at + length == end {
                header.set_final();
            }
            self.send(header, length as usize);
            // CmdSN is reserved in a Data-Out.
            append_pattern(&mut self.out, offset + u64::from(at), length as usize);
        }
        Ok(())
    }
}
