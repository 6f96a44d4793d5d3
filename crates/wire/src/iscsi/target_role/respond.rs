//! Sends responses, read data and unsolicited PDUs.

use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use std::ops::Range;

use super::connection::Phase;
use super::task::Task;
use super::{Connection, RejectReason, TmfResponse};
use crate::iscsi::framing::Segment;
use crate::iscsi::pdu::{
    DataIn, FINAL, HEADER_LENGTH, Header, Itt, LogoutResponse, NopIn, NopOut, OVERFLOW,
    RESERVED_TAG, Reject, STATUS, ScsiResponse, TaskManagementResponse, UNDERFLOW, opcode,
};
use crate::scsi::sense::SENSE_LENGTH_MAX;
use crate::scsi::{ScsiStatus, Sense};

/// Maximum pings without an answer. No more are sent; a shell closes the connection long before.
const PINGS_MAX: usize = 16;
/// Most sense data in a response: its length, then the data.
const SENSE_SEGMENT_LENGTH: usize = 2 + SENSE_LENGTH_MAX;

/// The command numbers that every PDU from the target carries.
pub(super) struct Numbers {
    pub(super) exp_cmd_sn: U32,
    pub(super) max_cmd_sn: U32,
}

/// The residual flag and count for a command that moves `length` bytes while the initiator expected
/// `expected`.
// RFC 7143 section 11.4.5.1: underflow counts what was expected and not moved, overflow what the
// command would have moved beyond.
const fn residual(expected: u32, length: u32) -> (u8, u32) {
    if length > expected {
        (OVERFLOW, length - expected)
    } else if length < expected {
        (UNDERFLOW, expected - length)
    } else {
        (0, 0)
    }
}

impl<P: AsRef<[u8]> + Clone> Connection<P> {
    /// Ends a command without read data. `length` is the transfer length of the command, independent of the
    /// initiator's expected length: zero after an error, else that of its CDB. It determines the residual.
    ///
    /// A command that was abandoned meanwhile is ignored over.
    pub fn respond(&mut self, itt: Itt, status: ScsiStatus, sense: Option<&Sense>, length: u32) {
        if let Some(task) = self.tasks.remove(itt) {
            self.push_scsi_response(&task, status, sense, length);
        }
    }

    /// Ends a command with GOOD status and the read data in `range` of `payload`, of which at most
    /// as much is sent as the initiator expects. `length` is how many bytes the command moves by
    /// its own account: usually the length of the range, more if the shell read only what the
    /// initiator expects.
    ///
    /// Panics if the range leaves the payload. A command that was abandoned meanwhile is ignored over.
    pub fn respond_data(&mut self, itt: Itt, payload: P, range: Range<usize>, length: u32) {
        let whole = 0..range.len();
        self.respond_part(itt, payload, range, whole, length);
    }

    /// Does so for a part of that data, counted from its start: what of it the initiator expects is
    /// queued, and the status with the last byte that it expects. Parts come in order and join without
    /// gaps; those of several commands may come in any order: RFC 7143 orders Data-In within a command
    /// only. Returns whether anything was queued, and so will leave with the
    /// mark of the command: not for a part that the initiator does not expect, nor for a command that was
    /// abandoned.
    ///
    /// Panics if the range leaves the payload, or the part the range.
    pub fn respond_part(
        &mut self,
        itt: Itt,
        payload: P,
        range: Range<usize>,
        part: Range<usize>,
        length: u32,
    ) -> bool {
        assert!(range.end <= payload.as_ref().len(), "read data lies within its payload");
        assert!(part.end <= range.len(), "a part lies within the read data");
        let Some(task) = self.tasks.find(itt) else {
            return false;
        };
        let expected = if task.reads { task.expected_length as usize } else { 0 };
        let total = range.len().min(expected);
        let expected_length = task.expected_length;
        let mut data_sn = task.data_in_sn;
        if total == 0 {
            self.respond(itt, ScsiStatus::Good, None, length);
            return true;
        }
        let segment = self.parameters.initiator_segment_length as usize;
        let burst = self.parameters.max_burst_length as usize;
        let (mut offset, end) = (part.start, part.end.min(total));
        if offset >= end {
            return false;
        }
        while offset < end {
            let burst_left = burst - offset % burst;
            let n = segment.min(burst_left).min(end - offset);
            let is_last = offset + n == total;
            // RFC 7143 section 11.7.1: F ends each sequence, which MaxBurstLength bounds.
            let mut flags = if is_last || n == burst_left { FINAL } else { 0 };
            let mut pdu = DataIn {
                opcode: opcode::DATA_IN,
                itt: itt.0.into(),
                ttt: RESERVED_TAG.into(),
                data_sn: data_sn.into(),
                buffer_offset: (offset as u32).into(),
                ..DataIn::default()
            };
            if is_last {
                self.tasks.remove(itt);
                // RFC 7143 section 11.7.3: good status may travel with the last data.
                let (flag, count) = residual(expected_length, length);
                flags |= STATUS | flag;
                pdu.residual = count.into();
                pdu.stat_sn = self.window.next_stat_sn().into();
            }
            pdu.flags = flags;
            let numbers = self.numbers();
            pdu.exp_cmd_sn = numbers.exp_cmd_sn;
            pdu.max_cmd_sn = numbers.max_cmd_sn;
            let start = range.start + offset;
            let data = Segment::Payload(payload.clone(), start..start + n);
            offset += n;
            self.push(zerocopy::transmute!(pdu), data, (offset == end).then_some(itt));
            data_sn = data_sn.wrapping_add(1);
        }
        if let Some(task) = self.tasks.find(itt) {
            task.data_in_sn = data_sn;
        }
        true
    }

    /// Drops a command without a response, for task management. Its write data is discarded from now on. Returns
    /// whether the command existed.
    pub fn abandon(&mut self, itt: Itt) -> bool {
        self.tasks.remove(itt).is_some()
    }

    /// Ends a task management function.
    pub fn task_management_response(&mut self, itt: Itt, result: TmfResponse) {
        let Some(index) = self.managing.iter().position(|one| one.itt == itt) else {
            return;
        };
        self.managing.swap_remove(index);
        let numbers = self.numbers();
        let response = TaskManagementResponse {
            opcode: opcode::TASK_MANAGEMENT_RESPONSE,
            flags: FINAL,
            response: result as u8,
            itt: itt.0.into(),
            stat_sn: self.window.next_stat_sn().into(),
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            ..TaskManagementResponse::default()
        };
        self.push(zerocopy::transmute!(response), Segment::Empty, None);
    }

    /// Answers [`Event::Logout`](super::Event::Logout). The connection closes.
    pub fn logout_response(&mut self, itt: Itt) {
        if self.phase == Phase::LoggingOut {
            self.push_logout_response(itt, 0);
            self.phase = Phase::Closing;
        }
    }

    /// Sends a NOP-In ping to the initiator, and returns the number of pings without an answer. No effect before the
    /// full feature phase.
    pub fn ping(&mut self) -> usize {
        if self.phase == Phase::FullFeature && self.pings.len() < PINGS_MAX {
            let ttt = self.new_ttt();
            self.pings.push(ttt);
            self.push_nop_in(ttt);
        }
        self.pings.len()
    }

    fn push_scsi_response(
        &mut self,
        task: &Task,
        status: ScsiStatus,
        sense: Option<&Sense>,
        length: u32,
    ) {
        let (flag, count) = residual(task.expected_length, length);
        let numbers = self.numbers();
        let response = ScsiResponse {
            opcode: opcode::SCSI_RESPONSE,
            flags: FINAL | flag,
            status: status as u8,
            itt: task.itt.0.into(),
            stat_sn: self.window.next_stat_sn().into(),
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            // RFC 7143 section 11.4.8: how many R2Ts were sent; no Data-In was.
            exp_data_sn: task.r2t_sn.into(),
            residual: count.into(),
            ..ScsiResponse::default()
        };
        let mut segment = [0; SENSE_SEGMENT_LENGTH];
        let data = match sense {
            None => Segment::Empty,
            Some(sense) => {
                // RFC 7143 section 11.4.7: the sense length goes before the sense data.
                let (bytes, length) = sense.encoded();
                segment[1] = length as u8;
                segment[2..].copy_from_slice(&bytes);
                Segment::Bytes(&segment[..2 + length])
            }
        };
        let digests = self.digests;
        let bytes = zerocopy::transmute!(response);
        self.outbox.push_pdu(bytes, data, digests, Some(task.itt));
    }

    pub(super) fn push_logout_response(&mut self, itt: Itt, result: u8) {
        let numbers = self.numbers();
        let response = LogoutResponse {
            opcode: opcode::LOGOUT_RESPONSE,
            flags: FINAL,
            response: result,
            itt: itt.0.into(),
            stat_sn: self.window.next_stat_sn().into(),
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            time2wait: self.parameters.default_time2wait.into(),
            ..LogoutResponse::default()
        };
        self.push(zerocopy::transmute!(response), Segment::Empty, None);
    }

    /// Sends a NOP-In: with a tag it requests an answer, with the reserved tag it only updates the command numbers.
    pub(super) fn push_nop_in(&mut self, ttt: u32) {
        let numbers = self.numbers();
        let nop = NopIn {
            opcode: opcode::NOP_IN,
            flags: FINAL,
            itt: RESERVED_TAG.into(),
            ttt: ttt.into(),
            // RFC 7143 section 11.19.2: with a reserved task tag the number does not advance.
            stat_sn: self.window.stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            ..NopIn::default()
        };
        self.push(zerocopy::transmute!(nop), Segment::Empty, None);
    }

    /// Sends the answer to a NOP-Out, with as much of its data as the initiator takes.
    pub(super) fn push_echo(&mut self, request: &NopOut, data: &[u8]) {
        let numbers = self.numbers();
        let nop = NopIn {
            opcode: opcode::NOP_IN,
            flags: FINAL,
            lun: request.lun,
            itt: request.itt,
            ttt: RESERVED_TAG.into(),
            stat_sn: self.window.next_stat_sn().into(),
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            ..NopIn::default()
        };
        // RFC 7143 section 11.18.3: ping data beyond the initiator's limit is cut off.
        let length = data.len().min(self.parameters.initiator_segment_length as usize);
        self.push(zerocopy::transmute!(nop), Segment::Bytes(&data[..length]), None);
    }

    pub(super) fn push_reject(&mut self, header: &Header, reason: RejectReason) {
        let numbers = self.numbers();
        let reject = Reject {
            opcode: opcode::REJECT,
            flags: FINAL,
            reason: reason as u8,
            itt: RESERVED_TAG.into(),
            stat_sn: self.window.next_stat_sn().into(),
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            ..Reject::default()
        };
        // RFC 7143 section 11.17: the header that was refused is the data.
        self.push(zerocopy::transmute!(reject), Segment::Bytes(header.as_bytes()), None);
    }

    /// Command numbers for the PDU that is being built.
    pub(super) fn numbers(&mut self) -> Numbers {
        let outstanding = self.outstanding();
        Numbers {
            exp_cmd_sn: self.window.exp_cmd_sn.into(),
            max_cmd_sn: self.window.advertise(outstanding).into(),
        }
    }

    /// Queues one PDU with the digests in force.
    pub(super) fn push(
        &mut self,
        header: [u8; HEADER_LENGTH],
        data: Segment<'_, P>,
        mark: Option<Itt>,
    ) {
        self.outbox.push_pdu(header, data, self.digests, mark);
    }
}
