//! NVMe hosts that stop in the middle, in virtual time.

use super::*;
use crate::config::{Initiators, Subsystem};

const SUBSYSTEM: &str = "nqn.2026-11.org.example:v";

/// Serves an NVMe host with these messages for five minutes; returns the second in which its connection was closed.
fn closed_after(test: &str, messages: &[Vec<u8>]) -> Option<u64> {
    let path = std::env::temp_dir().join(format!("weir-shard-{test}-{}", std::process::id()));
    let file = FileStore {
        name: String::from("s"),
        path: path.clone(),
        backend: None,
        size: Some(1 << 20),
        io: IoMode::Buffered,
    };
    let mut config = config(vec![Where::File(file.clone())]);
    config.nvme.subsystems = vec![Subsystem {
        name: SUBSYSTEM.to_owned(),
        namespaces: vec![(1, 0)],
        hosts: Initiators::default(),
        streams: config::Streams::default(),
        ana: Vec::new(),
    }];
    let backing = Backing::open(&config.volumes[0], &file).expect("a new file");
    std::fs::remove_file(&path).expect("it was just made");
    let upstreams = Upstreams::new(&[], 0, NoNetwork, Box::new(Zeroes));
    let (end, store) = (Duration::from_secs(300), Store::File(backing));
    let (host, _) = run_gateway(config, Protocol::Nvme, store, upstreams, messages, end, |_| {});
    let closed = host.closed.expect("it was connected");
    let second = closed.as_nanos() / 1_000_000_000;
    (second < 300).then_some(second)
}

fn initialize() -> Vec<u8> {
    let mut pdu = vec![0; 128];
    (pdu[2], pdu[4]) = (128, 128);
    pdu
}

/// A command with data in its capsule.
fn capsule(opcode: u8, cid: u8, nsid: u8, dwords: &[u32], data: &[u8]) -> Vec<u8> {
    let mut pdu = vec![4, 0, 72, if data.is_empty() { 0 } else { 72 }];
    pdu.extend((72 + data.len() as u32).to_le_bytes());
    let mut sqe = [0; 64];
    (sqe[0], sqe[1], sqe[2], sqe[4]) = (opcode, 0x40, cid, nsid);
    sqe[32..36].copy_from_slice(&(data.len() as u32).to_le_bytes());
    sqe[39] = if data.is_empty() { 0x5a } else { 0x01 };
    for (place, dword) in dwords.iter().enumerate() {
        sqe[40 + 4 * place..44 + 4 * place].copy_from_slice(&dword.to_le_bytes());
    }
    pdu.extend(sqe);
    pdu.extend(data);
    pdu
}

/// Connects an admin queue without a keep alive timer, and enables its controller.
fn connected() -> Vec<Vec<u8>> {
    let mut data = vec![0; 1024];
    data[16..18].copy_from_slice(&[0xff, 0xff]);
    data[256..256 + SUBSYSTEM.len()].copy_from_slice(SUBSYSTEM.as_bytes());
    data[512..522].copy_from_slice(b"nqn.2026:h");
    let connect = capsule(0x7f, 0, 1, &[0, 31 | 4 << 16, 0], &data);
    let enable = capsule(0x7f, 1, 0, &[0, 0x14, 0x0046_0001, 0], &[]);
    vec![initialize(), connect, enable]
}

/// A host that has begun a PDU, or the data of a command, and stops is closed after a minute, though it has no keep
/// alive timer; a host that says nothing stays.
#[test]
fn a_host_that_stops_in_the_middle_is_closed() {
    let behaviour = capsule(0x09, 2, 0, &[0x16], &[0; 512]);
    for (test, sent) in [("header", 40), ("digits", 3), ("data", 300), ("first", 72)] {
        let mut messages = connected();
        messages.push(behaviour[..sent].to_vec());
        let second = closed_after(&format!("nvme-{test}"), &messages);
        assert!(matches!(second, Some(59..=62)), "{test}: {second:?}");
    }
    let mut messages = connected();
    messages.push(behaviour);
    assert_eq!(closed_after("nvme-idle", &messages), None);
}
