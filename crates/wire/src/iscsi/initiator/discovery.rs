//! Discovery by `SendTargets` (RFC 7143 sections 11.10, 11.11 and C).

use zerocopy::transmute;

use super::event::{Event, Portal, Target};
use super::fault::{Fault, PduKind, Wanted};
use super::session::Initiator;
use super::tasks::Request;
use crate::iscsi::framing::Segment;
use crate::iscsi::pdu::{
    CONTINUE, FINAL, IMMEDIATE, Itt, RESERVED_TAG, TextRequest, TextResponse, opcode,
};
use crate::iscsi::text;

const RESPONSE: PduKind = PduKind(opcode::TEXT_RESPONSE);
/// Longest answer, in bytes. A longer one ends the session.
const ANSWER_MAX: usize = 1 << 20;
/// Most PDUs of one answer. More end the session.
const ROUNDS_MAX: usize = 4096;
/// Most keys in one answer, one for each target and each portal. More end the session.
const PAIRS_MAX: usize = 16 * 1024;

/// A question that is not answered completely.
#[derive(Debug)]
pub(super) struct Exchange {
    itt: Itt,
    incoming: Vec<u8>,
    rounds: usize,
}

impl<P: AsRef<[u8]> + Clone> Initiator<P> {
    /// Asks which targets there are: in a discovery session all, else where the own target can be
    /// reached. [`Event::Targets`] answers. Returns whether the question was sent: one at a time, in the
    /// full feature phase.
    pub fn send_targets(&mut self) -> bool {
        if !self.may_ask() || self.exchange.is_some() {
            return false;
        }
        let itt = self.tasks.insert(0, Request::Text);
        self.exchange = Some(Exchange { itt, incoming: Vec::new(), rounds: 0 });
        let mut text = Vec::new();
        // RFC 7143 appendix C: "All" belongs to discovery sessions alone.
        let wanted = if self.settings.target.is_none() { "All" } else { "" };
        text::push(&mut text, "SendTargets", wanted);
        self.push_text_request(itt, RESERVED_TAG, [0; 8], &text, Some(itt));
        true
    }

    /// Takes one Text Response.
    pub(super) fn on_text<'a>(
        &mut self,
        pdu: &TextResponse,
        data: &[u8],
    ) -> Result<Option<Event<'a>>, Fault> {
        let itt = pdu.itt.get();
        let mut exchange = self.exchange.take().filter(|one| one.itt.0 == itt);
        let Some(one) = &mut exchange else {
            return Err(Fault::UnknownTag { pdu: RESPONSE, itt });
        };
        one.rounds += 1;
        if one.rounds > ROUNDS_MAX {
            return Err(Fault::Endless { pdu: RESPONSE, limit: ROUNDS_MAX, unit: "responses" });
        }
        if one.incoming.len() + data.len() > ANSWER_MAX {
            return Err(Fault::Endless { pdu: RESPONSE, limit: ANSWER_MAX, unit: "bytes of text" });
        }
        one.incoming.extend_from_slice(data);
        let is_over = pdu.flags & FINAL != 0;
        // RFC 7143 section 11.11.1: F and C exclude each other; section 11.11.4: the tag is reserved
        // exactly when the answer is over.
        if is_over && pdu.flags & CONTINUE != 0 {
            return Err(Fault::Field {
                pdu: RESPONSE,
                field: "C",
                value: 1,
                wanted: Wanted::Exactly(0),
                rule: "RFC 7143 section 11.11.2",
            });
        }
        let ttt = pdu.ttt.get();
        if !is_over && ttt == RESERVED_TAG {
            return Err(Fault::Field {
                pdu: RESPONSE,
                field: "TargetTransferTag",
                value: ttt,
                wanted: Wanted::AtMost(RESERVED_TAG - 1),
                rule: "RFC 7143 section 11.11.4",
            });
        }
        if !is_over {
            let itt = one.itt;
            self.exchange = exchange;
            // The entry is looked up so that an answer cannot come before its question.
            let sent = self.tasks.find(itt).is_some_and(|entry| std::mem::take(&mut entry.sent));
            if !sent {
                return Err(Fault::TooEarly { pdu: RESPONSE, itt: itt.0 });
            }
            self.push_text_request(itt, ttt, pdu.lun, &[], Some(itt));
            return Ok(None);
        }
        let targets = read(&one.incoming)?;
        self.answered(RESPONSE, itt, |request| matches!(request, Request::Text))?;
        Ok(Some(Event::Targets(targets)))
    }

    fn push_text_request(
        &mut self,
        itt: Itt,
        ttt: u32,
        lun: [u8; 8],
        text: &[u8],
        mark: Option<Itt>,
    ) {
        let request = TextRequest {
            opcode: opcode::TEXT_REQUEST | IMMEDIATE,
            flags: FINAL,
            lun,
            itt: itt.0.into(),
            ttt: ttt.into(),
            cmd_sn: self.numbers.cmd_sn.into(),
            exp_stat_sn: self.numbers.exp_stat_sn().into(),
            ..TextRequest::default()
        };
        self.push(transmute!(request), Segment::Bytes(text), mark);
    }
}

/// The targets of an answer: each name, and behind it where it can be reached.
fn read(text: &[u8]) -> Result<Vec<Target>, Fault> {
    let malformed = Fault::Text { pdu: RESPONSE };
    let mut targets: Vec<Target> = Vec::new();
    for (key, value) in text::pairs_up_to(text, PAIRS_MAX).map_err(|_| malformed)? {
        let illegal = || Fault::IllegalValue { key: key.to_owned(), value: value.to_owned() };
        match key {
            "TargetName" => {
                targets.push(Target { name: value.to_owned(), portals: Vec::new() });
            }
            "TargetAddress" => {
                let (address, group) = value.rsplit_once(',').ok_or_else(illegal)?;
                let group = text::number(group).and_then(|group| u16::try_from(group).ok());
                let portal =
                    Portal { address: address.to_owned(), group: group.ok_or_else(illegal)? };
                targets.last_mut().ok_or_else(illegal)?.portals.push(portal);
            }
            "TargetAlias" => {}
            "SendTargets" => return Err(illegal()),
            _ => return Err(Fault::KeyOutOfPlace { key: key.to_owned() }),
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names with their portals, of either family, and names without.
    #[test]
    fn targets_are_read() {
        let text = b"TargetName=iqn.a\0TargetAddress=10.0.0.1:3260,1\0\
            TargetAddress=[fd00::1]:3260,65535\0TargetName=iqn.b\0";
        let targets = read(text).unwrap();
        let portal = |address: &str, group| Portal { address: address.to_owned(), group };
        assert_eq!(
            targets[0].portals,
            [portal("10.0.0.1:3260", 1), portal("[fd00::1]:3260", 65535)]
        );
        assert_eq!((&*targets[1].name, targets[1].portals.len(), targets.len()), ("iqn.b", 0, 2));
        assert!(read(b"").unwrap().is_empty());
    }

    /// An address without a target, without a group, or with one that is none; other keys; no text at all.
    #[test]
    fn anything_else_is_refused() {
        for wrong in [
            &b"TargetAddress=10.0.0.1:3260,1\0"[..],
            b"TargetName=a\0TargetAddress=10.0.0.1:3260\0",
            b"TargetName=a\0TargetAddress=10.0.0.1:3260,65536\0",
            b"SendTargets=Reject\0",
            b"X-com.example=1\0",
            b"TargetName",
        ] {
            assert!(read(wrong).is_err(), "{}", wrong.escape_ascii());
        }
        let many = b"TargetName=a\0".repeat(PAIRS_MAX + 1);
        assert!(read(&many[..many.len() - 13]).is_ok() && read(&many).is_err());
    }
}
