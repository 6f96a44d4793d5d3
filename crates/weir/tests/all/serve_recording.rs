//! A recorded run replays to the same actions, and a recording that cannot be written harms no host.

use crate::gateway::initiator::{
    BLOCK, GOOD, Login, Transfer, read16, synchronize16, unmap, write_same16, write16,
};
use crate::gateway::{Chance, Gateway, ONE_DISK, TWO_DISKS, folder, weir};
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::Command;

/// Commands of each of two hosts.
const COMMANDS: usize = 6_000;

/// Two hosts, one per volume, each with many commands of every kind in flight.
fn mixed_work(gateway: &Gateway) {
    let portal = gateway.portal;
    let hosts = (0..).zip([("a", "disk"), ("b", "other")]);
    let threads: Vec<_> = hosts
        .map(|(seed, (host, target))| {
            std::thread::spawn(move || {
                let login = Login { target, ..Login::of(host) };
                let mut session = login.connect(portal).unwrap().ready();
                let mut chance = Chance(seed);
                let mut open = 0;
                for _ in 0..COMMANDS {
                    // Some are cut into pieces, many overlap.
                    let most = if chance.below(100) == 0 { 4_000 } else { 32 };
                    let blocks = 1 + chance.below(most);
                    let length = blocks * BLOCK;
                    let offset = chance.below(16_384 - blocks) * BLOCK;
                    let (cdb, transfer) = match chance.below(20) {
                        0 => (synchronize16(), Transfer::None),
                        1 => {
                            let (cdb, list) = unmap(offset, length);
                            (cdb, Transfer::Out(list))
                        }
                        2 => (write_same16(offset, length), Transfer::Out(vec![0; 512])),
                        3..9 => {
                            let data = vec![chance.next() as u8; length as usize];
                            let fua = chance.below(8) == 0;
                            (write16(offset, data.len(), fua), Transfer::Out(data))
                        }
                        _ => (read16(offset, length as usize), Transfer::In(length as usize)),
                    };
                    session.issue(cdb, transfer);
                    open += 1;
                    while open == 16 {
                        assert_eq!(session.next_ended().unwrap().1.status, GOOD);
                        open -= 1;
                    }
                }
                for _ in 0..open {
                    assert_eq!(session.next_ended().unwrap().1.status, GOOD);
                }
                session.logout();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// The exit code of `weir replay`, and what it printed as JSON, if anything.
fn replay(folder: &Path, file: &str) -> (Option<i32>, Value) {
    let output = weir(folder, &["replay", file, "--json"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!told.contains("panicked"), "{told}");
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default())
}

/// More than 10 000 commands of two hosts, recorded live, replay to the digest of the live run.
#[test]
fn a_recorded_run_replays_identically() {
    let folder = folder("recorded");
    let mut gateway = Gateway::start(&folder, TWO_DISKS, &["--record", "run.weir"]);
    mixed_work(&gateway);
    gateway.stop();
    let (code, report) = replay(&folder, "run.weir");
    assert_eq!((code, &report["verdict"]), (Some(0), &Value::from("same")), "{report}");
    let run = &report["replay"];
    assert_eq!(run["digest"], run["recorded"]["digest"]);
    assert_eq!(run["actions"], run["recorded"]["actions"]);
    assert!(run["arrived"].as_u64().unwrap() >= 2 * COMMANDS as u64, "{run}");
    assert_eq!(run["arrived"], run["completed"], "{run}");
    assert_eq!(replay(&folder, "run.weir"), (code, report), "twice the same");
}

/// A recording that was cut anywhere is reported as damaged (6), and so is one with a wrong byte, unless
/// what it says is possible and merely something else (5).
#[test]
fn a_damaged_recording_is_told() {
    let folder = folder("damaged");
    let mut gateway = Gateway::start(&folder, TWO_DISKS, &["--record", "run.weir"]);
    mixed_work(&gateway);
    gateway.stop();
    let good = std::fs::read(folder.join("run.weir")).unwrap();
    let mut chance = Chance(4_711);
    for round in 0..40 {
        let at = 9 + chance.below(good.len() as u64 - 9) as usize;
        std::fs::write(folder.join("bad.weir"), &good[..at]).unwrap();
        assert_eq!(replay(&folder, "bad.weir").0, Some(6), "cut at byte {at}, round {round}");
        let mut flipped = good.clone();
        flipped[at] ^= 1 << chance.below(8);
        std::fs::write(folder.join("bad.weir"), &flipped).unwrap();
        let code = replay(&folder, "bad.weir").0;
        assert!([Some(5), Some(6)].contains(&code), "byte {at} flipped, round {round}: {code:?}");
    }
}

/// A recording that cannot even be begun is an operator's mistake: the gateway says so and does not
/// start.
#[test]
fn a_recording_that_cannot_begin_is_told() {
    let folder = folder("record-full");
    std::fs::write(folder.join("weir.toml"), ONE_DISK).unwrap();
    let arguments = ["serve", "weir.toml", "--listen", "127.0.0.1:0", "--record", "/dev/full"];
    let output = weir(&folder, &arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true), "{told}");
    assert!(told.contains("cannot write the recording /dev/full"), "{told}");
}

/// A recording that cannot be written any more stops, and the log says so; serving continues.
#[test]
fn serving_outlives_its_recording() {
    let folder = folder("record-stops");
    let fifo = folder.join("run.weir");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // A reader of the beginning that then reads no more.
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::File::open(fifo).unwrap().read_exact(&mut [0; 9]).unwrap()
    });
    let gateway = Gateway::start(&folder, ONE_DISK, &["--record", "run.weir"]);
    reader.join().unwrap();
    let witness = gateway.witness();
    gateway.logged(&["run.weir", "the recording has stopped"]);
    gateway.stop_after(witness);
}
