//! Whatever a peer sends: no panic, no endless answer, no endless task list.

use std::sync::Arc;

use proptest::prelude::*;

use super::harness::{Peer, encode};
use crate::iscsi::pdu::Header;
use crate::iscsi::target::{DigestPolicy, Event, IMMEDIATE_TASKS_MAX, Limits, LoginStatus};
use crate::scsi::ScsiStatus;

/// Output for one input PDU, in bytes: one PDU, and R2Ts of one task at most.
const ANSWER_MAX: usize = 64 * 1024;

fn limits() -> Limits {
    Limits {
        max_recv_data_segment_length: 1024,
        max_burst_length: 4096,
        first_burst_length: 2048,
        command_window: 8,
        data_digest: DigestPolicy::Never,
        ..Limits::default()
    }
}

/// Feeds bytes as a shell would, answers what can be answered, and checks the bounds.
fn feed(peer: &mut Peer, bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        let Ok(received) = peer.connection.receive(rest) else {
            assert!(peer.connection.wants_close());
            return;
        };
        assert!(received.consumed <= rest.len());
        assert!(peer.connection.needed() <= limits().pdu_length_max());
        let consumed = received.consumed;
        let has_event = received.event.is_some();
        if let Some(event) = received.event {
            act(peer, &event);
        }
        assert!(peer.connection.outbox().len() < ANSWER_MAX);
        let tasks = peer.connection.outstanding_tasks().len();
        assert!(tasks <= 8 + IMMEDIATE_TASKS_MAX, "{tasks} tasks");
        peer.output();
        rest = &rest[consumed..];
        if consumed == 0 && !has_event {
            return;
        }
    }
}

fn act(peer: &mut Peer, event: &Event<'_>) {
    let connection = &mut peer.connection;
    match *event {
        Event::SessionRequested { tsih: 0, .. } => connection.session_admitted(1),
        Event::SessionRequested { .. } => {
            connection.session_refused(LoginStatus::TooManyConnections);
        }
        Event::Command(command) if command.writes => {
            connection.solicit(command.itt, command.cdb[0].into());
        }
        // Every other read stays unanswered, so that tasks pile up.
        Event::Command(command) if command.itt.0 % 2 == 0 => {
            let data: Arc<[u8]> = vec![1; 600].into();
            connection.respond_data(command.itt, data, 0..600, 600);
        }
        Event::TransferFailed { itt, sense } => {
            connection.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0);
        }
        Event::Data { itt, complete: true, .. } => {
            connection.respond(itt, ScsiStatus::Good, None, 0);
        }
        Event::Logout { itt, .. } => connection.logout_response(itt),
        _ => {}
    }
}

/// A header with an opcode that means something and random everything else, but with numbers that
/// get through often enough.
fn any_pdu() -> impl Strategy<Value = Vec<u8>> {
    let opcodes =
        prop::sample::select(vec![0x00_u8, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x10, 0x3f]);
    let small = prop::sample::select(vec![0_u32, 1, 2, 3, 100, 101, 102, 103, 512, u32::MAX]);
    let text = prop::sample::select(vec![
        &b"SendTargets=All\0"[..],
        b"MaxBurstLength=512\0",
        b"InitiatorName=iqn.x\0TargetName=iqn.2026-01.test.weir:disk\0",
        b"=\0=\0",
        b"X",
    ]);
    (
        opcodes,
        any::<bool>(),
        any::<[u8; 3]>(),
        prop::collection::vec(small, 10),
        prop::option::of(text),
        prop::collection::vec(any::<u8>(), 0..80),
    )
        .prop_map(|(opcode, immediate, flags, words, text, data)| {
            let mut header = [0; 48];
            header[0] = opcode | u8::from(immediate) << 6;
            header[1..4].copy_from_slice(&flags);
            for (slot, word) in header[8..].chunks_mut(4).zip(words) {
                slot.copy_from_slice(&word.to_be_bytes());
            }
            let header: Header = zerocopy::transmute!(header);
            encode(&header, text.unwrap_or(&data), (false, false))
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Noise on a new connection.
    #[test]
    fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        feed(&mut Peer::new(limits()), &bytes);
    }

    /// Plausible PDUs before the login.
    #[test]
    fn plausible_logins_are_survived(pdus in prop::collection::vec(any_pdu(), 1..20)) {
        feed(&mut Peer::new(limits()), &pdus.concat());
    }

    /// Plausible PDUs, then noise, after a login.
    #[test]
    fn plausible_sessions_are_survived(
        pdus in prop::collection::vec(any_pdu(), 1..60),
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let keys = ["InitialR2T=No", "MaxOutstandingR2T=8", "MaxBurstLength=512"];
        let mut peer = Peer::logged_in(limits(), &keys);
        feed(&mut peer, &[pdus.concat(), noise].concat());
    }

    /// One flipped byte anywhere, or an end anywhere, in an otherwise good conversation.
    #[test]
    fn damage_is_survived(at in 0..2000_usize, flip in 1..=255_u8, cut in 0..2000_usize) {
        let mut peer = Peer::logged_in(limits(), &["InitialR2T=No"]);
        let mut bytes = Vec::new();
        for itt in 0..8 {
            let header = peer.command_header(itt, if itt % 2 == 0 { 0x21 } else { 0xc1 }, 900);
            bytes.extend(encode(&header, if itt % 2 == 0 { &[7; 100] } else { &[] }, (false, false)));
        }
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= flip;
        }
        bytes.truncate(cut);
        feed(&mut peer, &bytes);
    }
}
