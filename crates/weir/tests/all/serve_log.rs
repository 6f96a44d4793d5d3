//! A volume with a log: what was acknowledged is there, whatever becomes of the gateway, and a log that is not
//! the right one is refused.

use crate::gateway::initiator::{Transfer, synchronize16, unmap, write16};
use crate::gateway::recorded::RECORDED;
use crate::gateway::{Chance, Gateway, eventually, folder, weir};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// A volume on a device of 5 ms, so that much is only in its log; and the socket to ask about it.
fn config(ack: &str) -> String {
    format!(
        r#"
[control]
socket = "c.sock"
[cache]
size = "1MiB"
[[backend]]
name = "far"
model = "fixed"
service = "5ms"
servers = 1
[[volume]]
name = "disk"
file = "disk.img"
size = "16MiB"
backend = "far"
log = "disk.log"
log_size = "32MiB"
ack = "{ack}"
[[target]]
name = "iqn.2026-11.org.example:disk"
luns = {{ 0 = "disk" }}
"#
    )
}

const BLOCK: u64 = 512;
/// Blocks of the part that is written.
const BLOCKS: u64 = (2 << 20) / BLOCK;

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// What each block may have: what was acknowledged last, and what may have been written since.
#[derive(Default)]
struct Blocks(BTreeMap<u64, (u64, Vec<u64>)>);

impl Blocks {
    fn may_become(&mut self, blocks: Range<u64>, version: u64) {
        for block in blocks {
            self.0.entry(block).or_default().1.push(version);
        }
    }

    fn became(&mut self, blocks: Range<u64>, version: u64) {
        for block in blocks {
            self.0.insert(block, (version, Vec::new()));
        }
    }

    /// Every block has what it may have; from then on that is what it has.
    fn check(&mut self, image: &[u8]) {
        for (block, found) in (0..).zip(image.chunks(BLOCK as usize)) {
            let (version, doubtful) = self.0.entry(block).or_default();
            let mut may = [*version].into_iter().chain(doubtful.iter().copied());
            let fits = may.find(|&version| found == content(block, version));
            *version = fits
                .unwrap_or_else(|| panic!("block {block} is neither {version} nor {doubtful:?}"));
            doubtful.clear();
        }
    }
}

/// What a version of a block is; version 0 is zeroes.
fn content(block: u64, version: u64) -> Vec<u8> {
    match version {
        0 => vec![0; BLOCK as usize],
        _ => Chance(block << 32 ^ version).bytes(BLOCK as usize),
    }
}

/// Writes, unmaps and flushes, several at once; those that were sent last have no answer.
fn work(gateway: &Gateway, chance: &mut Chance, version: &mut u64, blocks: &mut Blocks) {
    let mut session = gateway.session("one");
    let mut open: BTreeMap<u32, (Range<u64>, u64)> = BTreeMap::new();
    for _ in 0..200 {
        let length = 1 + chance.below(32);
        let first = chance.below(BLOCKS - length);
        let (range, offset) = (first..first + length, first * BLOCK);
        // What is written to the same place at once may end in either order.
        if open.values().any(|(other, _)| other.start < range.end && range.start < other.end) {
            continue;
        }
        *version += 1;
        let (cdb, transfer, range, becomes) = match chance.below(10) {
            0 => {
                let (cdb, list) = unmap(offset, length * BLOCK);
                (cdb, Transfer::Out(list), range, 0)
            }
            1 => (synchronize16(), Transfer::None, 0..0, 0),
            kind => {
                let data = range.clone().flat_map(|block| content(block, *version)).collect();
                let cdb = write16(offset, (length * BLOCK) as usize, kind == 2);
                (cdb, Transfer::Out(data), range, *version)
            }
        };
        blocks.may_become(range.clone(), becomes);
        open.insert(session.issue(cdb, transfer), (range, becomes));
        if open.len() > 8 {
            let (ended, answer) = session.next_ended().unwrap();
            answer.good();
            let (range, becomes) = open.remove(&ended).unwrap();
            blocks.became(range, becomes);
        }
    }
}

/// What hosts read of the part of the volume that is written.
fn image(gateway: &Gateway) -> Vec<u8> {
    let mut session = gateway.session("reader");
    (0..BLOCKS * BLOCK).step_by(PIECE).flat_map(|at| session.read(at, PIECE)).collect()
}

/// A gateway that is killed again and again keeps what it has acknowledged, most of which is nowhere but in its
/// log; drained, the volume's own file has it, and the log nothing.
#[test]
fn what_was_acknowledged_survives_a_kill() {
    let folder = folder("log-kill");
    let (mut chance, mut version, mut blocks) = (Chance(3), 0, Blocks::default());
    let mut dirty = 0;
    for _ in 0..4 {
        let mut gateway = Gateway::start(&folder, &config("log"), &[]);
        blocks.check(&image(&gateway));
        work(&gateway, &mut chance, &mut version, &mut blocks);
        let status = gateway.asked(&["volume", "status"]);
        dirty += status["volumes"][0]["log"]["dirty_bytes"].as_u64().unwrap();
        gateway.kill();
    }
    assert!(dirty > 100_000, "{dirty} bytes were only in the log");
    let mut gateway = Gateway::start(&folder, &config("log"), &[]);
    let seen = image(&gateway);
    blocks.check(&seen);
    let drained = gateway.asked(&["volume", "drain", "disk"]);
    let log = &drained["volumes"][0]["log"];
    assert_eq!((&log["phase"], &log["dirty_bytes"]), (&"through".into(), &0.into()));
    assert!(gateway.stored("disk.img", 0, seen.len()) == seen, "the file has what hosts see");
    gateway.stop();
}

/// A stop leaves what is only in the log there, within a second, and a recording of such a gateway replays to
/// the same actions.
#[test]
fn a_stop_leaves_the_log() {
    let folder = folder("log-stop");
    let (mut chance, mut version, mut blocks) = (Chance(5), 0, Blocks::default());
    let mut gateway = Gateway::start(&folder, &config("log"), RECORDED);
    work(&gateway, &mut chance, &mut version, &mut blocks);
    gateway.stop();
    gateway.replays();
    let mut gateway = Gateway::start(&folder, &config("through"), RECORDED);
    blocks.check(&image(&gateway));
    gateway.asked(&["stop", "--drain"]);
    assert_eq!(gateway.exit_code(), Some(0), "{}", gateway.log());
    gateway.replays();
    blocks.check(&fs::read(folder.join("disk.img")).unwrap()[..(BLOCKS * BLOCK) as usize]);
}

/// Starts a gateway that must refuse to serve, with 6, and returns what it says.
fn refused(folder: &Path, config: &str) -> String {
    fs::write(folder.join("weir.toml"), config).unwrap();
    let output = weir(folder, &["serve", "weir.toml", "--listen", "127.0.0.1:0"]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{told}");
    told
}

/// A log that is missing, or of another volume, or damaged, or that is no longer configured, keeps the volume from being
/// served: 6, with what is wrong; and nothing was changed.
#[test]
fn a_wrong_log_is_refused() {
    let folder = folder("log-wrong");
    let (mut chance, mut version, mut blocks) = (Chance(7), 0, Blocks::default());
    let mut gateway = Gateway::start(&folder, &config("log"), &[]);
    work(&gateway, &mut chance, &mut version, &mut blocks);
    gateway.kill();
    let (log, kept) = (folder.join("disk.log"), folder.join("kept.log"));
    fs::rename(&log, &kept).unwrap();
    let told = refused(&folder, &config("log"));
    assert!(told.contains("it is not there") && told.contains("disk.img.state.log"), "{told}");
    let without = config("through").replace("log = \"disk.log\"\nlog_size = \"32MiB\"\n", "");
    let told = refused(&folder, &without);
    assert!(told.contains("it is not configured"), "{told}");
    let bytes = fs::read(&kept).unwrap();
    // The first bytes of the first batch, which others witness.
    let mut damaged = bytes.clone();
    damaged[8192 + 4096 + 100] ^= 1;
    fs::write(&log, &damaged).unwrap();
    let told = refused(&folder, &config("log"));
    assert!(told.contains("damaged at byte"), "{told}");
    assert!(fs::read(&log).unwrap() == damaged, "nothing was changed");
    fs::write(&log, &bytes).unwrap();
    let other = config("log").replace("size = \"16MiB\"", "size = \"16MiB\"\nidentity = \"other\"");
    let told = refused(&folder, &other);
    assert!(told.contains("log of another volume"), "{told}");
    let mut gateway = Gateway::start(&folder, &config("log"), &[]);
    blocks.check(&image(&gateway));
    gateway.stop();
}

/// With its storage away a volume with a log takes writes as before, and says that its storage is away.
#[test]
fn writes_go_on_while_the_storage_is_away() {
    let mut far = Gateway::with_one_disk("log-away-far");
    let config = format!(
        r#"
[control]
socket = "c.sock"
[[upstream]]
name = "array"
target = "iqn.2026-11.org.example:disk"
portals = "{}"
[[volume]]
name = "disk"
upstream = "array"
log = "disk.log"
log_size = "32MiB"
state = "disk.state"
[[target]]
name = "iqn.2026-11.org.example:disk"
luns = {{ 0 = "disk" }}
"#,
        far.portal
    );
    let gateway = Gateway::start(&folder("log-away"), &config, &[]);
    let mut session = gateway.session("one");
    let storage = || {
        let status = gateway.asked(&["volume", "status", "disk"]);
        status["volumes"][0]["log"]["storage"].as_str().unwrap().to_owned()
    };
    session.write(0, &[1; 4096]);
    // It covers what may have bypassed the log before: without the storage no flush could.
    session.execute(synchronize16(), Transfer::None).good();
    assert_eq!(storage(), "up");
    far.kill();
    eventually("word that the storage is away", || (storage() == "away").then_some(()));
    let data = Chance(1).bytes(65_536);
    session.write(0, &data);
    session.execute(synchronize16(), Transfer::None).good();
    assert!(session.read(0, data.len()) == data, "what was written is read");
}
