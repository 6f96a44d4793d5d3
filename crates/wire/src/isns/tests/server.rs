//! A model of a server: it keeps what is registered, by the rules of RFC 4171.

use super::{ENTITY, SOURCE, portal, seconds, settings};
use crate::isns::attribute::{self, Attribute, Writer};
use crate::isns::codes::{Function, Status, tag};
use crate::isns::message::{Assembler, Message};
use crate::isns::objects::PORTAL;
use crate::isns::{Client, Objects, Phase};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// A request as a server reads it.
pub(super) struct Request {
    pub(super) message: Message,
    pub(super) flags: u16,
}

impl Request {
    /// The attributes behind the delimiter: their tags, and texts or numbers.
    pub(super) fn operating(&self) -> Vec<(u32, String)> {
        let all = attribute::all(&self.message.payload).unwrap();
        attribute::operating(&all).iter().map(|one| (one.tag, words(*one))).collect()
    }
}

fn words(one: Attribute<'_>) -> String {
    match one.tag {
        _ if one.value.is_empty() => String::new(),
        tag::PORTAL_ADDRESS | tag::GROUP_ADDRESS => one.address().unwrap().to_string(),
        tag::ENTITY | tag::NODE_NAME | tag::NODE_ALIAS => one.text().unwrap(),
        _ => one.number().unwrap().to_string(),
    }
}

/// A server, the client that it serves, and their time.
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) now: Duration,
    /// Portals with their ports for callbacks.
    pub(super) portals: BTreeMap<SocketAddr, u32>,
    pub(super) nodes: BTreeSet<String>,
    pub(super) groups: BTreeSet<(String, SocketAddr)>,
    /// The entity that it shows.
    pub(super) entity: &'static str,
    /// The period that it shows.
    pub(super) period: u32,
    /// Whether it keeps nothing of what it takes.
    pub(super) forgets: bool,
    pub(super) seen: Vec<Request>,
}

impl Server {
    pub(super) fn new(objects: Objects) -> Self {
        let mut server = Self {
            client: Client::new(settings(), seconds(0)),
            now: seconds(0),
            portals: BTreeMap::new(),
            nodes: BTreeSet::new(),
            groups: BTreeSet::new(),
            entity: ENTITY,
            period: 300,
            forgets: false,
            seen: Vec::new(),
        };
        server.connect(objects);
        server
    }

    pub(super) fn connect(&mut self, objects: Objects) {
        assert!(self.client.wants_connection(self.now), "{:?}", self.client.view());
        self.client.connecting(self.now);
        assert!(!self.client.wants_connection(self.now));
        self.client.connected(self.now, objects);
    }

    /// The next request, if there is one.
    pub(super) fn request(&mut self) -> Option<Request> {
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

    pub(super) fn answer(&mut self, request: &Request, status: Status, attributes: Writer) {
        let mut payload = status.0.to_be_bytes().to_vec();
        payload.extend(attributes.0);
        self.send(request.message.function.answer(), request.message.transaction, payload);
    }

    /// Sends a message, however its bytes are cut.
    pub(super) fn send(&mut self, function: Function, transaction: u16, payload: Vec<u8>) {
        let mut bytes = Vec::new();
        Message { function, transaction, payload }.write(&mut bytes);
        let (one, two) = bytes.split_at(bytes.len() / 2);
        let taken = self.client.receive(self.now, one);
        self.client.receive(self.now, &[&one[taken..], two].concat());
    }

    /// What is registered. An entity is registered first and with an object, its members behind it, and groups behind
    /// their node (section 5.6.5.1).
    pub(super) fn register(&mut self, request: &Request) -> Status {
        const INVALID: Status = Status(3);
        let all = request.operating();
        let [(tag::ENTITY, entity), (2, _), (tag::PERIOD, _), rest @ ..] = &all[..] else {
            return INVALID;
        };
        if rest.is_empty() || entity != ENTITY {
            return INVALID;
        }
        let (mut portals, mut node, mut groups) = (Vec::new(), None, Vec::new());
        let mut nodes = Vec::new();
        for (index, (tag, text)) in rest.iter().enumerate() {
            let next = |at: usize| &*rest[index + at].1;
            match *tag {
                tag::PORTAL_ADDRESS => {
                    let address = text.parse().unwrap();
                    portals.push((SocketAddr::new(address, next(1).parse().unwrap()), 0));
                }
                tag::EVENT_PORT => {
                    let Some(portal) = portals.last_mut() else { return INVALID };
                    portal.1 = text.parse().unwrap();
                }
                tag::NODE_NAME => {
                    node = Some(text.clone());
                    nodes.push(text.clone());
                }
                tag::GROUP_TAG => {
                    let Some(node) = &node else { return INVALID };
                    let (address, port) = (next(1).parse().unwrap(), next(2).parse().unwrap());
                    groups.push((node.clone(), SocketAddr::new(address, port)));
                }
                _ => {}
            }
        }
        if !self.forgets {
            self.portals.extend(portals);
            self.nodes.extend(nodes);
            self.groups.extend(groups);
        }
        Status::SUCCESS
    }

    fn deregister(&mut self, request: &Request) {
        let all = request.operating();
        for (index, (tag, text)) in all.iter().enumerate() {
            match *tag {
                tag::PORTAL_ADDRESS => {
                    let (address, port) =
                        (text.parse().unwrap(), all[index + 1].1.parse().unwrap());
                    self.remove_portal(SocketAddr::new(address, port));
                }
                tag::NODE_NAME => self.remove_node(text),
                _ => {}
            }
        }
    }

    pub(super) fn remove_portal(&mut self, portal: SocketAddr) {
        self.portals.remove(&portal);
        self.groups.retain(|group| group.1 != portal);
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
        self.groups.retain(|group| group.0 != name);
    }

    /// What a query is answered with: the key, and behind the delimiter what there is.
    pub(super) fn shown(&self, request: &Request) -> Writer {
        let all = attribute::all(&request.message.payload).unwrap();
        let mut writer = Writer::default();
        let key = &all[1..];
        key.iter().take_while(|one| one.tag != tag::DELIMITER).for_each(|one| writer.copy(*one));
        writer.empty(tag::DELIMITER);
        if let Some(portal) = attribute::portals(key).next() {
            if let Some(callback) = self.portals.get(&portal) {
                writer.text(tag::ENTITY, self.entity);
                writer.number(tag::PERIOD, self.period);
                // Others are related, too.
                super::show(&mut writer, portal_of_another(), 1);
                super::show(&mut writer, portal, *callback);
            }
        } else if let Some(name) = key[0].text().filter(|name| self.nodes.contains(name)) {
            writer.text(tag::NODE_NAME, &name);
        }
        writer
    }

    /// Answers all requests, by `status`; returns the functions.
    pub(super) fn run(&mut self, status: impl Fn(&Request) -> Status) -> Vec<Function> {
        let before = self.seen.len();
        while let Some(request) = self.request() {
            let mut status = status(&request);
            let mut attributes = Writer::default();
            if status == Status::SUCCESS {
                match request.message.function {
                    Function::REGISTER => status = self.register(&request),
                    Function::DEREGISTER => self.deregister(&request),
                    Function::QUERY => attributes = self.shown(&request),
                    _ => {}
                }
            }
            self.answer(&request, status, attributes);
            self.seen.push(request);
            assert!(self.seen.len() < before + 3_000, "the client does not come to an end");
        }
        self.seen[before..].iter().map(|request| request.message.function).collect()
    }

    pub(super) fn good(&mut self) -> Vec<Function> {
        self.run(|_| Status::SUCCESS)
    }

    /// Lets time pass until something is due.
    pub(super) fn due(&mut self) -> Duration {
        let before = self.now;
        self.now = self.client.deadline().unwrap();
        self.client.tick(self.now);
        self.now.saturating_sub(before)
    }

    pub(super) fn phase(&self) -> Phase {
        self.client.view().phase
    }

    /// The text of the last failure.
    pub(super) fn failure(&self) -> String {
        self.client.view().failure.expect("a failure").1.to_string()
    }
}

fn portal_of_another() -> SocketAddr {
    portal("192.0.2.200:3260")
}

/// A notification for a node: the events, and the node that they are about.
pub(super) fn notification(to: Option<&str>, events: u32) -> Vec<u8> {
    let mut writer = Writer::default();
    if let Some(to) = to {
        writer.text(tag::NODE_NAME, to);
    }
    writer.0.extend([0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 0, 1, 2, 3, 4]);
    writer.number(tag::EVENTS, events);
    writer.text(tag::NODE_NAME, SOURCE);
    writer.0
}

/// An inquiry about a portal.
pub(super) fn inquiry(entity: &str, at: SocketAddr) -> Writer {
    let mut writer = Writer(vec![0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 0, 1, 2, 3, 4]);
    writer.text(tag::ENTITY, entity);
    writer.portal(PORTAL, at);
    writer
}
