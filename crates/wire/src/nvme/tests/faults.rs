//! Tests of what ends a connection: each fault with its status and information.

use super::harness::{
    Host, Sgl, Told, connect_data, connect_sqe, flush, ic_req, read, sqe, write, write_in_capsule,
};
use crate::nvme::{Limits, PeerError};

/// The fault of these bytes: error, FES and FEI as the host reads them.
fn fault(host: &mut Host, bytes: &[u8]) -> (PeerError, u16, u32) {
    let error = host.send(bytes).expect_err("the bytes break a rule");
    let (fes, fei) = (error.fes(), error.fei());
    host.digests = (false, false);
    let pdus = host.pdus();
    let last = pdus.last().expect("a termination request");
    assert_eq!((last.kind, last.u16(8), last.u32(10)), (3, fes, fei));
    let length = last.data.len();
    assert!(
        length <= 128 && host.pending.starts_with(&last.data),
        "{error}: the header of {length} bytes"
    );
    assert!(host.connection.wants_close() && host.connection.is_finished());
    assert_eq!(host.connection.receive(&[0; 40]).unwrap().consumed, 40, "the rest is dropped");
    assert!(host.connection.outbox().is_empty());
    (error, fes, fei)
}

/// The first PDU must be a right `ICReq`, and there is one.
#[test]
fn initialization_is_checked() {
    let changed = |at: usize, value: u8| {
        let mut pdu = ic_req(0, 0);
        pdu[at] = value;
        pdu
    };
    for (at, value, fei) in
        [(2, 127, 2), (4, 127, 4), (5, 1, 4), (8, 1, 8), (10, 32, 10), (11, 4, 11)]
    {
        let (_, fes, got) = fault(&mut Host::silent(Limits::default()), &changed(at, value));
        assert_eq!((fes, got), (1, fei), "byte {at} is {value}");
    }
    let mut host = Host::io();
    assert_eq!(fault(&mut host, &ic_req(0, 0)).0, PeerError::SecondIcReq);
    for kind in [4, 6] {
        let mut host = Host::silent(Limits::default());
        assert_eq!(
            fault(&mut host, &[kind, 0, 72, 0, 72, 0, 0, 0]).0,
            PeerError::BeforeIcReq(kind)
        );
    }
}

/// Types of the controller, and unknown ones, are refused before their lengths are looked at.
#[test]
fn types_are_checked() {
    for kind in [1, 3, 5, 7, 8, 9, 10, 255] {
        let (_, fes, fei) = fault(&mut Host::io(), &[kind, 0, 24, 0, 24, 0, 0, 0]);
        assert_eq!((fes, fei), (1, 0), "type {kind}");
        let mut host = Host::silent(Limits::default());
        assert_eq!(fault(&mut host, &[kind, 0, 24, 0, 24, 0, 0, 0]).1, 1);
    }
}

/// A change of a PDU.
type Change<'a> = &'a dyn Fn(&mut Vec<u8>);

/// Lengths and offsets of a capsule must fit together.
#[test]
fn capsules_are_checked() {
    let capsule = |change: Change<'_>| {
        let host = Host::io();
        let mut pdu = host.capsule(&write_in_capsule(1, 1), &[0; 512]);
        change(&mut pdu);
        (host, pdu)
    };
    let plen = |pdu: &mut Vec<u8>, value: u32| pdu[4..8].copy_from_slice(&value.to_le_bytes());
    let cases: [(Change<'_>, u16, u32); 12] = [
        (&|pdu| pdu[1] = 1, 1, 1),
        (&|pdu| pdu[1] = 2, 1, 1),
        (&|pdu| pdu[2] = 71, 1, 2),
        (&|pdu| pdu[2] = 73, 1, 2),
        (&|pdu| pdu[3] = 7, 1, 3),
        (&|pdu| pdu[3] = 68, 1, 3),
        (&|pdu| pdu[3] = 74, 1, 3),
        (&|pdu| plen(pdu, 0), 1, 4),
        (&|pdu| plen(pdu, 71), 1, 4),
        (&|pdu| plen(pdu, 72 + 8193), 5, 0),
        (&|pdu| plen(pdu, 1 << 20), 5, 0),
        (&|pdu| plen(pdu, u32::MAX), 5, 0),
    ];
    for (change, fes, fei) in cases {
        let (mut host, pdu) = capsule(change);
        let (error, got, information) = fault(&mut host, &pdu);
        assert_eq!((got, information), (fes, fei), "{error}");
    }
    // A flag that is missing although there are digests.
    let mut host = Host::live(1, (false, true), 0, true);
    let mut pdu = host.capsule(&write_in_capsule(1, 1), &[0; 512]);
    pdu[1] = 0;
    assert_eq!(fault(&mut host, &pdu).0, PeerError::HeaderField(1));
    // Data of no bytes has no digest.
    let mut host = Host::live(1, (false, true), 0, true);
    let mut pdu = host.capsule(&write_in_capsule(1, 1), &[0; 512]);
    pdu[4..8].copy_from_slice(&76_u32.to_le_bytes());
    assert_eq!(fault(&mut host, &pdu).0, PeerError::HeaderField(4));
}

/// I/O capsules have their own limit; admin and Fabrics capsules take 8 KiB on every queue.
#[test]
fn capsules_are_bounded_by_their_queue() {
    let limits = Limits { in_capsule: 4096, ..Limits::default() };
    let connected = |queue| {
        let mut host = Host::initialized(limits, 0, (false, false));
        let capsule = host.capsule(&connect_sqe(queue, 15, 4), &connect_data(queue));
        host.send(&capsule).unwrap();
        host.connection.admitted(1);
        host.pdus();
        host
    };
    let long = sqe(0x09, 1, 1, &[], Sgl::Capsule(8192));
    let mut host = connected(1);
    let capsule = host.capsule(&long, &[0; 8192]);
    assert_eq!(fault(&mut host, &capsule).0, PeerError::TooLong { length: 8192, limit: 4096 });
    let mut host = connected(0);
    let capsule = host.capsule(&long, &[0; 8192]);
    assert!(host.send(&capsule).is_ok());
    let mut host = connected(0);
    let longer = sqe(0x09, 1, 1, &[], Sgl::Capsule(8196));
    let capsule = host.capsule(&longer, &[0; 8196]);
    assert_eq!(fault(&mut host, &capsule).1, 5);
}

/// `H2CData` must continue a grant of its command: tag, command, offset and length.
#[test]
fn granted_data_is_checked() {
    let granted = || {
        let mut host = Host::io();
        let slot = host.command(&write(4, 2), &[]);
        host.connection.solicit(slot, 1024);
        host.pdus();
        (host, slot)
    };
    let (mut host, slot) = granted();
    let pdu = host.h2c_data(4, slot + 1, 0, &[0; 512], false);
    assert_eq!(fault(&mut host, &pdu).0, PeerError::UnknownTag(slot as u16 + 1));
    let (mut host, slot) = granted();
    let pdu = host.h2c_data(5, slot, 0, &[0; 512], false);
    assert_eq!(fault(&mut host, &pdu).0, PeerError::WrongCommand { expected: 4, got: 5 });
    for (offset, length) in [(4, 512), (0, 1028), (512, 512), (u32::MAX - 3, 8)] {
        let (mut host, slot) = granted();
        let pdu = host.h2c_data(4, slot, offset, &vec![0; length], false);
        assert_eq!(fault(&mut host, &pdu).1, 4, "{length} at {offset}");
    }
    // No data at all.
    let (mut host, slot) = granted();
    let pdu = host.h2c_data(4, slot, 0, &[], false);
    assert_eq!(fault(&mut host, &pdu).1, 4);
    // DATAL differs from what PLEN says.
    let (mut host, slot) = granted();
    let mut pdu = host.h2c_data(4, slot, 0, &[0; 512], false);
    pdu[16] = 4;
    assert_eq!(fault(&mut host, &pdu).2, 16);
    // LAST_PDU in the middle.
    let (mut host, slot) = granted();
    let pdu = host.h2c_data(4, slot, 0, &[0; 512], true);
    assert_eq!(fault(&mut host, &pdu).0, PeerError::EndsEarly { expected: 1024, got: 512 });
    // More than MAXH2CDATA in a PDU.
    let (mut host, slot) = granted();
    let mut pdu = host.h2c_data(4, slot, 0, &[0; 512], false);
    pdu[4..8].copy_from_slice(&((1_u32 << 20) + 28).to_le_bytes());
    assert_eq!(fault(&mut host, &pdu).1, 5);
    // After the end; that LAST_PDU is missing there is forgiven.
    let (mut host, slot) = granted();
    host.send(&host.h2c_data(4, slot, 0, &[0; 1024], false)).unwrap();
    let pdu = host.h2c_data(4, slot, 1024, &[0; 4], true);
    assert_eq!(fault(&mut host, &pdu).0, PeerError::UnknownTag(slot as u16));
    // Before the R2T, and for a read.
    for command in [write(4, 1), read(4, 1), flush(4)] {
        let mut host = Host::io();
        let slot = host.command(&command, &[]);
        let pdu = host.h2c_data(4, slot, 0, &[0; 512], true);
        assert_eq!(fault(&mut host, &pdu).0, PeerError::UnknownTag(slot as u16));
    }
}

/// A queue takes as many unanswered commands as it has places, and no more.
#[test]
fn full_queues_are_fatal() {
    let mut host = Host::io();
    for cid in 0..16 {
        host.command(&flush(cid), &[]);
    }
    let capsule = host.capsule(&flush(99), &[]);
    assert_eq!(fault(&mut host, &capsule).0, PeerError::TooManyCommands(16));
}

/// A termination request of the host is an event, whatever follows it, and is not answered.
#[test]
fn hosts_can_terminate() {
    for mut host in [Host::silent(Limits::default()), Host::io()] {
        let mut pdu = vec![2, 0, 24, 0, 152, 0, 0, 0, 1, 0, 2, 0, 0, 0];
        pdu.resize(152, 0);
        assert_eq!(host.send(&pdu), Ok(vec![Told::Terminated { fes: 1, fei: 2 }]));
        assert!(host.connection.is_finished());
    }
}

/// Whole responses leave before the termination request; none follows it.
#[test]
fn nothing_follows_a_termination() {
    let mut host = Host::io();
    let first = host.command(&flush(1), &[]);
    let second = host.command(&read(2, 1), &[]);
    host.connection.respond(first, crate::nvme::Completion::SUCCESS);
    assert!(host.send(&[9; 8]).is_err());
    host.connection.respond_data(second, vec![0; 512].into(), 0..512);
    assert_eq!(host.connection.outstanding(), 0);
    let kinds: Vec<u8> = host.pdus().iter().map(|pdu| pdu.kind).collect();
    assert_eq!(kinds, [5, 3]);
}
