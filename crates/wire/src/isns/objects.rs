//! What a gateway has a server know: its entity, portals, nodes and portal groups (RFC 4171, section 3).

use super::attribute::Writer;
use super::codes::{INITIATOR, TARGET, tag};
use std::cmp::Ordering;
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
    /// A name for people; at most [`ALIAS_MAX`] bytes.
    pub alias: Option<String>,
}

/// The longest iSCSI name in bytes (section 6.4.1).
pub const TEXT_MAX: usize = 223;

/// The longest name for people in bytes (section 6.4.3), and that of an entity (section 6.2.1).
pub const ALIAS_MAX: usize = 255;

/// One object in the entity. Its order is that on the wire: an object comes after those that it refers to, and the groups
/// of a node right behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// An address at which hosts find targets.
    Portal(SocketAddr),
    /// The gateway itself, or a target.
    Node {
        /// Its iSCSI name.
        name: String,
        /// Its name for people.
        alias: Option<String>,
        /// Whether hosts log in to it.
        target: bool,
    },
    /// That a target is found at a portal. A server makes one by itself where there is none, and initiators find
    /// targets by these alone.
    Group(String, SocketAddr),
}

impl Ord for Object {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl PartialOrd for Object {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
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
    /// What its order is by.
    fn place(&self) -> (Option<&str>, Option<SocketAddr>, Option<&str>, bool) {
        match self {
            Self::Portal(portal) => (None, Some(*portal), None, false),
            Self::Node { name, alias, target } => (Some(name), None, alias.as_deref(), *target),
            Self::Group(name, portal) => (Some(name), Some(*portal), None, false),
        }
    }

    /// All objects, in order.
    pub(super) fn all(objects: Objects, (source, alias): (&str, &str)) -> BTreeSet<Self> {
        let gateway =
            Self::Node { name: source.to_owned(), alias: Some(alias.to_owned()), target: false };
        let portals: Vec<_> = objects.portals.iter().map(|one| canonical(*one)).collect();
        let mut all = BTreeSet::from([gateway]);
        all.extend(portals.iter().map(|portal| Self::Portal(*portal)));
        for Target { name, alias } in objects.targets {
            all.extend(portals.iter().map(|portal| Self::Group(name.clone(), *portal)));
            all.insert(Self::Node { name, alias, target: true });
        }
        all
    }

    /// Whether servers take texts like its own.
    pub(super) fn fits(&self) -> bool {
        let short = |text: &str, most| text.len() <= most && !text.contains('\0');
        match self {
            Self::Portal(_) => true,
            Self::Node { name, alias, .. } => {
                short(name, TEXT_MAX) && alias.as_ref().is_none_or(|alias| short(alias, ALIAS_MAX))
            }
            Self::Group(name, _) => short(name, TEXT_MAX),
        }
    }

    /// Appends its attributes, its key first; a group behind its node (section 5.6.5.1).
    pub(super) fn write(&self, shared: Shared<'_>, writer: &mut Writer) {
        match self {
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
            Self::Group(_, portal) => {
                writer.number(tag::GROUP_TAG, TAG);
                writer.portal([tag::GROUP_ADDRESS, tag::GROUP_PORT], *portal);
            }
        }
    }

    /// The name of a node, or that of a group's node.
    pub(super) fn node(&self) -> Option<&str> {
        match self {
            Self::Portal(_) => None,
            Self::Node { name, .. } | Self::Group(name, _) => Some(name),
        }
    }

    /// Whether it goes with this one.
    pub(super) fn belongs_to(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Group(node, _), Self::Node { name, .. }) => node == name,
            (Self::Group(_, portal), Self::Portal(other)) => portal == other,
            _ => self.has_key_of(other),
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

/// Whether a gateway may give an entity this name: servers make those with `isns:` (section 6.2.1).
pub fn is_entity(name: &str) -> bool {
    let server = name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("isns:"));
    !name.is_empty() && name.len() <= ALIAS_MAX && !name.contains('\0') && !server
}

/// A portal as servers write it: IPv4 as such, and without a scope.
pub(super) fn canonical(portal: SocketAddr) -> SocketAddr {
    SocketAddr::new(portal.ip().to_canonical(), portal.port())
}

/// In words, for operators.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
