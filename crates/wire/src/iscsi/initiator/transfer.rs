//! Transfers commands and their data: requests, R2Ts, Data-In and status (RFC 7143 sections 4.2.5, 11.3, 11.4, 11.7
//! and 11.8).

use zerocopy::transmute;

use super::command::{Command, Direction};
use super::event::{Event, Residual};
use super::fault::{Fault, PduKind, Wanted};
use super::session::Initiator;
use super::tasks::{Entry, Request, Task, Tasks};
use crate::iscsi::codes::Attribute;
use crate::iscsi::framing::Segment;
use crate::iscsi::pdu::{
    DataIn, DataOut, FINAL, Itt, OVERFLOW, R2t, READ, RESERVED_TAG, STATUS, ScsiCommand,
    ScsiResponse, UNDERFLOW, WRITE, opcode,
};
use crate::scsi::luns;

const DATA_IN: PduKind = PduKind(opcode::DATA_IN);
const R2T: PduKind = PduKind(opcode::R2T);
const RESPONSE: PduKind = PduKind(opcode::SCSI_RESPONSE);
/// SCSI status GOOD.
const GOOD: u8 = 0;
/// Longest sense data, in bytes (SPC-4 section 4.5.1). More is no sense data.
const SENSE_MAX: usize = 252;

/// A sequence of Data-Out.
#[derive(Clone, Copy, Debug)]
struct Burst {
    /// Tag and unit of the R2T that it answers; reserved and zero if it is unsolicited.
    ttt: u32,
    lun: [u8; 8],
    /// First byte, and first byte behind it.
    from: u32,
    to: u32,
}

impl<P: AsRef<[u8]> + Clone> Initiator<P> {
    /// Sends a command.
    ///
    /// Panics while there is no [`room`](Self::room), for a logical unit number above 16383, or if
    /// the range leaves the payload.
    pub fn command(&mut self, command: Command<P>) -> Itt {
        assert!(self.room() > 0, "a command is given while there is room");
        let parameters = self.parameters;
        let (direction, payload) = match &command.data {
            Direction::None => (0, None),
            Direction::Read(_) => (READ, None),
            Direction::Write(payload, range) => {
                assert!(range.end <= payload.as_ref().len(), "write data lies in its payload");
                (WRITE, Some((payload.clone(), range.start)))
            }
        };
        let lun = luns::encode(command.lun);
        let cmd_sn = self.numbers.next();
        let mut task = Task {
            lun,
            cmd_sn,
            data: command.data,
            moved: 0,
            next_sn: 0,
            bursts: 0,
            unsolicited: false,
            doomed_by: None,
        };
        let expected = task.expected();
        let (mut immediate, mut unsolicited) = (0, 0);
        if payload.is_some() {
            let first = parameters.first_burst_length.min(expected);
            if parameters.immediate_data {
                immediate = first.min(parameters.target_segment_length & !3);
            }
            if !parameters.initial_r2t {
                unsolicited = first - immediate;
            }
        }
        task.moved = immediate + unsolicited;
        task.unsolicited = unsolicited > 0;
        task.bursts = task.unsolicited.into();
        let is_final = if unsolicited > 0 { 0 } else { FINAL };
        let itt = self.tasks.insert(command.tag, Request::Command(task));

        let header = ScsiCommand {
            opcode: opcode::SCSI_COMMAND,
            flags: is_final | if expected > 0 { direction } else { 0 } | code(command.attribute),
            lun,
            itt: itt.0.into(),
            expected_length: expected.into(),
            cmd_sn: cmd_sn.into(),
            exp_stat_sn: self.numbers.exp_stat_sn().into(),
            cdb: command.cdb,
            ..ScsiCommand::default()
        };
        match payload {
            Some((payload, start)) => {
                let range = start..start + immediate as usize;
                self.push(transmute!(header), Segment::Payload(payload.clone(), range), Some(itt));
                if unsolicited > 0 {
                    let (from, to) = (immediate, immediate + unsolicited);
                    // RFC 7143 section 11.7.3: without a target transfer tag the LUN is reserved.
                    let burst = Burst { ttt: RESERVED_TAG, lun: [0; 8], from, to };
                    self.push_data_out(itt, burst, &payload, start);
                }
            }
            None => self.push(transmute!(header), Segment::Empty, Some(itt)),
        }
        itt
    }

    /// Sends one sequence of Data-Out; `start` is where the command's data starts in `payload`.
    // RFC 7143 section 11.7: numbers start from zero in each sequence, and F ends it.
    fn push_data_out(&mut self, itt: Itt, burst: Burst, payload: &P, start: usize) {
        // A segment that others follow is a multiple of four bytes long.
        let segment = self.parameters.target_segment_length & !3;
        let mut from = burst.from;
        let mut data_sn = 0_u32;
        while from < burst.to {
            let length = segment.min(burst.to - from);
            let is_last = from + length == burst.to;
            let header = DataOut {
                opcode: opcode::DATA_OUT,
                flags: if is_last { FINAL } else { 0 },
                lun: burst.lun,
                itt: itt.0.into(),
                ttt: burst.ttt.into(),
                exp_stat_sn: self.numbers.exp_stat_sn().into(),
                data_sn: data_sn.into(),
                buffer_offset: from.into(),
                ..DataOut::default()
            };
            let at = start + from as usize;
            let data = Segment::Payload(payload.clone(), at..at + length as usize);
            self.push(transmute!(header), data, is_last.then_some(itt));
            from += length;
            data_sn += 1;
        }
    }

    /// Takes one Data-In PDU.
    pub(super) fn on_data_in<'a>(
        &mut self,
        pdu: &DataIn,
        data: &'a [u8],
    ) -> Result<Option<Event<'a>>, Fault> {
        let itt = Itt(pdu.itt.get());
        let (known, task) = find(&mut self.tasks, DATA_IN, itt)?;
        if !matches!(task.data, Direction::Read(_)) {
            return Err(Fault::WrongAnswer { pdu: DATA_IN, itt: itt.0 });
        }
        // RFC 7143 sections 11.7.4, 13.18 and 13.19: in order, without gaps.
        exactly(DATA_IN, "DataSN", pdu.data_sn.get(), task.next_sn, "RFC 7143 section 11.7.4")?;
        let offset = task.moved;
        let rule = "RFC 7143 section 13.18";
        exactly(DATA_IN, "BufferOffset", pdu.buffer_offset.get(), offset, rule)?;
        let (length, expected) = (data.len() as u32, task.expected());
        let Some(end) = offset.checked_add(length).filter(|&end| end <= expected) else {
            return Err(Fault::OutOfRange { pdu: DATA_IN, offset, length, expected });
        };
        let has_status = pdu.flags & STATUS != 0;
        if data.is_empty() && !has_status {
            return Err(Fault::Field {
                pdu: DATA_IN,
                field: "DataSegmentLength",
                value: 0,
                wanted: Wanted::AtLeast(1),
                rule: "data that never comes to an end",
            });
        }
        task.moved = end;
        task.next_sn = task.next_sn.wrapping_add(1);
        let Known { tag, forgotten } = known;
        let done = if has_status {
            self.numbers.status(DATA_IN, pdu.stat_sn.get())?;
            let residual = residual(DATA_IN, pdu.flags, pdu.residual.get())?;
            self.end(DATA_IN, itt, Some(pdu.status), &[], residual)?
        } else {
            None
        };
        if forgotten || data.is_empty() {
            return Ok(done);
        }
        self.pending.extend(done);
        Ok(Some(Event::Data { itt, tag, offset, bytes: data }))
    }

    /// Takes one SCSI Response.
    pub(super) fn on_response<'a>(
        &mut self,
        pdu: &ScsiResponse,
        data: &'a [u8],
    ) -> Result<Option<Event<'a>>, Fault> {
        let itt = Itt(pdu.itt.get());
        find(&mut self.tasks, RESPONSE, itt)?;
        let residual = residual(RESPONSE, pdu.flags, pdu.residual.get())?;
        // RFC 7143 section 11.4.3: any other response is the target's failure.
        let status = (pdu.response == 0).then_some(pdu.status);
        self.end(RESPONSE, itt, status, sense(data)?, residual)
    }

    /// Takes one R2T and answers it.
    pub(super) fn on_r2t(&mut self, pdu: &R2t) -> Result<(), Fault> {
        let itt = Itt(pdu.itt.get());
        let max_burst = self.parameters.max_burst_length;
        let max_outstanding = self.parameters.max_outstanding_r2t;
        let (_, task) = find(&mut self.tasks, R2T, itt)?;
        let Direction::Write(payload, range) = &task.data else {
            return Err(Fault::WrongAnswer { pdu: R2T, itt: itt.0 });
        };
        let (payload, start, lun) = (payload.clone(), range.start, task.lun);
        let wrong =
            |field, value, wanted, rule| Err(Fault::Field { pdu: R2T, field, value, wanted, rule });
        let ttt = pdu.ttt.get();
        if ttt == RESERVED_TAG {
            let wanted = Wanted::AtMost(RESERVED_TAG - 1);
            return wrong("TargetTransferTag", ttt, wanted, "RFC 7143 section 11.8.5");
        }
        exactly(R2T, "R2TSN", pdu.r2t_sn.get(), task.next_sn, "RFC 7143 section 11.8.3")?;
        // RFC 7143 section 13.19: one sequence follows the other.
        let from = task.moved;
        exactly(R2T, "BufferOffset", pdu.buffer_offset.get(), from, "RFC 7143 section 13.19")?;
        let length = pdu.desired_length.get();
        let rule = "RFC 7143 section 11.8.4";
        if length == 0 {
            return wrong("DesiredDataTransferLength", length, Wanted::AtLeast(1), rule);
        }
        if length > max_burst {
            return wrong("DesiredDataTransferLength", length, Wanted::AtMost(max_burst), rule);
        }
        let expected = task.expected();
        let Some(to) = from.checked_add(length).filter(|&end| end <= expected) else {
            return Err(Fault::OutOfRange { pdu: R2T, offset: from, length, expected });
        };
        // RFC 7143 section 13.17. A sequence counts until it has left; the target, which counts until
        // it has arrived, counts no fewer.
        let waiting = task.bursts - u16::from(task.unsolicited);
        if waiting >= max_outstanding {
            let wanted = Wanted::AtMost(max_outstanding.into());
            let rule = "RFC 7143 section 13.17";
            return wrong("MaxOutstandingR2T", u32::from(waiting) + 1, wanted, rule);
        }
        task.bursts += 1;
        task.moved = to;
        task.next_sn = task.next_sn.wrapping_add(1);
        // RFC 7143 section 11.7.3: the unit is that of the command.
        self.push_data_out(itt, Burst { ttt, lun, from, to }, &payload, start);
        Ok(())
    }

    /// Ends a command, if the target may do so.
    fn end<'a>(
        &mut self,
        pdu: PduKind,
        itt: Itt,
        status: Option<u8>,
        sense: &'a [u8],
        residual: Residual,
    ) -> Result<Option<Event<'a>>, Fault> {
        let (_, task) = find(&mut self.tasks, pdu, itt)?;
        let expected = task.expected();
        let missing = match residual {
            Residual::Underflow(missing) => missing,
            Residual::None | Residual::Overflow(_) => 0,
        };
        let Some(due) = expected.checked_sub(missing) else {
            let wanted = Wanted::AtMost(expected);
            let rule = "RFC 7143 section 11.4.5.1";
            return Err(Fault::Field { pdu, field: "ResidualCount", value: missing, wanted, rule });
        };
        if status == Some(GOOD) {
            let moved = task.moved;
            let fits = match task.data {
                Direction::None => true,
                Direction::Read(_) => moved == due,
                // The target need not use all unsolicited data.
                Direction::Write(..) => moved >= due,
            };
            if !fits {
                return Err(Fault::DataMissing { pdu, moved, due });
            }
            // The target cannot have written data that is still in the outbox.
            if task.bursts > 0 && due == expected {
                return Err(Fault::TooEarly { pdu, itt: itt.0 });
            }
        }
        let Entry { tag, forgotten, .. } =
            self.tasks.remove(itt).ok_or(Fault::UnknownTag { pdu, itt: itt.0 })?;
        Ok((!forgotten).then_some(Event::Done { itt, tag, status, sense, residual }))
    }
}

/// The shell's identifier of a command.
#[derive(Clone, Copy)]
struct Known {
    tag: u64,
    forgotten: bool,
}

/// The command that an answer is about.
fn find<P>(tasks: &mut Tasks<P>, pdu: PduKind, itt: Itt) -> Result<(Known, &mut Task<P>), Fault> {
    let entry = tasks.find(itt).ok_or(Fault::UnknownTag { pdu, itt: itt.0 })?;
    let known = Known { tag: entry.tag, forgotten: entry.forgotten };
    if !entry.sent {
        return Err(Fault::TooEarly { pdu, itt: itt.0 });
    }
    match &mut entry.request {
        Request::Command(task) => Ok((known, task)),
        _ => Err(Fault::WrongAnswer { pdu, itt: itt.0 }),
    }
}

fn exactly(
    pdu: PduKind,
    field: &'static str,
    value: u32,
    due: u32,
    rule: &'static str,
) -> Result<(), Fault> {
    if value == due {
        return Ok(());
    }
    Err(Fault::Field { pdu, field, value, wanted: Wanted::Exactly(due), rule })
}

/// The task attribute in the flags of a command (RFC 7143 section 11.3.1).
const fn code(attribute: Attribute) -> u8 {
    match attribute {
        Attribute::Simple => 1,
        Attribute::Ordered => 2,
        Attribute::HeadOfQueue => 3,
        Attribute::Aca => 4,
    }
}

// RFC 7143 section 11.4.1: both flags at once are an error.
fn residual(pdu: PduKind, flags: u8, count: u32) -> Result<Residual, Fault> {
    match (flags & UNDERFLOW != 0, flags & OVERFLOW != 0) {
        (false, false) => Ok(Residual::None),
        (true, false) => Ok(Residual::Underflow(count)),
        (false, true) => Ok(Residual::Overflow(count)),
        (true, true) => Err(Fault::Field {
            pdu,
            field: "residual flags",
            value: flags.into(),
            wanted: Wanted::AtMost(OVERFLOW.into()),
            rule: "RFC 7143 section 11.4.1",
        }),
    }
}

/// The sense data in the data segment of a response: its length, then the data.
// RFC 7143 section 11.4.7.
fn sense(data: &[u8]) -> Result<&[u8], Fault> {
    let Some((length, rest)) = data.split_first_chunk::<2>() else {
        return if data.is_empty() { Ok(&[]) } else { Err(sense_fault(1, 0)) };
    };
    let length = u16::from_be_bytes(*length);
    let most = rest.len().min(SENSE_MAX);
    rest[..most].get(..length.into()).ok_or_else(|| sense_fault(length, most))
}

fn sense_fault(length: u16, most: usize) -> Fault {
    Fault::Field {
        pdu: RESPONSE,
        field: "SenseLength",
        value: length.into(),
        wanted: Wanted::AtMost(most as u32),
        rule: "RFC 7143 section 11.4.7",
    }
}
