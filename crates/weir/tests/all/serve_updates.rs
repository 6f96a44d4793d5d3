//! Commands that read and write in one: no other command comes between, and what is whole stays whole.

use crate::gateway::commands::{
    MISCOMPARE, compare_and_write, or_write, write_and_verify, write_atomic, write_cache,
};
use crate::gateway::initiator::{GOOD, Session, Transfer, write16};
use crate::gateway::pdu::crc32c;
use crate::gateway::recorded::RECORDED;
use crate::gateway::{Chance, Gateway, ONE_DISK, folder};
use std::thread::JoinHandle;
use weir_flow::request::Op;

/// `ONE_DISK` with WRITE ATOMIC.
fn atomic() -> String {
    ONE_DISK.replace("[[target]]", "atomic = true\n[[target]]")
}

/// A block that says who has a lock.
fn owner(host: u8, round: u16) -> Vec<u8> {
    let mut block = vec![host; 512];
    block[..2].copy_from_slice(&round.to_le_bytes());
    block
}

/// Two hosts take a lock by COMPARE AND WRITE, a thousand times at the same moment: exactly one has
/// it each time, the other one gets that the block differs, and the block names the winner.
#[test]
fn one_of_two_takes_the_lock() {
    let mut gateway = Gateway::with_one_disk("lock");
    let mut hosts = [gateway.session("one"), gateway.session("two")];
    let mut wins = [0; 2];
    for round in 1..=1000_u16 {
        let free = owner(0, round - 1);
        // The one that is asked first takes turns.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        let tags = order.map(|host| {
            let mine = owner(host as u8 + 1, round);
            let (cdb, data) = compare_and_write(4096, &free, &mine);
            (host, hosts[host].issue(cdb, data))
        });
        let mut winner = None;
        for (host, itt) in tags {
            let ended = hosts[host].wait(itt);
            if ended.status == GOOD {
                assert_eq!(winner.replace(host), None, "round {round}: both have it");
            } else {
                assert_eq!(ended.sense, Some(MISCOMPARE), "round {round}");
            }
        }
        let winner = winner.expect("one of them has it");
        wins[winner] += 1;
        let mine = owner(winner as u8 + 1, round);
        assert!(hosts[1 - winner].read(4096, 512) == mine, "round {round}");
        let (cdb, data) = compare_and_write(4096, &mine, &owner(0, round));
        hosts[winner].execute(cdb, data).good();
    }
    assert_eq!(wins[0] + wins[1], 1000);
    gateway.stop();
}

/// COMPARE AND WRITE of several blocks that differ in the last byte writes none of them.
#[test]
fn a_miscompare_writes_nothing() {
    let mut gateway = Gateway::with_one_disk("miscompare");
    let mut session = gateway.session("one");
    let old = Chance(1).bytes(4096);
    session.write(0, &old);
    let mut wrong = old.clone();
    wrong[4095] ^= 1;
    let (cdb, data) = compare_and_write(0, &wrong, &[9; 4096]);
    assert_eq!(session.sense_of(cdb, data), MISCOMPARE);
    assert!(session.read(0, 4096) == old);
    let (cdb, data) = compare_and_write(0, &old, &[9; 4096]);
    session.execute(cdb, data).good();
    assert!(session.read(0, 4096) == [9; 4096]);
    gateway.stop();
}

/// Four hosts set bits of the same blocks by ORWRITE, each its own, many at once: none is lost.
#[test]
fn no_bit_is_lost() {
    let mut gateway = Gateway::with_one_disk("orwrite");
    let hosts = (0..4_usize).zip(["one", "two", "three", "four"]);
    let threads: Vec<JoinHandle<()>> = hosts
        .map(|(number, host)| {
            let mut session = gateway.session(host);
            std::thread::spawn(move || {
                let tags: Vec<u32> = (0..1024)
                    .map(|bit| {
                        let mut data = vec![0; 1024];
                        data[bit] = 0b11 << (2 * number);
                        let (cdb, data) = or_write(0, &data);
                        session.issue(cdb, data)
                    })
                    .collect();
                for itt in tags {
                    session.wait(itt).good();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(gateway.session("five").read(0, 2048) == [[0xff; 1024], [0; 1024]].concat());
    gateway.stop();
}

/// WRITE AND VERIFY writes what it was given, and leaves its neighbours alone.
#[test]
fn a_verified_write_is_there() {
    let mut gateway = Gateway::with_one_disk("verify");
    let mut session = gateway.session("one");
    let data = Chance(2).bytes(8192);
    let (cdb, out) = write_and_verify(4096, &data);
    session.execute(cdb, out).good();
    assert!(gateway.stored("disk.img", 4096, 8192) == data);
    assert!(session.read(0, 16_384) == [&[0; 4096], &data[..], &[0; 4096]].concat());
    gateway.stop();
}

/// Two hosts write the same range by WRITE ATOMIC while a third one reads it: what it sees is of one
/// of them, never of both.
#[test]
fn an_atomic_write_is_seen_whole() {
    const LENGTH: usize = 256 << 10;
    let mut gateway = Gateway::start(&folder("atomic"), &atomic(), &[]);
    let mut reader = gateway.session("reader");
    let write = |session: &mut Session, byte: u8| {
        let (cdb, data) = write_atomic(4096, &vec![byte; LENGTH]);
        session.issue(cdb, data)
    };
    let mut hosts = [gateway.session("one"), gateway.session("two")];
    for round in 0..20_u8 {
        let tags = [write(&mut hosts[0], 2 * round + 1), write(&mut hosts[1], 2 * round + 2)];
        let seen = reader.read(4096, LENGTH);
        assert!(seen.iter().all(|byte| *byte == seen[0]), "round {round}");
        for (session, itt) in hosts.iter_mut().zip(tags) {
            session.wait(itt).good();
        }
    }
    let (before, behind) = (reader.read(0, 4096), reader.read(4096 + LENGTH as u64, 4096));
    assert!(before == [0; 4096] && behind == [0; 4096], "and nothing beside it");
    gateway.stop();
}

/// A record of an atomic write that was interrupted, for the journal.
fn record(offset: u64, data: &[u8]) -> Vec<u8> {
    let mut record = b"WEIRATM\x01".to_vec();
    record.extend([offset, data.len() as u64].map(u64::to_le_bytes).concat());
    record.extend(crc32c(data).to_le_bytes());
    record.extend(crc32c(&record).to_le_bytes());
    record.resize(4096, 0);
    [&record, data].concat()
}

/// An atomic write that was interrupted after its record is finished at the next start, before a
/// host sees anything, and only once; a record that is torn counts for nothing.
#[test]
fn an_interrupted_atomic_write_is_finished() {
    let folder = folder("interrupted");
    let journal = folder.join("disk.img.state.journal");
    let mut gateway = Gateway::start(&folder, &atomic(), &[]);
    gateway.session("one").write(0, &vec![1; 65_536]);
    gateway.kill();
    let data = Chance(3).bytes(8192);
    let mut torn = record(0, &data);
    torn[4096 + 8191] ^= 1;
    std::fs::write(&journal, torn).unwrap();
    let mut gateway = Gateway::start(&folder, &atomic(), &[]);
    assert!(gateway.session("one").read(0, 65_536) == vec![1; 65_536], "a torn one is none");
    gateway.kill();
    std::fs::write(&journal, record(1024, &data)).unwrap();
    let mut gateway = Gateway::start(&folder, &atomic(), &[]);
    let mut session = gateway.session("one");
    let found = session.read(0, 65_536);
    assert!(found[1024..1024 + 8192] == data);
    assert!(found[..1024] == [1; 1024] && found[1024 + 8192..] == vec![1; 65_536 - 9216]);
    gateway.logged(&["finished an atomic write"]);
    session.write(1024, &[2; 512]);
    gateway.kill();
    let mut gateway = Gateway::start(&folder, &atomic(), &[]);
    assert!(gateway.session("one").read(1024, 512) == [2; 512], "it is not finished again");
    gateway.stop();
}

/// Without a write cache, as MODE SELECT has it, every write is durable when it ends, for every
/// host; with it only those that ask.
#[test]
fn without_a_cache_writes_are_durable() {
    let mut gateway = Gateway::start(&folder("wce"), ONE_DISK, RECORDED);
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    one.write(0, &[1; 512]);
    let (cdb, list) = write_cache(false);
    one.execute(cdb, list).good();
    assert_eq!(two.sense_of([0; 16], Transfer::None), (0x6, 0x2a, 0x01), "other sessions get it");
    two.write(0, &[2; 512]);
    let (cdb, list) = write_cache(true);
    one.execute(cdb, list).good();
    one.write(0, &[3; 512]);
    one.execute(write16(0, 512, true), Transfer::Out(vec![4; 512])).good();
    let told = [(Op::Write, false), (Op::Write, true), (Op::Write, false), (Op::Write, true)];
    assert_eq!(gateway.stop_and_tell(), told);
}
