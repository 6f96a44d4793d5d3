//! Many who knock: those who mean it get in, those who guess wait.

use crate::gateway::chap::Proof;
use crate::gateway::control::controlled;
use crate::gateway::initiator::{Login, connect, until_closed};
use crate::gateway::pdu::Pdu;
use crate::gateway::{Gateway, ONE_DISK, eventually, folder};
use serde_json::{Value, json};

/// `ONE_DISK` for the account `alice`.
fn with_account() -> String {
    let account = "[[account]]\nname = \"alice\"\nsecret = \"alice has a secret\"\n";
    format!("{account}{ONE_DISK}accounts = [\"alice\"]\n")
}

/// The latest entry of `weir status` about hosts that were turned away from this machine, and all of the text.
fn turned_away(gateway: &Gateway) -> (Value, String) {
    let latest = gateway.asked(&["status"])["status"]["turned_away"][0].take();
    assert_eq!(latest["source"], "127.0.0.1");
    (latest, String::from_utf8(gateway.command(&["status"]).stdout).unwrap())
}

const CONTROL: &str = "[control]\nsocket = \"c.sock\"\n";

const ALICE: Proof = Proof::of("alice", "alice has a secret");
const WRONG: Proof = Proof::of("alice", "a guess, no secret");

/// Three hundred connections that say nothing keep no host from logging in and working; the oldest
/// of them make room, the youngest may still log in.
#[test]
fn silence_keeps_nobody_out() {
    let gateway = Gateway::start_with_log(&folder("silence"), ONE_DISK, &[], "debug");
    let witness = gateway.witness();
    let mut silent: Vec<_> = (0..300).map(|_| connect(gateway.portal)).collect();
    let mut session = gateway.session("host");
    session.write(0, &[1; 4096]);
    // 256 may wait; the host was one of them.
    for socket in &mut silent[..44] {
        assert!(until_closed(socket).is_empty());
        gateway.logged(&[&socket.local_addr().unwrap().to_string(), "others wait to log in"]);
    }
    let youngest = silent.pop().unwrap();
    Login::of("late").request().send(&youngest, false).unwrap();
    let answer = Pdu::receive(&youngest, false).unwrap();
    assert_eq!(answer.field(36), 0, "it was only slow");
    drop((silent, session));
    gateway.stop_after(witness);
}

/// No more connections than the limit has are open at a time; sessions that are there stay, a host that comes gets
/// the status "out of resources" and stands in `weir status`, and when a session has left there is room again.
#[test]
fn connections_are_limited() {
    let config = controlled("[iscsi]\nmax_connections = 3\n");
    let mut gateway = Gateway::start(&folder("limit"), &config, &[]);
    let mut hosts: Vec<_> = ["one", "two", "three"].map(|host| gateway.session(host)).into();
    for _ in 0..2 {
        let mut socket = connect(gateway.portal);
        Login::of("four").request().send(&socket, false).unwrap();
        let answer = Pdu::receive(&socket, false).unwrap();
        assert_eq!(answer.field(36) >> 16, 0x0302);
        assert!(until_closed(&mut socket).is_empty());
    }
    gateway.logged(&["connection refused", "limit of 3 connections"]);
    let (away, text) = turned_away(&gateway);
    assert_eq!(away["initiator"], "iqn.2026-11.org.example.host:four");
    assert_eq!(
        (&away["why"], &away["count"]),
        (&json!("the limit of connections is reached"), &json!(2))
    );
    assert!(text.contains("Turned away in the last hour") && text.contains("host:four"), "{text}");
    hosts.iter_mut().for_each(crate::gateway::initiator::Session::ping);
    hosts.pop().unwrap().logout();
    gateway.session("four").ping();
    gateway.stop();
}

/// Wrong secrets are forgiven five times; after more of them logins with that account from that address get the status
/// "service unavailable", even with the right secret. Hosts that have logged in before and hosts with other accounts
/// are not concerned.
#[test]
fn guessing_is_slowed_down() {
    let mut gateway =
        Gateway::start(&folder("guessing"), &format!("{CONTROL}{}", with_account()), &[]);
    let mut session = ALICE.connect(&Login::of("host"), gateway.portal).unwrap().ready();
    let known = Login::of("known");
    ALICE.connect(&known, gateway.portal).unwrap().logout();
    let guesser = Login::of("guesser");
    let statuses: Vec<u16> =
        (0..14).map(|_| WRONG.connect(&guesser, gateway.portal).unwrap_err()).collect();
    assert_eq!(statuses[..6], [0x0201; 6]);
    // The time of a guess doubles, so some of the others come too early on any machine.
    assert!(statuses[6..].contains(&0x0301), "{statuses:x?}");
    gateway.logged(&["too many failed logins: more from there are refused", "alice", "127.0.0.1"]);
    gateway.logged(&["login refused", "ServiceUnavailable", "too many failed logins; again in"]);
    let (all, _) = turned_away(&gateway);
    assert!(
        ["too many failed logins", "authentication failure"].iter().any(|why| all["why"] == *why)
    );
    assert_eq!(all["initiator"], "iqn.2026-11.org.example.host:guesser");
    for _ in 0..3 {
        ALICE.connect(&known, gateway.portal).unwrap().logout();
    }
    session.write(0, &[1; 512]);
    gateway.stop();
}

/// A gateway that demands SHA-256 refuses a host that offers only MD5.
#[test]
fn a_strong_algorithm_is_demanded() {
    let config = format!("[iscsi]\nchap_algorithm_min = \"sha-256\"\n{}", with_account());
    let mut gateway = Gateway::start(&folder("sha256"), &config, &[]);
    assert_eq!(ALICE.connect(&Login::of("host"), gateway.portal).unwrap_err(), 0x0201);
    gateway.logged(&["login refused", "no algorithm that is accepted here: SHA-256"]);
    gateway.stop();
}

/// After one failure too many the address is let in again when its second is over.
#[test]
fn a_guesser_is_let_in_again() {
    let mut gateway = Gateway::start(&folder("again"), &with_account(), &[]);
    let login = Login::of("host");
    for _ in 0..6 {
        assert_eq!(WRONG.connect(&login, gateway.portal).unwrap_err(), 0x0201);
    }
    let session = eventually("login", || {
        let socket = connect(gateway.portal);
        let answer = ALICE.speak(&login, &socket).ok()?.ok()?;
        Some(login.begin(socket, &answer))
    });
    session.ready().ping();
    gateway.stop();
}
