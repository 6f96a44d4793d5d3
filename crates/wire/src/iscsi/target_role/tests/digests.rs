//! CRC32C digests on the wire.

use std::sync::Arc;

use super::harness::{Peer, encode};
use crate::iscsi::pdu::{Itt, opcode};
use crate::iscsi::target_role::{Event, Limits, PeerError};

fn peer(header: bool, data: bool) -> Peer {
    let on = |on| if on { "CRC32C" } else { "None" };
    let keys = [format!("HeaderDigest={}", on(header)), format!("DataDigest={}", on(data))];
    // The login itself has no digests in either direction.
    let mut peer = Peer::logged_in(Limits::default(), &[&keys[0], &keys[1]]);
    peer.digests = (header, data);
    peer
}

/// From the first PDU after the login on, in both directions, in every combination.
#[test]
fn digests_follow_the_login() {
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut peer = peer(header, data);
        let Some(Event::Command(command)) = peer.command(5, 0xa1, 7, b"payload") else {
            panic!("a command is an event");
        };
        assert_eq!(command.immediate, b"payload");
        peer.connection.respond(Itt(5), crate::scsi::ScsiStatus::Good, None, 7);
        assert_eq!(peer.answer().header.kind(), opcode::SCSI_RESPONSE);

        peer.command(6, 0xc1, 9, &[]);
        peer.connection.respond_data(Itt(6), Arc::from(*b"some text"), 0..9, 9);
        assert_eq!(peer.answer().data, b"some text");
    }
}

/// A wrong header digest ends the connection without an answer, before the data is there.
#[test]
fn a_wrong_header_digest_ends_the_connection() {
    let mut peer = peer(true, true);
    let header = peer.command_header(5, 0xa1, 7);
    let mut pdu = encode(&header, b"payload", (true, true));
    pdu[20] ^= 1;
    assert_eq!(peer.connection.receive(&pdu[..52]).unwrap_err(), PeerError::HeaderDigest);
    assert!(peer.connection.is_finished());
    assert_eq!(peer.connection.receive(&pdu).unwrap().consumed, pdu.len());
}

/// A wrong data digest is rejected, then ends the connection. Padding counts.
#[test]
fn a_wrong_data_digest_is_rejected() {
    for at in [52, 59] {
        let mut peer = peer(true, true);
        let header = peer.command_header(5, 0xa1, 7);
        let mut pdu = encode(&header, b"payload", (true, true));
        pdu[at] ^= 1;
        assert_eq!(peer.send_bytes(pdu).unwrap_err(), PeerError::DataDigest);
        let answer = peer.answer();
        assert_eq!((answer.header.kind(), answer.byte(2)), (opcode::REJECT, 2));
        assert!(peer.connection.is_finished());
    }
}
