//! The requests of a client, each of which fits one PDU (RFC 4171, section 5.6.5).

use super::attribute::Writer;
use super::codes::{EVENTS_OF_SELF, tag};
use super::objects::{Object, PORTAL, Shared};
use std::net::SocketAddr;

/// Registers the first of these objects, as many as fit, and takes them.
pub(super) fn register<'a>(
    source: &str,
    shared: Shared<'_>,
    objects: impl Iterator<Item = &'a Object>,
) -> (Vec<u8>, Vec<Object>) {
    let mut head = Writer::default();
    head.text(tag::NODE_NAME, source);
    head.text(tag::ENTITY, shared.entity);
    head.empty(tag::DELIMITER);
    fill(head, objects, |object, writer| object.write(shared, writer))
}

/// Deregisters the first of these portals and nodes, as many as fit, and takes them.
pub(super) fn deregister<'a>(
    source: &str,
    objects: impl Iterator<Item = &'a Object>,
) -> (Vec<u8>, Vec<Object>) {
    let mut head = Writer::default();
    head.text(tag::NODE_NAME, source);
    head.empty(tag::DELIMITER);
    fill(head, objects, |object, writer| match object {
        Object::Portal(portal) => writer.portal(PORTAL, *portal),
        Object::Node { name, .. } => writer.text(tag::NODE_NAME, name),
        Object::Entity | Object::Group(..) => {}
    })
}

fn fill<'a>(
    mut head: Writer,
    objects: impl Iterator<Item = &'a Object>,
    write: impl Fn(&Object, &mut Writer),
) -> (Vec<u8>, Vec<Object>) {
    let mut taken = Vec::new();
    for object in objects {
        let mut one = Writer::default();
        write(object, &mut one);
        if head.0.len() + one.0.len() > REQUEST_MAX {
            break;
        }
        head.0.extend(one.0);
        taken.push(object.clone());
    }
    (head.0, taken)
}

/// Asks for a portal, with its entity.
pub(super) fn query(source: &str, portal: SocketAddr) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.text(tag::NODE_NAME, source);
    writer.portal(PORTAL, portal);
    writer.empty(tag::DELIMITER);
    for wanted in [tag::ENTITY, tag::PERIOD, tag::PORTAL_ADDRESS, tag::PORTAL_PORT, tag::EVENT_PORT]
    {
        writer.empty(wanted);
    }
    writer.0
}

/// Registers for events of the source itself.
pub(super) fn events(source: &str) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.text(tag::NODE_NAME, source);
    writer.text(tag::NODE_NAME, source);
    writer.empty(tag::DELIMITER);
    writer.number(tag::EVENTS, EVENTS_OF_SELF);
    writer.0
}

/// The longest payload of a request. The answer to a registration repeats all of it, and open-isns sends and takes no PDU
/// above 8,192 bytes, and takes no request of several PDUs.
const REQUEST_MAX: usize = 4_000;
