//! Lines of the log, addresses, and the thread against servers that do not answer.

use super::lines::{Line, Lines};
use super::portals::usable;
use super::{Isns, ServerState};
use crate::clock::Clock;
use crate::config;
use crate::testing::config;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use weir_wire::isns::{Failure, Phase, View};

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
        vec![Line::Failed { problem, repeated }]
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
    assert_eq!(at(605, &view(Phase::Waiting, Some((605, "no route")))), failed("no route", 0));
    assert_eq!(at(606, &view(Phase::Registered, Some((605, "no route")))), registered(true));
    assert_eq!(at(607, &view(Phase::Left, Some((605, "no route")))), [Line::Left]);
    assert_eq!(at(608, &view(Phase::Left, Some((605, "no route")))), []);
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
