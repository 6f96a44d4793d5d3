//! A recording is asked what would have been under another policy, contract or device.

use crate::support::{code, err, folder, out, run};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use weir_flow::accept::Cap;
use weir_flow::clock::Duration;
use weir_flow::control::{self, Promises};
use weir_flow::dispatch::Shares;
use weir_flow::path::Settings;
use weir_flow::pipeline::{Limits, Policies};
use weir_flow::policy::Choice;
use weir_flow::request::{BackendId, LinkId, TenantId, VolumeId};
use weir_flow::units::Extent;
use weir_model::fixed;
use weir_sim::plan::{
    Access, Arrivals, Backend, End, HostLink, Model, Plan, SizeWeight, Volume, Workload,
};

const SIZE: u64 = 64 << 20;

/// A recording of five seconds at 70 % of what 4 servers of 400 us can do, without a control policy.
fn recording(folder: &Path) -> PathBuf {
    let service = Duration::from_micros(400);
    let control = Choice::named(control::POLICIES, "open").unwrap();
    let plan = Plan {
        seed: 1,
        end: End { duration: Some(Duration::from_secs(5)), drain: true, ..End::default() },
        tenants: vec!["tenant".to_owned()],
        promises: Promises::default(),
        shares: Shares::default(),
        volumes: vec![Volume {
            name: "volume".to_owned(),
            size: SIZE,
            backend: BackendId::new(0),
            max_transfer: u64::MAX,
            cap: Cap::default(),
        }],
        backends: vec![Backend {
            name: "disk".to_owned(),
            model: Model::Fixed(fixed::Config { service, servers: 4 }),
            paths: 1,
        }],
        links: vec![HostLink::infinite("host")],
        workloads: vec![Workload {
            name: "load".to_owned(),
            tenant: TenantId::new(0),
            volume: VolumeId::new(0),
            link: LinkId::new(0),
            arrivals: Arrivals::Poisson { rate: 7_000.0 },
            sizes: vec![SizeWeight { bytes: 4_096, weight: 1 }],
            read_permille: 1_000,
            access: Access::Random,
            alignment: 4_096,
            region: Extent::new(0, SIZE),
            start: Duration::ZERO,
            stop: None,
        }],
        traces: Vec::new(),
        path_faults: Vec::new(),
        policies: Policies { control, ..Policies::default() },
        limits: Limits::default(),
        paths: Settings::default(),
        cache: weir_flow::cache::Settings::default(),
    };
    let path = folder.join("run.weirrec");
    weir_sim::run::record(&plan, &mut File::create(&path).unwrap(), |_| ()).unwrap();
    path
}

fn asked(folder: &Path, options: &[&str]) -> (i32, Value) {
    let mut arguments = vec!["replay", "run.weirrec", "--json"];
    arguments.extend(options);
    let output = run(folder, &arguments);
    assert_eq!(err(&output), "");
    let report: Value = serde_json::from_str(out(&output)).unwrap();
    assert_eq!(report["version"], 1);
    (code(&output), report["answer"].clone())
}

/// The same policy gives the recorded figures; a model of the device is found; a cache answers repeated reads.
#[test]
fn a_recording_answers() {
    let folder = folder("what-if");
    recording(&folder);
    let (code_there, same) = asked(&folder, &["--control", "open"]);
    assert_eq!((code_there, &same["device"]), (0, &Value::from("recorded")), "{same}");
    let row = &same["rows"][0];
    assert_eq!(row["was"], row["would"]);

    let (code_there, fitted) = asked(&folder, &["--device", "fitted", "--seeds", "2"]);
    assert_eq!((code_there, &fitted["fits"][0]["servers"]), (0, &Value::from(4)), "{fitted}");

    let question = ["--cache-size", "64MiB", "--seeds", "2"];
    let (code_there, cached) = asked(&folder, &question);
    assert_eq!((code_there, &cached["device"]), (0, &Value::from("fitted")), "{cached}");
    let row = &cached["rows"][0];
    let mean = |side: &str| row[side]["mean_ns"].as_f64().unwrap();
    assert!(mean("would") < 0.8 * mean("was"), "half of the reads or more are hits: {row}");

    let output = run(&folder, &["replay", "run.weirrec", "--control", "ta1", "--seeds", "2"]);
    assert_eq!((code(&output), err(&output)), (0, ""));
    let text = out(&output);
    assert!(text.starts_with("What if control = ta1, seeds = 2? run.weirrec: "), "{text}");
    assert!(text.contains("\n  tenant 0  volume 0  read  "), "{text}");
    assert!(text.contains("Arrivals: 100 % open"), "{text}");
}

/// The rules of a configuration hold, with its names; one that has other volumes is refused.
#[test]
fn rules_come_from_a_file() {
    let folder = folder("what-if-config");
    recording(&folder);
    let volume = |name: &str| {
        format!("[[volume]]\nname = \"{name}\"\nfile = \"{name}.img\"\nsize = \"64MiB\"\n")
    };
    let target = "[[target]]\nname = \"iqn.2026-11.io.weir:t\"\nluns = { 0 = \"data\" }\n";
    let one = format!("{}cap_bandwidth = \"200MB/s\"\n{target}", volume("data"));
    std::fs::write(folder.join("new.toml"), &one).unwrap();
    let (code_there, capped) = asked(&folder, &["--config", "new.toml", "--seeds", "1"]);
    assert_eq!((code_there, &capped["volumes"][0]), (0, &Value::from("data")), "{capped}");

    let two = format!("{one}{}", volume("more")).replace("\"data\" }", "\"data\", 1 = \"more\" }");
    std::fs::write(folder.join("two.toml"), two).unwrap();
    let (code_there, other) = asked(&folder, &["--config", "two.toml"]);
    assert_eq!(code_there, 9);
    let reason = other["refused"][0].as_str().unwrap();
    assert!(reason.contains("the file has 2 volumes and the recording 1"), "{reason}");
}

/// Options of traces are not for recordings, and the other way round.
#[test]
fn options_are_for_one_kind_of_file() {
    let folder = folder("what-if-options");
    recording(&folder);
    assert_eq!(code(&run(&folder, &["replay", "run.weirrec", "--speed", "2"])), 2);
    std::fs::write(folder.join("t.csv"), "time_ns,op,dev,offset,size\n0,R,0,0,4096\n").unwrap();
    let output = run(&folder, &["replay", "t.csv", "--device", "fitted"]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("is not for a trace"), "{}", err(&output));
}
