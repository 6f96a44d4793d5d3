//! The handshake, with the answers played by hand and against our own target. The responses were
//! computed with another implementation of the hashes.

use super::harness::{Alone, CHALLENGE, ENTROPY, Pair, Said, node, settings};
use crate::iscsi::binary;
use crate::iscsi::initiator::{Account, Chap, ChapFault, Fault, Secret, Settings};
use crate::iscsi::target_role::{Authentication, Limits, Node};

/// MD5 and SHA-256 of 0x40, `alice's secret` and the bytes 0x40 to 0x5f.
const ALICE_MD5: &str = "CHAP_R=0xc064ebe6774120ff5f228563da7280c2";
const ALICE_SHA256: &str =
    "CHAP_R=0x4a48494b9a34bf1556975a2dd28e217500d565d98f7415a1dbc7187296c33005";
/// MD5 and SHA-256 of 0x30, `gateway secret` and what the initiator asks.
const GATEWAY_MD5: &str = "CHAP_R=0x449d4cd00a1c288e609376cccd4e60e7";
const GATEWAY_SHA256: &str =
    "CHAP_R=0x3ec4b5e4365da5e0ef5eb8f2643a77ad86058ab3b5d83b9d8d5a15884d3740d4";
const OURS: &str = "CHAP_C=0x303132333435363738396162636465666768696a6b6c6d6e6f70717273747576";

fn account(name: &str, secret: &str) -> Account {
    Account { name: name.to_owned(), secret: Secret::new(secret).unwrap() }
}

/// Settings of alice, who wants the target to be `gateway` if it is to prove that.
fn alice(mutual: bool) -> Settings {
    let target = mutual.then(|| account("gateway", "gateway secret"));
    let chap = Some(Chap { account: account("alice", "alice's secret"), target });
    Settings { chap, ..settings() }
}

fn challenge() -> String {
    format!("CHAP_C={}", binary::encode(&CHALLENGE))
}

/// Plays the target up to its challenge, with the algorithm `number`.
fn challenged(settings: Settings, number: &str) -> (Alone, Result<Vec<Said>, Fault>) {
    let mut alone = Alone::new(settings);
    let first = alone.sent();
    assert!(first[0].text().iter().any(|key| key.starts_with("AuthMethod=CHAP")));
    alone.login(0x00, &["AuthMethod=CHAP", "TargetPortalGroupTag=1"]).unwrap();
    let sent = alone.sent();
    assert_eq!(sent[0].text(), ["CHAP_A=5,7"]);
    assert_eq!(sent[0].header.flags, 0, "the challenge is waited for");
    let result = alone.login(0x00, &[number, "CHAP_I=64", &challenge()]);
    (alone, result)
}

/// Both algorithms are computed as others compute them, and asked for the next stage with.
#[test]
fn the_initiator_proves_itself() {
    for (number, response) in [("CHAP_A=5", ALICE_MD5), ("CHAP_A=7", ALICE_SHA256)] {
        let (mut alone, result) = challenged(alice(false), number);
        result.unwrap();
        let sent = alone.sent();
        assert_eq!(sent[0].text(), ["CHAP_N=alice", response]);
        assert_eq!(sent[0].header.flags, 0x81);
        alone.login(0x81, &[]).unwrap();
        assert!(alone.sent()[0].text().contains(&"ErrorRecoveryLevel=0"));
    }
}

/// The target is asked to prove itself, and a right proof in either algorithm lets it in.
#[test]
fn the_target_proves_itself() {
    for (number, mine, theirs) in
        [("CHAP_A=5", ALICE_MD5, GATEWAY_MD5), ("CHAP_A=7", ALICE_SHA256, GATEWAY_SHA256)]
    {
        let (mut alone, result) = challenged(alice(true), number);
        result.unwrap();
        assert_eq!(alone.sent()[0].text(), ["CHAP_N=alice", mine, "CHAP_I=48", OURS]);
        assert_eq!(alone.login(0x81, &["CHAP_N=gateway", theirs]).unwrap(), []);
        assert_eq!(alone.sent()[0].header.flags, 0x87);
    }
}

/// A target that must prove itself and does not, in any way, gets no session.
#[test]
fn no_proof_no_session() {
    let wrong = GATEWAY_MD5.replace('a', "b");
    for (flags, keys, fault) in [
        (0x81, vec![], ChapFault::Missing { key: "CHAP_N" }),
        (0x00, vec![], ChapFault::Missing { key: "CHAP_N" }),
        (0x81, vec!["CHAP_N=gateway"], ChapFault::Missing { key: "CHAP_R" }),
        (0x81, vec![GATEWAY_MD5], ChapFault::Missing { key: "CHAP_N" }),
        (0x81, vec!["CHAP_N=gateway", &wrong], ChapFault::WrongResponse),
        (0x81, vec!["CHAP_N=gateway", ALICE_MD5], ChapFault::WrongResponse),
        (0x81, vec!["CHAP_N=gateway", "CHAP_R=x"], ChapFault::IllegalValue { key: "CHAP_R" }),
        (0x81, vec!["CHAP_N=other", GATEWAY_MD5], ChapFault::WrongName { name: "other".into() }),
    ] {
        let (mut alone, result) = challenged(alice(true), "CHAP_A=5");
        result.unwrap();
        alone.sent();
        assert_eq!(alone.login(flags, &keys).unwrap_err(), Fault::Chap(fault));
        assert!(alone.initiator.is_over());
    }
}

/// A second challenge, which would make the initiator answer its own, is not taken.
#[test]
fn there_is_one_challenge() {
    let (mut alone, result) = challenged(alice(true), "CHAP_A=5");
    result.unwrap();
    alone.sent();
    let fault = alone.login(0x00, &["CHAP_A=5", "CHAP_I=48", OURS]).unwrap_err();
    assert_eq!(fault, Fault::KeyTwice { key: "CHAP_A".to_owned() });
}

/// Nothing lets a target out of the proof that it owes, at the start of the login either.
#[test]
fn the_proof_cannot_be_left_out() {
    for (flags, keys) in
        [(0x00, vec!["AuthMethod=None"]), (0x00, vec![]), (0x00, vec!["TargetPortalGroupTag=1"])]
    {
        let mut alone = Alone::new(alice(true));
        assert!(alone.sent()[0].text().contains(&"AuthMethod=CHAP"));
        let fault = alone.login(flags, &keys).unwrap_err();
        assert_eq!(fault, Fault::Chap(ChapFault::NotAuthenticated));
    }
    // The next stage was not asked for, so that no answer goes there.
    let mut alone = Alone::new(alice(true));
    alone.sent();
    let fault = alone.login(0x81, &["AuthMethod=None"]).unwrap_err();
    assert!(matches!(fault, Fault::Field { field: "T", .. }), "{fault}");
}

/// A challenge that is ours, cannot be read, is too long, or of an algorithm that was not offered.
#[test]
fn wrong_challenges_are_refused() {
    let long = format!("CHAP_C=0x{}", "00".repeat(1025));
    let theirs = challenge();
    assert_eq!(&OURS[9..], &binary::encode(&ENTROPY)[2..]);
    let illegal = |key| Fault::Chap(ChapFault::IllegalValue { key });
    for (keys, fault) in [
        ([OURS, "CHAP_I=1", "CHAP_A=5"], Fault::Chap(ChapFault::Reflected)),
        (["CHAP_C=0x0", "CHAP_I=1", "CHAP_A=5"], illegal("CHAP_C")),
        (["CHAP_C=", "CHAP_I=1", "CHAP_A=5"], illegal("CHAP_C")),
        ([&theirs, "CHAP_I=256", "CHAP_A=5"], illegal("CHAP_I")),
        ([&theirs, "CHAP_I=1", "CHAP_A=6"], Fault::Chap(ChapFault::Algorithm { name: "6".into() })),
        (
            [&theirs, "CHAP_I=1", "CHAP_A=7,5"],
            Fault::Chap(ChapFault::Algorithm { name: "7,5".into() }),
        ),
        ([&theirs, "CHAP_I=1", "CHAP_N=x"], Fault::Chap(ChapFault::NotDue { key: "CHAP_N" })),
        ([&long, "CHAP_I=1", "CHAP_A=5"], Fault::Text { pdu: super::login::RESPONSE }),
    ] {
        let mut alone = Alone::new(alice(true));
        alone.sent();
        alone.login(0x00, &["AuthMethod=CHAP"]).unwrap();
        alone.sent();
        assert_eq!(alone.login(0x00, &keys).unwrap_err(), fault);
    }
}

/// A method that was not offered, or that there is no account for, is a clear fault.
#[test]
fn methods_that_were_not_offered_are_refused() {
    for (settings, method) in
        [(settings(), "CHAP"), (settings(), "KRB5"), (alice(false), "SRP"), (alice(true), "Reject")]
    {
        let mut alone = Alone::new(settings);
        alone.sent();
        let fault = alone.login(0x00, &[&format!("AuthMethod={method}")]).unwrap_err();
        let method = method.to_owned();
        assert_eq!(fault, Fault::Chap(ChapFault::NotConfigured { method }));
    }
}

/// Against our own target: both directions, the wrong secret in either, an account that is not
/// allowed, and a target that asks for nothing.
#[test]
fn our_own_target_agrees() {
    let guarded = |mutual: Option<usize>| {
        let mut node = node();
        node.accounts =
            vec![account("alice", "alice's secret"), account("gateway", "gateway secret")];
        node.targets[0].authentication = Authentication { accounts: vec![0], mutual };
        node
    };
    let log_in =
        |settings: Settings, node: Node| Pair::new(settings, node, Limits::default()).run();
    let refused = Fault::Refused { code: 0x0201 };
    let is_in =
        |said: Result<Vec<Said>, Fault>| matches!(said.unwrap()[..], [Said::LoggedIn { .. }]);
    assert!(is_in(log_in(alice(false), guarded(None))));
    assert!(is_in(log_in(alice(true), guarded(Some(1)))));
    assert!(is_in(log_in(alice(false), node())));
    assert_eq!(log_in(settings(), guarded(None)).unwrap_err(), refused);
    assert_eq!(log_in(alice(true), guarded(None)).unwrap_err(), refused);
    assert_eq!(log_in(alice(true), node()).unwrap_err(), refused);

    let mut wrong = alice(false);
    wrong.chap.as_mut().unwrap().account.secret = Secret::new("not her secret").unwrap();
    assert_eq!(log_in(wrong, guarded(None)).unwrap_err(), refused);
    let mut wrong = alice(true);
    wrong.chap.as_mut().unwrap().target = Some(account("gateway", "another secret"));
    let fault = log_in(wrong, guarded(Some(1))).unwrap_err();
    assert_eq!(fault, Fault::Chap(ChapFault::WrongResponse));
}
