//! The event log as JSON.

use crate::gateway::initiator::{Login, connect};
use crate::gateway::nbd::Client;
use crate::gateway::pdu::Pdu;
use crate::gateway::{Gateway, ONE_DISK, configure, folder, weir};
use serde_json::Value;
use std::net::TcpListener;

/// `ONE_DISK` with a log of JSON, an export, and something to warn of.
fn config() -> String {
    let nbd = "[nbd]\nlisten = [\"127.0.0.1:0\"]\nexports = { disk = \"disk\" }\n";
    let unused = "[[store]]\nname = \"unused\"\nfile = \"unused.img\"\n";
    format!("[log]\nformat = \"json\"\n{nbd}{unused}{ONE_DISK}")
}

/// The events of a log: each line is an object with a time, a level and a message.
fn events(log: &str) -> Vec<Value> {
    let event = |line: &str| {
        let event: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        for key in ["timestamp", "level", "message"] {
            assert!(event[key].is_string(), "{line}");
        }
        event
    };
    log.split_terminator('\n').map(event).collect()
}

/// From the first warning about the configuration to the stop each line of the log is an object, whatever names hosts give;
/// names are there as they were given, and where they are part of a text as one word.
#[test]
fn each_line_is_an_object() {
    let mut gateway = Gateway::start(&folder("json-log"), &config(), &[]);
    let hostile = "a\"b\\c\u{1b}[31m\u{7f}\n{\"level\":\"ERROR\"}";
    let text = Login::of("x").text().replace("host:x", &format!("host:{hostile}"));
    let pdu = Login::of("x").request().carrying(text.as_bytes());
    let socket = connect(gateway.portal);
    pdu.send(&socket, false).unwrap();
    let answer = Pdu::receive(&socket, false).unwrap();
    let session = Login::of("x").begin(socket, &answer);
    gateway.reload(&config().replace("64MiB", "80MiB"));
    let mut client = Client::tcp(gateway.nbd_address());
    let name = [&(hostile.len() as u32).to_be_bytes()[..], hostile.as_bytes(), &[0, 0]].concat();
    client.option(7, &name);
    client.option_reply().unwrap();
    gateway.session("two").logout();
    gateway.refuse_reload("[[volume]]\nname = \"x\"y\n", &["configuration: "]);
    session.logout();
    gateway.stop();
    let events = events(&gateway.log());
    let first = &events[0];
    assert_eq!((&first["level"], &first["code"]), (&"WARN".into(), &"unused".into()), "{first}");
    assert!(first["at"].as_str().unwrap().starts_with("weir.toml:"), "{first}");
    let has = |part: &str| events.iter().any(|event| event.to_string().contains(part));
    assert!(has("session ended") && has("host:two"), "{}", gateway.log());
    // Names of iSCSI are without case.
    let name = format!("iqn.2026-11.org.example.host:{hostile}").to_lowercase();
    let named = |event: &&Value| event["initiator"] == *name;
    assert!(events.iter().filter(named).count() >= 2, "a login and an end:\n{}", gateway.log());
    // What is made of several parts, and shown to people as well, has names as one word.
    let told = format!("; for {} at ", name.escape_debug());
    let change = |event: &&Value| event["change"].as_str().is_some_and(|one| one.contains(&told));
    assert_eq!(events.iter().filter(change).count(), 1, "{}", gateway.log());
    let forged = |event: &&Value| event["level"] == "ERROR" && event["message"] == "";
    assert_eq!(events.iter().find(forged), None);
}

/// What keeps a gateway from its start is an event, too; the exit code is that of a log for people.
#[test]
fn a_start_that_fails_says_so_in_json() {
    let folder = folder("json-log-start");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("[iscsi]\nlisten = [\"{}\"]\n", taken.local_addr().unwrap());
    for (config, code, part) in [
        (config() + "[stop]\ntimeout = \"1 parsec\"\nfoo = 1\n", 3, "no key `foo`"),
        (listen + &config(), 7, "cannot listen"),
    ] {
        configure(&folder, &config);
        let output = weir(&folder, &["serve", "weir.toml"]).output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{log}");
        let events = events(&log);
        let failed = |event: &&Value| {
            event["level"] == "ERROR" && event["message"].as_str().unwrap().contains(part)
        };
        assert_eq!(events.iter().filter(failed).count(), 1, "{log}");
        // A log that takes no errors does not make it silent.
        for filter in ["off", "weir_serve=info"] {
            let mut command = weir(&folder, &["serve", "weir.toml"]);
            let output = command.env("WEIR_LOG", filter).output().unwrap();
            let told = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(code), "{told}");
            assert!(told.contains(part), "{filter}: {told:?}");
        }
    }
}
