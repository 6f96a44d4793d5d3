//! Servers that lose parts, break rules or do less, and what is wrong at this end.

use super::server::{Request, Server, inquiry, notification};
use super::{ENTITY, REGISTRATION, SOURCE, objects, portal, seconds, settings, show, target};
use crate::isns::attribute::Writer;
use crate::isns::codes::{Function, Status, tag};
use crate::isns::message::Message;
use crate::isns::objects::PORTAL;
use crate::isns::{Client, Failure, Fault, Phase, Settings, is_entity};
use std::time::Duration;

const FIRST: &str = "192.0.2.1:3260";
const SECOND: &str = "192.0.2.2:3260";

/// A server may ask and notify on the connection of the client, whatever that waits for: it is answered, and heard.
#[test]
fn requests_on_the_own_connection_are_answered() {
    let mut server = Server::new(objects(&[FIRST], &["t1"]));
    let register = server.request().unwrap();
    server.send(Function::STATUS_INQUIRY, 9, inquiry(ENTITY, portal(FIRST)).0);
    let answer = server.request().unwrap().message;
    assert_eq!((answer.function, answer.transaction), (Function::STATUS_INQUIRY.answer(), 9));
    assert_eq!(answer.payload[..4], [0; 4]);
    server.send(Function::STATE_CHANGE, 10, notification(Some(SOURCE), 0x88));
    assert_eq!(server.request().unwrap().message.function, Function::STATE_CHANGE.answer());
    assert_eq!(server.register(&register), Status::SUCCESS);
    server.answer(&register, Status::SUCCESS, Writer::default());
    server.good();
    assert_eq!((server.phase(), server.due()), (Phase::Registered, seconds(100)));
    server.good();

    server.send(Function::STATE_CHANGE, 11, notification(Some(SOURCE), 0x90));
    let bytes = server.client.output().to_vec();
    let answer = 12 + usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
    server.client.wrote(answer);
    assert_eq!(server.good(), REGISTRATION, "removed: everything again");
}

/// An answer to a request that is not written yet is none. A server that asks and does not read is not kept.
#[test]
fn servers_must_read() {
    let mut server = Server::new(objects(&[FIRST], &["t1"]));
    server.send(Function::REGISTER.answer(), 1, vec![0; 4]);
    let fault = |function| Failure::Fault(Fault::Unexpected(function));
    assert_eq!(server.client.view().failure.unwrap().1, fault(Function::REGISTER.answer()));

    let mut server = Server::new(objects(&[FIRST], &["t1"]));
    while server.client.uses_connection() {
        server.send(Function(0x000e), 1, vec![]);
        assert!(server.client.output().len() < 140_000);
    }
    assert!(server.failure().contains("the server does not read"), "{}", server.failure());
}

/// An answer that was not asked for, or without a status, ends the connection for ten minutes, a quarter more or less.
#[test]
fn wrong_answers_end_the_connection() {
    let wrong = |function: Function, transaction, payload: &[u8]| {
        let mut server = Server::new(objects(&[FIRST], &["t1"]));
        server.request().unwrap();
        let mut bytes = Vec::new();
        let payload = payload.to_vec();
        Message { function, transaction, payload }.write(&mut bytes);
        assert_eq!(server.client.receive(server.now, &bytes), bytes.len());
        assert!(!server.client.uses_connection());
        assert!((seconds(450)..=seconds(750)).contains(&server.due()));
        server.client.view().failure.unwrap().1
    };
    let register = Function::REGISTER;
    let unexpected = |function| Failure::Fault(Fault::Unexpected(function));
    assert_eq!(wrong(register.answer(), 2, &[0; 4]), unexpected(register.answer()));
    assert_eq!(wrong(Function::QUERY.answer(), 1, &[0; 4]), unexpected(Function::QUERY.answer()));
    assert_eq!(wrong(register.answer(), 1, &[]), Failure::Fault(Fault::NoStatus(0)));
}

/// A portal that the server has lost is registered again at the next check, whichever it is; a target within six, and it
/// alone.
#[test]
fn lost_parts_are_found() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut server = Server::new(objects(&[FIRST, SECOND], &names));
    server.good();
    for lost in [FIRST, SECOND] {
        server.remove_portal(portal(lost));
        server.due();
        server.good();
        assert_eq!((server.phase(), server.portals.len()), (Phase::Registered, 2), "{lost}");
        assert_eq!(server.groups.len(), 16);
    }
    for name in names {
        let name = target(name).name;
        server.remove_node(&name);
        for _ in 0..6 {
            server.due();
            server.good();
        }
        assert_eq!((server.nodes.len(), server.groups.len()), (9, 16), "{name}");
    }
    let registers = server.seen.iter().filter(|one| one.message.function == Function::REGISTER);
    let again = registers.rev().take(8).all(|one| one.operating().len() == 3 + 2 + 6);
    assert!(again, "a target comes back alone");
    let targets: fn(&mut Server) = |server| server.nodes.retain(|name| name == SOURCE);
    for lose in [targets, |server| server.remove_node(SOURCE)] {
        lose(&mut server);
        for _ in 0..6 {
            server.due();
            server.good();
        }
        assert_eq!((server.nodes.len(), server.groups.len()), (9, 16), "all that a round finds");
    }
}

/// A target that the server has and does not show, since it is in no domain of the gateway, is no failure.
#[test]
fn invisible_targets_are_no_failure() {
    let mut server = Server::new(objects(&[FIRST], &["t1"]));
    server.good();
    let name = target("t1").name;
    let hidden = |request: &Request| {
        let of_target =
            request.message.payload.windows(name.len()).any(|text| text == name.as_bytes());
        let hides = of_target && request.message.function == Function::QUERY;
        if hides { Status::NO_SUCH_ENTRY } else { Status::SUCCESS }
    };
    for _ in 0..9 {
        assert_eq!(server.due(), seconds(100));
        assert!(server.run(hidden).len() <= 4);
        let view = server.client.view();
        assert_eq!((view.phase, view.targets, view.failure), (Phase::Registered, 1, None));
    }
}

/// Addresses are compared as servers show them: IPv4 as such, without a scope, and each once.
#[test]
fn addresses_are_canonical() {
    let mapped = ["[::ffff:192.0.2.1]:3260", FIRST, "[fe80::1%2]:3260"];
    let mut server = Server::new(objects(&mapped, &["t1"]));
    server.good();
    let shown = [FIRST, "[fe80::1]:3260"].map(portal);
    assert_eq!((server.phase(), server.client.view().portals), (Phase::Registered, shown.into()));
    server.send(Function::STATUS_INQUIRY, 9, inquiry(ENTITY, shown[1]).0);
    assert!(server.request().is_some());
}

/// The port for callbacks is that of the portal that was asked for, behind the delimiter.
#[test]
fn ports_belong_to_their_portals() {
    let mut server = Server::new(objects(&[FIRST], &["t1"]));
    server.good();
    let wrong = [(4_000, Some(4_001), 4_001), (4_001, Some(4_001), 4_000), (4_000, None, 4_000)];
    for (before, own, behind) in wrong {
        server.due();
        let query = server.request().unwrap();
        let mut wrong = Writer::default();
        show(&mut wrong, portal(FIRST), 4_000);
        wrong.empty(tag::DELIMITER);
        wrong.text(tag::ENTITY, ENTITY);
        show(&mut wrong, portal("192.0.2.8:3260"), before);
        wrong.portal(PORTAL, portal(FIRST));
        if let Some(own) = own {
            wrong.number(tag::EVENT_PORT, own);
        }
        show(&mut wrong, portal("192.0.2.9:3260"), behind);
        server.answer(&query, Status::SUCCESS, wrong);
        assert_eq!(server.client.view().failure.unwrap().1, Failure::NotShown);
        assert_eq!(server.good(), REGISTRATION);
    }
    server.due();
    let query = server.request().unwrap();
    let mut early = Writer::default();
    early.text(tag::ENTITY, ENTITY);
    show(&mut early, portal(FIRST), 4_000);
    early.empty(tag::DELIMITER);
    server.answer(&query, Status::SUCCESS, early);
    assert_eq!(server.good(), REGISTRATION, "only the key is there");
}

/// A registration that the server has is back before it expires, whatever the failure is.
#[test]
fn held_registrations_do_not_expire() {
    for seed in 0..50 {
        let mut server = Server::new(objects(&[FIRST], &["t1"]));
        server.client = Client::new(Settings { seed, ..settings() }, server.now);
        server.connect(objects(&[FIRST], &["t1"]));
        server.good();
        server.due();
        server.run(|_| Status(8));
        assert_eq!(server.phase(), Phase::Waiting);
        let wait = server.due();
        assert!((seconds(60)..=seconds(100)).contains(&wait), "{wait:?} of a period of 300 s");
    }
}

/// A change of the port takes away the portal that went, too; so does a server that lost something.
#[test]
fn old_portals_are_taken_away() {
    let mut server = Server::new(objects(&[FIRST], &["t1"]));
    server.good();
    let mut moved = objects(&[SECOND], &["t1"]);
    moved.callback = 4_001;
    server.client.change(server.now, moved.clone());
    server.good();
    assert_eq!(Vec::from_iter(server.portals.clone()), [(portal(SECOND), 4_001)]);

    server.due();
    let query = server.request().unwrap();
    moved.portals = vec![portal(FIRST)];
    server.client.change(server.now, moved);
    server.answer(&query, Status::NO_SUCH_ENTRY, Writer::default());
    server.good();
    assert_eq!(Vec::from_iter(server.portals.clone()), [(portal(FIRST), 4_001)]);
}

/// A change during a check makes its answer worth nothing: it is no failure.
#[test]
fn changes_overtake_checks() {
    let mut server = Server::new(objects(&[FIRST, SECOND], &["t1"]));
    server.good();
    server.due();
    let query = server.request().unwrap();
    let mut moved = objects(&[FIRST, SECOND], &["t1"]);
    moved.callback = 4_001;
    server.client.change(server.now, moved);
    let shown = server.shown(&query);
    server.answer(&query, Status::SUCCESS, shown);
    server.good();
    let view = server.client.view();
    assert_eq!((view.phase, view.failure), (Phase::Registered, None));
    assert!(server.portals.values().all(|port| *port == 4_001));
}

/// A server that is busy and says that the gateway was removed is not asked without a pause.
#[test]
fn removals_end_one_wait() {
    let mut server = Server::new(objects(&[FIRST], &["t1"]));
    let mut tries = 0;
    let removed = |server: &mut Server| server.client.notice(server.now, super::Notice::Removed);
    server.run(|_| Status::BUSY);
    removed(&mut server);
    while server.client.wants_connection(server.now) {
        tries += 1;
        assert!(tries < 9, "it is tried again and again");
        server.connect(objects(&[FIRST], &["t1"]));
        server.run(|_| Status::BUSY);
        removed(&mut server);
    }
    assert_eq!(tries, 1);
}

/// A server that makes its own groups costs one request to find that out.
#[test]
fn groups_may_be_refused() {
    let names: Vec<_> = (0..600).map(|n| n.to_string()).collect();
    let names: Vec<_> = names.iter().map(|name| &**name).collect();
    let mut server = Server::new(objects(&[FIRST], &names));
    let refuses = |request: &Request| {
        let has_groups = request.operating().iter().any(|one| one.0 == tag::GROUP_TAG);
        if has_groups { Status::FEATURE_NOT_SUPPORTED } else { Status::SUCCESS }
    };
    assert!(server.run(refuses).len() < 30);
    let view = server.client.view();
    assert_eq!((view.phase, view.targets, view.refused), (Phase::Registered, 600, 0));
}

/// Who leaves during a wait connects once to take the portals away.
#[test]
fn leaving_connects_once() {
    let waiting = || {
        let mut server = Server::new(objects(&[FIRST], &["t1"]));
        server.good();
        server.due();
        server.run(|_| Status::BUSY);
        assert!(!server.client.wants_connection(server.now));
        server.client.leave(server.now);
        server
    };
    let mut server = waiting();
    server.connect(objects(&[FIRST], &["t1"]));
    assert_eq!(server.good(), [Function::DEREGISTER]);
    assert!(server.client.has_left() && server.portals.is_empty());

    let mut server = waiting();
    server.client.connecting(server.now);
    server.client.disconnected(server.now, Some("refused".to_owned()));
    assert!(server.client.has_left());

    let mut server = waiting();
    server.client.connecting(server.now);
    assert_eq!(server.due(), seconds(2));
    assert!(server.client.has_left());
}

/// What was refused is tried again when it is due, not at the next check.
#[test]
fn refused_objects_have_their_time() {
    let mut server = Server::new(objects(&[FIRST], &["t1"]));
    server.period = 86_400;
    server.client = Client::new(Settings { period: server.period, ..settings() }, server.now);
    server.connect(objects(&[FIRST], &["t1"]));
    let bad = target("t1").name;
    server.run(|request| {
        let has_bad = request.operating().iter().any(|one| one.1 == bad);
        if has_bad { Status(3) } else { Status::SUCCESS }
    });
    let view = server.client.view();
    assert_eq!((view.phase, view.refused), (Phase::Registered, 1));
    server.due();
    server.good();
    assert!((seconds(450)..=seconds(750)).contains(&server.now), "{:?}", server.now);
    assert!(server.nodes.contains(&bad));
}

/// Texts that no server takes are said and do not keep the rest from being registered; those of the gateway itself do.
#[test]
fn texts_are_short() {
    let mut long = objects(&[FIRST], &["t1", "t2"]);
    long.targets[0].alias = Some("x".repeat(4_000));
    let mut server = Server::new(long);
    server.good();
    let view = server.client.view();
    assert_eq!((view.phase, view.targets, view.refused), (Phase::Registered, 1, 1));
    assert!(server.failure().contains("t1 is not registered: its name or alias is too long"));

    let unusable = |settings: Settings| {
        let mut client = Client::new(settings, seconds(0));
        client.connecting(seconds(0));
        client.connected(seconds(0), objects(&[FIRST], &["t1"]));
        assert!(client.output().is_empty() && !client.uses_connection());
        client.view().failure.unwrap().1
    };
    let source = unusable(Settings { source: "x".repeat(5_000), ..settings() });
    assert!(matches!(source, Failure::BadText(_)));
    for entity in ["", "isns:1", "ISNS:1", "a\0", &"x".repeat(256)] {
        let entity = entity.to_owned();
        assert!(!is_entity(&entity));
        assert_eq!(unusable(Settings { entity, ..settings() }), Failure::BadEntity);
    }
}

/// The case of an entity does not matter.
#[test]
fn entities_are_in_lower_case() {
    let mut server = Server::new(objects(&[FIRST], &["t1"]));
    let upper = Settings { entity: ENTITY.to_uppercase(), ..settings() };
    server.client = Client::new(upper, server.now);
    server.connect(objects(&[FIRST], &["t1"]));
    server.entity = "Site.Example";
    assert_eq!((server.good(), server.phase()), (REGISTRATION.to_vec(), Phase::Registered));
    server.send(Function::STATUS_INQUIRY, 9, inquiry("SITE.example", portal(FIRST)).0);
    assert!(server.request().is_some());
}

/// A connection that ends before it was made says so.
#[test]
fn failures_have_a_reason() {
    let mut client = Client::new(settings(), seconds(0));
    client.connecting(seconds(0));
    client.disconnected(seconds(0), None);
    let (_, failure) = client.view().failure.unwrap();
    assert_eq!(failure.to_string(), "the server closed the connection");
    assert!(client.deadline().is_some_and(|at| at >= Duration::from_millis(750)));
}
