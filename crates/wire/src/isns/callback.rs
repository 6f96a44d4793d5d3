//! A connection that a server makes to the gateway: it asks whether a portal is alive (ESI, RFC 4171, section 5.6.5.13),
//! and says what has changed (SCN, section 5.6.5.8).

use super::attribute::{self, Attribute, Writer};
use super::codes::{EVENT_REMOVED, Function, Status, tag};
use super::fault::Fault;
use super::message::{Assembler, Message};
use super::objects::canonical;
use std::net::SocketAddr;

/// What a gateway is to its servers: only for that are callbacks answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// The iSCSI name of the gateway.
    pub source: String,
    /// Its entity.
    pub entity: String,
    /// Its portals.
    pub portals: Vec<SocketAddr>,
}

/// What a callback says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The server has asked whether a portal is alive.
    Inquired,
    /// Something has changed at the server.
    Changed,
    /// The gateway was removed at the server.
    Removed,
}

/// A connection of a server.
#[derive(Debug)]
pub struct Callback {
    assembler: Assembler,
    output: Vec<u8>,
}

impl Default for Callback {
    fn default() -> Self {
        Self { assembler: Assembler::new(MESSAGE_MAX), output: Vec::new() }
    }
}

impl Callback {
    /// Takes received bytes: how many, and what they say. The rest is to be passed again with more. After a fault the
    /// connection is to be closed.
    pub fn receive(&mut self, bytes: &[u8], own: &Own) -> Result<(usize, Vec<Notice>), Fault> {
        let (mut taken, mut notices) = (0, Vec::new());
        // A server that does not take answers is not listened to.
        while self.output.len() < OUTPUT_MAX {
            let (length, message) = self.assembler.take(&bytes[taken..])?;
            if length == 0 {
                break;
            }
            taken += length;
            if let Some(message) = message {
                notices.extend(self.message(&message, own)?);
            }
        }
        Ok((taken, notices))
    }

    /// The bytes that wait to be written.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// The first `n` of them are written.
    pub fn wrote(&mut self, n: usize) {
        self.output.drain(..n);
    }

    fn message(&mut self, message: &Message, own: &Own) -> Result<Option<Notice>, Fault> {
        let (answer, notice) = answer(message, own)?;
        if let Some(answer) = answer {
            answer.write(&mut self.output);
        }
        Ok(notice)
    }
}

/// What a request of a server is answered with, and what it says.
pub(super) fn answer(
    message: &Message,
    own: &Own,
) -> Result<(Option<Message>, Option<Notice>), Fault> {
    if message.function.is_answer() {
        return Err(Fault::Unexpected(message.function));
    }
    let attributes = attribute::all(&message.payload)?;
    let (status, answer, notice) = match message.function {
        Function::STATUS_INQUIRY => {
            // An answer for another entity or portal would keep it at the server.
            if !own.is_asked(&attributes) {
                return Ok((None, None));
            }
            (Status::SUCCESS, attributes, Some(Notice::Inquired))
        }
        Function::STATE_CHANGE => match attributes.first().filter(|to| to.tag == tag::NODE_NAME) {
            None => (Status::EVENT_REJECTED, Vec::new(), None),
            // Another node's answer is not this one's to give.
            Some(to) if to.text().as_deref() != Some(&own.source) => return Ok((None, None)),
            Some(to) => (Status::SUCCESS, vec![*to], Some(change(&attributes, own))),
        },
        _ => (Status::NOT_SUPPORTED, Vec::new(), None),
    };
    let mut payload = Writer(status.0.to_be_bytes().to_vec());
    for attribute in answer {
        payload.copy(attribute);
    }
    // What does not fit one PDU was not asked by a server: its inquiries have four attributes.
    if payload.0.len() > usize::from(u16::MAX) {
        return Err(Fault::TooLong(MESSAGE_MAX));
    }
    let (function, transaction) = (message.function.answer(), message.transaction);
    Ok((Some(Message { function, transaction, payload: payload.0 }), notice))
}

impl Own {
    /// Whether an inquiry is about this entity and one of these portals.
    fn is_asked(&self, attributes: &[Attribute<'_>]) -> bool {
        let entity = attributes.iter().find(|one| one.tag == tag::ENTITY);
        let entity = entity.and_then(|one| one.text());
        let portal = attribute::portals(attributes).next();
        entity.is_some_and(|entity| entity.to_lowercase() == self.entity.to_lowercase())
            && self.portals.iter().any(|one| Some(canonical(*one)) == portal)
    }
}

/// What a state change notification says: a destination and a time, then events, each with the node that it is about.
fn change(attributes: &[Attribute<'_>], own: &Own) -> Notice {
    let removed = attributes.windows(2).any(|pair| {
        (pair[0].tag, pair[1].tag) == (tag::EVENTS, tag::NODE_NAME)
            && pair[0].number().is_some_and(|events| events & EVENT_REMOVED != 0)
            && pair[1].text().as_deref() == Some(&own.source)
    });
    if removed { Notice::Removed } else { Notice::Changed }
}

/// The longest message of a server in bytes.
const MESSAGE_MAX: usize = 64 << 10;

/// Answers that may wait; a server that does not read them is not listened to.
pub(super) const OUTPUT_MAX: usize = 128 << 10;
