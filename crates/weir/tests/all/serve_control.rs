//! The control socket of a live gateway: what operators ask and order, and what hostile clients cost.

use crate::gateway::commands::READY;
use crate::gateway::control::{controlled, hear, say, start};
use crate::gateway::initiator::{Transfer, read16};
use crate::gateway::{Gateway, ONE_DISK, eventually, folder, weir};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};

const STATUS: &[u8] = b"{\"version\":1,\"do\":\"status\"}\n";

/// A status has what is held where and for how long, who is connected, the volumes, and how well contracts
/// are kept, for programs and for people; no host notices, and SIGUSR1 logs the same.
#[test]
fn status_tells_what_there_is() {
    let folder = folder("control-status");
    let tenant = "[[tenant]]\nname = \"one\"\ninitiators = [\"iqn.2026-11.org.example.host:one\"]\n\
                  objectives = [{ size = 512, iops = 1, p99 = \"1s\" }]\n";
    let policy = "[policy]\ncontrol = { name = \"ta1\", tau = 1 }\n";
    let limits = "[limits]\nreport_after = \"10ms\"\n";
    let config = controlled(&[policy, limits, tenant].concat());
    let mut gateway = Gateway::start(&folder, &config, &["--record", "run.weirrec"]);
    let mut one = gateway.session("one");
    one.read(0, 512);
    // For ever beyond the contract.
    let waiting = one.issue(read16(0, 65_536), Transfer::In(65_536));
    one.execute(READY, Transfer::None).good();
    let status = eventually("request that is overdue", || {
        let status = gateway.asked(&["status"])["status"].take();
        (status["overdue"] != json!([])).then_some(status)
    });
    assert_eq!(status["requests"]["outstanding"], 1, "{status}");
    assert_eq!(status["requests"]["completed"], 1, "{status}");
    let stages = status["stages"].as_array().unwrap();
    let held = |stage: &&Value| stage["count"] != 0;
    assert_eq!(stages.len(), 7);
    let held: Vec<_> = stages.iter().filter(held).collect();
    assert_eq!((held.len(), &held[0]["stage"]), (1, &json!("control")), "{status}");
    assert!(held[0]["oldest_ns"].as_u64().unwrap() >= 10_000_000, "{status}");
    let overdue = &status["overdue"][0];
    for (key, value) in [
        ("stage", json!("control")),
        ("op", json!("read")),
        ("volume", json!("disk")),
        ("tenant", json!("one")),
        ("offset", json!(0)),
        ("length", json!(65_536)),
    ] {
        assert_eq!(overdue[key], value, "{status}");
    }
    let session = &status["sessions"][0];
    assert_eq!(session["initiator"], "iqn.2026-11.org.example.host:one");
    assert_eq!(
        (&session["target"], &session["outstanding"]),
        (&json!("iqn.2026-11.org.example:disk"), &json!(1))
    );
    let volume = json!({ "name": "disk", "bytes": 64 << 20, "backend": "disk", "read_only": false, "volatile": "", "lost": false, "log": null,
        "fences": [], "quarantine": [], "quarantine_left_out": 0 });
    assert_eq!(status["volumes"], json!([volume]));
    let tenant = &status["tenants"][0];
    assert_eq!((&tenant["name"], &tenant["requests"]), (&json!("one"), &json!(1)));
    assert_eq!(
        (&tenant["targets"][0]["size"], &tenant["targets"][0]["missed"]),
        (&json!(512), &json!(0))
    );
    assert_eq!(status["gateway"]["stopping"], false);

    let text = gateway.command(&["status"]).stdout;
    let text = String::from_utf8(text).unwrap();
    for part in [
        "gateway thread ",
        "limit throughput",
        "; 1 outstanding",
        "Overdue\n",
        "disk    64 MiB  disk",
        "read 512 B",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let row = |line: &&str| line.split_whitespace().take(2).eq(["control", "1"]);
    assert_eq!(text.lines().filter(row).count(), 1, "{text}");
    gateway.signal("USR1");
    gateway.logged(&["requests completed=1 failed=0 refused=0 outstanding=1"]);
    gateway.logged(&["outstanding stage=control count=1 oldest="]);

    gateway.reload(&config.replace("iops = 1,", "iops = 1000000,"));
    eventually("end of what was held", || {
        one.execute(READY, Transfer::None).good();
        one.outstanding().is_empty().then_some(())
    });
    assert_eq!(one.wait(waiting).good().len(), 65_536);
    gateway.stop();
    let replay = weir(&folder, &["replay", "run.weirrec"]).output().unwrap();
    assert_eq!(replay.status.code(), Some(0), "{}", String::from_utf8_lossy(&replay.stdout));
}

/// A status has the weight of each tenant that has had time of a backend, with its part, and how full backends are; a
/// weight that a new configuration has holds without a restart, and a recording has it.
#[test]
fn shares_are_told_and_change_live() {
    let folder = folder("control-shares");
    let tenant = |name: &str, share: &str| {
        let host = format!("iqn.2026-11.org.example.host:{name}");
        format!("[[tenant]]\nname = \"{name}\"\ninitiators = [\"{host}\"]\nshare = {share}\n")
    };
    let policy = "[policy]\ndispatch = { name = \"fair-time\", depth = 3, servers = 1 }\n";
    let background = "[background]\njobs = 0.25\n";
    let tenants = [tenant("one", "4"), tenant("two", "1")].concat();
    let config = controlled(&[policy, background, &tenants].concat());
    let mut gateway = Gateway::start(&folder, &config, &["--record", "run.weirrec"]);
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    for at in 0..64 {
        one.read(at * 4_096, 4_096);
        two.read(at * 4_096, 4_096);
    }
    let weight = |status: &Value, name: &str| {
        let shares = status["shares"].as_array().unwrap();
        shares.iter().find(|share| share["name"] == name).unwrap()["weight"].clone()
    };
    let status = gateway.asked(&["status"])["status"].take();
    assert_eq!([weight(&status, "one"), weight(&status, "two")], [json!(4.0), json!(1.0)]);
    let parts =
        status["shares"].as_array().unwrap().iter().map(|share| share["share"].as_f64().unwrap());
    assert!((parts.sum::<f64>() - 1.0).abs() < 1e-9, "{status}");
    assert_eq!(status["backends"], json!([{ "name": "disk", "outstanding": 0, "depth": 3 }]));
    let text = String::from_utf8(gateway.command(&["status"]).stdout).unwrap();
    let row = |line: &&str| line.split_whitespace().take(2).eq(["one", "4"]);
    assert_eq!(text.lines().filter(row).count(), 1, "{text}");

    gateway.reload(&config.replace("share = 4", "share = 0.5"));
    one.read(0, 4_096);
    let status = gateway.asked(&["status"])["status"].take();
    assert_eq!([weight(&status, "one"), weight(&status, "two")], [json!(0.5), json!(1.0)]);
    gateway.logged(&["shares changed"]);
    gateway.stop();
    let replay = weir(&folder, &["replay", "run.weirrec"]).output().unwrap();
    assert_eq!(replay.status.code(), Some(0), "{}", String::from_utf8_lossy(&replay.stdout));
}

/// What is behind is listed with its paths; a file has one.
#[test]
fn paths_are_listed() {
    let mut gateway = start("control-paths");
    gateway.session("host").read(0, 512);
    let paths = gateway.asked(&["path", "list"])["paths"].take();
    let path = &paths[0];
    assert_eq!(paths.as_array().unwrap().len(), 1);
    for (key, value) in [
        ("backend", json!("disk")),
        ("path", json!(0)),
        ("portal", json!("file")),
        ("state", json!("active")),
        ("group", json!(0)),
        ("access", json!("optimized")),
        ("in_flight", json!(0)),
    ] {
        assert_eq!(path[key], value, "{path}");
    }
    assert_eq!(gateway.asked(&["path", "list", "disk"])["paths"].as_array().unwrap().len(), 1);
    let text = String::from_utf8(gateway.command(&["path", "list"]).stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    for column in
        ["backend", "portal", "state", "since", "why", "in flight", "learned speed", "changes"]
    {
        assert!(lines[0].contains(column), "{text}");
    }
    assert!(lines[1].starts_with("disk        0  file    active  "), "{text}");
    gateway.stop();
}

/// A path that is disabled gets nothing more until it is enabled: what comes waits, and the status says where.
/// Each order is answered with what it has made of the path, is in the log, and is part of a recording.
#[test]
fn a_path_is_disabled_and_enabled() {
    let folder = folder("control-orders");
    let mut gateway = Gateway::start(&folder, &controlled(""), &["--record", "run.weirrec"]);
    let mut host = gateway.session("host");
    host.read(0, 512);
    let order = |arguments: &[&str]| {
        let mut paths = gateway.asked(arguments)["paths"].take();
        let path = paths[0].take();
        (path["state"].clone(), path["why"].clone(), path["changes"].as_u64().unwrap())
    };
    let operator = json!("by operator");
    let disable = ["path", "disable", "disk", "0", "--force"];
    assert_eq!(order(&disable), (json!("disabled"), operator.clone(), 1));
    assert_eq!(order(&disable), (json!("disabled"), operator.clone(), 1), "twice is once");
    gateway.logged(&["order to paths", "over=\"control socket\"", "backend=\"disk\"", "Disable"]);
    gateway.logged(&["path", "backend=\"disk\"", "portal=\"file\"", "state=disabled"]);
    let waiting = host.issue(read16(0, 512), Transfer::In(512));
    host.execute(READY, Transfer::None).good();
    let stages = gateway.asked(&["status"])["status"]["stages"].take();
    assert_eq!((&stages[4]["stage"], &stages[4]["count"]), (&json!("path"), &json!(1)), "{stages}");
    let (state, why, changes) = order(&["path", "enable", "disk", "0"]);
    assert!(state != "disabled" && changes == 2, "{state}");
    assert_eq!(why, operator);
    assert_eq!(host.wait(waiting).good().len(), 512);
    order(&["path", "failback", "disk"]);
    host.read(0, 512);
    gateway.stop();
    let replay = weir(&folder, &["replay", "run.weirrec"]).output().unwrap();
    assert_eq!(replay.status.code(), Some(0), "{}", String::from_utf8_lossy(&replay.stdout));
}

/// Orders move the traffic of a live upstream from one portal to the other and back while a host works: a
/// path that is disabled leaves the work to the next group, which alone cannot be disabled without force, and
/// one that is enabled gets it back.
#[test]
fn orders_move_the_traffic_of_an_upstream() {
    let behind = Gateway::start(&folder("control-behind"), ONE_DISK, &["--listen", "127.0.0.1:0"]);
    let (first, second) = (behind.portals[0], behind.portals[1]);
    let config = format!(
        "[control]\nsocket = \"c.sock\"\n\
         [[upstream]]\nname = \"array\"\ntarget = \"iqn.2026-11.org.example:disk\"\n\
         portals = [\"{first}\", {{ address = \"{second}\", group = 1 }}]\n\
         [[volume]]\nname = \"front\"\nupstream = \"array\"\n\
         [[target]]\nname = \"iqn.2026-11.org.example:disk\"\nluns = {{ 0 = \"front\" }}\n"
    );
    let front = Gateway::start(&folder("control-front"), &config, &[]);
    let witness = front.witness();
    let states = |arguments: &[&str]| {
        let paths = front.asked(arguments)["paths"].take();
        let of = |path: usize, key: &str| paths[path][key].as_str().unwrap().to_owned();
        assert_eq!((of(0, "portal"), of(1, "portal")), (first.to_string(), second.to_string()));
        assert_eq!((&paths[0]["group"], &paths[1]["group"]), (&json!(0), &json!(1)));
        [of(0, "state"), of(1, "state")]
    };
    let until = |wanted: [&str; 2]| {
        eventually("change of the paths", || (states(&["path", "list"]) == wanted).then_some(()));
    };
    until(["active", "waiting"]);
    for round in 0..2 {
        assert_eq!(states(&["path", "disable", "array", "0"])[0], "disabled");
        until(["disabled", "active"]);
        let told = front.refused(&["path", "disable", "array", "1"]);
        assert!(told.contains("path 1 is the last one to `array`"), "{told}");
        // What is switched off already is not the last one.
        assert_eq!(states(&["path", "disable", "array", "0"])[0], "disabled");
        if round == 1 {
            assert_eq!(states(&["path", "disable", "array", "1", "--force"]), ["disabled"; 2]);
        }
        assert_ne!(states(&["path", "enable", "array", "0"])[0], "disabled");
        states(&["path", "enable", "array", "1"]);
        states(&["path", "failback", "array"]);
        until(["active", "waiting"]);
    }
    front.stop_upstream(witness);
}

/// What cannot be done is refused with the reason and what to do, and nothing has changed.
#[test]
fn orders_that_cannot_be_are_refused() {
    let mut gateway = start("control-refused");
    let told = gateway.refused(&["path", "list", "array"]);
    assert!(
        told.contains("there is no backend `array`") && told.contains("there is `disk`"),
        "{told}"
    );
    for verb in ["disable", "enable"] {
        let told = gateway.refused(&["path", verb, "disk", "1"]);
        assert!(told.contains("backend `disk` has no path 1"), "{told}");
        assert!(told.contains("it has one, number 0"), "{told}");
    }
    let told = gateway.refused(&["path", "failback", "array"]);
    assert!(told.contains("there is no backend `array`"), "{told}");
    let told = gateway.refused(&["path", "disable", "disk", "0"]);
    assert!(told.contains("path 0 is the last one to `disk` that can be used"), "{told}");
    assert!(told.contains("--force"), "{told}");
    assert_eq!(gateway.asked(&["path", "list"])["paths"][0]["state"], "active");
    gateway.session("host").read(0, 512);
    // The reason is there for programs, too.
    let output = gateway.command(&["path", "disable", "disk", "0", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &answer["error"]["code"]), (Some(1), &json!("last_path")));
    gateway.stop();
}

/// Whatever is no request is answered with the reason, and the next request on the connection is heard.
#[test]
fn rubbish_is_answered() {
    let mut gateway = start("control-rubbish");
    let mut client = gateway.knock();
    for (line, code) in [
        (&b"rubbish\n"[..], "not_json"),
        (b"\n", "not_json"),
        (b"\xff\xfe\x00\n", "not_json"),
        (b"GET / HTTP/1.1\r\n", "not_json"),
        (b"[1]\n", "version"),
        (b"{\"do\":\"status\"}\n", "version"),
        (b"{\"version\":2,\"do\":\"status\"}\n", "version"),
        (b"{\"version\":\"1\",\"do\":\"status\"}\n", "version"),
        (b"{\"version\":1}\n", "not_a_request"),
        (b"{\"version\":1,\"do\":\"fly\"}\n", "not_a_request"),
        (b"{\"version\":1,\"do\":\"status\",\"now\":true}\n", "not_a_request"),
        (b"{\"version\":1,\"do\":\"path.enable\",\"backend\":\"disk\"}\n", "not_a_request"),
        (
            b"{\"version\":1,\"do\":\"path.enable\",\"backend\":\"disk\",\"path\":-1}\n",
            "not_a_request",
        ),
        (
            b"{\"version\":1,\"do\":\"path.enable\",\"backend\":\"\",\"path\":0}\n",
            "unknown_backend",
        ),
        (
            b"{\"version\":1,\"do\":\"path.enable\",\"backend\":\"disk\",\"path\":4294967295}\n",
            "unknown_path",
        ),
    ] {
        let answer = say(&mut client, line);
        assert_eq!(answer["error"]["code"], code, "{}: {answer}", String::from_utf8_lossy(line));
        assert!(!answer["error"]["help"].as_str().unwrap().is_empty(), "{answer}");
    }
    let deep = [&[b'['; 4_000][..], b"\n"].concat();
    assert_eq!(say(&mut client, &deep)["error"]["code"], "not_json");
    assert!(say(&mut client, STATUS)["status"].is_object());
    gateway.stop();
}

/// Half a line, a megabyte without an end and clients that never read cost a witness and other clients nothing.
#[test]
fn hostile_clients_cost_nothing() {
    let gateway = start("control-hostile");
    let witness = gateway.witness();
    let mut half = gateway.knock();
    half.write_all(&STATUS[..10]).unwrap();
    let mut endless = gateway.knock();
    let mut sent = 0;
    let refused = loop {
        match endless.write(&[b'x'; 8_192]) {
            Ok(count) => sent += count,
            Err(error) => break error,
        }
        assert!(sent <= 64 << 20, "the reader ends");
    };
    let kinds = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(kinds.contains(&refused.kind()), "{refused}");
    assert_eq!(hear(&endless)["error"]["code"], "too_long");
    // More clients than there are places; each says more than the kernel takes, and reads nothing.
    let deaf: Vec<UnixStream> = (0..40)
        .map(|_| {
            let mut client = gateway.knock();
            client.set_nonblocking(true).unwrap();
            while client.write(STATUS).is_ok_and(|count| count == STATUS.len()) {}
            client
        })
        .collect();
    assert!(gateway.asked(&["status"])["status"].is_object());
    drop(deaf);
    let status = gateway.asked(&["status"])["status"].take();
    assert_eq!(status["sessions"].as_array().unwrap().len(), 1, "{status}");
    gateway.stop_after(witness);
}

/// A hundred clients at once are all answered, while as many are silent.
#[test]
fn a_hundred_clients_are_answered() {
    let gateway = start("control-hundred");
    let witness = gateway.witness();
    let _silent: Vec<_> = (0..100).map(|_| gateway.knock()).collect();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..100)
            .map(|_| {
                scope.spawn(|| {
                    say(&mut gateway.knock(), STATUS)["status"]["volumes"][0]["name"].take()
                })
            })
            .collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), "disk");
        }
    });
    gateway.stop_after(witness);
}

/// Only the owner may connect. The socket goes when the gateway leaves in order, and is replaced if it could
/// not; a gateway that lives keeps it, and what is no socket is not touched.
#[test]
fn the_socket_has_one_owner() {
    let mut gateway = start("control-owner");
    let socket = gateway.control();
    let metadata = std::fs::symlink_metadata(&socket).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);

    let other = folder("control-owner-second");
    let config = controlled("").replace("c.sock", socket.to_str().unwrap());
    std::fs::write(other.join("weir.toml"), &config).unwrap();
    let serve = ["serve", "weir.toml", "--listen", "127.0.0.1:0"];
    let refused = weir(&other, &serve).output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(7), "{told}");
    assert!(
        told.contains(&format!("cannot listen on the control socket {}", socket.display())),
        "{told}"
    );
    assert!(told.contains("another gateway listens there"), "{told}");
    assert!(gateway.asked(&["status"])["status"].is_object(), "the first one continues");

    gateway.kill();
    assert!(socket.exists());
    let told = String::from_utf8(gateway.command(&["status"]).stderr).unwrap();
    assert!(told.contains("no process listens on c.sock"), "{told}");
    let mut next = Gateway::start(&other, &config, &[]);
    assert!(UnixStream::connect(&socket).is_ok());
    next.stop();
    assert!(!socket.exists());

    std::fs::write(&socket, "precious").unwrap();
    let refused = weir(&other, &serve).output().unwrap();
    assert_eq!(refused.status.code(), Some(7));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("it exists and is no socket"));
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "precious");
}

/// A gateway that is not there, does not answer or is not one is 7 or 1 with the socket and what to do; a
/// command that cannot be understood is 2.
#[test]
fn without_a_gateway_it_is_told() {
    let folder = folder("without-gateway");
    let ask = |arguments: &[&str]| {
        let output = weir(&folder, arguments).output().unwrap();
        assert!(output.stdout.is_empty());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for command in [&["status"][..], &["path", "list"], &["path", "failback", "array"]] {
        let (code, told) = ask(&[command, &["--socket", "none.sock"]].concat());
        assert_eq!(code, Some(7), "{told}");
        assert!(told.contains("there is no socket none.sock"), "{told}");
        assert!(told.contains("`[control]`"), "{told}");
    }
    let (code, told) = ask(&["status"]);
    assert_eq!(code, Some(7), "{told}");
    assert!(
        told.contains("/state/weir/control.sock") && told.contains("/run/weir/control.sock"),
        "{told}"
    );
    let variable = weir(&folder, &["status"]).env("WEIR_SOCKET", "that.sock").output().unwrap();
    assert!(String::from_utf8(variable.stderr).unwrap().contains("no socket that.sock"));
    for wrong in [
        &["path"][..],
        &["path", "disable", "array"],
        &["path", "enable", "array", "-1"],
        &["path", "list", "--socket"],
    ] {
        assert_eq!(ask(wrong).0, Some(2), "{wrong:?}");
    }

    let listener = UnixListener::bind(folder.join("other.sock")).unwrap();
    let answers = [
        &b""[..],
        b"hello\n",
        b"{\"version\":2,\"status\":{}}\n",
        b"{\"version\":1,\"other\":1}\n",
    ];
    let server = std::thread::spawn(move || {
        for answer in answers {
            let mut client = listener.accept().unwrap().0;
            let mut request = [0; STATUS.len()];
            client.read_exact(&mut request).unwrap();
            assert_eq!(request, STATUS);
            client.write_all(answer).unwrap();
        }
    });
    for (code, part) in [
        (7, "other.sock closed the connection without an answer"),
        (1, "other.sock gave an answer that this program does not understand"),
        (1, "version 2 instead of 1"),
        (1, "other.sock gave an answer that this program does not understand"),
    ] {
        let (was, told) = ask(&["status", "--socket", "other.sock"]);
        assert_eq!(was, Some(code), "{told}");
        assert!(told.contains(part), "{told}");
    }
    server.join().unwrap();
}

/// While a gateway finishes what is in flight it tells so, and takes no orders.
#[test]
fn a_stopping_gateway_is_asked() {
    let folder = folder("control-stopping");
    let policy = "[policy]\ncontrol = { name = \"ta1\", tau = 1 }\n";
    let tenant = "[[tenant]]\nname = \"one\"\ninitiators = [\"iqn.2026-11.org.example.host:one\"]\n\
                  objectives = [{ size = 512, iops = 1, p99 = \"1s\" }]\n";
    let config = controlled(&[policy, tenant].concat());
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let mut one = gateway.session("one");
    one.issue(read16(0, 65_536), Transfer::In(65_536));
    one.execute(READY, Transfer::None).good();
    gateway.signal("TERM");
    gateway.logged(&["stopping: no new requests"]);
    let status = gateway.asked(&["status"])["status"].take();
    assert_eq!(
        (&status["gateway"]["stopping"], &status["requests"]["outstanding"]),
        (&json!(true), &json!(1))
    );
    let told = gateway.refused(&["path", "failback", "disk"]);
    assert!(told.contains("the gateway is stopping"), "{told}");
    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(1));
    assert!(!gateway.control().exists());
}

/// A gateway without the table has no socket; to get one it must be started again.
#[test]
fn no_table_no_socket() {
    let folder = folder("control-none");
    let mut gateway = Gateway::start(&folder, ONE_DISK, &[]);
    gateway.refuse_reload(&controlled(""), &["[control] differs"]);
    assert!(!gateway.control().exists());
    gateway.stop();
}

/// `weir reload` puts a configuration into force and returns 0; each kind of rejected one has its exit code and its
/// reason on standard error, and changes nothing. A dry run gives the same answers and changes neither the size that a
/// host sees nor the volume's file.
#[test]
fn a_reload_returns_its_result() {
    let mut gateway = start("control-reload");
    let mut one = gateway.session("one");
    let write = |text: &str| std::fs::write(gateway.folder.join("weir.toml"), text).unwrap();
    let length = || std::fs::metadata(gateway.folder.join("disk.img")).unwrap().len();
    let (grown, shrunk) =
        (controlled("").replace("64MiB", "80MiB"), controlled("").replace("64MiB", "32MiB"));
    let rejected = [
        (grown.replace("size =", "sise ="), 3, "no key `sise`"),
        (format!("[cache]\nsize = \"1MiB\"\n{grown}"), 8, "[cache] differs"),
        (shrunk, 1, "would shrink from 64 MiB to 32 MiB"),
    ];
    for (text, code, reason) in &rejected {
        write(text);
        for arguments in [&["reload"][..], &["reload", "--dry-run"]] {
            let output = gateway.command(arguments);
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), output.stdout.len()), (Some(*code), 0), "{told}");
            assert!(told.contains(reason), "{told}");
        }
    }
    // Only the file system knows that it cannot: a dry run does not try.
    write(&grown.replace("80MiB", "1EiB"));
    let output = gateway.command(&["reload"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), told.contains("cannot extend")), (Some(7), true), "{told}");
    write(&grown);
    assert_eq!(gateway.asked(&["reload", "--dry-run"])["reloaded"]["dry_run"], true);
    one.ping();
    assert_eq!((one.capacity(), length()), (64 << 20, 64 << 20));
    assert_eq!(gateway.asked(&["reload"])["reloaded"]["dry_run"], false);
    assert_eq!(one.sense_of(READY, Transfer::None), (0x6, 0x2a, 0x09));
    assert_eq!((one.capacity(), length()), (80 << 20, 80 << 20));
    gateway.stop();
}
