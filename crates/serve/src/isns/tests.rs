//! Lines of the log, addresses, and the thread against servers that do not answer.

use super::caller::{Caller, Then};
use super::keeper::give_up;
use super::lines::{Line, Lines};
use super::portals::usable;
use super::{Isns, ServerState};
use crate::clock::Clock;
use crate::config;
use crate::testing::config;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use weir_wire::isns::{Failure, Object, Own, Phase, Status, View};

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn view(phase: Phase, failure: Option<(u64, &str)>) -> View {
    let failure = failure.map(|(at, why)| (Duration::from_secs(at), Failure::Connect(why.into())));
    View {
        phase,
        since: Duration::ZERO,
        answered: None,
        failure,
        failures: 0,
        portals: vec![address("192.0.2.1:3260")],
        targets: 2,
        refused: 0,
        next: None,
    }
}

/// A failure is written once, another one as well; what lasts is written each ten minutes with how often it was repeated;
/// success is written once.
#[test]
fn failures_are_summed() {
    let mut lines = Lines::default();
    let mut at = |second: u64, view: &View| lines.of(Duration::from_secs(second), view);
    let failed = |problem: &str, repeated| {
        let problem = format!("cannot connect: {problem}");
        vec![Line::Failed { problem, refused: 0, repeated }]
    };
    assert_eq!(at(1, &view(Phase::Waiting, Some((1, "refused")))), failed("refused", 0));
    for second in 2..600 {
        assert_eq!(at(second, &view(Phase::Waiting, Some((second, "refused")))), []);
        assert_eq!(at(second, &view(Phase::Connecting, Some((second, "refused")))), []);
    }
    assert_eq!(at(601, &view(Phase::Waiting, Some((601, "refused")))), failed("refused", 598));
    assert_eq!(at(602, &view(Phase::Waiting, Some((602, "no route")))), failed("no route", 0));
    let registered = |again| vec![Line::Registered { portals: 1, targets: 2, again }];
    assert_eq!(at(603, &view(Phase::Registered, Some((602, "no route")))), registered(false));
    assert_eq!(at(604, &view(Phase::Registered, Some((602, "no route")))), []);
    // A server that loses each registration at once does not fill the log.
    for second in 605..1202 {
        assert_eq!(at(second, &view(Phase::Waiting, Some((second, "no route")))), []);
        assert_eq!(at(second, &view(Phase::Registered, Some((second, "no route")))), []);
    }
    assert_eq!(at(1202, &view(Phase::Waiting, Some((1202, "no route")))), failed("no route", 597));
    assert_eq!(at(1203, &view(Phase::Registered, Some((1202, "no route")))), registered(true));
    assert_eq!(at(1204, &view(Phase::Left, Some((1202, "no route")))), [Line::Left]);
    assert_eq!(at(1205, &view(Phase::Left, Some((1202, "no route")))), []);
}

/// All objects that a server does not take are one line with their number, written when all have been found.
#[test]
fn refused_objects_are_one_line() {
    let mut lines = Lines::default();
    let refusing = |phase, at: u64, refused| {
        let object = Object::Node { name: format!("iqn.{at}"), alias: None, target: true };
        let failure = Failure::NotTaken(object, Status(3));
        let failure = Some((Duration::from_secs(at), failure));
        View { failure, refused, ..view(phase, None) }
    };
    let mut at = |view: &View| {
        let (now, _) = view.failure.as_ref().expect("a failure");
        lines.of(*now, view)
    };
    for second in 0..1000 {
        assert_eq!(at(&refusing(Phase::Registering, second, second as usize + 1)), []);
    }
    let found = at(&refusing(Phase::Registered, 1000, 1000));
    let number = |line: &Line| matches!(line, Line::Failed { refused: 1000, repeated: 0, problem } if problem.contains("iqn.1000"));
    assert!(found.len() == 2 && number(&found[0]), "{found:?}");
    for second in 1001..1600 {
        assert_eq!(at(&refusing(Phase::Registered, second, 1000)), []);
    }
    assert!(matches!(
        at(&refusing(Phase::Registered, 1600, 1000))[..],
        [Line::Failed { repeated: 599, .. }, _]
    ));
}

/// A server that sends without pause does not keep the thread: what it says is summed, and the rest is read later.
#[test]
fn a_caller_without_pause_has_its_turn() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address");
    let mut server = TcpStream::connect(to).expect("a connection");
    let (stream, from) = listener.accept().expect("a connection");
    stream.set_nonblocking(true).expect("a socket");
    // An inquiry about nothing is not answered.
    let inquiry = [0, 1, 0, 0x0d, 0, 0, 0x0c, 0, 0, 1, 0, 0];
    let flood =
        std::thread::spawn(move || while server.write_all(&inquiry.repeat(5_000)).is_ok() {});
    let mut caller =
        Caller::new(mio::net::TcpStream::from_std(stream), (from.ip(), to.ip()), Duration::ZERO);
    loop {
        let heard = caller.drive(Duration::ZERO, &Own::default());
        match heard.then {
            Then::Read => break assert_eq!(heard.notices().count(), 0),
            Then::Wait => std::thread::yield_now(),
            Then::Close => panic!("the connection is open"),
        }
    }
    drop(caller);
    flood.join().expect("the server ends with its connection");
}

/// A thread that ends early leaves no registration behind that looks alive.
#[test]
fn a_thread_that_gives_up_is_not_registered() {
    let mut state =
        ServerState { address: address("192.0.2.5:3205"), view: view(Phase::Registered, None) };
    give_up(&mut state, Duration::from_secs(7), &std::io::Error::other("no descriptors"));
    assert_eq!((state.view.phase, state.view.next), (Phase::Waiting, None));
    let (at, why) = state.view.failure.expect("a reason");
    assert_eq!(at, Duration::from_secs(7));
    assert_eq!(why.to_string(), "cannot connect: cannot wait for events: no descriptors");
}

/// Wildcards stand for the address by which the server is reached; loopback addresses are for servers of this machine.
#[test]
fn portals_are_those_that_hosts_can_use() {
    let listening = ["0.0.0.0:3260", "127.0.0.1:3261", "192.0.2.9:3262"].map(address);
    let usable = |local: &str| usable(address(local).ip(), &listening);
    assert_eq!(usable("192.0.2.1:1"), ["192.0.2.1:3260", "192.0.2.9:3262"].map(address));
    let here = ["127.0.0.1:3260", "127.0.0.1:3261", "192.0.2.9:3262"].map(address);
    assert_eq!(usable("127.0.0.1:1"), here);
    assert_eq!(usable("[2001:db8::1]:1"), [address("192.0.2.9:3262")]);
}

/// The thread is started, changed and ended beside one server that accepts and says nothing, and one that is not there:
/// a failure is known, and a server that is taken away is left. Neither is waited for, but for the time that leaving
/// takes at most.
#[test]
fn silent_servers_are_not_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let absent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let servers = [&silent, &absent].map(|one| one.local_addr().expect("an address")).to_vec();
    drop(absent);
    let mut config = config(Vec::new());
    config.isns = Some(config::Isns { servers, entity: "e".into(), ..config::Isns::default() });
    let name = String::from("iqn.2026-11.org.example:g1");
    let listening = vec![address("127.0.0.1:3260")];
    let isns = Isns::start(&config, listening, name, Clock::start()).expect("a thread");
    let isns = isns.expect("there are servers");
    let (_connection, _) = silent.accept().expect("the gateway connects");
    let refused =
        |state: &ServerState| matches!(state.view.failure, Some((_, Failure::Connect(_))));
    while !isns.states().iter().any(refused) {
        std::thread::yield_now();
    }
    config.targets.clear();
    isns.change(&config);
    if let Some(isns) = &mut config.isns {
        isns.servers.pop();
    }
    isns.change(&config);
    while isns.states().len() > 1 {
        std::thread::yield_now();
    }
    isns.leave();
    drop(isns);
}
