//! The full feature phase: commands, task management, echoes and logout.

use zerocopy::transmute_ref;

use super::connection::{Managing, Phase};
use super::task::{Bursts, Task};
use super::window::Arrival;
use super::{
    Attribute, Command, Connection, Event, IMMEDIATE_TASKS_MAX, LogoutReason, PeerError,
    RejectReason, TaskFunction, TmfResponse,
};
use crate::iscsi::ahs;
use crate::iscsi::pdu::{
    DataOut, FINAL, Header, Itt, LogoutRequest, NopOut, READ, RESERVED_TAG, ScsiCommand,
    TaskManagementRequest, TextRequest, WRITE, opcode,
};
use crate::iscsi::serial::before;
use crate::scsi::{ScsiStatus, Sense, luns};

/// The task management function that moves a task to another connection.
const TASK_REASSIGN: u8 = 8;
/// First and last of the functions that RFC 7144 adds, for peers that negotiated its protocol level.
const QUERY_TASK: u8 = 9;
const QUERY_ASYNCHRONOUS_EVENT: u8 = 12;

impl<P: AsRef<[u8]> + Clone> Connection<P> {
    /// Takes one PDU of the full feature phase.
    pub(super) fn on_full_feature<'a>(
        &mut self,
        header: &Header,
        segments: &'a [u8],
        data: &'a [u8],
    ) -> Result<Option<Event<'a>>, PeerError> {
        // RFC 7143 section 4.3: a discovery session is for text and logout.
        let scsi = matches!(
            header.kind(),
            opcode::SCSI_COMMAND | opcode::DATA_OUT | opcode::TASK_MANAGEMENT_REQUEST
        );
        if scsi && self.login.is_discovery {
            return Ok(Some(self.reject(header, RejectReason::ProtocolError)));
        }
        self.check_acknowledged(header)?;
        match header.kind() {
            opcode::SCSI_COMMAND => self.on_command(header, segments, data),
            opcode::DATA_OUT => {
                let pdu: &DataOut = transmute_ref!(header);
                Ok(self.on_data_out(pdu, data))
            }
            opcode::NOP_OUT => self.on_nop_out(header, data),
            opcode::TASK_MANAGEMENT_REQUEST => self.on_task_management(header),
            opcode::TEXT_REQUEST => {
                let request: &TextRequest = transmute_ref!(header);
                if self.takes_turn(header)? { Ok(self.on_text(request, data)) } else { Ok(None) }
            }
            opcode::LOGOUT_REQUEST => self.on_logout(header),
            // RFC 7143 section 6.3: no login request after the login.
            opcode::LOGIN_REQUEST => Ok(Some(self.reject(header, RejectReason::ProtocolError))),
            // RFC 7143 section 11.16: SNACK belongs to higher error recovery levels.
            _ => Ok(Some(self.reject(header, RejectReason::CommandNotSupported))),
        }
    }

    /// Checks that the initiator acknowledges only status that was sent. At error recovery level 0 no PDU is kept for
    /// retransmission, so the acknowledged number is not used.
    // RFC 7143 section 4.2.2.2. An R2T carries the number that comes next without using it (section 11.8), and common
    // initiators acknowledge it like a status: one number too many is accepted.
    fn check_acknowledged(&self, header: &Header) -> Result<(), PeerError> {
        // Every PDU that is served has ExpStatSN at the same place.
        if header.kind() > opcode::LOGOUT_REQUEST {
            return Ok(());
        }
        let request: &ScsiCommand = transmute_ref!(header);
        let (expected, got) = (self.window.stat_sn, request.exp_stat_sn.get());
        if before(expected.wrapping_add(1), got) {
            return Err(PeerError::StatusNeverSent { expected, got });
        }
        Ok(())
    }

    /// Whether a request is delivered now. A request outside of the window is not.
    ///
    /// A number that skips others ends the connection: the connection is the session's only one and TCP keeps the
    /// order, so the missing request will never arrive, and a wait would stall the session silently.
    fn takes_turn(&mut self, header: &Header) -> Result<bool, PeerError> {
        // RFC 7143 section 4.2.2.1: immediate requests do not take a number.
        if header.is_immediate() {
            return Ok(true);
        }
        // Every request but Data-Out and SNACK has CmdSN at the same place.
        let request: &ScsiCommand = transmute_ref!(header);
        let got = request.cmd_sn.get();
        match self.window.arrive(got) {
            Arrival::Due => Ok(true),
            Arrival::Ignored => {
                self.ignored += 1;
                Ok(false)
            }
            Arrival::Gap => Err(PeerError::CommandGap { expected: self.window.exp_cmd_sn, got }),
        }
    }

    /// Whether `itt` is in use by a request without a response, or reserved.
    fn tag_fault(&self, itt: Itt) -> Option<RejectReason> {
        if itt.0 == RESERVED_TAG {
            return Some(RejectReason::InvalidPduField);
        }
        let busy = self.tasks.contains(itt)
            || self.managing.iter().any(|one| one.itt == itt)
            || self.outbox.holds(itt.0);
        busy.then_some(RejectReason::TaskInProgress)
    }

    fn on_command<'a>(
        &mut self,
        header: &Header,
        segments: &'a [u8],
        data: &'a [u8],
    ) -> Result<Option<Event<'a>>, PeerError> {
        if !self.takes_turn(header)? {
            return Ok(None);
        }
        let pdu: &ScsiCommand = transmute_ref!(header);
        let itt = Itt(pdu.itt.get());
        if let Some(reason) = self.tag_fault(itt) {
            return Ok(Some(self.reject(header, reason)));
        }
        if header.is_immediate() && self.tasks.immediate() == IMMEDIATE_TASKS_MAX {
            return Ok(Some(self.reject(header, RejectReason::ImmediateCommandReject)));
        }
        let cdb_rest = ahs::cdb_rest(segments).ok_or(PeerError::MalformedAhs)?;
        let reads = pdu.flags & READ != 0;
        let writes = pdu.flags & WRITE != 0;
        let is_final = pdu.flags & FINAL != 0;
        // RFC 7143 section 11.3.1: codes above 4 are reserved, and F is one unless unsolicited
        // Data-Out follows.
        let attribute = match pdu.flags & 7 {
            0 | 1 => Attribute::Simple,
            2 => Attribute::Ordered,
            3 => Attribute::HeadOfQueue,
            4 => Attribute::Aca,
            _ => return Ok(Some(self.reject(header, RejectReason::InvalidPduField))),
        };
        if !is_final && !writes {
            return Ok(Some(self.reject(header, RejectReason::InvalidPduField)));
        }

        let expected_length = if reads || writes { pdu.expected_length.get() } else { 0 };
        let first_burst = self.parameters.first_burst_length.min(expected_length);
        let received = data.len() as u32;
        self.tasks.insert(Task {
            itt,
            lun: pdu.lun,
            immediate: header.is_immediate(),
            reads,
            writes,
            expected_length,
            received,
            unsolicited: !is_final && received < first_burst,
            data_sn: 0,
            gathered: false,
            wanted: None,
            bursts: Bursts::default(),
            r2t_sn: 0,
            data_in_sn: 0,
            broken: false,
        });
        let takes_immediate = writes && self.parameters.immediate_data;
        let fault = if reads && writes {
            // No supported command moves data both ways.
            Some(Sense::INVALID_FIELD_IN_CDB)
        } else if (!data.is_empty() && !takes_immediate)
            || (!is_final && self.parameters.initial_r2t)
        {
            // RFC 7143 sections 13.10 and 13.11.
            Some(Sense::UNEXPECTED_UNSOLICITED_DATA)
        } else if received > first_burst {
            // RFC 7143 section 13.14.
            Some(Sense::INCORRECT_AMOUNT_OF_DATA)
        } else {
            None
        };
        if let Some(sense) = fault {
            self.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0);
            return Ok(None);
        }
        Ok(Some(Event::Command(Command {
            itt,
            lun: luns::decode(pdu.lun),
            cdb: pdu.cdb,
            cdb_rest,
            attribute,
            reads,
            writes,
            expected_length,
            immediate: data,
            unsolicited: !is_final && received < first_burst,
            is_immediate: header.is_immediate(),
        })))
    }

    fn on_nop_out<'a>(
        &mut self,
        header: &Header,
        data: &[u8],
    ) -> Result<Option<Event<'a>>, PeerError> {
        if !self.takes_turn(header)? {
            return Ok(None);
        }
        let pdu: &NopOut = transmute_ref!(header);
        let ttt = pdu.ttt.get();
        let mut event = None;
        if ttt != RESERVED_TAG {
            // RFC 7143 section 11.18.2: a valid tag answers a NOP-In that carried it.
            let Some(index) = self.pings.iter().position(|&ping| ping == ttt) else {
                return Ok(Some(self.reject(header, RejectReason::InvalidPduField)));
            };
            self.pings.swap_remove(index);
            event = Some(Event::Pong);
        }
        // RFC 7143 section 11.18.1: only a valid initiator task tag requests an answer.
        if pdu.itt.get() != RESERVED_TAG {
            self.push_echo(pdu, data);
        }
        Ok(event)
    }

    fn on_task_management<'a>(&mut self, header: &Header) -> Result<Option<Event<'a>>, PeerError> {
        if !self.takes_turn(header)? {
            return Ok(None);
        }
        let pdu: &TaskManagementRequest = transmute_ref!(header);
        let itt = Itt(pdu.itt.get());
        if let Some(reason) = self.tag_fault(itt) {
            return Ok(Some(self.reject(header, reason)));
        }
        let immediate = header.is_immediate();
        let at_once = self.managing.iter().filter(|one| one.immediate).count();
        if immediate && at_once == IMMEDIATE_TASKS_MAX {
            return Ok(Some(self.reject(header, RejectReason::ImmediateCommandReject)));
        }
        let code = pdu.function & 0x7f;
        let refusal = match code {
            // RFC 7143 section 11.5.1: moving a task belongs to error recovery level 2.
            TASK_REASSIGN => Some(TmfResponse::ReassignNotSupported),
            QUERY_TASK..=QUERY_ASYNCHRONOUS_EVENT => Some(TmfResponse::NotSupported),
            _ => None,
        };
        if let Some(refusal) = refusal {
            self.managing.push(Managing { itt, immediate });
            self.task_management_response(itt, refusal);
            return Ok(None);
        }
        let Some(function) = TaskFunction::from_code(code) else {
            return Ok(Some(self.reject(header, RejectReason::InvalidPduField)));
        };
        self.managing.push(Managing { itt, immediate });
        Ok(Some(Event::TaskManagement {
            itt,
            function,
            lun: luns::decode(pdu.lun),
            referenced_itt: Itt(pdu.referenced_itt.get()),
            ref_cmd_sn: pdu.ref_cmd_sn.get(),
        }))
    }

    fn on_logout<'a>(&mut self, header: &Header) -> Result<Option<Event<'a>>, PeerError> {
        if !self.takes_turn(header)? {
            return Ok(None);
        }
        let pdu: &LogoutRequest = transmute_ref!(header);
        let itt = Itt(pdu.itt.get());
        if let Some(reason) = self.tag_fault(itt) {
            return Ok(Some(self.reject(header, reason)));
        }
        // RFC 7143 section 11.14.1.
        let reason = match pdu.reason & 0x7f {
            0 => LogoutReason::CloseSession,
            1 if pdu.cid.get() == self.login.cid => LogoutReason::CloseConnection,
            1 => {
                // RFC 7143 section 11.15.1: 1 is "CID not found".
                self.push_logout_response(itt, 1);
                return Ok(None);
            }
            2 => {
                // RFC 7143 section 11.15.1: 2 is "connection recovery is not supported".
                self.push_logout_response(itt, 2);
                return Ok(None);
            }
            _ => return Ok(Some(self.reject(header, RejectReason::InvalidPduField))),
        };
        self.phase = Phase::LoggingOut;
        Ok(Some(Event::Logout { itt, reason }))
    }

    /// Refuses a PDU and keeps the connection.
    pub(super) fn reject<'a>(&mut self, header: &Header, reason: RejectReason) -> Event<'a> {
        self.push_reject(header, reason);
        Event::Rejected { opcode: header.kind(), reason }
    }
}
