//! The flight recorder of a live gateway: `weir slow` names a victim, the rule that held it and its neighbour.

use crate::gateway::control::{controlled, say};
use crate::gateway::initiator::{Transfer, read16};
use crate::gateway::{Gateway, eventually, folder, weir};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

/// Two tenants on a device that serves one read at a time, each in 4 ms.
fn config(more: &str) -> String {
    let tenant = |name: &str| {
        let host = format!("iqn.2026-11.org.example.host:{name}");
        format!("[[tenant]]\nname = \"{name}\"\ninitiators = [\"{host}\"]\n")
    };
    let device =
        "[[backend]]\nname = \"array\"\nmodel = \"fixed\"\nservice = \"4ms\"\nservers = 1\n";
    let config = controlled(&[more, device, &tenant("victim"), &tenant("noisy")].concat());
    config.replace("file = \"disk.img\"", "file = \"disk.img\"\nbackend = \"array\"")
}

/// One host has 24 reads outstanding when another one reads: the recorder names the first, the rule, and the part of the wait;
/// the log line has the same id; an explanation of the recording says the same to the nanosecond.
#[test]
fn a_victim_its_rule_and_its_neighbour_are_named() {
    let folder = folder("slow-neighbour");
    let config = config("[recorder]\nslow = \"20ms\"\n");
    let mut gateway = Gateway::start(&folder, &config, &["--record", "run.weirrec"]);
    let (mut victim, mut noisy) = (gateway.session("victim"), gateway.session("noisy"));
    // What a read takes without company.
    victim.read(0, 4_096);
    // The first waits begin the histories.
    for _ in 0..2 {
        let reads: Vec<_> = (0..24)
            .map(|at| noisy.issue(read16(at * 65_536, 65_536), Transfer::In(65_536)))
            .collect();
        // The gateway reads from both connections: what has been answered has been read.
        noisy.wait(reads[0]).good();
        victim.read(0, 4_096);
        for itt in &reads[1..] {
            noisy.wait(*itt).good();
        }
    }
    let asked = gateway.asked(&["slow", "--tenant", "victim", "--limit", "1"]);
    let slow = &asked["slow"];
    let told = &slow["told"][0];
    assert_eq!(slow["told"].as_array().unwrap().len(), 1, "{asked}");
    for (key, value) in [
        ("tenant", json!("victim")),
        ("volume", json!("disk")),
        ("op", json!("read")),
        ("length", json!(4_096)),
        ("reason", json!("slow")),
        ("host", json!("iqn.2026-11.org.example.host:victim")),
        ("backend", json!("array")),
        ("path", json!(0)),
    ] {
        assert_eq!(told[key], value, "{key}: {asked}");
    }
    let list = |value: &Value| value.as_array().unwrap().clone();
    let nanos = |value: &Value| value["time_ns"].as_u64().unwrap();
    let waits = list(&told["waits"]);
    let longest = waits.iter().max_by_key(|wait| nanos(wait)).unwrap();
    assert_eq!(told["mostly"]["who"], "noisy", "{asked}");
    assert_eq!(longest["behind"][0]["who"], "noisy", "{asked}");
    assert!(nanos(&told["mostly"]) * 2 > told["response_ns"].as_u64().unwrap(), "{asked}");
    for wait in &waits {
        assert_eq!(list(&wait["behind"]).iter().map(nanos).sum::<u64>(), nanos(wait), "{asked}");
    }
    assert_eq!(waits.iter().map(nanos).sum::<u64>(), told["response_ns"].as_u64().unwrap());

    let id = told["id"].as_str().unwrap();
    let text = gateway.command(&["slow", id]).stdout;
    let text = String::from_utf8(text).unwrap();
    let rule = longest["rule"].as_str().unwrap();
    for part in [id, rule, "tenant victim", "mostly noisy: ", "behind: noisy "] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    gateway.logged(&["slow request", id, "tenant=\"victim\"", rule, "behind=\"noisy\""]);
    // Both tenants are among the slowest, although all reads of the noisy one took longer than most.
    let both = gateway.asked(&["slow", "--limit", "4"]);
    let of =
        |name: &str| list(&both["slow"]["told"]).iter().filter(|one| one["tenant"] == name).count();
    assert_eq!((of("victim"), of("noisy")), (2, 2), "{both}");
    assert_eq!(both["slow"]["requests"], 51, "{both}");
    let unknown = gateway.refused(&["slow", "0000-000000000000"]);
    assert!(unknown.contains("no request has the id"), "{unknown}");
    let recorder = gateway.asked(&["status"])["status"]["recorder"].take();
    assert!(recorder["memory_bytes"].as_u64().unwrap() > 4 << 20, "{recorder}");
    assert!(recorder["ring_ns"].as_u64().unwrap() > 0, "{recorder}");

    gateway.stop();
    let explain = ["explain", "run.weirrec", "--tenant", "0", "--json"];
    let output = weir(&folder, &explain).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
    let stories = list(&explained["explanation"]["requests"]);
    let story = stories.iter().find(|story| story["arrived_ns"] == told["arrived_ns"]).unwrap();
    let times = |held: &Value| {
        let behind = list(&held["behind"]).iter().map(nanos).collect::<Vec<_>>();
        (held["stage"].clone(), held["rule"].clone(), behind)
    };
    let one: Vec<_> = waits.iter().map(times).collect();
    let other: Vec<_> = list(&story["held"]).iter().map(times).collect();
    assert_eq!(one, other);
}

/// `weir top` shows the requests of the time between two samples, by volume and tenant, with what held them.
#[test]
fn top_shows_rates() {
    let folder = folder("top");
    let mut gateway = Gateway::start(&folder, &config(""), &[]);
    let mut host = gateway.session("victim");
    let done = AtomicBool::new(false);
    let [page, text] = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Not for ever, should the gateway give no page.
            for _ in 0..5_000 {
                if !done.load(Ordering::Relaxed) {
                    host.read(0, 4_096);
                }
            }
        });
        let page = || {
            let page = gateway.asked(&["top", "--once", "--interval", "100ms"]);
            (page["all"]["requests_per_s"] != json!(0.0)).then_some(page)
        };
        let page = eventually("a page with reads", page);
        let text = gateway.command(&["top", "--once", "--interval", "100ms"]).stdout;
        done.store(true, Ordering::Relaxed);
        [page, Value::from(String::from_utf8(text).unwrap())]
    });
    let tenant = &page["tenants"][0];
    assert_eq!(tenant["name"], "victim");
    // On a busy machine the test itself takes replies late.
    let held = tenant["held_by"].as_str().unwrap();
    assert!(["storage/device", "transfer/link"].contains(&held), "{page}");
    assert_eq!(page["volumes"][0]["name"], "disk", "{page}");
    // The device takes 4 ms for each.
    assert!(tenant["p50_ns"].as_u64().unwrap() >= 4_000_000, "{page}");
    let rate = |row: &Value, key: &str| row[key].as_f64().unwrap();
    let bytes = rate(tenant, "requests_per_s") * 4_096.0;
    assert!((rate(tenant, "bytes_per_s") - bytes).abs() < 1.0, "{page}");
    let text = text.as_str().unwrap();
    for part in ["requests/s", "Volumes\n", "Tenants\n", "victim", "objective"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    gateway.stop();
}

/// Without memory there is no recorder, and the gateway says so.
#[test]
fn the_recorder_can_be_switched_off() {
    let folder = folder("slow-off");
    let config = controlled("[recorder]\nmemory = \"0B\"\n");
    let mut gateway = Gateway::start(&folder, &config, &[]);
    gateway.session("host").read(0, 512);
    let refused = gateway.refused(&["slow"]);
    assert!(refused.contains("the flight recorder is switched off"), "{refused}");
    assert_eq!(gateway.asked(&["status"])["status"]["recorder"], Value::Null);
    let text = String::from_utf8(gateway.command(&["status"]).stdout).unwrap();
    assert!(text.contains("flight recorder off"), "{text}");
    gateway.stop();
}

/// After a reload a request of before has the objective that it missed, and reads of after it have the new one.
#[test]
fn a_request_keeps_the_objective_that_it_missed() {
    let folder = folder("slow-objective");
    let config = |p99: &str| {
        let victim = "name = \"victim\"\n";
        let objective =
            format!("objectives = [{{ size = \"4KiB\", iops = 1000, p99 = \"{p99}\" }}]\n");
        config("[recorder]\nslow = \"60s\"\n").replace(victim, &[victim, &objective].concat())
    };
    let mut gateway = Gateway::start(&folder, &config("1ms"), &[]);
    let mut host = gateway.session("victim");
    host.read(0, 4_096);
    gateway.reload(&config("10s"));
    host.read(0, 4_096);
    let asked = gateway.asked(&["slow"]);
    let told = asked["slow"]["told"].as_array().unwrap();
    let of = |one: &Value| (one["reason"].clone(), one["target_ns"].clone());
    let told: Vec<_> = told.iter().map(of).collect();
    let late = (json!("late"), json!(1_000_000));
    assert_eq!(told, [late, (json!(""), json!(10_000_000_000_u64))], "{asked}");
    gateway.stop();
}

/// Counters are read by another thread than the event loop's, which closes the connection when it has answered, as after metrics.
#[test]
fn a_sample_is_made_apart_from_the_event_loop() {
    let folder = folder("sample");
    let mut gateway = Gateway::start(&folder, &config(""), &[]);
    gateway.session("victim").read(0, 4_096);
    let mut client = gateway.knock();
    let sample = say(&mut client, b"{\"version\":1,\"do\":\"sample\"}\n")["sample"].take();
    assert_eq!((&sample["all"]["requests"], &sample["all"]["bytes"]), (&json!(1), &json!(4_096)));
    assert_eq!(sample["tenants"][0]["name"], "victim", "{sample}");
    assert_eq!(std::io::Read::read(&mut client, &mut [0]).unwrap(), 0, "it is closed");
    gateway.stop();
}
