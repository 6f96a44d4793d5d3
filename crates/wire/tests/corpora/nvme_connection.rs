//! A queue of NVMe/TCP: commands of all kinds, legal and not, to a connection and its controller.
//!
//! The first byte of an input chooses the queue, the digests and how much is agreed on already. Records follow, each of
//! a control byte and what its kind asks for. The gateway is fed twice, PDU by PDU and byte by byte: what it reports and
//! sends must be the same, every command has one answer, and what is kept is bounded.

use std::time::Duration;

use weir_wire::nvme::{Limits, discovery};

use super::nvme_gateway::{Gateway, Policy};
use super::nvme_host::{Grant, Host, connect, sqe, take};

/// First byte: digests.
const HEADER_DIGEST: u8 = 0x01;
const DATA_DIGEST: u8 = 0x02;
/// First byte: data is aligned to 128 bytes.
const ALIGNED: u8 = 0x04;
/// First byte: an I/O queue.
const IO: u8 = 0x08;
/// First byte: no flow control.
const NO_FLOW_CONTROL: u8 = 0x10;
/// First byte: a discovery controller.
const DISCOVERY: u8 = 0x20;
/// First byte: Connect comes from the records.
const NOT_CONNECTED: u8 = 0x40;
/// Control byte: kind of the record.
const KIND: u8 = 0x07;
/// Control byte: the host does not read for now.
const NOT_READING: u8 = 0x08;

/// Opcodes that an I/O queue has, and one that it does not.
const IO_OPCODES: [u8; 8] = [0x00, 0x01, 0x02, 0x05, 0x08, 0x09, 0x0c, 0x7e];
/// Opcodes that an admin queue has, and one that it does not.
const ADMIN_OPCODES: [u8; 8] = [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x80];

/// Looks at one input.
pub(crate) fn run(input: &[u8]) {
    let Some((&options, records)) = input.split_first() else { return };
    let whole = converse(options, records, false);
    let bytes = converse(options, records, true);
    assert_eq!(whole.fault, bytes.fault, "the fault depends on how the input was cut");
    assert_eq!(whole.told, bytes.told, "what is reported depends on how the input was cut");
    assert!(
        whole.host.output == bytes.host.output,
        "what is sent depends on how the input was cut"
    );
}

fn converse(options: u8, mut records: &[u8], byte_by_byte: bool) -> Gateway {
    let alignment = if options & ALIGNED != 0 { 128 } else { 4 };
    let (header, data) = (options & HEADER_DIGEST != 0, options & DATA_DIGEST != 0);
    let host = Host::new(header, data, alignment, false);
    let limits = Limits { max_transfer: 64 << 10, queue_depth: 32, ..Limits::default() };
    let mut gateway = Gateway::new(limits, host, byte_by_byte);
    let ic_req = gateway.host.ic_req();
    gateway.feed(&ic_req);
    gateway.drain();
    if options & NOT_CONNECTED == 0 {
        connect_queue(&mut gateway, options);
    }
    while let Some((&control, rest)) = records.split_first() {
        records = rest;
        gateway.policy = [Policy::AtOnce, Policy::Fail, Policy::Late, Policy::Halfway]
            [usize::from(control >> 6)];
        let receives = match control & KIND {
            0..=2 => command(&mut gateway, &mut records),
            3 => granted(&mut gateway, &mut records),
            4 => fabrics(&mut gateway, options, &mut records),
            5 => raw(&mut gateway, &mut records),
            _ => {
                let [deed] = take(&mut records);
                stir(&mut gateway, deed);
                true
            }
        };
        gateway.give_events();
        if !receives {
            break;
        }
        if control & NOT_READING == 0 {
            gateway.drain();
        }
    }
    gateway.finish_all();
    gateway
}

fn connect_queue(gateway: &mut Gateway, options: u8) {
    let queue = u16::from(options & IO != 0);
    let attributes = if options & NO_FLOW_CONTROL != 0 { 4 } else { 0 };
    let nqn = if options & DISCOVERY != 0 { discovery::NQN } else { "nqn.subsystem" };
    let (command, data) = connect(queue, 15, attributes, nqn);
    let capsule = gateway.host.capsule(&command, &data);
    gateway.feed(&capsule);
    if queue == 0 && gateway.connection.is_live() {
        // CC: enable.
        let enable = sqe(0x7f, 0, 0, &[0, 0x14, 0x0046_0001], (0x5a, 0));
        let capsule = gateway.host.capsule(&enable, &[]);
        gateway.feed(&capsule);
    }
    gateway.drain();
}

/// A command from a few bytes, most of which make it a good one.
fn command(gateway: &mut Gateway, records: &mut &[u8]) -> bool {
    let [opcode, cid, place, count, form, wrong] = take(records);
    let is_io = gateway.connection.queue() != Some(0);
    let opcodes = if is_io { IO_OPCODES } else { ADMIN_OPCODES };
    let opcode = opcodes[usize::from(opcode & 7)];
    let cid = u16::from(cid & 0x1f);
    let nsid = u32::from(form & 3);
    let (cdws, mut length) = if is_io {
        let blocks = u32::from(count & 0x1f) + 1;
        let far = if wrong & 1 != 0 { u32::MAX } else { 0 };
        let shift = if nsid == 2 { 12 } else { 9 };
        match opcode {
            0x09 => ([u32::from(count), 4, 0, 0], (u32::from(count) + 1) * 16),
            _ => (
                [u32::from(place), far, (blocks - 1) | u32::from(wrong >> 5) << 25, 0],
                blocks << shift,
            ),
        }
    } else {
        let length = match opcode {
            0x02 => (u32::from(count) + 1) * 4,
            0x06 => 4096,
            0x09 => 512,
            _ => [0, 16, 512, 4096][usize::from(count & 3)],
        };
        let id = [0, 1, 2, 3, 4, 5, 6, 7, 8, 0x0b, 0x0c, 0x0f, 0x12, 0x16, 0x70, 0x81]
            [usize::from(place & 15)];
        match opcode {
            0x02 => ([id | (length / 4 - 1) << 16, 0, u32::from(wrong) * 4, 0], length),
            0x08 => ([u32::from(place & 1) | u32::from(count & 0x1f) << 16, 0, 0, 0], 0),
            0x0a => ([id, 1, 0, 0], length),
            0x09 => ([id, u32::from(count) << 8, 0, 0], length),
            _ => ([id, 0, 0, 0], length),
        }
    };
    if wrong & 2 != 0 {
        length += 4;
    }
    let in_capsule = form & 4 == 0 && opcode & 3 == 1 && length <= 8192;
    let sgl = if in_capsule { 0x01 } else { 0x5a };
    let kind = if wrong & 4 != 0 { 0x03 } else { sgl };
    let command = sqe(opcode, cid, nsid, &cdws, (kind, length));
    let data =
        if in_capsule || wrong & 8 != 0 { vec![1; length.min(8192) as usize] } else { vec![] };
    let mut capsule = gateway.host.capsule(&command, &data);
    if form & 8 != 0 && gateway.host.data_digest && !data.is_empty() {
        *capsule.last_mut().expect("a capsule has bytes") ^= 1;
    }
    let (front, back) = capsule.split_at(capsule.len() * usize::from(form >> 4) / 16);
    // The shell may act in the middle of a PDU.
    gateway.feed(front) && {
        if form & 0xf0 != 0 && wrong & 16 != 0 {
            gateway.finish(true);
        }
        gateway.feed(back)
    }
}

/// Data that the controller has asked for, mostly as it should be.
fn granted(gateway: &mut Gateway, records: &mut &[u8]) -> bool {
    let [which, part, wrong] = take(records);
    let Some(grant) = gateway.grant(which.into()) else { return true };
    let mut sent = *grant;
    let left = grant.length - grant.sent;
    let length = (left * u32::from(part & 15) / 16).next_multiple_of(4).clamp(1, left);
    grant.sent += length;
    if grant.sent == grant.length {
        let tag = grant.tag;
        gateway.host.grants.retain(|other| other.tag != tag);
    }
    let mut is_last = length == left;
    // Most values break nothing.
    match wrong {
        0xf0 => sent.cid ^= 1,
        0xf1 => sent.tag ^= 1,
        0xf2 => sent.sent += 4,
        0xf3 => is_last = !is_last,
        _ => {}
    }
    let mut pdu = gateway.host.h2c_data(&sent, &vec![2; length as usize], is_last);
    if wrong == 0xf4 && gateway.host.data_digest {
        *pdu.last_mut().expect("a PDU has bytes") ^= 1;
    }
    gateway.feed(&pdu)
}

fn fabrics(gateway: &mut Gateway, options: u8, records: &mut &[u8]) -> bool {
    let [what, value] = take(records);
    let cid = u16::from(value & 0x1f);
    let offset = [0x00, 0x08, 0x14, 0x1c][usize::from(what >> 3 & 3)];
    let command = match what & 7 {
        0 | 1 => sqe(0x7f, cid, 4, &[u32::from(offset == 0), offset], (0x5a, 0)),
        2 => {
            let cc = [0, 0x0046_0001, 0x0046_4001, 0x0046_0000][usize::from(value >> 6)];
            sqe(0x7f, cid, 0, &[0, offset, cc], (0x5a, 0))
        }
        3 => sqe(0x7f, cid, 8, &[], (0x5a, 0)),
        4 => {
            let nqn = if value & 1 == 0 { "nqn.subsystem" } else { "" };
            let (command, data) = connect(u16::from(value >> 1 & 1), (value >> 2).into(), 4, nqn);
            let capsule = gateway.host.capsule(&command, &data);
            return gateway.feed(&capsule);
        }
        5 => {
            connect_queue(gateway, options);
            return gateway.fault.is_none();
        }
        fctype => sqe(0x7f, cid, fctype.into(), &[], (0x5a, 0)),
    };
    let capsule = gateway.host.capsule(&command, &[]);
    gateway.feed(&capsule)
}

/// A command of any 64 bytes, or data for no grant.
fn raw(gateway: &mut Gateway, records: &mut &[u8]) -> bool {
    let [what] = take(records);
    if what == 0xff {
        let [cid, tag, sent, length] = take(records).map(u32::from);
        let grant = Grant { cid: cid as u16, tag: tag as u16, sent, length };
        let pdu = gateway.host.h2c_data(&grant, &vec![0; length as usize], false);
        return gateway.feed(&pdu);
    }
    let mut command: [u8; 64] = take(records);
    // Most have the one descriptor that there is.
    if what & 1 == 0 {
        command[1] = 0x40;
    }
    let data = vec![0; usize::from(what >> 1) * 4];
    let capsule = gateway.host.capsule(&command, &data);
    gateway.feed(&capsule)
}

/// What the shell does by itself: the lower half says what, the upper half is a number.
fn stir(gateway: &mut Gateway, deed: u8) {
    let number = u32::from(deed >> 4);
    match deed & 0x0f {
        1 => drop(gateway.finish(true)),
        2 => drop(gateway.finish(false)),
        3 => while gateway.finish(false) {},
        4 => gateway.drain(),
        other => {
            let now = gateway.now;
            let Some(controller) = &mut gateway.controller else { return };
            match other {
                5 => controller.namespace_changed(number + 1),
                6 => controller.ana_changed(),
                7 => controller.discovery_changed(),
                8 => controller.quiesced(),
                9 => {
                    gateway.now = now + Duration::from_secs(number.into());
                    let was_expired = controller.is_expired();
                    let expires = controller.expires(gateway.now);
                    assert!(!(was_expired && expires), "it expires once");
                }
                _ => {}
            }
        }
    }
}
