//! Tests of slots and answers: exactly one for each command, held while data comes, and never for another one.

use super::harness::{
    Host, Sgl, Told, disconnect, flush, parsed, read, sqe, write, write_in_capsule,
};
use crate::nvme::{Completion, Status};

const FAILED: Completion = Completion::failed(Status::INTERNAL_ERROR);

/// An answer waits for the data that the host still sends, and data that comes then is dropped.
#[test]
fn answers_wait_for_data() {
    for digests in [(false, false), (true, true)] {
        let mut host = Host::live(1, digests, 0, true);
        let slot = host.command(&write(4, 2), &[]);
        host.connection.solicit(slot, 1024);
        host.pdus();
        host.send(&host.h2c_data(4, slot, 0, &[0; 512], false)).unwrap();
        host.connection.respond(slot, FAILED);
        assert_eq!(host.endings(), []);
        assert_eq!(host.connection.find(4), None, "it is answered");
        let pdu = host.h2c_data(4, slot, 512, &[0; 512], true);
        for part in pdu.chunks(100) {
            assert_eq!(host.send(part), Ok(vec![]), "dropped data is no event");
        }
        assert_eq!(host.endings(), [(4, 6)]);
        // In a capsule.
        let capsule = host.capsule(&write_in_capsule(5, 1), &[0; 512]);
        let told = host.send(&capsule[..200]).unwrap();
        let Told::Command { slot, .. } = told[0] else { panic!("{told:?}") };
        host.connection.respond(slot, FAILED);
        assert_eq!(host.endings(), []);
        assert_eq!(host.send(&capsule[200..]), Ok(vec![]));
        assert_eq!(host.endings(), [(5, 6)]);
        // Before anything was asked for there is nothing to wait for.
        let slot = host.command(&write(6, 1), &[]);
        host.connection.respond(slot, FAILED);
        assert_eq!(host.endings(), [(6, 6)]);
    }
}

/// An answer waits for the digest behind the data, too: until then the slot belongs to its command.
#[test]
fn answers_wait_for_digests() {
    let mut host = Host::live(1, (false, true), 0, true);
    let slot = host.command(&write(4, 1), &[]);
    host.connection.solicit(slot, 512);
    host.pdus();
    let pdu = host.h2c_data(4, slot, 0, &[1; 512], true);
    let (front, behind) = pdu.split_at(pdu.len() - 2);
    let told = host.send(front).unwrap();
    assert!(matches!(told[..], [Told::Data { complete: false, .. }]), "{told:?}");
    assert!(host.connection.is_receiving(slot));
    host.connection.respond(slot, FAILED);
    assert_eq!(host.endings(), []);
    assert_eq!(host.send(behind), Ok(vec![]));
    assert_eq!(host.endings(), [(4, 6)]);
}

/// A command whose identifier is in use gets an answer for itself; the first one is not touched.
#[test]
fn identifiers_in_use_conflict() {
    let mut host = Host::io();
    let first = host.command(&flush(7), &[]);
    let capsule = host.capsule(&write_in_capsule(7, 1), &[0; 512]);
    assert_eq!(host.send(&capsule), Ok(vec![]));
    assert_eq!(host.endings(), [(7, 3)]);
    assert_eq!(host.connection.find(7), Some(first));
    host.connection.respond(first, Completion::SUCCESS);
    assert_eq!(host.endings(), [(7, 0)]);
    host.command(&flush(7), &[]);
}

/// Disconnect settles answers that wait for data, and nothing is asked for any more; the last answer is its own.
#[test]
fn disconnect_settles_everything() {
    let mut host = Host::io();
    let held = host.command(&write(1, 1), &[]);
    host.connection.solicit(held, 512);
    let granted = host.command(&write(2, 1), &[]);
    host.connection.solicit(granted, 512);
    let waiting = host.command(&write(3, 1), &[]);
    host.connection.respond(held, FAILED);
    host.pdus();
    let told = host.send(&host.capsule(&disconnect(4), &[])).unwrap();
    let [Told::Disconnect { slot }] = told[..] else { panic!("{told:?}") };
    assert_eq!(host.endings(), [(1, 6)], "the answer that was held");
    host.connection.solicit(waiting, 512);
    assert_eq!(host.endings(), [], "no R2T");
    let data = host.h2c_data(2, granted, 0, &[0; 512], true);
    assert_eq!(host.send(&data), Ok(vec![]), "nothing more is received");
    host.connection.respond(granted, FAILED);
    host.connection.respond(waiting, FAILED);
    assert!(!host.connection.wants_close());
    host.connection.respond(slot, Completion::SUCCESS);
    assert!(host.connection.wants_close() && !host.connection.is_finished());
    assert_eq!(host.endings(), [(2, 6), (3, 6), (4, 0)]);
    assert!(host.connection.is_finished());
}

/// A slot is used again only after its response is written, however few there are; so slots are bounded.
#[test]
fn slots_wait_for_their_responses() {
    let mut host = Host::io();
    let mut taken = Vec::new();
    for cid in 0..16 {
        taken.push(host.command(&flush(cid), &[]));
    }
    for &slot in &taken {
        host.connection.respond(slot, Completion::SUCCESS);
    }
    // The responses are not written: sixteen more have slots, then there is none.
    for cid in 0..16 {
        let slot = host.command(&flush(cid), &[]);
        assert!(slot < 32 && !taken.contains(&slot), "{slot} in {taken:?}");
        host.connection.respond(slot, Completion::SUCCESS);
    }
    // One response is written, and its slot is the next one.
    let mut done = None;
    host.connection.outbox().advance(24, |slot| done = Some(slot));
    assert_eq!(done, Some(taken[0]));
    assert_eq!(host.command(&flush(50), &[]), taken[0]);
    host.connection.respond(taken[0], Completion::SUCCESS);
    assert!(host.send(&host.capsule(&flush(51), &[])).is_err(), "a host that does not read");
}

/// SQHD counts the commands taken, modulo the depth, unless there is no flow control.
#[test]
fn the_head_of_the_queue_moves() {
    let mut host = Host::live(1, (false, false), 0, false);
    for taken in 2..40_u16 {
        let slot = host.command(&flush(taken), &[]);
        host.connection.respond(slot, Completion::SUCCESS);
        assert_eq!(host.pdus()[0].u16(16), taken % 16);
    }
    let mut host = Host::io();
    let slot = host.command(&flush(1), &[]);
    host.connection.respond(slot, Completion::SUCCESS);
    assert_eq!(host.pdus()[0].u16(16), 0);
}

/// Gathered data is cut to what was asked for, in the capsule and by request.
#[test]
fn gathered_data_is_cut() {
    for in_capsule in [true, false] {
        let mut host = Host::io();
        let sgl = if in_capsule { Sgl::Capsule(4096) } else { Sgl::Transport(4096) };
        let command = sqe(0x09, 8, 1, &[1, 4], sgl);
        let list: Vec<u8> = (0..=255).cycle().take(4096).collect();
        let capsule = host.capsule(&command, if in_capsule { &list } else { &[] });
        let told = host.send(&capsule[..72]).unwrap();
        let Told::Command { slot, .. } = told[0] else { panic!("{told:?}") };
        host.connection.gather(slot, parsed(&command), 32);
        let told = if in_capsule {
            capsule[72..].chunks(20).flat_map(|part| host.send(part).unwrap()).collect()
        } else {
            assert_eq!(host.pdus()[0].u32(16), 32, "no more is asked for");
            host.send(&host.h2c_data(8, slot, 0, &list[..32], true)).unwrap()
        };
        let data = list[..32].to_vec();
        assert_eq!(told, [Told::Gathered { slot, opcode: 9, cid: 8, data }]);
        host.connection.respond(slot, Completion::SUCCESS);
        assert_eq!(host.endings(), [(8, 0)]);
    }
}

/// A command that is answered while it gathers leaves nothing behind: the next one in its slot is itself.
#[test]
fn answered_commands_stop_gathering() {
    let mut host = Host::admin();
    let command = sqe(0x09, 8, 0, &[0x16], Sgl::Transport(512));
    let slot = host.command(&command, &[]);
    host.connection.gather(slot, parsed(&command), 512);
    host.send(&host.h2c_data(8, slot, 0, &[0; 256], false)).unwrap();
    host.connection.respond(slot, Completion::failed(Status::ABORTED_BY_REQUEST));
    assert_eq!(host.send(&host.h2c_data(8, slot, 256, &[0; 256], true)), Ok(vec![]));
    assert_eq!(host.pdus().last().unwrap().ending(), (8, 7));
    // The slots come round until the one of the aborted command is used again.
    loop {
        let other = sqe(0x81, 9, 0, &[], Sgl::Transport(16));
        let again = host.command(&other, &[]);
        host.connection.solicit(again, 16);
        host.pdus();
        let told = host.send(&host.h2c_data(9, again, 0, &[1; 16], true)).unwrap();
        let expected = Told::Data { slot: again, offset: 0, bytes: vec![1; 16], complete: true };
        assert_eq!(told, [expected]);
        host.connection.respond(again, Completion::SUCCESS);
        assert_eq!(host.endings(), [(9, 0)]);
        if again == slot {
            break;
        }
    }
}

/// Data in the capsule of a command that does not send any is taken off the stream, and the command is invalid.
#[test]
fn uncalled_data_is_dropped() {
    for (command, status) in [
        (read(1, 1), Status::SGL_LENGTH_INVALID),
        (flush(1), Status::SGL_LENGTH_INVALID),
        (write(1, 1), Status::SGL_LENGTH_INVALID),
        (sqe(0x01, 1, 1, &[], Sgl::Capsule(512)), Status::SGL_LENGTH_INVALID),
    ] {
        let mut host = Host::io();
        let told = host.send(&host.capsule(&command, &[0; 100])).unwrap();
        let [Told::Command { slot, transfer, .. }] = told[..] else { panic!("{told:?}") };
        assert_eq!(transfer, crate::nvme::Transfer::Invalid(status));
        host.connection.respond(slot, Completion::failed(status));
        assert_eq!(host.endings(), [(1, 0xf)]);
        host.command(&flush(2), &[]);
    }
}

/// A read that is answered without its data is a bug of the shell, and so is an answer that is too long.
#[test]
#[should_panic(expected = "answered with its data")]
fn reads_need_their_data() {
    let mut host = Host::io();
    let slot = host.command(&read(1, 1), &[]);
    host.connection.respond(slot, Completion::SUCCESS);
}

/// A command is answered once.
#[test]
#[should_panic(expected = "answered once")]
fn answers_are_given_once() {
    let mut host = Host::io();
    let slot = host.command(&write(1, 1), &[]);
    host.connection.solicit(slot, 512);
    host.connection.respond(slot, FAILED);
    host.connection.respond(slot, FAILED);
}
