//! `weir log`: what a person can find out about the log of a gateway that was killed, and get out of it, whole or
//! damaged.

use crate::gateway::initiator::{Transfer, synchronize16, unmap};
use crate::gateway::{Chance, Gateway, eventually, folder, weir};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A volume whose own storage takes an hour for an I/O, so that everything is only in the log; in the first run it
/// takes nothing: flushes of hosts wait until the storage of a new log was flushed once.
fn config(service: &str) -> String {
    format!(
        r#"
[control]
socket = "c.sock"
[[backend]]
name = "far"
model = "fixed"
service = "{service}"
[[volume]]
name = "disk"
file = "disk.img"
size = "4MiB"
backend = "far"
log = "disk.log"
log_size = "16MiB"
[[target]]
name = "iqn.2026-11.org.example:disk"
luns = {{ 0 = "disk" }}
"#
    )
}

const VOLUME: usize = 4 << 20;

/// Bytes of the super blocks, and of a segment.
const SUPERS: usize = 8192;
const SEGMENT: usize = 2 << 20;

/// A log with writes, zeroes and flushes that are nowhere else, of a gateway that was killed; and the volume as hosts
/// have it.
#[expect(clippy::disallowed_methods, reason = "nothing outside shows what is waited for")]
fn killed(folder: &Path) -> Vec<u8> {
    let mut gateway = Gateway::start(folder, &config("1us"), &[]);
    let mut session = gateway.session("one");
    session.write(0, &[0; 4096]);
    session.execute(synchronize16(), Transfer::None).good();
    // From then on a gateway does not begin by flushing the volume's own storage.
    eventually("a super block that says that nothing went past the log", || {
        let log = fs::read(folder.join("disk.log")).unwrap();
        let newer = [0, 4096]
            .into_iter()
            .max_by_key(|&at| log[at + 56..at + 64].iter().rev().copied().collect::<Vec<_>>());
        (log[newer.unwrap() + 112] & 2 == 0).then_some(())
    });
    gateway.kill();
    let mut gateway = Gateway::start(folder, &config("1h"), &[]);
    let mut session = gateway.session("one");
    let (mut volume, mut chance) = (vec![0; VOLUME], Chance(11));
    for turn in 0..40 {
        let length = 512 * (1 + chance.below(40)) as usize;
        let at = 512 * chance.below((VOLUME - length) as u64 / 512);
        let within = at as usize..at as usize + length;
        if turn % 8 == 5 {
            let (cdb, list) = unmap(at, length as u64);
            session.execute(cdb, Transfer::Out(list)).good();
            volume[within].fill(0);
        } else {
            let data = chance.bytes(length);
            session.write(at, &data);
            volume[within].copy_from_slice(&data);
        }
        if turn % 10 == 9 {
            session.execute(synchronize16(), Transfer::None).good();
        }
    }
    // Something is written behind the last commit, which shows that it was durable.
    std::thread::sleep(std::time::Duration::from_millis(300));
    gateway.kill();
    volume
}

/// Runs `weir log`, and returns its exit code and what it printed.
fn run(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let output = weir(folder, &[&["log"], arguments].concat()).output().unwrap();
    let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(!told.contains("panicked"), "{told}");
    (output.status.code().unwrap(), told)
}

/// The same with `--json`, which must end with this code.
fn json(folder: &Path, arguments: &[&str], code: i32) -> Value {
    let (found, told) = run(folder, &[arguments, &["--json"]].concat());
    assert_eq!(found, code, "{told}");
    serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"))
}

/// The records that change the volume and are nowhere else.
fn dirty(folder: &Path) -> Vec<Value> {
    let (code, told) = run(folder, &["ls", "disk.log", "--json"]);
    assert_eq!(code, 0, "{told}");
    let lines = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["offset"].is_u64() && line["upstream"] == false).collect()
}

/// A log with some bytes changed.
fn damage(folder: &Path, good: &[u8], at: usize) {
    let mut bytes = good.to_vec();
    bytes[at] ^= 0x10;
    fs::write(folder.join("disk.log"), bytes).unwrap();
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}")) as usize
}

/// Of an intact log everything is printed, nothing is changed, and what is salvaged is the volume. While a gateway has
/// it, nothing looks at it.
#[test]
fn an_intact_log_is_told_and_salvaged() {
    let folder = folder("log-commands-intact");
    let volume = killed(&folder);
    let good = fs::read(folder.join("disk.log")).unwrap();
    let stat = json(&folder, &["stat", "disk.log"], 0);
    assert_eq!(
        (&stat["opens"], &stat["lost_records"], &stat["block_size"]),
        (&true.into(), &0.into(), &512.into())
    );
    let records = dirty(&folder);
    assert!(records.len() >= 40, "{}", records.len());
    assert_eq!(number(&stat["dirty_records"]), records.len());
    let (_, told) = run(&folder, &["stat", "disk.log"]);
    assert!(told.contains("a gateway accepts it"), "{told}");
    let verified = json(&folder, &["verify", "disk.log"], 0);
    assert_eq!(
        (&verified["damaged"], number(&verified["checked_bytes"]) > 100_000),
        (&false.into(), true)
    );
    let salvaged = json(&folder, &["salvage", "disk.log", "--to", "new.img"], 0);
    assert_eq!(
        (&salvaged["whole"], number(&salvaged["applied_records"])),
        (&true.into(), records.len())
    );
    let image = fs::read(folder.join("new.img")).unwrap();
    assert!(
        image[..] == volume[..image.len()] && volume[image.len()..].iter().all(|&byte| byte == 0)
    );
    // What exists is changed only when that is asked for.
    let (code, told) = run(&folder, &["salvage", "disk.log", "--to", "disk.img"]);
    assert_eq!(code, 2, "{told}");
    json(&folder, &["salvage", "disk.log", "--to", "disk.img", "--in-place"], 0);
    assert!(fs::read(folder.join("disk.img")).unwrap() == volume);
    fs::write(folder.join("small.img"), [0; 512]).unwrap();
    let (code, told) = run(&folder, &["salvage", "disk.log", "--to", "small.img", "--in-place"]);
    assert!(code == 3 && told.contains("has 512 bytes"), "{code}: {told}");
    let (code, told) = run(&folder, &["salvage", "disk.log", "--to", "disk.log", "--in-place"]);
    assert!(code == 7 && fs::read(folder.join("disk.log")).unwrap() == good, "{code}: {told}");
    // A log that has failed must never be applied to what has gone on without it.
    fs::write(folder.join("disk.log.void"), "").unwrap();
    let (code, told) = run(&folder, &["salvage", "disk.log", "--to", "other.img"]);
    assert!(code == 6 && told.contains("has failed"), "{code}: {told}");
    fs::remove_file(folder.join("disk.log.void")).unwrap();
    let gateway = Gateway::start(&folder, &config("1h"), &[]);
    for command in ["stat", "ls", "verify"] {
        let (code, told) = run(&folder, &[command, "disk.log"]);
        assert!(code == 7 && told.contains("in use by process"), "{command}: {code}: {told}");
    }
    drop(gateway);
}

/// Rot in the data of a record: named with its place in the log and in the volume. The image is the volume before that
/// record, or with all others.
#[test]
fn rotten_data_is_named() {
    let folder = folder("log-commands-rot");
    let volume = killed(&folder);
    let good = fs::read(folder.join("disk.log")).unwrap();
    let records = dirty(&folder);
    // A write that no later one touches.
    let overlaps = |one: &Value, other: &Value| {
        let (a, b) = (number(&one["offset"]), number(&other["offset"]));
        a < b + number(&other["length"]) && b < a + number(&one["length"])
    };
    let alone = |&at: &usize| {
        records[at]["kind"] == "write"
            && records[at + 1..].iter().all(|other| !overlaps(&records[at], other))
    };
    let victim = (5..records.len()).find(alone).expect("one of them");
    let (at, start) = (number(&records[victim]["payload"]), number(&records[victim]["offset"]));
    damage(&folder, &good, at + 3);
    let changed = fs::read(folder.join("disk.log")).unwrap();
    let verified = json(&folder, &["verify", "disk.log"], 6);
    let fault = &verified["faults"][0];
    assert_eq!(
        (number(&fault["at"]), number(&fault["offset"]), &fault["kind"]),
        (at, start, &"payload".into())
    );
    let salvaged = json(&folder, &["salvage", "disk.log", "--to", "before.img"], 6);
    assert_eq!(number(&salvaged["applied_records"]), victim);
    assert_eq!(number(&salvaged["left_records"]), records.len() - victim - 1);
    let salvaged = json(&folder, &["salvage", "disk.log", "--to", "beyond.img", "--beyond"], 6);
    assert_eq!(salvaged["ranges"].as_array().unwrap().len(), 1, "{salvaged}");
    assert_eq!(number(&salvaged["ranges"][0]["lba"]), start / 512);
    let image = fs::read(folder.join("beyond.img")).unwrap();
    let end = start + number(&records[victim]["length"]);
    assert!(image[..start] == volume[..start] && image[end..] == volume[end..image.len()]);
    assert!(fs::read(folder.join("disk.log")).unwrap() == changed, "nothing was changed");
}

/// Write-back that is blocked by rot: `weir status` names the volume, the record and its range, and since when; and the
/// answer to the order that gives the record up shows that it is in quarantine, and blocks nothing any more.
#[test]
fn blocked_write_back_is_shown_and_given_up() {
    let folder = folder("log-commands-blocked");
    killed(&folder);
    let good = fs::read(folder.join("disk.log")).unwrap();
    let records = dirty(&folder);
    let victim = records[5..].iter().find(|record| record["kind"] == "write").expect("one of them");
    damage(&folder, &good, number(&victim["payload"]) + 3);
    let mut gateway = Gateway::start(&folder, &config("1us"), &[]);
    let log = |answer: &Value| answer["volumes"][0]["log"].clone();
    let blocked = eventually("blocked write-back", || {
        let log = log(&gateway.asked(&["volume", "status"]));
        (log["storage"] == "blocked").then_some(log)
    });
    let text = String::from_utf8(gateway.command(&["status"]).stdout).unwrap();
    let line = text.lines().find(|line| line.contains("WRITE-BACK IS BLOCKED for")).expect(&text);
    let named = line.trim_start().starts_with("disk ");
    assert!(named && line.contains(blocked["storage_why"].as_str().unwrap()), "{line}");
    let answer = gateway.asked(&["volume", "quarantine", "disk"]);
    assert_eq!(log(&answer)["storage"], "up", "{answer}");
    let lost = &answer["volumes"][0]["quarantine"][0];
    let why = format!("record {}, ", number(&lost["record"]));
    assert!(blocked["storage_why"].as_str().unwrap().starts_with(&why), "{lost} {blocked}");
    let text = String::from_utf8(gateway.command(&["status"]).stdout).unwrap();
    assert!(!text.contains("BLOCKED"), "{text}");
    gateway.stop();
}

/// Rot in the header of a batch: a gateway refuses the log, and what is behind it is found all the same.
#[test]
fn what_is_behind_a_lost_batch_is_found() {
    let folder = folder("log-commands-header");
    killed(&folder);
    let good = fs::read(folder.join("disk.log")).unwrap();
    let records = dirty(&folder);
    let victim = &records[10];
    let batch = number(&victim["batch"]);
    let lost = records.iter().filter(|record| record["batch"] == victim["batch"]).count();
    // The time of its first record: where it was to be written can still be read.
    damage(&folder, &good, batch + 64 + 40);
    let stat = json(&folder, &["stat", "disk.log"], 6);
    assert!(stat["verdict"].as_str().unwrap().contains("damaged at byte"), "{stat}");
    let verified = json(&folder, &["verify", "disk.log"], 6);
    assert_eq!(
        (number(&verified["faults"][0]["at"]), &verified["faults"][0]["kind"]),
        (batch, &"batch".into())
    );
    let presumed = &verified["lost"][0]["presumed"];
    let named =
        |one: &Value| one["offset"] == victim["offset"] && one["length"] == victim["length"];
    assert!(presumed.as_array().unwrap().iter().any(named), "{verified}");
    let salvaged = json(&folder, &["salvage", "disk.log", "--to", "before.img"], 6);
    assert!(number(&salvaged["last"]) < number(&victim["record"]), "{salvaged}");
    let salvaged = json(&folder, &["salvage", "disk.log", "--to", "beyond.img", "--beyond"], 6);
    assert_eq!(number(&salvaged["applied_records"]), records.len() - lost);
}

/// What is not damage: a torn end, and one of two super blocks. And what cannot be looked at: a newer format, no super
/// block at all, something else.
#[test]
fn a_torn_end_is_no_damage() {
    let folder = folder("log-commands-torn");
    killed(&folder);
    let good = fs::read(folder.join("disk.log")).unwrap();
    let (_, told) = run(&folder, &["ls", "disk.log", "--json"]);
    let lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // The last batch has no witness.
    let last = number(&lines.last().unwrap()["batch"]);
    damage(&folder, &good, last + 20);
    let verified = json(&folder, &["verify", "disk.log"], 0);
    assert_eq!(
        (number(&verified["faults"][0]["at"]), &verified["faults"][0]["kind"]),
        (last, &"torn".into())
    );
    damage(&folder, &good, 4096 + 100);
    let verified = json(&folder, &["verify", "disk.log"], 0);
    assert_eq!(
        (number(&verified["faults"][0]["at"]), &verified["faults"][0]["kind"]),
        (4096, &"super".into())
    );
    // The header of the second segment, which the second gateway began.
    let records = {
        damage(&folder, &good, 100);
        dirty(&folder).len()
    };
    damage(&folder, &good, SUPERS + SEGMENT + 40);
    let verified = json(&folder, &["verify", "disk.log"], 6);
    let kinds: Vec<_> =
        verified["faults"].as_array().unwrap().iter().map(|fault| &fault["kind"]).collect();
    assert!(kinds.contains(&&"header".into()), "{verified}");
    let salvaged = json(&folder, &["salvage", "disk.log", "--to", "headless.img"], 0);
    assert_eq!(number(&salvaged["applied_records"]), records);
    let mut newer = good.clone();
    for at in [0, 4096] {
        newer[at + 8] = 9;
        let sum = crc32c(&newer[at..at + 508]);
        newer[at + 508..at + 512].copy_from_slice(&sum.to_le_bytes());
    }
    fs::write(folder.join("disk.log"), &newer).unwrap();
    for command in [
        &["stat", "disk.log"][..],
        &["ls", "disk.log"],
        &["verify", "disk.log"],
        &["salvage", "disk.log", "--to", "x"],
    ] {
        let (code, told) = run(&folder, command);
        assert!(
            code == 6 && told.contains("has version 9 of the format"),
            "{command:?}: {code}: {told}"
        );
    }
    let mut gone = good;
    gone[..SUPERS].fill(0);
    fs::write(folder.join("disk.log"), gone).unwrap();
    let (code, told) = run(&folder, &["verify", "disk.log"]);
    assert!(code == 6 && told.contains("not a log of weir"), "{code}: {told}");
    let (code, told) = run(&folder, &["verify", "nowhere"]);
    assert!(code == 7 && told.contains("cannot open nowhere"), "{code}: {told}");
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            (sum >> 1) ^ (0x82f6_3b78 & (sum & 1).wrapping_neg())
        })
    })
}
