//! The login, with the answers played by hand: what is said when, and what is not put up with.

use zerocopy::FromZeros;

use super::harness::{Alone, ISID, Pair, Said, login_request, node, settings};
use crate::iscsi::initiator::{
    DigestPolicy, Fault, PduKind, Portal, Settings, SettingsError, Target,
};
use crate::iscsi::pdu::{LoginResponse, TextResponse, opcode};
use crate::iscsi::target_role::{Advertised, Limits, Redirect, TargetEntry};

pub(super) const RESPONSE: PduKind = PduKind(opcode::LOGIN_RESPONSE);

fn discovery() -> Settings {
    Settings { target: None, ..settings() }
}

/// An initiator in the operational stage.
fn operational(settings: Settings) -> Alone {
    let mut alone = Alone::new(settings);
    alone.sent();
    alone.login(0x81, &["AuthMethod=None", "TargetPortalGroupTag=3"]).unwrap();
    alone.sent();
    alone
}

fn field(fault: &Fault) -> &'static str {
    match fault {
        Fault::Field { field, .. } => field,
        other => panic!("{other}"),
    }
}

/// The names first, then all offers at once, each with the numbers that are due.
#[test]
fn the_login_has_two_requests() {
    let mut alone = Alone::new(Settings { alias: Some("a host".into()), ..settings() });
    let [first] = &alone.sent()[..] else { panic!() };
    assert_eq!(
        first.text(),
        [
            "InitiatorName=iqn.2026-01.test.weir:host",
            "InitiatorAlias=a host",
            "SessionType=Normal",
            "TargetName=iqn.2026-01.test.weir:disk",
            "AuthMethod=None"
        ]
    );
    let request = login_request(first);
    assert_eq!((request.opcode, request.flags, request.isid), (0x43, 0x81, ISID.0));
    assert_eq!((request.tsih.get(), request.cmd_sn.get(), request.exp_stat_sn.get()), (0, 1, 0));

    alone.login(0x81, &["AuthMethod=None", "TargetPortalGroupTag=3"]).unwrap();
    let [second] = &alone.sent()[..] else { panic!() };
    assert_eq!(
        second.text(),
        [
            "HeaderDigest=None,CRC32C",
            "DataDigest=None,CRC32C",
            "MaxRecvDataSegmentLength=262144",
            "DefaultTime2Wait=0",
            "DefaultTime2Retain=0",
            "ErrorRecoveryLevel=0",
            "InitialR2T=No",
            "ImmediateData=Yes",
            "MaxBurstLength=262144",
            "FirstBurstLength=262144",
            "MaxOutstandingR2T=8",
            "MaxConnections=1",
            "DataPDUInOrder=Yes",
            "DataSequenceInOrder=Yes",
        ]
    );
    let request = login_request(second);
    assert_eq!((request.flags, request.cmd_sn.get(), request.exp_stat_sn.get()), (0x87, 1, 501));
    let said = alone.login(0x87, &["InitialR2T=Yes", "MaxBurstLength=65536"]).unwrap();
    assert_eq!(said, [Said::LoggedIn { tsih: 7, portal_group: Some(3), window: 16 }]);
    let agreed = alone.initiator.parameters();
    assert!(agreed.initial_r2t && !agreed.immediate_data);
    assert_eq!((agreed.max_burst_length, agreed.first_burst_length), (65_536, 65_536));
    assert_eq!((agreed.target_segment_length, agreed.max_outstanding_r2t), (8192, 1));
}

/// A target may need several responses for its text, may stay in a stage, and may offer keys itself.
#[test]
fn a_target_may_take_its_time() {
    let mut alone = Alone::new(settings());
    alone.sent();
    alone.login(0x40, &["AuthMethod=None"]).unwrap();
    let sent = alone.sent();
    assert_eq!((sent[0].header.flags, sent[0].data.len()), (0, 0), "the rest is fetched");
    alone.login(0x00, &["TargetAlias=x"]).unwrap();
    assert_eq!(alone.sent()[0].header.flags, 0x81, "the next stage is asked for now");

    let mut alone = Alone::new(settings());
    alone.sent();
    alone.login(0x00, &[]).unwrap();
    assert_eq!(alone.sent()[0].header.flags, 0x81, "the next stage is asked for again");
    alone.login(0x81, &[]).unwrap();
    alone.sent();
    let offers = ["IFMarker=No", "X-com.example=1", "TaskReporting=FastAbort", "OFMarkInt=1"];
    alone.login(0x04, &offers).unwrap();
    let sent = alone.sent();
    let answers =
        ["IFMarker=No", "X-com.example=NotUnderstood", "TaskReporting=Reject", "OFMarkInt=Reject"];
    assert_eq!((sent[0].text(), sent[0].header.flags), (answers.to_vec(), 0x87));
    assert!(matches!(alone.login(0x87, &[]).unwrap()[..], [Said::LoggedIn { .. }]));
}

/// Answers outside of what was offered are refused, each with the key and its value.
#[test]
fn answers_must_fit_the_offers() {
    let mut narrow = settings();
    (narrow.max_burst, narrow.first_burst, narrow.max_outstanding_r2t) = (4096, 2048, 2);
    (narrow.initial_r2t, narrow.immediate_data) = (true, false);
    narrow.header_digest = DigestPolicy::Never;
    for wrong in [
        "HeaderDigest=CRC32C",
        "DataDigest=crc32c",
        "DataDigest=None,CRC32C",
        "MaxRecvDataSegmentLength=511",
        "MaxRecvDataSegmentLength=16777216",
        "MaxRecvDataSegmentLength=x",
        "InitialR2T=No",
        "InitialR2T=Maybe",
        "ImmediateData=Yes",
        "MaxBurstLength=4097",
        "MaxBurstLength=511",
        "FirstBurstLength=2049",
        "MaxOutstandingR2T=3",
        "MaxOutstandingR2T=0",
        "MaxConnections=4",
        "ErrorRecoveryLevel=1",
        "DefaultTime2Wait=3601",
        "DefaultTime2Retain=20",
        "DataPDUInOrder=No",
        "DataSequenceInOrder=No",
        "TargetPortalGroupTag=65536",
    ] {
        let fault = operational(narrow.clone()).login(0x87, &[wrong]).unwrap_err();
        let (key, value) = wrong.split_once('=').unwrap();
        let (key, value) = (key.to_owned(), value.to_owned());
        assert_eq!(fault, Fault::IllegalValue { key, value }, "{wrong}");
    }
    let fault = operational(settings())
        .login(0x87, &["MaxBurstLength=1024", "FirstBurstLength=2048"])
        .unwrap_err();
    assert!(matches!(fault, Fault::IllegalValue { .. }));
    for key in ["HeaderDigest", "DataDigest"] {
        let mut strict = settings();
        strict.header_digest = DigestPolicy::Required;
        strict.data_digest = DigestPolicy::Required;
        let other = if key == "HeaderDigest" { "DataDigest" } else { "HeaderDigest" };
        for answer in ["Reject", "None"] {
            let keys = [&*format!("{other}=CRC32C"), &*format!("{key}={answer}")];
            let fault = operational(strict.clone()).login(0x87, &keys).unwrap_err();
            assert_eq!(fault, Fault::DigestRefused { key });
        }
    }
}

/// Keys twice, out of place, without end, or no keys at all.
#[test]
fn texts_are_judged() {
    let many: Vec<String> = (0..65).map(|at| format!("X-{at}=1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let twice = Fault::KeyTwice { key: "MaxBurstLength".into() };
    let misplaced = |key: &str| Fault::KeyOutOfPlace { key: key.into() };
    for (keys, fault) in [
        (&["MaxBurstLength=1024", "MaxBurstLength=1024"][..], twice),
        (&["InitiatorName=iqn.x"], misplaced("InitiatorName")),
        (&["SendTargets=All"], misplaced("SendTargets")),
        (&["AuthMethod=None"], Fault::KeyTwice { key: "AuthMethod".into() }),
        (&["CHAP_A=5"], misplaced("CHAP_A")),
        (&["no key"], Fault::Text { pdu: RESPONSE }),
        (&many, Fault::Text { pdu: RESPONSE }),
    ] {
        assert_eq!(operational(settings()).login(0x87, keys).unwrap_err(), fault);
    }
    let mut alone = Alone::new(settings());
    alone.sent();
    let fault = alone.login(0x81, &["MaxBurstLength=1024"]).unwrap_err();
    assert_eq!(fault, misplaced("MaxBurstLength"));
}

/// A login that never ends ends: by the number of responses, of bytes, and of keys.
#[test]
fn a_login_without_end_ends() {
    let until_it_ends = |flags, mut keys: Box<dyn FnMut(usize) -> Vec<String>>| {
        let mut alone = operational(settings());
        for round in 0..1000 {
            let keys = keys(round);
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            if let Err(fault) = alone.login(flags, &keys) {
                assert!(alone.initiator.outbox().owned() < 64 * 1024);
                let Fault::Endless { unit, .. } = fault else { panic!("{fault}") };
                return unit;
            }
            alone.sent();
        }
        panic!("it does not end");
    };
    assert_eq!(until_it_ends(0x04, Box::new(|_| Vec::new())), "responses");
    assert_eq!(until_it_ends(0x44, Box::new(|_| vec!["X-a=".repeat(1000)])), "bytes of text");
    let fresh = |round| (0..60).map(|at| format!("X-{round}-{at}=1")).collect();
    assert_eq!(until_it_ends(0x04, Box::new(fresh)), "keys");
}

/// Flags, stages, names and numbers of a response that do not belong to the request.
#[test]
fn headers_are_judged() {
    type Change = fn(&mut LoginResponse);
    let judge = |flags: u8, change: Change| {
        let mut alone = operational(settings());
        let mut response = LoginResponse::new_zeroed();
        (response.opcode, response.flags, response.isid) = (opcode::LOGIN_RESPONSE, flags, ISID.0);
        response.tsih = 7.into();
        change(&mut response);
        alone.answer(&response, &[]).unwrap_err()
    };
    assert_eq!(field(&judge(0x83, |_| {})), "CSG");
    assert_eq!(field(&judge(0x86, |_| {})), "NSG");
    assert_eq!(field(&judge(0xc7, |_| {})), "T");
    assert_eq!(field(&judge(0x87, |response| response.version_active = 1)), "Version-active");
    assert_eq!(field(&judge(0x87, |response| response.tsih = 0.into())), "TSIH");
    assert_eq!(judge(0x87, |response| response.isid[5] ^= 1), Fault::OtherIsid);
    let fault = judge(0x87, |response| response.itt = 1.into());
    assert_eq!(fault, Fault::UnknownTag { pdu: RESPONSE, itt: 1 });
    let fault = judge(0x87, |response| response.opcode = opcode::SCSI_RESPONSE);
    assert_eq!(fault, Fault::OutOfPlace { pdu: PduKind(0x21), when: "during the login" });

    let mut alone = operational(settings());
    alone.stat_sn += 1;
    assert_eq!(field(&alone.login(0x87, &[]).unwrap_err()), "StatSN");
}

/// A status says why there is no session, in words; a redirection says where to go.
#[test]
fn refusals_say_why() {
    let refuse = |status: u16, text: &[u8]| {
        let mut alone = Alone::new(settings());
        alone.sent();
        let mut response = LoginResponse::new_zeroed();
        (response.opcode, response.status) = (opcode::LOGIN_RESPONSE, status.into());
        let result = alone.answer(&response, text);
        assert!(alone.initiator.is_over() && alone.initiator.room() == 0);
        result
    };
    let fault = refuse(0x0201, &[]).unwrap_err();
    assert_eq!(fault, Fault::Refused { code: 0x0201 });
    let words = "the target refused the login: authentication failure (0x0201)";
    assert_eq!(fault.to_string(), words);
    assert_eq!(refuse(0xffff, &[]).unwrap_err(), Fault::Refused { code: 0xffff });
    let moved = |permanent| vec![Said::Redirected("10.0.0.9:3260".to_owned(), permanent)];
    assert_eq!(refuse(0x0101, b"TargetAddress=10.0.0.9:3260\0").unwrap(), moved(false));
    assert_eq!(refuse(0x0102, b"TargetAddress=10.0.0.9:3260,1\0").unwrap(), moved(true));
    let missing = Fault::KeyMissing { key: "TargetAddress" };
    assert_eq!(refuse(0x0101, b"TargetAlias=x\0").unwrap_err(), missing);

    let mut elsewhere = node();
    elsewhere.targets[0].redirect =
        Some(Redirect { portal: "10.0.0.8:3260".to_owned(), permanent: true });
    let said = Pair::new(settings(), elsewhere, Limits::default()).run().unwrap();
    assert_eq!(said, [Said::Redirected("10.0.0.8:3260".to_owned(), true)]);
}

/// All targets with all their portals, in as many PDUs as it takes.
#[test]
fn targets_are_discovered() {
    for max_recv in [512, 262_144] {
        let mut node = node();
        for at in 0..100 {
            let iqn = format!("iqn.2026-01.test.weir:disk{at}");
            node.targets.push(TargetEntry { iqn, ..TargetEntry::default() });
        }
        node.portals = vec![Advertised("10.0.0.1:3260".into()), Advertised("[fd00::1]:1".into())];
        let mine = Settings { max_recv, ..discovery() };
        let mut pair = Pair::new(mine, node, Limits::default());
        pair.run().unwrap();
        assert_eq!(pair.initiator.room(), 0, "discovery has no commands");
        assert!(pair.initiator.send_targets() && !pair.initiator.send_targets());
        let said = pair.run().unwrap();
        let [Said::Targets(targets)] = &said[..] else { panic!("{said:?}") };
        assert_eq!((targets.len(), &*targets[100].name), (101, "iqn.2026-01.test.weir:disk99"));
        let portal = |address: &str| Portal { address: address.to_owned(), group: 9 };
        assert_eq!(targets[50].portals, [portal("10.0.0.1:3260"), portal("[fd00::1]:1")]);
        assert!(pair.initiator.send_targets(), "the next question may follow");
        pair.run().unwrap();
        pair.initiator.logout();
        assert_eq!(pair.run().unwrap(), [Said::LoggedOut]);
    }
    let mut pair = Pair::logged_in(settings(), Limits::default());
    assert!(pair.initiator.send_targets());
    let portals = vec![Portal { address: "127.0.0.1:3260".to_owned(), group: 9 }];
    let target = Target { name: super::harness::TARGET.to_owned(), portals };
    assert_eq!(pair.run().unwrap(), [Said::Targets(vec![target])]);
}

/// An answer that never ends ends, and one that contradicts itself is refused.
#[test]
fn an_answer_without_end_ends() {
    let asked = || {
        let mut alone = Alone::logged_in(discovery(), &[]);
        assert!(alone.initiator.send_targets());
        let sent = alone.sent();
        assert_eq!(sent[0].text(), ["SendTargets=All"]);
        let mut response = TextResponse::new_zeroed();
        (response.opcode, response.itt) = (opcode::TEXT_RESPONSE, sent[0].header.itt);
        (alone, response)
    };
    for (data, unit) in [(&[][..], "responses"), (&[b'x'; 4096], "bytes of text")] {
        let (mut alone, mut response) = asked();
        (response.flags, response.ttt) = (0x40, 9.into());
        let fault = loop {
            match alone.answer(&response, data) {
                Ok(_) => {
                    let sent = alone.sent();
                    assert_eq!((sent[0].word(20), sent[0].data.len()), (9, 0));
                }
                Err(fault) => break fault,
            }
        };
        assert!(matches!(fault, Fault::Endless { unit: found, .. } if found == unit), "{fault}");
    }
    for (flags, ttt, wrong) in [(0xc0, u32::MAX, "C"), (0x40, u32::MAX, "TargetTransferTag")] {
        let (mut alone, mut response) = asked();
        (response.flags, response.ttt) = (flags, ttt.into());
        assert_eq!(field(&alone.answer(&response, &[]).unwrap_err()), wrong);
    }
    let (mut alone, mut response) = asked();
    (response.flags, response.ttt) = (0x40, 9.into());
    alone.answer(&response, b"TargetName=a\0").unwrap();
    let fault = alone.answer(&response, b"TargetName=b\0").unwrap_err();
    assert!(matches!(fault, Fault::TooEarly { .. }), "not before the rest was asked for: {fault}");
}

/// Settings that make no session are named.
#[test]
fn settings_are_checked() {
    let wrong = |change: fn(&mut Settings)| {
        let mut settings = settings();
        change(&mut settings);
        settings.check().unwrap_err()
    };
    assert_eq!(settings().check(), Ok(()));
    let setting = "initiator_name";
    assert_eq!(wrong(|all| all.initiator_name.clear()), SettingsError::Name { setting });
    assert_eq!(wrong(|all| all.initiator_name.push('\0')), SettingsError::Name { setting });
    let setting = "target";
    assert_eq!(wrong(|all| all.target = Some("x".repeat(224))), SettingsError::Name { setting });
    assert_eq!(wrong(|all| all.alias = Some(String::new())), SettingsError::Alias);
    for (change, name) in [
        ((|all| all.max_recv = 511) as fn(&mut Settings), "max_recv"),
        (|all| all.max_burst = 1 << 24, "max_burst"),
        (|all| all.max_burst = 4096, "first_burst"),
        (|all| all.max_outstanding_r2t = 0, "max_outstanding_r2t"),
        (|all| all.commands_max = 1025, "commands_max"),
    ] {
        let error = wrong(change);
        assert!(matches!(error, SettingsError::Range { setting, .. } if setting == name));
    }
}
