//! Tests of the login and its failures.

use super::harness::{INITIATOR, ISID, Peer, TARGET, encode, text};
use crate::iscsi::pdu::{IMMEDIATE, LoginRequest, NopOut, opcode};
use crate::iscsi::target_role::{DigestPolicy, Event, Limits, LoginStatus, PeerError};

fn names() -> [String; 2] {
    [format!("InitiatorName={INITIATOR}"), format!("TargetName={TARGET}")]
}

fn fails(peer: &mut Peer, flags: u8, keys: &[&str]) -> LoginStatus {
    let event = peer.login(flags, keys);
    let Some(Event::LoginFailed { status, .. }) = event else {
        panic!("login failed to fail: {event:?}");
    };
    assert_eq!(peer.answers().last().unwrap().status_class_detail(), status as u16);
    assert!(peer.connection.is_finished());
    status
}

/// Security stage, operational stage, full feature phase; the last response byte for byte.
#[test]
fn the_usual_login_is_byte_exact() {
    let mut peer = Peer::new(Limits::default());
    let [initiator, target] = names();
    let first = [&initiator, "SessionType=Normal", &target, "AuthMethod=CHAP,None"];
    assert!(peer.login(0x81, &first).is_none());
    let answer = peer.answer();
    assert_eq!(answer.text(), ["AuthMethod=None", "TargetPortalGroupTag=1"]);
    assert_eq!((answer.header.flags, answer.word(24)), (0x81, 50));

    let second = ["HeaderDigest=None,CRC32C", "InitialR2T=No", "X-com.example=1"];
    let event = peer.login(0x87, &second);
    let Some(Event::SessionRequested { initiator, isid, tsih, target, cid, account }) = event
    else {
        panic!("{event:?}");
    };
    assert_eq!((&*initiator, isid.0, tsih, target, cid), (INITIATOR, ISID, 0, Some(0), 9));
    assert_eq!(account, None);
    assert!(peer.output().is_empty(), "the shell decides first");
    let received = peer.connection.receive(&[0; 48]).unwrap();
    assert_eq!(received.consumed, 0);
    assert!(received.event.is_none());

    peer.connection.session_admitted(0x1234);
    let body = "HeaderDigest=None\0InitialR2T=No\0X-com.example=NotUnderstood\0\
                MaxRecvDataSegmentLength=65536\0";
    let mut expected = vec![0x23, 0x87, 0, 0, 0, 0, 0, body.len() as u8];
    expected.extend_from_slice(&ISID);
    expected.extend_from_slice(&[0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0]);
    expected.extend_from_slice(&[0, 0, 0, 51, 0, 0, 0, 100, 0, 0, 0, 227]);
    expected.extend_from_slice(&[0; 12]);
    expected.extend_from_slice(body.as_bytes());
    expected.resize(expected.len().next_multiple_of(4), 0);
    assert_eq!(peer.output(), expected);
    assert!(peer.connection.is_full_feature());
    assert_eq!(peer.connection.tsih(), 0x1234);
    assert!(!peer.connection.parameters().initial_r2t);
    assert_eq!(peer.connection.parameters().target_segment_length, 65_536);
}

/// A connection has the handle of its session, and until that is admitted none, whatever its host has asked for.
#[test]
fn a_refused_login_has_no_session() {
    let mut peer = Peer::new(Limits::default());
    let request = LoginRequest {
        opcode: opcode::LOGIN_REQUEST | IMMEDIATE,
        flags: 0x87,
        isid: ISID,
        tsih: 77.into(),
        ..LoginRequest::default()
    };
    let [initiator, target] = names();
    let event = peer.send(&request, &text(&[&initiator, &target])).unwrap();
    assert!(matches!(event, Some(Event::SessionRequested { tsih: 77, .. })), "{event:?}");
    assert_eq!(peer.connection.tsih(), 0);
    peer.connection.login_refused(LoginStatus::SessionDoesNotExist);
    assert_eq!((peer.connection.is_full_feature(), peer.connection.tsih()), (false, 0));
}

/// One request can do it all; a repeated name in the operational stage does no harm.
#[test]
fn names_may_be_repeated_but_not_changed() {
    let mut peer = Peer::new(Limits::default());
    let [initiator, target] = names();
    peer.login(0x81, &[&initiator, &target, "AuthMethod=None"]);
    let event = peer.login(0x87, &[&initiator, &target, "SessionType=Normal"]);
    assert!(matches!(event, Some(Event::SessionRequested { .. })), "{event:?}");

    let mut peer = Peer::new(Limits::default());
    peer.login(0x81, &[&initiator, &target]);
    peer.answers();
    assert_eq!(fails(&mut peer, 0x87, &["SessionType=Discovery"]), LoginStatus::InitiatorError);

    let mut peer = Peer::new(Limits::default());
    peer.login(0x81, &[&initiator, &target]);
    peer.answers();
    let other = ["InitiatorName=iqn.2026-01.test.weir:thief"];
    assert_eq!(fails(&mut peer, 0x87, &other), LoginStatus::InitiatorError);
}

/// The names that must be there, and the target that is not.
#[test]
fn names_are_checked() {
    let [initiator, target] = names();
    let cases: [(&[&str], LoginStatus); 7] = [
        (&[&target], LoginStatus::MissingParameter),
        (&[&initiator], LoginStatus::MissingParameter),
        (&[&initiator, "TargetName=iqn.2026-01.test.weir:none"], LoginStatus::NotFound),
        (&[&initiator, &target, "SessionType=Odd"], LoginStatus::SessionTypeNotSupported),
        (&[&initiator, &target, "AuthMethod=CHAP"], LoginStatus::AuthenticationFailure),
        (&["InitiatorName=", &target], LoginStatus::InitiatorError),
        (&[&initiator, &target, "AuthMethod=None", "AuthMethod=None"], LoginStatus::InitiatorError),
    ];
    for (keys, status) in cases {
        assert_eq!(fails(&mut Peer::new(Limits::default()), 0x81, keys), status, "{keys:?}");
    }
}

/// Stages that do not exist, go backwards or move on while text continues.
#[test]
fn stages_only_go_up() {
    let [initiator, target] = names();
    let keys = [&*initiator, &*target];
    for flags in [0x80, 0x82, 0x84, 0x85, 0x86, 0x08, 0x0c, 0xc1] {
        let status = fails(&mut Peer::new(Limits::default()), flags, &keys);
        assert_eq!(status, LoginStatus::InitiatorError, "{flags:#x}");
    }
    let mut peer = Peer::new(Limits::default());
    peer.login(0x81, &keys);
    peer.answers();
    assert_eq!(fails(&mut peer, 0x81, &[]), LoginStatus::InitiatorError, "back to security");
}

/// Without T the stage stays.
#[test]
fn a_stage_may_take_several_requests() {
    let mut peer = Peer::new(Limits::default());
    let [initiator, target] = names();
    assert!(peer.login(0x04, &[&initiator, &target, "MaxBurstLength=4096"]).is_none());
    let answer = peer.answer();
    assert_eq!(answer.header.flags, 0x04);
    assert!(peer.login(0x04, &["ImmediateData=No"]).is_none());
    assert_eq!(peer.answer().text(), ["ImmediateData=No"]);
    assert!(matches!(peer.login(0x87, &[]), Some(Event::SessionRequested { .. })));
    assert_eq!(peer.connection.parameters().max_burst_length, 4096);
    assert!(!peer.connection.parameters().immediate_data);
}

/// A key that is cut by the C bit is put together again.
#[test]
fn requests_may_continue() {
    let mut peer = Peer::new(Limits::default());
    let [initiator, target] = names();
    let whole = text(&[&initiator, &target]);
    let request = |flags| LoginRequest {
        opcode: opcode::LOGIN_REQUEST | IMMEDIATE,
        flags,
        isid: ISID,
        itt: 1.into(),
        cid: 9.into(),
        cmd_sn: 100.into(),
        ..LoginRequest::default()
    };
    assert!(peer.send(&request(0x44), &whole[..20]).unwrap().is_none());
    let answer = peer.answer();
    assert_eq!((answer.header.flags, answer.data.len()), (0x04, 0));
    let event = peer.send(&request(0x87), &whole[20..]).unwrap();
    assert!(matches!(event, Some(Event::SessionRequested { .. })), "{event:?}");
}

/// An answer longer than the initiator takes comes in pieces, and the transit waits for the last.
#[test]
fn responses_may_continue() {
    let mut peer = Peer::new(Limits::default());
    let [initiator, target] = names();
    let odd: Vec<String> = (0..40).map(|n| format!("X-com.example.{n}=1")).collect();
    let mut keys = vec![&*initiator, &target, "MaxRecvDataSegmentLength=512"];
    keys.extend(odd.iter().map(String::as_str));
    assert!(peer.login(0x87, &keys).is_none());
    let first = peer.answer();
    assert_eq!((first.header.flags, first.data.len()), (0x44, 512));
    let mut whole = first.data;
    loop {
        let event = peer.login(0x87, &[]);
        if event.is_some() {
            peer.connection.session_admitted(1);
            whole.extend(peer.answer().data);
            break;
        }
        let answer = peer.answer();
        assert_eq!(answer.header.flags, 0x44);
        whole.extend(answer.data);
    }
    let whole = String::from_utf8(whole).unwrap();
    assert_eq!(whole.matches("NotUnderstood").count(), 40);
    assert!(whole.contains("MaxRecvDataSegmentLength=65536"));
}

/// Text without end is cut short.
#[test]
fn endless_text_ends_the_login() {
    let mut peer = Peer::new(Limits::default());
    let filler = format!("X-com.example={}", "x".repeat(200));
    let keys: Vec<&str> = std::iter::repeat_n(filler.as_str(), 30).collect();
    assert!(peer.login(0x44, &keys).is_none());
    assert!(peer.login(0x44, &keys).is_none());
    peer.answers();
    assert_eq!(fails(&mut peer, 0x44, &keys), LoginStatus::InitiatorError);
}

/// Version 0 must be among those that the initiator speaks.
#[test]
fn only_version_zero_is_spoken() {
    let mut peer = Peer::new(Limits::default());
    let request = LoginRequest {
        opcode: opcode::LOGIN_REQUEST | IMMEDIATE,
        flags: 0x87,
        version_max: 2,
        version_min: 1,
        ..LoginRequest::default()
    };
    let event = peer.send(&request, &[]).unwrap();
    let status = LoginStatus::UnsupportedVersion;
    assert!(matches!(event, Some(Event::LoginFailed { status: s, .. }) if s == status));
}

/// The identity of the connection does not change half way.
#[test]
fn the_header_must_stay_the_same() {
    let mut peer = Peer::new(Limits::default());
    let [initiator, target] = names();
    peer.login(0x04, &[&initiator, &target]);
    let request = LoginRequest {
        opcode: opcode::LOGIN_REQUEST | IMMEDIATE,
        flags: 0x87,
        isid: ISID,
        cid: 10.into(),
        ..LoginRequest::default()
    };
    let event = peer.send(&request, &[]).unwrap();
    assert!(matches!(event, Some(Event::LoginFailed { status: LoginStatus::InitiatorError, .. })));
}

/// Anything but a login request ends a login.
#[test]
fn only_login_requests_belong_to_a_login() {
    let mut peer = Peer::new(Limits::default());
    let nop = NopOut { itt: 3.into(), ..NopOut::default() };
    let event = peer.send(&nop, &[]).unwrap();
    assert!(matches!(
        event,
        Some(Event::LoginFailed { status: LoginStatus::InvalidDuringLogin, .. })
    ));
    assert_eq!(peer.answer().word(16), 3);
}

/// A discovery session needs no target name, and the shell can refuse any session.
#[test]
fn discovery_and_refusal() {
    let mut peer = Peer::new(Limits::default());
    let [initiator, _] = names();
    let event = peer.login(0x87, &[&initiator, "SessionType=Discovery", "MaxConnections=8"]);
    assert!(matches!(event, Some(Event::SessionRequested { target: None, .. })));
    peer.connection.login_refused(LoginStatus::OutOfResources);
    assert_eq!(peer.answer().status_class_detail(), 0x0302);
    assert!(peer.connection.is_finished());
}

/// A required digest that the initiator does not want.
#[test]
fn a_required_digest_is_required() {
    let limits = Limits { header_digest: DigestPolicy::Required, ..Limits::default() };
    let [initiator, target] = names();
    for keys in [&[&*initiator, &target][..], &[&initiator, &target, "HeaderDigest=None"]] {
        let status = fails(&mut Peer::new(limits), 0x87, keys);
        assert_eq!(status, LoginStatus::InitiatorError);
    }
}

/// During the login a PDU may carry 8192 bytes and no more, whatever is declared.
#[test]
fn a_login_request_has_a_limit() {
    let mut peer = Peer::new(Limits::default());
    let request = LoginRequest { opcode: 0x43, flags: 0x44, ..LoginRequest::default() };
    let pdu = encode(&request, &[0; 8196], (false, false));
    let error = peer.connection.receive(&pdu[..48]).unwrap_err();
    assert_eq!(error, PeerError::SegmentTooLong { length: 8196, limit: 8192 });
    assert!(peer.connection.wants_close());
    assert_eq!(
        error.to_string(),
        "data segment of 8196 bytes, 8192 allowed (RFC 7143 section 13.12)"
    );
}

/// However the bytes trickle in, the connection says how many it needs and takes the PDU once.
#[test]
fn bytes_may_trickle_in() {
    let mut peer = Peer::new(Limits::default());
    let [initiator, target] = names();
    let request = LoginRequest { opcode: 0x43, flags: 0x04, ..LoginRequest::default() };
    let pdu = encode(&request, &text(&[&initiator, &target]), (false, false));
    for n in 0..pdu.len() {
        let received = peer.connection.receive(&pdu[..n]).unwrap();
        assert_eq!(received.consumed, 0);
        assert_eq!(peer.connection.needed(), if n < 48 { 48 } else { pdu.len() });
    }
    assert_eq!(peer.connection.receive(&pdu).unwrap().consumed, pdu.len());
    assert_eq!(peer.connection.needed(), 48);
}

/// Every key in the security stage, the operational stage and twice: `-` is no answer, anything else
/// is the answer or the status that ends the login.
#[test]
fn keys_have_their_stage() {
    let [initiator, target] = names();
    let outcome = |flags: u8, keys: &[&str]| {
        let mut peer = Peer::new(Limits::default());
        let all: Vec<&str> =
            [&*initiator, &target].into_iter().chain(keys.iter().copied()).collect();
        if let Some(Event::LoginFailed { status, .. }) = peer.login(flags, &all) {
            return format!("{:#06x}", status as u16);
        }
        let answer = peer.answer();
        let own = ["TargetPortalGroupTag=1", "MaxRecvDataSegmentLength=65536"];
        let text: Vec<_> = answer.text().into_iter().filter(|one| !own.contains(one)).collect();
        if text.is_empty() { "-".to_owned() } else { text.join(" ") }
    };
    for (key, security, operational) in [
        ("AuthMethod=None", "AuthMethod=None", "0x0200"),
        ("AuthMethod=CHAP", "0x0201", "0x0200"),
        ("AuthMethod=Reject", "0x0201", "0x0200"),
        ("CHAP_A=5", "0x0200", "0x0200"),
        ("CHAP_R=0x00", "0x0200", "0x0200"),
        ("MaxRecvDataSegmentLength=512", "-", "-"),
        ("MaxRecvDataSegmentLength=1", "0x0200", "0x0200"),
        ("InitiatorAlias=a host", "-", "-"),
        ("HeaderDigest=None", "0x0200", "HeaderDigest=None"),
        ("DataDigest=None", "0x0200", "DataDigest=None"),
        ("InitialR2T=No", "0x0200", "InitialR2T=No"),
        ("ImmediateData=No", "0x0200", "ImmediateData=No"),
        ("MaxBurstLength=512", "0x0200", "MaxBurstLength=512"),
        ("FirstBurstLength=512", "0x0200", "FirstBurstLength=512"),
        ("DefaultTime2Wait=2", "0x0200", "DefaultTime2Wait=2"),
        ("DefaultTime2Retain=20", "0x0200", "DefaultTime2Retain=0"),
        ("MaxOutstandingR2T=1", "0x0200", "MaxOutstandingR2T=1"),
        ("MaxConnections=2", "0x0200", "MaxConnections=1"),
        ("ErrorRecoveryLevel=2", "0x0200", "ErrorRecoveryLevel=0"),
        ("DataPDUInOrder=No", "0x0200", "DataPDUInOrder=Yes"),
        ("DataSequenceInOrder=No", "0x0200", "DataSequenceInOrder=Yes"),
        ("TaskReporting=RFC3720", "0x0200", "TaskReporting=RFC3720"),
        ("iSCSIProtocolLevel=1", "0x0200", "iSCSIProtocolLevel=1"),
        ("IFMarker=Yes", "0x0200", "IFMarker=No"),
        ("OFMarkInt=2048", "0x0200", "OFMarkInt=Reject"),
        ("SendTargets=All", "0x0200", "0x0200"),
        ("TargetAlias=x", "0x0200", "0x0200"),
        ("TargetAddress=x", "0x0200", "0x0200"),
        ("TargetPortalGroupTag=1", "0x0200", "0x0200"),
        ("X-com.example=1", "X-com.example=NotUnderstood", "X-com.example=NotUnderstood"),
        ("X-com.example=NotUnderstood", "-", "-"),
    ] {
        assert_eq!(outcome(0x00, &[key]), security, "{key} in the security stage");
        assert_eq!(outcome(0x04, &[key]), operational, "{key} in the operational stage");
        assert_eq!(outcome(0x04, &[key, key]), "0x0200", "{key} twice");
    }
}

/// The order of keys in a text does not matter.
#[test]
fn keys_have_no_order() {
    let mut peer = Peer::new(Limits::default());
    let [initiator, target] = names();
    let keys = ["FirstBurstLength=8192", "MaxBurstLength=4096", &*target, &initiator];
    peer.login(0x04, &keys);
    let expected = ["MaxBurstLength=4096", "FirstBurstLength=4096", "TargetPortalGroupTag=1"];
    assert_eq!(peer.answer().text()[..3], expected);

    let mut peer = Peer::new(Limits::default());
    peer.login(0x81, &["AuthMethod=None", &target, &initiator]);
    assert_eq!(peer.answer().text(), ["AuthMethod=None", "TargetPortalGroupTag=1"]);
}
