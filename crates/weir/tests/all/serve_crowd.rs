//! Many who knock: those who mean it get in, those who guess wait.

use crate::gateway::chap::Proof;
use crate::gateway::initiator::{Login, connect, until_closed};
use crate::gateway::{Gateway, ONE_DISK, eventually, folder};

/// `ONE_DISK` for the account `alice`.
fn with_account() -> String {
    let account = "[[account]]\nname = \"alice\"\nsecret = \"alice has a secret\"\n";
    format!("{account}{ONE_DISK}accounts = [\"alice\"]\n")
}

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
    let answer = crate::gateway::pdu::Pdu::receive(&youngest, false).unwrap();
    assert_eq!(answer.field(36), 0, "it was only slow");
    drop((silent, session));
    gateway.stop_after(witness);
}

/// No more connections than the limit has are open at a time; sessions that are there stay, and who
/// comes when one of them has left gets in.
#[test]
fn connections_are_limited() {
    let config = format!("[iscsi]\nmax_connections = 3\n{ONE_DISK}");
    let mut gateway = Gateway::start(&folder("limit"), &config, &[]);
    let mut hosts: Vec<_> = ["one", "two", "three"].map(|host| gateway.session(host)).into();
    assert!(until_closed(&mut connect(gateway.portal)).is_empty());
    gateway.logged(&["connection refused", "limit of 3 connections"]);
    hosts.iter_mut().for_each(crate::gateway::initiator::Session::ping);
    hosts.pop().unwrap().logout();
    gateway.session("four").ping();
    gateway.stop();
}

/// Five wrong secrets are forgiven; after more of them connections from that address are closed at
/// once, for a time that doubles, even with the right secret. Sessions that are there continue, and
/// the log says what is going on.
#[test]
fn guessing_is_slowed_down() {
    let mut gateway = Gateway::start(&folder("guessing"), &with_account(), &[]);
    let login = Login::of("host");
    let mut session = ALICE.connect(&login, gateway.portal).unwrap().ready();
    // Connections that are open already may still guess, so that the time runs up.
    let open: Vec<_> = (0..12).map(|_| connect(gateway.portal)).collect();
    for socket in &open[..5] {
        assert_eq!(WRONG.speak(&login, socket).unwrap().unwrap_err(), 0x0201);
    }
    let other = Login::of("other");
    ALICE.connect(&other, gateway.portal).unwrap().logout();
    for socket in &open[5..] {
        assert_eq!(WRONG.speak(&login, socket).unwrap().unwrap_err(), 0x0201);
    }
    gateway.logged(&[
        "too many failed logins: connections from there are refused for a while",
        "127.0.0.1",
        "wait=1.000 s",
    ]);
    gateway.logged(&[
        "too many failed logins: connections from there are refused for a while",
        "127.0.0.1",
        "wait=60.000 s",
    ]);
    let mut refused = connect(gateway.portal);
    assert!(until_closed(&mut refused).is_empty());
    gateway.logged(&["connection refused", "too many failed logins"]);
    session.write(0, &[1; 512]);
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
