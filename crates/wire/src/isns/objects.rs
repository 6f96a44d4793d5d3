//! What a gateway has a server know: its entity, portals, nodes and portal groups (RFC 4171, section 3).

use super::attribute::Writer;
use super::codes::{INITIATOR, ISCSI, TARGET, tag};
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

/// What shall be registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// The addresses at which hosts find the targets.
    pub portals: Vec<SocketAddr>,
    /// The targets.
    pub targets: Vec<Target>,
    /// The port of these addresses at which the server finds the gateway for ESI and SCN.
    pub callback: u16,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its iSCSI name; at most [`TEXT_MAX`] bytes.
    pub name: String,
    /// A name for people; at most [`TEXT_MAX`] bytes.
    pub alias: Option<String>,
}

/// The longest text in bytes.
pub const TEXT_MAX: usize = 223;

/// One object. Its order is that on the wire: an object comes after those that it refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    Entity,
    Portal(SocketAddr),
    Node {
        name: String,
        alias: Option<String>,
        /// Whether hosts log in to it.
        target: bool,
    },
    /// That a target is found at a portal. A server makes one by itself where there is none, and initiators find
    /// targets by these alone.
    Group(String, SocketAddr),
}

/// What all objects of a registration share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared<'a> {
    pub(super) entity: &'a str,
    /// Seconds after which a registration expires.
    pub(super) period: u32,
    /// Seconds between two ESI; `None`: without.
    pub(super) inquiries: Option<u32>,
    pub(super) callback: u16,
}

impl Object {
    /// All objects, in order.
    pub(super) fn all(objects: &Objects, (source, alias): (&str, &str)) -> BTreeSet<Self> {
        let gateway =
            Self::Node { name: source.to_owned(), alias: Some(alias.to_owned()), target: false };
        let mut all = BTreeSet::from([Self::Entity, gateway]);
        all.extend(objects.portals.iter().map(|portal| Self::Portal(*portal)));
        for Target { name, alias } in &objects.targets {
            all.insert(Self::Node { name: name.clone(), alias: alias.clone(), target: true });
            all.extend(objects.portals.iter().map(|portal| Self::Group(name.clone(), *portal)));
        }
        all
    }

    /// Appends its attributes, its key first.
    pub(super) fn write(&self, shared: Shared<'_>, writer: &mut Writer) {
        match self {
            Self::Entity => {
                writer.text(tag::ENTITY, shared.entity);
                writer.number(tag::ENTITY_PROTOCOL, ISCSI);
                writer.number(tag::PERIOD, shared.period);
            }
            Self::Portal(portal) => {
                writer.portal(PORTAL, *portal);
                if let Some(interval) = shared.inquiries {
                    writer.number(tag::INQUIRY_INTERVAL, interval);
                    writer.number(tag::INQUIRY_PORT, shared.callback.into());
                }
                writer.number(tag::EVENT_PORT, shared.callback.into());
            }
            Self::Node { name, alias, target } => {
                writer.text(tag::NODE_NAME, name);
                writer.number(tag::NODE_TYPE, if *target { TARGET } else { INITIATOR });
                if let Some(alias) = alias {
                    writer.text(tag::NODE_ALIAS, alias);
                }
            }
            Self::Group(node, portal) => {
                writer.text(tag::GROUP_NODE, node);
                writer.portal([tag::GROUP_ADDRESS, tag::GROUP_PORT], *portal);
                writer.number(tag::GROUP_TAG, TAG);
            }
        }
    }

    /// Whether it goes with this one.
    pub(super) fn belongs_to(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Group(node, _), Self::Node { name, .. }) => node == name,
            (Self::Group(_, portal), Self::Portal(other)) => portal == other,
            _ => self == other,
        }
    }

    /// Whether both are the same object, perhaps with other attributes.
    pub(super) fn has_key_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Node { name, .. }, Self::Node { name: other, .. }) => name == other,
            _ => self == other,
        }
    }
}

/// In words, for operators.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entity => f.write_str("the entity"),
            Self::Portal(portal) => write!(f, "the portal {portal}"),
            Self::Node { name, .. } => write!(f, "the node {name}"),
            Self::Group(node, portal) => write!(f, "the portal group of {node} at {portal}"),
        }
    }
}

/// The tags of a portal.
pub(super) const PORTAL: [u32; 2] = [tag::PORTAL_ADDRESS, tag::PORTAL_PORT];

/// The tag of all portal groups: the portals of a gateway are one group, which is what its logins say as well.
const TAG: u32 = 1;
