//! What control remembers over a restart of the gateway.

use crate::gateway::pdu::crc32c;
use crate::gateway::{Gateway, ONE_DISK, folder, weir};
use std::fs;

/// A tenant that may save a minute of its contract, and where that is kept.
fn config() -> String {
    let tenant = "[[tenant]]\nname = \"one\"\ninitiators = [\"iqn.2026-11.org.example.host:one\"]\n\
                  objectives = [{ size = 512, iops = 1000, p99 = \"1s\" }]\ncredit = \"60s\"\n";
    format!("[burst_credits]\nfile = \"kept\"\n{tenant}{ONE_DISK}")
}

/// The file as a gateway would have written it.
fn file(saved: &[(&str, u64)]) -> Vec<u8> {
    let mut bytes = b"weirctrl\x01\0\0\0\0\0\0\0".to_vec();
    bytes.extend((saved.len() as u32).to_le_bytes());
    for (name, seconds) in saved {
        bytes.extend((seconds * 1_000_000_000).to_le_bytes());
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend(name.as_bytes());
    }
    bytes.extend(crc32c(&bytes).to_le_bytes());
    bytes
}

/// Seconds that the only tenant in the file has saved.
fn saved(bytes: &[u8]) -> f64 {
    let count = u32::from_le_bytes(bytes[16..20].try_into().unwrap());
    assert_eq!((count, &bytes[30..33]), (1, &b"one"[..]), "{bytes:?}");
    u64::from_le_bytes(bytes[20..28].try_into().unwrap()) as f64 / 1e9
}

/// What a tenant has saved is there after a restart, up to its credit; what was saved for a tenant that is not
/// configured any more is forgotten. A recording of the run replays.
#[test]
fn savings_survive_a_restart() {
    let folder = folder("burst-credits");
    fs::write(folder.join("kept"), file(&[("gone", 9), ("one", 50)])).unwrap();
    let mut gateway = Gateway::start(&folder, &config(), &["--record", "run.weirrec"]);
    gateway.session("one").read(0, 512);
    gateway.stop();
    let kept = saved(&fs::read(folder.join("kept")).unwrap());
    assert!((49.9..=60.0).contains(&kept), "{kept} s");
    let replay = weir(&folder, &["replay", "run.weirrec"]).output().unwrap();
    assert_eq!(replay.status.code(), Some(0), "{}", String::from_utf8_lossy(&replay.stdout));
}

/// A file that is of no use is reported; tenants begin without burst credits, and it is replaced at the end.
#[test]
fn a_damaged_file_is_no_reason_to_stay_away() {
    let folder = folder("savings_damaged");
    let mut bytes = file(&[("one", 50)]);
    bytes[21] ^= 1;
    fs::write(folder.join("kept"), bytes).unwrap();
    let mut gateway = Gateway::start(&folder, &config(), &[]);
    gateway.logged(&["kept", "tenants begin without burst credits"]);
    gateway.stop();
    let kept = saved(&fs::read(folder.join("kept")).unwrap());
    assert!(kept < 50.0, "{kept} s");
}
