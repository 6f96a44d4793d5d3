//! NVMe commands that end early: Abort, and queues that are lost. A command of a dead queue never lands after its host
//! was told otherwise.

use crate::gateway::nvme::{
    ABORT, DATASET_MANAGEMENT, FLUSH, Host, KEEP_ALIVE, Move, Queue, READ, RESERVATION_REPORT,
    WRITE, with_subsystem,
};
use crate::gateway::{Gateway, eventually, folder};
use std::io::Write;

/// Bytes of a write that a contract of [`held`] holds for ever.
pub(crate) const LARGE: usize = 65_536;

/// A gateway in which large requests of host 1 are held in the pipeline, if they are.
pub(crate) fn held(is_held: bool) -> String {
    let objectives = "objectives = [{ size = 512, iops = 1, p99 = \"1s\" }]\n";
    let objectives = if is_held { objectives } else { "" };
    format!(
        "[control]\nsocket = \"c.sock\"\n[policy]\ncontrol = {{ name = \"ta1\", tau = 1 }}\n\
         [[tenant]]\nname = \"one\"\ninitiators = [\"{}\"]\n{objectives}{}",
        Host::of(1).nqn,
        with_subsystem("", "")
    )
}

/// Waits until the pipeline has as many requests.
pub(crate) fn outstanding(gateway: &Gateway, count: u64) {
    eventually("requests in the pipeline", || {
        let status = gateway.asked(&["status"])["status"].take();
        (status["requests"]["outstanding"] == count).then_some(())
    });
}

/// A large write whose data the gateway has.
pub(crate) fn large_write(queue: &mut Queue, byte: u8) -> u16 {
    let cid = queue.issue_at(WRITE, 0, LARGE as u64, Move::Out(&vec![byte; LARGE]));
    queue.hear().unwrap();
    cid
}

/// Dwords of an Abort of a command of queue 1.
const fn of_queue_1(cid: u16) -> [u32; 1] {
    [(cid as u32) << 16 | 1]
}

/// An Abort of a command in the pipeline is answered when that has ended, and says that it was not aborted; four wait at
/// most. What its host still sends data of is aborted, and has no effect.
#[test]
fn aborts_tell_the_truth() {
    let mut gateway = Gateway::start(&folder("nvme_abort"), &held(true), &[]);
    let mut controller = gateway.controller(1);
    let mut queue = controller.queue(1).unwrap();
    let asked = queue.issue_at(WRITE, 0, LARGE as u64, Move::Out(&vec![9; LARGE]));
    let unknown = controller.admin.execute(ABORT, 0, &of_queue_1(asked + 1), Move::None);
    assert_eq!((unknown.status, unknown.dw0), (0, 1), "no such command");
    let elsewhere = controller.admin.execute(ABORT, 0, &[2], Move::None);
    assert_eq!((elsewhere.status, elsewhere.dw0), (0, 1), "no such queue");
    let early = controller.admin.execute(ABORT, 0, &of_queue_1(asked), Move::None);
    assert_eq!((early.status, early.dw0), (0, 0), "its data had not come");
    assert_eq!(queue.wait(asked).unwrap().status, 0x07);
    let write = large_write(&mut queue, 3);
    outstanding(&gateway, 1);
    let abort = of_queue_1(write);
    let aborts: Vec<_> =
        (0..4).map(|_| controller.admin.issue(ABORT, 0, &abort, Move::None)).collect();
    assert_eq!(controller.admin.execute(ABORT, 0, &abort, Move::None).status, 0x103);
    assert_eq!(controller.admin.execute(KEEP_ALIVE, 0, &[], Move::None).status, 0);
    assert!(!aborts.iter().any(|&abort| controller.admin.has_ended(abort)), "they wait");
    let small = gateway.controller(2).queue(1).unwrap().read(32 << 20, 512);
    assert_eq!(small.status, 0, "others are served");
    gateway.reload(&held(false));
    for abort in aborts {
        let answer = controller.admin.wait(abort).unwrap();
        assert_eq!((answer.status, answer.dw0), (0, 1), "it has run to its end");
    }
    assert_eq!(queue.wait(write).unwrap().status, 0);
    assert!(queue.read(0, LARGE as u32).data == vec![3; LARGE]);
    gateway.stop();
}

/// An Abort of a command whose queue is lost is answered when the queue is.
#[test]
fn aborts_end_with_their_queue() {
    let mut gateway = Gateway::start(&folder("nvme_abort_lost"), &held(true), &[]);
    let mut controller = gateway.controller(1);
    let mut queue = controller.queue(1).unwrap();
    let write = large_write(&mut queue, 3);
    outstanding(&gateway, 1);
    let abort = controller.admin.issue(ABORT, 0, &of_queue_1(write), Move::None);
    // The first may be read together with the Abort, whose answer would come behind its own.
    for _ in 0..2 {
        assert_eq!(controller.admin.execute(KEEP_ALIVE, 0, &[], Move::None).status, 0);
    }
    assert!(!controller.admin.has_ended(abort), "it waits");
    drop(queue);
    let answer = controller.admin.wait(abort).unwrap();
    assert_eq!((answer.status, answer.dw0), (0, 1), "the command was not aborted");
    // The command itself has not ended: it was the end of the queue that was answered.
    outstanding(&gateway, 1);
    gateway.reload(&held(false));
    outstanding(&gateway, 0);
    gateway.stop();
}

/// A Disconnect is answered when what runs has ended, and does not wait for data: a write whose data has not come ends
/// with the queue, without effect.
#[test]
fn a_disconnect_waits_for_no_data() {
    let mut gateway = Gateway::start(&folder("nvme_leave"), &with_subsystem("", ""), &[]);
    let controller = gateway.controller(1);
    let mut queue = controller.queue(1).unwrap();
    assert_eq!(queue.write(0, &vec![1; LARGE]).status, 0);
    // Nothing of the data is sent when it is asked for.
    queue.withheld = 24 + LARGE;
    let write = queue.issue_at(WRITE, 0, LARGE as u64, Move::Out(&vec![2; LARGE]));
    queue.hear().unwrap();
    let left = queue.issue(0x7f, 8, &[], Move::None);
    assert_eq!(queue.wait(write).unwrap().status, 0x08);
    assert_eq!(queue.wait(left).unwrap().status, 0);
    let mut again = controller.queue(1).unwrap();
    assert!(again.read(0, LARGE as u32).data == vec![1; LARGE]);
    gateway.stop();
}

/// A write of a lost queue that is in the pipeline lands before a newer one to the same blocks, even if that is of
/// another host, which nothing else holds.
#[test]
fn a_lost_write_lands_before_a_newer_one() {
    let mut gateway = Gateway::start(&folder("nvme_ghost"), &held(true), &[]);
    let controller = gateway.controller(1);
    let mut lost = controller.queue(1).unwrap();
    large_write(&mut lost, 2);
    outstanding(&gateway, 1);
    drop((lost, controller));
    let other = gateway.controller(2);
    let mut queue = other.queue(1).unwrap();
    let newer = large_write(&mut queue, 3);
    // The newer one has come, and waits.
    assert_eq!(queue.read(32 << 20, 512).status, 0);
    outstanding(&gateway, 2);
    assert!(!queue.has_ended(newer));
    gateway.reload(&held(false));
    assert_eq!(queue.wait(newer).unwrap().status, 0);
    assert!(queue.read(0, LARGE as u32).data == vec![3; LARGE]);
    outstanding(&gateway, 0);
    assert!(queue.read(0, LARGE as u32).data == vec![3; LARGE]);
    gateway.stop();
}

/// A write whose data has not come whole when its queue is lost has no effect: neither one that brings its data nor one
/// that is asked for it, and not if only the digest is missing.
#[test]
fn what_a_lost_queue_has_not_completed_is_not_done() {
    let mut gateway = Gateway::start(&folder("nvme_lost"), &with_subsystem("", ""), &[]);
    for (digests, length, withheld) in [
        (false, 4096, 1),
        (false, 4096, 4096),
        (true, 4096, 1),
        (true, 4096, 4),
        (false, LARGE, 1),
        (false, LARGE, LARGE / 2),
        (true, LARGE, 1),
        (true, LARGE, 4),
    ] {
        let host = Host { digests, ..Host::of(1) };
        let mut controller = host.connect(gateway.nvme[0]).unwrap().enabled();
        let mut queue = controller.queue(1).unwrap();
        assert_eq!(queue.write(0, &vec![1; length]).status, 0);
        queue.withheld = withheld;
        queue.issue_at(WRITE, 0, length as u64, Move::Out(&vec![2; length]));
        if length == LARGE {
            queue.hear().unwrap();
        }
        // Sockets are read in the order in which they became ready: what was sent is read before this is answered.
        for _ in 0..2 {
            assert_eq!(controller.admin.execute(KEEP_ALIVE, 0, &[], Move::None).status, 0);
        }
        drop(queue);
        let mut again = controller.queue(1).unwrap();
        let found = again.read(0, length as u32).data;
        assert!(found == vec![1; length], "digests {digests}, {withheld} of {length} withheld");
    }
    gateway.stop();
}

/// A volume leaves, and another one comes under its number, while commands for it wait for memory, or for their lists:
/// they end, nothing keeps the volume, and nothing of them reaches the other.
#[test]
fn what_waits_ends_with_its_namespace() {
    let with = |second: &str, is_held| {
        let both = format!("1 = \"disk\", 2 = \"{second}\"");
        let config = held(is_held).replace("1 = \"disk\"", &both);
        let volume =
            format!("[[volume]]\nname = \"{second}\"\nfile = \"{second}.img\"\nsize = \"1MiB\"\n");
        format!("[iscsi]\nbuffer = \"32MiB\"\n{config}{volume}")
    };
    let mut gateway = Gateway::start(&folder("nvme_leaves"), &with("old", true), &[]);
    let mut controller = gateway.controller(1);
    let (mut queue, mut lists) = (controller.queue(1).unwrap(), controller.queue(2).unwrap());
    let mut list = vec![0; 16];
    list[4] = 8;
    lists.withheld = 1;
    let late = lists.issue(DATASET_MANAGEMENT, 2, &[0, 4], Move::Out(&list));
    let read = |place: u64| queue.issue_at(READ, place << 20, 1 << 20, Move::In(1 << 20));
    let reads: Vec<_> = (0..64).map(read).collect();
    let write = queue.issue(WRITE, 2, &[0, 0, 7], Move::Out(&[3; 4096]));
    let trim = queue.issue(DATASET_MANAGEMENT, 2, &[0, 4], Move::Out(&list));
    let flush = queue.issue(FLUSH, u32::MAX, &[], Move::None);
    // A report is answered at once, so all of them have come.
    assert_eq!(queue.execute(RESERVATION_REPORT, 1, &[255, 1], Move::In(1024)).status, 0);
    for _ in 0..2 {
        assert_eq!(controller.admin.execute(KEEP_ALIVE, 0, &[], Move::None).status, 0);
    }
    std::fs::write(gateway.folder.join("weir.toml"), with("new", true)).unwrap();
    let refused = gateway.command(&["reload"]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("(NVMe controller 1, namespace 2 of "), "{told}");
    gateway.asked(&["reload", "--force"]);
    for cid in [write, trim] {
        assert_eq!(queue.wait(cid).unwrap().status, 0x0b);
    }
    lists.socket.write_all(&[0]).unwrap();
    assert_eq!(lists.wait(late).unwrap().status, 0x0b, "its number is that of another volume");
    gateway.logged(&["volume removed", "old"]);
    assert!(gateway.stored("old.img", 0, 4096) == [0; 4096]);
    gateway.reload(&with("new", false));
    for read in reads {
        assert_eq!(queue.wait(read).unwrap().status, 0);
    }
    assert_eq!(queue.wait(flush).unwrap().status, 0x0b, "a part of it was for the volume");
    lists.withheld = 0;
    assert_eq!(lists.execute(DATASET_MANAGEMENT, 2, &[0, 4], Move::Out(&list)).status, 0);
    gateway.stop();
}

/// What a host has sent on a queue and then closed it is not done, if it was not read before.
#[test]
fn a_closed_queue_is_not_read() {
    let mut gateway = Gateway::start(&folder("nvme_closed"), &with_subsystem("", ""), &[]);
    let controller = gateway.controller(1);
    let mut queue = controller.queue(1).unwrap();
    assert_eq!(queue.write(0, &[1; 4096]).status, 0);
    gateway.signal("STOP");
    queue.issue_at(WRITE, 0, 4096, Move::Out(&[2; 4096]));
    drop(queue);
    gateway.signal("CONT");
    assert!(controller.queue(1).unwrap().read(0, 4096).data == [1; 4096]);
    gateway.stop();
}

/// A gateway that was stopped for longer than the keep alive timeout throws away what has come meanwhile: the host may
/// have sent it again elsewhere.
#[test]
fn a_stopped_gateway_takes_nothing_late() {
    let mut gateway = Gateway::start(&folder("nvme_stopped"), &with_subsystem("", ""), &[]);
    let host = Host { kato_ms: 1_000, ..Host::of(1) };
    let controller = host.connect(gateway.nvme[0]).unwrap().enabled();
    let mut queue = controller.queue(1).unwrap();
    assert_eq!(queue.write(0, &[1; 512]).status, 0);
    gateway.signal("STOP");
    let late = queue.issue_at(WRITE, 0, 512, Move::Out(&[2; 512]));
    // The test only needs this to be longer than the timeout.
    std::thread::park_timeout(std::time::Duration::from_secs(3));
    gateway.signal("CONT");
    assert!(queue.wait(late).is_err(), "the queue has ended");
    let again = gateway.controller(2);
    assert_eq!(again.queue(1).unwrap().read(0, 512).data, [1; 512]);
    gateway.stop();
}
