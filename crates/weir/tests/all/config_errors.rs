//! What an operator sees when a file is wrong: everything at once, with its place and a way out.

use crate::gateway::configure;
use crate::support::{code, err, folder, out, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Five diagnostics of five kinds in one file are five messages, in the order of the file, exactly so.
#[test]
fn five_diagnostics_are_reported_at_once() {
    let folder = folder("five_diagnostics");
    let text = r#"[iscsi]
listen = ["127.0.0.1"]
buffer = "256mib"

[[volume]]
name = "disk0"
file = "disk0.img"
blok_size = 512

[[volume]]
name = "disk1"
file = "./disk0.img"

[[target]]
name = "iqn.2026-11.org.example:disks"
luns = { 0 = "disk0", 1 = "disc1" }
"#;
    let expected = r#"error[bad-value]: `127.0.0.1` is not an address and a port
 --> weir.toml:2:11
  |
2 | listen = ["127.0.0.1"]
  |           ^^^^^^^^^^^ an item of `listen`
  |
  = help: add the port: `127.0.0.1:3260`

error[bad-unit]: `mib` is not a unit of a size
 --> weir.toml:3:10
  |
3 | buffer = "256mib"
  |          ^^^^^^^^ the value of `buffer`
  |
  = help: did you mean `256MiB`?

error[unknown-key]: `[[volume]]` has no key `blok_size`
 --> weir.toml:8:1
  |
8 | blok_size = 512
  | ^^^^^^^^^ not known here
  |
  = help: did you mean `block_size`?

error[duplicate]: two volumes keep their bytes in `disk0.img`
  --> weir.toml:12:8
   |
 7 | file = "disk0.img"
   |        ----------- the first
...
12 | file = "./disk0.img"
   |        ^^^^^^^^^^^^^ the second
   |
   = help: give each volume its own file; they would overwrite each other

error[dangling]: no volume is called `disc1`
  --> weir.toml:16:27
   |
16 | luns = { 0 = "disk0", 1 = "disc1" }
   |                           ^^^^^^^ names a volume
   |
   = help: did you mean `disk1`?

5 errors in weir.toml
"#;
    std::fs::write(folder.join("weir.toml"), text).unwrap();
    for command in [&["config", "check", "weir.toml"][..], &["serve", "weir.toml"]] {
        let output = run(&folder, command);
        assert_eq!(err(&output), expected);
        assert_eq!((out(&output), code(&output)), ("", 3));
    }
}

/// Programs get the same: each diagnostic with its code, line and column.
#[test]
fn diagnostics_are_objects_too() {
    let folder = folder("diagnostic_objects");
    std::fs::write(folder.join("weir.toml"), "[iscsi]\nmax_commands = 0\n[stop]\ntimeout = 3\n")
        .unwrap();
    let output = run(&folder, &["config", "check", "weir.toml", "--json"]);
    assert_eq!((err(&output), code(&output)), ("", 3));
    let report: serde_json::Value = serde_json::from_str(out(&output)).unwrap();
    assert_eq!(report["version"], 1);
    assert_eq!(report["valid"], false);
    let diagnostics = report["diagnostics"].as_array().unwrap();
    let place = |diagnostic: &serde_json::Value| {
        (diagnostic["at"]["line"].clone(), diagnostic["code"].clone())
    };
    assert!(
        diagnostics.iter().any(|diagnostic| place(diagnostic) == (2.into(), "out-of-range".into()))
    );
    assert!(
        diagnostics.iter().any(|diagnostic| place(diagnostic) == (4.into(), "bad-unit".into()))
    );
}

/// The diagnostics of a plan are reported as those of a configuration are.
#[test]
fn a_plan_with_diagnostics() {
    let text = r#"[[backend]]
name = "array"
model = "fixed"
disks = 4

[[volume]]
name = "a"
size = "1GiB"
backend = "aray"

[[workload]]
name = "w"
arrivals = "closed"
rate = "10/s"
"#;
    let expected = r#"error[conflict]: `disks` means nothing when `model` is `fixed`
 --> plan.toml:4:9
  |
3 | model = "fixed"
  |         ------- this `model`
4 | disks = 4
  |         ^ this value
  |
  = help: remove it, or change `model`

error[dangling]: no backend is called `aray`
 --> plan.toml:9:11
  |
9 | backend = "aray"
  |           ^^^^^^ names a backend
  |
  = help: did you mean `array`?

error[missing-key]: `closed` arrivals need a `depth`
  --> plan.toml:13:12
   |
13 | arrivals = "closed"
   |            ^^^^^^^^ these arrivals
   |
   = help: add `depth = …`

error[conflict]: `rate` means nothing when `arrivals` is `closed`
  --> plan.toml:14:8
   |
13 | arrivals = "closed"
   |            -------- this `arrivals`
14 | rate = "10/s"
   |        ^^^^^^ this value
   |
   = help: remove it, or change `arrivals`

4 errors in plan.toml
"#;
    let folder = folder("plan_diagnostics");
    std::fs::write(folder.join("plan.toml"), text).unwrap();
    let output = run(&folder, &["sim", "plan.toml"]);
    assert_eq!(err(&output), expected);
    assert_eq!(code(&output), 3);
}

/// What is wrong with who may log in, with what is promised and with NBD is reported as the rest is; no
/// secret is shown, right or wrong.
#[test]
fn diagnostics_of_access() {
    let text = r#"[discovery]
mutual = "gate"

[[account]]
name = "alice"
secret = "too short"

[[account]]
name = "gate"
secret = "long enough for one"

[[volume]]
name = "disk0"
file = "disk0.img"
read_only = true
sanitize = true
state = "disk1.img"

[[volume]]
name = "disk1"
file = "disk1.img"

[[target]]
name = "iqn.2026-11.org.example:disks"
initiators = ["iqn.2026-11.org.example:Host-*", "host1"]
accounts = ["alice", "gat"]
mutual = "alice"
redirect = "elsewhere"

[nbd]
unix = ["a.sock"]
exports = { "" = "disc1" }
tls = "required"
certificate = "server.crt"
"#;
    let expected = r#"error[conflict]: `mutual` without `accounts`: initiators are not asked for anything, so they cannot ask back
 --> weir.toml:2:10
  |
2 | mutual = "gate"
  |          ^^^^^^ this account
  |
  = help: add `accounts = ["…"]`, or remove `mutual`

error[out-of-range]: the secret has 9 bytes
 --> weir.toml:6:10
  |
6 | secret = ***********
  |          ^^^^^^^^^^^ the secret is here
  |
  = help: use 12 to 255 bytes (RFC 7143, 9.2.1), such as `openssl rand -base64 24` prints

error[conflict]: `sanitize` is for a volume that hosts may write
  --> weir.toml:16:12
   |
15 | read_only = true
   |             ---- this refuses them
16 | sanitize = true
   |            ^^^^ this promises writes
   |
   = help: remove `sanitize` or `read_only`

error[duplicate]: `disk1.img` would hold a volume and a state
  --> weir.toml:17:9
   |
17 | state = "disk1.img"
   |         ^^^^^^^^^^^ this state
...
21 | file = "disk1.img"
   |        ----------- this volume
   |
   = help: give the volume its own `state`

error[bad-value]: an iSCSI name is written in lower case
  --> weir.toml:25:15
   |
25 | initiators = ["iqn.2026-11.org.example:Host-*", "host1"]
   |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ no initiator is called so
   |
   = help: write `iqn.2026-11.org.example:host-*`

error[bad-value]: an iSCSI name begins with `iqn.`, `eui.` or `naa.`
  --> weir.toml:25:49
   |
25 | initiators = ["iqn.2026-11.org.example:Host-*", "host1"]
   |                                                 ^^^^^^^ no initiator is called so
   |
   = help: write a whole name, or its beginning and `*`, such as `iqn.2026-11.org.example:*`

error[dangling]: no account is called `gat`
  --> weir.toml:26:22
   |
26 | accounts = ["alice", "gat"]
   |                      ^^^^^ names an account
   |
   = help: did you mean `gate`?

error[conflict]: account `alice` proves both sides of one login
  --> weir.toml:27:10
   |
26 | accounts = ["alice", "gat"]
   |             ------- proves the initiator
27 | mutual = "alice"
   |          ^^^^^^^ proves the gateway
   |
   = help: use an account with another secret for `mutual` (RFC 7143, 9.2.1)

error[bad-value]: `elsewhere` is not a host and a port
  --> weir.toml:28:12
   |
28 | redirect = "elsewhere"
   |            ^^^^^^^^^^^ the value of `redirect`
   |
   = help: write `host:port`, such as `192.0.2.10:3260`

error[dangling]: no volume is called `disc1`
  --> weir.toml:32:18
   |
32 | exports = { "" = "disc1" }
   |                  ^^^^^^^ names a volume
   |
   = help: did you mean `disk1`?

error[missing-key]: `tls` needs a `key`
  --> weir.toml:33:7
   |
33 | tls = "required"
   |       ^^^^^^^^^^ this `tls`
   |
   = help: add `key = "…"`: a PEM file

error[conflict]: `tls` is for connections over TCP, and there are none
  --> weir.toml:33:7
   |
33 | tls = "required"
   |       ^^^^^^^^^^ this `tls`
   |
   = help: add `listen = ["127.0.0.1:10809"]`, or remove `tls`

12 errors in weir.toml
"#;
    let folder = folder("access_diagnostics");
    let file = folder.join("weir.toml");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let output = run(&folder, &["serve", "weir.toml"]);
    assert_eq!(err(&output), expected);
    assert_eq!(code(&output), 3);
    let output = run(&folder, &["config", "check", "weir.toml", "--json"]);
    assert!(!out(&output).contains("too short") && !out(&output).contains("long enough"));
}

/// All that is wrong with contracts and groups is reported at once, each at its line.
#[test]
fn diagnostics_of_contracts() {
    let text = r#"[[group]]
name = "gold"
iops = 4000

[[tenant]]
name = "db1"
initiators = ["iqn.2026-11.org.example:db*"]
group = "gold"
objectives = [{ size = "4KiB", iops = 3500, p50 = "8ms", p99 = "41ms" }]

[[tenant]]
name = "db2"
initiators = ["iqn.2026-11.org.example:db*"]
group = "gold"
objectives = [{ size = "4KiB", iops = 1500, p99 = "41ms" }]

[[tenant]]
name = "db1"
group = "silver"
objectives = [
    { size = "64KiB", iops = 100, p50 = "9ms", p99 = "8ms" },
    { size = "4KiB", iops = 100, p99 = "8ms", p9 = "1ms" },
]

[[volume]]
name = "disk0"
file = "disk0.img"

[[target]]
name = "iqn.2026-11.org.example:disks"
luns = { 0 = "disk0" }
"#;
    let expected = r#"error[conflict]: group `gold` has 4000 requests of 4KiB a second, and its members are promised 5000
 --> weir.toml:3:8
  |
3 | iops = 4000
  |        ^^^^ what it has
...
9 | objectives = [{ size = "4KiB", iops = 3500, p50 = "8ms", p99 = "41ms" }]
  |              ----------------------------------------------------------- the first of its members
  |
  = help: write `iops = 5000` or more, or promise its members less

error[duplicate]: two tenants claim `iqn.2026-11.org.example:db*`
  --> weir.toml:13:15
   |
 7 | initiators = ["iqn.2026-11.org.example:db*"]
   |               ----------------------------- the first
...
13 | initiators = ["iqn.2026-11.org.example:db*"]
   |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the second
   |
   = help: a host is one tenant: remove one of them

error[duplicate]: two tenants are called `db1`
  --> weir.toml:18:8
   |
 6 | name = "db1"
   |        ----- the first
...
18 | name = "db1"
   |        ^^^^^ the second
   |
   = help: put all of it into one table, or rename one

error[dangling]: no group is called `silver`
  --> weir.toml:19:9
   |
19 | group = "silver"
   |         ^^^^^^^^ names a group
   |
   = help: there is `gold`

error[conflict]: `p99` is shorter than `p50`, which is for fewer requests
  --> weir.toml:21:54
   |
21 |     { size = "64KiB", iops = 100, p50 = "9ms", p99 = "8ms" },
   |                                         -----        ^^^^^ this time
   |                                         |
   |                                         this time
   |
   = help: let times grow with the share of the requests

error[unknown-key]: a row has no key `p9`
  --> weir.toml:22:47
   |
22 |     { size = "4KiB", iops = 100, p99 = "8ms", p9 = "1ms" },
   |                                               ^^ not known here
   |
   = help: did you mean `p90`?

6 errors in weir.toml
"#;
    let folder = folder("contract_diagnostics");
    configure(&folder, text);
    let output = run(&folder, &["config", "check", "weir.toml"]);
    assert_eq!(err(&output), expected);
    assert_eq!(code(&output), 3);
}

fn complaint(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert_eq!(code(&output), 3, "{arguments:?}");
    assert_eq!(out(&output), "", "{arguments:?}");
    err(&output).to_owned()
}

/// A file that is no text, no file, empty or not there is named, with what to do.
#[test]
fn files_that_cannot_be_read() {
    let folder = folder("unreadable");
    std::fs::write(folder.join("latin1.toml"), b"name = \"caf\xe9\"\n").unwrap();
    std::fs::write(folder.join("empty.toml"), "").unwrap();
    let huge = std::fs::File::create(folder.join("huge.toml")).unwrap();
    huge.set_len(1 << 30).unwrap();
    for command in [&["config", "check"][..], &["config", "show"], &["serve"], &["sim"]] {
        let complain = |file| complaint(&folder, &[command, &[file]].concat());
        let text = complain("latin1.toml");
        assert!(text.contains("not UTF-8") && text.contains("latin1.toml:1:12"), "{text}");
        let text = complain(".");
        assert!(text.contains("it is a directory"), "{text}");
        let text = complain("missing.toml");
        assert!(text.contains("`missing.toml`: no such file or directory"), "{text}");
        assert!(text.contains("help: "), "{text}");
        let text = complain("huge.toml");
        assert!(text.contains("larger than 1 MiB"), "{text}");
        let text = complain("empty.toml");
        assert!(text.contains("there is no `[[volume]]`"), "{text}");
        assert!(text.contains("empty.toml:1:1"), "{text}");
    }
}

/// A bad line of a trace is named by file, line and column, by every command that reads the trace.
#[test]
fn a_trace_with_a_bad_line() {
    let folder = folder("bad_trace");
    let text = "time_ns,op,dev,offset,size\n0,R,0,0,4096\n5,X,0,0,4096\n";
    std::fs::write(folder.join("t.csv"), text).unwrap();
    let plan = "[[backend]]\nname = \"b\"\n[[volume]]\nname = \"v\"\nsize = \"1GiB\"\n\
                [[trace]]\nfile = \"t.csv\"\n";
    std::fs::write(folder.join("plan.toml"), plan).unwrap();
    for command in [&["trace", "info", "t.csv"][..], &["replay", "t.csv"], &["sim", "plan.toml"]] {
        let text = complaint(&folder, command);
        assert!(text.starts_with("error: t.csv:3:3: "), "{text}");
    }
    let text = complaint(&folder, &["replay", "missing.csv"]);
    assert!(text.contains("missing.csv") && text.contains("help: "), "{text}");
}

/// Colour is used when asked for and never without a terminal.
#[test]
fn colour_is_a_choice() {
    let folder = folder("colour");
    let plain = run(&folder, &["config", "check", "missing.toml"]);
    assert!(!err(&plain).contains('\x1b'));
    let styled = run(&folder, &["config", "check", "missing.toml", "--color", "always"]);
    assert!(err(&styled).contains('\x1b'));
}

/// A file of another command is recognised, and the message names the command that reads it.
#[test]
fn files_of_other_commands_are_named() {
    let folder = folder("other_commands");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
    write(
        "gateway.toml",
        b"[iscsi]\nmax_commands = 4\n[[target]]\nname = \"iqn.2026-11.org.example:a\"\n",
    );
    write("plan.toml", b"seed = 1\n[[workload]]\nname = \"w\"\n[[expect]]\np99 = \"1ms\"\n");
    let expected = r"error[wrong-file]: this is a gateway configuration, not a plan
 --> gateway.toml:1:2
  |
1 | [iscsi]
  |  ^^^^^ only a gateway configuration has this
  |
  = help: use `weir serve gateway.toml`, or name a plan

1 error in gateway.toml
";
    for command in [&["sim", "gateway.toml"][..], &["config", "check", "--plan", "gateway.toml"]] {
        let output = run(&folder, command);
        assert_eq!((err(&output), code(&output)), (expected, 3));
    }
    let output = run(&folder, &["serve", "plan.toml"]);
    assert!(err(&output).contains("this is a plan, not a gateway configuration"));
    assert!(err(&output).contains("use `weir sim plan.toml`"), "{}", err(&output));
    assert!(err(&output).contains("1 error in"), "{}", err(&output));

    write("trace.csv.zst", &[0x28, 0xB5, 0x2F, 0xFD, 0, 0]);
    write("trace.csv", b"time_ns,op,dev,offset,size\n");
    write("recording", weir_flow::recording::MAGIC);
    for (name, what, commands) in [
        ("trace.csv.zst", "compressed with zstd", &["trace info", "replay"][..]),
        ("trace.csv", "a trace", &["trace info", "replay"]),
        ("recording", "a recording of `weir serve`", &["replay"]),
    ] {
        for command in [&["serve"][..], &["sim"], &["config", "check"]] {
            let output = run(&folder, &[command, &[name]].concat());
            let text = err(&output);
            assert_eq!(code(&output), 3);
            assert!(text.contains(&format!("`{name}` is {what}")), "{text}");
            for command in commands {
                assert!(text.contains(&format!("`weir {command} {name}`")), "{text}");
            }
        }
    }
}

/// A size with half a unit leads to the unit that was meant.
#[test]
fn half_a_unit_is_completed() {
    let folder = folder("half_a_unit");
    let text = "[cache]\nsize = \"4k\"\n[[volume]]\nname = \"a\"\nfile = \"a\"\n[[target]]\n\
                name = \"iqn.2026-11.org.example:a\"\nluns = { 0 = \"a\" }\n";
    std::fs::write(folder.join("weir.toml"), text).unwrap();
    let output = run(&folder, &["config", "check", "weir.toml"]);
    assert!(err(&output).contains("did you mean `4KiB` or `4KB`?"), "{}", err(&output));
}
