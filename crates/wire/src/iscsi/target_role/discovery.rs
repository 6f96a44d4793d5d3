//! Text requests after the login, above all `SendTargets` (RFC 7143 sections 11.10 and C).

use zerocopy::{IntoBytes, transmute_ref};

use super::{Connection, Event, Node, RejectReason, TargetEntry};
use crate::iscsi::framing::Segment;
use crate::iscsi::keys::Answer;
use crate::iscsi::pdu::{CONTINUE, FINAL, Header, RESERVED_TAG, TextRequest, TextResponse, opcode};
use crate::iscsi::text::{self, TEXT_LENGTH_MAX};

/// A text exchange that is not over.
#[derive(Debug)]
pub(super) struct Exchange {
    itt: u32,
    ttt: u32,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl<P: AsRef<[u8]> + Clone> Connection<P> {
    /// Takes one Text Request.
    pub(super) fn on_text<'a>(&mut self, request: &TextRequest, data: &[u8]) -> Option<Event<'a>> {
        match self.text_step(request, data) {
            Ok(()) => None,
            Err(reason) => {
                self.exchange = None;
                let header: &Header = transmute_ref!(request);
                Some(self.reject(header, reason))
            }
        }
    }

    fn text_step(&mut self, request: &TextRequest, data: &[u8]) -> Result<(), RejectReason> {
        let (itt, ttt) = (request.itt.get(), request.ttt.get());
        if itt == RESERVED_TAG {
            return Err(RejectReason::InvalidPduField);
        }
        // RFC 7143 section 6.2.3: a request with the reserved tag starts anew and drops whatever
        // was being negotiated.
        if ttt == RESERVED_TAG {
            let ttt = self.new_ttt();
            let (incoming, outgoing) = (Vec::new(), Vec::new());
            self.exchange = Some(Exchange { itt, ttt, incoming, outgoing });
        }
        let exchange = self.exchange.as_mut().filter(|one| one.itt == itt);
        let exchange = exchange
            .filter(|one| ttt == RESERVED_TAG || one.ttt == ttt)
            .ok_or(RejectReason::InvalidPduField)?;
        let is_continued = request.flags & CONTINUE != 0;
        if is_continued && request.flags & FINAL != 0 {
            return Err(RejectReason::InvalidPduField);
        }

        if !exchange.outgoing.is_empty() {
            // RFC 7143 section 6.2: the answer to a continued response is an empty request.
            if !data.is_empty() {
                return Err(RejectReason::ProtocolError);
            }
        } else if exchange.incoming.len() + data.len() > TEXT_LENGTH_MAX {
            return Err(RejectReason::LongOperationReject);
        } else {
            exchange.incoming.extend_from_slice(data);
            if !is_continued {
                let incoming = std::mem::take(&mut exchange.incoming);
                let outgoing = self.answer_text(&incoming)?;
                if let Some(exchange) = &mut self.exchange {
                    exchange.outgoing = outgoing;
                }
            }
        }
        self.push_text_response(request);
        Ok(())
    }

    fn answer_text(&mut self, incoming: &[u8]) -> Result<Vec<u8>, RejectReason> {
        let mut outgoing = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for (key, value) in text::pairs(incoming).map_err(|_| RejectReason::ProtocolError)? {
            // RFC 7143 section 6.2: a key comes once.
            if seen.contains(&key) {
                return Err(RejectReason::ProtocolError);
            }
            seen.push(key);
            match key {
                "SendTargets" => self.send_targets(value, &mut outgoing),
                _ => self.answer_key(key, value, &mut outgoing)?,
            }
        }
        Ok(outgoing)
    }

    fn answer_key(
        &mut self,
        key: &str,
        value: &str,
        outgoing: &mut Vec<u8>,
    ) -> Result<(), RejectReason> {
        // RFC 7143 section 13: only declarations may still change after the login.
        let mut scratch = self.parameters;
        let answer = scratch.negotiate(key, value, &self.limits, self.login.is_discovery);
        match answer {
            Answer::Fail => return Err(RejectReason::ProtocolError),
            Answer::Nothing => self.parameters = scratch,
            Answer::Constant("NotUnderstood") => text::push(outgoing, key, "NotUnderstood"),
            Answer::Constant(_) | Answer::Value(_) | Answer::Misplaced => {
                text::push(outgoing, key, "Reject");
            }
        }
        Ok(())
    }

    /// Lists what `value` asks for, of what the initiator may see.
    // RFC 7143 appendix C: "All" belongs to discovery sessions alone, and the empty value, which
    // means the session's own target, to normal ones. A record holds TargetName and TargetAddress
    // and nothing else, so no alias.
    fn send_targets(&self, value: &str, outgoing: &mut Vec<u8>) {
        let own = self.login.target;
        let is_name = ["iqn.", "eui.", "naa."].iter().any(|start| value.starts_with(start));
        let is_known = match value {
            "All" => own.is_none(),
            "" => own.is_some(),
            _ => is_name,
        };
        if !is_known {
            text::push(outgoing, "SendTargets", "Reject");
            return;
        }
        let is_visible =
            |entry: &TargetEntry| !entry.removed && entry.is_for(&self.login.initiator);
        let matches = |index: usize, entry: &TargetEntry| {
            own.is_none_or(|own| own == index)
                && is_visible(entry)
                && (!is_name || entry.iqn.eq_ignore_ascii_case(value))
        };
        for (index, entry) in self.node.targets.iter().enumerate() {
            if matches(index, entry) {
                text::push(outgoing, "TargetName", &entry.iqn);
                push_addresses(&self.node, &self.portals, outgoing);
            }
        }
    }

    /// Sends as much text as the initiator takes in one PDU.
    fn push_text_response(&mut self, request: &TextRequest) {
        let Some(mut exchange) = self.exchange.take() else {
            return;
        };
        let limit = self.parameters.initiator_segment_length as usize;
        let length = exchange.outgoing.len().min(limit);
        let is_cut = length < exchange.outgoing.len();
        // RFC 7143 section 11.11.1: F ends the exchange, and an exchange that continues has a tag.
        let is_over = !is_cut && request.flags & FINAL != 0;
        let flags = match (is_over, is_cut) {
            (true, _) => FINAL,
            (false, true) => CONTINUE,
            (false, false) => 0,
        };
        let numbers = self.numbers();
        let response = TextResponse {
            opcode: opcode::TEXT_RESPONSE,
            flags,
            lun: request.lun,
            itt: request.itt,
            ttt: if is_over { RESERVED_TAG } else { exchange.ttt }.into(),
            stat_sn: self.window.next_stat_sn().into(),
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            ..TextResponse::default()
        };
        let bytes = zerocopy::transmute!(response);
        self.push(bytes, Segment::Bytes(exchange.outgoing[..length].as_bytes()), None);
        exchange.outgoing.drain(..length);
        if !is_over {
            self.exchange = Some(exchange);
        }
    }
}

/// Lists every portal of a target (RFC 7143 appendix C): those that the node names, or else all on which
/// it is reached.
fn push_addresses(node: &Node, reached: &[String], outgoing: &mut Vec<u8>) {
    let group = node.portal_group;
    let mut push = |address: &str| {
        text::push(outgoing, "TargetAddress", &format!("{address},{group}"));
    };
    if node.portals.is_empty() {
        for portal in reached {
            push(portal);
        }
    } else {
        for portal in &node.portals {
            push(&portal.0);
        }
    }
}
