//! Reservations: what they keep others from, and that they are kept.

use crate::gateway::commands::{
    EXCLUSIVE_ACCESS, PREEMPT_AND_ABORT, READY, REGISTER, RESERVE, Reserve, WRITE_EXCLUSIVE,
    WRITE_EXCLUSIVE_REGISTRANTS_ONLY, cdb, overwrite,
};
use crate::gateway::initiator::{
    GOOD, Login, RESERVATION_CONFLICT, Session, Transfer, read16, until_closed, write16,
};
use crate::gateway::{Chance, Gateway, ONE_DISK, eventually, folder, weir};
use std::path::Path;

/// INSUFFICIENT REGISTRATION RESOURCES.
const NO_RESOURCES: (u8, u8, u8) = (0x5, 0x55, 0x04);

const ONE: u64 = 0x0a0a;
const TWO: u64 = 0x0b0b;

/// Registers a key.
const fn register(key: u64, survives: bool) -> Reserve {
    Reserve { action: REGISTER, kind: 0, key: 0, other: key, survives }
}

/// Reserves the unit.
const fn take(kind: u8, key: u64) -> Reserve {
    Reserve { action: RESERVE, kind, key, other: 0, survives: false }
}

/// The status of a write of one block.
fn write(session: &mut Session, byte: u8) -> u8 {
    session.execute(write16(0, 512, false), Transfer::Out(vec![byte; 512])).status
}

/// The exit code and the complaint of a gateway that cannot start in this folder.
fn refused(folder: &Path) -> (Option<i32>, String) {
    let arguments = ["serve", "weir.toml", "--listen", "127.0.0.1:0"];
    let output = weir(folder, &arguments).output().unwrap();
    assert!(output.stdout.is_empty(), "it is not ready");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// A reservation with APTPL stands in the way of others before and after the gateway is killed and
/// started again, for the same holder, until it is released.
#[test]
fn a_reservation_survives_a_crash() {
    let folder = folder("aptpl");
    let mut gateway = Gateway::start(&folder, ONE_DISK, &[]);
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    assert_eq!(one.reserve(register(ONE, true)), GOOD);
    assert_eq!(two.reserve(register(TWO, true)), GOOD);
    assert_eq!(one.reserve(take(EXCLUSIVE_ACCESS, ONE)), GOOD);
    assert_eq!((write(&mut one, 1), write(&mut two, 2)), (GOOD, RESERVATION_CONFLICT));
    gateway.kill();
    let mut gateway = Gateway::start(&folder, ONE_DISK, &[]);
    let mut two = gateway.session_reserved("two");
    assert_eq!(write(&mut two, 2), RESERVATION_CONFLICT);
    let read = two.execute(read16(0, 512), Transfer::In(512));
    assert_eq!(read.status, RESERVATION_CONFLICT);
    let mut one = gateway.session("one");
    assert_eq!(one.keys(), [ONE, TWO]);
    assert_eq!(write(&mut one, 3), GOOD);
    let release = Reserve { action: 2, ..take(EXCLUSIVE_ACCESS, ONE) };
    assert_eq!(one.reserve(release), GOOD);
    assert_eq!(write(&mut two, 4), GOOD);
    gateway.kill();
    // The release was kept as well.
    let mut gateway = Gateway::start(&folder, ONE_DISK, &[]);
    let mut two = gateway.session("two");
    assert_eq!((write(&mut two, 5), two.keys()), (GOOD, vec![ONE, TWO]));
    gateway.stop();
}

/// Without APTPL nothing of a reservation is there after a restart.
#[test]
fn a_reservation_without_aptpl_is_forgotten() {
    let folder = folder("no-aptpl");
    let mut gateway = Gateway::start(&folder, ONE_DISK, &[]);
    let mut one = gateway.session("one");
    assert_eq!(one.reserve(register(ONE, false)), GOOD);
    assert_eq!(one.reserve(take(WRITE_EXCLUSIVE, ONE)), GOOD);
    gateway.kill();
    let mut gateway = Gateway::start(&folder, ONE_DISK, &[]);
    let mut two = gateway.session("two");
    assert_eq!((write(&mut two, 2), two.keys()), (GOOD, vec![]));
    gateway.stop();
}

/// A state file with one wrong bit, cut short or foreign ends the start with 6 and a message that
/// names the volume and the file; the file stays as it is.
#[test]
fn a_damaged_state_is_told() {
    let folder = folder("damaged-state");
    let mut gateway = Gateway::start(&folder, ONE_DISK, &[]);
    assert_eq!(gateway.session("one").reserve(register(ONE, true)), GOOD);
    gateway.stop();
    let state = folder.join("disk.img.state");
    let good = std::fs::read(&state).unwrap();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    for bad in [flipped, good[..good.len() - 1].to_vec(), b"something else".to_vec()] {
        std::fs::write(&state, &bad).unwrap();
        let (code, told) = refused(&folder);
        assert_eq!(code, Some(6), "{told}");
        for part in ["volume `disk`", "disk.img.state", "move it away"] {
            assert!(told.contains(part), "{told}");
        }
        assert_eq!(std::fs::read(&state).unwrap(), bad);
    }
    std::fs::write(&state, good).unwrap();
    let mut gateway = Gateway::start(&folder, ONE_DISK, &[]);
    assert_eq!(gateway.session("one").keys(), [ONE]);
    gateway.stop();
}

/// What must survive and cannot be written is refused with INSUFFICIENT REGISTRATION RESOURCES, and
/// changes nothing, neither now nor after a restart; when the file can be written again, it works.
#[test]
fn a_state_that_cannot_be_written_is_refused() {
    let folder = folder("unwritable");
    let config = ONE_DISK.replace("[[target]]", "state = \"states/disk\"\n[[target]]");
    std::fs::create_dir(folder.join("states")).unwrap();
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    assert_eq!(one.reserve(register(ONE, true)), GOOD);
    std::fs::rename(folder.join("states"), folder.join("away")).unwrap();
    std::fs::write(folder.join("states"), "in the way").unwrap();
    let (cdb, list) = register(TWO, true).command();
    assert_eq!(two.sense_of(cdb, list), NO_RESOURCES);
    let (cdb, list) = take(EXCLUSIVE_ACCESS, ONE).command();
    assert_eq!(one.sense_of(cdb, list), NO_RESOURCES);
    gateway.logged(&["reservations cannot be saved", "states/disk"]);
    assert_eq!((one.keys(), write(&mut two, 1)), (vec![ONE], GOOD));
    std::fs::remove_file(folder.join("states")).unwrap();
    std::fs::rename(folder.join("away"), folder.join("states")).unwrap();
    gateway.kill();
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    assert_eq!((one.keys(), write(&mut two, 1)), (vec![ONE], GOOD));
    assert_eq!(two.reserve(register(TWO, true)), GOOD);
    gateway.stop();
}

/// PREEMPT AND ABORT ends when the victim's writes that are at the device have ended: from then on
/// nothing of them lands, and the victim hears of none of them.
#[test]
fn preempt_and_abort_waits_for_the_device() {
    let mut gateway = Gateway::with_one_disk("preempt");
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    assert_eq!(one.reserve(register(ONE, false)), GOOD);
    let mut caught = 0;
    for round in 1..=20_u8 {
        assert_eq!(two.reserve(register(TWO, false)), GOOD);
        assert_eq!(two.reserve(take(WRITE_EXCLUSIVE_REGISTRANTS_ONLY, TWO)), GOOD);
        for i in 0..8_u64 {
            two.issue(write16(i << 18, 1 << 18, false), Transfer::Out(vec![round; 1 << 18]));
        }
        // The echo says that the gateway has all commands; their data is in flight.
        two.ping();
        let preempt = Reserve { action: PREEMPT_AND_ABORT, other: TWO, ..take(5, ONE) };
        assert_eq!(one.reserve(preempt), GOOD);
        let marked = Chance(round.into()).bytes(8 << 18);
        one.write(0, &marked);
        // A status that is not here before the answer to this never comes: a conflict, for the
        // victim's key is gone, behind the unit attention for that.
        assert_eq!(two.sense_of(READY, Transfer::None), (0x6, 0x2a, 0x05));
        for itt in two.outstanding() {
            two.forget(itt);
            caught += 1;
        }
        assert_eq!(write(&mut two, 99), RESERVATION_CONFLICT);
        assert!(one.read(0, marked.len()) == marked, "no aborted write comes late");
        assert!(gateway.stored("disk.img", 0, marked.len()) == marked);
        assert_eq!(one.reserve(Reserve { action: 2, ..take(5, ONE) }), GOOD);
        // A registrant that is left hears that the reservation is gone; the victim is none.
        two.execute(READY, Transfer::None).good();
    }
    assert!(caught > 0, "some writes were caught on their way");
    gateway.stop();
}

/// RESERVE(6) keeps others out until its holder's connection is gone.
#[test]
fn an_old_reservation_ends_with_its_session() {
    let mut gateway = Gateway::with_one_disk("reserve6");
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    one.execute(cdb(&[0x16]), Transfer::None).good();
    assert_eq!((write(&mut one, 1), write(&mut two, 2)), (GOOD, RESERVATION_CONFLICT));
    // Another host cannot release it.
    two.execute(cdb(&[0x17]), Transfer::None).good();
    assert_eq!(write(&mut two, 2), RESERVATION_CONFLICT);
    one.socket.shutdown(std::net::Shutdown::Write).unwrap();
    until_closed(&mut one.socket);
    eventually("end of the reservation", || (write(&mut two, 3) == GOOD).then_some(()));
    gateway.stop();
}

/// A change that is being made durable is not undone by another change of the same file: a SANITIZE
/// right behind a registration keeps it, also when the gateway is killed in the middle.
#[test]
fn a_sanitize_keeps_what_is_being_saved() {
    let folder = folder("behind");
    let config = ONE_DISK.replace("[[target]]", "sanitize = true\n[[target]]");
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let mut one = gateway.session("one");
    let (cdb, list) = register(ONE, true).command();
    let registers = one.issue(cdb, list);
    let (cdb, list) = overwrite(16, &[7], true);
    let sanitizes = one.issue(cdb, list);
    one.wait(registers).good();
    one.wait(sanitizes).good();
    gateway.kill();
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let mut one = gateway.session_reserved("one");
    one.until_sanitized();
    assert_eq!(one.keys(), [ONE]);
    gateway.stop();
}

/// RESERVE(6) right behind a registration that is being saved is refused, or it holds.
#[test]
fn an_old_reservation_is_not_lost() {
    let mut gateway = Gateway::with_one_disk("mixed");
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    let (register, list) = register(ONE, true).command();
    let registers = one.issue(register, list);
    let reserves = one.issue(cdb(&[0x16]), Transfer::None);
    one.wait(registers);
    if one.wait(reserves).status == GOOD {
        assert_eq!(write(&mut two, 2), RESERVATION_CONFLICT, "it was told that it has the unit");
    }
    gateway.stop();
}

impl Gateway {
    /// A session of a host for which the unit is reserved by another one.
    fn session_reserved(&self, host: &'static str) -> Session {
        let mut session = Login::of(host).connect(self.portal).unwrap();
        assert_eq!(session.sense_of(READY, Transfer::None), (0x6, 0x29, 0x00));
        session
    }
}
