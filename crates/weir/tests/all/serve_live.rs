//! Volumes that come and go at a reload while others are served.

use crate::gateway::commands::READY;
use crate::gateway::initiator::{Login, Transfer, read16};
use crate::gateway::nbd::Client;
use crate::gateway::{Gateway, ONE_DISK, configure, eventually, folder, weir};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;

const LUNS_CHANGED: (u8, u8, u8) = (0x6, 0x3f, 0x0e);

/// `ONE_DISK` with a control socket and an NBD export.
fn base() -> String {
    let nbd = "[nbd]\nlisten = [\"127.0.0.1:0\"]\nexports = { disk = \"disk\" }\n";
    format!("[control]\nsocket = \"c.sock\"\n{nbd}{ONE_DISK}")
}

/// A volume with this name, its file and this size.
fn volume(name: &str, size: &str) -> String {
    format!("[[volume]]\nname = \"{name}\"\nfile = \"{name}.img\"\nsize = \"{size}\"\n")
}

/// `base` with the volume `more` as unit 1 of the target, and as an export.
fn with_more() -> String {
    let mapped = base().replace("{ 0 = \"disk\" }", "{ 0 = \"disk\", 1 = \"more\" }");
    mapped.replace("disk = \"disk\" }", "disk = \"disk\", more = \"more\" }")
        + &volume("more", "1MiB")
}

/// Reads a configuration with `weir reload`, which must succeed.
fn reload(gateway: &Gateway, config: &str, arguments: &[&str]) {
    std::fs::write(gateway.folder.join("weir.toml"), config).unwrap();
    gateway.asked(&[&["reload"], arguments].concat());
}

/// Reads one that must be refused with this exit code; what is said of it.
fn refused(gateway: &Gateway, config: &str, arguments: &[&str], code: i32) -> String {
    std::fs::write(gateway.folder.join("weir.toml"), config).unwrap();
    let output = gateway.command(&[&["reload"], arguments].concat());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{told}");
    told
}

/// Whether the gateway has a file of its folder open.
fn has_open(gateway: &Gateway, file: &str) -> bool {
    let path = gateway.folder.join(file).canonicalize().unwrap();
    let open = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap();
    open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok()).any(|to| to == path)
}

/// Waits until the gateway has closed a file, and has let go of its lock.
fn closed(gateway: &Gateway, file: &str) {
    eventually("closed file", || (!has_open(gateway, file)).then_some(()));
    File::open(gateway.folder.join(file)).unwrap().try_lock().unwrap();
}

/// What of a status does not change by itself.
fn steady(gateway: &Gateway) -> Value {
    let status = gateway.asked(&["status"])["status"].take();
    let paths = gateway.asked(&["path", "list"])["paths"].take();
    let names = |list: &Value, key: &str| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|one| one[key].clone()).collect()
    };
    json!({
        "volumes": status["volumes"],
        "requests": status["requests"],
        "backends": names(&status["backends"], "name"),
        "paths": names(&paths, "backend"),
        "peers": names(&status["sessions"], "peer"),
    })
}

/// A host writes and reads over one session while another volume comes, is used over iSCSI and NBD, and goes, fifty times:
/// it gets no error, its connection stays, and all that it has written is there. What went is flushed, closed and not
/// in the status or the metrics; what comes back has its data. The recording of all this replays to its digest.
#[test]
fn volumes_come_and_go_beside_a_writer() {
    let folder = folder("live-beside");
    let gateway = Gateway::start(&folder, &base(), &["--record", "run.weirrec"]);
    let before = steady(&gateway);
    let target = "[[target]]\nname = \"iqn.2026-11.org.example:more\"\nluns = { 0 = \"more\" }\n";
    let with_target = with_more().replace(", 1 = \"more\"", "") + target;
    let witness = gateway.witness();
    for round in 0..50_u8 {
        reload(&gateway, &with_target, &[]);
        let login = Login { target: "more", ..Login::of("two") };
        let mut host = login.connect(gateway.portal).unwrap().ready();
        if round > 0 {
            assert!(host.read(0, 512) == [round - 1; 512], "round {round}");
        }
        host.write(0, &[round; 512]);
        let mut client = Client::tcp(gateway.nbd_address());
        client.choose("more");
        assert!(client.read(0, 512) == [round; 512]);
        if round == 0 {
            let metrics = gateway.command(&["metrics"]).stdout;
            assert!(String::from_utf8(metrics).unwrap().contains("volume=\"more\""));
        }
        drop(client);
        host.logout();
        std::fs::write(gateway.folder.join("weir.toml"), base()).unwrap();
        // The gateway may not have seen yet that the client has gone.
        eventually("volume without users", || {
            (gateway.command(&["reload"]).status.code() == Some(0)).then_some(())
        });
        closed(&gateway, "more.img");
    }
    assert!(gateway.stored("more.img", 0, 512) == [49; 512]);
    let metrics = String::from_utf8(gateway.command(&["metrics"]).stdout).unwrap();
    let told = |volume: &str| metrics.contains(&format!("volume=\"{volume}\""));
    assert!(told("disk") && !told("more"), "{metrics}");
    let after = steady(&gateway);
    for key in ["volumes", "backends", "paths"] {
        assert_eq!(before[key], after[key], "{key}");
    }
    assert_eq!((gateway.count("volume added"), gateway.count("volume removed")), (50, 50));
    assert_eq!(
        gateway.count("session ended"),
        50,
        "the writer has kept its own: {}",
        gateway.log()
    );
    gateway.stop_after(witness);
    let replay = weir(&folder, &["replay", "run.weirrec"]).output().unwrap();
    assert_eq!(replay.status.code(), Some(0), "{}", String::from_utf8_lossy(&replay.stdout));
}

/// A volume that hosts find is not taken away: the refusal names each host, its address, its session and how it finds the
/// volume, and nothing is changed. By force it goes: the unit is not there any more and the session stays, with a unit
/// attention; an NBD client is disconnected; the file is closed with what was written last.
#[test]
fn a_volume_in_use_goes_by_force() {
    let mut gateway = Gateway::start(&folder("live-force"), &with_more(), &[]);
    let mut one = gateway.session("one").at(1);
    one.write(0, &[7; 512]);
    let mut client = Client::tcp(gateway.nbd_address());
    client.choose("more");
    client.write(512, &[8; 512]).unwrap();
    let before = steady(&gateway);
    for arguments in [&[][..], &["--dry-run"]] {
        let told = refused(&gateway, &base(), arguments, 1);
        let user =
            format!("iqn.2026-11.org.example.host:one at {} (iSCSI session {}", one.peer, one.tsih);
        for part in [
            "volume `more` is in use by",
            &user,
            "LUN 1 of iqn.2026-11.org.example:disk)",
            "(NBD export `more`)",
            "--force",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    assert_eq!(steady(&gateway), before);
    assert!(one.read(0, 512) == [7; 512]);
    reload(&gateway, &base(), &["--force"]);
    assert_eq!(one.sense_of(read16(0, 512), Transfer::In(512)), (0x5, 0x25, 0x00));
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0, "it is disconnected");
    one.lun = 0;
    assert_eq!(one.sense_of(READY, Transfer::None), LUNS_CHANGED);
    one.write(0, &[1; 512]);
    closed(&gateway, "more.img");
    assert!(gateway.stored("more.img", 0, 1024) == [[7; 512], [8; 512]].concat());
    gateway.stop();
}

/// An export that has a client is not taken away either, although its volume stays; by force its client is disconnected.
/// Under the same name another volume is another export.
#[test]
fn an_export_in_use_goes_by_force() {
    let exported =
        |volume: &str| with_more().replace("more = \"more\"", &format!("e = \"{volume}\""));
    let mut gateway = Gateway::start(&folder("live-export"), &exported("more"), &[]);
    let mut client = Client::tcp(gateway.nbd_address());
    client.choose("e");
    client.write(0, &[5; 512]).unwrap();
    let told = refused(&gateway, &exported("disk"), &[], 1);
    assert!(told.contains("export `e` is in use by"), "{told}");
    assert!(client.read(0, 512) == [5; 512]);
    reload(&gateway, &exported("disk"), &["--force"]);
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0, "it is disconnected");
    let mut client = Client::tcp(gateway.nbd_address());
    client.choose("e");
    assert_eq!(client.size, 64 << 20);
    assert!(client.read(0, 512) == [0; 512]);
    gateway.stop();
}

/// A dry run of a volume that would come opens, makes and changes nothing.
#[test]
fn a_dry_run_changes_nothing() {
    let mut gateway = Gateway::start(&folder("live-dry"), &base(), &[]);
    let mut one = gateway.session("one");
    let before = steady(&gateway);
    reload(&gateway, &with_more(), &["--dry-run"]);
    assert_eq!(steady(&gateway), before);
    assert!(!gateway.folder.join("more.img").exists());
    one.execute(READY, Transfer::None).good();
    assert_eq!(one.luns(), [0]);
    gateway.stop();
}

/// A file of which some volumes cannot be had changes nothing, and no file is left of the others: one line names all that
/// is wrong, in a dry run as well.
#[test]
fn what_cannot_be_had_changes_nothing() {
    let mut gateway = Gateway::start(&folder("live-faults"), &base(), &[]);
    let before = steady(&gateway);
    let taken = File::create(gateway.folder.join("taken.img")).unwrap();
    taken.set_len(1 << 20).unwrap();
    taken.try_lock().unwrap();
    let absent = volume("absent", "1MiB").replace("size = \"1MiB\"\n", "");
    let moved = base().replace("disk.img", "elsewhere.img");
    let part = absent.replace("absent", "part");
    std::fs::write(gateway.folder.join("part.img"), [0; 700]).unwrap();
    let large = volume("large", "3MiB");
    File::create(gateway.folder.join("large.img")).unwrap().set_len(4 << 20).unwrap();
    let state = volume("state", "1MiB") + "state = \"small.state\"\n";
    std::fs::create_dir(gateway.folder.join("small.state")).unwrap();
    let store = "[[store]]\nname = \"s\"\nfile = \"lost.img\"\n[[volume]]\nname = \"v\"\nstores = [\"s\"]\n";
    let volumes = [volume("more", "1MiB"), volume("taken", "1MiB"), absent, part, large, state];
    let text = base() + &volumes.concat() + store;
    for arguments in [&["--dry-run"][..], &[]] {
        let told = refused(&gateway, &text, arguments, 7);
        let line = |file: &str| 1 + text.lines().position(|line| line.contains(file)).unwrap();
        for (file, part) in [
            ("taken.img", "taken.img is in use by process"),
            ("absent.img", "absent.img does not exist; give `size`"),
            ("small.state", "state file"),
            ("lost.img", "lost.img does not exist; give `size`"),
            ("part.img", "is not a whole number of 512-byte blocks"),
            ("\"3MiB\"", "large.img has 4 MiB, but `size` is 3 MiB"),
        ] {
            let place = format!("weir.toml:{}:", line(file));
            let fault = told.split("; weir").find(|fault| fault.contains(part));
            let fault = fault.unwrap_or_else(|| panic!("{part}: {told}"));
            assert!(
                told.contains(&place) && fault.contains(&place["weir".len()..]),
                "{place} {told}"
            );
        }
        let told = refused(&gateway, &moved, arguments, 8);
        assert!(told.contains("the file of volume `disk` differs"), "{told}");
    }
    assert_eq!(steady(&gateway), before);
    assert!(!gateway.folder.join("more.img").exists());
    let log = volume("logged", "1MiB").replace("size", "log = \"none/l.log\"\nsize");
    let told = refused(&gateway, &(base() + &log), &[], 7);
    assert!(told.contains("volume `logged`: cannot make its log"), "{told}");
    assert_eq!(steady(&gateway)["volumes"].as_array().unwrap().len(), 1);
    assert_eq!(steady(&gateway)["volumes"][0]["name"], json!("disk"));
    gateway.stop();
}

/// What is asked together with a reload is answered when the volumes are there that it has brought.
#[test]
fn questions_wait_for_the_volumes_of_a_reload() {
    let mut gateway = Gateway::start(&folder("live-question"), &base(), &[]);
    configure(&gateway.folder, &with_more());
    // It sees both signals at once.
    for signal in ["STOP", "HUP", "USR1", "CONT"] {
        gateway.signal(signal);
    }
    eventually("two volumes", || {
        (steady(&gateway)["volumes"].as_array()?.len() == 2).then_some(())
    });
    assert_eq!(gateway.session("one").luns(), [0, 1]);
    gateway.stop();
}

/// A volume that comes takes no file of one that goes with the same reload, be it data, state or journal; when that has
/// gone it may.
#[test]
fn files_of_a_volume_that_goes_are_taken_later() {
    let more = base() + &volume("more", "1MiB") + "state = \"more.state\"\n";
    let mut gateway = Gateway::start(&folder("live-files"), &more, &[]);
    let other = |file: &str, state: &str| {
        let text = volume("other", "1MiB").replace("other.img", file);
        format!("{}{text}state = \"{state}\"\n", base())
    };
    for (file, state) in [
        ("more.img", "other.state"),
        ("other.img", "more.state"),
        ("more.state", "other.state"),
        ("more.state.journal", "other.state"),
        ("other.img", "more.img"),
    ] {
        for arguments in [&["--dry-run"][..], &[]] {
            let told = refused(&gateway, &other(file, state), arguments, 7);
            let part = "is that of volume `more` until it has been removed";
            assert!(told.contains(part), "{file}, {state}: {told}");
        }
    }
    reload(&gateway, &base(), &[]);
    closed(&gateway, "more.img");
    reload(&gateway, &other("more.img", "more.state"), &[]);
    gateway.stop();
}

/// The connection of a host is lost while its reply leaves slowly, and the volume is removed: it is closed when the reply
/// is over, and comes back with another size, which holds. No end comes for something that the pipeline does not know.
#[test]
fn a_slow_reply_of_a_volume_that_goes() {
    let link = "[[link]]\nname = \"front\"\nlisten = [\"127.0.0.1:0\"]\nbandwidth = \"1MB/s\"\n";
    let config = |more: &str| format!("{link}{more}");
    let mut gateway = Gateway::start(&folder("live-slow"), &config(&with_more()), &[]);
    let mut one = gateway.session("one").at(1);
    one.issue(read16(0, 1 << 20), Transfer::In(1 << 20));
    eventually("a reply on its way", || {
        let stages = gateway.asked(&["status"])["status"]["stages"].take();
        let transfer = stages.as_array()?.iter().find(|stage| stage["stage"] == "transfer")?;
        (transfer["count"].as_u64()? > 0).then_some(())
    });
    drop(one);
    reload(&gateway, &config(&base()), &["--force"]);
    closed(&gateway, "more.img");
    reload(&gateway, &config(&with_more().replace("1MiB", "2MiB")), &[]);
    let mut one = gateway.session("one").at(1);
    assert!(one.read((2 << 20) - 512, 512) == [0; 512]);
    assert_eq!(gateway.count("a completion came for nothing"), 0, "{}", gateway.log());
    gateway.stop();
}
