//! Replies that leave in parts, in the order of a policy, are the replies that hosts asked for.

use crate::gateway::initiator::{Transfer, read16};
use crate::gateway::{Chance, Gateway, ONE_DISK, folder, weir};
use std::collections::BTreeMap;
use std::time::Duration;

/// A gateway whose links have one chunk on their way at a time.
fn start(test: &str, policy: &str) -> Gateway {
    let nbd = "[nbd]\nlisten = [\"127.0.0.1:0\"]\nexports = { disk = \"disk\" }\n";
    let limits = "[limits]\nlink_window = \"4KiB\"\n";
    let policy = format!("[policy]\ntransfer = {policy}\n");
    let config = format!("{policy}{limits}{nbd}{ONE_DISK}");
    Gateway::start(&folder(test), &config, &["--record", "run.weirrec"])
}

/// What is on the disk from `offset` on.
fn pattern(offset: u64, length: usize) -> Vec<u8> {
    (offset..).take(length).map(|at| (at / 512 * 7 + at) as u8).collect()
}

const ABORT_TASK: u8 = 1;

/// Many reads at once, of a block to a mebibyte, under every policy that interrupts replies: each gets its own
/// bytes, over iSCSI in parts and over NBD whole; a reply that is aborted while it leaves is complete before
/// that is confirmed, or was not begun; a host that goes away in the middle leaves nothing behind; and the
/// recording gives the same again.
#[test]
fn parts_make_whole_replies() {
    for (test, policy) in [
        ("transfer-slack", "{ name = \"slack\", budget = \"64KiB\", chunk = \"4KiB\" }"),
        ("transfer-srpt", "{ name = \"srpt\", chunk = \"1000B\" }"),
        ("transfer-turns", "{ name = \"round-robin\", chunk = \"20KiB\" }"),
    ] {
        let mut gateway = start(test, policy);
        let mut host = gateway.session("host");
        for at in 0..8 {
            host.write(at << 20, &pattern(at << 20, 1 << 20));
        }
        let mut chance = Chance(1);
        let mut open = BTreeMap::new();
        for _ in 0..200 {
            let most = [1, 16, 2_048][chance.below(3) as usize];
            let blocks = 1 + chance.below(most);
            let offset = chance.below(16_384 - blocks) * 512;
            let length = (blocks * 512) as usize;
            let itt = host.issue(read16(offset, length), Transfer::In(length));
            open.insert(itt, (offset, length));
            while open.len() >= 24 {
                let (itt, ended) = host.next_ended().unwrap();
                let (offset, length) = open.remove(&itt).unwrap();
                assert!(ended.good() == pattern(offset, length), "{policy}: {offset} {length}");
            }
        }
        let mut client = gateway.client();
        assert!(client.read(512, 1 << 20) == pattern(512, 1 << 20));
        while !open.is_empty() {
            let (itt, ended) = host.next_ended().unwrap();
            let (offset, length) = open.remove(&itt).unwrap();
            assert!(ended.good() == pattern(offset, length), "{policy}: {offset} {length}");
        }
        // More than fits between the two: replies stop in the middle, in turns all of them.
        let stuck: Vec<u32> =
            (0..24).map(|_| host.issue(read16(0, 1 << 20), Transfer::In(1 << 20))).collect();
        std::thread::park_timeout(Duration::from_millis(300));
        for &victim in &stuck[16..] {
            host.manage(ABORT_TASK, 0, victim);
            // Data or a status that came for it now would be a failure.
            host.forget(victim);
        }
        for &itt in &stuck[..16] {
            assert!(host.wait(itt).good() == pattern(0, 1 << 20));
        }
        assert!(host.read(4_096, 4_096) == pattern(4_096, 4_096));
        for _ in 0..24 {
            host.issue(read16(0, 1 << 20), Transfer::In(1 << 20));
        }
        drop(host);
        let mut again = gateway.session("other");
        assert!(again.read(0, 1 << 20) == pattern(0, 1 << 20));
        drop((again, client));
        gateway.stop();
        let replay = weir(&gateway.folder, &["replay", "run.weirrec"]).output().unwrap();
        let told = String::from_utf8_lossy(&replay.stdout);
        assert_eq!(replay.status.code(), Some(0), "{told}");
    }
}

/// Hosts whose replies leave by one link get their own bytes, over both protocols; one that takes nothing of what it
/// has asked for does not hold up the others, whatever is in front of them; and the recording gives the same again.
#[test]
fn a_link_is_shared_by_all_that_listen_there() {
    for (test, policy) in [("link-slack", "slack"), ("link-fifo", "fifo"), ("link-dqbs", "dqbs")] {
        let config = format!(
            "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[policy]\ntransfer = \"{policy}\"\n\
             [nbd]\nlisten = [\"[::1]:0\"]\nexports = {{ disk = \"disk\" }}\n\
             [[link]]\nname = \"front\"\nlisten = [\"127.0.0.1:0\", \"[::1]:0\"]\nbandwidth = \"100MB/s\"\n{ONE_DISK}"
        );
        let mut gateway = Gateway::start(&folder(test), &config, &["--record", "run.weirrec"]);
        let mut deaf = gateway.session("deaf");
        for at in 0..8 {
            deaf.write(at << 20, &pattern(at << 20, 1 << 20));
        }
        // More than fits between the two.
        let unheard: Vec<u32> =
            (0..24).map(|_| deaf.issue(read16(0, 1 << 20), Transfer::In(1 << 20))).collect();
        let mut host = gateway.session("host");
        let mut client = gateway.client();
        for round in 0..8 {
            let offset = round << 20;
            assert!(host.read(offset, 4_096) == pattern(offset, 4_096), "{policy}");
            assert!(client.read(offset + 512, 8_192) == pattern(offset + 512, 8_192), "{policy}");
        }
        for itt in unheard {
            assert!(deaf.wait(itt).good() == pattern(0, 1 << 20), "{policy}");
        }
        drop((deaf, host, client));
        gateway.stop();
        let replay = weir(&gateway.folder, &["replay", "run.weirrec"]).output().unwrap();
        let told = String::from_utf8_lossy(&replay.stdout);
        assert_eq!(replay.status.code(), Some(0), "{told}");
    }
}

/// Replies of one host that wait for the link they share with another are overtaken by its shorter ones; where each
/// has its own queue nothing of that is seen.
#[test]
fn replies_of_one_host_pass_those_of_another() {
    for (test, link) in [
        (
            "pass-shared",
            "[[link]]\nname = \"front\"\nlisten = [\"127.0.0.1:0\"]\nbandwidth = \"10MB/s\"\n",
        ),
        ("pass-alone", ""),
    ] {
        let config = format!("[iscsi]\nlisten = [\"127.0.0.1:0\"]\n{link}{ONE_DISK}");
        let mut gateway = Gateway::start(&folder(test), &config, &["--record", "run.weirrec"]);
        let (mut long, mut short) = (gateway.session("long"), gateway.session("short"));
        long.write(0, &pattern(0, 1 << 20));
        let waiting: Vec<u32> =
            (0..8).map(|_| long.issue(read16(0, 1 << 20), Transfer::In(1 << 20))).collect();
        long.ping();
        assert!(short.read(0, 4_096) == pattern(0, 4_096));
        for itt in waiting {
            assert!(long.wait(itt).good() == pattern(0, 1 << 20));
        }
        drop((long, short));
        gateway.stop();
        let explained =
            weir(&gateway.folder, &["explain", "run.weirrec", "--slowest", "9", "--json"]);
        let told = { explained }.output().unwrap().stdout;
        let told = String::from_utf8_lossy(&told);
        assert_eq!(told.contains("transfer/order"), !link.is_empty(), "{told}");
    }
}
