//! The handshake by itself. The responses were computed with another implementation of the hashes.

use super::*;
use crate::iscsi::target_role::Secret;

/// MD5 and SHA-256 of 0x40, `alice's secret` and the bytes 0x40 to 0x5f.
const ALICE_MD5: &str = "0xc064ebe6774120ff5f228563da7280c2";
const ALICE_SHA256: &str = "0x4a48494b9a34bf1556975a2dd28e217500d565d98f7415a1dbc7187296c33005";
/// The same with `another secret`.
const BOB_MD5: &str = "0xfe68972d2285fe121ec0d5a312fe4a65";
/// MD5 and SHA-256 of 200, `gateway secret` and the bytes 1, 2, 3.
const GATEWAY_MD5: &str = "0xbb98c8fb2fe430f669d609f4f034974b";
const GATEWAY_SHA256: &str = "0x511a4a0c3767ed26dc4031855aca6c9460574704f363d7d560a13e9ca0fa532c";

fn challenge() -> [u8; CHALLENGE_LENGTH] {
    std::array::from_fn(|at| 0x40 + at as u8)
}

fn all() -> Vec<Account> {
    let account = |name: &str, secret: &str| Account {
        name: name.to_owned(),
        secret: Secret::new(secret).unwrap(),
    };
    vec![
        account("gateway", "gateway secret"),
        account("alice", "alice's secret"),
        account("bob", "another secret"),
        account("carol", "gateway secret"),
    ]
}

/// One step; alice and carol may log in, bob may not.
fn step(chap: &mut Chap, keys: &[(&str, &str)], mutual: Option<usize>) -> Result<Reply, ChapFault> {
    let mut kept = Keys::default();
    for (key, value) in keys {
        assert!(kept.keep(key, value), "{key}");
    }
    chap.step(
        kept,
        Accounts { all: &all(), allowed: &[1, 3], mutual, algorithm_min: ChapAlgorithm::Md5 },
    )
}

/// A handshake that has made its challenge.
fn challenged(algorithms: &str) -> Chap {
    let mut chap = Chap::new(challenge());
    step(&mut chap, &[("CHAP_A", algorithms)], None).unwrap();
    chap
}

/// Both algorithms; the stronger one of the initiator's list is chosen in any order, whatever else it has.
#[test]
fn the_right_response_is_proof() {
    for (algorithms, chosen, response) in [
        ("5", "5", ALICE_MD5),
        ("5,7", "7", ALICE_SHA256),
        ("7,5", "7", ALICE_SHA256),
        ("5,6,7,8", "7", ALICE_SHA256),
        ("8,6,7,5", "7", ALICE_SHA256),
        ("0x7", "7", ALICE_SHA256),
    ] {
        let mut chap = Chap::new(challenge());
        let Ok(Reply::Challenge(pairs)) = step(&mut chap, &[("CHAP_A", algorithms)], None) else {
            panic!("a challenge comes first");
        };
        assert_eq!(pairs[0], ("CHAP_A", chosen.to_owned()));
        assert_eq!(pairs[1], ("CHAP_I", "64".to_owned()));
        let all = "0x404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f";
        assert_eq!(pairs[2], ("CHAP_C", all.to_owned()));
        let proven = step(&mut chap, &[("CHAP_N", "alice"), ("CHAP_R", response)], None);
        assert_eq!(proven, Ok(Reply::Proven { account: 1, pairs: vec![] }));
    }
    for none in ["", "6", "8,9", "None", "55"] {
        let mut chap = Chap::new(challenge());
        assert_eq!(
            step(&mut chap, &[("CHAP_A", none)], None),
            Err(ChapFault::NoAlgorithm { min: ChapAlgorithm::Md5 })
        );
    }
}

/// A wrong secret, the other algorithm's response, a response that is too short, a name that
/// no account has, and one that is known but may not log in here.
#[test]
fn anything_else_is_none() {
    let wrong = || ChapFault::WrongResponse { account: "alice".to_owned() };
    let unknown = |name: &str| ChapFault::UnknownAccount { name: name.to_owned() };
    for (name, response, fault) in [
        ("alice", BOB_MD5, wrong()),
        ("alice", ALICE_SHA256, wrong()),
        ("alice", &ALICE_MD5[..32], wrong()),
        ("mallory", ALICE_MD5, unknown("mallory")),
        ("Alice", ALICE_MD5, unknown("Alice")),
        ("bob", BOB_MD5, unknown("bob")),
    ] {
        let keys = [("CHAP_N", name), ("CHAP_R", response)];
        assert_eq!(step(&mut challenged("5"), &keys, None), Err(fault), "{name}");
    }
}

/// The target proves itself with its own account, with the algorithm of the handshake.
#[test]
fn the_target_proves_itself_too() {
    for (algorithm, response, proof) in
        [("5", ALICE_MD5, GATEWAY_MD5), ("7", ALICE_SHA256, GATEWAY_SHA256)]
    {
        let mut keys = vec![("CHAP_N", "alice"), ("CHAP_R", response)];
        keys.extend([("CHAP_I", "200"), ("CHAP_C", "0bAQID")]);
        let proven = step(&mut challenged(algorithm), &keys, Some(0));
        let pairs = vec![("CHAP_N", "gateway".to_owned()), ("CHAP_R", proof.to_owned())];
        assert_eq!(proven, Ok(Reply::Proven { account: 1, pairs }));
        assert_eq!(step(&mut challenged(algorithm), &keys, None), Err(ChapFault::NoMutual));
        keys[1].1 = BOB_MD5;
        let fault = step(&mut challenged(algorithm), &keys, Some(0)).unwrap_err();
        assert!(matches!(fault, ChapFault::WrongResponse { .. }), "{fault}: proof comes first");
    }
}

/// The target's own challenge must not come back, and no secret serves both directions.
#[test]
fn nothing_is_reflected() {
    let own = binary::encode(&challenge());
    let keys = [("CHAP_N", "alice"), ("CHAP_R", ALICE_MD5), ("CHAP_I", "200"), ("CHAP_C", &own)];
    assert_eq!(step(&mut challenged("5"), &keys, Some(0)), Err(ChapFault::Reflected));

    let algorithm = ChapAlgorithm::Md5;
    let response = binary::encode(&algorithm.response(0x40, &all()[3], &challenge()));
    let keys = [("CHAP_N", "carol"), ("CHAP_R", &response), ("CHAP_I", "1"), ("CHAP_C", "0x01")];
    let fault = ChapFault::SameSecret { account: "carol".to_owned() };
    assert_eq!(step(&mut challenged("5"), &keys, Some(0)), Err(fault));
}

/// Keys that are missing, too early, too late, too long or unreadable.
#[test]
fn keys_come_when_they_are_due() {
    let missing = |key| ChapFault::Missing { key };
    let not_due = |key| ChapFault::NotDue { key };
    let first: [(&[(&str, &str)], ChapFault); 4] = [
        (&[], missing("CHAP_A")),
        (&[("CHAP_N", "alice"), ("CHAP_R", ALICE_MD5)], missing("CHAP_A")),
        (&[("CHAP_A", "5"), ("CHAP_N", "alice")], not_due("CHAP_N")),
        (&[("CHAP_A", "5"), ("CHAP_I", "1"), ("CHAP_C", "0x01")], not_due("CHAP_I")),
    ];
    for (keys, fault) in first {
        assert_eq!(step(&mut Chap::new(challenge()), keys, Some(0)), Err(fault), "{keys:?}");
    }

    let illegal = |key| ChapFault::IllegalValue { key };
    let long = "n".repeat(256);
    let vast = format!("0x{}", "00".repeat(1025));
    let (name, response) = (("CHAP_N", "alice"), ("CHAP_R", ALICE_MD5));
    let (number, question) = (("CHAP_I", "1"), ("CHAP_C", "0x01"));
    let second: [(&[(&str, &str)], ChapFault); 14] = [
        (&[], missing("CHAP_N")),
        (&[("CHAP_A", "5")], not_due("CHAP_A")),
        (&[name], missing("CHAP_R")),
        (&[response], missing("CHAP_N")),
        (&[name, response, number], missing("CHAP_C")),
        (&[name, response, question], missing("CHAP_I")),
        (&[("CHAP_N", ""), response], illegal("CHAP_N")),
        (&[("CHAP_N", &long), response], illegal("CHAP_N")),
        (&[name, ("CHAP_R", "12")], illegal("CHAP_R")),
        (&[name, ("CHAP_R", &vast)], illegal("CHAP_R")),
        (&[name, response, ("CHAP_I", "256"), question], illegal("CHAP_I")),
        (&[name, response, ("CHAP_I", "x"), question], illegal("CHAP_I")),
        (&[name, response, number, ("CHAP_C", "0x")], illegal("CHAP_C")),
        (&[name, response, number, ("CHAP_C", &vast)], illegal("CHAP_C")),
    ];
    for (keys, fault) in second {
        assert_eq!(step(&mut challenged("5"), keys, Some(0)), Err(fault), "{keys:?}");
    }
}
