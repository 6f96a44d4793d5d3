//! The program as a person or a script uses it.

use crate::support::{code, err, folder, out, run, weir};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use weir_flow::control::Promises;
use weir_flow::digest::Digest;
use weir_flow::path::Settings;
use weir_flow::pipeline::{Config, Limits, Policies};
use weir_flow::recording::{Encoder, Entry};

fn plan(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans").join(name).display().to_string()
}

fn json(text: &str) -> Value {
    let value: Value = serde_json::from_str(text).unwrap();
    assert_eq!(value["version"], 1, "{text}");
    value
}

/// Help goes to standard output and succeeds; a mistake goes to standard error and is 2.
#[test]
fn help_and_usage() {
    let folder = folder("help");
    for command in [
        "serve",
        "status",
        "path",
        "sim",
        "replay",
        "explain",
        "reproduce",
        "crash",
        "config",
        "trace",
        "volume",
        "reload",
        "metrics",
        "stop",
        "log",
        "completions",
        "man",
    ] {
        let output = run(&folder, &[command, "--help"]);
        assert_eq!((code(&output), err(&output)), (0, ""));
        assert!(out(&output).contains("Usage: weir "), "{command}");
        assert!(out(&output).lines().all(|line| line.chars().count() <= 130), "{command}");
    }
    // `--color` is on every command: it takes two lines of the long help, and none of the short.
    assert!(!out(&run(&folder, &["sim", "-h"])).contains("--color"));
    let long = run(&folder, &["sim", "--help"]);
    let color: Vec<_> = out(&long).lines().skip_while(|line| !line.contains("--color")).collect();
    assert!(color[1].contains("`NO_COLOR`") && color[2].is_empty(), "{color:?}");
    let help = run(&folder, &["--help"]);
    for exit in 0..9 {
        assert!(out(&help).contains(&format!("\n  {exit}  ")), "exit code {exit} is documented");
    }
    for wrong in
        [&["fly"][..], &["sim"], &["serve", "--listen", "here"], &["replay", "x", "--speed", "0"]]
    {
        let output = run(&folder, wrong);
        assert_eq!((code(&output), out(&output)), (2, ""), "{wrong:?}");
        assert!(!err(&output).is_empty());
    }
}

/// Completion scripts and manual pages have every command, and a folder that is missing is an error.
#[test]
fn completions_and_pages_are_generated() {
    let folder = folder("generated");
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&folder, &["completions", shell]);
        assert_eq!((code(&output), err(&output)), (0, ""));
        assert!(
            out(&output).contains("reproduce") && out(&output).contains("take-over"),
            "{shell}"
        );
    }
    let page = run(&folder, &["man"]);
    assert_eq!((code(&page), err(&page)), (0, ""));
    assert!(out(&page).contains(".TH weir 1"), "{}", out(&page));
    std::fs::create_dir(folder.join("man")).unwrap();
    let written = run(&folder, &["man", "--out", "man"]);
    assert_eq!((code(&written), out(&written), err(&written)), (0, "", ""));
    for page in ["weir", "weir-serve", "weir-volume-drain", "weir-log-salvage"] {
        let text = std::fs::read_to_string(folder.join(format!("man/{page}.1"))).unwrap();
        assert!(text.contains("SYNOPSIS"), "{page}");
    }
    let missing = run(&folder, &["man", "--out", "missing"]);
    assert_eq!(code(&missing), 1);
    assert!(err(&missing).contains("cannot write to `missing`"), "{}", err(&missing));
}

/// Each plan of the repository runs, twice to the same digest, and fulfils its expectations.
#[test]
fn plans_repeat() {
    let folder = folder("plans");
    let mut digests = Vec::new();
    for name in ["first.toml", "noisy-neighbour.toml", "failover.toml", "gray-failure.toml"] {
        let path = plan(name);
        let once = run(&folder, &["sim", &path, "--json"]);
        assert_eq!((code(&once), err(&once)), (0, ""), "{name}");
        let twice = run(&folder, &["sim", &path, "--json"]);
        assert_eq!(out(&once), out(&twice), "{name}");
        let report = json(out(&once));
        let digest = report["results"]["digest"].as_str().unwrap().to_owned();
        let text = run(&folder, &["sim", &path]);
        assert!(out(&text).contains(&format!("digest {digest}, seed 1")), "{name}");
        let other = run(&folder, &["sim", &path, "--json", "--seed", "2"]);
        assert_ne!(json(out(&other))["results"]["digest"], digest.as_str(), "{name}");
        digests.push(digest);
    }
    digests.dedup();
    assert_eq!(digests.len(), 4);
}

/// The text of a run has a line for each target of a contract, and one for each tenant with the rules that
/// held it, with the figures of the results.
#[test]
fn promises_and_causes_are_told() {
    let folder = folder("promises");
    let path = plan("noisy-neighbour.toml");
    let report = json(out(&run(&folder, &["sim", &path, "--json"])));
    let text = run(&folder, &["sim", &path]);
    let mut lines = out(&text).lines();
    let targets = report["results"]["tenants"][0]["attainment"].as_array().unwrap();
    assert_eq!(targets.len(), 4);
    for target in targets {
        let number = |key: &str| target[key].as_u64().unwrap();
        let size = number("size") / 1024;
        let promised = format!("{} {size} KiB", target["direction"].as_str().unwrap());
        let met = (number("count") - number("missed")) * 100_000 / number("count");
        let line = lines.by_ref().find(|line| line.contains(&promised)).unwrap();
        let figures = [
            format!("p99 {}.000 ms", number("target_ns") / 1_000_000),
            number("count").to_string(),
            format!("{}.{:03}", met / 1_000, met % 1_000),
            format!("{:.3}", target["measured_ns"].as_f64().unwrap() / 1e6),
            format!("{:.2}  met", target["burn"].as_f64().unwrap()),
        ];
        assert!(figures.iter().all(|figure| line.contains(figure)), "{line}: {figures:?}");
    }
    let held = "backup  control/window 86.8 %, storage/device 13.2 %";
    assert!(out(&text).contains(held), "{}", out(&text));
}

/// A plan whose expectation is not met says so, and the exit code is 4.
#[test]
fn an_unmet_expectation_is_told() {
    let folder = folder("expectation");
    let text = std::fs::read_to_string(plan("first.toml")).unwrap();
    let text = text.replace("\"60s\"", "\"6s\"").replace("\"20ms\"", "\"1ms\"");
    std::fs::write(folder.join("plan.toml"), text).unwrap();
    let output = run(&folder, &["sim", "plan.toml"]);
    assert_eq!(code(&output), 4);
    assert!(out(&output).contains("expected p99 of db at most 1.000 ms: "), "{}", out(&output));
    assert!(out(&output).contains("NOT MET"));
    let output = run(&folder, &["sim", "plan.toml", "--json"]);
    assert_eq!(code(&output), 4);
    let report = json(out(&output));
    assert_eq!(report["expectations"][0]["met"], false);
    assert_eq!(report["expectations"][1]["met"], true);
}

/// The effective values say where each comes from, in text and for programs.
#[test]
fn effective_values_have_origins() {
    let folder = folder("show");
    let file = "[iscsi]\nmax_commands = 7\n[[volume]]\nname = \"d\"\nfile = \"d\"\n\
                [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns = { 0 = \"d\" }\n";
    std::fs::write(folder.join("weir.toml"), file).unwrap();
    let output = run(&folder, &["config", "show", "weir.toml"]);
    assert_eq!((code(&output), err(&output)), (0, ""));
    let line = |key: &str| out(&output).lines().find(|line| line.starts_with(key)).unwrap();
    assert!(line("max_commands = 7 ").ends_with("# weir.toml:2:16"));
    assert!(line("buffer = \"256MiB\" ").ends_with("# default"));
    // The environment names the file as well; the command line comes first.
    let shown = weir(&folder).args(["config", "show"]).env("WEIR_CONFIG", "weir.toml").output();
    assert_eq!(out(&shown.unwrap()), out(&output));
    let shown = run(&folder, &["config", "show", "weir.toml", "--json"]);
    let values = json(out(&shown))["values"].clone();
    let commands = values.as_array().unwrap().iter().find(|value| value["key"] == "max_commands");
    assert_eq!(commands.unwrap()["line"], 2);
    let file_only = ["config", "check", "weir.toml", "--file-only"];
    assert_eq!(code(&run(&folder, &file_only)), 0);
    for extra in [&[][..], &["--plan"]] {
        let arguments = [&["config", "show", "--defaults"], extra].concat();
        assert!(out(&run(&folder, &arguments)).contains("round-robin"));
        json(out(&run(&folder, &[&arguments[..], &["--json"]].concat())));
    }
}

/// Every example is valid where it lies, and nothing about it is odd.
#[test]
fn the_examples_are_valid() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let mut checked = 0;
    for entry in std::fs::read_dir(&examples).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let output = run(&examples, &["config", "check", &name, "--file-only"]);
        let expected = format!("{name}: a valid gateway configuration\n");
        assert_eq!((code(&output), err(&output), out(&output)), (0, "", &*expected));
        checked += 1;
    }
    assert!(checked >= 2, "{checked} examples in {}", examples.display());
}

/// All that this machine lacks for a valid file is reported at once, and nothing is made.
#[test]
fn a_check_looks_at_the_machine() {
    let folder = folder("obstacles");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let text = |listen: &str, path: &str| {
        format!(
            "[iscsi]\nlisten = [\"{listen}\"]\n[control]\nsocket = \"{path}no/control\"\n\
             [http]\nlisten = \"unix:{path}http\"\n[[volume]]\nname = \"v\"\nfile = \"{path}disk.img\"\nsize = \"1MiB\"\n\
             [[target]]\nname = \"iqn.2026-11.org.example:disk\"\nluns = {{ 0 = \"v\" }}\n"
        )
    };
    std::fs::write(folder.join("weir.toml"), text(&listen.to_string(), "missing/")).unwrap();
    let output = run(&folder, &["config", "check", "weir.toml"]);
    assert_eq!((code(&output), out(&output)), (7, "weir.toml: a valid gateway configuration\n"));
    for obstacle in [
        &format!("cannot listen on {listen}")[..],
        "missing/no/control",
        "missing/http",
        "missing/disk.img",
    ] {
        assert!(err(&output).contains(obstacle), "{obstacle}: {}", err(&output));
    }
    let told = run(&folder, &["config", "check", "weir.toml", "--json"]);
    assert_eq!(code(&told), 7);
    let told = json(out(&told));
    assert_eq!(told["valid"], true);
    // The state file of the volume is in the missing folder, too.
    assert_eq!(told["obstacles"].as_array().unwrap().len(), 5, "{told}");
    assert_eq!(code(&run(&folder, &["config", "check", "weir.toml", "--file-only"])), 0);

    std::fs::write(folder.join("weir.toml"), text("127.0.0.1:0", "")).unwrap();
    let output = run(&folder, &["config", "check", "weir.toml"]);
    assert_eq!((code(&output), err(&output)), (0, ""));
    assert!(!folder.join("disk.img").exists() && !folder.join("no").exists(), "nothing is made");
}

/// A secret is in no output, wherever it is written.
#[test]
fn secrets_are_not_shown() {
    let folder = folder("secrets");
    let text = "[discovery]\naccounts = [\"alice\", \"bob\"]\n\
                [[account]]\nname = \"alice\"\nsecret = \"the secret of alice\"\n\
                [[account]]\nname = \"bob\"\nsecret_file = \"bob.secret\"\n\
                [[volume]]\nname = \"d\"\nfile = \"d\"\n\
                [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns = { 0 = \"d\" }\n";
    for (name, text) in [("gateway.toml", text), ("bob.secret", "the secret of bob\n")] {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    for command in [&["check", "--file-only"][..], &["show"]] {
        for extra in [&[][..], &["--json"]] {
            let output = run(&folder, &[&["config"], command, &["gateway.toml"], extra].concat());
            assert_eq!((code(&output), err(&output)), (0, ""));
            assert!(!out(&output).contains("the secret of"), "{}", out(&output));
        }
    }
    let output = run(&folder, &["config", "show", "gateway.toml"]);
    assert!(out(&output).contains("secret = \"…\" "), "{}", out(&output));
    let shown = json(out(&run(&folder, &["config", "show", "gateway.toml", "--json"])));
    let values = shown["values"].as_array().unwrap();
    let secret = values.iter().find(|value| value["key"] == "secret").unwrap();
    assert_eq!(secret["value"], "…");
}

/// The reference can be had for one table of either kind of file; a name that no table has leads to one.
#[test]
fn the_reference_of_one_table() {
    let folder = folder("reference");
    let shown = |arguments: &[&str]| run(&folder, &[&["config", "show"], arguments].concat());
    let path = shown(&["--defaults", "path"]);
    assert!(out(&path).contains("[path]: ") && out(&path).contains("slow_factor"));
    assert!(!out(&path).contains("[limits]") && !out(&path).contains("Policies"));
    assert_eq!(out(&shown(&["--defaults", "[path]"])), out(&path));
    assert!(out(&shown(&["--defaults", "workload"])).contains("[[workload]]"));
    assert!(out(&shown(&["--defaults", "policy"])).contains("round-robin"));
    let keys = json(out(&shown(&["--json", "--defaults", "limits"])))["keys"].clone();
    assert!(keys.as_array().unwrap().iter().all(|key| key["table"] == "limits"));
    let unknown = shown(&["--defaults", "limit"]);
    assert_eq!(code(&unknown), 2);
    assert!(err(&unknown).contains("did you mean `limits`?"), "{}", err(&unknown));
}

/// A trace is described and replayed on a modelled device, to the same digest each time.
#[test]
fn a_trace_is_replayed() {
    let folder = folder("trace");
    let mut text = String::from("time_ns,op,dev,offset,size\n");
    for i in 0..1_000_u64 {
        let op = if i % 3 == 0 { 'W' } else { 'R' };
        let (device, offset) = (i % 2, i * 7 % 500 * 4_096);
        writeln!(text, "{},{op},{device},{offset},4096", i * 100_000).unwrap();
    }
    std::fs::write(folder.join("t.csv"), text).unwrap();
    let info = json(out(&run(&folder, &["trace", "info", "t.csv", "--json"])));
    assert_eq!(info["requests"], 1_000);
    assert!(out(&run(&folder, &["trace", "info", "t.csv"])).contains("1000 requests"));
    let device =
        ["replay", "t.csv", "--device", "fixed:50us,servers=2", "--dispatch", "fifo,depth=2"];
    let once = run(&folder, &[&device[..], &["--json"]].concat());
    assert_eq!((code(&once), err(&once)), (0, ""));
    let report = json(out(&once));
    assert_eq!(report["results"]["totals"]["completed"], 1_000);
    assert_eq!(report["results"]["tenants"][1]["name"], "dev1");
    assert_eq!(out(&run(&folder, &[&device[..], &["--json"]].concat())), out(&once));
    let array = run(&folder, &["replay", "t.csv", "--speed", "2"]);
    assert!(out(&array).contains("digest "), "{}", err(&array));
    assert!(!out(&array).contains(report["results"]["digest"].as_str().unwrap()));
}

/// An SSD is as large as the trace needs, unless its size was given; requests that were refused are named.
#[test]
fn an_ssd_fits_a_trace() {
    let folder = folder("trace-ssd");
    let mut text = String::from("time_ns,op,dev,offset,size\n");
    let end = 200_u64 << 30;
    writeln!(text, "0,R,0,{end},4096").unwrap();
    // More at once than the pipeline takes.
    for i in 0..10_000 {
        writeln!(text, "0,R,0,{},4096", i * 4096).unwrap();
    }
    std::fs::write(folder.join("t.csv"), text).unwrap();
    let fits = run(&folder, &["replay", "t.csv", "--device", "ssd-nvme"]);
    assert_eq!((code(&fits), err(&fits)), (0, ""));
    assert!(out(&fits).contains("requests were refused at a limit"), "{}", out(&fits));
    assert_eq!(code(&run(&folder, &["replay", "t.csv", "--device", "ssd-nvme:64GiB"])), 3);
}

/// A trace of another format is found, converted, and the same afterwards; what is half written is removed.
#[test]
fn a_trace_is_converted() {
    let folder = folder("trace-convert");
    let mut text = String::from("a licence\n");
    for i in 0..200_u64 {
        writeln!(text, "{i}.5 ; {} ; 8 ; R ; 0 ; 0", i * 7).unwrap();
    }
    std::fs::write(folder.join("t.load"), &text).unwrap();
    let info = |name: &str| json(out(&run(&folder, &["trace", "info", name, "--json"])));
    assert_eq!(info("t.load")["format"], "blkreplay");
    let converted = run(&folder, &["trace", "convert", "t.load", "t.csv"]);
    assert!(out(&converted).contains("200 requests written as weir"), "{}", err(&converted));
    let again = info("t.csv");
    assert_eq!(again["digest"], info("t.load")["digest"]);
    assert_eq!(again["notices"][0], "# a licence");
    assert_eq!(code(&run(&folder, &["trace", "convert", "t.load", "t.csv"])), 3);
    let piped = run(&folder, &["trace", "convert", "t.load", "--to", "mqsim"]);
    assert!(out(&piped).starts_with("0 0 0 8 1\n1000000000 0 7 8 1\n"), "{}", out(&piped));
    let mut gzip = Command::new("gzip")
        .args(["-c", "t.load"])
        .current_dir(&folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let through = weir(&folder)
        .args(["trace", "convert", "-", "-", "--to", "iolog3", "--lossy"])
        .stdin(gzip.stdout.take().unwrap())
        .output()
        .unwrap();
    assert!(gzip.wait().unwrap().success());
    assert!(out(&through).starts_with("fio version 3 iolog\n"), "{}", err(&through));
    let lost = "200 requests written as iolog3\n  lost: 1 line of notices, which may be the trace's licence\n";
    assert_eq!((code(&through), err(&through)), (0, lost));
    assert_eq!(code(&run(&folder, &["replay", "-"])), 2);
    let bad = folder.join("bad.csv");
    std::fs::write(&bad, "time_ns,op,dev,offset,size\n0,R,0,1,1\n").unwrap();
    let refused = run(&folder, &["trace", "convert", "bad.csv", "new", "--to", "mqsim"]);
    assert_eq!(code(&refused), 3);
    assert!(err(&refused).contains("bad.csv:2: the offset or size"), "{}", err(&refused));
    assert!(!folder.join("new").exists());
}

/// What buffers would miss of a trace is a table and an object with every policy and size; what cannot be
/// asked is refused, with what may be.
#[test]
fn a_trace_says_what_buffers_miss() {
    let folder = folder("misses");
    // Ten lines again and again, and between them lines that never come back.
    let mut text = String::from("time_ns,op,dev,offset,size\n");
    for i in 0..2_000_u64 {
        let place = if i % 2 == 0 { i / 2 % 10 } else { 1_000 + i };
        writeln!(text, "{i},R,0,{},4096", place * 4_096).unwrap();
    }
    std::fs::write(folder.join("t.csv"), text).unwrap();
    let command = ["trace", "misses", "t.csv", "--size", "64KiB", "--size", "1GiB"];
    let report = json(out(&run(&folder, &[&command[..], &["--json"]].concat())));
    let results = report["results"].as_array().unwrap();
    let names: Vec<&str> =
        results.iter().map(|result| result["policy"].as_str().unwrap()).collect();
    assert_eq!(names[..7], ["s3-fifo", "fifo", "lru", "clock", "sieve", "arc", "w-tinylfu"]);
    assert_eq!((results.len(), &report["lines"]), (14, &Value::from(1_010)));
    let misses: Vec<u64> =
        results.iter().map(|result| result["misses"].as_u64().unwrap()).collect();
    assert_eq!(misses[1..3], [2_000, 2_000], "in order of coming and of use nothing stays");
    assert!(misses[0] < 1_100 && misses[6] < 1_100, "{misses:?}");
    assert_eq!(misses[7..], [1_010; 7]);
    let one = run(&folder, &["trace", "misses", "t.csv", "--policy", "lru"]);
    assert!(out(&one).contains("     50   50.50\n"), "{}", out(&one));
    for (wrong, says) in [
        (&["--line", "5000"][..], "power of two"),
        (&["--size", "1KiB"], "holds no line"),
        (&["--size", "big"], "is not a size"),
        (&["--policy", "mru"], "w-tinylfu"),
    ] {
        let output = run(&folder, &[&["trace", "misses", "t.csv"], wrong].concat());
        assert_eq!((code(&output), out(&output)), (2, ""), "{wrong:?}");
        assert!(err(&output).contains(says), "{}", err(&output));
    }
    let output = run(&folder, &["trace", "misses", "none.csv"]);
    assert_eq!(code(&output), 3, "{}", err(&output));
}

/// A gateway that was started by a test and is ended with it.
struct Gateway {
    child: Child,
    ready: Value,
}

impl Gateway {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = weir(folder);
        command.args(["serve", "--listen", "127.0.0.1:0", "--json"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self { child, ready: json(&line) }
    }

    /// Ends it as a service manager would, and returns its exit code.
    fn stop(mut self) -> i32 {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Without a configuration there is one disk in the state folder, and the ready line says where
/// hosts find it.
#[test]
fn serve_needs_no_configuration() {
    let folder = folder("serve");
    let gateway = Gateway::start(&folder, &[]);
    assert_eq!(gateway.ready["event"], "ready");
    let portal = gateway.ready["portals"][0].as_str().unwrap().to_owned();
    TcpStream::connect(&portal).unwrap();
    let lun = gateway.ready["targets"][0]["luns"][0].clone();
    assert_eq!(lun["url"], format!("iscsi://{portal}/iqn.2026-11.io.weir:disk0/0"));
    assert_eq!(lun["bytes"], 1 << 30);
    assert_eq!(lun["created"], true);
    assert_eq!(gateway.ready["nbd"], serde_json::json!([]));
    assert_eq!(gateway.ready["exports"], serde_json::json!([]));
    assert!(folder.join("state/weir/disk0.img").is_file());
    // It is found without being told where it is.
    let status = run(&folder, &["status"]);
    assert_eq!((code(&status), err(&status)), (0, ""));
    assert!(out(&status).contains("\n  disk0   1 GiB  disk0\n"), "{}", out(&status));
    assert_eq!(gateway.stop(), 0);
}

fn recorded(folder: &Path) -> PathBuf {
    let gateway = Gateway::start(folder, &["--record", "run.weir"]);
    assert_eq!(gateway.stop(), 0);
    folder.join("run.weir")
}

/// A recording replays to its digest; another digest is 5; damage and a missing end are 6.
#[test]
fn recordings_are_replayed() {
    let folder = folder("recording");
    let path = recorded(&folder);
    let good = std::fs::read(&path).unwrap();
    let verdict = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        code(&run(&folder, &["replay", "run.weir"]))
    };
    assert_eq!(verdict(&good), 0);
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    assert_eq!(verdict(&flipped), 6);
    assert_eq!(verdict(&good[..good.len() - 1]), 6);
    assert_eq!(verdict(&good[..good.len() / 2]), 6);
    assert_eq!(verdict(b"WEIRREC\x0a"), 6);
    // Whole, but of a gateway that did something where this one does nothing.
    let config = Config {
        volumes: Vec::new(),
        backends: Vec::new(),
        promises: Promises::default(),
        shares: weir_flow::dispatch::Shares::default(),
        limits: Limits::default(),
        paths: Settings::default(),
        cache: weir_flow::cache::Settings::default(),
        policies: Policies::default(),
    };
    let mut other = Vec::new();
    let mut encoder = Encoder::begin(&mut other, &config);
    encoder.entry(&mut other, &Entry::End(Digest::resume(1, 1)));
    assert_eq!(verdict(&other), 5);
    std::fs::write(&path, &good).unwrap();
    let report = run(&folder, &["replay", "run.weir", "--json"]);
    assert_eq!(json(out(&report))["verdict"], "same");
    assert_eq!(code(&run(&folder, &["replay", "run.weir", "--seed", "1"])), 2);
    assert_eq!(code(&run(&folder, &["trace", "info", "run.weir"])), 3);
}

/// A port that is taken is 7, and the message says what to do.
#[test]
fn a_busy_port_is_told() {
    let folder = folder("busy");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&folder, &["serve", "--listen", &address]);
    assert_eq!((code(&output), out(&output)), (7, ""));
    assert!(err(&output).contains(&format!("cannot listen on {address}")), "{}", err(&output));
    assert!(err(&output).contains("--listen 127.0.0.1:0"), "{}", err(&output));
}

/// A file that cannot be served is 7 as well.
#[test]
fn an_unavailable_device_is_told() {
    let folder = folder("device");
    let text = "[[volume]]\nname = \"d\"\nfile = \"nowhere/d.img\"\nsize = \"1MiB\"\n\
                [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns = { 0 = \"d\" }\n";
    std::fs::write(folder.join("weir.toml"), text).unwrap();
    let output = run(&folder, &["serve", "weir.toml", "--listen", "127.0.0.1:0"]);
    assert_eq!(code(&output), 7);
    assert!(err(&output).contains("nowhere/d.img"), "{}", err(&output));
}

/// Links are by the addresses of the file: others on the command line would leave them without connections.
#[test]
fn a_link_without_its_address_is_told() {
    let folder = folder("link");
    let text = "[[link]]\nname = \"front\"\nlisten = [\"127.0.0.1:3260\"]\nbandwidth = \"1GB/s\"\n\
                [[volume]]\nname = \"d\"\nfile = \"d.img\"\nsize = \"1MiB\"\n\
                [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns = { 0 = \"d\" }\n";
    std::fs::write(folder.join("weir.toml"), text).unwrap();
    let output = run(&folder, &["serve", "weir.toml", "--listen", "127.0.0.1:0"]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("link `front` is for other addresses"), "{}", err(&output));
}

/// A reader that has seen enough is no failure.
#[test]
fn a_closed_pipe_is_success() {
    let folder = folder("pipe");
    for arguments in [&["config", "show", "--defaults", "--plan"][..], &["--help"]] {
        let mut command = weir(&folder);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let mut complaint = String::new();
        child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        assert_eq!((child.wait().unwrap().code(), complaint.as_str()), (Some(0), ""));
    }
}

/// A filter of the log that is none is a mistake of the command line's kind.
#[test]
fn a_bad_log_filter_is_told() {
    let folder = folder("log");
    let output = weir(&folder).arg("serve").env("WEIR_LOG", "weir=loud").output().unwrap();
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("WEIR_LOG"), "{}", err(&output));
}
