//! What takes many requests: copies between volumes, and the destruction of all data.

use crate::gateway::commands::{
    EXCLUSIVE_ACCESS, READY, REGISTER, RESERVE, Reserve, SANITIZE_IN_PROGRESS, extended_copy,
    overwrite,
};
use crate::gateway::initiator::{GOOD, Login, Session, Transfer, read16, synchronize16, write16};
use crate::gateway::{Chance, Gateway, folder};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const MIB: usize = 1 << 20;

const CONTROL: &str = "[control]\nsocket = \"c.sock\"\n";

/// Two volumes as two units of one target; `more` is said of the second.
fn two_units(more: &str) -> String {
    format!(
        r#"
[[volume]]
name = "disk"
file = "disk.img"
size = "64MiB"
sanitize = true
[[volume]]
name = "other"
file = "other.img"
size = "64MiB"
{more}
[[target]]
name = "iqn.2026-11.org.example:disk"
luns = {{ 0 = "disk", 1 = "other" }}
"#
    )
}

/// The names of the two units, as the host that sees both knows them.
fn names(session: &mut Session) -> [Vec<u8>; 2] {
    let names = [0, 1].map(|lun| {
        session.lun = lun;
        session.copy_name()
    });
    session.lun = 0;
    names
}

/// A copy from one volume to another is the same byte for byte, and touches nothing beside it.
#[test]
fn a_copy_is_the_same() {
    let mut gateway = Gateway::start(&folder("copy"), &two_units(""), &[]);
    let mut session = gateway.session("one");
    let names = names(&mut session);
    let data = Chance(1).bytes(5 * MIB + 512);
    for (index, piece) in data.chunks(MIB).enumerate() {
        session.write((index * MIB) as u64 + 1024, piece);
    }
    let (cdb, list) = extended_copy(&names, 1024, 3584, data.len());
    session.execute(cdb, list).good();
    let copied = gateway.stored("other.img", 0, 6 * MIB);
    assert!(copied[3584..3584 + data.len()] == data);
    assert!(copied[..3584].iter().all(|&byte| byte == 0), "nothing in front");
    assert!(copied[3584 + data.len()..].iter().all(|&byte| byte == 0), "nothing behind");
    assert!(gateway.stored("disk.img", 1024, data.len()) == data, "the source is as it was");
    let mut session = session.at(1);
    assert!(session.read(3584, MIB) == data[..MIB]);
    gateway.stop();
}

/// What a copy writes into a volume with a log counts as written by the host that has asked for it, which flushes:
/// write-back stays out of strict order.
#[test]
fn a_log_knows_whose_copy_it_is() {
    let log = "log = \"other.log\"\nlog_size = \"32MiB\"";
    let config = two_units(log) + "[control]\nsocket = \"c.sock\"\n";
    let gateway = Gateway::start(&folder("copy-log"), &config, &[]);
    let _earlier = gateway.session("earlier");
    let mut session = gateway.session("one");
    let names = names(&mut session);
    let data = Chance(2).bytes(MIB);
    session.write(0, &data);
    session.lun = 1;
    assert_eq!(session.sense_of(READY, Transfer::None), (0x6, 0x29, 0x00));
    session.execute(synchronize16(), Transfer::None).good();
    session.lun = 0;
    let (cdb, list) = extended_copy(&names, 0, 4096, MIB);
    session.execute(cdb, list).good();
    session.lun = 1;
    assert!(session.read(4096, MIB) == data);
    let status = gateway.asked(&["volume", "status", "other"]);
    assert_eq!(status["volumes"][0]["log"]["strict"], false, "{status}");
}

/// A copy inside one volume whose ranges overlap leaves what the source held, whichever way it goes.
#[test]
fn an_overlapping_copy_is_right() {
    let mut gateway = Gateway::start(&folder("overlap"), &two_units(""), &[]);
    let mut session = gateway.session("one");
    let [name, _] = names(&mut session);
    let data = Chance(2).bytes(4 * MIB);
    for (from, to) in [(MIB as u64, MIB as u64 + 512), (2 * MIB as u64, MIB as u64 + 4096)] {
        for (index, piece) in data.chunks(MIB).enumerate() {
            session.write(from + (index * MIB) as u64, piece);
        }
        let (cdb, list) = extended_copy(std::slice::from_ref(&name), from, to, data.len());
        session.execute(cdb, list).good();
        assert!(gateway.stored("disk.img", to, data.len()) == data, "{from} to {to}");
    }
    gateway.stop();
}

/// A copy to or from a volume that another host has reserved, or that this host may not see, ends
/// with COPY ABORTED and writes nothing.
#[test]
fn a_copy_keeps_out_of_what_is_closed() {
    let more = "initiators = [\"iqn.2026-11.org.example.host:friend\"]";
    let mut gateway = Gateway::start(&folder("closed"), &two_units(more), &[]);
    let mut friend = gateway.session("friend");
    friend.write(0, &[1; 4096]);
    let names = names(&mut friend);
    let back = [names[1].clone(), names[0].clone()];
    let mut stranger = gateway.session("stranger");
    for names in [&names, &back] {
        let (cdb, list) = extended_copy(names, 0, 4096, 4096);
        assert_eq!(stranger.sense_of(cdb, list), (0xa, 0x08, 0x04), "there is no such volume");
    }
    // The friend may copy, until the stranger reserves what it would read.
    let (cdb, list) = extended_copy(&names, 0, 0, 4096);
    friend.execute(cdb, list).good();
    let register = Reserve { action: REGISTER, other: 5, ..Reserve::default() };
    assert_eq!(stranger.reserve(register), GOOD);
    let reserve = Reserve { action: RESERVE, kind: EXCLUSIVE_ACCESS, key: 5, ..register };
    assert_eq!(stranger.reserve(reserve), GOOD);
    friend.lun = 1;
    assert_eq!(friend.sense_of(READY, Transfer::None), (0x6, 0x29, 0x00));
    for names in [&names, &back] {
        let (cdb, list) = extended_copy(names, 0, 8192, 4096);
        assert_eq!(friend.sense_of(cdb, list), (0xa, 0x0d, 0x01), "a disk of the copy refused");
    }
    assert!(gateway.stored("other.img", 4096, 8192) == [0; 8192]);
    assert!(gateway.stored("disk.img", 4096, 8192) == [0; 8192]);
    gateway.stop();
}

/// Makes the first disk of `two_units` with this number of MiB, all of them allocated.
fn allocate(folder: &Path, mebibytes: usize) {
    std::fs::write(folder.join("disk.img"), vec![0; mebibytes << 20]).unwrap();
}

/// SANITIZE by overwriting writes the blocks that are allocated and allocates no other: a hole has no data.
#[test]
fn a_sparse_volume_stays_sparse() {
    let mut gateway = Gateway::start(&folder("sanitize-sparse"), &two_units(""), &[]);
    let mut session = gateway.session("one");
    for offset in [0, 40 << 20, 63 << 20] {
        session.write(offset, &Chance(6).bytes(MIB));
    }
    for method in [overwrite(2, &[0xa5], false), overwrite(1, &[0x5a, 0x5a], false)] {
        let pattern = method.1.clone();
        let Transfer::Out(list) = pattern else { unreachable!("it has a parameter list") };
        session.execute(method.0, method.1).good();
        for megabyte in 0..64 {
            let written = [0, 40, 63].contains(&megabyte);
            let expected = if written { list[4] } else { 0 };
            let stored = gateway.stored("disk.img", megabyte << 20, MIB);
            assert!(stored.iter().all(|&byte| byte == expected), "MiB {megabyte}");
        }
        let image = gateway.folder.join("disk.img").metadata().unwrap();
        assert!(image.blocks() * 512 < 4 << 20, "{} blocks", image.blocks());
    }
    gateway.stop();
}

/// SANITIZE by overwriting of a sparse volume on two files is refused, with the bytes that it would take in the log;
/// the volume stays in service.
#[test]
fn a_sparse_volume_on_two_files_is_not_overwritten() {
    let config = two_units("").replacen(
        "file = \"disk.img\"\nsize = \"64MiB\"",
        "stores = [\"left\", \"right\"]\nlayout = \"concat\"\nstate = \"disk.state\"",
        1,
    );
    let store = |name: &str| {
        format!("[[store]]\nname = \"{name}\"\nfile = \"{name}.img\"\nsize = \"32MiB\"\n")
    };
    let config = [store("left"), store("right"), config].concat();
    let mut gateway = Gateway::start(&folder("sanitize-two-files"), &config, &[]);
    let mut session = gateway.session("one");
    session.write(0, &Chance(7).bytes(MIB));
    let (cdb, list) = overwrite(1, &[0xa5], false);
    assert_eq!(session.sense_of(cdb, list), (0x7, 0x27, 0x07), "space allocation failed");
    gateway.logged(&["sanitize refused", "unallocated=63 MiB"]);
    assert!(session.read(0, MIB) == Chance(7).bytes(MIB));
    gateway.stop();
}

/// SANITIZE leaves its pattern in every block, for the next reader.
#[test]
fn a_pattern_is_everywhere() {
    let folder = folder("pattern");
    allocate(&folder, 64);
    let mut gateway = Gateway::start(&folder, &two_units(""), &[]);
    let mut session = gateway.session("one");
    session.write(0, &Chance(3).bytes(MIB));
    session.write(63 << 20, &Chance(4).bytes(MIB));
    let (cdb, list) = overwrite(1, &[0xa5, 0x5a, 0x11], false);
    session.execute(cdb, list).good();
    session.execute(READY, Transfer::None).good();
    let block: Vec<u8> = [0xa5, 0x5a, 0x11].into_iter().cycle().take(512).collect();
    let stored = gateway.stored("disk.img", 0, 64 * MIB);
    assert!(stored.chunks(512).all(|found| found == block));
    assert!(session.read(0, 512) == block);
    gateway.stop();
}

/// A sanitize continues when the gateway is killed in the middle of it and started again: until it is
/// done the volume serves nothing, then the pattern is everywhere.
#[test]
fn a_sanitize_survives_a_crash() {
    let folder = folder("sanitize-crash");
    allocate(&folder, 192);
    let config = two_units("").replacen("64MiB", "192MiB", 1);
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let mut session = gateway.session("one");
    let secret = Chance(5).bytes(MIB);
    session.write(191 << 20, &secret);
    let (cdb, list) = overwrite(4, &[0x77], true);
    session.execute(cdb, list).good();
    assert_eq!(session.sense_of(READY, Transfer::None), SANITIZE_IN_PROGRESS);
    gateway.kill();
    assert!(gateway.stored("disk.img", 191 << 20, MIB) == secret, "it was in the middle");
    let mut gateway = Gateway::start(&folder, &config, &[]);
    gateway.logged(&["sanitize continues after the restart"]);
    let mut session = Login::of("one").connect(gateway.portal).unwrap();
    assert_eq!(session.sense_of(READY, Transfer::None), (0x6, 0x29, 0x00));
    let read = session.sense_of(read16(0, 512), Transfer::In(512));
    assert_eq!(read, SANITIZE_IN_PROGRESS);
    let write = session.sense_of(write16(0, 512, false), Transfer::Out(vec![1; 512]));
    assert_eq!(write, SANITIZE_IN_PROGRESS);
    // The other volume is not concerned.
    let mut other = Login::of("two").connect(gateway.portal).unwrap().at(1);
    other.write(0, &[1; 512]);
    session.until_sanitized();
    for megabyte in 0..192 {
        let stored = gateway.stored("disk.img", megabyte << 20, MIB);
        assert!(stored.iter().all(|&byte| byte == 0x77), "MiB {megabyte}");
    }
    session.write(0, &[1; 512]);
    gateway.stop();
    // What has ended does not come again.
    let mut gateway = Gateway::start(&folder, &config, &[]);
    assert!(gateway.session("one").read(0, 512) == [1; 512]);
    gateway.stop();
}

/// A volume that is being sanitized is not taken away, not even by force.
#[test]
fn a_volume_that_is_sanitized_stays() {
    let folder = folder("sanitize-stays");
    allocate(&folder, 192);
    let config = format!("{CONTROL}{}", two_units("").replacen("64MiB", "192MiB", 1));
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let mut session = gateway.session("one");
    let (cdb, list) = overwrite(16, &[0x77], true);
    session.execute(cdb, list).good();
    let (_, other) = config.split_once("[[volume]]\nname = \"other\"").unwrap();
    let without = format!("{CONTROL}[[volume]]\nname = \"other\"{other}");
    let without = without.replace("0 = \"disk\", ", "");
    std::fs::write(folder.join("weir.toml"), without).unwrap();
    let refused = gateway.command(&["reload", "--force"]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("volume `disk` is in use by a SANITIZE"), "{told}");
    assert_eq!(session.sense_of(READY, Transfer::None), SANITIZE_IN_PROGRESS);
    gateway.kill();
}

/// A copy holds the volumes that it names: another one that its host saw goes meanwhile.
#[test]
fn a_copy_holds_no_other_volume() {
    let backend =
        "[[backend]]\nname = \"slow\"\nmodel = \"fixed\"\nservice = \"500ms\"\nservers = 1\n";
    let slow = format!("{CONTROL}{backend}{}", two_units("backend = \"slow\""));
    let third = "[[volume]]\nname = \"third\"\nfile = \"third.img\"\nsize = \"1MiB\"\n";
    let unmapped = slow.clone() + third;
    let mapped = unmapped.replace("1 = \"other\"", "1 = \"other\", 2 = \"third\"");
    let mut gateway = Gateway::start(&folder("copy-others"), &mapped, &[]);
    let mut session = gateway.session("one");
    let names = names(&mut session);
    let (cdb, list) = extended_copy(&names, 0, 0, 31 * MIB);
    session.issue(cdb, list);
    session.ping();
    for config in [unmapped, slow] {
        std::fs::write(gateway.folder.join("weir.toml"), config).unwrap();
        gateway.asked(&["reload"]);
    }
    gateway.logged(&["volume removed", "third"]);
    assert_eq!(gateway.count("copy volume"), 0, "the copy continues: {}", gateway.log());
    gateway.kill();
}

/// ABORT TASK of a SANITIZE command returns while the sanitize continues, and no status comes for it.
#[test]
fn an_aborted_sanitize_goes_on() {
    let folder = folder("sanitize-abort");
    allocate(&folder, 64);
    let mut gateway = Gateway::start(&folder, &two_units(""), &[]);
    let mut session = gateway.session("one");
    let (cdb, list) = overwrite(16, &[0x42], false);
    let itt = session.issue(cdb, list);
    session.ping();
    assert_eq!(session.manage(1, 0, itt), 0, "function complete");
    session.forget(itt);
    assert!(session.until_sanitized(), "it was going on");
    let stored = gateway.stored("disk.img", 0, 64 * MIB);
    assert!(stored.iter().all(|&byte| byte == 0x42));
    session.ping();
    gateway.stop();
}
