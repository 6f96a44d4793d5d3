//! A volume whose bytes another gateway keeps, behind portals that can be made to fail.

use crate::gateway::commands::{MISCOMPARE, compare_and_write, or_write, write_and_verify};
use crate::gateway::initiator::{GOOD, Transfer, synchronize16, unmap, write_same16, write16};
use crate::gateway::proxy::{Fate, Proxy};
use crate::gateway::{Chance, Gateway, ONE_DISK, eventually, folder, weir};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;

/// The storage behind: one disk on two portals.
fn behind(test: &str) -> Gateway {
    Gateway::start(&folder(&format!("{test}-behind")), ONE_DISK, &["--listen", "127.0.0.1:0"])
}

/// A gateway in front of these portals. `more` stands in the table of the upstream.
fn in_front(portals: &[SocketAddr], more: &str) -> String {
    let portals: Vec<_> = portals.iter().map(|portal| format!("\"{portal}\"")).collect();
    let portals = portals.join(", ");
    format!(
        "[[upstream]]\nname = \"array\"\ntarget = \"iqn.2026-11.org.example:disk\"\n\
         portals = [{portals}]\n{more}\n\
         [[volume]]\nname = \"front\"\nupstream = \"array\"\n\
         [[target]]\nname = \"iqn.2026-11.org.example:disk\"\nluns = {{ 0 = \"front\" }}\n"
    )
}

/// What a gateway that cannot start says.
fn refused(test: &str, config: &str) -> (Option<i32>, String) {
    let folder = folder(test);
    std::fs::write(folder.join("weir.toml"), config).unwrap();
    let output =
        weir(&folder, &["serve", "weir.toml", "--listen", "127.0.0.1:0"]).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// What a host does with a volume on an upstream is what happens to the upstream, and what was written
/// is durable there when both have left.
#[test]
fn commands_reach_the_unit() {
    let mut behind = behind("commands");
    let config = in_front(&behind.portals, "");
    let mut front = Gateway::start(&folder("commands"), &config, &[]);
    let mut session = front.session("one");
    assert_eq!(session.capacity(), 64 << 20);
    let mut chance = Chance(7);
    let mut model = vec![0; 4 << 20];
    for round in 0..64 {
        let blocks = 1 + chance.below(600) as usize;
        let first = chance.below((4 << 20) / 512 - blocks as u64) as usize;
        let range = first * 512..(first + blocks) * 512;
        let data = chance.bytes(range.len());
        let cdb = write16(range.start as u64, range.len(), round % 8 == 0);
        session.execute(cdb, Transfer::Out(data.clone())).good();
        model[range].copy_from_slice(&data);
    }
    session.execute(synchronize16(), Transfer::None).good();
    assert!(session.read(0, 4 << 20) == model);
    let (cdb, list) = unmap(1 << 20, 64 << 10);
    session.execute(cdb, Transfer::Out(list)).good();
    model[1 << 20..(1 << 20) + (64 << 10)].fill(0);
    session.execute(write_same16(2 << 20, 1 << 20), Transfer::Out(vec![0; 512])).good();
    model[2 << 20..3 << 20].fill(0);
    session.execute(write_same16(0, 8_192), Transfer::Out(vec![7; 512])).good();
    model[..8_192].fill(7);
    let (cdb, data) = compare_and_write(0, &[7; 1_024], &[8; 1_024]);
    assert_eq!(session.execute(cdb, data).status, GOOD);
    model[..1_024].fill(8);
    let (cdb, data) = compare_and_write(0, &[7; 1_024], &[9; 1_024]);
    assert_eq!(session.sense_of(cdb, data), MISCOMPARE);
    let (cdb, data) = or_write(512, &[0x80; 512]);
    session.execute(cdb, data).good();
    model[512..1_024].fill(0x88);
    let (cdb, data) = write_and_verify(4_096, &[3; 4_096]);
    session.execute(cdb, data).good();
    model[4_096..8_192].fill(3);
    assert!(session.read(0, 4 << 20) == model);
    session.logout();
    front.stop();
    behind.logged(&["session ended"]);
    behind.stop();
    assert!(behind.stored("disk.img", 0, 4 << 20) == model);
}

/// A path that is cut, and cut again in the middle of its work, is seen by no host: no error, and nothing
/// that was acknowledged is lost.
#[test]
fn a_path_comes_and_goes() {
    let mut behind = behind("path");
    let paths = [0, 1].map(|index| Proxy::start(behind.portals[index], Fate::Open));
    let config =
        in_front(&paths.each_ref().map(|path| path.address), "reconnect_interval_max = \"200ms\"");
    let front = Gateway::start(&folder("path"), &config, &[]);
    let witness = front.witness();
    for round in 0..6 {
        let path = &paths[round % 2];
        let before = front.count("path is ready");
        path.be(Fate::Cut);
        front.logged(&[&format!("({})", path.address), "path lost"]);
        path.be(Fate::Open);
        eventually("path that is back", || (front.count("path is ready") > before).then_some(()));
    }
    front.stop_upstream(witness);
    behind.stop();
}

/// While no path is left hosts wait; when one is back they continue, and nothing was lost.
#[test]
fn without_a_path_hosts_wait() {
    let mut behind = behind("none");
    let paths = [0, 1].map(|index| Proxy::start(behind.portals[index], Fate::Open));
    let config =
        in_front(&paths.each_ref().map(|path| path.address), "reconnect_interval_max = \"200ms\"");
    let front = Gateway::start(&folder("none"), &config, &[]);
    let mut session = front.session("one");
    session.write(0, &[1; 4_096]);
    for path in &paths {
        path.be(Fate::Cut);
    }
    let write = session.issue(write16(0, 4_096, false), Transfer::Out(vec![2; 4_096]));
    for path in &paths {
        front.logged(&[&format!("({})", path.address), "path lost"]);
    }
    // The session is served meanwhile.
    session.ping();
    assert_eq!(session.outstanding(), [write]);
    paths[1].be(Fate::Open);
    session.wait(write).good();
    assert!(session.read(0, 4_096) == [2; 4_096]);
    session.logout();
    let mut front = front;
    front.stop();
    behind.stop();
}

/// A write whose session was lost while its answer was due is not sent again before the target has
/// confirmed that the old session is dead: on another portal, while its own cannot be reached.
#[test]
fn a_lost_write_waits_for_the_old_session_to_be_dead() {
    let mut behind = behind("fence");
    let paths = [0, 1].map(|index| Proxy::start(behind.portals[index], Fate::Open));
    let config =
        in_front(&paths.each_ref().map(|path| path.address), "reconnect_interval_max = \"200ms\"");
    let front = Gateway::start(&folder("fence"), &config, &[]);
    let mut session = front.session("one");
    session.write(0, &[1; 4_096]);
    // Both paths hold what they are given.
    for path in &paths {
        path.be(Fate::Silent);
    }
    let write = session.issue(write16(0, 4_096, false), Transfer::Out(vec![2; 4_096]));
    session.ping();
    // Whichever has it, both are lost, and only the second comes back. The target hears nothing of that.
    for path in &paths {
        path.be(Fate::Lost);
    }
    front.logged(&["writes wait until the old session is known to be dead"]);
    assert_eq!(front.count("the old session is dead to the target"), 0);
    paths[1].be(Fate::Open);
    front.logged(&["the old session is dead to the target"]);
    session.wait(write).good();
    assert!(session.read(0, 4_096) == [2; 4_096]);
    behind.logged(&["reinstated=true"]);
    session.logout();
    let mut front = front;
    front.stop();
    behind.stop();
}

/// A path that leads to another unit than the others is refused by name, and hosts are served by the
/// others.
#[test]
fn a_path_to_another_unit_is_refused() {
    let (one, other) = (behind("unit-one"), behind("unit-other"));
    let gone = Proxy::start(one.portals[0], Fate::Open);
    let config = in_front(&[gone.address, other.portals[0]], "reconnect_interval_max = \"200ms\"");
    // The two disks have one size, and names of their own.
    let identity = ONE_DISK.replace("[[target]]", "identity = \"another\"\n[[target]]");
    drop(other);
    let other = Gateway::start(&folder("unit-other"), &identity, &["--listen", "127.0.0.1:0"]);
    let config = config.replace(
        &config[config.rfind(", \"127").unwrap()..config.find("]\nreconnect").unwrap()],
        &format!(", \"{}\"", other.portals[0]),
    );
    let mut front = Gateway::start(&folder("unit"), &config, &[]);
    front.logged(&["path lost", "it leads to another unit: its name is naa."]);
    let mut session = front.session("one");
    session.write(0, &[1; 512]);
    session.logout();
    front.stop();
}

/// A target that closes the connection, wherever that is in the login or in what is asked of the unit,
/// is reported with its portal; when no path works in time the exit code is 7.
#[test]
fn a_target_that_hangs_up_is_told() {
    let behind = behind("hangs-up");
    let folder = folder("hangs-up");
    let mut places = 0;
    for bytes in (0..4_000).step_by(70) {
        let path = Proxy::start(behind.portals[0], Fate::Until(bytes));
        std::fs::write(folder.join("weir.toml"), in_front(&[path.address], "")).unwrap();
        let mut command = weir(&folder, &["serve", "weir.toml", "--listen", "127.0.0.1:0"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let told = told.find(|line| line.contains("path lost") || line.contains("path is ready"));
        child.kill().unwrap();
        child.wait().unwrap();
        let told = told.expect("it says how the path fares");
        if told.contains("path is ready") {
            // It was enough for all that is asked.
            break;
        }
        assert!(told.contains(&format!("array path 0 ({})", path.address)), "{bytes}: {told}");
        let closed = told.contains("the target has closed the connection");
        assert!(closed || told.contains("reset by peer"), "{bytes}: {told}");
        places += 1;
    }
    assert!(places >= 8, "there are many places to hang up at, not {places}");
    let path = Proxy::start(behind.portals[0], Fate::Cut);
    let (code, told) = refused("hangs-up", &in_front(&[path.address], "connect_timeout = \"1s\""));
    assert_eq!(code, Some(7), "{told}");
    assert!(told.contains(&format!("path 0 ({}): ", path.address)), "{told}");
}

/// A target that takes the connection and never answers is reported as such when the time is up.
#[test]
fn a_silent_target_is_told() {
    let behind = behind("silent");
    let path = Proxy::start(behind.portals[0], Fate::Silent);
    let config = in_front(&[path.address], "connect_timeout = \"300ms\"");
    let (code, told) = refused("silent", &config);
    assert_eq!(code, Some(7), "{told}");
    assert!(told.contains("no path to upstream `array` works within 300"), "{told}");
    assert!(told.contains(&format!("path 0 ({}): the login is not over", path.address)), "{told}");
}

/// A unit that is not there, and a login that is refused, are reported in the target's words.
#[test]
fn what_the_target_says_is_told() {
    let behind = behind("says");
    let config = in_front(&behind.portals[..1], "lun = 7\nconnect_timeout = \"300ms\"");
    let (code, told) = refused("says", &config);
    assert_eq!(code, Some(7), "{told}");
    assert!(told.contains("the target has no LUN 7; it has 0"), "{told}");
    let config = config.replace("example:disk\"\nportals", "example:other\"\nportals");
    let (code, told) = refused("says", &config);
    assert_eq!(code, Some(7), "{told}");
    assert!(told.contains("refused the login"), "{told}");
}

/// Blocks that do not fit those of the upstream are refused at the start, with what to write.
#[test]
fn blocks_that_do_not_fit_are_told() {
    let large = ONE_DISK.replace("[[target]]", "block_size = 4096\n[[target]]");
    let behind = Gateway::start(&folder("blocks-behind"), &large, &[]);
    let (code, told) = refused("blocks", &in_front(&behind.portals[..1], ""));
    assert_eq!(code, Some(7), "{told}");
    assert!(told.contains("has 16384 blocks of 4096 bytes"), "{told}");
    assert!(told.contains("set `block_size = 4096`"), "{told}");
}
