//! The full feature phase: PDUs other than commands, and unsolicited ones of the target.

use zerocopy::{FromBytes, transmute, transmute_ref};

use super::event::{AsyncEvent, Event};
use super::fault::{Fault, PduKind, Wanted};
use super::session::{Initiator, Phase};
use super::settings::IMMEDIATE_MAX;
use super::tasks::{Entry, Request};
use crate::iscsi::codes::{TaskFunction, TmfResponse};
use crate::iscsi::framing::Segment;
use crate::iscsi::pdu::{
    AsyncMessage, FINAL, Header, IMMEDIATE, Itt, LogoutRequest, LogoutResponse, NopIn, NopOut,
    RESERVED_TAG, Reject, ScsiResponse, TaskManagementRequest, TaskManagementResponse, opcode,
};
use crate::scsi::luns;

impl<P: AsRef<[u8]> + Clone> Initiator<P> {
    /// Takes one PDU of the full feature phase.
    pub(super) fn on_full_feature<'a>(
        &mut self,
        header: &Header,
        data: &'a [u8],
    ) -> Result<Option<Event<'a>>, Fault> {
        let kind = header.kind();
        let pdu = PduKind(kind);
        if header.ahs_words != 0 {
            // RFC 7143 section 11.2.2: only requests have additional header segments.
            return Err(Fault::Field {
                pdu,
                field: "TotalAHSLength",
                value: header.ahs_words.into(),
                wanted: Wanted::Exactly(0),
                rule: "RFC 7143 section 11.2.2",
            });
        }
        // Every PDU from the target has its numbers at the same places.
        let common: &ScsiResponse = transmute_ref!(header);
        let has_status = match kind {
            opcode::SCSI_RESPONSE
            | opcode::TASK_MANAGEMENT_RESPONSE
            | opcode::TEXT_RESPONSE
            | opcode::LOGOUT_RESPONSE
            | opcode::ASYNC_MESSAGE
            | opcode::REJECT => true,
            // RFC 7143 section 11.19: a NOP-In that answers nothing does not use up its number.
            opcode::NOP_IN => header.itt.get() != RESERVED_TAG,
            // Its number is looked at together with its status.
            opcode::DATA_IN | opcode::R2T => false,
            _ => return Err(Fault::OutOfPlace { pdu, when: "in the full feature phase" }),
        };
        if has_status {
            self.numbers.status(pdu, common.stat_sn.get())?;
        }
        self.numbers.hear(common.exp_cmd_sn.get(), common.max_cmd_sn.get());
        match kind {
            opcode::DATA_IN => self.on_data_in(transmute_ref!(header), data),
            opcode::SCSI_RESPONSE => self.on_response(common, data),
            opcode::R2T => self.on_r2t(transmute_ref!(header)).map(|()| None),
            opcode::NOP_IN => self.on_nop_in(transmute_ref!(header)),
            opcode::TASK_MANAGEMENT_RESPONSE => self.on_managed(transmute_ref!(header)),
            opcode::TEXT_RESPONSE => self.on_text(transmute_ref!(header), data),
            opcode::LOGOUT_RESPONSE => self.on_logged_out(transmute_ref!(header)),
            opcode::ASYNC_MESSAGE => Ok(Some(Event::Asked(asked(transmute_ref!(header))))),
            _ => Err(rejected(transmute_ref!(header), data)),
        }
    }

    /// Whether another request may be sent that is no command.
    pub(super) fn may_ask(&self) -> bool {
        self.phase == Phase::FullFeature && self.tasks.others() < IMMEDIATE_MAX
    }

    /// Asks the target whether it is there; [`Event::Pong`] answers. `None`, and nothing is sent,
    /// outside of the full feature phase or while [`IMMEDIATE_MAX`] requests wait.
    pub fn ping(&mut self, tag: u64) -> Option<Itt> {
        if !self.may_ask() {
            return None;
        }
        let itt = self.tasks.insert(tag, Request::Ping);
        self.push_nop_out(itt.0, RESERVED_TAG, [0; 8], Some(itt));
        Some(itt)
    }

    /// Asks for a task management function; [`Event::Managed`] answers, after an
    /// [`Event::Aborted`] for each command that it ended. `task` is the command to abort, for
    /// [`TaskFunction::AbortTask`]. `None`, and nothing is sent, outside of the full feature phase of a
    /// normal session, while [`IMMEDIATE_MAX`] requests wait, or if the command to abort has ended.
    ///
    /// Panics for a logical unit number above 16383.
    pub fn manage(
        &mut self,
        function: TaskFunction,
        lun: u64,
        task: Option<Itt>,
        tag: u64,
    ) -> Option<Itt> {
        if !self.may_ask() || self.settings.target.is_none() {
            return None;
        }
        let lun = luns::encode(lun);
        let one_task = function == TaskFunction::AbortTask;
        let referenced = if one_task {
            let (itt, task) = self.tasks.iter_mut().find(|(itt, _)| Some(*itt) == task)?;
            Some((itt, task.cmd_sn))
        } else {
            None
        };
        let itt = self.tasks.insert(tag, Request::Managing { one_task });
        for (other, task) in self.tasks.iter_mut() {
            let is_meant = match function {
                TaskFunction::AbortTask => referenced.is_some_and(|(itt, _)| itt == other),
                TaskFunction::ClearAca => false,
                TaskFunction::AbortTaskSet
                | TaskFunction::ClearTaskSet
                | TaskFunction::LogicalUnitReset => task.lun == lun,
                TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset => true,
            };
            if is_meant {
                task.doomed_by = Some(itt);
            }
        }
        let (referenced_itt, ref_cmd_sn) =
            referenced.map_or((RESERVED_TAG, 0), |(itt, cmd_sn)| (itt.0, cmd_sn));
        let request = TaskManagementRequest {
            opcode: opcode::TASK_MANAGEMENT_REQUEST | IMMEDIATE,
            function: FINAL | function.code(),
            lun,
            itt: itt.0.into(),
            referenced_itt: referenced_itt.into(),
            cmd_sn: self.numbers.cmd_sn.into(),
            exp_stat_sn: self.numbers.exp_stat_sn().into(),
            ref_cmd_sn: ref_cmd_sn.into(),
            ..TaskManagementRequest::default()
        };
        self.push(transmute!(request), Segment::Empty, Some(itt));
        Some(itt)
    }

    /// Asks for the end of the session; [`Event::LoggedOut`] answers. No further commands are taken;
    /// those that are outstanding may still be answered before that. Does nothing outside of the full
    /// feature phase.
    pub fn logout(&mut self) {
        if self.phase != Phase::FullFeature {
            return;
        }
        self.phase = Phase::LoggingOut;
        let itt = self.tasks.insert(0, Request::Logout);
        let request = LogoutRequest {
            opcode: opcode::LOGOUT_REQUEST | IMMEDIATE,
            // RFC 7143 section 11.14.1: reason 0 closes the session.
            reason: FINAL,
            itt: itt.0.into(),
            cmd_sn: self.numbers.cmd_sn.into(),
            exp_stat_sn: self.numbers.exp_stat_sn().into(),
            ..LogoutRequest::default()
        };
        self.push(transmute!(request), Segment::Empty, Some(itt));
    }

    /// Takes the request that an answer is about out of those that wait.
    pub(super) fn answered(
        &mut self,
        pdu: PduKind,
        itt: u32,
        fits: impl FnOnce(&Request<P>) -> bool,
    ) -> Result<Entry<P>, Fault> {
        let entry = self.tasks.find(Itt(itt)).ok_or(Fault::UnknownTag { pdu, itt })?;
        if !entry.sent {
            return Err(Fault::TooEarly { pdu, itt });
        }
        if !fits(&entry.request) {
            return Err(Fault::WrongAnswer { pdu, itt });
        }
        self.tasks.remove(Itt(itt)).ok_or(Fault::UnknownTag { pdu, itt })
    }

    fn on_nop_in<'a>(&mut self, pdu: &NopIn) -> Result<Option<Event<'a>>, Fault> {
        let kind = PduKind(opcode::NOP_IN);
        let mut event = None;
        if pdu.itt.get() != RESERVED_TAG {
            let fits = |request: &_| matches!(request, Request::Ping);
            let entry = self.answered(kind, pdu.itt.get(), fits)?;
            event = Some(Event::Pong { tag: entry.tag });
        }
        // RFC 7143 section 11.19.2: a valid target transfer tag asks for an answer.
        if pdu.ttt.get() != RESERVED_TAG {
            self.push_nop_out(RESERVED_TAG, pdu.ttt.get(), pdu.lun, None);
        }
        Ok(event)
    }

    fn push_nop_out(&mut self, itt: u32, ttt: u32, lun: [u8; 8], mark: Option<Itt>) {
        let request = NopOut {
            opcode: opcode::NOP_OUT | IMMEDIATE,
            flags: FINAL,
            lun,
            itt: itt.into(),
            ttt: ttt.into(),
            cmd_sn: self.numbers.cmd_sn.into(),
            exp_stat_sn: self.numbers.exp_stat_sn().into(),
            ..NopOut::default()
        };
        self.push(transmute!(request), Segment::Empty, mark);
    }

    fn on_managed<'a>(&mut self, pdu: &TaskManagementResponse) -> Result<Option<Event<'a>>, Fault> {
        let kind = PduKind(opcode::TASK_MANAGEMENT_RESPONSE);
        let itt = Itt(pdu.itt.get());
        let fits = |request: &_| matches!(request, Request::Managing { .. });
        let entry = self.answered(kind, itt.0, fits)?;
        // RFC 7143 section 11.6.1: other codes are reserved.
        let response = TmfResponse::from_code(pdu.response).unwrap_or(TmfResponse::Rejected);
        // Answers come in order, so that a command that does not exist, and has not been answered,
        // never will be.
        let one_task = matches!(entry.request, Request::Managing { one_task: true });
        let is_over = response == TmfResponse::Complete
            || one_task && response == TmfResponse::TaskDoesNotExist;
        self.end_doomed(itt, is_over);
        self.pending.push_back(Event::Managed { tag: entry.tag, response });
        Ok(self.pending.pop_front())
    }

    /// Ends the commands that a task management function has ended, or lets them continue.
    fn end_doomed(&mut self, by: Itt, is_over: bool) {
        let mut ended = Vec::new();
        for (itt, task) in self.tasks.iter_mut().filter(|(_, task)| task.doomed_by == Some(by)) {
            task.doomed_by = None;
            ended.push(itt);
        }
        for itt in ended.into_iter().filter(|_| is_over) {
            if let Some(Entry { tag, forgotten: false, .. }) = self.tasks.remove(itt) {
                self.pending.push_back(Event::Aborted { itt, tag });
            }
        }
    }

    fn on_logged_out<'a>(&mut self, pdu: &LogoutResponse) -> Result<Option<Event<'a>>, Fault> {
        let kind = PduKind(opcode::LOGOUT_RESPONSE);
        let fits = |request: &_| matches!(request, Request::Logout);
        self.answered(kind, pdu.itt.get(), fits)?;
        if pdu.response != 0 {
            return Err(Fault::LogoutRefused { response: pdu.response });
        }
        self.phase = Phase::Over;
        Ok(Some(Event::LoggedOut))
    }
}

// RFC 7143 section 11.9.1.
fn asked(pdu: &AsyncMessage) -> AsyncEvent {
    match pdu.event {
        0 => AsyncEvent::Unit { lun: luns::decode(pdu.lun) },
        1 => AsyncEvent::Logout { seconds: pdu.parameter3.get() },
        2 | 3 => AsyncEvent::Drop { time2wait: pdu.parameter2.get() },
        4 => AsyncEvent::Renegotiate { seconds: pdu.parameter3.get() },
        code => AsyncEvent::Other { code },
    }
}

/// A refusal; its data is the header of what was refused.
// RFC 7143 section 11.17. What was refused may be a command, data or a request: none of them can be
// sent again at error recovery level 0.
fn rejected(pdu: &Reject, data: &[u8]) -> Fault {
    let header = Header::ref_from_prefix(data).ok();
    let kind = header.map_or(opcode::REJECT, |(header, _)| header.kind());
    Fault::Rejected { pdu: PduKind(kind), reason: pdu.reason }
}
