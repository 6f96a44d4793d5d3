//! Hosts that stretch the rules of write data, ask for more than there is, or reset what others use:
//! each command is answered once, and no other host loses anything by it.

use crate::gateway::initiator::{
    BLOCK, GOOD, IMMEDIATE, Login, Session, TASK_SET_FULL, Transfer, read16, unmap, until_closed,
    write_same16, write16,
};
use crate::gateway::pdu::{NO_TAG, Pdu, opcode};
use crate::gateway::witness::Witness;
use crate::gateway::{Chance, Gateway, ONE_DISK, TWO_DISKS, eventually, folder, weir};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

const MIB: usize = 1 << 20;

/// UNIT ATTENTION, the sense key.
const ATTENTION: u8 = 0x6;

/// COMMANDS CLEARED BY ANOTHER INITIATOR.
const CLEARED: (u8, u8, u8) = (ATTENTION, 0x2f, 0x00);

/// Task management functions (RFC 7143 section 11.5.1).
const ABORT_TASK: u8 = 1;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_COLD_RESET: u8 = 7;

/// A 10-byte command for a range in bytes.
fn cdb10(code: u8, flags: u8, offset: u64, length: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (code, flags);
    cdb[2..6].copy_from_slice(&((offset / BLOCK) as u32).to_be_bytes());
    cdb[7..9].copy_from_slice(&((length as u64 / BLOCK) as u16).to_be_bytes());
    cdb
}

/// VERIFY(16) of a range in bytes against as much data.
fn verify16(offset: u64, length: usize) -> [u8; 16] {
    let mut cdb = read16(offset, length);
    (cdb[0], cdb[1]) = (0x8f, 0x02);
    cdb
}

/// A command with W set and F clear: unsolicited data follows what it carries.
fn announcing(
    session: &mut Session,
    itt: u32,
    cdb: [u8; 16],
    length: usize,
    immediate: &[u8],
) -> Pdu {
    let pdu = Pdu::new(opcode::COMMAND, 0x20, itt).with(20, length as u32);
    let mut pdu = session.numbered(pdu);
    pdu.header[32..].copy_from_slice(&cdb);
    pdu.carrying(immediate)
}

/// A Data-Out PDU.
fn data_out(itt: u32, ttt: u32, number: u32, offset: usize, last: bool, data: &[u8]) -> Pdu {
    let pdu = Pdu::new(opcode::DATA_OUT, u8::from(last) << 7, itt).with(20, ttt);
    pdu.with(36, number).with(40, offset as u32).carrying(data)
}

/// Sends PDUs in one piece.
fn send_together(session: &mut Session, pdus: &[Pdu]) {
    let bytes: Vec<u8> = pdus.iter().flat_map(|pdu| pdu.encode(session.digests)).collect();
    session.send_raw(&bytes);
}

/// The next PDU, which must be the response to this command and carry no sense data.
fn response(session: &mut Session, itt: u32) -> Pdu {
    let pdu = Pdu::receive(&session.socket, session.digests).unwrap();
    assert_eq!((pdu.opcode(), pdu.itt()), (opcode::RESPONSE, itt));
    assert_eq!(pdu.field(24), session.exp_stat_sn);
    session.exp_stat_sn = session.exp_stat_sn.wrapping_add(1);
    assert!(pdu.data.is_empty(), "sense data: {:02x?}", pdu.data);
    pdu
}

/// Sends a write of which only the beginning comes: the rest is asked for and not sent. Returns its
/// tag and that of the R2T.
fn half_a_write(session: &mut Session, offset: u64, length: usize) -> (u32, u32) {
    let itt = session.new_itt();
    let data = Transfer::Out(vec![0xee; length]);
    let write = session.command(0, itt, write16(offset, length, false), &data);
    session.send(&write);
    let r2t = Pdu::receive(&session.socket, session.digests).unwrap();
    assert_eq!((r2t.opcode(), r2t.itt(), r2t.field(40)), (opcode::R2T, itt, 65_536));
    (itt, r2t.field(20))
}

/// Tries a command again while the task set is full, but not for ever.
fn in_the_end(session: &mut Session, cdb: [u8; 16], transfer: &Transfer) -> Vec<u8> {
    let ended = eventually("room for a command", || {
        let ended = session.execute(cdb, transfer.clone());
        (ended.status != TASK_SET_FULL).then_some(ended)
    });
    ended.good()
}

/// A witness with its own target, for tests that reset the target `disk`.
fn witness_elsewhere(gateway: &Gateway) -> Witness {
    let login = Login { target: "other", ..Login::of("witness") };
    Witness::start(login.connect(gateway.portal).unwrap().ready())
}

/// Ends a gateway after such a witness, whose data must be in its volume's file.
fn stop_after_elsewhere(mut gateway: Gateway, witness: Witness) {
    let (offset, expected) = witness.finish();
    gateway.stop();
    assert!(gateway.stored("other.img", offset, expected.len()) == expected, "stored as written");
}

/// Unsolicited data for a command that wants none, because its data is complete or because it is a
/// read, is discarded while the command runs: the command ends once, as if nothing had come.
#[test]
fn data_for_a_running_command_is_discarded() {
    let gateway = Gateway::with_one_disk("running");
    let witness = gateway.witness();
    let mut session = gateway.session("running");
    let (kept, stray) = (Chance(20).bytes(65_536), vec![0xee; 4096]);
    session.write(MIB as u64, &kept);
    for round in 0..100 {
        let data = Chance(round).bytes(65_536);
        let (write, read) = (session.new_itt(), session.new_itt());
        let (number, offset) = (round as u32 % 2, if round % 4 < 2 { 0 } else { 65_536 });
        let (out, into) = (Transfer::Out(data.clone()), Transfer::In(kept.len()));
        let pdus = [
            session.command(0, write, write16(0, data.len(), false), &out),
            data_out(write, NO_TAG, number, offset, true, &stray),
            session.command(0, read, read16(MIB as u64, kept.len()), &into),
            data_out(read, NO_TAG, number, offset, round % 8 < 4, &stray),
            data_out(write, NO_TAG, 0, 0, true, &[]),
        ];
        session.expect(write, out);
        session.expect(read, into);
        send_together(&mut session, &pdus);
        session.wait(write).good();
        assert!(session.wait(read).good() == kept, "round {round}");
        assert!(session.read(0, data.len()) == data, "round {round}");
        session.ping();
    }
    gateway.stop_after(witness);
}

/// A command that takes no write data, sent as one that has some: it is answered once, with whatever
/// status, and the data that it announced goes nowhere, whether it comes at once or later.
#[test]
fn data_announced_for_no_use_goes_nowhere() {
    let gateway = Gateway::with_one_disk("announced");
    let witness = gateway.witness();
    let mut session = gateway.session("announced");
    let old = Chance(21).bytes(65_536);
    session.write(0, &old);
    for round in 0..40 {
        for code in [0x2f, 0x28, 0x35] {
            let itt = session.new_itt();
            let command = announcing(&mut session, itt, cdb10(code, 0, 0, 4096), 4096, &[]);
            let data = data_out(itt, NO_TAG, 0, 0, true, &[0xee; 4096]);
            session.expect(itt, Transfer::None);
            if round % 2 == 0 {
                send_together(&mut session, &[command, data]);
            } else {
                session.send(&command);
                // The command had all the time that it could want before its data comes.
                session.ping();
                session.send(&data);
            }
            session.wait(itt);
            session.ping();
        }
        assert!(session.read(0, old.len()) == old, "round {round}");
    }
    assert!(session.outstanding().is_empty());
    gateway.stop_after(witness);
}

/// More write data than the command's block takes: what it takes is used, the rest is swallowed, and
/// the response counts it as residual underflow, for each command and each way to send it.
#[test]
fn surplus_data_is_swallowed() {
    const LENGTH: usize = 16_384;
    let gateway = Gateway::with_one_disk("surplus");
    let witness = gateway.witness();
    let mut session = gateway.session("surplus");
    let old = Chance(22).bytes(LENGTH);
    let new = Chance(23).bytes(LENGTH);
    let (unmap_cdb, mut list) = unmap(4096, 4096);
    let list_length = list.len();
    list.resize(LENGTH, 0xee);
    let mut written = old.clone();
    written[..512].copy_from_slice(&new[..512]);
    let mut unmapped = old.clone();
    unmapped[4096..8192].fill(0);
    let mut verified = new.clone();
    verified[..512].copy_from_slice(&old[..512]);
    let cases = [
        ("WRITE", cdb10(0x2a, 0, 0, 512), &new, 512, &written),
        ("UNMAP", unmap_cdb, &list, list_length, &unmapped),
        ("VERIFY", cdb10(0x2f, 0x02, 0, 512), &verified, 512, &old),
    ];
    for (name, cdb, data, used, expected) in cases {
        // Immediate data first, or all of it in Data-Out PDUs, or all but a last piece that is late.
        for way in 0..3 {
            session.write(0, &old);
            let itt = session.new_itt();
            let (now, later) = data.split_at(8192);
            let immediate = if way == 1 { &[][..] } else { now };
            let mut pdus = vec![announcing(&mut session, itt, cdb, LENGTH, immediate)];
            if way == 1 {
                pdus.push(data_out(itt, NO_TAG, 0, 0, false, now));
            }
            let rest = data_out(itt, NO_TAG, u32::from(way == 1), 8192, true, later);
            if way == 2 {
                send_together(&mut session, &pdus);
                session.ping();
                session.send(&rest);
            } else {
                pdus.push(rest);
                send_together(&mut session, &pdus);
            }
            let answer = response(&mut session, itt);
            assert_eq!(answer.header[3], GOOD, "{name}, way {way}");
            assert_eq!(answer.header[1] & 0x06, 0x02, "{name}, way {way}: underflow");
            assert_eq!(answer.field(44) as usize, LENGTH - used, "{name}, way {way}");
            session.ping();
            assert!(session.read(0, LENGTH) == *expected, "{name}, way {way}");
        }
    }
    gateway.stop_after(witness);
}

/// A command that needs two buffers where there is one gets TASK SET FULL and keeps neither, as
/// often as it comes: the smallest memory that may be configured serves everybody afterwards.
#[test]
fn half_the_memory_is_given_back() {
    const LARGEST: usize = 8 * MIB;
    let config = format!("[iscsi]\nbuffer = \"16MiB\"\n{ONE_DISK}");
    let gateway = Gateway::start(&folder("memory"), &config, &[]);
    let witness = gateway.witness();
    let mut session = gateway.session("greedy");
    let data = Chance(24).bytes(LARGEST);
    let (half, _) = half_a_write(&mut session, 16 << 20, LARGEST);
    let out = Transfer::Out(data.clone());
    for round in 0..200 {
        let ended = session.execute(verify16(0, LARGEST), out.clone());
        assert_eq!((ended.status, ended.sense), (TASK_SET_FULL, None), "round {round}");
    }
    // Half of the memory is still held, and the other half is there.
    let mut other = gateway.session("modest");
    for offset in (0..LARGEST).step_by(MIB) {
        let piece = &data[offset..][..MIB];
        let cdb = write16(offset as u64, MIB, false);
        in_the_end(&mut other, cdb, &Transfer::Out(piece.to_vec()));
        let found = in_the_end(&mut other, read16(offset as u64, MIB), &Transfer::In(MIB));
        assert!(found == piece);
    }
    assert_eq!(session.manage(ABORT_TASK, 0, half), 0, "function complete");
    in_the_end(&mut session, verify16(0, LARGEST), &out);
    gateway.stop_after(witness);
}

/// A folder in memory, where the file system cannot zero ranges; it goes with the test.
struct InMemory(PathBuf);

impl InMemory {
    fn new(test: &str) -> Self {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let folder = base.join(format!("weir-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Has zeroes written over what is there: 16 MiB by one command, then as much again by 16 of 1 MiB.
/// The answers must all be there within five seconds.
fn write_zeroes(mut session: Session, may_unmap: bool) -> Session {
    const LENGTH: u64 = 16 << 20;
    let noise = Chance(25).bytes(MIB);
    for offset in (0..=2 * LENGTH).step_by(MIB) {
        session.write(offset, &noise);
    }
    let (told, answers) = mpsc::channel();
    std::thread::spawn(move || {
        let ranges = std::iter::once((0, LENGTH));
        for (offset, length) in ranges.chain((0..16).map(|i| (LENGTH + (i << 20), 1 << 20))) {
            let mut cdb = write_same16(offset, length);
            cdb[1] = u8::from(may_unmap) << 3;
            session.execute(cdb, Transfer::Out(vec![0; 512])).good();
        }
        let _ = told.send(session);
    });
    let mut session = answers.recv_timeout(Duration::from_secs(5)).expect("answers in good time");
    for offset in (0..2 * LENGTH).step_by(MIB) {
        assert!(session.read(offset, MIB) == vec![0; MIB], "may unmap: {may_unmap}");
    }
    assert!(session.read(2 * LENGTH, MIB) == noise, "what lies behind stays");
    session
}

/// Zeroes are written in good time even where the file system has no call for it, whether other
/// hosts keep the gateway awake or all are silent meanwhile.
#[test]
fn zeroes_come_in_good_time() {
    let memory = InMemory::new("zeroes");
    for io in ["buffered", "auto"] {
        let config = ONE_DISK.replace("[[target]]", &format!("io = \"{io}\"\n[[target]]"));
        let folder = memory.0.join(io);
        std::fs::create_dir(&folder).unwrap();
        let gateway = Gateway::start(&folder, &config, &[]);
        let (mut silent, mut session) = (gateway.session("silent"), gateway.session("zeroes"));
        let kept = Chance(29).bytes(MIB);
        silent.write(40 << 20, &kept);
        for may_unmap in [false, true] {
            session = write_zeroes(session, may_unmap);
        }
        let witness = gateway.witness();
        for may_unmap in [false, true] {
            session = write_zeroes(session, may_unmap);
        }
        assert!(silent.read(40 << 20, MIB) == kept);
        gateway.stop_after(witness);
    }
}

/// CLEAR TASK SET ends the commands of other hosts, too: who asked gets the response, who lost a
/// command gets a unit attention, and both continue.
#[test]
fn a_task_set_is_cleared() {
    let gateway = Gateway::start(&folder("cleared"), TWO_DISKS, &[]);
    let witness = witness_elsewhere(&gateway);
    let (mut a, mut b) = (gateway.session("a"), gateway.session("b"));
    for round in 0..10 {
        let old = Chance(round).bytes(MIB);
        a.write(0, &old);
        let (half, ttt) = half_a_write(&mut a, 0, MIB);
        assert_eq!(b.manage(CLEAR_TASK_SET, 0, NO_TAG), 0, "function complete");
        gateway.logged(&[&b.peer, "task management", "ClearTaskSet"]);
        b.execute([0; 16], Transfer::None).good();
        // What was asked for before may still come; it is discarded.
        a.send(&data_out(half, ttt, 0, 65_536, true, &vec![0xee; 65_536]));
        assert_eq!(a.execute([0; 16], Transfer::None).sense, Some(CLEARED), "round {round}");
        a.execute([0; 16], Transfer::None).good();
        assert!(b.read(0, MIB) == old, "no part of the write is done");
        a.write(0, &old[..4096]);
        assert!(a.read(0, MIB) == old);
        b.ping();
    }
    stop_after_elsewhere(gateway, witness);
}

/// LOGICAL UNIT RESET reaches every session before its next command, even one that was sent together
/// with it: that command is not done.
#[test]
fn a_reset_comes_before_what_follows_it() {
    let gateway = Gateway::start(&folder("reset-order"), TWO_DISKS, &[]);
    let witness = witness_elsewhere(&gateway);
    let (mut a, mut b) = (gateway.session("a"), gateway.session("b"));
    let old = Chance(26).bytes(4096);
    for round in 0..40_u64 {
        b.write(0, &old);
        let mut gathering = None;
        match round % 4 {
            // Nothing is in flight; or a write that waits for data; or writes on their way.
            0 | 1 => {}
            2 => gathering = Some(half_a_write(&mut a, 1 << 20, MIB)),
            _ => {
                for i in 1..8 {
                    let data = Transfer::Out(vec![0x11; 262_144]);
                    a.issue(write16(i << 20, 262_144, false), data);
                }
                a.ping();
            }
        }
        let (reset, write) = (b.new_itt(), b.new_itt());
        let first = if round % 2 == 0 { IMMEDIATE } else { 0 };
        let request = Pdu::new(opcode::MANAGEMENT | first, 0x80 | LOGICAL_UNIT_RESET, reset);
        let request = b.numbered(request.with(20, NO_TAG));
        let data = Transfer::Out(vec![0xee; 4096]);
        let command = b.command(0, write, write16(0, 4096, false), &data);
        b.expect(write, data);
        send_together(&mut b, &[request, command]);
        let answer = b.hear_other();
        assert_eq!((answer.opcode(), answer.itt()), (opcode::MANAGED, reset));
        assert_eq!(answer.header[2], 0, "function complete");
        let is_reset = |sense: Option<(u8, u8, u8)>| {
            assert!(matches!(sense, Some((ATTENTION, 0x29, _))), "round {round}: {sense:02x?}");
        };
        is_reset(b.wait(write).sense);
        is_reset(a.execute([0; 16], Transfer::None).sense);
        for itt in a.outstanding() {
            a.forget(itt);
        }
        if let Some((itt, ttt)) = gathering {
            a.send(&data_out(itt, ttt, 0, 65_536, true, &vec![0xee; 65_536]));
        }
        for session in [&mut a, &mut b] {
            session.execute([0; 16], Transfer::None).good();
            assert!(session.read(0, 4096) == old, "the write behind the reset is not done");
            session.ping();
        }
    }
    stop_after_elsewhere(gateway, witness);
}

/// TARGET COLD RESET ends every session with the target, that of the host who asked last of all: it
/// has its response first. Everybody may log in again at once.
#[test]
fn a_cold_reset_ends_the_sessions() {
    let gateway = Gateway::start(&folder("cold"), TWO_DISKS, &[]);
    let witness = witness_elsewhere(&gateway);
    let old = Chance(27).bytes(MIB);
    gateway.session("a").write(0, &old);
    for round in 0..10 {
        let (mut a, mut b) = (gateway.session("a"), gateway.session("b"));
        if round % 2 == 1 {
            half_a_write(&mut a, 0, MIB);
            half_a_write(&mut b, 0, MIB);
        }
        assert_eq!(b.manage(TARGET_COLD_RESET, 0, NO_TAG), 0, "function complete");
        until_closed(&mut b.socket);
        until_closed(&mut a.socket);
        for peer in [&a.peer, &b.peer] {
            gateway.logged(&[peer, "session ended"]);
        }
        assert!(gateway.session("b").read(0, MIB) == old, "round {round}");
    }
    stop_after_elsewhere(gateway, witness);
}

/// A page of vital product data of a logical unit, without its header.
fn page(session: &mut Session, lun: u8, code: u8) -> Vec<u8> {
    let mut cdb = [0; 16];
    cdb[..5].copy_from_slice(&[0x12, 1, code, 4, 0]);
    let (itt, transfer) = (session.new_itt(), Transfer::In(1024));
    let mut pdu = session.command(0, itt, cdb, &transfer);
    pdu.header[9] = lun;
    session.expect(itt, transfer);
    session.send(&pdu);
    let data = session.wait(itt).good();
    assert_eq!(data[1], code);
    let length = usize::from(u16::from_be_bytes([data[2], data[3]]));
    data[4..][..length].to_vec()
}

/// The designators of a unit: type and identifier of those that name the unit itself (SPC-4 section
/// 7.8.5).
fn names_of_unit(session: &mut Session, lun: u8) -> BTreeSet<(u8, Vec<u8>)> {
    let page = page(session, lun, 0x83);
    let (mut names, mut rest) = (BTreeSet::new(), &page[..]);
    while let [_, flags, _, length, tail @ ..] = rest {
        let (body, next) = tail.split_at(usize::from(*length));
        if flags & 0x30 == 0 {
            names.insert((flags & 0x0f, body.to_vec()));
        }
        rest = next;
    }
    assert!(rest.is_empty() && names.iter().any(|(kind, _)| *kind == 3), "an NAA identifier");
    names
}

/// Two volumes are two disks to every host, however alike their names are; one volume is one disk,
/// whichever target a host finds it behind.
#[test]
fn volumes_have_an_identity() {
    let alike = "a-name-whose-first-forty-characters-agree";
    assert!(alike.len() >= 40);
    let volume = |end: &str| {
        let name = format!("{alike}-{end}");
        format!("[[volume]]\nname = \"{name}\"\nfile = \"{end}.img\"\nsize = \"1MiB\"\n")
    };
    let config = format!(
        "{}{}{}\
         [[target]]\nname = \"iqn.2026-11.org.example:both\"\n\
         luns = {{ 0 = \"{alike}-one\", 1 = \"{alike}-two\" }}\n\
         [[target]]\nname = \"iqn.2026-11.org.example:again\"\n\
         luns = {{ 7 = \"{alike}-one\" }}\n",
        volume("one"),
        volume("two"),
        ONE_DISK.trim_start(),
    );
    let gateway = Gateway::start(&folder("identity"), &config, &[]);
    let witness = gateway.witness();
    let log_in = |target| Login { target, ..Login::of("x") }.connect(gateway.portal).unwrap();
    let (mut both, mut again) = (log_in("both"), log_in("again"));
    assert_ne!(page(&mut both, 0, 0x80), page(&mut both, 1, 0x80), "serial numbers");
    assert_eq!(page(&mut both, 0, 0x80), page(&mut again, 7, 0x80), "serial numbers");
    let (one, two) = (names_of_unit(&mut both, 0), names_of_unit(&mut both, 1));
    assert!(one.is_disjoint(&two), "each names one volume: {one:02x?} {two:02x?}");
    assert_eq!(one, names_of_unit(&mut again, 7), "the same on every path");
    let disk = names_of_unit(&mut gateway.session("y"), 0);
    assert!(disk.is_disjoint(&one) && disk.is_disjoint(&two));
    gateway.stop_after(witness);
}

/// What the gateway says it takes it takes: an UNMAP with as many ranges as it advertises is done
/// where the limit of requests is small, and one range more is refused.
#[test]
fn the_advertised_ranges_are_unmapped() {
    const REQUESTS: u32 = 16;
    let config = format!("[limits]\nmax_requests = {REQUESTS}\n{ONE_DISK}");
    let gateway = Gateway::start(&folder("ranges"), &config, &[]);
    let witness = gateway.witness();
    let mut session = gateway.session("ranges");
    let limits = page(&mut session, 0, 0xb0);
    let most = u32::from_be_bytes(limits[20..24].try_into().unwrap());
    assert!((1..=REQUESTS).contains(&most), "{most} ranges for {REQUESTS} requests");
    let noise = Chance(28).bytes(MIB);
    session.write(0, &noise);
    let list = |count: u32| {
        let length = count as u16 * 16;
        let mut cdb = [0; 16];
        cdb[0] = 0x42;
        cdb[7..9].copy_from_slice(&(length + 8).to_be_bytes());
        let mut list = [(length + 6).to_be_bytes(), length.to_be_bytes()].concat();
        list.extend([0; 4]);
        for index in 0..u64::from(count) {
            list.extend((index * 16).to_be_bytes());
            list.extend([0, 0, 0, 8, 0, 0, 0, 0]);
        }
        (cdb, Transfer::Out(list))
    };
    let (cdb, ranges) = list(most + 1);
    assert_eq!(session.execute(cdb, ranges).sense.unwrap().0, 0x5, "illegal request");
    assert!(session.read(0, MIB) == noise, "nothing of it is done");
    let (cdb, ranges) = list(most);
    in_the_end(&mut session, cdb, &ranges);
    let mut expected = noise;
    for range in expected.chunks_mut(8192).take(most as usize) {
        range[..4096].fill(0);
    }
    assert!(session.read(0, MIB) == expected);
    gateway.stop_after(witness);
}

/// A configuration that would fail every request that has to wait for a path is refused: exit code
/// 3, with the line; a gateway that is running does not mind.
#[test]
fn no_time_for_a_path_is_refused() {
    let gateway = Gateway::with_one_disk("no-path");
    let witness = gateway.witness();
    let folder = folder("no-path-refused");
    let config = format!("[limits]\nno_path_timeout = \"0s\"\n{ONE_DISK}");
    std::fs::write(folder.join("weir.toml"), config).unwrap();
    let serve = ["serve", "weir.toml", "--listen", "127.0.0.1:0"];
    for arguments in [&["config", "check", "weir.toml"][..], &serve] {
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut child = weir(&folder, arguments).stderr(log).spawn().unwrap();
        // One that was accepted would serve for ever.
        let status = (0..1_000).find_map(|_| {
            std::thread::park_timeout(Duration::from_millis(10));
            child.try_wait().unwrap()
        });
        let _ = child.kill();
        child.wait().unwrap();
        let told = std::fs::read_to_string(folder.join("log")).unwrap();
        let code = status.and_then(|status| status.code());
        assert_eq!(code, Some(3), "{arguments:?}: {told}");
        for part in ["weir.toml:2:", "no_path_timeout"] {
            assert!(told.contains(part), "{told}");
        }
    }
    gateway.stop_after(witness);
}
