//! Tests of valid requests and their replies.

use std::sync::Arc;

use super::harness::{Answer, Client, Told, encode_request, long, word};
use crate::nbd::{Command, Error, Extent, Request};

const ERRORS: [(Error, u32); 8] = [
    (Error::Eperm, 1),
    (Error::Eio, 5),
    (Error::Enomem, 12),
    (Error::Einval, 22),
    (Error::Enospc, 28),
    (Error::Eoverflow, 75),
    (Error::Enotsup, 95),
    (Error::Eshutdown, 108),
];

fn simple(error: u32, data: &[u8]) -> Answer {
    Answer { cookie: 7, kind: None, error, data: data.to_vec() }
}

const fn extent(length: u32, hole: bool, zero: bool) -> Extent {
    Extent { length, hole, zero }
}

/// Every command arrives with what it asks for, and FUA where it means something.
#[test]
fn commands_arrive() {
    let zeroes = |may_punch, fast| Command::WriteZeroes { may_punch, fast };
    let end = (1 << 20) - 512;
    for (name, flags, kind, range, command, fua) in [
        ("disk", 0, 0, (0, 512), Command::Read, false),
        ("disk", 1, 0, (512, 65536), Command::Read, false),
        ("disk", 4, 0, (end, 512), Command::Read, false),
        ("golden", 5, 0, (0, 512), Command::Read, false),
        ("disk", 0, 1, (0, 512), Command::Write, false),
        ("disk", 1, 1, (end, 512), Command::Write, true),
        ("disk", 0, 3, (0, 0), Command::Flush, false),
        ("disk", 1, 3, (0, 0), Command::Flush, false),
        ("golden", 0, 3, (0, 0), Command::Flush, false),
        ("disk", 0, 4, (0, 1 << 20), Command::Trim, false),
        ("disk", 1, 4, (512, 512), Command::Trim, true),
        ("disk", 0, 6, (0, 1 << 20), zeroes(true, false), false),
        ("disk", 3, 6, (0, 512), zeroes(false, false), true),
        ("", 16, 6, (1, 1), zeroes(true, true), false),
        ("", 19, 6, (1, 4999), zeroes(false, true), true),
        ("disk", 0, 7, (0, 1 << 20), Command::BlockStatus { one: false }, false),
        ("disk", 9, 7, (0, 512), Command::BlockStatus { one: true }, false),
    ] {
        let mut client = Client::ready(name, true);
        let request = client.request(flags, kind, range);
        let expected = Request { slot: 0, command, offset: range.0, length: range.1, fua };
        assert_eq!(request, expected);
        assert_eq!(client.connection.outstanding(), 1);
    }
}

/// A read is answered by its data, which comes from the middle of the payload, and the slot is
/// reported when the last byte is written.
#[test]
fn reads_are_answered() {
    let payload: Arc<[u8]> = (0..2048_u32).map(|n| n as u8).collect();
    for structured in [false, true] {
        let mut client = Client::ready("disk", structured);
        let Request { slot, .. } = client.request(0, 0, (4096, 1024));
        client.connection.respond_data(slot, payload.clone(), 512..1536);
        let waiting = client.connection.outbox().len();
        client.connection.outbox().advance(waiting - 1, |_| panic!("one byte still waits"));
        assert_eq!(client.connection.outstanding(), 0);
        client.drain();
        assert_eq!(client.done, [slot]);
        client.output.clear();

        let Request { slot, .. } = client.request(0, 0, (4096, 1024));
        client.connection.respond_data(slot, payload.clone(), 512..1536);
        let expected = if structured {
            let data = [&4096_u64.to_be_bytes(), &payload[512..1536]].concat();
            Answer { cookie: 7, kind: Some(1), error: 0, data }
        } else {
            simple(0, &payload[512..1536])
        };
        assert_eq!(client.answer(1024), expected);
    }
}

/// What asks for nothing but its being done is answered by a simple reply in any case.
#[test]
fn success_is_short() {
    for structured in [false, true] {
        for (kind, length) in [(3, 0), (4, 512), (6, 512)] {
            let mut client = Client::ready("disk", structured);
            let Request { slot, .. } = client.request(0, kind, (0, length));
            client.connection.respond(slot, Ok(()));
            assert_eq!(client.answer(0), simple(0, &[]));
            assert_eq!(client.done, [slot]);
        }
    }
}

/// Errors have the numbers of the document, in a simple reply or in a chunk.
#[test]
fn errors_are_told() {
    for (error, number) in ERRORS {
        for kind in [0, 4] {
            let mut client = Client::ready("disk", false);
            let Request { slot, .. } = client.request(0, kind, (0, 512));
            client.connection.respond(slot, Err(error));
            assert_eq!(client.answer(512), simple(number, &[]));

            let mut client = Client::ready("disk", true);
            let Request { slot, .. } = client.request(0, kind, (0, 512));
            client.connection.respond(slot, Err(error));
            let data = [&number.to_be_bytes()[..], &[0, 0]].concat();
            let expected = Answer { cookie: 7, kind: Some(0x8001), error: number, data };
            assert_eq!(client.answer(0), expected);
            assert_eq!(client.done, [slot]);
        }
    }
}

/// A block status names the context, then its extents: joined where they are equal, cut off where
/// the request ends, one only if one was asked for.
#[test]
fn block_status_is_told() {
    let data = extent(512, false, false);
    let hole = extent(1024, true, true);
    let zero = extent(4096, false, true);
    for (flags, length, extents, expected) in [
        (0, 2048, &[data, hole, data][..], &[(512, 0), (1024, 3), (512, 0)][..]),
        (0, 2048, &[data, data, hole], &[(1024, 0), (1024, 3)]),
        (0, 1024, &[data, zero, hole], &[(512, 0), (512, 2)]),
        (0, 4096, &[data], &[(512, 0)]),
        (0, 512, &[extent(u32::MAX, true, false), data], &[(512, 1)]),
        (8, 2048, &[data, hole, data], &[(512, 0)]),
        (8, 2048, &[data, data, hole], &[(1024, 0)]),
        (8, 512, &[hole], &[(512, 3)]),
    ] {
        let mut client = Client::ready("disk", true);
        let Request { slot, .. } = client.request(flags, 7, (8192, length));
        client.connection.respond_status(slot, extents);
        let Answer { kind, data, .. } = client.answer(0);
        assert_eq!((kind, word(&data)), (Some(5), 1));
        let told: Vec<_> = data[4..].chunks(8).map(|one| (word(one), word(&one[4..]))).collect();
        assert_eq!(told, expected);
        assert_eq!(client.done, [slot]);
    }
}

/// A reply has a bounded number of extents, however many there are.
#[test]
fn block_status_is_bounded() {
    let extents: Vec<Extent> = (0..2000).map(|n| extent(512, n % 2 == 0, false)).collect();
    let mut client = Client::ready("disk", true);
    let Request { slot, .. } = client.request(0, 7, (0, 1 << 20));
    client.connection.respond_status(slot, &extents);
    assert_eq!(client.answer(0).data.len(), 4 + 1024 * 8);
}

/// Cookies are the client's affair: replies repeat them in whatever order they come, and two may be
/// equal.
#[test]
fn cookies_are_repeated() {
    let mut client = Client::ready("disk", false);
    let cookies = [u64::MAX, 0, 5, 5];
    let bytes: Vec<u8> =
        cookies.iter().flat_map(|&cookie| encode_request(0, 4, cookie, (0, 512))).collect();
    let told = client.send(&bytes).unwrap();
    let slots: Vec<u32> = told
        .iter()
        .map(|told| match told {
            Told::Request(request) => request.slot,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(slots, [0, 1, 2, 3]);
    for slot in [2, 0, 3, 1] {
        client.connection.respond(slot, Ok(()));
    }
    let cookies: Vec<u64> = client.answers(0).iter().map(|answer| answer.cookie).collect();
    assert_eq!(cookies, [5, u64::MAX, 5, 0]);
    assert_eq!(client.done, [2, 0, 3, 1]);
}

/// `NBD_CMD_DISC` has no reply; the connection ends when everything before it is answered.
#[test]
fn disconnecting_waits_for_replies() {
    let mut client = Client::ready("disk", false);
    let Request { slot, .. } = client.request(0, 3, (0, 0));
    let goodbye = encode_request(0, 2, 9, (0, 0));
    let told = client.send(&[&goodbye[..], b"what follows is ignored"].concat());
    assert_eq!(told, Ok(vec![Told::Disconnect]));
    assert!(!client.connection.wants_close() && client.pending.is_empty());
    client.connection.respond(slot, Ok(()));
    assert!(client.connection.wants_close() && !client.connection.is_finished());
    assert_eq!(client.answer(0).cookie, 7);
    assert!(client.connection.is_finished());

    let mut idle = Client::ready("disk", false);
    assert_eq!(idle.send(&goodbye), Ok(vec![Told::Disconnect]));
    assert!(idle.connection.is_finished());
}

/// A new size holds for the requests that come after it.
#[test]
fn exports_change_their_size() {
    let mut client = Client::ready("disk", true);
    client.connection.resize(2 << 20);
    client.request(0, 0, (1 << 20, 512));
    client.connection.resize(512);
    assert_eq!(client.send(&encode_request(0, 0, 7, (0, 1024))), Ok(vec![]));
    let answer = client.answer(0);
    assert_eq!((answer.error, long(&answer.data[answer.data.len() - 8..])), (22, 512));
}
