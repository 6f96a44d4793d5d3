//! A client against a modelled server.

mod callbacks;

use crate::isns::attribute::{self, Attribute, Writer};
use crate::isns::codes::{Function, Status, tag};
use crate::isns::message::{Assembler, HEADER_LENGTH, Message};
use crate::isns::objects::PORTAL;
use crate::isns::{Client, Failure, Fault, Notice, Objects, Phase, Settings, Target};
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

/// A request as a server reads it.
struct Request {
    message: Message,
    flags: u16,
}

impl Request {
    /// The attributes behind the delimiter: their tags, and texts or numbers.
    fn operating(&self) -> Vec<(u32, String)> {
        let all = attribute::all(&self.message.payload).unwrap();
        let behind = all.iter().skip_while(|one| one.tag != tag::DELIMITER).skip(1);
        behind.map(|one| (one.tag, words(*one))).collect()
    }
}

fn words(one: Attribute<'_>) -> String {
    match one.tag {
        _ if one.value.is_empty() => String::new(),
        tag::PORTAL_ADDRESS | tag::GROUP_ADDRESS => one.address().unwrap().to_string(),
        tag::ENTITY | tag::NODE_NAME | tag::NODE_ALIAS | tag::GROUP_NODE => one.text().unwrap(),
        _ => one.number().unwrap().to_string(),
    }
}

/// A server that has a portal or not, and answers.
struct Server {
    client: Client,
    now: Duration,
    /// The portal that it shows.
    shows: Option<(&'static str, SocketAddr, u32)>,
    seen: Vec<Request>,
}

impl Server {
    fn new(objects: Objects) -> Self {
        let shows =
            objects.portals.first().map(|portal| (ENTITY, *portal, objects.callback.into()));
        let client = Client::new(settings(), seconds(0));
        let mut server = Self { client, now: seconds(0), shows, seen: Vec::new() };
        server.connect(objects);
        server
    }

    fn connect(&mut self, objects: Objects) {
        assert!(self.client.wants_connection(self.now), "{:?}", self.client.view());
        self.client.connecting(self.now);
        assert!(!self.client.wants_connection(self.now));
        self.client.connected(self.now, objects);
    }

    /// The next request, if there is one.
    fn request(&mut self) -> Option<Request> {
        let bytes = self.client.output().to_vec();
        if bytes.is_empty() {
            return None;
        }
        let (length, message) = Assembler::new(1 << 20).take(&bytes).unwrap();
        assert_eq!(length, bytes.len(), "one request at a time");
        self.client.wrote(length);
        let flags = u16::from_be_bytes([bytes[6], bytes[7]]);
        Some(Request { message: message.unwrap(), flags })
    }

    fn answer(&mut self, request: &Request, status: Status, attributes: Writer) {
        let mut payload = status.0.to_be_bytes().to_vec();
        payload.extend(attributes.0);
        let (function, transaction) =
            (request.message.function.answer(), request.message.transaction);
        let mut bytes = Vec::new();
        Message { function, transaction, payload }.write(&mut bytes);
        // However the bytes are cut.
        let (one, two) = bytes.split_at(bytes.len() / 2);
        let taken = self.client.receive(self.now, one);
        self.client.receive(self.now, &[&one[taken..], two].concat());
    }

    /// What a query is answered with.
    fn shown(&self) -> Writer {
        let mut writer = Writer::default();
        writer.portal(PORTAL, portal("192.0.2.1:3260"));
        writer.empty(tag::DELIMITER);
        if let Some((entity, portal, callback)) = self.shows {
            writer.text(tag::ENTITY, entity);
            writer.number(tag::PERIOD, 300);
            writer.portal(PORTAL, portal);
            writer.number(tag::EVENT_PORT, callback);
        }
        writer
    }

    /// Answers all requests, by `status`; returns the functions.
    fn run(&mut self, status: impl Fn(&Request) -> Status) -> Vec<Function> {
        let before = self.seen.len();
        while let Some(request) = self.request() {
            let status = status(&request);
            let query = request.message.function == Function::QUERY;
            let attributes = if query { self.shown() } else { Writer::default() };
            self.answer(&request, status, attributes);
            self.seen.push(request);
            assert!(self.seen.len() < before + 2_000, "the client does not come to an end");
        }
        self.seen[before..].iter().map(|request| request.message.function).collect()
    }

    fn good(&mut self) -> Vec<Function> {
        self.run(|_| Status::SUCCESS)
    }

    /// Lets time pass until something is due.
    fn due(&mut self) -> Duration {
        let before = self.now;
        self.now = self.client.deadline().unwrap();
        self.client.tick(self.now);
        self.now.saturating_sub(before)
    }

    fn phase(&self) -> Phase {
        self.client.view().phase
    }
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
        (48, "iqn.2026-11.org.example:t1"),
        (49, "192.0.2.1"),
        (50, "3260"),
        (51, "1"),
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

/// A client registers, registers for events, sees its portal, and checks that each third of the period that the server
/// gives.
#[test]
fn a_registration_is_refreshed() {
    let mut server = Server::new(objects(&["192.0.2.1:3260", "192.0.2.2:3260"], &["t1", "t2"]));
    assert_eq!(server.phase(), Phase::Registering);
    assert_eq!(server.good(), REGISTRATION);
    let view = server.client.view();
    assert_eq!((view.phase, view.portals.len(), view.targets), (Phase::Registered, 2, 2));
    assert_eq!((view.failures, view.failure), (0, None));
    for _ in 0..3 {
        assert_eq!(server.due(), seconds(100));
        assert_eq!(server.phase(), Phase::Registered, "a check is no doubt");
        assert_eq!(server.good(), [Function::QUERY]);
    }
    assert_eq!(server.client.view().since, seconds(0));
}

/// A server that does not show the portal, shows it in another entity or with another port for callbacks, or does not
/// know the source, gets everything again at once, and later again after a wait.
#[test]
fn a_lost_registration_is_made_again() {
    let own = portal("192.0.2.1:3260");
    for shows in [None, Some(("other", own, 4_000)), Some((ENTITY, own, 4_001))] {
        let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
        server.good();
        server.shows = shows;
        server.due();
        assert_eq!(server.good(), [&[Function::QUERY], &REGISTRATION[..]].concat());
        assert_eq!(server.phase(), Phase::Waiting);
        assert_eq!(server.client.view().failure.unwrap().1, Failure::NotShown);
        server.shows = Some((ENTITY, own, 4_000));
        server.due();
        server.connect(objects(&["192.0.2.1:3260"], &["t1"]));
        assert_eq!(server.good(), REGISTRATION);
        assert_eq!((server.phase(), server.client.view().failures), (Phase::Registered, 0));
    }
    for status in [Status::SOURCE_UNKNOWN, Status::SOURCE_ABSENT, Status::NO_SUCH_ENTRY] {
        let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
        server.good();
        server.due();
        let first = server.seen.len();
        let query = server.request().unwrap();
        server.answer(&query, status, Writer::default());
        assert_eq!(server.good(), REGISTRATION, "{status}");
        assert_eq!(server.seen[first].operating().len(), 17);
    }
}

/// After a lost connection a client checks, and registers nothing that the server still has.
#[test]
fn a_lost_connection_is_no_lost_registration() {
    let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
    server.good();
    server.client.disconnected(server.now, None);
    assert_eq!((server.phase(), server.client.uses_connection()), (Phase::Waiting, false));
    assert_eq!(server.client.view().failure.unwrap().1, Failure::Closed(None));
    server.due();
    server.connect(objects(&["192.0.2.1:3260"], &["t1"]));
    assert_eq!(server.good(), [Function::REGISTER_EVENTS, Function::QUERY]);
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
    let group = [(48, &*t3), (49, "192.0.2.1"), (50, "3260"), (51, "1")];
    let nodes = [(32, &*t1), (33, "1"), (34, "disks"), (32, &*t3), (33, "1")];
    assert_eq!(server.seen[first].operating(), operating(&[&nodes[..], &group].concat()));
    assert_eq!(server.seen[first + 1].operating(), operating(&[(32, &t2)]));
    server.client.change(server.now, changed.clone());
    assert_eq!(server.good(), [], "no change");
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
    let last_node = tags.iter().rposition(|tag| *tag == tag::NODE_TYPE).unwrap();
    assert!(tags[..last_node].iter().all(|tag| *tag != tag::GROUP_TAG));
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
        let has = |(tag, text): &(u32, String)| matches!(*tag, 32 | 48) && *text == bad;
        let refused = request.operating().iter().any(has);
        if refused { Status(3) } else { Status::SUCCESS }
    };
    server.run(refuses);
    let view = server.client.view();
    assert_eq!((view.phase, view.targets, view.refused), (Phase::Registered, 6, 2));
    let failure = view.failure.unwrap().1.to_string();
    assert!(
        failure.contains(&bad) && failure.contains("invalid registration (status 3)"),
        "{failure}"
    );
    while server.now < seconds(600) {
        assert_eq!(server.client.view().targets, 6);
        server.due();
        server.good();
    }
    assert_eq!((server.client.view().targets, server.client.view().refused), (7, 0));

    let mut server = Server::new(objects(&["192.0.2.1:3260"], &names));
    server.run(|_| Status(8));
    assert_eq!((server.phase(), server.due()), (Phase::Waiting, seconds(600)));
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

    let asked = Settings { inquiries: 20, ..settings() };
    server.client = Client::new(asked, server.now);
    server.connect(objects(&["192.0.2.1:3260"], &["t1"]));
    server.good();
    server.client.notice(server.now, Notice::Inquired);
    assert_eq!(server.due(), seconds(60));
    assert_eq!(server.good(), [Function::QUERY]);
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

/// An answer that was not asked for, or without a status, ends the connection for ten minutes.
#[test]
fn wrong_answers_end_the_connection() {
    let wrong = |function: Function, transaction, payload: &[u8]| {
        let mut server = Server::new(objects(&["192.0.2.1:3260"], &["t1"]));
        let mut bytes = Vec::new();
        let payload = payload.to_vec();
        Message { function, transaction, payload }.write(&mut bytes);
        assert_eq!(server.client.receive(server.now, &bytes), bytes.len());
        assert_eq!((server.client.uses_connection(), server.due()), (false, seconds(600)));
        server.client.view().failure.unwrap().1
    };
    let register = Function::REGISTER;
    let unexpected = |function| Failure::Fault(Fault::Unexpected(function));
    assert_eq!(wrong(register.answer(), 2, &[0; 4]), unexpected(register.answer()));
    assert_eq!(wrong(Function::QUERY.answer(), 1, &[0; 4]), unexpected(Function::QUERY.answer()));
    assert_eq!(wrong(register, 1, &[0; 4]), unexpected(register));
    assert_eq!(wrong(register.answer(), 1, &[]), Failure::Fault(Fault::NoStatus(0)));
}
