//! Media that come and go, and what is known of the blocks on them.

use crate::gateway::commands::{READY, load, prevent};
use crate::gateway::initiator::{Transfer, WAS_RESET, read16, unmap};
use crate::gateway::recorded::RECORDED;
use crate::gateway::{Gateway, ONE_DISK, folder};
use weir_flow::request::Op;

const NOT_PRESENT: (u8, u8, u8) = (0x2, 0x3a, 0x00);
const PREVENTED: (u8, u8, u8) = (0x5, 0x53, 0x02);

/// `ONE_DISK` that can be ejected.
fn removable() -> String {
    ONE_DISK.replace("[[target]]", "removable = true\n[[target]]")
}

/// A medium is not ejected while any host prevents it. When it is out there is none, for every host;
/// when it is back, the others learn that it may be another one. What was written is there.
#[test]
fn a_medium_is_ejected_and_loaded() {
    let mut gateway = Gateway::start(&folder("eject"), &removable(), &[]);
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    assert_eq!(one.inquiry(None)[1] & 0x80, 0x80, "it says that it is removable");
    one.write(0, &[1; 4096]);
    two.execute(prevent(true), Transfer::None).good();
    assert_eq!(one.sense_of(load(false), Transfer::None), PREVENTED);
    one.execute(READY, Transfer::None).good();
    two.execute(prevent(false), Transfer::None).good();
    one.execute(load(false), Transfer::None).good();
    for session in [&mut one, &mut two] {
        assert_eq!(session.sense_of(READY, Transfer::None), NOT_PRESENT);
        assert_eq!(session.sense_of(read16(0, 512), Transfer::In(512)), NOT_PRESENT);
    }
    one.execute(load(true), Transfer::None).good();
    one.execute(READY, Transfer::None).good();
    assert_eq!(two.sense_of(READY, Transfer::None), (0x6, 0x28, 0x00));
    assert!(two.read(0, 4096) == [1; 4096]);
    gateway.stop();
}

/// What is written is flushed before the medium is out, though no host has asked for it.
#[test]
fn an_ejected_medium_is_durable() {
    let mut gateway = Gateway::start(&folder("eject-flush"), &removable(), RECORDED);
    let mut one = gateway.session("one");
    one.write(0, &[1; 4096]);
    one.execute(load(false), Transfer::None).good();
    assert_eq!(gateway.stop_and_tell(), [(Op::Write, false), (Op::Flush, false)]);
}

/// Who prevented the removal and is gone prevents it no longer; nor does a reset leave it so, and it
/// loads the medium again.
#[test]
fn prevention_ends_with_its_host() {
    let mut gateway = Gateway::start(&folder("prevent"), &removable(), &[]);
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    two.execute(prevent(true), Transfer::None).good();
    two.logout();
    one.execute(load(false), Transfer::None).good();
    assert_eq!(one.sense_of(READY, Transfer::None), NOT_PRESENT);
    assert_eq!(one.manage(5, 0, u32::MAX), 0, "LOGICAL UNIT RESET");
    assert_eq!(one.sense_of(READY, Transfer::None), WAS_RESET);
    one.execute(READY, Transfer::None).good();
    gateway.stop();
}

/// A disk that cannot be removed is neither ejected nor locked.
#[test]
fn a_fixed_disk_stays() {
    let mut gateway = Gateway::with_one_disk("fixed");
    let mut one = gateway.session("one");
    assert_eq!(one.inquiry(None)[1] & 0x80, 0);
    assert_eq!(one.sense_of(load(false), Transfer::None), (0x5, 0x24, 0x00));
    assert_eq!(one.sense_of(prevent(true), Transfer::None), (0x5, 0x20, 0x00));
    one.execute(READY, Transfer::None).good();
    gateway.stop();
}

/// GET LBA STATUS tells what was written from what was not, and what was given back is not there
/// any more.
#[test]
fn mapped_blocks_are_told() {
    let mut gateway = Gateway::with_one_disk("mapped");
    let mut one = gateway.session("one");
    assert_eq!(one.mapped(0), [(0, 64 << 20, false)], "nothing was written");
    one.write(1 << 20, &vec![1; 65_536]);
    one.write(3 << 20, &vec![2; 65_536]);
    let written = [
        (0, 1 << 20, false),
        (1 << 20, 65_536, true),
        ((1 << 20) + 65_536, (2 << 20) - 65_536, false),
        (3 << 20, 65_536, true),
        ((3 << 20) + 65_536, (61 << 20) - 65_536, false),
    ];
    assert_eq!(one.mapped(0), written);
    assert_eq!(one.mapped(3 << 20), written[3..]);
    let (cdb, list) = unmap(1 << 20, 65_536);
    one.execute(cdb, Transfer::Out(list)).good();
    assert_eq!(one.mapped(0), [(0, 3 << 20, false), written[3], written[4]]);
    gateway.stop();
}
