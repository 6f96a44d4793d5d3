//! Messages, and the callbacks of a server.

use super::server::{inquiry, notification};
use super::{ENTITY, SOURCE, portal};
use crate::isns::attribute::{self, Writer};
use crate::isns::codes::{Function, tag};
use crate::isns::message::{Assembler, Message};
use crate::isns::{Callback, Fault, Notice, Own};

/// A PDU: version, function, payload, flags, transaction, sequence.
fn pdu(words: [u16; 6], payload: &[u8]) -> Vec<u8> {
    let head = words.iter().flat_map(|word| word.to_be_bytes());
    head.chain(payload.iter().copied()).collect()
}

/// A message of several PDUs is put together in order; everything else that RFC 4171 forbids is refused by its rule.
#[test]
fn messages_are_put_together() {
    let first = pdu([1, 0x8002, 4, 0x4400, 9, 0], &[1; 4]);
    let middle = pdu([1, 0x8002, 0, 0x4000, 9, 1], &[]);
    let last = pdu([1, 0x8002, 4, 0x4800, 9, 2], &[2; 4]);
    let mut assembler = Assembler::new(8);
    assert_eq!(assembler.take(&first[..15]), Ok((0, None)), "not whole");
    assert_eq!(assembler.take(&first), Ok((16, None)));
    assert_eq!(assembler.take(&middle), Ok((12, None)));
    let payload = vec![1, 1, 1, 1, 2, 2, 2, 2];
    let message = Message { function: Function(0x8002), transaction: 9, payload };
    assert_eq!(assembler.take(&last), Ok((16, Some(message))));

    let fault = |before: &[u8], words, payload: &[u8]| {
        let mut assembler = Assembler::new(8);
        if !before.is_empty() {
            assembler.take(before).unwrap();
        }
        assembler.take(&pdu(words, payload)).unwrap_err()
    };
    assert_eq!(fault(&[], [2, 1, 0, 0x8c00, 1, 0], &[]), Fault::Version(2));
    assert_eq!(fault(&[], [1, 1, 3, 0x8c00, 1, 0], &[]), Fault::Unaligned(3));
    assert_eq!(fault(&[], [1, 1, 12, 0x8c00, 1, 0], &[]), Fault::TooLong(8));
    assert_eq!(fault(&[], [1, 1, 4, 0xac00, 1, 0], &[]), Fault::Authentication);
    assert_eq!(fault(&[], [1, 1, 0, 0x8800, 1, 0], &[]), Fault::Sequence { expected: 0, got: 0 });
    assert_eq!(fault(&[], [1, 1, 0, 0x8c00, 1, 1], &[]), Fault::Sequence { expected: 0, got: 1 });
    let gap = Fault::Sequence { expected: 1, got: 2 };
    assert_eq!(fault(&first, [1, 0x8002, 4, 0x4800, 9, 2], &[]), gap);
    let other = Fault::Interleaved(Function(0x8002));
    assert_eq!(fault(&first, [1, 0x8002, 4, 0x4800, 8, 1], &[]), other);
    assert_eq!(fault(&first, [1, 0x8002, 8, 0x4800, 9, 1], &[]), Fault::TooLong(8));
}

/// An attribute that is longer than its payload is refused before it is read.
#[test]
fn attributes_are_not_cut() {
    let cut = |bytes: &[u8]| attribute::all(bytes).unwrap_err();
    assert_eq!(cut(&[0; 7]), Fault::Cut { tag: 0, length: 0, left: 7 });
    let long = [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    assert_eq!(cut(&long), Fault::Cut { tag: 1, length: u32::MAX, left: 4 });
}

fn own() -> Own {
    let portals = vec![portal("[::ffff:192.0.2.1]:3260")];
    Own { source: SOURCE.into(), entity: ENTITY.into(), portals }
}

/// What a callback answers to a request, and what it says.
fn called(function: Function, attributes: &Writer, flags: u16) -> (Option<Vec<u8>>, Vec<Notice>) {
    let mut callback = Callback::default();
    let words = [1, function.0, attributes.0.len() as u16, flags, 77, 0];
    let bytes = pdu(words, &attributes.0);
    let (taken, notices) = callback.receive(&bytes, &own()).unwrap();
    assert_eq!(taken, bytes.len());
    let output = callback.output().to_vec();
    callback.wrote(output.len());
    assert!(callback.output().is_empty());
    ((!output.is_empty()).then_some(output), notices)
}

/// An inquiry about this gateway's portal is answered with what it has; others are not answered.
#[test]
fn inquiries_are_answered() {
    let asked = inquiry(ENTITY, portal("192.0.2.1:3260"));
    let (answer, notices) = called(Function::STATUS_INQUIRY, &asked, 0x4c00);
    let payload = [&[0; 4], &asked.0[..]].concat();
    let words = [1, 0x800d, payload.len() as u16, 0x8c00, 77, 0];
    assert_eq!((answer, notices), (Some(pdu(words, &payload)), vec![Notice::Inquired]));
    for (entity, at) in [("other", "192.0.2.1:3260"), (ENTITY, "192.0.2.1:3261")] {
        let answered = called(Function::STATUS_INQUIRY, &inquiry(entity, portal(at)), 0x4c00);
        assert_eq!(answered, (None, vec![]));
    }
}

/// A notification is answered with its destination; only the removal of this gateway itself is one. One for another node
/// is not answered, and one for none is malformed.
#[test]
fn notifications_are_answered() {
    let mut to = Writer::default();
    to.text(tag::NODE_NAME, SOURCE);
    let answered = |payload: &[u8]| {
        let payload = [payload, &to.0].concat();
        let words = [1, 0x8008, payload.len() as u16, 0x8c00, 77, 0];
        Some(pdu(words, &payload))
    };
    let called = |payload| called(Function::STATE_CHANGE, &Writer(payload), 0x4c00);
    for (events, notice) in [(0x90, Notice::Removed), (0x88, Notice::Changed)] {
        let said = called(notification(Some(SOURCE), events));
        assert_eq!(said, (answered(&[0; 4]), vec![notice]));
    }
    let mut other = notification(Some(SOURCE), 0x90);
    *other.iter_mut().rfind(|byte| **byte == b'1').unwrap() = b'2';
    assert_eq!(called(other), (answered(&[0; 4]), vec![Notice::Changed]));

    let other = notification(Some("iqn.2026-11.org.example:g2"), 0x90);
    assert_eq!(called(other), (None, vec![]));
    let malformed = pdu([1, 0x8008, 4, 0x8c00, 77, 0], &[0, 0, 0, 16]);
    assert_eq!(called(notification(None, 0x90)), (Some(malformed), vec![]));
}

/// Any other request is answered as not supported; an answer ends the connection.
#[test]
fn other_requests_are_not_supported() {
    let (answer, notices) = called(Function(0x000e), &Writer::default(), 0x4c00);
    let refused = pdu([1, 0x800e, 4, 0x8c00, 77, 0], &[0, 0, 0, 15]);
    assert_eq!((answer, notices), (Some(refused), vec![]));
    let answer = pdu([1, 0x800d, 4, 0x4c00, 77, 0], &[0; 4]);
    let fault = Callback::default().receive(&answer, &own()).unwrap_err();
    assert_eq!(fault, Fault::Unexpected(Function(0x800d)));
}

/// A server that asks and does not read answers is not listened to.
#[test]
fn answers_are_bounded() {
    let mut callback = Callback::default();
    let asked = pdu([1, 0x000e, 0, 0x4c00, 77, 0], &[]);
    let bytes = asked.repeat(100_000);
    let (taken, _) = callback.receive(&bytes, &own()).unwrap();
    assert!(taken < bytes.len() && callback.output().len() <= (128 << 10) + 16);
    assert_eq!(callback.receive(&bytes, &own()), Ok((0, vec![])));
    callback.wrote(callback.output().len());
    assert!(callback.receive(&bytes, &own()).unwrap().0 > 0);
}
