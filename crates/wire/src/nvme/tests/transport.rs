//! Tests of the transport: initialization, data both ways, digests and padding.

use std::sync::Arc;

use super::harness::{
    Host, Told, connect_data, connect_sqe, flush, ic_req, read, sqe, write, write_in_capsule,
};
use super::harness::{Sgl, disconnect};
use crate::nvme::{Completion, Digest, Limits, PeerError, Status, Transfer};

const SETTINGS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

/// `ICResp` has 128 bytes: version 0, no alignment, the digests that were asked for, MAXH2CDATA.
#[test]
fn initialization_has_these_bytes() {
    for digests in 0..4_u8 {
        let mut host = Host::silent(Limits::default());
        assert_eq!(host.send(&ic_req(31, digests)), Ok(vec![]));
        let mut expected = vec![1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, digests, 0, 0, 16, 0];
        expected.resize(128, 0);
        assert_eq!(host.take_bytes(), expected);
    }
}

/// Digests that are off are not agreed to; digests that are required end a connection without them.
#[test]
fn digests_can_be_demanded_but_not_switched_on() {
    let off = Limits { header_digest: Digest::Off, data_digest: Digest::Off, ..Limits::default() };
    let mut host = Host::silent(off);
    host.send(&ic_req(0, 3)).unwrap();
    assert_eq!(host.take_bytes()[11], 0);
    let required = Limits { data_digest: Digest::Required, ..Limits::default() };
    let mut host = Host::silent(required);
    assert_eq!(host.send(&ic_req(0, 1)), Err(PeerError::DigestsRequired { asked: 1 }));
    let pdus = host.pdus();
    assert_eq!((pdus[0].kind, pdus[0].u16(8), pdus[0].u32(10)), (3, 6, 11));
    let mut host = Host::silent(required);
    host.send(&ic_req(0, 2)).unwrap();
    assert_eq!(host.take_bytes()[11], 2);
}

/// Read data is one PDU or several, ascending and without gaps, at the offset that HPDA asks for; the last one ends the
/// command if there is no flow control, and a response capsule does if there is.
#[test]
fn reads_are_answered_with_all_of_their_data() {
    let payload: Arc<[u8]> = (0..=255).cycle().take(1024).collect();
    for digests in SETTINGS {
        for (hpda, alignment) in [(0, 4), (1, 8), (31, 128)] {
            for no_flow_control in [false, true] {
                let mut host = Host::live(1, digests, hpda, no_flow_control);
                let slot = host.command(&read(9, 2), &[]);
                host.connection.respond_data(slot, payload.clone(), 0..100);
                host.connection.respond_data(slot, payload.clone(), 100..1024);
                let pdus = host.pdus();
                let end = if digests.0 { 28_usize } else { 24 };
                for (pdu, range) in pdus.iter().zip([0..100, 100..1024]) {
                    let last = range.end == 1024;
                    assert_eq!((pdu.kind, pdu.u16(8)), (7, 9));
                    assert_eq!(
                        (pdu.u32(12), pdu.pdo),
                        (range.start as u32, end.next_multiple_of(alignment))
                    );
                    assert_eq!(pdu.data, payload[range]);
                    let expected = match (last, no_flow_control) {
                        (false, _) => 0,
                        (true, false) => 4,
                        (true, true) => 12,
                    };
                    assert_eq!(pdu.flags & 0xc, expected);
                }
                if no_flow_control {
                    assert_eq!(pdus.len(), 2);
                } else {
                    assert_eq!(pdus[2].ending(), (9, 0));
                    assert_eq!((pdus[2].u16(16), pdus[2].u16(18)), (2, 1), "SQHD and SQID");
                }
                assert_eq!(host.done, [slot]);
                assert_eq!(host.connection.outstanding(), 0);
            }
        }
    }
}

/// An answer that is shorter than what was asked for is filled with zeroes, a longer one is cut.
#[test]
fn answers_fit_the_room_of_the_host() {
    for digests in SETTINGS {
        let mut host = Host::live(0, digests, 0, true);
        let page: Arc<[u8]> = vec![5; 100].into();
        for (room, from, expected) in [(40, 0, 40), (40, 80, 20), (200_000, 90, 10), (8, 100, 0)] {
            let slot = host.command(&sqe(0x02, 3, 0, &[], Sgl::Transport(room)), &[]);
            host.connection.respond_padded(slot, page.clone(), from..100);
            let pdus = host.pdus();
            let mut data = vec![5; expected];
            data.resize(room as usize, 0);
            assert_eq!((pdus.len(), &pdus[0].data, pdus[0].flags & 0xc), (1, &data, 12));
        }
    }
}

/// Data in the capsule is handed on as it comes, and is complete only when its digest is right.
#[test]
fn capsules_carry_data() {
    for digests in SETTINGS {
        let mut host = Host::live(1, digests, 0, true);
        let data: Vec<u8> = (0..=255).cycle().take(1024).collect();
        let told = host.send(&host.capsule(&write_in_capsule(4, 2), &data)).unwrap();
        let Told::Command { slot, opcode: 1, cid: 4, transfer: Transfer::InCapsule(1024) } =
            told[0]
        else {
            panic!("{told:?}");
        };
        let (mut got, mut completions) = (Vec::new(), 0);
        for told in &told[1..] {
            let Told::Data { slot: of, offset, bytes, complete } = told else { panic!("{told:?}") };
            assert_eq!((*of, *offset as usize), (slot, got.len()));
            got.extend_from_slice(bytes);
            completions += usize::from(*complete);
        }
        assert_eq!((got, completions), (data, 1));
        host.connection.respond(slot, Completion::SUCCESS);
        assert_eq!(host.endings(), [(4, 0)]);
    }
}

/// One R2T asks for all the data; it comes in order, in as many PDUs as the host likes.
#[test]
fn data_is_asked_for() {
    for digests in SETTINGS {
        let mut host = Host::live(1, digests, 0, true);
        let slot = host.command(&write(4, 3), &[]);
        host.connection.solicit(slot, 1536);
        assert!(host.connection.is_receiving(slot));
        let pdus = host.pdus();
        assert_eq!((pdus.len(), pdus[0].kind, pdus[0].u16(8)), (1, 9, 4));
        assert_eq!((pdus[0].u16(10), pdus[0].u32(12), pdus[0].u32(16)), (slot as u16, 0, 1536));
        let first = host.send(&host.h2c_data(4, slot, 0, &[1; 1000], false)).unwrap();
        assert_eq!(first[0], Told::Data { slot, offset: 0, bytes: vec![1; 1000], complete: false });
        let second = host.send(&host.h2c_data(4, slot, 1000, &[2; 536], true)).unwrap();
        let last = second.last().unwrap();
        assert!(matches!(last, Told::Data { complete: true, .. }), "{last:?}");
        assert!(!host.connection.is_receiving(slot));
        host.connection.respond(slot, Completion::SUCCESS);
        assert_eq!(host.endings(), [(4, 0)]);
    }
}

/// However the bytes are cut, the events are the same, data in parts apart.
#[test]
fn pieces_mean_the_same() {
    for digests in SETTINGS {
        let converse = |piece: usize| {
            let mut host = Host::live(1, digests, 0, true);
            let write = host.command(&write(1, 2), &[]);
            host.connection.solicit(write, 1024);
            let script = [
                host.capsule(&write_in_capsule(2, 1), &[3; 512]),
                host.h2c_data(1, write, 0, &[4; 512], false),
                host.capsule(&flush(3), &[]),
                host.h2c_data(1, write, 512, &[5; 512], true),
                host.capsule(&read(4, 1), &[]),
                host.capsule(&disconnect(5), &[]),
            ]
            .concat();
            let mut all: Vec<Told> = Vec::new();
            for part in script.chunks(piece) {
                for told in host.send(part).unwrap() {
                    if let (
                        Some(Told::Data { slot: of, bytes: before, complete: false, .. }),
                        Told::Data { slot, bytes, complete, .. },
                    ) = (all.last_mut(), &told)
                        && of == slot
                    {
                        before.extend_from_slice(bytes);
                        let Some(Told::Data { complete: whole, .. }) = all.last_mut() else {
                            unreachable!()
                        };
                        *whole = *complete;
                        continue;
                    }
                    all.push(told);
                }
            }
            all
        };
        let whole = converse(usize::MAX);
        assert_eq!(whole.len(), 7, "{whole:?}");
        for piece in [1, 3, 7, 71, 72, 73] {
            assert_eq!(converse(piece), whole, "in pieces of {piece}");
        }
    }
}

/// Padding in front of the data is skipped and is in no digest.
#[test]
fn padding_of_the_host_is_skipped() {
    for digests in SETTINGS {
        let mut host = Host::live(1, digests, 0, true);
        let mut pdu = host.capsule(&write_in_capsule(4, 1), &[7; 512]);
        // A digest covers the header, so it is made anew.
        let end = if digests.0 { 76 } else { 72 };
        pdu[3] = 128;
        let plen = pdu.len() + 128 - end;
        pdu[4..8].copy_from_slice(&(plen as u32).to_le_bytes());
        if digests.0 {
            let digest = crate::crc32c::padded(&pdu[..72], 0);
            pdu[72..76].copy_from_slice(&digest);
        }
        pdu.splice(end..end, vec![0xee; 128 - end]);
        for piece in [1, 50, usize::MAX] {
            let told: Vec<Told> = pdu.chunks(piece).flat_map(|it| host.send(it).unwrap()).collect();
            let bytes: Vec<u8> = told
                .iter()
                .filter_map(|told| match told {
                    Told::Data { bytes, .. } => Some(bytes.clone()),
                    _ => None,
                })
                .flatten()
                .collect();
            assert_eq!(bytes, [7; 512]);
            let Told::Command { slot, .. } = told[0] else { panic!("{told:?}") };
            host.connection.respond(slot, Completion::SUCCESS);
            host.pdus();
        }
    }
}

/// A wrong data digest ends its command with a transient transport error, when all data has come; the queue lives.
#[test]
fn damaged_data_is_not_used() {
    for by_request in [false, true] {
        let mut host = Host::live(1, (true, true), 0, true);
        let status = Status::TRANSIENT_TRANSPORT_ERROR;
        let told = if by_request {
            let slot = host.command(&write(4, 2), &[]);
            host.connection.solicit(slot, 1024);
            let mut pdu = host.h2c_data(4, slot, 0, &[1; 512], false);
            pdu[100] ^= 1;
            let told = host.send(&pdu).unwrap();
            assert!(
                told.iter().all(|told| matches!(told, Told::Data { complete: false, .. })),
                "{told:?}"
            );
            host.send(&host.h2c_data(4, slot, 512, &[1; 512], true)).unwrap()
        } else {
            let mut pdu = host.capsule(&write_in_capsule(4, 1), &[1; 512]);
            *pdu.last_mut().unwrap() ^= 0x80;
            host.send(&pdu).unwrap()
        };
        let Some(&Told::TransferFailed { slot, status: got }) = told.last() else {
            panic!("{told:?}")
        };
        assert_eq!(got, status);
        assert!(!status.is_final(), "the host tries again");
        host.pdus();
        host.connection.respond(slot, Completion::failed(status));
        assert_eq!(host.endings(), [(4, 0x22)]);
        host.command(&flush(5), &[]);
    }
}

/// A wrong header digest ends the connection, with the digest that was received.
#[test]
fn damaged_headers_are_fatal() {
    let mut host = Host::live(1, (true, true), 0, true);
    let mut pdu = host.capsule(&flush(5), &[]);
    pdu[20] ^= 1;
    let got = u32::from_le_bytes(*pdu[72..].first_chunk().unwrap());
    assert_eq!(host.send(&pdu), Err(PeerError::HeaderDigest { got }));
    host.digests = (false, false);
    let pdus = host.pdus();
    assert_eq!((pdus[0].kind, pdus[0].u16(8), pdus[0].u32(10)), (3, 3, got));
    assert_eq!(pdus[0].data, pdu[..72], "the offending header");
    assert!(host.connection.is_finished());
}

/// Data may be asked for before Connect has ended: that of Connect itself.
#[test]
fn connect_can_have_its_data_asked_for() {
    for digests in SETTINGS {
        let mut host = Host::initialized(Limits::default(), 0, digests);
        let mut command = connect_sqe(0, 31, 0);
        command[39] = 0x5a;
        assert_eq!(host.send(&host.capsule(&command, &[])), Ok(vec![]));
        let pdus = host.pdus();
        assert_eq!((pdus[0].kind, pdus[0].u32(16)), (9, 1024));
        let tag = u32::from(pdus[0].u16(10));
        let told = host.send(&host.h2c_data(0, tag, 0, &connect_data(0), true)).unwrap();
        assert!(matches!(&told[..], [Told::Connect(_)]), "{told:?}");
    }
}

/// A queue is connected once, also by a host that has the data of two Connects asked for.
#[test]
fn a_second_connect_is_out_of_sequence() {
    for queue in [0, 1] {
        let mut host = Host::initialized(Limits::default(), 0, (false, false));
        for cid in [0, 1] {
            let mut command = connect_sqe(queue, 31, 0);
            (command[2], command[39]) = (cid, 0x5a);
            assert_eq!(host.send(&host.capsule(&command, &[])), Ok(vec![]));
        }
        let tags: Vec<_> = host.pdus().iter().map(|pdu| u32::from(pdu.u16(10))).collect();
        let data =
            |cid: u16| host.h2c_data(cid, tags[usize::from(cid)], 0, &connect_data(queue), true);
        let (first, second) = (data(0), data(1));
        assert!(matches!(&host.send(&first).unwrap()[..], [Told::Connect(_)]));
        host.connection.admitted(1);
        host.pdus();
        assert_eq!((host.send(&second), host.endings()), (Ok(vec![]), vec![(1, 0xc)]));
    }
}

/// The oldest command of which data is due has a number that stays until its data is whole, and that no later command
/// has.
#[test]
fn unfinished_commands_are_known() {
    let mut host = Host::io();
    let mut numbers = Vec::new();
    for cid in 1..4 {
        assert_eq!(host.connection.oldest_receiving(), None);
        let half = host.capsule(&write_in_capsule(cid, 1), &[0; 512]);
        let told = host.send(&half[..100]).unwrap();
        let Told::Command { slot, .. } = told[0] else { panic!("{told:?}") };
        let number = host.connection.oldest_receiving().unwrap();
        host.send(&half[100..300]).unwrap();
        assert_eq!(host.connection.oldest_receiving(), Some(number));
        host.send(&half[300..]).unwrap();
        assert_eq!(host.connection.oldest_receiving(), None, "it has come");
        host.connection.respond(slot, Completion::SUCCESS);
        host.pdus();
        numbers.push(number);
    }
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    // What is asked for counts from then on.
    let slot = host.command(&write(9, 1), &[]);
    assert_eq!(host.connection.oldest_receiving(), None);
    host.connection.solicit(slot, 512);
    assert!(host.connection.oldest_receiving() > numbers.pop());
}
