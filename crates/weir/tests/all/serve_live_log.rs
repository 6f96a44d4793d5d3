//! Volumes with a log that come and go at a reload while others are served.

use crate::gateway::initiator::Session;
use crate::gateway::recorded::RECORDED;
use crate::gateway::{Chance, Gateway, ONE_DISK, configure, eventually, folder, weir};
use std::fs::{self, File};

/// `ONE_DISK` with a control socket and a slow device, so that much of a volume there is only in its log.
fn base() -> String {
    let far = "[[backend]]\nname = \"far\"\nmodel = \"fixed\"\nservice = \"300ms\"\nservers = 1\n";
    format!("[control]\nsocket = \"c.sock\"\n{far}{ONE_DISK}")
}

/// `base` with a volume with a log, which is unit 0 of a second target.
fn with_more() -> String {
    let volume = "[[volume]]\nname = \"more\"\nfile = \"more.img\"\nsize = \"16MiB\"\nbackend = \"far\"\n\
                  log = \"more.log\"\nlog_size = \"16MiB\"\n";
    let target = "[[target]]\nname = \"iqn.2026-11.org.example:more\"\nluns = { 0 = \"more\" }\n";
    format!("{}{volume}{target}", base())
}

/// Reads a configuration with `weir reload`, which must end with this exit code; what it says.
fn reload(gateway: &Gateway, config: &str, arguments: &[&str], code: i32) -> String {
    configure(&gateway.folder, config);
    let output = gateway.command(&[&["reload"], arguments].concat());
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8(told).unwrap();
    assert_eq!(output.status.code(), Some(code), "{told}{}", gateway.log());
    told
}

/// A session of a host that finds the volume.
fn host(gateway: &Gateway) -> Session {
    use crate::gateway::initiator::Login;
    let login = Login { target: "more", ..Login::of("two") };
    login.connect(gateway.portal).unwrap().ready()
}

/// Reads a configuration without the volume as soon as the gateway has seen that its host has gone.
fn remove(gateway: &Gateway, arguments: &[&str]) -> String {
    eventually("volume without hosts", || {
        let used = gateway.asked(&["status"])["status"]["sessions"].to_string().contains(":more");
        (!used).then_some(())
    });
    reload(gateway, &base(), arguments, 0)
}

/// Waits until the gateway has let go of a file.
fn free(gateway: &Gateway, file: &str) {
    eventually("file without a lock", || {
        File::open(gateway.folder.join(file)).unwrap().try_lock().ok()
    });
}

/// Bytes that the log has and the volume's own storage has not.
fn dirty(gateway: &Gateway) -> u64 {
    let status = gateway.asked(&["volume", "status", "more"]);
    status["volumes"][0]["log"]["dirty_bytes"].as_u64().unwrap()
}

/// Bytes of a piece that hosts write, and how far one is from the next: write-back needs one I/O for each.
const PIECE: u64 = 16 << 10;
const APART: u64 = 1 << 20;

fn piece(round: u64, number: u64) -> Vec<u8> {
    Chance(round << 32 | number).bytes(PIECE as usize)
}

/// Writes this number of pieces, up to 10: write-back needs 300 ms for each.
fn fill(gateway: &Gateway, (round, pieces): (u64, u64)) {
    let mut host = host(gateway);
    for number in 0..pieces {
        host.write(number * APART, &piece(round, number));
    }
    host.logout();
}

/// A host finds what the round has written.
fn check(gateway: &Gateway, (round, pieces): (u64, u64)) {
    let mut host = host(gateway);
    for number in 0..pieces {
        let found = host.read(number * APART, PIECE as usize);
        assert!(found == piece(round, number), "piece {number} of round {round}");
    }
    host.logout();
}

/// While another host writes and verifies over one session, a volume with a log comes, is filled, and goes. It does not go
/// before its log has been written back, unless by force: then the log keeps what its storage lacks, as the answer says,
/// and a volume that comes back has it. Its files are closed each time, and the recording of all this replays.
#[test]
fn a_volume_with_a_log_comes_and_goes_beside_a_writer() {
    let gateway = Gateway::start(&folder("live-log"), &base(), RECORDED);
    let witness = gateway.witness();
    let told = reload(&gateway, &with_more(), &[], 0);
    assert!(told.contains("+ volume more: "), "{told}");
    fill(&gateway, (1, 1));
    gateway.asked(&["volume", "drain", "more"]);
    let told = remove(&gateway, &[]);
    assert!(!told.contains("stays in its log"), "{told}");
    free(&gateway, "more.log");
    free(&gateway, "more.img");
    assert!(gateway.stored("more.img", 0, PIECE as usize) == piece(1, 0));
    reload(&gateway, &with_more(), &[], 0);
    check(&gateway, (1, 1));
    fill(&gateway, (2, 10));
    assert!(dirty(&gateway) > 0);
    for arguments in [&["--dry-run"][..], &[]] {
        let told = reload(&gateway, &base(), arguments, 1);
        assert!(told.contains("volume `more` has ") && told.contains(" in its log"), "{told}");
        assert!(told.contains("weir volume drain more"), "{told}");
    }
    let told = remove(&gateway, &["--force"]);
    let stays = told.lines().find(|line| line.starts_with("- volume more: ")).unwrap();
    assert!(stays.contains("stays in its log") && stays.contains("more.log"), "{told}");
    free(&gateway, "more.log");
    free(&gateway, "more.img");
    reload(&gateway, &with_more(), &[], 0);
    check(&gateway, (2, 10));
    let folder = gateway.folder.clone();
    gateway.stop_after(witness);
    let replay = weir(&folder, &["replay", "run.weir"]).output().unwrap();
    assert_eq!(replay.status.code(), Some(0), "{}", String::from_utf8_lossy(&replay.stdout));
}

/// A gateway that is killed at once after a volume was taken away by force, or has come, has lost nothing: the log has it.
#[test]
fn a_kill_in_the_middle_of_a_change_is_harmless() {
    let folder = folder("live-log-kill");
    let mut gateway = Gateway::start(&folder, &with_more(), &[]);
    fill(&gateway, (1, 10));
    let told = remove(&gateway, &["--force"]);
    gateway.kill();
    assert!(told.contains("stays in its log"), "{told}");
    let mut gateway = Gateway::start(&folder, &base(), &[]);
    reload(&gateway, &with_more(), &[], 0);
    gateway.kill();
    let mut gateway = Gateway::start(&folder, &with_more(), &[]);
    check(&gateway, (1, 10));
    gateway.stop();
}

/// One whose log a killed gateway has made in part is served with a new one. One whose log is no log does not come, and
/// of what comes with it nothing is left, not even the mark that names its log. A volume is not served without the log
/// that it had.
#[test]
fn a_volume_whose_log_is_not_right_does_not_come() {
    let mut gateway = Gateway::start(&folder("live-log-wrong"), &base(), &[]);
    let (log, other) = (gateway.folder.join("more.log"), gateway.folder.join("other.log"));
    fs::write(&other, vec![1; 16 << 20]).unwrap();
    let another = "[[volume]]\nname = \"other\"\nfile = \"other.img\"\nsize = \"1MiB\"\nlog = \"other.log\"\n";
    let told = reload(&gateway, &(with_more() + another), &[], 7);
    assert!(told.contains("other.log"), "{told}");
    let mut left: Vec<_> = fs::read_dir(&gateway.folder).unwrap().collect();
    left.retain(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("more"));
    assert_eq!(left.len(), 0, "{left:?}");
    fs::write(&log, vec![0; 3 << 20]).unwrap();
    reload(&gateway, &with_more(), &[], 0);
    fill(&gateway, (1, 1));
    gateway.asked(&["volume", "drain", "more"]);
    remove(&gateway, &[]);
    free(&gateway, "more.log");
    let without = with_more().replace("log = \"more.log\"\nlog_size = \"16MiB\"\n", "");
    let told = reload(&gateway, &without, &[], 7);
    assert!(told.contains("it is not configured"), "{told}");
    gateway.stop();
}
