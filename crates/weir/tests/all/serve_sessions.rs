//! Sessions that break off, come again, ask for too much or give up: what was acknowledged stays,
//! what was not complete is not done, and memory comes back.

use crate::gateway::initiator::{
    GOOD, IMMEDIATE, Login, Session, TASK_SET_FULL, Transfer, WAS_RESET, read16, until_closed,
    write16,
};
use crate::gateway::pdu::{Pdu, opcode};
use crate::gateway::{Chance, Gateway, ONE_DISK, TWO_DISKS, eventually, folder};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// A connection that breaks in the middle of a write does nothing of it and gives its memory back:
/// 300 writes of 1 MiB break off with room for 64, and later ones succeed.
#[test]
fn broken_writes_leave_no_trace() {
    let config = format!("[iscsi]\nbuffer = \"64MiB\"\n{ONE_DISK}");
    let gateway = Gateway::start(&folder("broken"), &config, &[]);
    let witness = gateway.witness();
    let old = Chance(10).bytes(MIB);
    gateway.session("steady").write(0, &old);
    for round in 0..300 {
        let mut session = gateway.session("broken");
        let itt = session.new_itt();
        let data = Transfer::Out(vec![0xee; MIB]);
        let write = session.command(0, itt, write16(0, MIB, false), &data);
        session.send(&write);
        let r2t = Pdu::receive(&session.socket, false).unwrap();
        assert_eq!((r2t.opcode(), r2t.field(40)), (opcode::R2T, 65_536), "round {round}");
        let out = Pdu::new(opcode::DATA_OUT, 0, itt).with(20, r2t.field(20)).with(40, 65_536);
        let out = out.carrying(&vec![0xee; 65_536]).encode(false);
        match round % 3 {
            // The part that was asked for does not come; or one PDU of it does; or half a PDU.
            0 => {}
            1 => session.send_raw(&out),
            _ => session.send_raw(&out[..out.len() / 2]),
        }
    }
    let mut session = gateway.session("steady");
    assert!(session.read(0, MIB) == old, "no part of a write is done");
    let tags: Vec<_> = (0..40_u64)
        .map(|i| {
            let data = vec![i as u8; MIB];
            session.issue(write16(i << 20, MIB, false), Transfer::Out(data))
        })
        .collect();
    for tag in tags {
        session.wait(tag).good();
    }
    for i in 0..40_u64 {
        assert!(session.read(i << 20, MIB) == vec![i as u8; MIB]);
    }
    gateway.stop_after(witness);
}

/// A host that logs in again with the same name, ISID and target replaces its session: the old
/// connection is closed (RFC 7143 section 6.3.5), and the new one finds what was acknowledged.
#[test]
fn a_session_is_reinstated() {
    let gateway = Gateway::with_one_disk("reinstated");
    let witness = gateway.witness();
    let mut old = gateway.session("again");
    let data = Chance(11).bytes(MIB);
    old.write(0, &data);
    // A write whose data never comes is in the way of nothing.
    let half = old.new_itt();
    let write = old.command(0, half, write16(0, MIB, false), &Transfer::Out(vec![0xee; MIB]));
    old.send(&write);
    assert_eq!(Pdu::receive(&old.socket, false).unwrap().opcode(), opcode::R2T);
    let mut new = gateway.session("again");
    assert_ne!(new.tsih, old.tsih);
    assert!(until_closed(&mut old.socket).is_empty());
    gateway.logged(&[&old.peer, "session ended", "reinstated"]);
    gateway.logged(&[&new.peer, "reinstated=true"]);
    assert!(new.read(0, MIB) == data);
    new.write(0, &data[..4096]);
    // Another ISID, or another host, is another session.
    let other = Login { isid: [0x80, 0, 0, 0, 0, 2], ..Login::of("again") };
    other.connect(gateway.portal).unwrap().ready().ping();
    new.ping();
    gateway.stop_after(witness);
}

/// A session has one connection: a second one is refused with 0206, and the first continues. A refused connection never
/// was in a session, and ends none.
#[test]
fn a_second_connection_is_refused() {
    let gateway = Gateway::start_with_log(&folder("second"), ONE_DISK, &[], "debug");
    let witness = gateway.witness();
    let mut session = gateway.session("two");
    let second = Login { tsih: session.tsih, ..Login::of("two") };
    assert_eq!(second.connect(gateway.portal).unwrap_err(), 0x0206);
    gateway.logged(&["login refused", "TooManyConnections"]);
    let nobody = Login { tsih: session.tsih + 1, ..Login::of("two") };
    assert_eq!(nobody.connect(gateway.portal).unwrap_err(), 0x020a);
    eventually("end of the refused connections", || {
        (gateway.count("connection closed before login") >= 2).then_some(())
    });
    assert_eq!(gateway.count("session ended"), 0, "{}", gateway.log());
    session.ping();
    gateway.stop_after(witness);
}

/// More commands than the limits allow: each is answered exactly once, with GOOD or TASK SET FULL;
/// what was GOOD is done, what was refused is not.
#[test]
fn overload_is_answered() {
    let config = format!("[limits]\nmax_requests = 8\n{ONE_DISK}");
    let gateway = Gateway::start(&folder("overload"), &config, &[]);
    let witness = gateway.witness();
    let mut hosts: Vec<Session> = ["one", "two", "three"].map(|host| gateway.session(host)).into();
    let mut full = 0;
    for round in 0..60_u64 {
        let mut tags = Vec::new();
        for (index, session) in hosts.iter_mut().enumerate() {
            // Commands for immediate delivery pass the window by; 16 at once are allowed.
            for i in 0..16_u64 {
                let offset = (index as u64 * 16 + i) * 65_536;
                let data = vec![round as u8 + 1; 65_536];
                let write = write16(offset, data.len(), false);
                let itt = session.try_issue(IMMEDIATE, write, Transfer::Out(data)).unwrap();
                tags.push((index, offset, itt));
            }
        }
        for (index, offset, itt) in tags {
            let ended = hosts[index].wait(itt);
            full += u32::from(ended.status == TASK_SET_FULL);
            assert!([GOOD, TASK_SET_FULL].contains(&ended.status), "{ended:?}");
            let stored = gateway.stored("disk.img", offset, 65_536);
            let is_new = stored.iter().all(|&byte| byte == round as u8 + 1);
            assert_eq!(is_new, ended.status == GOOD, "round {round}");
        }
        // Three hosts share eight: their windows keep each of them within the limit.
        for session in &mut hosts {
            assert!(session.outstanding().is_empty());
        }
    }
    assert!(full > 0, "the limit was reached");
    gateway.logged(&["task set full", "limit"]);
    // Those who keep to their window are not refused, though each sends all the time.
    let tags: Vec<_> = (0..200)
        .map(|i| {
            let session = &mut hosts[i % 3];
            (i % 3, session.issue(read16(0, 65_536), Transfer::In(65_536)))
        })
        .collect();
    for (index, itt) in tags {
        hosts[index].wait(itt);
    }
    for mut session in hosts {
        session.ping();
    }
    gateway.stop_after(witness);
}

/// ABORT TASK ends a write whose data has not come; the old data stays, later commands work.
#[test]
fn a_write_is_aborted() {
    let gateway = Gateway::with_one_disk("abort");
    let witness = gateway.witness();
    let mut session = gateway.session("abort");
    let old = Chance(12).bytes(MIB);
    session.write(0, &old);
    let itt = session.new_itt();
    let data = Transfer::Out(vec![0xee; MIB]);
    let write = session.command(0, itt, write16(0, MIB, false), &data);
    session.send(&write);
    let r2t = Pdu::receive(&session.socket, false).unwrap();
    assert_eq!(session.manage(1, 0, itt), 0, "function complete");
    gateway.logged(&[&session.peer, "task management", "AbortTask"]);
    // Data that was in flight is discarded.
    let out = Pdu::new(opcode::DATA_OUT, 0x80, itt).with(20, r2t.field(20)).with(40, 65_536);
    session.send(&out.carrying(&vec![0xee; 65_536]));
    assert!(session.read(0, MIB) == old);
    assert_eq!(session.manage(1, 0, itt), 1, "the task does not exist");
    assert_eq!(session.manage(1, 9, itt), 2, "the unit does not exist");
    gateway.stop_after(witness);
}

/// Sends a write of 128 KiB at byte 0 with this attribute and half of its data; returns its tag and the PDU that asks for
/// the other half.
fn half_a_write(session: &mut Session, attribute: u8, data: &[u8]) -> (u32, Pdu) {
    let itt = session.new_itt();
    let out = Transfer::Out(data.to_vec());
    let mut write = session.command(0, itt, write16(0, data.len(), false), &out);
    write.header[1] |= attribute;
    session.send(&write);
    let r2t = Pdu::receive(&session.socket, false).unwrap();
    assert_eq!((r2t.opcode(), r2t.field(40), r2t.field(44)), (opcode::R2T, 65_536, 65_536));
    session.expect(itt, out);
    (itt, r2t)
}

/// Sends the other half.
fn other_half(session: &Session, itt: u32, r2t: &Pdu, data: &[u8]) {
    let out = Pdu::new(opcode::DATA_OUT, 0x80, itt).with(20, r2t.field(20)).with(40, 65_536);
    session.send(&out.carrying(&data[65_536..]));
}

/// SAM-5 section 8.6: an ORDERED command does not pass an older one whose data is still arriving, and no newer one
/// passes an ORDERED one. A host that withholds its data delays only itself; an abort lets those behind it begin.
#[test]
fn ordered_commands_wait_for_older_data() {
    const SIMPLE: u8 = 0;
    const ORDERED: u8 = 2;
    const LENGTH: usize = 128 << 10;
    let gateway = Gateway::with_one_disk("ordered");
    let witness = gateway.witness();
    let mut session = gateway.session("ordered");
    let mut other = gateway.session("other");
    let mut stored = vec![0; LENGTH];
    for (round, [first, second]) in
        [[SIMPLE, ORDERED], [ORDERED, SIMPLE], [ORDERED, ORDERED]].into_iter().enumerate()
    {
        for aborted in [true, false] {
            let data = vec![round as u8 + 1; LENGTH];
            let (write, r2t) = half_a_write(&mut session, first, &data);
            let read = session.new_itt();
            let transfer = Transfer::In(LENGTH);
            let mut pdu = session.command(0, read, read16(0, LENGTH), &transfer);
            pdu.header[1] |= second;
            session.send(&pdu);
            session.expect(read, transfer);
            let last = session.issue(read16(0, LENGTH), Transfer::In(LENGTH));
            assert!(other.read(0, LENGTH) == stored, "another session waits for nothing");
            session.ping();
            assert_eq!(session.outstanding(), [write, read, last], "round {round}");
            if aborted {
                assert_eq!(session.manage(1, 0, write), 0, "function complete");
                session.forget(write);
            } else {
                other_half(&session, write, &r2t, &data);
                session.wait(write).good();
                stored = data;
            }
            for tag in [read, last] {
                assert!(session.wait(tag).good() == stored, "round {round}, aborted: {aborted}");
            }
        }
    }
    gateway.stop_after(witness);
}

/// ABORT TASK of writes at any point of their way: after the response each write is wholly done or
/// not at all, nothing of it comes later, and no status comes for what was aborted.
#[test]
fn writes_in_flight_are_aborted() {
    let gateway = Gateway::with_one_disk("abort-flight");
    let witness = gateway.witness();
    let mut session = gateway.session("abort");
    let mut aborted = 0;
    for round in 1..=100_u8 {
        let writes: Vec<(u32, u64)> = (0..4_u64)
            .map(|i| {
                let data = Transfer::Out(vec![round; 65_536]);
                (session.issue(write16(i * 65_536, 65_536, false), data), i * 65_536)
            })
            .collect();
        for (itt, offset) in writes {
            match session.manage(1, 0, itt) {
                0 => {
                    session.forget(itt);
                    aborted += 1;
                    let stored = gateway.stored("disk.img", offset, 65_536);
                    assert!(stored.iter().all(|byte| *byte == stored[0]), "all of it or nothing");
                    session.write(offset, &vec![200; 65_536]);
                    assert!(session.read(offset, 65_536) == vec![200; 65_536]);
                }
                // It had ended; its status came before this response.
                response => {
                    assert_eq!(response, 1);
                    session.wait(itt).good();
                }
            }
        }
    }
    assert!(aborted > 0, "some writes were caught on their way");
    assert!(session.outstanding().is_empty());
    gateway.stop_after(witness);
}

/// LOGICAL UNIT RESET with writes in flight of two hosts: the response comes when they have ended,
/// every host learns of it by a unit attention, and later commands work.
#[test]
fn a_unit_is_reset() {
    let mut gateway = Gateway::start(&folder("reset"), TWO_DISKS, &[]);
    let mut witness =
        Login { target: "other", ..Login::of("witness") }.connect(gateway.portal).unwrap().ready();
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    let mut aborted = 0;
    for round in 0..20_u8 {
        for session in [&mut two, &mut one] {
            for i in 0..8_u64 {
                let data = Transfer::Out(vec![round; 262_144]);
                session.issue(write16(i * 262_144, 262_144, false), data);
            }
            // The echo says that the gateway has all commands; their data is in flight.
            session.ping();
        }
        assert_eq!(one.manage(5, 0, u32::MAX), 0, "function complete");
        gateway.logged(&[&one.peer, "task management", "LogicalUnitReset"]);
        for session in [&mut one, &mut two] {
            // A status that is not here before the answer to this never comes.
            assert_eq!(session.execute([0; 16], Transfer::None).sense, Some(WAS_RESET));
            for itt in session.outstanding() {
                session.forget(itt);
                aborted += 1;
            }
            session.execute([0; 16], Transfer::None).good();
        }
        let marked = Chance(u64::from(round)).bytes(8 * 262_144);
        one.write(0, &marked);
        assert!(two.read(0, marked.len()) == marked, "no aborted write comes late");
        assert!(gateway.stored("disk.img", 0, marked.len()) == marked);
        // The other unit was not concerned.
        witness.write(0, &marked[..4096]);
    }
    assert!(aborted > 0, "some writes were caught on their way");
    gateway.stop();
}

/// Two volumes behind two targets: what one holds never shows in the other, whatever hosts write in
/// which order.
#[test]
fn volumes_do_not_leak() {
    let mut gateway = Gateway::start(&folder("leak"), TWO_DISKS, &[]);
    let portal = gateway.portal;
    let hosts = [("a", "disk"), ("b", "disk"), ("c", "other"), ("d", "other")];
    let threads: Vec<_> = (0..4_u64)
        .zip(hosts)
        .map(|(number, (host, target))| {
            std::thread::spawn(move || {
                let login = Login { target, ..Login::of(host) };
                let mut session = login.connect(portal).unwrap().ready();
                let mut chance = Chance(number);
                // Hosts of one volume take alternate pages; those of the other the same ones.
                let page = |index: u64| (2 * index + number % 2) * 4096;
                for round in 0..400_u64 {
                    let index = chance.below(512);
                    let mark = [[number as u8 + 1], [round as u8]].concat().repeat(2048);
                    session.write(page(index), &mark);
                    let found = session.read(page(chance.below(512)), 4096);
                    assert!(found[0] == 0 || found[0] == number as u8 + 1, "someone else's data");
                    assert!(session.read(page(index), 4096) == mark);
                }
                session.logout();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    gateway.stop();
    for (file, marks) in [("disk.img", [1, 2]), ("other.img", [3, 4])] {
        for (index, page) in gateway.stored(file, 0, 1024 * 4096).chunks(4096).enumerate() {
            assert!(page[0] == 0 || page[0] == marks[index % 2], "{file}, page {index}");
        }
    }
}

/// A host that does not read its replies and uses their tags again does not use up what others
/// need: everything that it took is free when its connection is gone.
#[test]
fn tags_of_unread_replies_hold_nothing() {
    let config = format!("[limits]\nmax_requests = 32\n[stop]\ntimeout = \"2s\"\n{ONE_DISK}");
    let gateway = Gateway::start(&folder("unread"), &config, &[]);
    let witness = gateway.witness();
    for _ in 0..8 {
        let mut session = gateway.session("unread");
        // The same tags again and again, and not one reply is read: what the socket does not take
        // waits at the gateway.
        for number in 0..48 {
            let (itt, transfer) = (1_000 + number % 12, Transfer::In(MIB));
            let read = session.command(IMMEDIATE, itt, read16(0, MIB), &transfer);
            session.send(&read);
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
    let mut session = gateway.session("after");
    eventually("room for 16 commands at once", || {
        let read = |_| session.try_issue(IMMEDIATE, read16(0, 4096), Transfer::In(4096)).unwrap();
        let tags: Vec<u32> = (0..16).map(read).collect();
        let full = tags.into_iter().filter(|&itt| session.wait(itt).status == TASK_SET_FULL);
        (full.count() == 0).then_some(())
    });
    session.logout();
    gateway.stop_after(witness);
}
