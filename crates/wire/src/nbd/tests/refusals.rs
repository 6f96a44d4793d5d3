//! Requests that are refused without being asked of the shell.

use super::harness::{Client, PAYLOAD_MAX, SIZE, Told, encode_request, long};
use crate::nbd::PeerError;

const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;

/// Flags, command, range, and the error that it must lead to.
type Case = (u16, u16, (u64, u32), u32);

/// Sends each request, with a payload if it is a write, and expects the error and nothing else; the
/// connection stays open.
fn all_refused(name: &str, structured: bool, cases: &[Case]) {
    for &(flags, kind, range, error) in cases {
        let mut client = Client::ready(name, structured);
        let mut bytes = encode_request(flags, kind, 7, range);
        if kind == 1 {
            bytes.resize(bytes.len() + range.1 as usize, 0xee);
        }
        bytes.extend(encode_request(0, 3, 8, (0, 0)));
        let told = client.send(&bytes).unwrap();
        let [Told::Request(flush)] = told[..] else {
            panic!("only the flush behind it comes through: {told:?}");
        };
        assert_eq!(flush.slot, 0);
        let answer = client.answer(0);
        let about = format!("{name}: flags {flags}, command {kind}, {range:?}");
        assert_eq!((answer.cookie, answer.error), (7, error), "{about}");
        assert_eq!(answer.kind.is_some(), structured, "{about}");
        assert_eq!(client.done, [], "it took no slot");
    }
}

/// Ranges that leave the export: EINVAL for what reads or trims, ENOSPC for what writes.
#[test]
fn ranges_end_with_the_export() {
    let behind = [(SIZE, 512), (SIZE - 512, 1024), (u64::MAX - 511, 512), (1 << 63, 512)];
    for range in behind {
        for structured in [false, true] {
            let cases = [
                (0, 0, range, EINVAL),
                (0, 1, range, ENOSPC),
                (0, 4, range, EINVAL),
                (0, 6, range, ENOSPC),
                (0, 7, range, EINVAL),
            ];
            all_refused("disk", structured, &cases);
        }
    }
}

/// A read that ends past the end is refused with the offset, within its own range, and why.
#[test]
fn the_end_is_pointed_at() {
    for (offset, at) in [(SIZE - 512, SIZE), (SIZE + 512, SIZE + 512)] {
        let mut client = Client::ready("disk", true);
        client.send(&encode_request(0, 0, 7, (offset, 1024))).unwrap();
        let answer = client.answer(0);
        assert_eq!(answer.kind, Some(0x8002));
        let (text, place) = answer.data[6..].split_at(answer.data.len() - 14);
        assert_eq!(usize::from(answer.data[5]), text.len());
        assert_eq!(text, b"range ends past the end of the export");
        assert_eq!(long(place), at);
    }
}

/// Ranges that are not multiples of the minimum block size, and empty ones.
#[test]
fn ranges_are_aligned() {
    for range in [(1, 512), (511, 512), (0, 513), (512, 511), (0, 0), (512, 0)] {
        let cases = [0, 1, 4, 6, 7].map(|kind| (0, kind, range, EINVAL));
        all_refused("disk", true, &cases);
    }
    all_refused("", true, &[(0, 0, (0, 0), EINVAL), (0, 1, (9, 0), EINVAL)]);
    Client::ready("", true).request(0, 0, (1, 3));
}

/// More than the maximum payload is refused for what carries one; a structured read may be retried
/// with less and gets an error.
#[test]
fn payloads_are_bounded() {
    let range = (0, PAYLOAD_MAX + 512);
    all_refused("disk", false, &[(0, 0, range, EINVAL), (0, 1, range, EINVAL)]);
    all_refused("disk", true, &[(0, 0, range, EOVERFLOW), (0, 1, range, EINVAL)]);
    for kind in [4, 6, 7] {
        Client::ready("disk", true).request(0, kind, range);
    }
}

/// A read-only export is not written to, however sound the request.
#[test]
fn read_only_exports_are_kept() {
    for structured in [false, true] {
        let cases = [
            (0, 1, (0, 512), EPERM),
            (1, 1, (0, PAYLOAD_MAX), EPERM),
            (0, 4, (0, 512), EPERM),
            (2, 6, (0, 512), EPERM),
        ];
        all_refused("golden", structured, &cases);
    }
}

/// Flags that do not apply to the command, or were not offered.
#[test]
fn flags_are_checked() {
    let flush = (0, 0);
    let range = (0, 512);
    let mut cases: Vec<Case> = (5..16)
        .flat_map(|bit| {
            [0, 1, 3, 4, 6, 7].map(|kind| {
                let range = if kind == 3 { flush } else { range };
                (1 << bit, kind, range, EINVAL)
            })
        })
        .collect();
    for (kind, flags) in
        [(0, &[2, 8, 16][..]), (1, &[2, 4, 8, 16]), (3, &[2, 4, 8, 16]), (4, &[2, 4, 8, 16])]
    {
        let range = if kind == 3 { flush } else { range };
        cases.extend(flags.iter().map(|&flag| (flag, kind, range, EINVAL)));
    }
    cases.extend([4, 8, 16].map(|flag| (flag, 6, range, EINVAL)));
    cases.extend([2, 4, 16].map(|flag| (flag, 7, range, EINVAL)));
    all_refused("disk", true, &cases);
    // DF is offered with structured replies only.
    all_refused("disk", false, &[(4, 0, range, EINVAL)]);
}

/// Commands that mean nothing, were not offered, or need a metadata context that is not there.
#[test]
fn commands_are_checked() {
    let range = (0, 512);
    let cases = [5, 8, 9, 100, u16::MAX].map(|kind| (0, kind, range, EINVAL));
    all_refused("disk", false, &cases);
    all_refused("golden", true, &cases);
    all_refused("disk", false, &[(0, 7, range, EINVAL)]);
    all_refused("", true, &[(0, 4, range, EINVAL)]);
    all_refused("disk", true, &[(0, 3, (512, 0), EINVAL), (0, 3, (0, 512), EINVAL)]);
}

/// What does not begin like a request ends the connection.
#[test]
fn the_request_magic_is_checked() {
    for at in 0..4 {
        let mut bytes = encode_request(0, 3, 7, (0, 0));
        bytes[at] ^= 0x80;
        let mut client = Client::ready("disk", true);
        assert_eq!(client.send(&bytes), Err(PeerError::RequestMagic));
        assert!(client.connection.is_finished());
    }
}

/// The payload of a refused write is skipped if it is not longer than anybody may send; beyond
/// that the connection ends, unless the export takes such writes.
#[test]
fn refused_payloads_are_skipped_up_to_a_bound() {
    let bound = 1 << 25;
    let mut client = Client::ready("disk", false);
    assert_eq!(client.send(&encode_request(0, 1, 7, (0, bound))), Ok(vec![]));
    assert_eq!(client.connection.needed(), 1, "the payload is not gathered");
    let part = vec![0; 1 << 20];
    for _ in 0..32 {
        assert_eq!(client.connection.outbox().len(), 0, "the reply waits for the payload");
        client.send(&part).unwrap();
    }
    assert_eq!(client.answer(0).error, ENOSPC);
    assert_eq!(client.connection.needed(), 28);

    // One byte more than anybody may send, and yet not more than this export takes.
    let length = bound + 512;
    let mut client = Client::ready("big", false);
    assert_eq!(client.send(&encode_request(0, 1, 7, (0, length))), Ok(vec![]));
    let mut client = Client::ready("disk", false);
    let told = client.send(&encode_request(0, 1, 7, (0, length)));
    assert_eq!(told, Err(PeerError::PayloadTooLong { length }));
    assert!(client.connection.wants_close());
}
