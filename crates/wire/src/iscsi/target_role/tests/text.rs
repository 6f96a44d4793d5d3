//! Text after the login: what targets there are, and what may still be negotiated.

use super::harness::{INITIATOR, Peer, TARGET, text};
use crate::iscsi::pdu::{CONTINUE, FINAL, IMMEDIATE, RESERVED_TAG, TextRequest, opcode};
use crate::iscsi::target_role::{
    Advertised, Event, Initiators, Limits, Node, Redirect, RejectReason, TargetEntry,
};

fn discovery(keys: &[&str]) -> Peer {
    let mut peer = Peer::new(Limits::default());
    let name = format!("InitiatorName={INITIATOR}");
    let all: Vec<&str> =
        [&*name, "SessionType=Discovery"].into_iter().chain(keys.iter().copied()).collect();
    assert!(matches!(peer.login(0x87, &all), Some(Event::SessionRequested { .. })));
    peer.connection.session_admitted(3);
    peer.answers();
    peer
}

fn request(flags: u8, ttt: u32) -> TextRequest {
    TextRequest {
        opcode: opcode::TEXT_REQUEST | IMMEDIATE,
        flags,
        itt: 4.into(),
        ttt: ttt.into(),
        ..TextRequest::default()
    }
}

fn ask(peer: &mut Peer, keys: &[&str]) -> Vec<String> {
    let event = peer.send(&request(FINAL, RESERVED_TAG), &text(keys)).unwrap();
    assert!(event.is_none(), "{event:?}");
    let answer = peer.answer();
    assert_eq!((answer.header.kind(), answer.byte(1)), (opcode::TEXT_RESPONSE, FINAL));
    assert_eq!((answer.word(16), answer.word(20)), (4, RESERVED_TAG));
    answer.text().into_iter().map(str::to_owned).collect()
}

fn rejected(peer: &mut Peer, request: &TextRequest, data: &[u8]) -> RejectReason {
    let event = peer.send(request, data).unwrap();
    let Some(Event::Rejected { reason, opcode: opcode::TEXT_REQUEST }) = event else {
        panic!("{event:?}");
    };
    peer.answers();
    reason
}

/// All targets, one target, and one that does not exist.
#[test]
fn discovery_lists_targets() {
    let mut peer = discovery(&[]);
    let (name, address) = (format!("TargetName={TARGET}"), "TargetAddress=127.0.0.1:3260,1");
    let other = "TargetName=iqn.2026-01.test.weir:other";
    assert_eq!(ask(&mut peer, &["SendTargets=All"]), [&*name, address, other, address]);
    let one = format!("SendTargets={TARGET}");
    assert_eq!(ask(&mut peer, &[&one]), [&*name, address]);
    assert!(ask(&mut peer, &["SendTargets=iqn.2026-01.test.weir:none"]).is_empty());
    assert_eq!(ask(&mut peer, &["SendTargets=Alle"]), ["SendTargets=Reject"]);
    assert_eq!(ask(&mut peer, &["SendTargets="]), ["SendTargets=Reject"]);
}

/// Only what the initiator may see is listed, moved targets too, at every portal with the tag of its
/// group.
#[test]
fn discovery_lists_what_may_be_seen() {
    let entry = |name: &str, only: &[&str]| TargetEntry {
        iqn: format!("iqn.2026-01.test.weir:{name}"),
        alias: Some("not told here".to_owned()),
        initiators: Initiators::new(only.iter().map(|&one| one.to_owned())),
        ..TargetEntry::default()
    };
    let portal = "elsewhere:3260".to_owned();
    let node = Node {
        targets: vec![
            entry("everyone's", &[]),
            entry("theirs", &["iqn.2026-01.test.other:*"]),
            entry("ours", &[INITIATOR]),
            TargetEntry { removed: true, ..entry("gone", &[]) },
            TargetEntry {
                redirect: Some(Redirect { portal, permanent: true }),
                ..entry("moved", &[])
            },
        ],
        portals: ["10.0.0.1:3260", "[fd00::1]:3260"].map(|one| Advertised(one.to_owned())).into(),
        portal_group: 7,
        ..Node::default()
    };
    let mut peer = Peer::of_node(Limits::default(), node);
    let name = format!("InitiatorName={INITIATOR}");
    peer.login(0x87, &[&name, "SessionType=Discovery"]);
    peer.connection.session_admitted(3);
    peer.answers();
    let addresses = ["TargetAddress=10.0.0.1:3260,7", "TargetAddress=[fd00::1]:3260,7"];
    let record = |name: &str| {
        let name = format!("TargetName=iqn.2026-01.test.weir:{name}");
        [name, addresses[0].to_owned(), addresses[1].to_owned()]
    };
    let seen = [record("everyone's"), record("ours"), record("moved")].concat();
    assert_eq!(ask(&mut peer, &["SendTargets=All"]), seen);
    let asked = |name: &str| format!("SendTargets=iqn.2026-01.test.weir:{name}");
    assert_eq!(ask(&mut peer, &[&asked("OURS")]), record("ours"));
    for name in ["theirs", "gone"] {
        assert!(ask(&mut peer, &[&asked(name)]).is_empty(), "{name}");
    }
}

/// Keys that belong to a login have no place behind it.
#[test]
fn login_keys_are_refused_after_the_login() {
    let mut peer = Peer::logged_in(Limits::default(), &[]);
    for key in ["InitiatorName", "TargetName", "SessionType", "AuthMethod", "CHAP_A", "TargetAlias"]
    {
        let offer = format!("{key}=x");
        assert_eq!(ask(&mut peer, &[&offer]), [format!("{key}=Reject")]);
    }
}

/// A normal session learns about its own target only.
#[test]
fn a_normal_session_lists_itself() {
    let mut peer = Peer::logged_in(Limits::default(), &[]);
    let expected = [format!("TargetName={TARGET}"), "TargetAddress=127.0.0.1:3260,1".to_owned()];
    assert_eq!(ask(&mut peer, &["SendTargets="]), expected);
    assert_eq!(ask(&mut peer, &["SendTargets=All"]), ["SendTargets=Reject"]);
    assert!(ask(&mut peer, &["SendTargets=iqn.2026-01.test.weir:other"]).is_empty());
}

/// Unknown keys, keys of the login, and a declaration that may change.
#[test]
fn other_keys_are_answered() {
    let mut peer = Peer::logged_in(Limits::default(), &[]);
    let keys = ["SendTargetsPlease=All", "sENDtARGETS=aLL", "MaxBurstLength=512"];
    let answers =
        ["SendTargetsPlease=NotUnderstood", "sENDtARGETS=NotUnderstood", "MaxBurstLength=Reject"];
    assert_eq!(ask(&mut peer, &keys), answers);
    assert_eq!(peer.connection.parameters().max_burst_length, 262_144);
    assert!(ask(&mut peer, &["MaxRecvDataSegmentLength=4096"]).is_empty());
    assert_eq!(peer.connection.parameters().initiator_segment_length, 4096);
    assert!(ask(&mut peer, &["X-com.example=NotUnderstood"]).is_empty());
}

/// A long answer comes in pieces, and the initiator fetches them by the tag.
#[test]
fn long_answers_continue() {
    let mut peer = discovery(&["MaxRecvDataSegmentLength=512"]);
    let odd: Vec<String> = (0..40).map(|n| format!("X-com.example.{n}=1")).collect();
    let keys: Vec<&str> = odd.iter().map(String::as_str).collect();
    peer.send(&request(FINAL, RESERVED_TAG), &text(&keys)).unwrap();
    let mut answer = peer.answer();
    let mut whole = Vec::new();
    let ttt = answer.word(20);
    while answer.byte(1) != FINAL {
        assert_eq!((answer.byte(1), answer.data.len(), answer.word(20)), (CONTINUE, 512, ttt));
        whole.extend(answer.data);
        peer.send(&request(FINAL, ttt), &[]).unwrap();
        answer = peer.answer();
    }
    whole.extend(answer.data);
    assert_eq!(String::from_utf8(whole).unwrap().matches("NotUnderstood").count(), 40);
    let reason = rejected(&mut peer, &request(FINAL, ttt), &[]);
    assert_eq!(reason, RejectReason::InvalidPduField, "the exchange is over");
}

/// A request that continues is put together; one with the reserved tag starts anew.
#[test]
fn requests_continue_or_start_anew() {
    let mut peer = discovery(&[]);
    peer.send(&request(CONTINUE, RESERVED_TAG), b"SendTar").unwrap();
    let answer = peer.answer();
    assert_eq!((answer.byte(1), answer.data.len()), (0, 0));
    peer.send(&request(FINAL, answer.word(20)), b"gets=Alle\0").unwrap();
    assert_eq!(peer.answer().text(), ["SendTargets=Reject"]);

    peer.send(&request(CONTINUE, RESERVED_TAG), b"Send").unwrap();
    peer.answer();
    assert_eq!(ask(&mut peer, &["X=1"]), ["X=NotUnderstood"]);
}

/// Malformed text, repeated keys, wrong tags and floods are rejected; the session stays.
#[test]
fn wrong_text_is_rejected() {
    let mut peer = discovery(&[]);
    let fresh = request(FINAL, RESERVED_TAG);
    assert_eq!(rejected(&mut peer, &fresh, b"nonsense\0"), RejectReason::ProtocolError);
    let twice = b"SendTargets=All\0SendTargets=All\0";
    assert_eq!(rejected(&mut peer, &fresh, twice), RejectReason::ProtocolError);
    let bad = b"MaxRecvDataSegmentLength=1\0";
    assert_eq!(rejected(&mut peer, &fresh, bad), RejectReason::ProtocolError);
    let tag = request(FINAL, 99);
    assert_eq!(rejected(&mut peer, &tag, b""), RejectReason::InvalidPduField);
    let both = request(FINAL | CONTINUE, RESERVED_TAG);
    assert_eq!(rejected(&mut peer, &both, b""), RejectReason::InvalidPduField);
    peer.send(&request(CONTINUE, RESERVED_TAG), &[b'x'; 10_000]).unwrap();
    let ttt = peer.answer().word(20);
    let reason = rejected(&mut peer, &request(CONTINUE, ttt), &[b'x'; 10_000]);
    assert_eq!(reason, RejectReason::LongOperationReject);
    assert_eq!(ask(&mut peer, &["X=1"]), ["X=NotUnderstood"]);
}

/// Commands have no place in a discovery session.
#[test]
fn discovery_takes_no_commands() {
    let mut peer = discovery(&[]);
    let event = peer.command(5, 0xc1, 0, &[]);
    assert!(matches!(event, Some(Event::Rejected { reason: RejectReason::ProtocolError, .. })));
}
