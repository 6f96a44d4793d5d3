//! Fabrics commands.

use super::controller::{Property, PropertyValue};
use super::pdu::Sqe;
use super::status::Status;

/// A Fabrics command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    Connect,
    Property(Property),
    Disconnect,
    /// One that is not supported, or is malformed.
    Invalid(Status),
}

/// The Fabrics command, if it is one.
pub(super) fn decode(sqe: &Sqe) -> Option<Command> {
    if !sqe.is_fabrics() {
        return None;
    }
    // ATTRIB: 0 for four bytes, 1 for eight.
    let is_wide = match sqe.cdw(10) & 7 {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    let property = |value| match is_wide {
        None => Command::Invalid(Status::INVALID_FIELD),
        Some(is_wide) => Command::Property(Property { offset: sqe.cdw(11), is_wide, value }),
    };
    Some(match sqe.fctype() {
        fctype::PROPERTY_SET => property(PropertyValue::Set(sqe.cdw_pair(12))),
        fctype::CONNECT => Command::Connect,
        fctype::PROPERTY_GET => property(PropertyValue::Get),
        fctype::DISCONNECT => Command::Disconnect,
        _ => Command::Invalid(Status::INVALID_OPCODE),
    })
}

/// Types of Fabrics commands.
mod fctype {
    pub(super) const PROPERTY_SET: u8 = 0x00;
    pub(super) const CONNECT: u8 = 0x01;
    pub(super) const PROPERTY_GET: u8 = 0x04;
    pub(super) const DISCONNECT: u8 = 0x08;
}
