//! NVMe hosts: the same volumes that iSCSI hosts see, over NVMe/TCP.

use crate::gateway::commands::{EXCLUSIVE_ACCESS, REGISTER, RESERVE, Reserve};
use crate::gateway::initiator::{GOOD, until_closed};
use crate::gateway::nvme::{
    ABORT, CC, COMPARE, CSTS, Controller, DATASET_MANAGEMENT, DISCOVERY, ENABLED, EVENT_REQUEST,
    FLUSH, Host, KEEP_ALIVE, Move, READ, SET_FEATURES, SHUTDOWN, SUBSYSTEM, VERIFY, WRITE,
    WRITE_ZEROES, with_subsystem,
};
use crate::gateway::recorded::RECORDED;
use crate::gateway::{Chance, Gateway, eventually, folder};
use weir_flow::request::Op;

const MIB: usize = 1 << 20;

fn start(test: &str) -> Gateway {
    Gateway::start(&folder(test), &with_subsystem("", ""), &[])
}

/// What one queue writes, zeroes and deallocates the other queue and an iSCSI session read, and the other way round;
/// small data comes in capsules, large data when it is asked for, with digests and without.
#[test]
fn all_see_the_same() {
    let mut gateway = start("nvme_both");
    for digests in [false, true] {
        let host = Host { digests, ..Host::of(1) };
        let controller = host.connect(gateway.nvme[0]).unwrap().enabled();
        let (mut one, mut two) = (controller.queue(1).unwrap(), controller.queue(2).unwrap());
        let mut session = gateway.session(if digests { "other" } else { "host" });
        let data = Chance(1).bytes(MIB);
        assert_eq!(one.write(MIB as u64, &data).status, 0);
        assert!(session.read(MIB as u64, MIB) == data);
        session.write(512, &data[..4096]);
        assert!(two.read(512, 4096).data == data[..4096]);
        assert_eq!(two.write(0, &data[..512]).status, 0);
        assert!(one.read(0, 1024).data[..512] == data[..512]);
        let zeroes = one.issue_at(WRITE_ZEROES, MIB as u64, 65_536, Move::None);
        assert_eq!(one.wait(zeroes).unwrap().status, 0);
        let mut list = vec![0; 32];
        for (place, lba) in [(0, 4096_u64), (1, 5120)] {
            list[16 * place + 4..][..4].copy_from_slice(&128_u32.to_le_bytes());
            list[16 * place + 8..][..8].copy_from_slice(&lba.to_le_bytes());
        }
        one.write(2 * MIB as u64, &data);
        let ranges = one.execute(DATASET_MANAGEMENT, 1, &[1, 4], Move::Out(&list));
        assert_eq!(ranges.status, 0);
        for offset in [MIB as u64, 4096 * 512, 5120 * 512] {
            assert!(session.read(offset, 65_536) == vec![0; 65_536], "{offset}");
        }
        assert!(two.read(4224 * 512, 512).data == data[65_536..66_048], "between the ranges");
        assert_eq!(one.execute(FLUSH, 1, &[], Move::None).status, 0);
        assert_eq!(one.execute(FLUSH, u32::MAX, &[], Move::None).status, 0);
        let verified = one.issue_at(VERIFY, 0, MIB as u64, Move::None);
        assert_eq!(one.wait(verified).unwrap().status, 0);
        for (byte, status) in [(data[0], 0), (!data[0], 0x285)] {
            let mut wanted = data[..512].to_vec();
            wanted[0] = byte;
            let compared = one.issue_at(COMPARE, 0, 512, Move::Out(&wanted));
            assert_eq!(one.wait(compared).unwrap().status, status);
        }
    }
    gateway.stop();
}

/// A write with FUA is durable when it ends, and a flush is one.
#[test]
fn what_shall_be_durable_is_asked_for() {
    let mut gateway = Gateway::start(&folder("nvme_durable"), &with_subsystem("", ""), RECORDED);
    let mut queue = gateway.controller(1).queue(1).unwrap_or_else(|refused| panic!("{refused:x?}"));
    let mut controller = gateway.controller(2);
    drop(queue);
    queue = controller.queue(1).unwrap();
    queue.write(0, &[1; 4096]);
    let fua = queue.execute(WRITE, 1, &[8, 0, 7 | 1 << 30], Move::Out(&[2; 4096]));
    assert_eq!(fua.status, 0);
    assert_eq!(queue.execute(FLUSH, 1, &[], Move::None).status, 0);
    controller.admin.set(CC, SHUTDOWN);
    eventually("end of the shutdown", || (controller.admin.get(CSTS) >> 2 == 2).then_some(()));
    assert!(until_closed(&mut queue.socket).is_empty(), "a shutdown ends the I/O queues");
    assert!(matches!(controller.queue(1), Err((0x00c, _))), "and no other is connected");
    let told = [(Op::Write, false), (Op::Write, true), (Op::Flush, false), (Op::Flush, false)];
    assert_eq!(gateway.stop_and_tell(), told, "a shutdown flushes");
}

/// Four queues with sixteen commands each at a time, over parts of one volume that lie next to each other: every read
/// finds what was written last.
#[test]
fn many_commands_at_once_are_right() {
    const PAGE: usize = 16_384;
    let mut gateway = start("nvme_many");
    let controller = gateway.controller(1);
    let threads: Vec<_> = (0..4_u64)
        .map(|number| {
            let mut queue = controller.queue(number as u16 + 1).unwrap();
            std::thread::spawn(move || {
                let mut chance = Chance(number);
                let mut model = vec![vec![0; PAGE]; 64];
                let at = |page: usize| (4 * page as u64 + number) * PAGE as u64;
                for _ in 0..60 {
                    // Different pages, so that the order among them is of no account.
                    let first = chance.below(64) as usize;
                    let commands: Vec<_> = (0..16)
                        .map(|step| {
                            let page = (first + step * 4) % 64;
                            let length = PAGE as u64;
                            if chance.below(2) == 0 {
                                let data = Move::In(PAGE as u32);
                                return (page, queue.issue_at(READ, at(page), length, data), true);
                            }
                            model[page] = chance.bytes(PAGE);
                            let data = Move::Out(&model[page]);
                            (page, queue.issue_at(WRITE, at(page), length, data), false)
                        })
                        .collect();
                    for (page, cid, reads) in commands {
                        let answer = queue.wait(cid).unwrap();
                        assert_eq!(answer.status, 0);
                        assert!(!reads || answer.data == model[page], "page {page} of {number}");
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    gateway.stop();
}

/// Discovery names the subsystem to hosts that may see it, and Connect refuses the others; an I/O queue belongs to its
/// host.
#[test]
fn hosts_are_told_apart() {
    let hosts = format!("hosts = [\"{}\"]\n", Host::of(1).nqn);
    let mut gateway = Gateway::start(&folder("nvme_hosts"), &with_subsystem("", &hosts), &[]);
    let address = gateway.nvme[0];
    for (number, records) in [(1, 2), (2, 1)] {
        let host = Host { subsystem: DISCOVERY.to_owned(), ..Host::of(number) };
        let mut discovery = host.connect(address).unwrap().enabled();
        let page = discovery.log(0x70, 0, 4096).data;
        assert_eq!(u64::from_le_bytes(*page[8..].first_chunk().unwrap()), records);
        assert!(page[1024 + 256..].starts_with(DISCOVERY.as_bytes()));
        assert!(page[1024 + 32..].starts_with(format!("{} ", address.port()).as_bytes()));
        assert!(page[1024 + 512..].starts_with(b"127.0.0.1 "));
        assert_eq!(page[2048 + 256..].starts_with(SUBSYSTEM.as_bytes()), records == 2);
        assert_eq!(discovery.queue(1).unwrap_err(), (0x182, 1 << 16 | 16));
    }
    assert_eq!(Host::of(2).connect(address).unwrap_err().0, 0x184);
    let unknown = Host { subsystem: "nqn.2026-11.org.example:x".to_owned(), ..Host::of(1) };
    assert_eq!(unknown.connect(address).unwrap_err(), (0x182, 1 << 16 | 256));
    let controller = gateway.controller(1);
    let stranger = Host { nqn: Host::of(2).nqn, ..Host::of(1) };
    assert_eq!(controller.queue_as(&stranger, 1).unwrap_err(), (0x182, 1 << 16 | 512));
    let other_id = Host { id: [9; 16], ..Host::of(1) };
    assert_eq!(controller.queue_as(&other_id, 1).unwrap_err(), (0x182, 1 << 16));
    assert_eq!(controller.queue(9).unwrap_err(), (0x182, 42), "QID above `queues`");
    // The second connection of a queue waits for the end of the first, and is then refused.
    let first = controller.queue(1).unwrap();
    assert_eq!(controller.queue(1).unwrap_err().0, 0x0c);
    drop(first);
    controller.queue(1).unwrap();
    gateway.stop();
}

/// What a host finds out about a namespace and a controller is what there is.
#[test]
fn facts_are_true() {
    let mut gateway = start("nvme_facts");
    let mut controller = gateway.controller(1);
    let facts = controller.identify(1, 0).data;
    assert_eq!(u16::from_le_bytes([facts[78], facts[79]]), controller.id);
    assert!(facts[768..].starts_with(SUBSYSTEM.as_bytes()));
    assert_eq!(facts[77], 8, "MDTS: 1 MiB");
    let namespace = controller.identify(0, 1).data;
    assert_eq!(u64::from_le_bytes(*namespace.first_chunk().unwrap()), (64 << 20) / 512);
    assert_eq!(namespace[130], 9, "blocks of 512 bytes");
    assert_eq!(controller.identify(2, 0).data[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    let queues = controller.admin.execute(SET_FEATURES, 0, &[7, 15 | 15 << 16], Move::None);
    assert_eq!((queues.status, queues.dw0), (0, 7 | 7 << 16), "8 of 16 queues");
    assert_eq!(controller.admin.execute(KEEP_ALIVE, 0, &[], Move::None).status, 0);
    let mut queue = controller.queue(1).unwrap();
    assert_eq!(queue.read(64 << 20, 512).status, 0x80, "behind the end");
    let other = queue.execute(READ, 2, &[0, 0, 0], Move::In(512));
    assert_eq!((other.status, other.is_final), (0x02, true), "no such namespace");
    assert_eq!(queue.execute(0x7e, 1, &[], Move::None).status, 0x01);
    // A queue that has refused serves as before.
    assert_eq!(queue.read(0, 512).status, 0);
    gateway.stop();
}

/// A host learns of a resize without asking again and again, and can abort its request for events.
#[test]
fn a_resize_is_an_event() {
    let mut gateway = start("nvme_resize");
    let mut controller = gateway.controller(1);
    controller.admin.execute(SET_FEATURES, 0, &[0x0b, 1 << 8 | 1 << 11], Move::None);
    let event = controller.admin.issue(EVENT_REQUEST, 0, &[], Move::None);
    let config = with_subsystem("", "").replace("64MiB", "80MiB");
    gateway.reload(&config);
    let told = controller.admin.wait(event).unwrap();
    assert_eq!((told.status, told.dw0), (0, 2 | 4 << 16), "a changed namespace, log page 04h");
    assert_eq!(controller.log(4, 0, 4096).data[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    let namespace = controller.identify(0, 1).data;
    assert_eq!(u64::from_le_bytes(*namespace.first_chunk().unwrap()), (80 << 20) / 512);
    assert_eq!(controller.queue(1).unwrap().read(79 << 20, 512).status, 0);
    let event = controller.admin.issue(EVENT_REQUEST, 0, &[], Move::None);
    let aborted = controller.admin.execute(ABORT, 0, &[u32::from(event) << 16], Move::None);
    assert_eq!((aborted.status, aborted.dw0), (0, 0));
    assert_eq!(controller.admin.wait(event).unwrap().status, 0x07);
    gateway.stop();
}

/// Access is by portal: each host sees the state of the address that it came to, in the log page, and learns of a
/// change; commands through an inaccessible one are refused so that the host uses another path.
#[test]
fn access_is_by_portal() {
    let listen = || {
        let two = "[\"127.0.0.1:0\", \"127.0.0.2:0\"]";
        with_subsystem("", "").replacen("[\"127.0.0.1:0\"]", two, 1)
    };
    let mut gateway = Gateway::start(&folder("nvme_ana"), &listen(), &[]);
    let portals = gateway.nvme.clone();
    let connect = |portal| Host::of(1).connect(portal).unwrap().enabled();
    let mut paths = [connect(portals[0]), connect(portals[1])];
    let mut queues = paths.each_ref().map(|path| path.queue(1).unwrap());
    let states = |paths: &mut [Controller; 2]| {
        paths.each_mut().map(|path| {
            let page = path.log(0x0c, 0, 64).data;
            assert_eq!((page[8], page[16]), (1, 1), "one group, of namespace 1");
            page[32]
        })
    };
    assert_eq!(states(&mut paths), [1, 1]);
    paths[1].admin.execute(SET_FEATURES, 0, &[0x0b, 1 << 8 | 1 << 11], Move::None);
    let event = paths[1].admin.issue(EVENT_REQUEST, 0, &[], Move::None);
    let with = |one: &str, two: &str| {
        let [first, second] = [portals[0], portals[1]];
        let ana = format!("ana = {{ \"{first}\" = \"{one}\", \"{second}\" = \"{two}\" }}\n");
        format!("{}{ana}", listen())
    };
    gateway.reload(&with("optimized", "inaccessible"));
    let told = paths[1].admin.wait(event).unwrap();
    assert_eq!((told.status, told.dw0), (0, 2 | 3 << 8 | 0x0c << 16), "log page 0Ch has changed");
    assert_eq!(states(&mut paths), [1, 3]);
    assert_eq!(queues[0].read(0, 512).status, 0);
    let refused = queues[1].read(0, 512);
    assert_eq!((refused.status, refused.is_final), (0x302, false), "another path");
    gateway.reload(&with("non-optimized", "optimized"));
    assert_eq!(states(&mut paths), [2, 1]);
    assert!(queues.iter_mut().all(|queue| queue.read(0, 512).status == 0));
    gateway.stop();
}

/// A reload that takes a host's access away ends its controllers; those of others stay.
#[test]
fn access_is_taken_away() {
    let mut gateway = start("nvme_access");
    let (one, mut two) = (gateway.controller(1), gateway.controller(2));
    let mut queue = one.queue(1).unwrap();
    let mut other = two.queue(1).unwrap();
    gateway.reload(&with_subsystem("", &format!("hosts = [\"{}\"]\n", Host::of(2).nqn)));
    until_closed(&mut queue.socket);
    assert_eq!(other.read(0, 512).status, 0);
    assert_eq!(two.admin.execute(KEEP_ALIVE, 0, &[], Move::None).status, 0);
    assert_eq!(Host::of(1).connect(gateway.nvme[0]).unwrap_err().0, 0x184);
    gateway.stop();
}

/// A reservation of an iSCSI host keeps NVMe hosts out.
#[test]
fn reservations_hold() {
    let mut gateway = start("nvme_reserved");
    let mut session = gateway.session("owner");
    let mut queue = gateway.controller(1);
    let mut io = queue.queue(1).unwrap();
    let register = Reserve { action: REGISTER, kind: 0, key: 0, other: 7, survives: false };
    assert_eq!(session.reserve(register), GOOD);
    assert_eq!(io.write(0, &[1; 512]).status, 0);
    let reserve = Reserve { action: RESERVE, kind: EXCLUSIVE_ACCESS, key: 7, ..register };
    assert_eq!(session.reserve(reserve), GOOD);
    assert_eq!(io.write(0, &[2; 512]).status, 0x83);
    assert_eq!(io.read(0, 512).status, 0x83);
    assert_eq!(queue.admin.execute(KEEP_ALIVE, 0, &[], Move::None).status, 0);
    gateway.stop();
}

/// A host that is silent for longer than its keep alive timeout has lost its controller, all queues of it; one that
/// sends commands on any queue keeps it.
#[test]
fn silence_ends_a_controller() {
    let mut gateway = start("nvme_silent");
    let host = |number| Host { kato_ms: 1_000, ..Host::of(number) };
    let silent = host(1).connect(gateway.nvme[0]).unwrap().enabled();
    let mut queue = silent.queue(1).unwrap();
    let speaking = Host::of(2).connect(gateway.nvme[0]).unwrap().enabled();
    let mut heard = speaking.queue(1).unwrap();
    assert!(until_closed(&mut queue.socket).is_empty());
    gateway.logged(&["keep alive timer has expired", "host1"]);
    assert_eq!(heard.read(0, 512).status, 0);
    assert_eq!(speaking.queue(2).unwrap().read(0, 512).status, 0);
    gateway.stop();
}

/// A reset ends the I/O queues and is complete when nothing of the controller is in the pipeline; the controller can be
/// enabled again.
#[test]
fn a_reset_is_complete() {
    let mut gateway = start("nvme_reset");
    let mut controller = gateway.controller(1);
    let mut queue = controller.queue(1).unwrap();
    queue.issue_at(WRITE, 0, 4096, Move::Out(&[3; 4096]));
    controller.admin.set(CC, ENABLED - 1);
    eventually("end of the reset", || (controller.admin.get(CSTS) & 1 == 0).then_some(()));
    assert_eq!(controller.queue(1).unwrap_err().0, 0x0c, "it is not enabled");
    controller.admin.set(CC, ENABLED);
    assert_eq!(controller.queue(1).unwrap().read(0, 512).status, 0);
    gateway.stop();
}

/// Commands for which there is no memory wait, and all end well: nothing fails and nothing is stuck.
#[test]
fn commands_wait_for_memory() {
    let config = format!("[iscsi]\nbuffer = \"32MiB\"\n{}", with_subsystem("", ""));
    let mut gateway = Gateway::start(&folder("nvme_memory"), &config, &[]);
    let controller = gateway.controller(1);
    let threads: Vec<_> = (1..=4_u16)
        .map(|number| {
            let mut queue = controller.queue(number).unwrap();
            std::thread::spawn(move || {
                let data = vec![number as u8; MIB];
                let place = |step: u64| (16 * u64::from(number - 1) + step % 16) * MIB as u64;
                let mut commands = Vec::new();
                for step in 0..48 {
                    commands.push(if step % 3 == 2 {
                        queue.issue_at(READ, place(step), MIB as u64, Move::In(MIB as u32))
                    } else {
                        queue.issue_at(WRITE, place(step), MIB as u64, Move::Out(&data))
                    });
                }
                for small in 0..16 {
                    let bytes = Move::Out(&data[..4096]);
                    commands.push(queue.issue_at(WRITE, place(small), 4096, bytes));
                }
                for cid in commands {
                    assert_eq!(queue.wait(cid).unwrap().status, 0);
                }
                for step in 0..16 {
                    assert!(queue.read(place(step), 4096).data == data[..4096]);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    gateway.stop();
}

/// The status names the queues of a host and its controller.
#[test]
fn queues_are_in_the_status() {
    let socket = "[control]\nsocket = \"control.sock\"\n";
    let config = format!("{socket}{}", with_subsystem("", ""));
    let mut gateway = Gateway::start(&folder("nvme_status"), &config, &[]);
    let controller = gateway.controller(1);
    let _queue = controller.queue(3).unwrap();
    let output = crate::support::run(&gateway.folder, &["status", "--socket", "control.sock"]);
    let text = crate::support::out(&output);
    for queue in [0, 3] {
        let told = format!("{SUBSYSTEM}, controller {}, queue {queue}", controller.id);
        assert!(text.contains(&told), "{text}");
    }
    assert!(text.contains(&Host::of(1).nqn), "{text}");
    gateway.stop();
}
