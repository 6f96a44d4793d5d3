//! Fused Compare and Write: one step for all hosts, or an answer that says what was missing.

use crate::gateway::commands::{EXCLUSIVE_ACCESS, REGISTER, RESERVE, Reserve};
use crate::gateway::initiator::GOOD;
use crate::gateway::nvme::{ABORT, COMPARE, Host, Move, Queue, READ, WRITE, with_subsystem};
use crate::gateway::{Gateway, eventually, folder};

const BLOCK: usize = 512;

fn start(test: &str) -> Gateway {
    Gateway::start(&folder(test), &with_subsystem("", ""), &[])
}

/// Sends one command of a pair.
fn half(queue: &mut Queue, fuse: u8, offset: u64, bytes: &[u8]) -> u16 {
    queue.fuse = fuse;
    let opcode = if fuse == 1 { COMPARE } else { WRITE };
    let cid = queue.issue_at(opcode, offset, bytes.len() as u64, Move::Out(bytes));
    queue.fuse = 0;
    cid
}

/// Sends a pair; how both have ended.
fn swap(queue: &mut Queue, offset: u64, old: &[u8], new: &[u8]) -> [u16; 2] {
    let pair = [half(queue, 1, offset, old), half(queue, 2, offset, new)];
    pair.map(|cid| queue.wait(cid).unwrap().status)
}

/// Equal blocks are replaced and others are not, and an iSCSI host sees it; a pair may have as many blocks as Identify says.
#[test]
fn equal_blocks_are_replaced() {
    let mut gateway = start("nvme_fused");
    let (mut controller, mut session) = (gateway.controller(1), gateway.session("host"));
    let most = 1 + usize::from(controller.identify(0, 1).data[38]);
    assert_eq!((most, controller.identify(1, 0).data[522]), (8, 1));
    for digests in [false, true] {
        let host = Host { digests, ..Host::of(2) };
        let controller = host.connect(gateway.nvme[0]).unwrap().enabled();
        let mut queue = controller.queue(1).unwrap();
        for blocks in [1, most] {
            let [old, new] = [7, 9].map(|byte| vec![byte; blocks * BLOCK]);
            assert_eq!(queue.write(8192, &old).status, 0);
            assert_eq!(swap(&mut queue, 8192, &old, &new), [0, 0]);
            assert!(session.read(8192, new.len()) == new);
            assert_eq!(swap(&mut queue, 8192, &old, &old), [0x285, 0x09]);
            assert!(session.read(8192, new.len()) == new);
        }
    }
    gateway.stop();
}

/// Hosts that count in one block by pairs lose no step.
#[test]
fn pairs_are_one_step() {
    let mut gateway = start("nvme_fused_count");
    let controllers = [1, 2].map(|host| gateway.controller(host));
    let queues = controllers.each_ref().map(|controller| controller.queue(1).unwrap());
    let steps = |mut queue: Queue| {
        move || {
            let (mut left, mut old) = (100, vec![0; BLOCK]);
            while left > 0 {
                let mut new = old.clone();
                let count = u32::from_le_bytes(*old.first_chunk().unwrap()) + 1;
                new[..4].copy_from_slice(&count.to_le_bytes());
                match swap(&mut queue, 0, &old, &new) {
                    [0, 0] => left -= 1,
                    other => assert_eq!(other, [0x285, 0x09]),
                }
                old = queue.read(0, BLOCK as u32).data;
            }
        }
    };
    let threads = queues.map(|queue| std::thread::spawn(steps(queue)));
    for thread in threads {
        thread.join().unwrap();
    }
    let count = gateway.session("host").read(0, BLOCK);
    assert_eq!(count[..4], 200_u32.to_le_bytes());
    gateway.stop();
}

/// What is no pair is answered: a command between, a second alone, two firsts, none within a second, blocks that differ,
/// too many, and a first that has failed. The queue lives, and nothing is written.
#[test]
fn what_is_no_pair_is_answered() {
    let mut gateway = start("nvme_fused_wrong");
    let controller = gateway.controller(1);
    let mut queue = controller.queue(1).unwrap();
    let (zeroes, other) = (vec![0; BLOCK], vec![9; BLOCK]);
    let status = |queue: &mut Queue, cid| queue.wait(cid).unwrap().status;
    let first = half(&mut queue, 1, 0, &zeroes);
    assert_eq!(queue.read(0, 512).status, 0, "a command between");
    assert_eq!(status(&mut queue, first), 0x0a);
    let alone = half(&mut queue, 2, 0, &other);
    assert_eq!(status(&mut queue, alone), 0x0a, "a second alone");
    let firsts = [half(&mut queue, 1, 0, &zeroes), half(&mut queue, 1, 0, &zeroes)];
    assert_eq!(status(&mut queue, firsts[0]), 0x0a, "two firsts");
    assert_eq!(status(&mut queue, firsts[1]), 0x0a, "no second within a second");
    for (what, lba, old, new, ends) in [
        ("other blocks", 512, &zeroes, &other, [0x09, 0x02]),
        ("other lengths", 0, &zeroes, &vec![9; 1024], [0x09, 0x02]),
        ("too many", 0, &vec![0; 9 * BLOCK], &vec![9; 9 * BLOCK], [0x02, 0x09]),
    ] {
        let pair = [half(&mut queue, 1, 0, old), half(&mut queue, 2, lba, new)];
        assert_eq!(pair.map(|cid| status(&mut queue, cid)), ends, "{what}");
    }
    let end = 64 << 20;
    assert_eq!(swap(&mut queue, end, &zeroes, &other), [0x80, 0x09], "past the end");
    for (fuse, opcode) in [(3, COMPARE), (2, COMPARE), (1, WRITE)] {
        queue.fuse = fuse;
        let cid = queue.issue_at(opcode, 0, 512, Move::Out(&other));
        queue.fuse = 0;
        assert_eq!(status(&mut queue, cid), 0x02, "FUSE {fuse}, opcode {opcode}");
    }
    queue.fuse = 1;
    let read = queue.issue_at(READ, 0, 512, Move::In(512));
    queue.fuse = 0;
    assert_eq!(status(&mut queue, read), 0x02);
    assert!(gateway.session("host").read(0, 8 * BLOCK) == vec![0; 8 * BLOCK]);
    assert_eq!(swap(&mut queue, 0, &zeroes, &other), [0, 0], "the queue lives");
    gateway.stop();
}

/// A first that was aborted takes its second with it; so does one of a pair whose data was damaged on its way.
#[test]
fn one_of_a_pair_ends_both() {
    let mut gateway = start("nvme_fused_abort");
    let mut controller = gateway.controller(1);
    let mut queue = controller.queue(1).unwrap();
    let zeroes = vec![0; BLOCK];
    let aborted = |_: u32| {
        let first = half(&mut queue, 1, 0, &zeroes);
        let abort = [1 | u32::from(first) << 16];
        let aborted = controller.admin.execute(ABORT, 0, &abort, Move::None);
        let second = half(&mut queue, 2, 0, &zeroes);
        let ends = [first, second].map(|cid| queue.wait(cid).unwrap().status);
        // The Abort may be read before the Compare.
        let early = aborted.dw0 & 1 == 1;
        assert!(ends == [0x07, 0x09] || early && matches!(ends, [0, 0] | [0x0a, 0x0a]), "{ends:?}");
        !early
    };
    assert!((0..100).any(aborted), "no Abort came in time");
    let host = Host { digests: true, ..Host::of(1) };
    let controller = host.connect(gateway.nvme[0]).unwrap().enabled();
    let mut queue = controller.queue(1).unwrap();
    for damaged in [1, 2] {
        let mut pair = [0; 2];
        for fuse in [1, 2] {
            queue.damages = fuse == damaged;
            pair[usize::from(fuse) - 1] = half(&mut queue, fuse, 4096, &zeroes);
        }
        queue.damages = false;
        let mut due = [0x09, 0x09];
        due[usize::from(damaged) - 1] = 0x22;
        assert_eq!(pair.map(|cid| queue.wait(cid).unwrap().status), due, "{damaged}");
    }
    gateway.stop();
}

/// A reservation of another host forbids a pair, and a host that goes away in its middle leaves nothing.
#[test]
fn others_are_not_harmed() {
    let mut gateway = start("nvme_fused_others");
    let controller = gateway.controller(1);
    let mut queue = controller.queue(1).unwrap();
    let (zeroes, other) = (vec![0; BLOCK], vec![9; BLOCK]);
    half(&mut queue, 1, 0, &zeroes);
    drop(queue);
    let mut again = eventually("the queue again", || controller.queue(1).ok());
    let alone = half(&mut again, 2, 0, &other);
    assert_eq!(again.wait(alone).unwrap().status, 0x0a);
    let mut session = gateway.session("host");
    assert!(session.read(0, BLOCK) == zeroes);
    let register = Reserve { action: REGISTER, kind: 0, key: 0, other: 7, survives: false };
    assert_eq!(session.reserve(register), GOOD);
    let reserve = Reserve { action: RESERVE, kind: EXCLUSIVE_ACCESS, key: 7, ..register };
    assert_eq!(session.reserve(reserve), GOOD);
    assert_eq!(swap(&mut again, 0, &zeroes, &other), [0x83, 0x09]);
    gateway.stop();
}
