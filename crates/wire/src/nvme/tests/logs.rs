//! Tests of log pages, the discovery page among them.

use std::sync::Arc;

use super::controller::{Gateway, failed};
use crate::nvme::controller::Action;
use crate::nvme::discovery::{self, Entry, Generation, Kind};
use crate::nvme::{AnaState, Status};

impl Gateway {
    /// Reads a log page from an offset, as much as `length`.
    fn log(&mut self, id: u32, offset: u64, length: u32) -> Vec<u8> {
        self.data(0x02, 0xffff_ffff, &log(id, offset, length), length)
    }
}

/// Dwords 10 to 13 of Get Log Page.
fn log(id: u32, offset: u64, length: u32) -> [u32; 4] {
    let dwords = length / 4 - 1;
    [id | dwords << 16, dwords >> 16, offset as u32, (offset >> 32) as u32]
}

/// What is behind the end of a page, however far, is zeroes; offsets are multiples of four.
#[test]
fn ends_of_pages_are_zeroes() {
    let mut gateway = Gateway::enabled();
    assert_eq!(gateway.log(3, 0, 16), *b"\x01\0\0\0\0\0\0\x000.1.0   ");
    assert_eq!(gateway.log(3, 8, 600)[..8], *b"0.1.0   ");
    assert_eq!(gateway.log(3, 8, 600)[8..], [0; 592]);
    for offset in [512, 4096, u64::MAX - 3] {
        assert_eq!(gateway.log(3, offset, 64), [0; 64]);
    }
    for offset in [1, 2, 7] {
        let action = gateway.admin(0x02, 0, &log(3, offset, 64), 64);
        assert_eq!(action, failed(Status::INVALID_FIELD));
    }
    let mut indexed = log(3, 0, 64).to_vec();
    indexed.push(1 << 23);
    assert_eq!(gateway.admin(0x02, 0, &indexed, 64), failed(Status::INVALID_FIELD));
}

/// The length fits the room of the host and the limit of a transfer; unknown pages differ from both.
#[test]
fn lengths_are_checked() {
    let mut gateway = Gateway::enabled();
    assert_eq!(gateway.admin(0x02, 0, &log(2, 0, 512), 516), failed(Status::SGL_LENGTH_INVALID));
    assert_eq!(gateway.log(2, 0, 1 << 20).len(), 1 << 20);
    let long = (1 << 20) + 4;
    assert_eq!(gateway.admin(0x02, 0, &log(2, 0, long), long), failed(Status::INVALID_FIELD));
    let endless = [2 | 0xffff << 16, 0xffff];
    assert_eq!(gateway.admin(0x02, 0, &endless, 0), failed(Status::INVALID_FIELD));
    for id in [0x06, 0x55, 0x70, 0x81, 0xff] {
        assert_eq!(gateway.admin(0x02, 0, &log(id, 0, 64), 64), failed(Status::INVALID_LOG_PAGE));
    }
    let mut discovery = Gateway::discovery();
    for id in [0, 1, 2, 4, 0x0c, 0x80] {
        let action = discovery.admin(0x02, 0, &log(id, 0, 64), 64);
        assert_eq!(action, failed(Status::INVALID_LOG_PAGE));
    }
}

/// Nothing is counted and no error is kept: the pages are there and empty, for the namespaces that are there.
#[test]
fn nothing_is_counted() {
    let mut gateway = Gateway::enabled();
    assert_eq!(gateway.log(1, 0, 4096), [0; 4096]);
    assert_eq!(gateway.log(2, 0, 512), [0; 512]);
    assert_eq!(gateway.data(0x02, 9, &log(2, 0, 512), 512), [0; 512]);
    let action = gateway.admin(0x02, 3, &log(2, 0, 512), 512);
    assert_eq!(action, failed(Status::INVALID_NAMESPACE));
}

/// Changed namespaces are listed in order until the list is read.
#[test]
fn changes_are_listed() {
    let mut gateway = Gateway::enabled();
    for nsid in [9, 2, 9] {
        gateway.controller.namespace_changed(nsid);
    }
    let expected = [2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(gateway.log(4 | 1 << 15, 0, 12), expected, "retained");
    assert_eq!(gateway.log(4, 0, 12), expected);
    assert_eq!(gateway.log(4, 0, 12), [0; 12]);
}

/// Effects name the commands that there are; none of them stops the queues of Linux.
#[test]
fn effects_are_listed() {
    let mut gateway = Gateway::enabled();
    let page = gateway.log(5, 0, 4096);
    let effect = |at: usize| u32::from_le_bytes(*page[at..].first_chunk().unwrap());
    let admin: Vec<usize> = (0..256).filter(|op| effect(op * 4) & 1 == 1).collect();
    assert_eq!(admin, [2, 6, 8, 9, 10, 12, 24]);
    let io: Vec<usize> = (0..256).filter(|op| effect(1024 + op * 4) & 1 == 1).collect();
    assert_eq!(io, [0, 1, 2, 5, 8, 9, 12, 13, 14, 17, 21]);
    let writes: Vec<usize> = (0..256).filter(|op| effect(1024 + op * 4) == 3).collect();
    assert_eq!(writes, [1, 8, 9]);
    assert!((0..512).all(|op| effect(op * 4) < 4));
    let page = gateway.log(0, 0, 1024);
    let pages: Vec<usize> = (0..256).filter(|id| page[id * 4] == 1).collect();
    assert_eq!(pages, [0, 1, 2, 3, 4, 5, 12, 18, 0x80]);
    let page = gateway.log(0x12, 0, 1024);
    let features: Vec<usize> = (0..256).filter(|id| page[id * 4] == 1).collect();
    assert_eq!(features, [1, 2, 4, 5, 6, 7, 10, 11, 15, 22, 0x81, 0x82, 0x83]);
    let of_namespaces: Vec<usize> = (0..256).filter(|id| page[id * 4 + 2] == 0x10).collect();
    assert_eq!(of_namespaces, [0x82, 0x83]);
}

/// ANA states are listed in order, each namespace a group; the count of changes grows with each.
#[test]
fn ana_states_are_listed() {
    let mut gateway = Gateway::enabled();
    gateway.namespaces[2].ana = AnaState::Inaccessible;
    gateway.controller.ana_changed();
    let page = gateway.log(0x0c, 0, 16 + 3 * 36);
    assert_eq!(page[..16], [1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    let last = &page[16 + 72..];
    assert_eq!((last[0], last[4], last[8], last[16], last[32]), (9, 1, 1, 3, 9));
    assert_eq!(page[16 + 16], 1, "optimized");
    let groups = gateway.log(0x0c | 1 << 8, 0, 16 + 3 * 32);
    let last = &groups[16 + 64..];
    assert_eq!((last[0], last[4], last[16], last.len()), (9, 0, 3, 32));
}

fn entry(kind: Kind, address: &str) -> Entry {
    let subsystem = "nqn.2026-11.io.weir:a".to_owned();
    Entry { kind, subsystem, address: address.parse().unwrap(), port: 4420, portal: 2 }
}

/// The discovery page has an entry for each way; TREQ is "not specified".
#[test]
fn discovery_entries_are_as_specified() {
    let mut generation = Generation::default();
    generation.advance();
    let entries = [entry(Kind::Current, "192.0.2.1"), entry(Kind::Subsystem, "2001:db8::1")];
    let page = discovery::page(&generation, &entries);
    assert_eq!(page.len(), 3 * 1024);
    assert_eq!(page[..18], [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let first = &page[1024..2048];
    assert_eq!(first[..12], [3, 1, 3, 4, 2, 0, 0xff, 0xff, 32, 0, 2, 0]);
    assert_eq!(&first[32..64], format!("{:32}", "4420").as_bytes());
    assert_eq!(&first[256..278], b"nqn.2026-11.io.weir:a\0");
    assert_eq!(&first[512..768], format!("{:256}", "192.0.2.1").as_bytes());
    assert_eq!(first[768..], [0; 256]);
    let second = &page[2048..];
    assert_eq!(second[..12], [3, 2, 2, 4, 2, 0, 0xff, 0xff, 32, 0, 0, 0]);
    assert_eq!(second[512..523], *b"2001:db8::1");
}

/// A page that is read in pieces is the one of the first piece, and no piece copies it.
#[test]
fn pieces_are_of_one_page() {
    let mut gateway = Gateway::discovery();
    let mut generation = Generation::default();
    let old = discovery::page(&generation, &[entry(Kind::Current, "192.0.2.1")]);
    gateway.page = Some(old.clone());
    assert_eq!(gateway.log(0x70, 0, 1024)[8], 1);
    generation.advance();
    let new = discovery::page(&generation, &[]);
    gateway.page = Some(new.clone());
    let Action::Data { data, from: 1024 } = gateway.admin(0x02, 0, &log(0x70, 1024, 1024), 1024)
    else {
        panic!("data from an offset");
    };
    assert!(Arc::ptr_eq(&data, &old));
    assert_eq!(gateway.log(0x70, 4096, 1024), [0; 1024]);
    let Action::Data { data, from: 0 } = gateway.admin(0x02, 0, &log(0x70, 0, 1024), 1024) else {
        panic!("data from the start");
    };
    assert!(Arc::ptr_eq(&data, &new));
}
