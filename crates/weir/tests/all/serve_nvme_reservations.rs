//! Reservations over NVMe: two NVMe hosts and an iSCSI host share one table.

use crate::gateway::commands::{
    EXCLUSIVE_ACCESS, PREEMPT_AND_ABORT, READY, REGISTER, RESERVE, Reserve, WRITE_EXCLUSIVE, cdb,
};
use crate::gateway::initiator::{GOOD, RESERVATION_CONFLICT, Session, Transfer, read16, write16};
use crate::gateway::nvme::{
    COMPARE, Controller, DATASET_MANAGEMENT, EVENT_REQUEST, FLUSH, GET_FEATURES, Host, KEEP_ALIVE,
    Move, Queue, READ, RESERVATION_ACQUIRE, RESERVATION_REGISTER, RESERVATION_RELEASE,
    RESERVATION_REPORT, SET_FEATURES, VERIFY, WRITE, WRITE_ZEROES, with_subsystem,
};
use crate::gateway::{Gateway, folder};
use crate::serve_nvme_lost::{LARGE, held, large_write, outstanding};
use std::io::Write;

/// Keys of the hosts 1 and 2 of NVMe, and of the session.
const ONE: u64 = 0x0a0a;
const TWO: u64 = 0x0b0b;
const THREE: u64 = 0x0c0c;

const CONFLICT: u16 = 0x83;
/// Actions of Acquire.
const PREEMPT: u32 = 1;
const PREEMPT_ABORT: u32 = 2;
/// CPTPL: persist through a loss of power.
const PERSIST: u32 = 3 << 30;

/// What a Reservation Report says.
#[derive(Debug, PartialEq, Eq)]
struct Report {
    generation: u32,
    rtype: u8,
    persists: bool,
    /// Key and identifier of each registrant, and whether it holds the reservation.
    registrants: Vec<(u64, [u8; 16], bool)>,
}

impl Queue {
    /// Executes a reservation command of namespace 1 with its keys; returns the status.
    fn reserve(&mut self, opcode: u8, dword: u32, keys: [u64; 2]) -> u16 {
        let list = keys.map(u64::to_le_bytes).concat();
        self.execute(opcode, 1, &[dword], Move::Out(&list)).status
    }

    fn register(&mut self, flags: u32, key: u64) -> u16 {
        self.reserve(RESERVATION_REGISTER, flags, [0, key])
    }

    fn acquire(&mut self, rtype: u32, key: u64) -> u16 {
        self.reserve(RESERVATION_ACQUIRE, rtype << 8, [key, 0])
    }

    fn release(&mut self, rtype: u32, key: u64) -> u16 {
        self.reserve(RESERVATION_RELEASE, rtype << 8, [key, 0])
    }

    /// Preempts host 1 with the key of host 2, which holds nothing afterwards.
    fn preempt_and_abort(&mut self, nsid: u32) -> u16 {
        let list = [TWO, ONE].map(u64::to_le_bytes).concat();
        let dword = [PREEMPT_ABORT | 3 << 8];
        self.execute(RESERVATION_ACQUIRE, nsid, &dword, Move::Out(&list)).status
    }

    /// Reads the first namespace, which needs more memory than there is.
    fn large_reads(&mut self) -> Vec<u16> {
        let read = |place: u64| self.issue_at(READ, place << 20, 1 << 20, Move::In(1 << 20));
        (0..64).map(read).collect()
    }

    fn report(&mut self) -> Report {
        let answer = self.execute(RESERVATION_REPORT, 1, &[255, 1], Move::In(1024));
        assert_eq!(answer.status, 0);
        let data = answer.data;
        let count = usize::from(u16::from_le_bytes([data[5], data[6]]));
        let registrants = data[64..].chunks(64).take(count).map(|entry| {
            let key = u64::from_le_bytes(*entry[8..].first_chunk().unwrap());
            (key, *entry[16..].first_chunk().unwrap(), entry[2] == 1)
        });
        Report {
            generation: u32::from_le_bytes(*data.first_chunk().unwrap()),
            rtype: data[4],
            persists: data[9] == 1,
            registrants: registrants.collect(),
        }
    }

    /// The statuses of a read and a write.
    fn access(&mut self) -> (u16, u16) {
        (self.read(0, 512).status, self.write(0, &[1; 512]).status)
    }
}

impl Controller {
    /// The oldest notice: its kind, how many follow, the namespace.
    fn notice(&mut self) -> (u8, u8, u8) {
        let page = self.log(0x80, 0, 64).data;
        (page[8], page[9], page[12])
    }
}

/// The list of a Dataset Management of the first eight blocks.
fn eight_blocks() -> Vec<u8> {
    let mut list = vec![0; 16];
    list[4] = 8;
    list
}

/// The statuses of a read and a write of a session.
fn access(session: &mut Session) -> (u8, u8) {
    let read = session.execute(read16(0, 512), Transfer::In(512)).status;
    (read, session.execute(write16(0, 512, false), Transfer::Out(vec![2; 512])).status)
}

fn start(test: &str) -> Gateway {
    Gateway::start(&folder(test), &with_subsystem("", ""), &[])
}

/// A host holds a reservation through all of its controllers. It keeps another host and a session from what changes
/// blocks, and each of them can take it over; who loses something learns of it as its protocol has it.
#[test]
fn hosts_of_both_protocols_exclude_one_another() {
    let mut gateway = start("nvme_exclude");
    let mut paths = [gateway.controller(1), gateway.controller(1)];
    let mut queues = paths.each_ref().map(|path| path.queue(1).unwrap());
    let mut other = gateway.controller(2);
    let mut two = other.queue(1).unwrap();
    let mut session = gateway.session("host");
    assert_eq!(queues[0].acquire(1, ONE), CONFLICT, "not registered");
    assert_eq!(queues[0].register(0, ONE), 0);
    assert_eq!(queues[1].register(0, ONE), 0, "the same host");
    assert_eq!(two.register(0, TWO), 0);
    let register = Reserve { action: REGISTER, kind: 0, key: 0, other: THREE, survives: false };
    assert_eq!(session.reserve(register), GOOD);
    assert_eq!(session.keys(), [THREE, ONE, TWO]);
    // Write exclusive, held by host 1.
    assert_eq!(queues[1].acquire(1, ONE), 0);
    for queue in &mut queues {
        assert_eq!(queue.access(), (0, 0));
    }
    let zeroes = queues[0].issue_at(WRITE_ZEROES, 0, 32 << 20, Move::None);
    assert_eq!(queues[0].wait(zeroes).unwrap().status, 0, "all of its steps");
    assert_eq!(two.access(), (0, CONFLICT));
    let mut list = vec![0; 16];
    list[4] = 8;
    for (opcode, dwords, data, status) in [
        (FLUSH, &[][..], Move::None, CONFLICT),
        (WRITE_ZEROES, &[0, 0, 7], Move::None, CONFLICT),
        (DATASET_MANAGEMENT, &[0, 4], Move::Out(&list), CONFLICT),
        (COMPARE, &[0, 0, 0], Move::Out(&[0; 512]), 0),
        (VERIFY, &[0, 0, 7], Move::None, 0),
    ] {
        let answer = two.execute(opcode, 1, dwords, data);
        assert_eq!((answer.status, answer.is_final), (status, status > 0), "{opcode:x}h");
    }
    assert_eq!(access(&mut session), (GOOD, RESERVATION_CONFLICT));
    let take = Reserve { action: RESERVE, kind: WRITE_EXCLUSIVE, key: THREE, ..register };
    assert_eq!(session.reserve(take), RESERVATION_CONFLICT);
    assert_eq!((two.acquire(1, TWO), two.release(1, TWO)), (CONFLICT, 0));
    // The session takes it over, with exclusive access. Both controllers of host 1 learn of it.
    let event = paths[1].admin.issue(EVENT_REQUEST, 0, &[], Move::None);
    let preempt = Reserve { action: 4, kind: EXCLUSIVE_ACCESS, other: ONE, ..take };
    assert_eq!(session.reserve(preempt), GOOD);
    assert_eq!(paths[1].admin.wait(event).unwrap().dw0, 6 | 0x80 << 16);
    for path in &mut paths {
        assert_eq!(path.notice(), (1, 0, 1), "registration preempted");
        assert_eq!(path.notice(), (0, 0, 0));
    }
    assert_eq!(other.notice(), (2, 0, 1), "it has another type");
    assert_eq!(queues[0].access(), (CONFLICT, CONFLICT));
    assert_eq!(two.access(), (CONFLICT, CONFLICT));
    assert_eq!(access(&mut session), (GOOD, GOOD));
    assert_eq!(queues[0].acquire(2, ONE), CONFLICT, "it has no registration any more");
    // Host 2 takes it from the session, which learns of it.
    let preempted = two.reserve(RESERVATION_ACQUIRE, PREEMPT | 4 << 8, [TWO, THREE]);
    assert_eq!(preempted, 0);
    assert_eq!(session.sense_of(READY, Transfer::None), (0x6, 0x2a, 0x05));
    assert_eq!(access(&mut session), (RESERVATION_CONFLICT, RESERVATION_CONFLICT));
    assert_eq!((two.access(), session.keys()), ((0, 0), vec![TWO]));
    let report = two.report();
    assert_eq!((report.rtype, report.persists), (4, false));
    assert_eq!(report.registrants, [(TWO, [2; 16], true)]);
    assert_eq!(queues[0].report(), report, "a report is free");
    assert_eq!(two.release(4, TWO), 0);
    assert_eq!((queues[0].access(), access(&mut session)), ((0, 0), (GOOD, GOOD)));
    gateway.stop();
}

/// What a host has registered and holds is there after the gateway was killed, beside the registration of a session; and
/// not if the persistence was switched off, by the feature.
#[test]
fn reservations_of_hosts_survive_a_crash() {
    let folder = folder("nvme_aptpl");
    let config = with_subsystem("", "");
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let controller = gateway.controller(1);
    let mut one = controller.queue(1).unwrap();
    let register = Reserve { action: REGISTER, kind: 0, key: 0, other: THREE, survives: true };
    assert_eq!(gateway.session("host").reserve(register), GOOD);
    assert_eq!(one.register(PERSIST, ONE), 0);
    assert_eq!(one.acquire(2, ONE), 0);
    gateway.kill();
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let mut controllers = [gateway.controller(1), gateway.controller(2)];
    let [mut one, mut two] = controllers.each_ref().map(|one| one.queue(1).unwrap());
    assert_eq!((one.access(), two.access()), ((0, 0), (CONFLICT, CONFLICT)));
    let report = two.report();
    assert_eq!((report.generation, report.rtype, report.persists), (0, 2, true));
    let [(THREE, _, false), (ONE, id, true)] = report.registrants[..] else { panic!("{report:?}") };
    assert_eq!(id, [1; 16]);
    let persistence = |controller: &mut Controller| {
        let answer = controller.admin.execute(GET_FEATURES, 1, &[0x83], Move::None);
        (answer.status, answer.dw0)
    };
    assert_eq!(persistence(&mut controllers[1]), (0, 1));
    let set = controllers[1].admin.execute(SET_FEATURES, 1, &[0x83, 0], Move::None);
    assert_eq!(set.status, 0);
    assert_eq!(persistence(&mut controllers[0]), (0, 0));
    gateway.kill();
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let controller = gateway.controller(2);
    let mut two = controller.queue(1).unwrap();
    assert_eq!((two.access(), two.report().registrants), ((0, 0), vec![]));
    gateway.stop();
}

/// What must survive and cannot be written is refused and changes nothing.
#[test]
fn what_cannot_be_kept_is_refused() {
    let folder = folder("nvme_unwritable");
    let config =
        with_subsystem("", "").replacen("[[target]]", "state = \"states/disk\"\n[[target]]", 1);
    std::fs::create_dir(folder.join("states")).unwrap();
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let controller = gateway.controller(1);
    let mut one = controller.queue(1).unwrap();
    std::fs::rename(folder.join("states"), folder.join("away")).unwrap();
    assert_eq!(one.register(PERSIST, ONE), 0x06);
    gateway.logged(&["reservations cannot be saved", "states/disk"]);
    assert!(one.report().registrants.is_empty());
    std::fs::rename(folder.join("away"), folder.join("states")).unwrap();
    assert_eq!(one.register(PERSIST, ONE), 0);
    assert!(one.report().persists);
    gateway.stop();
}

/// Preempt and Abort ends when the victim's commands have: what is in the pipeline runs to its end, what has not come
/// whole is never done, and the victim hears that both were aborted.
#[test]
fn preempt_and_abort_waits() {
    let mut gateway = Gateway::start(&folder("nvme_preempt"), &held(true), &[]);
    let (mut victim, other) = (gateway.controller(1), gateway.controller(2));
    let mut one = victim.queue(1).unwrap();
    let mut two = other.queue(1).unwrap();
    let mut second = other.queue(2).unwrap();
    assert_eq!((one.register(0, ONE), two.register(0, TWO)), (0, 0));
    assert_eq!(one.acquire(1, ONE), 0);
    let write = large_write(&mut one, 3);
    outstanding(&gateway, 1);
    one.withheld = 1;
    let half = one.issue_at(WRITE, 1 << 20, 4096, Move::Out(&[4; 4096]));
    one.withheld = 0;
    // Sockets are read in the order in which they became ready.
    for _ in 0..2 {
        assert_eq!(victim.admin.execute(KEEP_ALIVE, 0, &[], Move::None).status, 0);
    }
    let list = [TWO, ONE].map(u64::to_le_bytes).concat();
    let dword = [PREEMPT_ABORT | 3 << 8];
    let preempt = two.issue(RESERVATION_ACQUIRE, 1, &dword, Move::Out(&list));
    let aborted = one.wait(write).unwrap();
    assert_eq!((aborted.status, aborted.is_final), (0x1b, true));
    assert_eq!(two.read(32 << 20, 512).status, 0);
    assert!(!two.has_ended(preempt), "a command of the victim is in the pipeline");
    let late = second.issue_at(WRITE, 0, LARGE as u64, Move::Out(&vec![5; LARGE]));
    gateway.reload(&held(false));
    assert_eq!(two.wait(preempt).unwrap().status, 0);
    assert_eq!(second.wait(late).unwrap().status, 0);
    assert!(two.read(0, LARGE as u32).data == vec![5; LARGE], "no aborted write comes late");
    one.socket.write_all(&[4]).unwrap();
    assert_eq!(one.wait(half).unwrap().status, 0x1b);
    assert_eq!(two.read(1 << 20, 4096).data, [0; 4096]);
    assert_eq!(one.access(), (0, CONFLICT));
    gateway.stop();
}

/// The list of a host that lets the gateway wait for it is of before the fence, though it comes after: nothing that it
/// asks for is done, not even once the reservation is gone.
#[test]
fn preempt_and_abort_ends_what_is_gathered() {
    let mut gateway = start("nvme_preempt_list");
    let (mut victim, other) = (gateway.controller(1), gateway.controller(2));
    let (mut trims, mut registers) = (victim.queue(1).unwrap(), victim.queue(2).unwrap());
    let mut two = other.queue(1).unwrap();
    assert_eq!((trims.register(0, ONE), two.register(0, TWO)), (0, 0));
    assert_eq!(two.write(0, &[7; 4096]).status, 0);
    (trims.withheld, registers.withheld) = (1, 1);
    let trim = trims.issue(DATASET_MANAGEMENT, 1, &[0, 4], Move::Out(&eight_blocks()));
    let keys = [0, ONE].map(u64::to_le_bytes).concat();
    let register = registers.issue(RESERVATION_REGISTER, 1, &[0], Move::Out(&keys));
    // Sockets are read in the order in which they became ready.
    for _ in 0..2 {
        assert_eq!(victim.admin.execute(KEEP_ALIVE, 0, &[], Move::None).status, 0);
    }
    assert_eq!(two.preempt_and_abort(1), 0);
    for (queue, cid) in [(&mut trims, trim), (&mut registers, register)] {
        queue.socket.write_all(&[0]).unwrap();
        assert_eq!(queue.wait(cid).unwrap().status, 0x1b);
    }
    assert!(two.read(0, 4096).data == [7; 4096], "nothing is deallocated");
    assert_eq!(two.report().registrants, [(TWO, [2; 16], false)]);
    // What comes after the fence is judged by what is reserved then.
    trims.withheld = 0;
    let again = trims.execute(DATASET_MANAGEMENT, 1, &[0, 4], Move::Out(&eight_blocks()));
    assert_eq!((again.status, two.read(0, 4096).data), (0, vec![0; 4096]));
    gateway.stop();
}

/// Preempt and Abort ends the commands that wait for memory as well, and what is left of those that are done in parts.
#[test]
fn preempt_and_abort_ends_what_waits() {
    let with_memory = |is_held| {
        let config = held(is_held).replace("1 = \"disk\"", "1 = \"disk\", 2 = \"other\"");
        let other = "[[volume]]\nname = \"other\"\nfile = \"other.img\"\nsize = \"1MiB\"\n";
        format!("[iscsi]\nbuffer = \"32MiB\"\n{config}{other}")
    };
    let mut gateway = Gateway::start(&folder("nvme_preempt_memory"), &with_memory(true), &[]);
    let (victim, mut other) = (gateway.controller(1), gateway.controller(2));
    let mut one = victim.queue(1).unwrap();
    let mut two = other.queue(1).unwrap();
    assert_eq!(two.write(0, &[7; 4096]).status, 0);
    let keys = |key: u64| [0, key].map(u64::to_le_bytes).concat();
    for nsid in [1, 2] {
        for (queue, key) in [(&mut one, ONE), (&mut two, TWO)] {
            let list = keys(key);
            let answer = queue.execute(RESERVATION_REGISTER, nsid, &[0], Move::Out(&list));
            assert_eq!(answer.status, 0);
        }
    }
    let reads = one.large_reads();
    let trim = one.issue(DATASET_MANAGEMENT, 1, &[0, 4], Move::Out(&eight_blocks()));
    let verify = one.issue(VERIFY, 2, &[0, 0, 7], Move::None);
    let flush = one.issue(FLUSH, u32::MAX, &[], Move::None);
    // A report is answered at once, so all of them have come.
    one.report();
    // Of the flush, the part for this namespace is not done: the one before it is, and then it ends.
    assert_eq!(two.preempt_and_abort(2), 0);
    assert_eq!(one.wait(verify).unwrap().status, 0x1b);
    one.report();
    assert!(!one.has_ended(flush) && !one.has_ended(trim), "they concern another namespace");
    let whole = one.issue(FLUSH, u32::MAX, &[], Move::None);
    one.report();
    assert!(!one.has_ended(whole));
    gateway.reload(&with_memory(false));
    for &read in &reads {
        assert_eq!(one.wait(read).unwrap().status, 0);
    }
    let statuses = [trim, flush, whole].map(|cid| one.wait(cid).unwrap().status);
    assert_eq!(statuses, [0, 0x1b, 0]);
    assert!(two.read(0, 4096).data == [0; 4096], "that was of another namespace");
    assert_eq!(two.write(0, &[7; 4096]).status, 0);
    // Once more, of the namespace that everything waits for.
    gateway.reload(&with_memory(true));
    let reads = one.large_reads();
    let trim = one.issue(DATASET_MANAGEMENT, 1, &[0, 4], Move::Out(&eight_blocks()));
    one.report();
    let list = [TWO, ONE].map(u64::to_le_bytes).concat();
    let dword = [PREEMPT_ABORT | 3 << 8];
    let preempt = two.issue(RESERVATION_ACQUIRE, 1, &dword, Move::Out(&list));
    for _ in 0..2 {
        assert_eq!(other.admin.execute(KEEP_ALIVE, 0, &[], Move::None).status, 0);
    }
    gateway.reload(&with_memory(false));
    assert_eq!(two.wait(preempt).unwrap().status, 0);
    for cid in reads.into_iter().chain([trim]) {
        assert_eq!(one.wait(cid).unwrap().status, 0x1b);
    }
    assert!(two.read(0, 4096).data == [7; 4096], "nothing is deallocated");
    gateway.stop();
}

/// A session preempts and aborts the commands of an NVMe host as well.
#[test]
fn a_session_aborts_commands_of_a_host() {
    let mut gateway = Gateway::start(&folder("nvme_preempt_scsi"), &held(true), &[]);
    let victim = gateway.controller(1);
    let mut one = victim.queue(1).unwrap();
    let mut session = gateway.session("host");
    assert_eq!(one.register(0, ONE), 0);
    let register = Reserve { action: REGISTER, kind: 0, key: 0, other: THREE, survives: false };
    assert_eq!(session.reserve(register), GOOD);
    let write = large_write(&mut one, 3);
    outstanding(&gateway, 1);
    let preempt = Reserve { action: PREEMPT_AND_ABORT, key: THREE, other: ONE, ..register };
    let (command, list) = preempt.command();
    let preempt = session.issue(command, list);
    assert_eq!(one.wait(write).unwrap().status, 0x1b);
    session.ping();
    assert!(session.outstanding().contains(&preempt), "it is in the pipeline");
    gateway.reload(&held(false));
    session.wait(preempt).good();
    assert!(session.read(0, LARGE) == vec![3; LARGE], "it has run to its end");
    gateway.stop();
}

/// A command that waits for memory is judged again when there is some: a reservation that was taken meanwhile holds.
#[test]
fn a_command_that_waits_is_judged_again() {
    let with_memory = |is_held| format!("[iscsi]\nbuffer = \"32MiB\"\n{}", held(is_held));
    let mut gateway = Gateway::start(&folder("nvme_judged"), &with_memory(true), &[]);
    let (victim, other) = (gateway.controller(1), gateway.controller(2));
    let mut one = victim.queue(1).unwrap();
    let mut two = other.queue(1).unwrap();
    let reads = one.large_reads();
    // A report is answered at once, so all of them have come.
    one.report();
    assert_eq!((two.register(0, TWO), two.acquire(2, TWO)), (0, 0));
    gateway.reload(&with_memory(false));
    let statuses: Vec<_> = reads.iter().map(|&cid| one.wait(cid).unwrap().status).collect();
    for status in [0, CONFLICT] {
        assert!(statuses.contains(&status), "{statuses:x?}");
    }
    assert!(statuses.iter().all(|&status| status == 0 || status == CONFLICT), "{statuses:x?}");
    gateway.stop();
}

/// RESERVE(6) of a session shuts NVMe hosts out, and ends with the session. A host without an identifier cannot
/// register, and a mask keeps notices away.
#[test]
fn small_rules_hold() {
    let mut gateway = start("nvme_rules");
    let mut controller = gateway.controller(1);
    let mut one = controller.queue(1).unwrap();
    let nobody = Host { id: [0; 16], ..Host::of(3) };
    let nobody = nobody.connect(gateway.nvme[0]).unwrap().enabled();
    let mut nameless = nobody.queue(1).unwrap();
    assert_eq!((nameless.register(0, THREE), nameless.access()), (0x02, (0, 0)));
    let mut session = gateway.session("host");
    session.execute(cdb(&[0x16]), Transfer::None).good();
    assert_eq!((one.register(0, ONE), one.access()), (CONFLICT, (CONFLICT, CONFLICT)));
    session.execute(cdb(&[0x17]), Transfer::None).good();
    assert_eq!((one.register(0, ONE), one.access()), (0, (0, 0)));
    let masked = controller.admin.execute(SET_FEATURES, 1, &[0x82, 1 << 1], Move::None);
    assert_eq!(masked.status, 0);
    let register = Reserve { action: REGISTER, kind: 0, key: 0, other: THREE, survives: false };
    assert_eq!(session.reserve(register), GOOD);
    let preempt = Reserve { action: 4, kind: WRITE_EXCLUSIVE, key: THREE, other: ONE, ..register };
    assert_eq!(session.reserve(preempt), GOOD);
    assert_eq!(one.report().registrants.len(), 1);
    assert_eq!(controller.notice(), (0, 0, 0), "it is masked");
    assert_eq!(controller.admin.execute(KEEP_ALIVE, 0, &[], Move::None).status, 0);
    gateway.stop();
}
