//! Receives write data: immediate, unsolicited, and solicited by R2T (RFC 7143 sections 4.2.5, 11.7 and 11.8).

use super::task::{Burst, Task};
use super::{Connection, Event};
use crate::iscsi::framing::Segment;
use crate::iscsi::pdu::{DataOut, FINAL, Itt, R2t, RESERVED_TAG, opcode};
use crate::scsi::Sense;

impl<P: AsRef<[u8]> + Clone> Connection<P> {
    /// Takes one Data-Out PDU.
    pub(super) fn on_data_out<'a>(&mut self, pdu: &DataOut, data: &'a [u8]) -> Option<Event<'a>> {
        let itt = Itt(pdu.itt.get());
        let first_burst = self.parameters.first_burst_length;
        // RFC 7143 section 11.7: data of a task that was answered or aborted in the meantime may still be in transit.
        // It is discarded, and so is data of an unknown tag, and data that no task expects: its command may be
        // running.
        let task = self.tasks.find(itt)?;
        if !task.writes || task.broken || task.gathered {
            return None;
        }
        let offset = task.received;
        if let Err(sense) = take(task, pdu, data, first_burst) {
            task.broken = true;
            return Some(Event::TransferFailed { itt, sense });
        }
        let waits = task.unsolicited || task.bursts.len() > 0;
        let wanted = task.wanted.unwrap_or(task.expected_length);
        let complete = !waits && task.received >= wanted;
        task.gathered = complete;
        self.ask(itt);
        let is_news = complete || !data.is_empty();
        is_news.then_some(Event::Data { itt, offset, bytes: data, complete })
    }

    /// Gathers the first `wanted` bytes of a command's write data, for which the shell has a buffer: waits for the
    /// unsolicited data, then sends R2Ts for the rest. Never requests more bytes than the initiator has.
    ///
    /// Returns whether more data will arrive. If not, all data was in the command or in earlier [`Event::Data`].
    pub fn solicit(&mut self, itt: Itt, wanted: u32) -> bool {
        let Some(task) = self.tasks.find(itt).filter(|task| task.writes && !task.broken) else {
            return false;
        };
        task.wanted = Some(wanted.min(task.expected_length));
        let comes = task.unsolicited || task.received < wanted.min(task.expected_length);
        task.gathered = !comes;
        self.ask(itt);
        comes
    }

    /// Sends as many R2Ts as the task needs and the initiator takes.
    fn ask(&mut self, itt: Itt) {
        loop {
            let (burst, limit) =
                (self.parameters.max_burst_length, self.parameters.max_outstanding_r2t);
            let Some(task) = self.tasks.find(itt).filter(|task| !task.unsolicited) else {
                return;
            };
            let Some(wanted) = task.wanted else {
                return;
            };
            let start = task.bursts.newest().map_or(task.received, |burst| burst.end);
            // RFC 7143 section 13.17: MaxOutstandingR2T counts R2Ts of one task.
            if start >= wanted || task.bursts.len() >= usize::from(limit) {
                return;
            }
            // RFC 7143 section 11.8.4: the desired length is at most MaxBurstLength and never zero.
            let length = burst.min(wanted - start);
            let (lun, r2t_sn) = (task.lun, task.r2t_sn);
            task.r2t_sn = r2t_sn.wrapping_add(1);
            let ttt = self.new_ttt();
            if let Some(task) = self.tasks.find(itt) {
                task.bursts.push(Burst { ttt, end: start + length });
            }
            let numbers = self.numbers();
            let r2t = R2t {
                opcode: opcode::R2T,
                flags: FINAL,
                lun,
                itt: itt.0.into(),
                ttt: ttt.into(),
                stat_sn: self.window.stat_sn.into(),
                exp_cmd_sn: numbers.exp_cmd_sn,
                max_cmd_sn: numbers.max_cmd_sn,
                r2t_sn: r2t_sn.into(),
                buffer_offset: start.into(),
                desired_length: length.into(),
                ..R2t::default()
            };
            self.push(zerocopy::transmute!(r2t), Segment::Empty, None);
        }
    }
}

/// Compares one PDU with the expectations of its task, and counts it.
fn take(task: &mut Task, pdu: &DataOut, data: &[u8], first_burst: u32) -> Result<(), Sense> {
    let limit = if pdu.ttt.get() == RESERVED_TAG {
        // RFC 7143 section 13.10: only what the command announced may come unasked.
        if !task.unsolicited {
            return Err(Sense::UNEXPECTED_UNSOLICITED_DATA);
        }
        // RFC 7143 section 13.14: immediate and unsolicited data together.
        first_burst.min(task.expected_length)
    } else {
        // RFC 7143 section 13.19: R2Ts are answered in the order in which they were sent.
        match task.bursts.oldest() {
            Some(burst) if burst.ttt == pdu.ttt.get() => burst.end,
            _ => return Err(Sense::PROTOCOL_SERVICE_CRC_ERROR),
        }
    };
    // RFC 7143 section 7.9: a data PDU that is missing or out of order ends the task at error
    // recovery level 0; section 11.7.4 has numbers start from zero in each sequence.
    if pdu.data_sn.get() != task.data_sn || pdu.buffer_offset.get() != task.received {
        return Err(Sense::PROTOCOL_SERVICE_CRC_ERROR);
    }
    let end = task.received.checked_add(data.len() as u32).filter(|&end| end <= limit);
    let end = end.ok_or(Sense::INCORRECT_AMOUNT_OF_DATA)?;
    let is_final = pdu.flags & FINAL != 0;
    // RFC 7143 section 11.7.1: F ends a sequence. Section 11.4.7.2: a sequence that R2T asked for ends
    // where the R2T said, and unsolicited Data-Out of a command that is longer than the first burst
    // fills it. A shorter command may end it early; the rest is asked for.
    let may_end_early = task.unsolicited && task.expected_length <= first_burst;
    if is_final != (end == limit) && !(is_final && may_end_early) {
        return Err(Sense::INCORRECT_AMOUNT_OF_DATA);
    }
    task.received = end;
    task.data_sn = task.data_sn.wrapping_add(1);
    if is_final {
        task.data_sn = 0;
        if task.unsolicited {
            task.unsolicited = false;
        } else {
            task.bursts.pop();
        }
    }
    Ok(())
}
