//! The requests of a client, each of which fits one PDU (RFC 4171, section 5.6.5).

use super::attribute::Writer;
use super::codes::{EVENTS_OF_SELF, ISCSI, tag};
use super::objects::{Object, PORTAL, Shared};

/// Registers the first of these objects, as many as fit, and takes them. Each request begins with the entity, which is its
/// key, and which a server makes only together with an object (section 5.6.5.1). The alias of a node that has one no more
/// is cleared.
pub(super) fn register<'a>(
    source: &str,
    shared: Shared<'_>,
    objects: impl Iterator<Item = &'a Object>,
    has_alias: impl Fn(&str) -> bool,
) -> (Vec<u8>, Vec<Object>) {
    let mut head = Writer::default();
    head.text(tag::NODE_NAME, source);
    head.text(tag::ENTITY, shared.entity);
    head.empty(tag::DELIMITER);
    head.text(tag::ENTITY, shared.entity);
    head.number(tag::ENTITY_PROTOCOL, ISCSI);
    head.number(tag::PERIOD, shared.period);
    let mut node = None;
    fill(head, objects, |object, writer| {
        let other = object.node().filter(|name| node != Some(*name));
        if let (Object::Group(..), Some(name)) = (object, other) {
            writer.text(tag::NODE_NAME, name);
        }
        node = object.node();
        object.write(shared, writer);
        if let Object::Node { name, alias: None, .. } = object
            && has_alias(name)
        {
            writer.empty(tag::NODE_ALIAS);
        }
    })
}

/// Deregisters the first of these portals and nodes, as many as fit, and takes them.
pub(super) fn deregister<'a>(
    source: &str,
    objects: impl Iterator<Item = &'a Object>,
) -> (Vec<u8>, Vec<Object>) {
    let mut head = Writer::default();
    head.text(tag::NODE_NAME, source);
    head.empty(tag::DELIMITER);
    fill(head, objects, key)
}

/// Appends the key of a portal or a node.
fn key(object: &Object, writer: &mut Writer) {
    match object {
        Object::Portal(portal) => writer.portal(PORTAL, *portal),
        Object::Node { name, .. } => writer.text(tag::NODE_NAME, name),
        Object::Group(..) => {}
    }
}

fn fill<'a>(
    mut head: Writer,
    objects: impl Iterator<Item = &'a Object>,
    mut write: impl FnMut(&'a Object, &mut Writer),
) -> (Vec<u8>, Vec<Object>) {
    let mut taken = Vec::new();
    for object in objects {
        let mut one = Writer::default();
        write(object, &mut one);
        if head.0.len() + one.0.len() > REQUEST_MAX {
            // Or it would be taken for done.
            assert!(!taken.is_empty(), "one object fits: its texts are short");
            break;
        }
        head.0.extend(one.0);
        taken.push(object.clone());
    }
    (head.0, taken)
}

/// Asks for a portal, with its entity, or for a node.
pub(super) fn query(source: &str, object: &Object) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.text(tag::NODE_NAME, source);
    key(object, &mut writer);
    writer.empty(tag::DELIMITER);
    let wanted: &[u32] = match object {
        Object::Portal(_) => {
            &[tag::ENTITY, tag::PERIOD, tag::PORTAL_ADDRESS, tag::PORTAL_PORT, tag::EVENT_PORT]
        }
        Object::Node { .. } | Object::Group(..) => &[tag::NODE_NAME, tag::NODE_TYPE],
    };
    for tag in wanted {
        writer.empty(*tag);
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
