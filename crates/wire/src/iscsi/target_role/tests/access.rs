//! Who may log in to what: accounts, admitted initiators, targets that moved or went away.

use super::harness::{CHALLENGE, INITIATOR, Peer, TARGET};
use crate::iscsi::binary;
use crate::iscsi::target_role::{
    Account, Authentication, ChapAlgorithm, ChapFault, Event, Initiators, Limits, LoginFault,
    LoginStatus, Node, Redirect, Secret, TargetEntry,
};

/// MD5 and SHA-256 of 0x40, `alice's secret` and the bytes 0x40 to 0x5f.
const ALICE_MD5: &str = "CHAP_R=0xc064ebe6774120ff5f228563da7280c2";
const ALICE_SHA256: &str =
    "CHAP_R=0x4a48494b9a34bf1556975a2dd28e217500d565d98f7415a1dbc7187296c33005";

/// The target asks alice for proof and can prove itself as the gateway; discovery asks bob.
fn guarded() -> Node {
    let account = |name: &str, secret: &str| Account {
        name: name.to_owned(),
        secret: Secret::new(secret).unwrap(),
    };
    let mut node = super::harness::node();
    node.accounts = vec![
        account("gateway", "gateway secret"),
        account("alice", "alice's secret"),
        account("bob", "another secret"),
    ];
    node.targets[0].authentication = Authentication { accounts: vec![1], mutual: Some(0) };
    node.discovery = Authentication { accounts: vec![2], mutual: None };
    node
}

fn names() -> [String; 2] {
    [format!("InitiatorName={INITIATOR}"), format!("TargetName={TARGET}")]
}

fn refusal(event: Option<Event<'_>>) -> (LoginStatus, LoginFault) {
    match event {
        Some(Event::LoginFailed { status, reason }) => {
            assert_eq!(status, reason.status());
            (status, reason)
        }
        other => panic!("login failed to fail: {other:?}"),
    }
}

fn fails(node: Node, flags: u8, keys: &[&str]) -> (LoginStatus, LoginFault) {
    let mut peer = Peer::of_node(Limits::default(), node);
    let failure = refusal(peer.login(flags, keys));
    assert_eq!(peer.answer().status_class_detail(), failure.0 as u16);
    assert!(peer.connection.is_finished());
    failure
}

/// A peer that has been challenged.
fn challenged(algorithms: &str) -> Peer {
    let mut peer = Peer::of_node(Limits::default(), guarded());
    let [initiator, target] = names();
    // T is asked for and not given: the authentication is not over.
    assert!(peer.login(0x81, &[&initiator, &target, "AuthMethod=KRB5,CHAP,None"]).is_none());
    let answer = peer.answer();
    assert_eq!((answer.header.flags, answer.status_class_detail()), (0x00, 0));
    assert_eq!(answer.text(), ["AuthMethod=CHAP", "TargetPortalGroupTag=1"]);
    assert!(peer.login(0x81, &[&format!("CHAP_A={algorithms}")]).is_none());
    let answer = peer.answer();
    assert_eq!(answer.header.flags, 0x00);
    let (bytes, first) = (answer.text()[2].strip_prefix("CHAP_C=0x").unwrap(), &answer.text()[1]);
    assert_eq!((bytes.len(), *first), (64, &*format!("CHAP_I={}", CHALLENGE[0])));
    peer
}

/// The whole handshake, into either stage behind it, with proof in both directions.
#[test]
fn proof_opens_the_target() {
    for (algorithms, response, proof) in [
        ("7,5", ALICE_SHA256, "511a4a0c3767ed26dc4031855aca6c9460574704f363d7d560a13e9ca0fa532c"),
        ("5", ALICE_MD5, "bb98c8fb2fe430f669d609f4f034974b"),
    ] {
        let mut peer = challenged(algorithms);
        let keys = ["CHAP_N=alice", response, "CHAP_I=200", "CHAP_C=0x010203"];
        assert!(peer.login(0x81, &keys).is_none());
        let answer = peer.answer();
        assert_eq!(answer.header.flags, 0x81, "now T is given");
        assert_eq!(answer.text(), ["CHAP_N=gateway", &format!("CHAP_R=0x{proof}")]);
        let event = peer.login(0x87, &["HeaderDigest=None"]);
        let Some(Event::SessionRequested { account, .. }) = event else { panic!("{event:?}") };
        assert_eq!(account.as_deref(), Some("alice"));
    }
    let event = challenged("5").login(0x83, &["CHAP_N=alice", ALICE_MD5]);
    assert!(matches!(event, Some(Event::SessionRequested { account: Some(_), .. })), "{event:?}");

    let mut discovery = Peer::of_node(Limits::default(), guarded());
    let [initiator, _] = names();
    discovery.login(0x00, &[&initiator, "SessionType=Discovery", "AuthMethod=CHAP"]);
    discovery.login(0x00, &["CHAP_A=5"]);
    let bob = "CHAP_R=0xfe68972d2285fe121ec0d5a312fe4a65";
    let event = discovery.login(0x83, &["CHAP_N=bob", bob]);
    assert!(matches!(event, Some(Event::SessionRequested { account: Some(_), target: None, .. })));
}

/// Credentials wait for the shell, which may refuse them unchecked: a right response opens nothing then, and nothing
/// more is received.
#[test]
fn credentials_wait_for_the_shell() {
    let mut peer = challenged("5");
    let event = peer.offer(0x83, &["CHAP_N=alice", ALICE_MD5]);
    let Some(Event::CredentialsOffered { initiator, account }) = event else { panic!("{event:?}") };
    assert_eq!((&*initiator, &*account), (INITIATOR, "alice"));
    assert!(peer.connection.receive(&[0; 48]).is_ok_and(|step| step.consumed == 0));
    // An admission without a session request is none.
    peer.connection.session_admitted(9);
    assert!(!peer.connection.is_full_feature());
    peer.connection.login_refused(LoginStatus::ServiceUnavailable);
    assert_eq!(peer.answer().status_class_detail(), 0x0301);
    assert!(peer.connection.is_finished() && peer.connection.check_credentials().is_none());
}

/// A target that demands SHA-256 refuses initiators that offer only MD5, and takes SHA-256 from the others.
#[test]
fn a_strong_algorithm_can_be_demanded() {
    for (offered, accepted) in [("5", false), ("5,6,8", false), ("5,7", true), ("7", true)] {
        let limits = Limits { chap_algorithm_min: ChapAlgorithm::Sha256, ..Limits::default() };
        let mut peer = Peer::of_node(limits, guarded());
        let [initiator, target] = names();
        peer.login(0x00, &[&initiator, &target, "AuthMethod=CHAP"]);
        peer.answer();
        let event = peer.login(0x00, &[&format!("CHAP_A={offered}")]);
        if accepted {
            assert!(event.is_none());
            assert_eq!(peer.answer().text()[0], "CHAP_A=7");
        } else {
            let Some(Event::LoginFailed { status, reason }) = event else { panic!("{event:?}") };
            assert_eq!(status, LoginStatus::AuthenticationFailure);
            assert!(reason.to_string().ends_with("accepted here: SHA-256 (7)"), "{reason}");
        }
    }
}

/// A host that is turned away gets the status of the shell at its next request, whatever that is, and the shell
/// learns its name.
#[test]
fn a_host_can_be_turned_away() {
    let mut peer = Peer::of_node(Limits::default(), guarded());
    peer.connection.refuse_logins(LoginStatus::OutOfResources);
    let [initiator, target] = names();
    let event = peer.login(0x00, &[&initiator, &target, "AuthMethod=CHAP"]);
    assert!(
        matches!(event, Some(Event::LoginFailed { status: LoginStatus::OutOfResources, .. })),
        "{event:?}"
    );
    assert_eq!(peer.answer().status_class_detail(), 0x0302);
    assert_eq!(peer.connection.initiator(), INITIATOR);
    assert!(peer.connection.is_finished());

    let mut peer = challenged("5");
    peer.connection.refuse_logins(LoginStatus::ServiceUnavailable);
    let event = peer.offer(0x83, &["CHAP_N=alice", ALICE_MD5]);
    assert!(matches!(event, Some(Event::LoginFailed { .. })), "{event:?}");
    assert_eq!(peer.answer().status_class_detail(), 0x0301);
}

/// Wrong and unknown are the same to the initiator, and tell the operator which.
#[test]
fn wrong_proof_is_refused() {
    let alice = "CHAP: wrong response for account `alice`";
    let bob = "CHAP: account `bob` may not log in here";
    for (keys, status, words) in [
        (&["CHAP_N=alice", "CHAP_R=0x00"][..], LoginStatus::AuthenticationFailure, alice),
        (&["CHAP_N=bob", ALICE_MD5], LoginStatus::AuthenticationFailure, bob),
        (&["CHAP_N=alice"], LoginStatus::MissingParameter, "CHAP: CHAP_R is missing"),
        (
            &["CHAP_N=alice", "CHAP_R=zz"],
            LoginStatus::InitiatorError,
            "CHAP: CHAP_R has an illegal value",
        ),
        (
            &["CHAP_A=5"],
            LoginStatus::InitiatorError,
            "key CHAP_A came twice (RFC 7143 section 6.2)",
        ),
        (
            &["CHAP_N=alice", ALICE_MD5, "CHAP_N=alice"],
            LoginStatus::InitiatorError,
            "key CHAP_N came twice (RFC 7143 section 6.2)",
        ),
        (&[], LoginStatus::AuthenticationFailure, "the initiator left out the authentication"),
    ] {
        let (told, reason) = refusal(challenged("5").login(0x81, keys));
        assert_eq!((told, &*reason.to_string()), (status, words), "{keys:?}");
    }
    let back = format!("CHAP_C={}", binary::encode(&CHALLENGE));
    let event = challenged("5").login(0x81, &["CHAP_N=alice", ALICE_MD5, "CHAP_I=1", &back]);
    let reflected = LoginFault::Chap(ChapFault::Reflected);
    assert_eq!(refusal(event), (LoginStatus::AuthenticationFailure, reflected));
}

/// Without the authentication that is demanded there is no way past the security stage.
#[test]
fn authentication_cannot_be_left_out() {
    let [initiator, target] = names();
    let no_method = LoginFault::NoMethod { needed: "CHAP" };
    for (flags, method, fault) in [
        (0x81, "AuthMethod=None", no_method.clone()),
        (0x81, "AuthMethod=SRP,KRB5", no_method),
        (0x81, "X-com.example=1", LoginFault::NotAuthenticated),
        (0x83, "X-com.example=1", LoginFault::NotAuthenticated),
        (0x87, "HeaderDigest=None", LoginFault::NotAuthenticated),
        (0x04, "HeaderDigest=None", LoginFault::NotAuthenticated),
    ] {
        let (status, reason) = fails(guarded(), flags, &[&initiator, &target, method]);
        assert_eq!((status, reason), (LoginStatus::AuthenticationFailure, fault), "{method}");
    }
    // A text that only agrees on the method must not carry the keys of the method.
    let early = [&*initiator, &target, "AuthMethod=CHAP", "CHAP_A=5"];
    let fault = LoginFault::Chap(ChapFault::NotDue { key: "CHAP_A" });
    assert_eq!(fails(guarded(), 0x00, &early), (LoginStatus::InitiatorError, fault));
    // Nor may they come unasked.
    let keys = [&*initiator, &target, "AuthMethod=None", "CHAP_N=alice", ALICE_MD5];
    let fault = LoginFault::Chap(ChapFault::NotDue { key: "CHAP_N" });
    assert_eq!(fails(super::harness::node(), 0x81, &keys), (LoginStatus::InitiatorError, fault));
    // The other target and its accounts are its own.
    let mut peer = Peer::of_node(Limits::default(), guarded());
    let other = "TargetName=iqn.2026-01.test.weir:other";
    let event = peer.login(0x83, &[&initiator, other, "AuthMethod=CHAP,None"]);
    assert!(matches!(event, Some(Event::SessionRequested { account: None, .. })), "{event:?}");
}

/// An initiator that is not admitted finds nothing; a target that is gone or elsewhere says so.
#[test]
fn targets_choose_their_initiators() {
    let entry = |change: fn(&mut TargetEntry)| {
        let mut node = super::harness::node();
        change(&mut node.targets[0]);
        node
    };
    let [initiator, target] = names();
    let keys = [&*initiator, &target];
    let strangers = entry(|one| one.initiators = Initiators::new(["iqn.other:*".to_owned()]));
    let (status, reason) = fails(strangers.clone(), 0x87, &keys);
    assert_eq!(status, LoginStatus::NotFound);
    assert_eq!(reason.to_string(), format!("target `{TARGET}` does not admit this initiator"));
    let friends = entry(|one| one.initiators = Initiators::new(["iqn.2026-01.*".to_owned()]));
    Peer::of_node(Limits::default(), friends).log_in(&[]);

    let others = || Initiators::new(["iqn.other:*".to_owned()]);
    let mut masked = entry(|_| ());
    masked.targets[0].units = vec![others(), others()];
    assert_eq!(fails(masked.clone(), 0x87, &keys).0, LoginStatus::NotFound, "it would see nothing");
    masked.targets[0].units.push(Initiators::default());
    Peer::of_node(Limits::default(), masked).log_in(&[]);

    let mut removed = entry(|one| one.removed = true);
    assert_eq!(fails(removed.clone(), 0x87, &keys).0, LoginStatus::TargetRemoved);
    // One of the same name may take its place.
    removed.targets[1].iqn = TARGET.to_owned();
    Peer::of_node(Limits::default(), removed).log_in(&[]);

    let mut both = strangers;
    both.targets[0].removed = true;
    assert_eq!(fails(both, 0x87, &keys).0, LoginStatus::NotFound, "not even that it was there");
}

/// A redirection tells the address, without a portal group tag, before anything is proven.
#[test]
fn a_target_may_be_elsewhere() {
    for (permanent, code) in [(false, 0x0101), (true, 0x0102)] {
        let mut node = guarded();
        let portal = "[fd00::2]:3260".to_owned();
        node.targets[0].redirect = Some(Redirect { portal, permanent });
        let mut peer = Peer::of_node(Limits::default(), node);
        let [initiator, target] = names();
        let event = peer.login(0x81, &[&initiator, &target, "AuthMethod=CHAP"]);
        let (_, reason) = refusal(event);
        assert_eq!(reason.to_string(), format!("target `{TARGET}` is served at [fd00::2]:3260"));
        let answer = peer.answer();
        assert_eq!((answer.status_class_detail(), answer.header.flags), (code, 0x00));
        assert_eq!(answer.text(), ["TargetAddress=[fd00::2]:3260"]);
    }
}

/// What peers send reaches the log escaped.
#[test]
fn words_for_the_log_are_escaped() {
    let [initiator, _] = names();
    let (_, reason) =
        fails(super::harness::node(), 0x87, &[&initiator, "TargetName=iqn.x\n\u{1b}[31m"]);
    assert_eq!(reason.to_string(), "no such target `iqn.x\\n\\u{1b}[31m`");
}

/// An alias is sent at the login.
#[test]
fn a_target_may_have_an_alias() {
    let mut node = super::harness::node();
    node.targets[0].alias = Some("the disk".to_owned());
    let answers = Peer::of_node(Limits::default(), node).log_in(&[]);
    assert_eq!(answers[0].text()[..2], ["TargetPortalGroupTag=1", "TargetAlias=the disk"]);
}
