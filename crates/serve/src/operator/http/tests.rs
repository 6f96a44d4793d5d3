use super::connection::{Connection, Progress};
use super::health::{BEAT_AGE_MAX, Health};
use super::problem::{BODY_MAX, Fault, HEAD_MAX};
use super::request::{Bearer, Head, Method, Site, parse};
use super::response::Response;
use super::server::{Budget, REQUESTS_MAX};
use super::{ANSWER_LIMIT, ORDER_LIMIT, Subject, Ticket};
use crate::operator::metrics::page::Format;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr};
use weir_flow::clock::{Duration, Instant};

/// A gateway without further names and without TLS.
const SITE: Site<'_> =
    Site { secure: false, local: Some(IpAddr::V6(Ipv6Addr::LOCALHOST)), hosts: &[] };

/// The request with this first line and these further lines, `Host: localhost` among them if they have none.
fn head(first: &str, fields: &[&str]) -> Result<Head, Fault> {
    let has_host = fields.iter().any(|field| field.to_lowercase().starts_with("host:"));
    let host = if has_host { "" } else { "Host: localhost\r\n" };
    let fields = [fields, &["", ""]].concat().join("\r\n");
    let fields = fields.strip_suffix("\r\n").unwrap();
    let text = format!("{first} HTTP/1.1\r\n{host}{fields}\r\n");
    let parsed = parse(text.as_bytes(), &SITE)?;
    let (head, length) = parsed.expect("a whole head");
    assert_eq!(length, text.len());
    Ok(head)
}

/// A request is taken whole or not at all, wherever it is cut.
#[test]
fn heads_are_parsed() {
    let text = b"GET /metrics?a=b HTTP/1.1\r\nHost: [::1]:9713\r\nAccept: application/openmetrics-text;version=1.0.0,*/*\r\n\r\nGET";
    for cut in 0..text.len() - 3 {
        assert_eq!(parse(&text[..cut], &SITE), Ok(None), "cut at {cut}");
    }
    let (head, length) = parse(text, &SITE).unwrap().unwrap();
    assert_eq!(length, text.len() - 3);
    let path = "/metrics".to_owned();
    let format = Format::OpenMetrics;
    let (method, bearer) = (Method::Get, Bearer::None);
    assert_eq!(
        head,
        Head {
            method,
            path,
            has_query: true,
            bearer,
            is_json: false,
            body: 0,
            keep_alive: true,
            format
        }
    );
    let closes = b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n";
    assert!(!parse(closes, &SITE).unwrap().unwrap().0.keep_alive);
}

/// Only a name that no page of another origin can have is answered, whatever the port.
#[test]
fn names_after_dns_rebinding_are_refused() {
    for good in ["localhost", "LocalHost:80", "127.0.0.1:9713", "127.1.2.3", "[::1]", "[::1]:9713"]
    {
        assert!(head("GET /", &[&format!("Host: {good}")]).is_ok(), "{good}");
    }
    for bad in [
        "evil.example",
        "localhost.evil.example",
        "evil.example:9713",
        "192.0.2.1",
        "0.0.0.0:9713",
        "[::]:9713",
        "[::1",
        "[::1]x",
        "localhost:x",
        "user@localhost",
        "",
    ] {
        let fault = head("GET /", &[&format!("Host: {bad}")]).unwrap_err();
        assert_eq!(fault, Fault::WrongHost(bad.to_owned()));
    }
    assert_eq!(parse(b"GET / HTTP/1.1\r\n\r\n", &SITE), Err(Fault::NoHost));
    let twice = head("GET /", &["Host: localhost", "Host: evil.example"]);
    assert_eq!(twice, Err(Fault::NoHost));
}

/// What a page of another origin has a browser send is refused; a link to the page is followed.
#[test]
fn other_origins_are_refused() {
    let host = "Host: localhost:9713";
    for (path, fields, allowed) in [
        ("/metrics", &["Origin: http://localhost:9713"][..], true),
        ("/metrics", &["Origin: http://localhost:9714"], false),
        ("/metrics", &["Origin: https://localhost:9713"], false),
        ("/metrics", &["Origin: http://evil.example"], false),
        ("/metrics", &["Origin: null"], false),
        ("/metrics", &["Sec-Fetch-Site: same-origin"], true),
        ("/metrics", &["Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate"], true),
        ("/metrics", &["Sec-Fetch-Site: same-site"], false),
        ("/metrics", &["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"], false),
        ("/metrics", &["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"], false),
        ("/", &["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"], true),
        ("/", &["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"], false),
    ] {
        let result = head(&format!("GET {path}"), &[&[host], fields].concat());
        let wanted = if allowed { None } else { Some(Fault::ForeignOrigin) };
        assert_eq!(result.err(), wanted, "{path} {fields:?}");
    }
}

/// Other methods, bodies, too many fields and what is no HTTP are refused, each with its status and what to do.
#[test]
fn bad_requests_are_refused() {
    let many: Vec<String> = (0..100).map(|number| format!("X-{number}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (result, status) in [
        (head("POST /", &[JSON, "Transfer-Encoding: chunked"]), 411),
        (head("POST /", &[JSON, "Content-Length: 1", "Content-Length: 2"]), 411),
        (head("POST /", &[JSON, "Content-Length: +1"]), 411),
        (head("POST /", &[JSON, &format!("Content-Length: {}", BODY_MAX + 1)]), 413),
        (head("POST /", &[JSON, "Content-Length: 99999999999999999999"]), 413),
        (head("POST /", &[JSON, "Origin: http://evil.example"]), 403),
        (head("POST /", &[JSON, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"]), 403),
        (head("GET /", &["Content-Length: 3"]), 413),
        (head("GET /", &["Transfer-Encoding: chunked"]), 413),
        (head("GET /", &many), 431),
        (head("GET /", &["no field"]), 400),
        (parse(b"\x16\x03\x01\x02\x00\x01", &SITE).map(|_| unreachable!()), 400),
        (parse(b"PRI * HTTP/2.0\r\n\r\n", &SITE).map(|_| unreachable!()), 400),
    ] {
        let fault = result.unwrap_err();
        let response = fault.response();
        assert_eq!((fault.status(), response.status), (status, status), "{fault}");
        assert_eq!(response.content_type, "application/problem+json");
        let problem: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        for field in ["title", "code", "detail", "help"] {
            assert!(!problem[field].as_str().unwrap().is_empty(), "{problem}");
        }
    }
    assert!(head("GET /", &["Content-Length: 0"]).is_ok());
    let is_json = |fields: &[&str]| head("POST /", fields).unwrap().is_json;
    assert!(is_json(&[JSON]) && !is_json(&[]));
    for form in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
    {
        assert!(!is_json(&[&format!("Content-Type: {form}")]), "{form}");
    }
    let allowed = Fault::Method("POST").response().head(false);
    assert!(String::from_utf8(allowed).unwrap().contains("\r\nAllow: POST\r\n"));
}

const JSON: &str = "Content-Type: application/json; charset=utf-8";

/// A token is taken from one `Authorization` of the scheme `Bearer`; no debug output has it.
#[test]
fn tokens_are_taken_from_the_head() {
    let bearer = |fields: &[&str]| head("GET /", fields).unwrap().bearer;
    let token = || Bearer::Token("weir_x".to_owned());
    assert_eq!(bearer(&[]), Bearer::None);
    assert_eq!(bearer(&["Authorization: Bearer weir_x"]), token());
    assert_eq!(bearer(&["authorization: bearer  weir_x "]), token());
    let twice = ["Authorization: Bearer weir_x"; 2];
    for bad in [&["Authorization: Basic YTpi"][..], &["Authorization: Bearer"], &twice] {
        assert_eq!(bearer(bad), Bearer::Malformed, "{bad:?}");
    }
    let shown = format!("{:?}", head("GET /", &["Authorization: Bearer weir_x"]).unwrap());
    assert!(!shown.contains("weir_x"), "{shown}");
}

/// Another machine's requests name the address that they came to, or a name of `hosts`; an origin has the scheme of the
/// gateway.
#[test]
fn a_gateway_has_its_own_names() {
    let hosts = ["gw.example".to_owned()];
    let local = Some(IpAddr::from([192, 0, 2, 1]));
    let site = Site { secure: true, local, hosts: &hosts };
    let asked = |host: &str, origin: &str| {
        let text = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n");
        parse(text.as_bytes(), &site).map(|_| ())
    };
    for host in ["192.0.2.1:9713", "GW.example", "gw.example:443", "localhost"] {
        assert_eq!(asked(host, &format!("https://{host}")), Ok(()));
        let clear = asked(host, &format!("http://{host}"));
        assert_eq!(clear, Err(Fault::ForeignOrigin));
    }
    for host in ["192.0.2.2", "x.gw.example", "gw.example.evil.example"] {
        let asked = asked(host, &format!("https://{host}"));
        assert_eq!(asked, Err(Fault::WrongHost(host.to_owned())));
    }
}

/// An order comes with its body, wherever it is cut, and the next request begins behind it.
#[test]
fn bodies_are_taken_whole() {
    let order =
        b"POST /api/v1/stop HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                  Content-Length: 5\r\n\r\n{   }";
    for cut in 0..order.len() {
        let mut client = client(&order[..cut], 4_096);
        assert!(matches!(client.progress(Instant::ZERO, &SITE), Progress::Waits), "cut at {cut}");
        client.stream.sent.extend(&order[cut..]);
        client.stream.sent.extend(ASKED);
        let asked = client.progress(Instant::ZERO, &SITE);
        let Progress::Asks(head, body) = asked else { panic!("{asked:?}") };
        assert_eq!((head.method, &*body), (Method::Post, &b"{   }"[..]));
        client.wait(head, Ticket::Order(1), Instant::ZERO);
        assert_eq!(client.deadline(), Instant::ZERO + ORDER_LIMIT);
        let response = Response::ok("text/plain", Vec::new());
        let next = client.waits_for().map(|(head, _)| head.clone());
        client.answer(&response, next.as_ref(), Instant::ZERO);
        let asked = client.progress(Instant::ZERO, &SITE);
        assert!(matches!(asked, Progress::Asks(..)), "{asked:?}");
    }
}

/// A socket of which the test gives and takes bytes.
#[derive(Debug, Default)]
struct Wire {
    sent: VecDeque<u8>,
    taken: Vec<u8>,
    /// Bytes that the client takes before it stalls.
    room: usize,
    closed: bool,
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.sent.read(into)? {
            0 if !self.closed => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room);
        self.room -= count;
        self.taken.extend_from_slice(&bytes[..count]);
        if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn client(sent: &[u8], room: usize) -> Connection<Wire> {
    let wire = Wire { sent: sent.iter().copied().collect(), room, ..Wire::default() };
    Connection::new(wire, Instant::ZERO)
}

const SHARED: Ticket = Ticket::Shared(Subject::Status);

const ASKED: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Requests that are sent together are answered one after another, and an answer that the client takes slowly comes
/// whole.
#[test]
fn a_connection_takes_turns() {
    let mut client = client(&[ASKED, ASKED].concat(), 10);
    let now = Instant::ZERO;
    let response = Response::ok("text/plain", b"body".to_vec());
    for _ in 0..2 {
        let Progress::Asks(head, _) = client.progress(now, &SITE) else { panic!("{client:?}") };
        client.wait(head.clone(), SHARED, now);
        assert!(matches!(client.progress(now, &SITE), Progress::Waits));
        assert_eq!(client.waits_for(), Some((&head, SHARED)));
        client.answer(&response, Some(&head), now);
        assert!(matches!(client.progress(now, &SITE), Progress::Waits), "it stalls");
        client.stream.room = 4_096;
    }
    assert!(matches!(client.progress(now, &SITE), Progress::Waits));
    let taken = String::from_utf8(client.stream.taken.clone()).unwrap();
    assert_eq!(taken.matches("HTTP/1.1 200 OK\r\n").count(), 2);
    assert_eq!(taken.matches("\r\nContent-Length: 4\r\n").count(), 2);
    assert!(taken.ends_with("\r\n\r\nbody"), "{taken}");
    client.stream.closed = true;
    assert!(matches!(client.progress(now, &SITE), Progress::Over));
}

/// HEAD has the fields of GET and no body.
#[test]
fn a_head_has_no_body() {
    let mut client = client(b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 4_096);
    let Progress::Asks(head, _) = client.progress(Instant::ZERO, &SITE) else {
        panic!("{client:?}")
    };
    client.answer(&Response::ok("text/plain", b"body".to_vec()), Some(&head), Instant::ZERO);
    assert!(matches!(client.progress(Instant::ZERO, &SITE), Progress::Waits));
    let taken = String::from_utf8(client.stream.taken).unwrap();
    assert!(taken.contains("\r\nContent-Length: 4\r\n") && taken.ends_with("\r\n\r\n"), "{taken}");
}

/// A head that is too long or too slow, an answer that does not come and one that is not taken end at their limits; a
/// byte that trickles in does not move the limit.
#[test]
fn everything_that_waits_has_a_limit() {
    let status = |client: &Connection<Wire>| {
        String::from_utf8_lossy(&client.stream.taken).split(' ').nth(1).unwrap_or("").to_owned()
    };
    let mut long = client(&[b"GET / HTTP/1.1\r\nX: ", &[b'x'; HEAD_MAX][..]].concat(), 4_096);
    assert!(matches!(long.progress(Instant::ZERO, &SITE), Progress::Over));
    assert_eq!(status(&long), "431");

    let mut slow = client(b"GET / HT", 4_096);
    assert!(matches!(slow.progress(Instant::ZERO, &SITE), Progress::Waits));
    let late = slow.deadline();
    assert_eq!(late, Instant::ZERO + Duration::from_secs(10));
    slow.stream.sent.push_back(b'T');
    assert!(matches!(
        slow.progress(Instant::ZERO + Duration::from_secs(5), &SITE),
        Progress::Waits
    ));
    assert_eq!(slow.deadline(), late);
    assert!(!slow.expire(late));
    assert!(matches!(slow.progress(late, &SITE), Progress::Over));
    assert_eq!(status(&slow), "408");

    let mut waits = client(ASKED, 4_096);
    let Progress::Asks(head, _) = waits.progress(Instant::ZERO, &SITE) else { panic!("{waits:?}") };
    waits.wait(head, SHARED, Instant::ZERO);
    assert_eq!(waits.deadline(), Instant::ZERO + ANSWER_LIMIT);
    assert!(!waits.expire(waits.deadline()));
    assert!(matches!(waits.progress(Instant::ZERO, &SITE), Progress::Over));
    assert_eq!(status(&waits), "503");

    let mut stalls = client(ASKED, 3);
    let Progress::Asks(head, _) = stalls.progress(Instant::ZERO, &SITE) else {
        panic!("{stalls:?}")
    };
    stalls.answer(&Response::ok("text/plain", Vec::new()), Some(&head), Instant::ZERO);
    assert!(matches!(stalls.progress(Instant::ZERO, &SITE), Progress::Waits));
    assert_eq!(stalls.idle_since(), None);
    assert_eq!(stalls.deadline(), Instant::ZERO + Duration::from_secs(30));
    assert!(stalls.expire(stalls.deadline()));

    let mut idle = client(b"", 0);
    assert!(matches!(idle.progress(Instant::ZERO, &SITE), Progress::Waits));
    assert_eq!(idle.deadline(), Instant::ZERO + Duration::from_secs(75));
    assert!(idle.idle_since().is_some() && idle.expire(idle.deadline()));
}

/// Requests of a second beyond the limit are refused.
#[test]
fn requests_of_a_second_are_bounded() {
    let mut budget = Budget::default();
    for second in 1..3 {
        let at = |millis: u64| Instant::ZERO + Duration::from_millis(second * 1_000 + millis % 999);
        let taken = (0..1_000).filter(|&one| budget.take(at(one))).count();
        assert_eq!(taken, REQUESTS_MAX as usize);
    }
}

/// An event loop that has not beaten for too long is failing, and why is said.
#[test]
fn a_stuck_loop_is_failing() {
    let alive = serde_json::to_value(Health::of_loop(BEAT_AGE_MAX)).unwrap();
    assert_eq!(alive["status"], "ok", "{alive}");
    let stuck = Health::of_loop(BEAT_AGE_MAX + Duration::from_millis(1));
    let stuck = serde_json::to_value(stuck).unwrap();
    assert_eq!(stuck["status"], "failing", "{stuck}");
    assert!(stuck["checks"][0]["why"].as_str().unwrap().contains("5.001 s"), "{stuck}");
}
