//! Operations as commands.

use super::*;
use crate::buffer::Pool;
use crate::storage::io::Whose;
use slotmap::SlotMap;
use weir_flow::request::RequestKey;

fn terms(change: impl FnOnce(&mut Facts)) -> Terms {
    let mut facts = Facts::simple(512, 1 << 20);
    change(&mut facts);
    Terms::new(facts)
}

fn operation(work: Work, offset: u64, length: u64) -> Operation {
    let key = SlotMap::<RequestKey, ()>::with_key().insert(());
    Operation::new(Io { whose: Whose::Request(key), work, offset, length, promise: None })
}

/// Operation code, flags, address, blocks and data of each command of an operation.
fn commands(terms: &Terms, operation: &mut Operation) -> Vec<(u8, u8, u64, u32, u64)> {
    let mut all = Vec::new();
    while let Some(Order { cdb, data }) = operation.next(terms) {
        let number = |range: Range<usize>| cdb[range].iter().fold(0, |n, &b| n << 8 | u64::from(b));
        let (lba, blocks) = match cdb[0] {
            0x28 | 0x2a | 0x35 => (number(2..6), number(7..9)),
            _ => (number(2..10), number(10..14)),
        };
        let moved = match data {
            Data::None => 0,
            Data::Read(length) => length.into(),
            Data::Write(payload, range) => payload.as_ref()[range].len() as u64,
        };
        all.push((cdb[0], cdb[1], lba, blocks as u32, moved));
        operation.advance();
    }
    all
}

/// A transfer is cut to what the unit takes in one command.
#[test]
fn transfers_are_cut() {
    let mut pool = Pool::new(1 << 20);
    let buffer = pool.take(64 << 10).unwrap();
    let terms = terms(|facts| facts.max_blocks = 32);
    let mut read = operation(Work::Read { buffer, at: 0 }, 512, 40 << 10);
    let expected = [(0x88, 0, 1, 32, 16_384), (0x88, 0, 33, 32, 16_384), (0x88, 0, 65, 16, 8_192)];
    assert_eq!(commands(&terms, &mut read), expected);
    read.into_io();
}

/// A durable write has FUA where the unit knows it, a flush behind it where it does not, and neither
/// where there is no cache.
#[test]
fn durable_writes_are_durable() {
    let mut pool = Pool::new(1 << 20);
    let buffer = pool.take(4_096).unwrap();
    let write =
        || operation(Work::Write { buffer: buffer.clone(), at: 0, durable: true }, 0, 4_096);
    let plain = (0x8a, 0, 0, 8, 4_096);
    assert_eq!(commands(&terms(|facts| facts.fua = true), &mut write()), [(0x8a, 8, 0, 8, 4_096)]);
    assert_eq!(commands(&terms(|_| ()), &mut write()), [plain, (0x91, 0, 0, 0, 0)]);
    assert_eq!(commands(&terms(|facts| facts.write_cache = false), &mut write()), [plain]);
    assert_eq!(commands(&terms(|_| ()), &mut operation(Work::Sync, 0, 0)), [(0x91, 0, 0, 0, 0)]);
    let cached = terms(|facts| facts.write_cache = false);
    assert_eq!(commands(&cached, &mut operation(Work::Sync, 0, 0)), []);
}

/// What is given back must read as zeroes: it is unmapped where the unit promises that, and zeroed
/// elsewhere.
#[test]
fn what_is_given_back_reads_as_zeroes() {
    let discard = |terms: &Terms, blocks: u64| {
        commands(terms, &mut operation(Work::Discard, 8 * 512, blocks * 512))
    };
    let both = terms(|facts| (facts.zeroes, facts.unmaps_by_write_same) = (true, true));
    assert_eq!(discard(&both, 16), [(0x93, 8, 8, 16, 512)]);
    let unmap = |facts: &mut Facts| (facts.zeroes, facts.unmap_blocks) = (true, Some(1 << 20));
    assert_eq!(discard(&terms(unmap), 16)[0].0, 0x42);
    let coarse = terms(|facts| {
        unmap(facts);
        facts.granularity = (16, 0);
    });
    assert_eq!(discard(&coarse, 16), [(0x93, 0, 8, 16, 512)]);
    let unsure = terms(|facts| facts.unmap_blocks = Some(1 << 20));
    assert_eq!(discard(&unsure, 16), [(0x93, 0, 8, 16, 512)]);
}

/// A command that the unit does not know is sent in another form, once each.
#[test]
fn refused_commands_are_said_another_way() {
    let mut terms = terms(|facts| facts.fua = true);
    let mut zero = operation(Work::Zero, 0, 1 << 20);
    assert_eq!(zero.next(&terms).unwrap().cdb[0], 0x93);
    assert!(zero.reword(&mut terms));
    let order = zero.next(&terms).unwrap();
    assert_eq!((order.cdb[0], order.cdb[13]), (0x8a, 128), "64 KiB of zeroes");
    assert!(zero.reword(&mut terms), "the short form is left");
    assert_eq!(zero.next(&terms).unwrap().cdb[0], 0x2a);
    assert!(!zero.reword(&mut terms), "nothing is left");
    let mut sync = operation(Work::Sync, 0, 0);
    assert_eq!(sync.next(&terms).unwrap().cdb[0], 0x91);
    assert!(sync.reword(&mut terms));
    assert_eq!(sync.next(&terms).unwrap().cdb[0], 0x35);
    assert!(!sync.reword(&mut terms));
}

/// Data of a read is taken in order and never past its end; what is not whole is known not to be.
#[test]
fn data_comes_in_order() {
    let mut pool = Pool::new(1 << 20);
    let buffer = pool.take(4_096).unwrap();
    let mut read = operation(Work::Read { buffer: buffer.clone(), at: 0 }, 0, 1_024);
    read.next(&terms(|_| ())).unwrap();
    assert_eq!(read.fill(512, &[1; 512]), None, "a gap");
    assert_eq!(read.fill(0, &[1; 512]), Some(()));
    assert!(!read.is_whole());
    assert_eq!(read.fill(512, &[2; 513]), None, "too much");
    assert_eq!(read.fill(512, &[2; 512]), Some(()));
    assert!(read.is_whole());
    read.into_io();
    assert_eq!(buffer.bytes()[..1_024], [[1; 512], [2; 512]].concat());
}
