//! Volumes without a disk: their work lets the event loop look at its sockets.

use super::*;
use crate::config::MemoryStore;
use crate::storage::memory::Memory;

/// A host has a null volume copy 32 MiB of itself. What the copy does next is known as soon as a step has ended, and yet
/// the event loop looks at its sockets after each 4 MiB that it moves.
#[test]
fn a_copy_does_not_keep_the_loop_from_its_sockets() {
    const SIZE: u64 = 1 << 30;
    let null = MemoryStore { name: String::from("s"), size: SIZE, keeps: false };
    let store = Store::Memory(Rc::new(Memory::new(SIZE, false)));
    let upstreams = Upstreams::new(&[], 0, NoNetwork, Box::new(Zeroes));
    // The first command after a login learns of the login.
    let messages = [login(), command(1, &[], &[0; 16]), copy(2)];
    let config = config(vec![Where::Memory(null)]);
    let end = Duration::from_secs(1);
    let (host, waits) =
        run_gateway(config, Protocol::Iscsi, store, upstreams, &messages, end, |_| {});

    let answer = host.received.last_chunk::<48>().expect("an answer");
    assert_eq!((answer[0], answer[2], answer[3]), (0x21, 0, 0), "the copy has ended well");
    // It reads as much as it writes, and the event loop polls between two turns.
    assert!(u64::from(waits.polls) >= 2 * COPIED / (4 << 20) - 1, "{} polls", waits.polls);
}

/// A login without a security stage.
fn login() -> Vec<u8> {
    let text = b"InitiatorName=iqn.h\0SessionType=Normal\0TargetName=iqn.t\0";
    let mut pdu = vec![0; 48];
    (pdu[0], pdu[1], pdu[7], pdu[8], pdu[13], pdu[27]) = (0x43, 0x87, text.len() as u8, 0x80, 1, 1);
    pdu.extend(text);
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    pdu
}

/// A command to LUN 0 with this number and these data.
fn command(number: u8, data: &[u8], cdb: &[u8; 16]) -> Vec<u8> {
    let mut pdu = vec![0; 48];
    (pdu[0], pdu[1]) = (0x01, if data.is_empty() { 0x80 } else { 0xa0 });
    (pdu[7], pdu[19], pdu[23], pdu[27]) = (data.len() as u8, number, data.len() as u8, number);
    pdu[32..].copy_from_slice(cdb);
    pdu.extend(data);
    pdu
}

/// EXTENDED COPY of the first bytes of the unit to those at 512 MiB.
fn copy(number: u8) -> Vec<u8> {
    let mut list = vec![7, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 56, 0, 0, 0, 0];
    let half = COPIED / 2 / 512;
    for at in [0, half] {
        list.extend([0x02, 0, 0, 24, 0xff, 0xff, 0xff, 0xff, 0, 0]);
        list.extend((half as u16).to_be_bytes());
        list.extend(at.to_be_bytes());
        list.extend(((1_u64 << 20) + at).to_be_bytes());
    }
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    command(number, &list, &cdb)
}

/// Bytes that are copied: two segments, which have a 16-bit number of blocks.
const COPIED: u64 = 32 << 20;
