//! The payload of writes.

use super::harness::{Client, Told, encode_request};
use crate::nbd::{Command, Error, Request};

/// The data of a write is reported in the parts in which it comes, in order, and the last one says so.
#[test]
fn data_comes_in_parts() {
    let mut client = Client::ready("disk", false);
    let payload: Vec<u8> = (0..1024_u32).map(|n| (n / 3) as u8).collect();
    let header = encode_request(0, 1, 7, (512, 1024));
    let told = client.send(&[&header[..], &payload[..10]].concat()).unwrap();
    let [Told::Request(request), first] = &told[..] else {
        panic!("the request comes before its data: {told:?}");
    };
    assert_eq!((request.command, request.offset, request.length), (Command::Write, 512, 1024));
    let slot = request.slot;
    let part = |from: usize, to: usize, complete| Told::Data {
        slot,
        offset: from as u32,
        bytes: payload[from..to].to_vec(),
        complete,
    };
    assert_eq!(*first, part(0, 10, false));
    assert_eq!(client.connection.needed(), 1);
    assert_eq!(client.send(&payload[10..11]), Ok(vec![part(10, 11, false)]));
    let rest = [&payload[11..], &encode_request(0, 3, 8, (0, 0))].concat();
    let told = client.send(&rest).unwrap();
    assert_eq!(told[0], part(11, 1024, true));
    assert!(matches!(told[1], Told::Request(Request { command: Command::Flush, .. })));
    client.connection.respond(slot, Ok(()));
    let answer = client.answer(0);
    assert_eq!((answer.cookie, answer.error), (7, 0));
}

/// A write that is answered before its data is there gets its reply behind the data, which is
/// not reported any more.
#[test]
fn an_early_answer_waits_for_the_data() {
    for (result, error) in [(Err(Error::Enomem), 12), (Ok(()), 0)] {
        let mut client = Client::ready("disk", false);
        let Request { slot, .. } = client.request(0, 1, (0, 1024));
        assert_eq!(client.send(&[1; 100]).unwrap().len(), 1);
        client.connection.respond(slot, result);
        assert!(client.connection.outbox().is_empty());
        assert_eq!(client.connection.outstanding(), 1);
        assert_eq!(client.send(&[1; 923]), Ok(vec![]));
        assert!(client.connection.outbox().is_empty());
        let told = client.send(&[&[1][..], &encode_request(0, 3, 8, (0, 0))].concat()).unwrap();
        assert_eq!(told.len(), 1, "the next request is found");
        let answer = client.answer(0);
        assert_eq!((answer.cookie, answer.error), (7, error));
        assert_eq!(client.done, [slot]);
    }
}

/// Other requests are answered while data is coming.
#[test]
fn others_are_answered_meanwhile() {
    let mut client = Client::ready("disk", false);
    let flush = client.request(0, 3, (0, 0));
    let write = client.request(0, 1, (0, 512));
    client.connection.respond(flush.slot, Ok(()));
    assert_eq!(client.answer(0).error, 0);
    assert_eq!(client.done, [flush.slot]);
    assert_ne!(write.slot, flush.slot);
    assert_eq!(client.send(&[0; 512]).unwrap().len(), 1);
}

/// One answer is all that a request gets, early or not.
#[test]
#[should_panic(expected = "a slot is answered once")]
fn an_early_answer_is_the_answer() {
    let mut client = Client::ready("disk", false);
    let Request { slot, .. } = client.request(0, 1, (0, 1024));
    client.connection.respond(slot, Err(Error::Enomem));
    client.connection.respond(slot, Err(Error::Enomem));
}

/// A slot that holds no request cannot be answered.
#[test]
#[should_panic(expected = "a slot is answered once")]
fn an_empty_slot_is_not_answered() {
    Client::ready("disk", false).connection.respond(3, Ok(()));
}
