//! The HTTP interface of a live gateway: what it answers, whom it refuses, and that hosts do not notice.

use crate::gateway::commands::READY;
use crate::gateway::control::controlled;
use crate::gateway::http::{Answered, JSON};
use crate::gateway::initiator::{Transfer, read16};
use crate::gateway::schema;
use crate::gateway::{Gateway, ONE_DISK, eventually, folder};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

fn start(test: &str, more: &str) -> Gateway {
    let http = format!("{more}\n[http]\nlisten = \"127.0.0.1:0\"\n");
    Gateway::start(&folder(test), &controlled(&http), &[])
}

/// Metrics are those of `weir metrics`, in the format that the client prefers; health is what the gateway is; every
/// answer keeps browsers from showing it elsewhere.
#[test]
fn metrics_and_health() {
    let mut gateway = start("http", "");
    let mut host = gateway.session("one");
    for at in 0..10 {
        host.read(at * 4_096, 4_096);
    }
    let page = gateway.http_get("/metrics");
    let sample = "weir_volume_requests_total{volume=\"disk\",op=\"read\",result=\"ok\"} 10";
    assert!(page.body.contains(sample) && !page.body.contains("# EOF"), "{page:?}");
    assert!(page.head.contains("Content-Type: text/plain; version=0.0.4"), "{page:?}");
    let accept = "Accept: application/openmetrics-text; version=1.0.0";
    let open = gateway.http_request("GET", "/metrics", &[accept]);
    assert!(open.body.contains(sample) && open.body.ends_with("# EOF\n"), "{open:?}");
    assert!(open.head.contains("application/openmetrics-text; version=1.0.0"), "{open:?}");
    for path in ["/healthz", "/readyz"] {
        let health = gateway.http_get(path);
        assert_eq!(health.json()["status"], "ok", "{health:?}");
        for field in ["nosniff", "default-src 'none'", "no-store", "same-origin"] {
            assert!(health.head.contains(field), "{field}: {health:?}");
        }
        assert!(!health.head.contains("Access-Control"), "{health:?}");
    }
    let head = gateway.http_request("HEAD", "/metrics", &[]);
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    gateway.stop();
}

/// Pages of other origins, other methods and other paths get nothing but a reason.
#[test]
fn strangers_get_a_reason() {
    let mut gateway = start("http-refused", "");
    for (method, path, fields, status, code) in [
        ("GET", "/metrics", &["Origin: http://evil.example"][..], 403, "foreign_origin"),
        ("GET", "/metrics", &["Sec-Fetch-Site: cross-site"], 403, "foreign_origin"),
        ("GET", "/metrics", &["Host: evil.example"], 400, "no_host"),
        ("PUT", "/metrics", &[], 405, "method"),
        ("POST", "/metrics", &[], 405, "method"),
        ("POST", "/api/v1/stop", &[], 415, "content_type"),
        ("POST", "/metrics", &[JSON], 405, "method"),
        ("GET", "/api/v1/stop", &[], 405, "method"),
        ("GET", "/metrics", &["Content-Length: 5"], 413, "body"),
        ("GET", "/nothing", &[], 404, "not_found"),
        ("GET", "/metrics?x=1", &[], 400, "parameters"),
    ] {
        let answered = gateway.http_request(method, path, fields);
        assert_eq!(answered.status, status, "{method} {path}: {answered:?}");
        assert_eq!(answered.json()["code"], code, "{method} {path}");
        assert!(!answered.body.contains("weir_"), "{answered:?}");
    }
    let mut stream = gateway.http_connection();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(Answered::of(&text).json()["code"], "wrong_host");
    gateway.stop();
}

/// Clients that say nothing, say half, or ask without end leave others their answers, and hosts theirs: more of them
/// than there are places.
#[test]
fn a_flood_leaves_others_in_peace() {
    let gateway = start("http-flood", "");
    let witness = gateway.witness();
    let mut idle = Vec::new();
    for number in 0..200 {
        let mut stream = gateway.http_connection();
        if number % 2 == 0 {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: loc").unwrap();
        }
        idle.push(stream);
    }
    assert_eq!(gateway.http_get("/healthz").json()["status"], "ok");
    // Those that asked first were closed for those that came later; all that were sent at once are answered in order,
    // or refused because they are too many.
    let mut stream = gateway.http_connection();
    let asked = format!("GET /readyz HTTP/1.1\r\nHost: {}\r\n\r\n", gateway.http());
    stream.write_all(asked.repeat(500).as_bytes()).unwrap();
    let mut text = String::new();
    // The rest of the requests is not read, so the connection may end with a reset.
    let mut bytes = [0; 4_096];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert!(text.contains("HTTP/1.1 200 OK"), "{text}");
    // The requests of this second are used up, but for this one.
    assert_eq!(gateway.http_get("/healthz").json()["status"], "ok");
    gateway.stop_after(witness);
}

/// A Unix socket is the owner's alone, and goes with the gateway; another place needs a restart, and nothing is
/// changed.
#[test]
fn a_unix_socket_serves_its_owner() {
    let config = |listen: &str| format!("[http]\nlisten = \"{listen}\"\n{ONE_DISK}");
    let mut gateway = Gateway::start(&folder("http-unix"), &config("unix:h.sock"), &[]);
    let path = gateway.folder.join("h.sock");
    assert_eq!(gateway.http.as_deref(), Some(&*format!("unix:{}", path.display())));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let ask = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        let asked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(asked).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(Answered::of(&text).json()["status"], "ok");
    };
    ask();
    gateway.refuse_reload(&config("127.0.0.1:0"), &["`listen` of [http] differs", "restart"]);
    ask();
    gateway.stop();
    assert!(!path.exists());
}

/// A gateway that drains says that it is not ready, and still answers.
#[test]
fn a_gateway_that_stops_is_not_ready() {
    let text = "[policy]\ncontrol = { name = \"ta1\", tau = 1 }\n[[tenant]]\nname = \"one\"\n\
                initiators = [\"iqn.2026-11.org.example.host:one\"]\n\
                objectives = [{ size = 512, iops = 1, p99 = \"1s\" }]\n";
    let mut gateway = start("http-stop", text);
    let mut one = gateway.session("one");
    // It is held for more than a minute.
    one.issue(read16(0, 65_536), Transfer::In(65_536));
    one.execute(READY, Transfer::None).good();
    gateway.signal("TERM");
    let stopping = eventually("end of readiness", || {
        let answered = gateway.http_request("GET", "/readyz", &[]);
        (answered.status == 503).then_some(answered)
    });
    let told = stopping.json();
    assert_eq!(told["checks"][0]["name"], "gateway", "{told}");
    assert_eq!(told["status"], "failing", "{told}");
    assert_eq!(gateway.http_get("/healthz").json()["status"], "ok");
    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(1));
}

/// Every route of the document answers with what the document says, and with what the control socket says; names that
/// do not exist are refused with a problem that it describes, and no answer has the secret.
#[test]
fn every_route_is_in_the_document() {
    let more = "[[tenant]]\nname = \"one\"\ninitiators = [\"iqn.2026-11.org.example.host:one\"]\n\
                objectives = [{ size = 4096, iops = 100000, p99 = \"1h\" }]\n\
                [[account]]\nname = \"alice\"\nsecret = \"planted secret\"\n\
                [discovery]\naccounts = [\"alice\"]\n\
                [[volume]]\nname = \"logged\"\nfile = \"logged.img\"\nsize = \"64MiB\"\nlog = \"l.log\"\nlog_size = \"32MiB\"\n";
    let config = controlled(&format!("{more}[http]\nlisten = \"127.0.0.1:0\"\n"));
    let config =
        config.replace("luns = { 0 = \"disk\" }", "luns = { 0 = \"disk\", 1 = \"logged\" }");
    let mut gateway = Gateway::start(&folder("http-rest"), &config, &[]);
    let mut one = gateway.session("one");
    one.read(0, 4_096);
    let document = gateway.http_get("/api/v1/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() >= 16, "{paths:?}");
    let problem = &document["components"]["responses"]["Problem"];
    let problem = &problem["content"]["application/problem+json"]["schema"];
    let mut told = String::new();
    let slow = gateway.http_get("/api/v1/slow").json();
    let id = slow["told"][0]["id"].as_str().unwrap();
    for (path, item) in paths {
        let name = match path.split('/').nth(3) {
            Some("tenants") => "one",
            _ => "disk",
        };
        if item["post"].is_object() {
            let path = path.replace("{name}", name).replace("{number}", "0");
            let answered = gateway.http_request("POST", &path, &[JSON]);
            assert_eq!(answered.status, 401, "{path}: {answered:?}");
            schema::check(&document, problem, &answered.json()).unwrap();
            continue;
        }
        let answered = gateway.http_get(&path.replace("{name}", name).replace("{id}", id));
        let content = item["get"]["responses"]["200"]["content"].as_object().unwrap();
        let kind = answered.head.lines().find_map(|line| line.strip_prefix("Content-Type: "));
        let schema = &content[kind.unwrap()]["schema"];
        if kind == Some("application/json") {
            let checked = schema::check(&document, schema, &answered.json());
            checked.unwrap_or_else(|why| panic!("{path}: {why}"));
        }
        told.push_str(&answered.body);
        if path.contains("{name}") {
            let unknown = gateway.http_request("GET", &path.replace("{name}", "nothing"), &[]);
            assert_eq!((unknown.status, &unknown.json()["code"]), (404, &"unknown_name".into()));
            schema::check(&document, problem, &unknown.json()).unwrap();
        }
    }
    assert!(told.contains("host:one") && !told.contains("planted"), "{told}");
    let status = gateway.http_get("/api/v1/status").json();
    assert_eq!(status["volumes"], gateway.asked(&["status"])["status"]["volumes"]);
    let logs = gateway.http_get("/api/v1/logs").json();
    assert_eq!(logs["logs"][0]["volume"], "logged", "{logs}");
    assert_eq!(logs["logs"].as_array().unwrap().len(), 1, "{logs}");
    let totals = gateway.http_get("/api/v1/totals").json();
    let disk = totals["volumes"].as_array().unwrap().iter().find(|one| one["name"] == "disk");
    assert_eq!(disk.unwrap()["reads"], 1, "{totals}");
    assert_eq!(totals["response_count"], 1, "{totals}");
    gateway.stop();
}

/// The page and its parts come from the gateway alone.
#[test]
fn the_page_is_complete() {
    let mut gateway = start("http-page", "");
    let page = gateway.http_get("/");
    assert!(page.head.contains("Content-Type: text/html"), "{page:?}");
    let mut parts = 0;
    for attribute in ["href=\"", "src=\""] {
        for target in page.body.split(attribute).skip(1) {
            let target = target.split('"').next().unwrap();
            if target == "data:," {
                continue;
            }
            parts += 1;
            let part = gateway.http_get(&format!("/{}", target.trim_start_matches('/')));
            let foreign = ["http://", "https://", "@import", "url("];
            assert!(!foreign.iter().any(|word| part.body.contains(word)), "{target}");
        }
    }
    assert_eq!(parts, 3, "style, program, and the status for those without one");
    let ids: Vec<_> =
        page.body.split("id=\"").skip(1).map(|id| id.split('"').next().unwrap()).collect();
    assert!(
        ids.len() > 10 && ids.iter().all(|id| ids.iter().filter(|one| *one == id).count() == 1)
    );
    gateway.stop();
}

/// A request is found by its id, and one that the recorder does not have is said not to be there.
#[test]
fn a_request_has_its_own_address() {
    let mut gateway = start("http-request", "");
    gateway.session("one").read(8_192, 4_096);
    let slow = gateway.http_get("/api/v1/slow").json();
    let id = slow["told"][0]["id"].as_str().unwrap();
    let one = gateway.http_get(&format!("/api/v1/requests/{id}")).json();
    assert_eq!((&one["id"], &one["offset"]), (&slow["told"][0]["id"], &8_192.into()), "{one}");
    for (id, status, code) in
        [("0000-000000000000", 404, "unknown_request"), ("", 404, "not_found")]
    {
        let refused = gateway.http_request("GET", &format!("/api/v1/requests/{id}"), &[]);
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (status, &code.into()),
            "{refused:?}"
        );
    }
    gateway.stop();
}
