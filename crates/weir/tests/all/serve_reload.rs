//! A configuration that is read again while hosts are connected, and the way the gateway leaves.

use crate::gateway::chap::Proof;
use crate::gateway::commands::READY;
use crate::gateway::initiator::{Login, Session, Transfer, read16, until_closed};
use crate::gateway::pdu::opcode;
use crate::gateway::{Chance, Gateway, ONE_DISK, TWO_DISKS, folder};

const CAPACITY_CHANGED: (u8, u8, u8) = (0x6, 0x2a, 0x09);
const LUNS_CHANGED: (u8, u8, u8) = (0x6, 0x3f, 0x0e);

/// `ONE_DISK` of another size.
fn sized(size: &str) -> String {
    ONE_DISK.replace("64MiB", size)
}

/// The event and the three parameters of the asynchronous message that comes next (RFC 7143 section
/// 11.9).
fn announced(session: &mut Session) -> (u8, [u32; 3]) {
    // It comes at once: silence and then a ping are a failure, not something to wait behind.
    let message = session.hear().unwrap().expect("a message, no ping");
    assert_eq!(message.opcode(), opcode::ASYNC_MESSAGE);
    let [low, high] = [message.field(36), message.field(40)];
    (message.header[36], [low & 0xffff, high >> 16, high & 0xffff])
}

/// A volume that grows while hosts use it tells each of them once; then it has its new size, and its
/// new end can be written and read. What was there is there, and a restart changes nothing.
#[test]
fn a_volume_grows() {
    let folder = folder("grow");
    let mut gateway = Gateway::start(&folder, ONE_DISK, &[]);
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    let data = Chance(1).bytes(8192);
    one.write((64 << 20) - 8192, &data);
    let beyond = one.sense_of(read16(64 << 20, 512), Transfer::In(512));
    assert_eq!(beyond, (0x5, 0x21, 0x00));
    gateway.reload(&sized("80MiB"));
    for session in [&mut one, &mut two] {
        assert_eq!(session.sense_of(READY, Transfer::None), CAPACITY_CHANGED);
        session.execute(READY, Transfer::None).good();
        assert_eq!(session.capacity(), 80 << 20);
    }
    one.write((80 << 20) - 8192, &data);
    assert!(two.read((80 << 20) - 8192, 8192) == data);
    assert!(two.read((64 << 20) - 8192, 16_384) == [&data[..], &[0; 8192]].concat());
    let beyond = one.sense_of(read16(80 << 20, 512), Transfer::In(512));
    assert_eq!(beyond, (0x5, 0x21, 0x00));
    gateway.stop();
    let mut gateway = Gateway::start(&folder, &sized("80MiB"), &[]);
    assert!(gateway.session("one").read((80 << 20) - 8192, 8192) == data);
    gateway.stop();
}

/// A volume does not shrink: the log says so, and neither its size nor anything else is changed.
#[test]
fn a_volume_does_not_shrink() {
    let mut gateway = Gateway::with_one_disk("shrink");
    let mut one = gateway.session("one");
    one.write((64 << 20) - 512, &[7; 512]);
    let config = sized("32MiB") + "alias = \"another\"\ninitiators = [\"iqn.2026-11.org.other\"]\n";
    gateway.refuse_reload(&config, &["volume `disk`", "does not shrink"]);
    one.execute(READY, Transfer::None).good();
    assert_eq!(one.capacity(), 64 << 20);
    assert!(one.read((64 << 20) - 512, 512) == [7; 512]);
    gateway.session("two").ping();
    gateway.stop();
}

/// A configuration of which one volume cannot be had as it wants changes no other volume either, not
/// even the length of its file.
#[test]
fn a_refused_reload_changes_no_file() {
    let mut gateway = Gateway::start(&folder("half"), TWO_DISKS, &[]);
    let mut one = gateway.session("one");
    let config = TWO_DISKS.replacen("64MiB", "80MiB", 1).replacen("64MiB", "32MiB", 1);
    gateway.refuse_reload(&config, &["volume `other`", "does not shrink"]);
    one.execute(READY, Transfer::None).good();
    assert_eq!(one.capacity(), 64 << 20);
    let length = std::fs::metadata(gateway.folder.join("disk.img")).unwrap().len();
    assert_eq!(length, 64 << 20);
    gateway.stop();
}

/// A file with a fault changes nothing, and the log names its line and column; what needs a restart
/// changes nothing either, and the log says what that is. A good one afterwards is taken.
#[test]
fn a_faulty_configuration_changes_nothing() {
    let mut gateway = Gateway::with_one_disk("fault");
    let mut one = gateway.session("one");
    let fault = sized("80MiB").replace("size =", "sise =");
    let at = 1 + fault.lines().position(|line| line.starts_with("sise")).unwrap();
    gateway.refuse_reload(&fault, &["no key `sise`", &format!("weir.toml:{at}:1")]);
    gateway.refuse_reload("[[volume", &["weir.toml:1:", "ERROR"]);
    let restart = format!("[cache]\nsize = \"1MiB\"\n{}", sized("80MiB"));
    gateway.refuse_reload(&restart, &["needs a restart", "[cache]"]);
    let link = "[[link]]\nname = \"l\"\nlisten = [\"127.0.0.1:3260\"]\nbandwidth = \"1GB/s\"\n";
    let restart = format!("{link}{}", sized("80MiB"));
    gateway.refuse_reload(&restart, &["needs a restart", "[[link]]"]);
    std::fs::remove_file(gateway.folder.join("weir.toml")).unwrap();
    gateway.signal("HUP");
    gateway.logged(&["cannot read", "weir.toml"]);
    one.execute(READY, Transfer::None).good();
    assert_eq!(one.capacity(), 64 << 20);
    gateway.reload(&sized("80MiB"));
    assert_eq!(one.sense_of(READY, Transfer::None), CAPACITY_CHANGED);
    gateway.stop();
}

/// A stop takes as long as the last configuration says: not a minute, as at the start.
#[test]
fn the_time_of_a_stop_changes() {
    let far = "[[backend]]\nname = \"far\"\nmodel = \"fixed\"\nservice = \"60s\"\nservers = 1\n";
    let config = |timeout: &str| {
        let disk = ONE_DISK.replace("file =", "backend = \"far\"\nfile =");
        format!("[stop]\ntimeout = \"{timeout}\"\n{far}{disk}")
    };
    let mut gateway = Gateway::start(&folder("stop-time"), &config("60s"), &[]);
    let mut one = gateway.session("one");
    one.issue(read16(0, 512), Transfer::In(512));
    one.execute(READY, Transfer::None).good();
    gateway.reload(&config("100ms"));
    gateway.signal("TERM");
    gateway.logged(&["stopping: requests in flight are left"]);
    gateway.kill();
}

/// A unit that a new configuration adds is announced to those who are logged in, and is there; one
/// that it takes away is announced as well, and gone.
#[test]
fn units_come_and_go() {
    let mut gateway = Gateway::start(&folder("luns"), TWO_DISKS, &[]);
    let mut one = gateway.session("one");
    let more = TWO_DISKS.replacen("{ 0 = \"disk\" }", "{ 0 = \"disk\", 3 = \"other\" }", 1);
    gateway.reload(&more);
    assert_eq!(one.sense_of(READY, Transfer::None), LUNS_CHANGED);
    assert_eq!(one.luns(), [0, 3]);
    one.lun = 3;
    assert_eq!(one.sense_of(READY, Transfer::None), (0x6, 0x29, 0x00));
    while one.execute(READY, Transfer::None).sense.is_some() {}
    one.write(0, &[3; 512]);
    one.lun = 0;
    gateway.reload(TWO_DISKS);
    assert_eq!(one.sense_of(READY, Transfer::None), LUNS_CHANGED);
    assert_eq!(one.luns(), [0]);
    one.lun = 3;
    assert_eq!(one.sense_of(read16(0, 512), Transfer::In(512)), (0x5, 0x25, 0x00));
    assert!(gateway.stored("other.img", 0, 512) == [3; 512]);
    gateway.stop();
}

/// A volume that a new configuration hides from a host is gone for it at once, though the target
/// still offers it to others.
#[test]
fn a_volume_is_hidden() {
    let both = TWO_DISKS.replacen("{ 0 = \"disk\" }", "{ 0 = \"disk\", 3 = \"other\" }", 1);
    let mut gateway = Gateway::start(&folder("hide"), &both, &[]);
    let mut one = gateway.session("one").at(3);
    let mut two = gateway.session("two").at(3);
    let list = "name = \"other\"\ninitiators = [\"iqn.2026-11.org.example.host:two\"]\n";
    gateway.reload(&both.replacen("name = \"other\"\n", list, 1));
    assert_eq!(one.sense_of(read16(0, 512), Transfer::In(512)), (0x5, 0x25, 0x00));
    one.lun = 0;
    assert_eq!(one.sense_of(READY, Transfer::None), LUNS_CHANGED);
    assert_eq!(one.luns(), [0]);
    two.execute(READY, Transfer::None).good();
    two.write(0, &[2; 512]);
    gateway.stop();
}

/// A target that a new configuration adds can be logged in to; one that it takes away asks its hosts
/// to leave and is not found any more.
#[test]
fn targets_come_and_go() {
    let mut gateway = Gateway::start(&folder("targets"), ONE_DISK, &[]);
    let mut one = gateway.session("one");
    let renamed = ONE_DISK.replace("example:disk", "example:other");
    gateway.reload(&renamed);
    assert_eq!(announced(&mut one).0, 1, "asked to log out");
    let other = Login { target: "other", ..Login::of("one") };
    other.connect(gateway.portal).unwrap().ready().ping();
    assert_eq!(Login::of("two").connect(gateway.portal).unwrap_err(), 0x0204);
    // A target that comes back is the one that it was.
    one.logout();
    gateway.reload(ONE_DISK);
    gateway.session("one").ping();
    gateway.stop();
}

/// A host that a new configuration keeps out is asked to log out within ten seconds; when it does so
/// its session ends in order, and it does not get in again. Others notice nothing.
#[test]
fn access_is_taken_away() {
    let mut gateway = Gateway::with_one_disk("taken");
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    let closed = format!("{ONE_DISK}initiators = [\"iqn.2026-11.org.example.host:two\"]\n");
    gateway.reload(&closed);
    let (event, [_, _, within]) = announced(&mut one);
    assert_eq!((event, within), (1, 10));
    one.logout();
    assert_eq!(Login::of("one").connect(gateway.portal).unwrap_err(), 0x0203);
    two.ping();
    gateway.stop();
}

/// A host that was asked to log out and stays is served while it has time; then its connection is
/// closed.
#[test]
fn who_stays_is_shown_out() {
    let mut gateway = Gateway::with_one_disk("stays");
    let mut one = gateway.session("one");
    gateway.reload(&format!("{ONE_DISK}initiators = [\"iqn.2026-11.org.example.host:two\"]\n"));
    assert_eq!(announced(&mut one).0, 1);
    one.write(0, &[1; 512]);
    until_closed(&mut one.socket);
    gateway.logged(&[&one.peer, "session ended", "it did not log out when requested"]);
    assert!(gateway.stored("disk.img", 0, 512) == [1; 512]);
    gateway.stop();
}

/// Accounts that a new configuration asks for are asked for at the next login; who is in stays.
#[test]
fn accounts_hold_from_the_next_login_on() {
    let mut gateway = Gateway::with_one_disk("accounts");
    let mut one = gateway.session("one");
    let secret = "alice has a secret";
    let account = format!("[[account]]\nname = \"alice\"\nsecret = \"{secret}\"\n");
    gateway.reload(&format!("{account}{ONE_DISK}accounts = [\"alice\"]\n"));
    one.ping();
    let login = Login::of("two");
    assert_eq!(login.connect(gateway.portal).unwrap_err(), 0x0201);
    Proof::of("alice", secret).connect(&login, gateway.portal).unwrap().ready().ping();
    gateway.stop();
}

/// A gateway that is stopped says to every session that it drops it and when to come again, then
/// closes the connections, and leaves with 0.
#[test]
fn leaving_is_announced() {
    let mut gateway = Gateway::with_one_disk("leaving");
    let mut hosts = ["one", "two"].map(|host| gateway.session(host));
    gateway.signal("TERM");
    for session in &mut hosts {
        assert_eq!(announced(session), (3, [0, 2, 0]));
        assert!(until_closed(&mut session.socket).is_empty());
    }
    assert_eq!(gateway.exit_code(), Some(0));
}
