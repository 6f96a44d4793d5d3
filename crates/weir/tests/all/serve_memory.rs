//! Volumes in memory, and null volumes, which keep nothing.

use crate::gateway::initiator::{
    BLOCK, GOOD, Login, Session, Transfer, read16, unmap, write_same16, write16,
};
use crate::gateway::nbd::{Client, FLUSH, TRIM, WRITE_ZEROES};
use crate::gateway::{Chance, Gateway, eventually, folder, weir};
use std::ops::Range;

/// A volume in memory, a null volume, and one on a stripe of a file and memory, for hosts of all kinds.
const CONFIG: &str = r#"
[control]
socket = "c.sock"
[nbd]
listen = ["127.0.0.1:0"]
exports = { disk = "disk", none = "none", wide = "wide" }
[nvme]
listen = ["127.0.0.1:0"]
[[volume]]
name = "disk"
memory = "32MiB"
cap_iops = 1000000
[[volume]]
name = "none"
null = "1TiB"
[[volume]]
name = "wide"
stores = ["a", "b"]
layout = "stripe"
chunk = "8KiB"
[[store]]
name = "a"
memory = "4MiB"
[[store]]
name = "b"
file = "b.img"
size = "4MiB"
[[tenant]]
name = "disk"
objectives = [{ size = "1MiB", iops = 1000, p99 = "1s" }]
[[target]]
name = "iqn.2026-11.org.example:disk"
luns = { 0 = "disk", 1 = "none" }
[[subsystem]]
name = "nqn.2026-11.org.example:disk"
namespaces = { 1 = "disk" }
"#;

/// A host writes, zeroes, unmaps and reads at random with many commands in flight; each read is what an array would give.
fn random_work(gateway: &Gateway) {
    let mut session = gateway.session("one");
    let mut chance = Chance(3);
    let mut array = vec![0_u8; 32 << 20];
    let mut open: Vec<(u32, Range<usize>, Option<Vec<u8>>)> = Vec::new();
    for round in 0..3_000 {
        // Some are cut into pieces.
        let most = if chance.below(50) == 0 { 8_000 } else { 32 };
        let length = ((1 + chance.below(most)) * BLOCK) as usize;
        let offset = chance.below(65_536 - length as u64 / BLOCK) * BLOCK;
        let range = offset as usize..offset as usize + length;
        // What overlaps must not be in flight together: the data of a write may arrive after a later command.
        let overlaps = |one: &Range<usize>| one.start < range.end && range.start < one.end;
        if open.len() == 16 || open.iter().any(|(_, one, _)| overlaps(one)) {
            end(&mut session, &mut open);
        }
        let mut expected = None;
        let (cdb, transfer) = match chance.below(10) {
            0 => {
                array[range.clone()].fill(0);
                let (cdb, list) = unmap(offset, length as u64);
                (cdb, Transfer::Out(list))
            }
            1 => {
                array[range.clone()].fill(0);
                (write_same16(offset, length as u64), Transfer::Out(vec![0; 512]))
            }
            2..6 => {
                let data = vec![round as u8; length];
                array[range.clone()].copy_from_slice(&data);
                (write16(offset, length, chance.below(8) == 0), Transfer::Out(data))
            }
            _ => {
                expected = Some(array[range.clone()].to_vec());
                (read16(offset, length), Transfer::In(length))
            }
        };
        open.push((session.issue(cdb, transfer), range, expected));
    }
    end(&mut session, &mut open);
    // Small areas are hit rarely: all of it is as it should be.
    for at in (0..array.len()).step_by(1 << 20) {
        assert!(session.read(at as u64, 1 << 20) == array[at..at + (1 << 20)], "at {at}");
    }
    session.logout();
}

/// A command that has not ended: its tag, its bytes of the volume, and for a read what they must be.
type Open = (u32, Range<usize>, Option<Vec<u8>>);

/// Waits for the commands in flight; each read has what was expected.
fn end(session: &mut Session, open: &mut Vec<Open>) {
    for (itt, range, expected) in open.drain(..) {
        let data = session.wait(itt).good();
        assert!(expected.is_none_or(|expected| data == expected), "{range:?}");
    }
}

/// Hosts of all protocols read what each has written, over a stripe with a file as well; a null volume takes writes and
/// reads as zeroes. That nothing is kept is said in the log and the status. The recording replays to its digest.
#[test]
fn memory_serves_hosts_of_all_kinds() {
    let folder = folder("memory-hosts");
    let mut gateway = Gateway::start(&folder, CONFIG, &["--record", "run.weirrec"]);
    gateway.logged(&["volume in memory", "disk"]);
    gateway.logged(&["WRITES ARE DROPPED", "none"]);
    random_work(&gateway);
    let mut chance = Chance(1);
    let data = chance.bytes(1 << 20);
    let mut client = gateway.client();
    client.write(3 << 20, &data).unwrap();
    client.execute(TRIM, (3 << 20) + 4_096, 8_192).unwrap();
    client.execute(FLUSH, 0, 0).unwrap();
    let controller = gateway.controller(1);
    let mut queue = controller.queue(1).unwrap();
    let read = queue.read(3 << 20, 65_536).data;
    assert!(read[..4_096] == data[..4_096] && read[12_288..] == data[12_288..65_536]);
    assert!(read[4_096..12_288] == [0; 8_192]);
    let mut wide = Client::tcp(gateway.nbd_address());
    wide.choose("wide");
    assert_eq!(wide.size, 8 << 20);
    wide.write(20_000 / 512 * 512, &data).unwrap();
    wide.execute(WRITE_ZEROES, 1 << 19, 1 << 17).unwrap();
    let read = wide.read(20_000 / 512 * 512, 1 << 20);
    let zeroed = (1 << 19) - 20_000 / 512 * 512;
    assert!(read[..zeroed] == data[..zeroed]);
    assert!(read[zeroed..zeroed + (1 << 17)].iter().all(|&byte| byte == 0));
    assert!(read[zeroed + (1 << 17)..] == data[zeroed + (1 << 17)..]);
    let mut none = Client::tcp(gateway.nbd_address());
    none.choose("none");
    none.write(1 << 39, &data).unwrap();
    assert!(none.read(1 << 39, 1 << 20).iter().all(|&byte| byte == 0));
    let status = gateway.asked(&["status"])["status"].take();
    let volatile = |index: usize| status["volumes"][index]["volatile"].as_str().unwrap().to_owned();
    assert_eq!([0, 1, 2].map(volatile), ["memory", "null", "memory"]);
    let text = String::from_utf8(gateway.command(&["status"]).stdout).unwrap();
    for part in ["in memory: gone when the gateway stops", "WRITES ARE DROPPED"] {
        assert!(text.contains(part), "{text}");
    }
    drop((client, wide, none));
    gateway.stop();
    let replay = weir(&folder, &["replay", "run.weirrec"]).output().unwrap();
    assert_eq!(replay.status.code(), Some(0), "{}", String::from_utf8_lossy(&replay.stdout));
}

/// A unit in memory has no write cache that a flush could empty, and no APTPL.
#[test]
fn memory_has_no_write_cache() {
    let gateway = Gateway::start(&folder("memory-cache"), CONFIG, &[]);
    let mut session = gateway.session("one");
    let mut cdb = [0; 16];
    (cdb[0], cdb[2], cdb[4]) = (0x1a, 0x08, 255);
    let page = session.execute(cdb, Transfer::In(255)).good();
    let caching = &page[4 + usize::from(page[3])..];
    assert_eq!((caching[0] & 0x3f, caching[2] & 4), (8, 0), "WCE");
    session.write(0, &[1; 512]);
    // PERSISTENT RESERVE OUT, REGISTER, with APTPL.
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x5f, 24);
    let mut list = vec![0; 24];
    (list[15], list[20]) = (7, 1);
    assert_ne!(session.execute(cdb, Transfer::Out(list.clone())).status, GOOD);
    list[20] = 0;
    assert_eq!(session.execute(cdb, Transfer::Out(list)).status, GOOD);
}

/// A volume in memory comes at a reload, grows at one, goes, and is empty when it comes back. It does not shrink, and
/// does not become a null volume while it is served.
#[test]
fn memory_comes_and_goes() {
    let more = |place: &str| {
        let volume = format!("[[volume]]\nname = \"more\"\n{place}\n");
        CONFIG.replace("wide = \"wide\" }", "wide = \"wide\", more = \"more\" }") + &volume
    };
    let gateway = Gateway::start(&folder("memory-live"), CONFIG, &[]);
    let client = |size: u64| {
        let mut client = Client::tcp(gateway.nbd_address());
        client.choose("more");
        assert_eq!(client.size, size);
        client
    };
    for round in 1..4 {
        gateway.reload(&more("memory = \"64MiB\""));
        let warned = gateway
            .log()
            .lines()
            .filter(|line| {
                line.contains("WARN volume in memory: its data is gone") && line.contains("more")
            })
            .count();
        assert_eq!(warned, usize::from(round), "a warning each time that it comes");
        let mut first = client(64 << 20);
        assert!(first.read(1 << 20, 512) == [0; 512], "round {round}");
        first.write(1 << 20, &[round; 512]).unwrap();
        gateway.reload(&more("memory = \"96MiB\""));
        let mut second = client(96 << 20);
        assert!(second.read(1 << 20, 512) == [round; 512]);
        second.write(95 << 20, &[round; 512]).unwrap();
        gateway.refuse_reload(&more("memory = \"64MiB\""), &["would shrink"]);
        gateway.refuse_reload(&more("null = \"96MiB\""), &["volume `more` differs"]);
        drop((first, second));
        std::fs::write(gateway.folder.join("weir.toml"), CONFIG).unwrap();
        // The gateway may not have seen yet that the clients have gone.
        eventually("volume without users", || {
            (gateway.command(&["reload"]).status.code() == Some(0)).then_some(())
        });
    }
    let login = Login { target: "disk", ..Login::of("two") };
    login.connect(gateway.portal).unwrap().ready().logout();
}
