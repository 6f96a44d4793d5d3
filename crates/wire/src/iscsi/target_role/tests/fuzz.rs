//! Whatever a peer sends: no panic, no endless answer, no endless task list.

use std::sync::Arc;

use proptest::prelude::*;

use super::harness::{INITIATOR, ISID, Peer, TARGET, encode, node, text};
use crate::iscsi::pdu::{CONTINUE, Header, IMMEDIATE, LoginRequest, opcode};
use crate::iscsi::target_role::{
    Account, Authentication, DigestPolicy, Event, IMMEDIATE_TASKS_MAX, Limits, LoginStatus, Node,
    Secret,
};
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
            connection.login_refused(LoginStatus::TooManyConnections);
        }
        Event::CredentialsOffered { .. } => {
            if let Some(event) = connection.check_credentials() {
                act(peer, &event);
            }
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
            // A status that was never sent is acknowledged seldom, because that is the end.
            if flags[2] < 250 {
                header[28..32].fill(0);
            }
            let header: Header = zerocopy::transmute!(header);
            encode(&header, text.unwrap_or(&data), (false, false))
        })
}

/// The response of `alice's secret` to the challenge of every connection here, in MD5.
const ALICE: &str = "CHAP_R=0xc064ebe6774120ff5f228563da7280c2";

/// A node that asks for proof, and takes and gives it.
fn guarded() -> Node {
    let account = |name: &str, secret: &str| Account {
        name: name.to_owned(),
        secret: Secret::new(secret).unwrap(),
    };
    let authentication = Authentication { accounts: vec![0], mutual: Some(1) };
    let mut node = node();
    node.accounts = vec![account("alice", "alice's secret"), account("gateway", "gateway secret")];
    node.targets[0].authentication = authentication.clone();
    node.discovery = authentication;
    node
}

/// A key and a value, each right, nearly right or anything, but seldom so wrong that all ends.
fn any_key() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "InitiatorName",
        "TargetName",
        "SessionType",
        "AuthMethod",
        "CHAP_A",
        "CHAP_I",
        "CHAP_C",
        "CHAP_N",
        "CHAP_R",
        "HeaderDigest",
        "MaxRecvDataSegmentLength",
        "MaxBurstLength",
        "FirstBurstLength",
        "InitialR2T",
        "ErrorRecoveryLevel",
        "X-com.example",
        "SendTargets",
    ]);
    let value = prop_oneof![
        prop::sample::select(vec![
            "",
            "None",
            "CHAP",
            "CHAP,None",
            "Yes",
            "No",
            "5",
            "7,5",
            "512",
            "0x1000",
            "16777216",
            "Normal",
            "Discovery",
            "alice",
            "Reject",
            "All",
            TARGET,
            INITIATOR,
            "0xc064ebe6774120ff5f228563da7280c2",
            "0x01",
            "0bAQID",
            "0b",
            "0x0",
        ])
        .prop_map(str::to_owned),
        "[ -~]{0,20}",
        "0x[0-9a-f]{0,80}",
        "0b[A-Za-z0-9+/=]{0,80}",
    ];
    (key, value).prop_map(|(key, value)| format!("{key}={value}"))
}

/// The texts of a login that goes well with CHAP, stage by stage.
fn good_texts() -> Vec<(u8, Vec<String>)> {
    let own = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect::<Vec<_>>();
    let names = [format!("InitiatorName={INITIATOR}"), format!("TargetName={TARGET}")];
    vec![
        (0x00, [names.to_vec(), own(&["AuthMethod=CHAP,None"])].concat()),
        (0x00, own(&["CHAP_A=5"])),
        (0x81, own(&["CHAP_N=alice", ALICE, "CHAP_I=9", "CHAP_C=0x0102"])),
        (0x87, own(&["MaxBurstLength=4096", "InitialR2T=No", "X-com.example=1"])),
    ]
}

/// The requests that carry a text, cut at these places by the C bit.
fn in_pieces(flags: u8, keys: &[String], cuts: &[usize]) -> Vec<u8> {
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let whole = text(&keys);
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (whole.len() + 1)).collect();
    cuts.sort_unstable();
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([whole.len()]);
    let count = cuts.len();
    let mut bytes = Vec::new();
    for (index, (start, end)) in starts.zip(ends).enumerate() {
        let is_last = index == count;
        let request = LoginRequest {
            opcode: opcode::LOGIN_REQUEST | IMMEDIATE,
            // No transit before the text is whole.
            flags: if is_last { flags } else { flags & 0x0c | CONTINUE },
            isid: ISID,
            itt: 1.into(),
            cmd_sn: 100.into(),
            ..LoginRequest::default()
        };
        bytes.extend(encode(&request, &whole[start..end], (false, false)));
    }
    bytes
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

    /// However the texts of a good login are cut into PDUs, it succeeds.
    #[test]
    fn a_good_login_may_be_cut_anywhere(
        cuts in prop::collection::vec(prop::collection::vec(any::<usize>(), 0..5), 4),
    ) {
        let mut peer = Peer::of_node(limits(), guarded());
        for ((flags, keys), cuts) in good_texts().iter().zip(&cuts) {
            feed(&mut peer, &in_pieces(*flags, keys, cuts));
        }
        prop_assert!(peer.connection.is_full_feature());
    }

    /// Any keys in either stage, in place of good ones or among them, in any pieces: no panic, and
    /// no initiator gets in without the proof.
    #[test]
    fn any_keys_are_survived(
        texts in prop::collection::vec(
            (prop::collection::vec(any_key(), 0..4), any::<bool>(), prop::collection::vec(any::<usize>(), 0..4)),
            4,
        ),
        stages in prop::option::of(prop::collection::vec(any::<u8>(), 4)),
    ) {
        let mut peer = Peer::of_node(limits(), guarded());
        let mut proven = false;
        for (at, ((flags, good), (odd, keep, cuts))) in good_texts().iter().zip(&texts).enumerate() {
            let keys = if *keep { [good.clone(), odd.clone()].concat() } else { odd.clone() };
            let holds = |key: &str| keys.iter().any(|one| one == key);
            proven |= holds("CHAP_N=alice") && holds(ALICE);
            let flags = stages.as_ref().map_or(*flags, |stages| stages[at] & 0x8f);
            feed(&mut peer, &in_pieces(flags, &keys, cuts));
        }
        // The other target asks for nothing, but nothing here names it.
        prop_assert!(proven || !peer.connection.is_full_feature());
    }
}
