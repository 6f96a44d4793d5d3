//! A client against a modelled server.

mod callbacks;
mod server;
mod trouble;

use crate::isns::attribute::{self, Writer};
use crate::isns::codes::{Function, Status, tag};
use crate::isns::message::HEADER_LENGTH;
use crate::isns::objects::PORTAL;
use crate::isns::{Client, Failure, Notice, Objects, Phase, Settings, Target};
use server::{Request, Server};
use std::net::SocketAddr;
use std::time::Duration;

const SOURCE: &str = "iqn.2026-11.org.example:g1";
const ENTITY: &str = "site.example";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn portal(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn target(name: &str) -> Target {
    Target { name: format!("iqn.2026-11.org.example:{name}"), alias: None }
}

fn objects(portals: &[&str], targets: &[&str]) -> Objects {
    Objects {
        portals: portals.iter().map(|text| portal(text)).collect(),
        targets: targets.iter().map(|name| target(name)).collect(),
        callback: 4_000,
    }
}

fn settings() -> Settings {
    let (source, alias, entity) = (SOURCE.into(), "weir g1".into(), ENTITY.into());
    Settings { source, alias, entity, period: 600, inquiries: 60, seed: 7 }
}

/// Appends a portal as servers show it.
fn show(writer: &mut Writer, portal: SocketAddr, callback: u32) {
    writer.portal(PORTAL, portal);
    writer.number(tag::EVENT_PORT, callback);
}

const REGISTRATION: [Function; 3] =
    [Function::REGISTER, Function::REGISTER_EVENTS, Function::QUERY];

/// A registration has source, key, delimiter and objects in the order that servers ask for, never the replace flag, and
/// its bytes are those of RFC 4171.
#[test]
fn registrations_are_as_in_the_rfc() {
    let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
    let bytes = server.client.output().to_vec();
    assert_eq!(bytes[..4], [0, 1, 0, 1], "version 1, DevAttrReg");
    assert_eq!(usize::from(u16::from_be_bytes([bytes[4], bytes[5]])), bytes.len() - HEADER_LENGTH);
    assert_eq!(
        bytes[6..12],
        [0x8c, 0, 0, 1, 0, 0],
        "first, last, client; transaction 1, sequence 0"
    );
    assert_eq!(bytes[12..20], [0, 0, 0, 0x20, 0, 0, 0, 0x1c], "26 bytes and a NUL in 28");
    assert_eq!(bytes[20..48], *b"iqn.2026-11.org.example:g1\0\0");
    assert_eq!(bytes[48..72], *b"\0\0\0\x01\0\0\0\x10site.example\0\0\0\0");
    assert_eq!(bytes[72..80], [0; 8], "the delimiter");
    server.good();
    let expected = [
        (1, ENTITY),
        (2, "2"),
        (6, "600"),
        (16, "192.0.2.1"),
        (17, "3260"),
        (19, "60"),
        (20, "4000"),
        (23, "4000"),
        (32, SOURCE),
        (33, "2"),
        (34, "weir g1"),
        (32, "iqn.2026-11.org.example:t1"),
        (33, "1"),
        (51, "1"),
        (49, "192.0.2.1"),
        (50, "3260"),
    ];
    let expected: Vec<_> = expected.map(|(tag, text)| (tag, text.to_owned())).into();
    assert_eq!(server.seen[0].operating(), expected);
    assert_eq!(server.seen[1].operating(), [(35, "156".to_owned())]);
    assert!(server.seen.iter().all(|request| request.flags == 0x8c00));
}

/// A portal of IPv4 is written as a mapped address, and one of IPv6 as it is.
#[test]
fn addresses_are_sixteen_bytes() {
    let mut writer = Writer::default();
    writer.portal(PORTAL, portal("192.0.2.1:1"));
    assert_eq!(writer.0[8..24], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
    writer.portal(PORTAL, portal("[2001:db8::1]:2"));
    let read = attribute::all(&writer.0).unwrap();
    let portals: Vec<_> = attribute::portals(&read).collect();
    assert_eq!(portals, [portal("192.0.2.1:1"), portal("[2001:db8::1]:2")]);
}

/// A client registers, registers for events, sees its portals, and checks them and a target each third of the period that
/// the server gives.
#[test]
fn a_registration_is_refreshed() {
    let mut server = Server::new(objects(&["192.0.2.1:3260", "192.0.2.2:3260"], &["t1", "t2"]));
    assert_eq!(server.phase(), Phase::Registering);
    assert_eq!(server.good(), [&REGISTRATION[..], &[Function::QUERY]].concat());
    let view = server.client.view();
    assert_eq!((view.phase, view.portals.len(), view.targets), (Phase::Registered, 2, 2));
    assert_eq!((view.failures, view.failure), (0, None));
    assert_eq!((server.portals.len(), server.groups.len()), (2, 4));
    for _ in 0..3 {
        assert_eq!(server.due(), seconds(100));
        assert_eq!(server.phase(), Phase::Registered, "a check is no doubt");
        assert_eq!(server.good(), [Function::QUERY; 3]);
    }
    assert_eq!(server.client.view().since, seconds(0));
}

/// A server that does not show the portal, shows it in another entity or with another port for callbacks, or does not
/// know the source, gets everything again at once, and later again after a wait.
#[test]
fn a_lost_registration_is_made_again() {
    let own = portal("192.0.2.1:3260");
    let hides: fn(&mut Server) = |server| (server.portals.clear(), server.forgets = true).1;
    for breaks in [hides, |server| server.entity = "other"] {
        let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
        server.good();
        breaks(&mut server);
        server.due();
        assert_eq!(server.good(), [&[Function::QUERY], &REGISTRATION[..]].concat());
        assert_eq!(server.phase(), Phase::Waiting);
        assert_eq!(server.client.view().failure.unwrap().1, Failure::NotShown);
        (server.entity, server.forgets) = (ENTITY, false);
        server.due();
        server.connect(objects(&["192.0.2.1:3260"], &["t1"]));
        assert_eq!(server.good(), REGISTRATION);
        assert_eq!((server.phase(), server.client.view().failures), (Phase::Registered, 0));
    }
    let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
    server.good();
    server.portals.insert(own, 4_001);
    server.due();
    let again = [&[Function::QUERY], &REGISTRATION[..]].concat();
    assert_eq!((server.good(), server.portals[&own]), (again, 4_000));
    for status in [Status::SOURCE_UNKNOWN, Status::SOURCE_ABSENT, Status::NO_SUCH_ENTRY] {
        let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
        server.good();
        server.due();
        let first = server.seen.len();
        let query = server.request().unwrap();
        server.answer(&query, status, Writer::default());
        assert_eq!(server.good(), REGISTRATION, "{status}");
        assert_eq!(server.seen[first].operating().len(), 16);
    }
}

/// After a lost connection a client checks, and registers nothing that the server still has. Servers end idle
/// connections: that is no failure, unless it happens again and again.
#[test]
fn a_lost_connection_is_no_lost_registration() {
    let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
    server.good();
    let checks = [Function::REGISTER_EVENTS, Function::QUERY, Function::QUERY];
    server.client.disconnected(server.now, None);
    assert_eq!((server.phase(), server.client.uses_connection()), (Phase::Waiting, false));
    assert_eq!((server.client.view().failure, server.due()), (None, seconds(0)));
    server.connect(objects(&["192.0.2.1:3260"], &["t1"]));
    assert_eq!(server.good(), checks);
    server.client.disconnected(server.now, None);
    assert_eq!(server.client.view().failure.unwrap().1, Failure::Closed(None), "again");
    assert!(server.due() >= Duration::from_millis(750), "the second time it waits");
    server.connect(objects(&["192.0.2.1:3260"], &["t1"]));
    assert_eq!(server.good(), checks);
    server.due();
    server.good();
    server.client.disconnected(server.now, Some("reset".to_owned()));
    assert_eq!(server.due(), seconds(0), "after a regular check it does not");
}

/// A server that does not answer, or that cannot be reached, is tried after 1, 2, 4 and so on to 60 s, a quarter more or
/// less; one request at a time waits for it.
#[test]
fn waits_grow() {
    for connects in [true, false] {
        let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
        let mut waits = Vec::new();
        for _ in 0..9 {
            if connects {
                assert!(!server.client.output().is_empty() && server.client.output().len() < 512);
                assert_eq!(server.due(), seconds(5));
                let view = server.client.view();
                assert_eq!(view.failure.unwrap().1, Failure::Silent(Function::REGISTER));
            } else {
                server.client.disconnected(server.now, Some("refused".to_owned()));
            }
            assert!(!server.client.uses_connection() && server.client.output().is_empty());
            waits.push(server.due());
            assert!(server.client.wants_connection(server.now));
            server.client.connecting(server.now);
            if connects {
                server.client.connected(server.now, objects(&["192.0.2.1:3260"], &["t1"]));
            }
        }
        for (wait, least) in waits.iter().zip([1, 2, 4, 8, 16, 32, 60, 60, 60]) {
            let (least, wait) = (f64::from(least), wait.as_secs_f64());
            assert!((0.75 * least..=1.25 * least).contains(&wait), "{waits:?}");
        }
        assert!(waits[6] != waits[7], "waits differ: {waits:?}");
    }
}

/// A connection that is not made in 5 s is given up.
#[test]
fn connecting_has_a_limit() {
    let mut client = Client::new(settings(), seconds(1));
    client.connecting(seconds(1));
    client.tick(seconds(5));
    assert!(client.uses_connection());
    client.tick(seconds(6));
    assert!(!client.uses_connection());
    assert_eq!(client.view().failure.unwrap().1.to_string(), "cannot connect: no answer in 5 s");
}

/// A change registers what came and deregisters what went, and no more; an alias that changes is registered, and the
/// target is not deregistered.
#[test]
fn a_change_is_minimal() {
    let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1", "t2"]));
    server.good();
    let first = server.seen.len();
    let mut changed = objects(&["192.0.2.1:3260"], &["t1", "t3"]);
    changed.targets[0].alias = Some("disks".to_owned());
    server.client.change(server.now, changed.clone());
    assert_eq!(server.good(), [Function::REGISTER, Function::DEREGISTER, Function::QUERY]);
    let [t1, t2, t3] = ["t1", "t2", "t3"].map(|name| target(name).name);
    let operating = |tags: &[(u32, &str)]| -> Vec<(u32, String)> {
        tags.iter().map(|&(tag, text)| (tag, text.to_owned())).collect()
    };
    let entity = [(1, ENTITY), (2, "2"), (6, "600")];
    let group = [(51, "1"), (49, "192.0.2.1"), (50, "3260")];
    let nodes = [(32, &*t1), (33, "1"), (34, "disks"), (32, &*t3), (33, "1")];
    let all = [&entity[..], &nodes, &group].concat();
    assert_eq!(server.seen[first].operating(), operating(&all));
    assert_eq!(server.seen[first + 1].operating(), operating(&[(32, &t2)]));
    let due = server.client.deadline();
    server.now += seconds(50);
    server.client.change(server.now, changed.clone());
    changed.targets.reverse();
    server.client.change(server.now, changed.clone());
    assert_eq!((server.good(), server.client.deadline()), (vec![], due), "no change");
    changed.targets[1].alias = None;
    server.client.change(server.now, changed.clone());
    server.good();
    let cleared = [&entity[..], &[(32, &t1), (33, "1"), (34, "")]].concat();
    let last = |server: &Server| server.seen.iter().rev().nth(1).unwrap().operating();
    assert_eq!(last(&server), operating(&cleared), "the alias is taken away");
    changed.portals.push(portal("192.0.2.9:3260"));
    server.client.change(server.now, changed);
    server.good();
    server.client.change(server.now, objects(&["192.0.2.1:3260"], &["t1", "t3"]));
    server.good();
    let last = server.seen.iter().rfind(|one| one.message.function == Function::DEREGISTER);
    let expected = operating(&[(16, "192.0.2.9"), (17, "3260")]);
    assert_eq!(last.unwrap().operating(), expected, "groups go with their portal");
    assert_eq!(server.client.view().portals, [portal("192.0.2.1:3260")]);
}

/// However many targets and portals there are, each request fits one PDU that servers take, and all are registered,
/// each object after those that it refers to.
#[test]
fn many_targets_are_cut_into_requests() {
    let names: Vec<_> = (0..300).map(|n| format!("{}{n:03}", "x".repeat(190))).collect();
    let names: Vec<_> = names.iter().map(|name| &**name).collect();
    let mut server = Server::new(objects(&["192.0.2.1:3260", "192.0.2.2:3260"], &names));
    server.good();
    let payload = |request: &Request| request.message.payload.len();
    assert!(server.seen.iter().all(|request| payload(request) <= 4_096));
    let view = server.client.view();
    assert_eq!((view.phase, view.targets), (Phase::Registered, 300));
    let tags: Vec<_> = server.seen.iter().flat_map(Request::operating).map(|one| one.0).collect();
    let count = |tag| tags.iter().filter(|one| **one == tag).count();
    assert_eq!((count(tag::NODE_TYPE), count(tag::GROUP_TAG)), (301, 600));
    assert_eq!((server.portals.len(), server.nodes.len(), server.groups.len()), (2, 301, 600));
}

/// A server without ESI gets a registration without, and one without SCN is asked twice as often.
#[test]
fn a_server_may_refuse_callbacks() {
    let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
    let asks = |request: &Request| request.operating().iter().any(|one| one.0 == tag::INQUIRY_PORT);
    let functions = server.run(|request| match request.message.function {
        Function::REGISTER if asks(request) => Status::INQUIRIES_UNAVAILABLE,
        Function::REGISTER_EVENTS => Status(17),
        _ => Status::SUCCESS,
    });
    assert_eq!(functions, [&[Function::REGISTER], &REGISTRATION[..]].concat());
    assert_eq!((server.phase(), server.due()), (Phase::Registered, seconds(50)));
}

/// One target that a server does not take keeps no other from being registered; it is named, and tried again after ten
/// minutes. An entity that is not taken is tried again then, too.
#[test]
fn a_refused_target_is_alone() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let mut server = Server::new(objects(&["192.0.2.1:3260"], &names));
    let bad = target("d").name;
    let refuses = |request: &Request| {
        let has = |(tag, text): &(u32, String)| *tag == 32 && *text == bad;
        let refused = request.operating().iter().any(has);
        if refused { Status(3) } else { Status::SUCCESS }
    };
    server.run(refuses);
    let view = server.client.view();
    assert_eq!((view.phase, view.targets, view.refused), (Phase::Registered, 6, 1));
    assert_eq!(server.groups.len(), 6);
    let failure = server.failure();
    assert!(
        failure.contains(&bad) && failure.contains("invalid registration (status 3)"),
        "{failure}"
    );
    let again = seconds(450)..=seconds(750);
    while !again.contains(&server.now) || server.client.view().targets == 6 {
        assert!(server.client.view().targets == 6 && server.now <= seconds(750));
        server.due();
        server.good();
    }
    assert_eq!((server.client.view().targets, server.client.view().refused), (7, 0));

    let mut server = Server::new(objects(&["192.0.2.1:3260"], &names));
    server.run(|_| Status(8));
    assert_eq!(server.phase(), Phase::Waiting);
    assert!(server.failure().contains("the portal 192.0.2.1:3260"), "{}", server.failure());
    assert!((seconds(450)..=seconds(750)).contains(&server.due()));
}

/// A busy server is tried again soon.
#[test]
fn a_busy_server_is_tried_again() {
    let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
    server.run(|_| Status::BUSY);
    assert!(server.phase() == Phase::Waiting && server.due() <= Duration::from_millis(1_250));
}

/// Leaving takes the portals away and nothing else; it takes 2 s at most, and no time without a registration.
#[test]
fn leaving_takes_portals() {
    let mut server = Server::new(objects(&["192.0.2.1:3260", "192.0.2.2:3260"], &["t1"]));
    server.good();
    server.client.leave(server.now);
    assert_eq!(server.phase(), Phase::Leaving);
    assert_eq!(server.good(), [Function::DEREGISTER]);
    let tags: Vec<_> = server.seen.last().unwrap().operating().iter().map(|one| one.0).collect();
    assert_eq!(tags, [16, 17, 16, 17]);
    assert!(server.client.has_left() && server.client.deadline().is_none());

    let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
    server.good();
    server.client.leave(server.now);
    assert_eq!(server.due(), seconds(2));
    assert!(server.client.has_left());

    let mut client = Client::new(settings(), seconds(0));
    client.leave(seconds(0));
    assert!(client.has_left() && !client.wants_connection(seconds(9)));
}

/// A server that has removed the gateway, and says so, gets everything again at once; a server that inquired and has
/// ceased to is asked early.
#[test]
fn callbacks_reach_the_registration() {
    let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
    server.good();
    server.client.notice(server.now, Notice::Changed);
    assert_eq!(server.good(), []);
    server.client.notice(server.now, Notice::Removed);
    assert_eq!(server.good(), REGISTRATION);
    server.client.notice(server.now, Notice::Removed);
    assert_eq!(server.client.view().failure.unwrap().1, Failure::Removed);
    server.client.notice(server.now, Notice::Removed);
    assert!(server.due() >= Duration::from_millis(750), "the second time it waits");

    let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
    let asked = Settings { inquiries: 20, ..settings() };
    server.client = Client::new(asked, server.now);
    server.connect(objects(&["192.0.2.1:3260"], &["t1"]));
    server.good();
    server.client.notice(server.now, Notice::Inquired);
    assert_eq!(server.due(), seconds(60));
    assert_eq!(server.good(), [Function::QUERY, Function::QUERY]);
    assert_eq!(server.due(), seconds(100));
}

/// Without an address there is nothing to register, and a change puts that right at once.
#[test]
fn a_portal_is_needed() {
    let mut server = Server::new(objects(&[], &["t1"]));
    assert_eq!((server.phase(), server.good()), (Phase::Waiting, vec![]));
    assert_eq!(server.client.view().failure.unwrap().1, Failure::NoPortal);
    server.client.change(server.now, objects(&["192.0.2.1:3260"], &["t1"]));
    assert!(server.client.wants_connection(server.now));
}
