//! Hosts of NVMe that break the protocol, over real sockets: each is answered as the standard says, and another host is
//! served all the while.

use crate::gateway::initiator::{connect, until_closed};
use crate::gateway::nvme::{
    ABORT, DATASET_MANAGEMENT, EVENT_REQUEST, Host, KEEP_ALIVE, Move, Queue, READ, WRITE,
    with_subsystem,
};
use crate::gateway::pdu::crc32c;
use crate::gateway::{Gateway, folder};
use std::io::{Read, Write};

const LARGE: usize = 65_536;

fn start(test: &str) -> Gateway {
    Gateway::start(&folder(test), &with_subsystem("", ""), &[])
}

/// What the termination request at the end of `said` says: its status and information. Other PDUs may come before it.
fn terminated(said: &[u8]) -> (u16, u32) {
    let mut rest = said;
    loop {
        assert!(rest.len() >= 24, "no termination request: {said:02x?}");
        let length = u32::from_le_bytes(*rest[4..].first_chunk().unwrap()) as usize;
        if rest[0] == 3 {
            let fes = u16::from_le_bytes([rest[8], rest[9]]);
            return (fes, u32::from_le_bytes(*rest[10..].first_chunk().unwrap()));
        }
        rest = &rest[length..];
    }
}

/// How a connection ends that sends this.
fn ends(mut socket: &std::net::TcpStream, bytes: &[u8]) -> (u16, u32) {
    socket.write_all(bytes).unwrap();
    terminated(&until_closed(&mut socket.try_clone().unwrap()))
}

/// An `ICReq` with one byte changed.
fn ic_req(at: usize, value: u8) -> Vec<u8> {
    let mut pdu = vec![0; 128];
    (pdu[2], pdu[4]) = (128, 128);
    pdu[at] = value;
    pdu
}

/// `H2CData`: command, tag, offset, the length that it gives, flags and data.
fn h2c_data(cid: u16, tag: u16, offset: u32, length: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut pdu = vec![6, flags, 24, 24];
    pdu.extend((24 + data.len() as u32).to_le_bytes());
    pdu.extend(cid.to_le_bytes());
    pdu.extend(tag.to_le_bytes());
    pdu.extend(offset.to_le_bytes());
    pdu.extend(length.to_le_bytes());
    pdu.extend([0; 4]);
    pdu.extend_from_slice(data);
    pdu
}

/// A write of [`LARGE`] bytes that was asked for its data: its identifier and the tag.
fn granted(queue: &mut Queue) -> (u16, u16) {
    let cid = queue.issue_at(WRITE, 0, LARGE as u64, Move::Out(&vec![0; LARGE]));
    let mut ask = [0; 24];
    queue.socket.read_exact(&mut ask).unwrap();
    assert_eq!(ask[0], 9, "R2T");
    (cid, u16::from_le_bytes([ask[10], ask[11]]))
}

/// Headers that no host may send end the connection, and the reason says where the fault is.
#[test]
fn bad_headers_end_a_connection() {
    let mut gateway = start("nvme_headers");
    let witness = gateway.witness();
    let address = gateway.nvme[0];
    for (at, value, fes) in [(4, 127, (1, 4)), (8, 1, (1, 8)), (10, 32, (1, 10))] {
        assert_eq!(ends(&connect(address), &ic_req(at, value)), fes, "byte {at} is {value}");
    }
    let header = |kind: u8, hlen: u8, pdo: u8, plen: u32| {
        let mut pdu = vec![kind, 0, hlen, pdo];
        pdu.extend(plen.to_le_bytes());
        pdu.resize(usize::from(hlen).max(72), 0);
        pdu
    };
    assert_eq!(ends(&connect(address), &header(6, 24, 24, 24)), (2, 0), "before ICReq");
    assert_eq!(ends(&Queue::initialized(address, false).socket, &ic_req(0, 0)), (2, 0), "twice");
    let cases = [1, 3, 5, 7, 8, 10].map(|kind| (kind, 24, 0, 24, (1, 0)));
    let more = [
        (4, 71, 0, 72, (1, 2)),
        (4, 72, 7, 76, (1, 3)),
        (4, 72, 0, 0, (1, 4)),
        (4, 72, 72, u32::MAX, (5, 0)),
        (4, 72, 72, 72 + (1 << 20), (5, 0)),
    ];
    for (kind, hlen, pdo, plen, end) in cases.into_iter().chain(more) {
        let controller = gateway.controller(1);
        let queue = controller.queue(1).unwrap_or_else(|refused| panic!("{refused:x?}"));
        let found = ends(&queue.socket, &header(kind, hlen, pdo, plen));
        assert_eq!(found, end, "type {kind}, HLEN {hlen}, PDO {pdo}, PLEN {plen}");
    }
    gateway.logged(&["NVMe/TCP protocol error"]);
    // Before Connect there are only Fabrics commands.
    let mut queue = Queue::initialized(address, false);
    assert_eq!(queue.execute(READ, 1, &[0, 0, 0], Move::In(512)).status, 0x0c);
    witness.finish();
    gateway.stop();
}

/// What a host sends on a queue.
type Bad<'a> = &'a dyn Fn(&mut Queue) -> Vec<u8>;

/// Data that was not asked for, or is not what was asked for, ends the queue; nothing of it is written.
#[test]
fn bad_data_ends_a_queue() {
    let mut gateway = start("nvme_bad_data");
    let witness = gateway.witness();
    let controller = gateway.controller(1);
    let part = [7; 4096];
    let cases: [(&str, u16, Bad<'_>); 8] = [
        ("an unknown tag", 2, &|_| h2c_data(0, 77, 0, 4096, 4, &part)),
        ("for another command", 2, &|queue| {
            let (cid, tag) = granted(queue);
            h2c_data(cid + 1, tag, 0, 4096, 0, &part)
        }),
        ("with a gap", 4, &|queue| {
            let (cid, tag) = granted(queue);
            h2c_data(cid, tag, 4, 4096, 0, &part)
        }),
        ("beyond the grant", 4, &|queue| {
            let (cid, tag) = granted(queue);
            h2c_data(cid, tag, 0, LARGE as u32 + 4, 0, &vec![7; LARGE + 4])
        }),
        ("of another length than its PDU", 1, &|queue| {
            let (cid, tag) = granted(queue);
            h2c_data(cid, tag, 0, 8192, 0, &part)
        }),
        ("that is the last too early", 2, &|queue| {
            let (cid, tag) = granted(queue);
            h2c_data(cid, tag, 0, 4096, 4, &part)
        }),
        ("for a read", 2, &|queue| {
            let cid = queue.issue_at(READ, 0, 4096, Move::In(4096));
            h2c_data(cid, 0, 0, 4096, 4, &part)
        }),
        ("after the end", 2, &|queue| {
            let (cid, tag) = granted(queue);
            let mut pdus = h2c_data(cid, tag, 0, LARGE as u32, 4, &vec![0; LARGE]);
            pdus.extend(h2c_data(cid, tag, 0, 4096, 4, &part));
            pdus
        }),
    ];
    for (what, fes, bad) in cases {
        let mut queue =
            controller.queue(1).unwrap_or_else(|refused| panic!("{what}: {refused:x?}"));
        let bytes = bad(&mut queue);
        assert_eq!(ends(&queue.socket, &bytes).0, fes, "data {what}");
    }
    let mut queue = controller.queue(1).unwrap();
    assert!(queue.read(0, LARGE as u32).data == vec![0; LARGE]);
    // More commands than the queue has places: each waits for data, so none is answered.
    for _ in 0..128 {
        queue.issue_at(WRITE, 0, LARGE as u64, Move::Out(&vec![0; LARGE]));
    }
    queue.issue_at(READ, 0, 512, Move::In(512));
    assert_eq!(terminated(&until_closed(&mut queue.socket)).0, 2, "too many commands");
    assert_eq!(controller.queue(1).unwrap().read(0, 512).status, 0);
    witness.finish();
    gateway.stop();
}

/// A damaged header ends the connection; damaged data only its command, which may be tried again.
#[test]
fn digests_are_checked() {
    let mut gateway = start("nvme_digests");
    let host = Host { digests: true, ..Host::of(1) };
    let controller = host.connect(gateway.nvme[0]).unwrap().enabled();
    let mut queue = controller.queue(1).unwrap();
    assert_eq!(queue.write(0, &[1; 4096]).status, 0);
    // The digest of the data is the end of the PDU.
    queue.withheld = 1;
    let damaged = queue.issue_at(WRITE, 0, 4096, Move::Out(&[2; 4096]));
    queue.withheld = 0;
    let right = crc32c(&[2; 4096]).to_le_bytes()[3];
    queue.socket.write_all(&[right ^ 1]).unwrap();
    let answer = queue.wait(damaged).unwrap();
    assert_eq!((answer.status, answer.is_final), (0x22, false), "a transport error, to be retried");
    assert!(queue.read(0, 4096).data == [1; 4096], "nothing was written, and the queue lives");
    let mut header = vec![4, 1, 72, 0, 76, 0, 0, 0];
    header.resize(72, 0);
    let wrong = !crc32c(&header);
    header.extend(wrong.to_le_bytes());
    queue.socket.write_all(&header).unwrap();
    let said = until_closed(&mut queue.socket);
    let found = (said[0], said[8], u32::from_le_bytes(*said[10..].first_chunk().unwrap()));
    assert_eq!(found, (3, 3, wrong), "FES 03h with the digest that came");
    gateway.stop();
}

/// Names that are none are refused, with the place of the fault.
#[test]
fn bad_names_are_refused() {
    let mut gateway = start("nvme_names");
    for name in ["x".repeat(256), "nqn.2026-11.org.example:\u{7}".to_owned(), String::new()] {
        let host = Host { nqn: name.clone(), ..Host::of(1) };
        let refused = host.connect(gateway.nvme[0]).unwrap_err();
        assert_eq!(refused, (0x182, 1 << 16 | 512), "{name:?}");
        let host = Host { subsystem: name.clone(), ..Host::of(1) };
        let refused = host.connect(gateway.nvme[0]).unwrap_err();
        assert_eq!(refused, (0x182, 1 << 16 | 256), "{name:?}");
    }
    let sign = "\u{1b}[31m";
    let host = Host { nqn: format!("nqn.2026-11.org.example:{sign}"), ..Host::of(1) };
    host.connect(gateway.nvme[0]).unwrap_err();
    assert_eq!(gateway.count("\u{1b}"), 0, "no control character reaches the log");
    gateway.stop();
}

/// Commands that make no sense are answered, and the queue lives.
#[test]
fn bad_commands_are_answered() {
    let mut gateway = start("nvme_commands");
    let mut controller = gateway.controller(1);
    let mut queue = controller.queue(1).unwrap();
    for (nsid, status) in [(0, 0x0b), (u32::MAX, 0x0b), (257, 0x0b), (2, 0x02)] {
        let answer = queue.execute(READ, nsid, &[0, 0, 0], Move::In(512));
        assert_eq!((answer.status, answer.is_final), (status, true), "NSID {nsid:x}");
    }
    let beyond = queue.execute(READ, 1, &[u32::MAX, u32::MAX, 1], Move::In(1024));
    assert_eq!(beyond.status, 0x80, "SLBA + NLB beyond 2^64");
    let short = queue.execute(DATASET_MANAGEMENT, 1, &[255, 4], Move::Out(&[0; 16]));
    assert_eq!(short.status, 0x0f, "256 ranges in 16 bytes");
    let page = controller.log(2, u32::MAX - 3, 512);
    assert_eq!((page.status, page.data), (0, vec![0; 512]), "behind the end of a log page");
    let next = controller.admin.execute(KEEP_ALIVE, 0, &[], Move::None);
    assert_eq!(next.status, 0);
    let abort = controller.admin.issue(ABORT, 0, &[0], Move::None);
    assert_eq!(controller.admin.wait(abort).unwrap().dw0, 1, "no such command");
    for _ in 0..4 {
        controller.admin.issue(EVENT_REQUEST, 0, &[], Move::None);
    }
    let fifth = controller.admin.execute(EVENT_REQUEST, 0, &[], Move::None);
    assert_eq!(fifth.status, 0x105);
    assert_eq!(queue.read(0, 512).status, 0);
    gateway.stop();
}

/// A host that sends no data that it was asked for, and one that does not read its answers, keep what they have until
/// their keep alive timers expire, and no longer; others are served.
#[test]
fn idle_hosts_are_bounded() {
    let mut gateway = start("nvme_idle");
    let witness = gateway.witness();
    let host = |number, kato_ms| Host { kato_ms, ..Host::of(number) };
    let silent = host(1, 1).connect(gateway.nvme[0]).unwrap().enabled();
    let mut queue = silent.queue(1).unwrap();
    granted(&mut queue);
    let deaf = host(2, 3_000).connect(gateway.nvme[0]).unwrap().enabled();
    let mut full = deaf.queue(1).unwrap();
    // 128 MiB of answers, which no socket buffer holds.
    for _ in 0..128 {
        full.issue_at(READ, 0, 1 << 20, Move::In(1 << 20));
    }
    assert!(until_closed(&mut queue.socket).is_empty(), "1 ms of silence is taken for 1 s");
    gateway.logged(&["keep alive timer has expired", "host1"]);
    gateway.logged(&["keep alive timer has expired", "host2"]);
    assert_eq!(gateway.controller(3).queue(1).unwrap().read(0, 512).status, 0);
    witness.finish();
    gateway.stop();
}
