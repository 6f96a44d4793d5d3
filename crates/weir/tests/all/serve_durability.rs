//! What GOOD means: the data is in the file, whatever happens to the gateway afterwards.

use crate::gateway::initiator::{Session, Transfer, read16, synchronize16, write16};
use crate::gateway::pdu::{Pdu, opcode};
use crate::gateway::{Chance, Gateway, ONE_DISK, eventually, folder};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

/// Bytes of each write.
const PAGE: usize = 4096;

/// Most pages that one host writes: more than it comes to in the time it has.
const PAGES: u64 = 60_000;

/// The configuration of a disk with room for three hosts, in one of the two ways of I/O.
fn config(io: &str) -> String {
    let disk = ONE_DISK.replace("64MiB", "768MiB");
    disk.replace("[[target]]", &format!("io = \"{io}\"\n[[target]]"))
}

/// The content of a page, which no other page has.
fn content(number: u64) -> Vec<u8> {
    Chance(number).bytes(PAGE)
}

/// Writes page after page, many at once, until the gateway is gone; returns those that were
/// acknowledged. Each acknowledgement is sent to `told`.
fn write_until_gone(
    mut session: Session,
    first: u64,
    fua: bool,
    told: Sender<()>,
) -> JoinHandle<Vec<u64>> {
    std::thread::spawn(move || {
        let (mut next, mut open, mut good) = (first, BTreeMap::new(), Vec::new());
        loop {
            while open.len() < 24 && session.has_room() {
                assert!(next < first + PAGES, "the gateway ended in time");
                let cdb = write16(next * PAGE as u64, PAGE, fua);
                match session.try_issue(0, cdb, Transfer::Out(content(next))) {
                    Ok(itt) => open.insert(itt, next),
                    Err(_) => return good,
                };
                next += 1;
            }
            match session.next_ended() {
                Ok((itt, ended)) => {
                    ended.good();
                    good.push(open.remove(&itt).unwrap());
                    let _ = told.send(());
                }
                Err(_) => return good,
            }
        }
    })
}

/// Three hosts that write at full speed; returns when `count` writes are acknowledged.
fn writers(gateway: &Gateway, fua: bool, count: usize) -> Vec<JoinHandle<Vec<u64>>> {
    let (told, acknowledged): (_, Receiver<()>) = mpsc::channel();
    let hosts = (0..).zip(["one", "two", "three"]);
    let start =
        |(index, host)| write_until_gone(gateway.session(host), index * PAGES, fua, told.clone());
    let threads = hosts.map(start).collect();
    assert_eq!(acknowledged.iter().take(count).count(), count);
    threads
}

/// Everything that was acknowledged is in the file.
fn check(gateway: &Gateway, threads: Vec<JoinHandle<Vec<u64>>>) {
    for thread in threads {
        for page in thread.join().unwrap() {
            let stored = gateway.stored("disk.img", page * PAGE as u64, PAGE);
            assert!(stored == content(page), "page {page} was acknowledged and is not there");
        }
    }
}

/// SIGTERM while hosts write at full speed: what is in flight is finished, the exit code is 0, and
/// every write that got GOOD is in the file.
#[test]
fn a_graceful_stop_loses_nothing() {
    for io in ["direct", "buffered"] {
        let folder = folder(&format!("graceful-{io}"));
        let mut gateway = Gateway::start(&folder, &config(io), &[]);
        let threads = writers(&gateway, false, 1_000);
        gateway.stop();
        gateway.logged(&["stopping", "requests in flight end first"]);
        gateway.logged(&["every volume is durable"]);
        check(&gateway, threads);
    }
}

/// A write whose data has not all come when SIGTERM does is not done, and is not waited for.
#[test]
fn a_graceful_stop_does_not_wait_for_data() {
    let mut gateway = Gateway::with_one_disk("incomplete");
    let mut session = gateway.session("slow");
    session.write(0, &content(1));
    let itt = session.new_itt();
    let data = Transfer::Out(vec![0xee; 1 << 20]);
    let write = session.command(0, itt, write16(0, 1 << 20, false), &data);
    session.send(&write);
    // It asks for the rest, so the command is there.
    assert_eq!(Pdu::receive(&session.socket, false).unwrap().opcode(), opcode::R2T);
    gateway.stop();
    assert!(gateway.stored("disk.img", 0, PAGE) == content(1));
}

/// A host that does not read its replies holds up a graceful stop; a second SIGTERM ends that at
/// once. What was acknowledged is durable all the same; the exit code tells of the rest.
#[test]
fn a_second_signal_leaves_at_once() {
    let mut gateway = Gateway::with_one_disk("second-signal");
    let mut session = gateway.session("writer");
    session.write(0, &content(2));
    let mut deaf = gateway.session("deaf");
    for _ in 0..40 {
        deaf.try_issue(0, read16(0, 1 << 20), Transfer::In(1 << 20)).unwrap();
    }
    // Its commands are in when the gateway has told another host something later.
    session.ping();
    session.write(PAGE as u64, &content(3));
    gateway.signal("TERM");
    gateway.logged(&["stopping", "outstanding="]);
    std::thread::park_timeout(std::time::Duration::from_millis(300));
    assert!(!gateway.log().contains("every volume is durable"), "it waits for the deaf host");
    gateway.signal("TERM");
    // Well within the 30 seconds that a graceful stop would wait.
    let code = (0..500).find_map(|_| {
        std::thread::park_timeout(std::time::Duration::from_millis(10));
        gateway.try_exit_code()
    });
    assert_eq!(code, Some(1), "{}", gateway.log());
    gateway.logged(&["second signal"]);
    gateway.logged(&["requests in flight", "acknowledged data is durable"]);
    assert!(gateway.stored("disk.img", 0, 2 * PAGE) == [content(2), content(3)].concat());
}

/// GOOD comes after the data is in the file: a reader of the file sees it there, for plain
/// writes, for writes with FUA and after SYNCHRONIZE CACHE.
#[test]
fn good_comes_after_the_write() {
    for io in ["direct", "buffered"] {
        let folder = folder(&format!("order-{io}"));
        let mut gateway = Gateway::start(&folder, &config(io), &[]);
        let mut session = gateway.session("order");
        let mut chance = Chance(77);
        for round in 0..200_u64 {
            let (offset, length) = (chance.below(64) * 65_536, 1 << (12 + chance.below(6)));
            let data = Chance(round).bytes(length);
            let write = write16(offset, length, round % 2 == 1);
            session.execute(write, Transfer::Out(data.clone())).good();
            if round % 16 == 15 {
                session.execute(synchronize16(), Transfer::None).good();
            }
            assert!(gateway.stored("disk.img", offset, length) == data, "round {round}");
        }
        gateway.stop();
    }
}

/// SIGKILL while hosts write with FUA: every write that got GOOD is in the file.
///
/// The page cache outlives the process, so this proves that the reply comes after the write, not
/// that the medium has it; only a power cut would.
#[test]
fn a_killed_gateway_loses_nothing_acknowledged() {
    for (io, fua) in [("direct", true), ("buffered", true), ("buffered", false)] {
        let folder = folder(&format!("killed-{io}-{fua}"));
        let mut gateway = Gateway::start(&folder, &config(io), &[]);
        let threads = writers(&gateway, fua, 500);
        gateway.kill();
        check(&gateway, threads);
        starts_again(&folder, io);
    }
}

/// SIGKILL right after SYNCHRONIZE CACHE got GOOD: everything before it is in the file. The same
/// restriction holds.
#[test]
fn a_killed_gateway_keeps_what_was_synchronized() {
    for io in ["direct", "buffered"] {
        let folder = folder(&format!("synchronized-{io}"));
        let mut gateway = Gateway::start(&folder, &config(io), &[]);
        let mut session = gateway.session("sync");
        let tags: Vec<u32> = (0..64)
            .map(|page| {
                let cdb = write16(page * PAGE as u64, PAGE, false);
                session.issue(cdb, Transfer::Out(content(page)))
            })
            .collect();
        for itt in tags {
            session.wait(itt).good();
        }
        session.execute(synchronize16(), Transfer::None).good();
        gateway.kill();
        for page in 0..64 {
            assert!(gateway.stored("disk.img", page * PAGE as u64, PAGE) == content(page));
        }
        starts_again(&folder, io);
    }
}

/// A gateway that was killed leaves nothing behind that keeps the next one from starting.
fn starts_again(folder: &Path, io: &str) {
    // The kernel ends the I/O of a killed process a moment after the process, and keeps its lock on
    // the file so long: a write that is still in flight must not meet those of the next gateway.
    eventually("end of the old gateway's I/O", || {
        std::fs::File::open(folder.join("disk.img")).unwrap().try_lock().ok()
    });
    let mut gateway = Gateway::start(folder, &config(io), &[]);
    gateway.session("again").ping();
    gateway.stop();
}
