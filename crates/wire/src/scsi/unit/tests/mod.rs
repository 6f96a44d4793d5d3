//! A logical unit seen through its CDBs.

mod facts;
mod media;
mod state;

use super::*;
use crate::scsi::cdb::{Compare, MediaOp};
use crate::scsi::disk::execute_absent;
use crate::scsi::nexus::InitiatorPort;

const PORT: Port<'_> =
    Port { iqn: "iqn.2026-01.test.weir:disk", portal_group: 1, relative: 1, units: &[0, 1] };

fn disk() -> DiskInfo {
    DiskInfo {
        blocks: 131_072,
        serial: "weir-0001".to_owned(),
        id: 0xf123_4567_89ab_cdef,
        write_cache: true,
        max_transfer_blocks: 2048,
        max_write_same_blocks: 65_536,
        ..DiskInfo::default()
    }
}

fn thin() -> DiskInfo {
    DiskInfo { thin: true, ..disk() }
}

/// Has everything that a disk can have.
fn full() -> DiskInfo {
    DiskInfo { removable: true, sanitize: true, max_atomic_blocks: 256, ..thin() }
}

fn nexus(name: &str) -> Nexus {
    let initiator = InitiatorPort { name: name.to_owned(), isid: [0; 6] };
    Nexus { initiator, target: PORT.iqn.to_owned() }
}

fn quiet() -> UnitAttention {
    let mut attention = UnitAttention::new();
    attention.take();
    attention
}

fn padded(bytes: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

/// One command of initiator `name` that no unit attention waits for.
fn send(unit: &mut Unit, name: &str, bytes: &[u8]) -> Result<Action, Refusal> {
    unit.execute(&nexus(name), &PORT, &mut quiet(), &padded(bytes))
}

/// The first command of a new unit.
fn run(disk: &DiskInfo, bytes: &[u8]) -> Result<Action, Refusal> {
    send(&mut Unit::new(disk.clone()), "a", bytes)
}

/// A command with its parameter list.
fn send_list(unit: &mut Unit, name: &str, bytes: &[u8], list: &[u8]) -> Result<Outcome, Refusal> {
    match send(unit, name, bytes)? {
        Action::Parameters(announced) => {
            assert_eq!(announced.length() as usize, list.len());
            unit.parameters(&nexus(name), announced, list)
        }
        other => panic!("a parameter list expected: {other:?}"),
    }
}

fn bytes_of(action: Result<Action, Refusal>) -> Vec<u8> {
    match action {
        Ok(Action::Data(data)) => data,
        other => panic!("data expected: {other:?}"),
    }
}

fn data(disk: &DiskInfo, bytes: &[u8]) -> Vec<u8> {
    bytes_of(run(disk, bytes))
}

fn check<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Sense {
    match result {
        Err(Refusal::Check(sense)) => sense,
        other => panic!("sense data expected: {other:?}"),
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> (u8, u8, u8) {
    let sense = check(result);
    (sense.key as u8, sense.asc, sense.ascq)
}

fn media(disk: &DiskInfo, bytes: &[u8]) -> Result<(u64, u64), (u8, u8)> {
    match run(disk, bytes) {
        Ok(Action::Media(media)) => Ok((media.lba, media.blocks)),
        Err(Refusal::Check(sense)) => Err((sense.asc, sense.ascq)),
        other => panic!("a media command expected: {other:?}"),
    }
}

/// It was done, and no other initiator is notified.
fn is_done(result: &Result<Action, Refusal>) -> bool {
    *result == Ok(Action::done())
}
