//! `weir explain` as a person or a script uses it.

use crate::gateway::initiator::{Transfer, read16};
use crate::gateway::{Gateway, ONE_DISK, folder, weir};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_flow::digest::Digest;
use weir_flow::recording::{Decoder, Encoder, Entry};

fn neighbour() -> String {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    plans.join("noisy-neighbour.toml").display().to_string()
}

/// The exit code, standard output and standard error of `weir explain` with these arguments.
fn explain(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = weir(folder, &[&["explain"], arguments].concat()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// What it says as JSON.
fn told(folder: &Path, arguments: &[&str]) -> Value {
    let (code, out, err) = explain(folder, &[arguments, &["--json"]].concat());
    assert_eq!((code, &*err), (Some(0), ""), "{arguments:?}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["version"], 1);
    report
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap()
}

fn nanos(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap()
}

/// The number that stands before ` ms`, in microseconds.
fn micros(text: &str) -> u64 {
    text.split(" ms").next().unwrap().trim().replace('.', "").parse().unwrap()
}

/// As text, the parts of each request add up to its time to the last digit, the slowest comes first, and
/// the ledger of each tenant adds up to 100.0 per cent.
#[test]
fn parts_add_up_to_the_whole() {
    let (code, out, err) = explain(&folder("explain-text"), &[&neighbour(), "--slowest", "7"]);
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    let mut requests: Vec<(u64, u64)> = Vec::new();
    let (mut ledgers, mut tenant) = (BTreeMap::<String, u64>::new(), String::new());
    for line in out.lines() {
        if let Some((_, took)) = line.split_once(" s, took ") {
            assert!(line.starts_with("  arrived at "), "{line}");
            requests.push((micros(took), 0));
        } else if let Some(held) = line.strip_prefix("    ") {
            let (stage, held) = held.split_at(8);
            let (_, rule) = held.split_once(" ms  ").unwrap();
            assert!(rule.starts_with(stage.trim()), "{line}");
            requests.last_mut().unwrap().1 += micros(held);
        } else if let Some((name, _)) = line.split_once(" s in total, ") {
            tenant = name.split(':').next().unwrap().to_owned();
        } else if let [_, rule, share, ..] = line.split_whitespace().collect::<Vec<_>>()[..]
            && rule.contains('/')
        {
            *ledgers.entry(tenant.clone()).or_default() +=
                share.replace('.', "").parse::<u64>().unwrap();
        }
    }
    assert_eq!(requests.len(), 7, "{out}");
    assert!(requests.iter().all(|&(whole, parts)| whole == parts && whole > 0), "{out}");
    assert!(requests.is_sorted_by(|one, next| one.0 >= next.0), "{out}");
    assert!(out.contains("control/window") && out.contains("p99 30.000 ms"), "{out}");
    let ledgers: Vec<_> = ledgers.iter().map(|(name, share)| (&**name, *share)).collect();
    assert_eq!(ledgers, [("backup", 1_000), ("oltp", 1_000)], "{out}");
}

/// A tenant is asked for by its name or its number, and no other is printed then; a request by its tag.
#[test]
fn one_tenant_or_one_request() {
    let folder = folder("explain-one");
    let plan = neighbour();
    let named = told(&folder, &[&plan, "--tenant", "oltp", "--slowest", "5"]);
    assert_eq!(named, told(&folder, &[&plan, "--tenant", "0", "--slowest", "5"]));
    let explanation = &named["explanation"];
    assert_eq!(list(explanation, "tenants").len(), 1);
    let requests = list(explanation, "requests");
    assert_eq!(requests.len(), 5);
    assert!(requests.iter().all(|request| request["tenant"] == 0), "{requests:?}");
    let ledger = &explanation["tenants"][0]["ledger"];
    let causes: u64 = list(ledger, "causes").iter().map(|cause| nanos(cause, "time_ns")).sum();
    assert_eq!(causes, nanos(ledger, "time_ns"));
    let wanted = requests[3]["tag"].to_string();
    let tagged = told(&folder, &[&plan, "--request", &wanted, "--slowest", "100000"]);
    let tagged = list(&tagged["explanation"], "requests");
    assert!(tagged.iter().all(|request| request["tag"] == requests[3]["tag"]));
    assert!(tagged.contains(&requests[3]), "it is among those with its tag");
}

/// What cannot be answered is refused with a code that says whose mistake it is.
#[test]
fn mistakes_are_told() {
    let folder = folder("explain-mistakes");
    std::fs::write(folder.join("plan.toml"), "[run]\nduration = \"no\"\n").unwrap();
    let plan = neighbour();
    for (arguments, code, what) in [
        (&[&*plan, "--tenant", "none"][..], 2, "there is no tenant `none`"),
        (&[&plan, "--tenant", "2"], 2, "there is no tenant `2`"),
        (&[&plan, "--slowest", "100001"], 2, "100001"),
        (&["absent.toml"], 3, "absent.toml"),
        (&["plan.toml"], 3, "plan.toml:2:"),
    ] {
        let (exit, out, err) = explain(&folder, arguments);
        assert_eq!((exit, &*out), (Some(code), ""), "{arguments:?}: {err}");
        assert!(err.contains(what), "{arguments:?}: {err}");
    }
}

/// Records a run in which, beyond the 30 requests that it holds when full, the bucket of tenant 0 holds its host, and that of tenant 1 none.
fn recorded(test: &str) -> PathBuf {
    let folder = folder(test);
    let tenant = |name: &str, host: &str, iops: u32| {
        format!(
            "[[tenant]]\nname = \"{name}\"\ninitiators = [\"iqn.2026-11.org.example.host:{host}\"]\n\
             objectives = [{{ size = 512, iops = {iops}, p99 = \"1s\" }}]\n"
        )
    };
    let tenants = tenant("held", "one", 20) + &tenant("free", "two", 1_000_000);
    let policy = "[policy]\ncontrol = { name = \"ta1\", tau = 1 }\n";
    let config = format!("{policy}{tenants}{ONE_DISK}");
    let mut gateway = Gateway::start(&folder, &config, &["--record", "run.weirrec"]);
    let (mut one, mut two) = (gateway.session("one"), gateway.session("two"));
    let waiting: Vec<_> =
        (0..60).map(|at| one.issue(read16(at * 512, 512), Transfer::In(512))).collect();
    for at in 0..20 {
        two.read(at * 4096, 512);
    }
    for itt in waiting {
        one.wait(itt).good();
    }
    gateway.stop();
    folder
}

/// The same recording of a run that is said to have done nothing.
fn with_another_digest(recording: &[u8]) -> Vec<u8> {
    let (mut decoder, config, mut at) = Decoder::begin(recording).unwrap();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(&mut bytes, &config);
    loop {
        let (entry, length) = decoder.entry(&recording[at..]).unwrap();
        at += length;
        if let Entry::End(_) = entry {
            encoder.entry(&mut bytes, &Entry::End(Digest::default()));
            return bytes;
        }
        encoder.entry(&mut bytes, &entry);
    }
}

/// A recording of a gateway is explained: who was held by what, by the numbers of tenants; a recording
/// that gives something else is 5, one that is cut or damaged 6.
#[test]
fn a_recording_is_explained() {
    let folder = recorded("explain-recording");
    let report = told(&folder, &["run.weirrec"]);
    assert_eq!(report["verdict"], "same");
    let explanation = &report["explanation"];
    let by_bucket = |tenant: &Value| {
        let causes = list(&tenant["ledger"], "causes").iter();
        let bucket = causes.filter(|cause| cause["rule"] == "control/bucket");
        bucket.map(|cause| nanos(cause, "requests")).sum::<u64>()
    };
    let [held, free] = list(explanation, "tenants") else { panic!("{report}") };
    assert_eq!((&held["tenant"], &free["tenant"]), (&Value::from(0), &Value::from(1)));
    assert!(by_bucket(held) > 0 && by_bucket(free) == 0, "{report}");
    assert!(!list(held, "attainment").is_empty(), "{report}");
    let slowest = &explanation["requests"][0];
    assert_eq!((&slowest["tenant"], &slowest["length"]), (&Value::from(0), &Value::from(512)));

    let (code, out, _) = explain(&folder, &["run.weirrec", "--tenant", "0", "--slowest", "1"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("tenant 0: read of 512 bytes at ") && !out.contains("tenant 1"), "{out}");
    assert!(out.contains("control/bucket"), "{out}");
    let (code, _, err) = explain(&folder, &["run.weirrec", "--tenant", "held"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("a recording has no names"), "{err}");

    let good = std::fs::read(folder.join("run.weirrec")).unwrap();
    let other = with_another_digest(&good);
    let mut damaged = good.clone();
    damaged[good.len() / 2..].fill(0xff);
    for (bytes, wanted) in [(&other[..], 5), (&good[..good.len() - 1], 6), (&damaged, 6)] {
        std::fs::write(folder.join("bad.weirrec"), bytes).unwrap();
        let (code, out, err) = explain(&folder, &["bad.weirrec"]);
        assert_eq!(code, Some(wanted), "{out}{err}");
        // What came before the end is explained even if nothing can be compared.
        assert_eq!(out.contains("control/bucket"), err.is_empty(), "{out}{err}");
    }
}
