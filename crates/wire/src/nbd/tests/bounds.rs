//! Tests of the bounds on a connection's memory.

use std::sync::Arc;

use super::harness::{Client, Told, encode_option, encode_request, exports, limits, option};
use crate::nbd::{Connection, Limits, Tls};

/// Requests beyond the limit stay in the input until a reply is written, answered or not; slots
/// stay below the limit and are not used again before that.
#[test]
fn requests_are_bounded() {
    let mut client = Client::ready_with(limits(2, Tls::Off), "disk", false);
    let bytes: Vec<u8> = (0..4).flat_map(|n| encode_request(0, 3, n, (0, 0))).collect();
    let slot = |told: &[Told]| match told {
        [Told::Request(request)] => request.slot,
        other => panic!("{other:?}"),
    };
    assert_eq!(client.send(&bytes).unwrap().len(), 2);
    assert_eq!(client.pending.len(), 2 * 28);
    assert!(client.connection.is_waiting());
    client.connection.respond(1, Ok(()));
    assert!(client.connection.is_waiting(), "the reply is not written");
    client.connection.outbox().advance(15, |_| panic!("a byte still waits"));
    assert!(client.connection.is_waiting());
    client.drain();
    assert!(!client.connection.is_waiting());
    assert_eq!(slot(&client.send(&[]).unwrap()), 1);
    assert!(client.connection.is_waiting());
    // The slot that was answered first is the one that is free first.
    client.connection.respond(0, Ok(()));
    client.connection.respond(1, Ok(()));
    client.connection.outbox().advance(16, |_| {});
    assert_eq!(slot(&client.send(&[]).unwrap()), 0);
    client.drain();
    client.connection.respond(0, Ok(()));
    client.drain();
    assert_eq!(client.connection.outstanding(), 0);
    assert_eq!(client.done, [1, 1, 0]);
}

/// The payload of the last request that is allowed is still taken.
#[test]
fn a_full_connection_takes_payload() {
    let mut client = Client::ready_with(limits(1, Tls::Off), "disk", false);
    client.request(0, 1, (0, 512));
    assert!(!client.connection.is_waiting());
    assert_eq!(client.send(&[0; 512]).unwrap().len(), 1);
    assert!(client.connection.is_waiting());
}

/// Refused requests take no slot; their replies are bounded all the same.
#[test]
fn refusals_are_bounded() {
    for structured in [false, true] {
        let mut client = Client::ready("disk", structured);
        let bytes = encode_request(0, 99, 7, (0, 0)).repeat(20_000);
        let mut rest = &bytes[..];
        while !client.connection.is_waiting() {
            let received = client.connection.receive(rest).unwrap();
            assert!(received.consumed > 0, "all was taken");
            rest = &rest[received.consumed..];
        }
        assert_eq!(client.connection.receive(rest).unwrap().consumed, 0);
        let waiting = client.connection.outbox().len();
        assert!((256 << 10..257 << 10).contains(&waiting), "{waiting}");
        client.drain();
        assert!(!client.connection.is_waiting());
        assert_eq!(client.send(rest), Ok(vec![]));
        assert_eq!(client.answers(0).len(), 20_000);
    }
}

/// The next option is not looked at before the reply to the last one is written.
#[test]
fn options_come_one_by_one() {
    let mut client = Client::new(Limits::default());
    let list = encode_option(option::LIST, &[]);
    let both = list.repeat(2);
    let received = client.connection.receive(&both).unwrap();
    assert_eq!(received.consumed, list.len());
    assert!(client.connection.is_waiting());
    assert_eq!(client.connection.receive(&list).unwrap().consumed, 0);
    client.drain();
    assert_eq!(client.connection.receive(&list).unwrap().consumed, list.len());
}

/// Limits that are out of their range do not make a connection.
#[test]
#[should_panic(expected = "limits are checked")]
fn limits_are_checked() {
    let _: Connection<Vec<u8>> = Connection::new(Arc::new(exports()), limits(0, Tls::Off));
}
