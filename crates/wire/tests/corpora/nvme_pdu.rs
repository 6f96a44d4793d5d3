//! PDUs of NVMe/TCP that are damaged: any byte of a header may be another one, before or behind its digest.
//!
//! The first byte of an input chooses digests and queue. Records follow: a PDU, which byte of it is changed, and raw
//! bytes. The connection is fed twice, with everything at once and byte by byte; it must take, refuse and send the same,
//! end with one termination request when a rule is broken, and keep a bounded amount of memory.

use weir_wire::nvme::Limits;

use super::nvme_gateway::{Gateway, Policy};
use super::nvme_host::{Host, connect, sqe, take};

/// First byte: digests.
const HEADER_DIGEST: u8 = 0x01;
const DATA_DIGEST: u8 = 0x02;
/// First byte: data is aligned to 128 bytes.
const ALIGNED: u8 = 0x04;
/// First byte: nothing is agreed on yet.
const SILENT: u8 = 0x08;

/// Looks at one input.
pub(crate) fn run(input: &[u8]) {
    let Some((&options, records)) = input.split_first() else { return };
    let whole = converse(options, records, false);
    let bytes = converse(options, records, true);
    assert_eq!(whole.fault, bytes.fault, "the fault depends on how the input was cut");
    assert_eq!(whole.told, bytes.told, "what is reported depends on how the input was cut");
    if whole.fault.is_none() {
        assert!(whole.host.output == bytes.host.output, "what is sent depends on the cuts");
    }
}

fn converse(options: u8, mut records: &[u8], byte_by_byte: bool) -> Gateway {
    let alignment = if options & ALIGNED != 0 { 128 } else { 4 };
    let (header, data) = (options & HEADER_DIGEST != 0, options & DATA_DIGEST != 0);
    let host = Host::new(header, data, alignment, true);
    let limits = Limits { max_transfer: 64 << 10, queue_depth: 32, ..Limits::default() };
    let mut gateway = Gateway::new(limits, host, byte_by_byte);
    if options & SILENT == 0 {
        let ic_req = gateway.host.ic_req();
        let (command, data) = connect(1, 15, 4, "nqn.subsystem");
        let capsule = gateway.host.capsule(&command, &data);
        gateway.feed(&[ic_req, capsule].concat());
        gateway.drain();
    }
    while !records.is_empty() {
        let [what, at, value] = take(&mut records);
        gateway.policy = if what & 0x80 == 0 { Policy::AtOnce } else { Policy::Late };
        let pdu = pdu(&mut gateway, what, &mut records);
        let pdu = damaged(&gateway.host, pdu, at, value);
        if !gateway.feed(&pdu) {
            break;
        }
        gateway.drain();
        if what & 0x40 != 0 {
            gateway.finish(true);
            gateway.drain();
        }
    }
    gateway.finish_all();
    gateway
}

/// A PDU that could be good.
fn pdu(gateway: &mut Gateway, what: u8, records: &mut &[u8]) -> Vec<u8> {
    let host = &mut gateway.host;
    match what & 7 {
        0 => host.ic_req(),
        1 => {
            let [cid] = take(records);
            host.capsule(&sqe(0x01, cid.into(), 1, &[0, 0, 0], (0x01, 512)), &[1; 512])
        }
        2 => {
            let [cid] = take(records);
            host.capsule(&sqe(0x01, cid.into(), 1, &[0, 0, 1], (0x5a, 1024)), &[])
        }
        3 => {
            let [cid] = take(records);
            host.capsule(&sqe(0x02, cid.into(), 1, &[0, 0, 0], (0x5a, 512)), &[])
        }
        4 => match host.grants.pop_front() {
            Some(grant) => host.rest(&grant),
            None => host.framed(
                vec![6, 4, 24, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0],
                &[1; 4],
            ),
        },
        5 => {
            let mut pdu = vec![2, 0, 24, 0, 24, 0, 0, 0, 1, 0, 4];
            pdu.resize(24, 0);
            pdu
        }
        _ => {
            let [length] = take(records);
            let (bytes, rest) = records.split_at(records.len().min(length.into()));
            *records = rest;
            bytes.to_vec()
        }
    }
}

/// Changes one byte. With a header digest, an even value makes the digest anew, so that what is behind it is reached.
fn damaged(host: &Host, mut pdu: Vec<u8>, at: u8, value: u8) -> Vec<u8> {
    let Some(byte) = pdu.get_mut(usize::from(at)) else { return pdu };
    *byte ^= value;
    let hlen = usize::from(pdu.get(2).copied().unwrap_or(0));
    let has_digest = host.header_digest && matches!(pdu[0], 4 | 6) && pdu.len() >= hlen + 4;
    if has_digest && value.is_multiple_of(2) {
        let digest = crc32c::crc32c(&pdu[..hlen]).to_le_bytes();
        pdu[hlen..hlen + 4].copy_from_slice(&digest);
    }
    pdu
}
