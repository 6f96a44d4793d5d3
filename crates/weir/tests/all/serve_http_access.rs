//! Who may do what over HTTP: tokens, certificates, roles, origins, and what a reload changes.

use crate::gateway::control::controlled;
use crate::gateway::http::{Answered, JSON, say};
use crate::gateway::schema;
use crate::gateway::{Gateway, folder, weir};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// Makes a token with `weir api token`.
fn token(folder: &Path, name: &str, role: &str) -> String {
    let arguments = ["api", "token", name, "--role", role, "--file", "tokens"];
    let made = weir(folder, &arguments).output().unwrap();
    assert_eq!(made.status.code(), Some(0), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// An authority whose certificates a gateway and its clients trust.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, in PEM.
type Identity = (String, String);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for this name, and for 127.0.0.1.
    fn issue(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::from(Ipv4Addr::LOCALHOST)));
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Puts a certificate for a gateway into its folder.
    fn install(&self, folder: &Path) {
        let (certificate, key) = self.issue("gw.example");
        fs::write(folder.join("cert.pem"), certificate).unwrap();
        write_secret(&folder.join("key.pem"), &key);
        fs::write(folder.join("ca.pem"), &self.pem).unwrap();
    }

    /// A connection over TLS to a gateway, with a certificate of the client or without.
    fn connect(
        &self,
        gateway: &Gateway,
        shown: Option<&Identity>,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        // The listener may be on all addresses.
        let stream = TcpStream::connect(("127.0.0.1", gateway.http().port())).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_mins(1))).unwrap();
        StreamOwned::new(session, stream)
    }
}

/// What a client shows.
#[derive(Clone, Copy)]
enum Shows<'a> {
    Nothing,
    Token(&'a str),
    Certificate(&'a Identity),
}

fn ask(stream: &mut (impl Read + Write), what: (&str, &str), shows: Shows<'_>) -> Answered {
    let token = match shows {
        Shows::Token(token) => Some(format!("Authorization: Bearer {token}")),
        _ => None,
    };
    let kind = (what.0 == "POST").then_some(JSON);
    let fields: Vec<_> = token.as_deref().into_iter().chain(kind).collect();
    say(stream, "127.0.0.1", what, &fields, "")
}

/// A route of each kind, and the role that it needs from 0, that of anyone, to 3. The second is refused for a reason that
/// only those learn who may give the order; the last has gone through all checks, too.
const ROUTES: [(&str, &str, usize, u16); 6] = [
    ("GET", "/", 0, 200),
    ("GET", "/healthz", 0, 200),
    ("GET", "/api/v1/status", 1, 200),
    ("GET", "/metrics", 1, 200),
    ("POST", "/api/v1/volumes/disk:retry", 2, 409),
    ("POST", "/api/v1/volumes/disk:quarantine", 3, 409),
];

/// Compares what one client gets from all routes with its role. Who has a name and no role gets 403, others 401.
fn compare(who: &str, role: usize, named: bool, mut ask: impl FnMut((&str, &str)) -> Answered) {
    for (method, path, needed, status) in ROUTES {
        let answered = ask((method, path));
        let wanted = match (role >= needed, named) {
            (true, _) => status,
            (false, true) => 403,
            (false, false) => 401,
        };
        assert_eq!(answered.status, wanted, "{who}: {method} {path}: {answered:?}");
    }
}

/// Every role gets what it may have on every kind of listener, and nothing more.
#[test]
fn roles_routes_and_listeners() {
    let folder = folder("http-roles");
    let roles = ["read", "operate", "admin"];
    let tokens = roles.map(|role| token(&folder, role, role));
    assert_eq!(fs::metadata(folder.join("tokens")).unwrap().permissions().mode() & 0o777, 0o600);
    let stored = fs::read_to_string(folder.join("tokens")).unwrap();
    assert!(tokens.iter().all(|token| !stored.contains(&token[5..])), "{stored}");

    // Loopback: everybody may read.
    let local = "[http]\nlisten = \"127.0.0.1:0\"\ntokens_file = \"tokens\"\n";
    let mut gateway = Gateway::start(&folder, &controlled(local), &[]);
    compare("anyone", 1, false, |what| ask(&mut gateway.http_connection(), what, Shows::Nothing));
    for (index, token) in tokens.iter().enumerate() {
        compare(roles[index], index + 1, true, |what| {
            ask(&mut gateway.http_connection(), what, Shows::Token(token))
        });
    }
    // A wrong token is not no token.
    let wrong = ask(&mut gateway.http_connection(), ("GET", "/healthz"), Shows::Token("weir_0"));
    assert_eq!((wrong.status, &wrong.json()["code"]), (401, &"wrong_token".into()));
    gateway.logged(&["order over HTTP", "user=\"operate\"", "role=\"operate\"", "VolumeRetry"]);
    assert!(tokens.iter().all(|token| !gateway.log().contains(&token[5..])));
    gateway.stop();

    // The Unix socket: the kernel has said who it is.
    let unix = "[http]\nlisten = \"unix:h.sock\"\n";
    let mut gateway = Gateway::start(&folder, &controlled(unix), &[]);
    let socket = gateway.folder.join("h.sock");
    compare("owner", 3, true, |what| {
        ask(&mut UnixStream::connect(&socket).unwrap(), what, Shows::Nothing)
    });
    gateway.stop();

    // All addresses: TLS, and a proof for everything.
    let (authority, other) = (Authority::new(), Authority::new());
    authority.install(&folder);
    let mut users = fs::read_to_string(folder.join("tokens")).unwrap();
    users.push_str("alice operate certificate:alice.example\n");
    write_secret(&folder.join("tokens"), &users);
    let remote = "[http]\nlisten = \"0.0.0.0:0\"\ntokens_file = \"tokens\"\n\
                  certificate = \"cert.pem\"\nkey = \"key.pem\"\nclient_ca = \"ca.pem\"\n";
    let mut gateway = Gateway::start(&folder, &controlled(remote), &[]);
    assert!(gateway.http.as_deref().unwrap().starts_with("https://"), "{:?}", gateway.http);
    let (alice, bob) = (authority.issue("alice.example"), authority.issue("bob.example"));
    let mallory = other.issue("alice.example");
    let over = |shows: Shows<'_>, what: (&str, &str)| {
        let shown = match shows {
            Shows::Certificate(shown) => Some(shown),
            _ => None,
        };
        ask(&mut authority.connect(&gateway, shown), what, shows)
    };
    compare("anyone", 0, false, |what| over(Shows::Nothing, what));
    compare("admin", 3, true, |what| over(Shows::Token(&tokens[2]), what));
    compare("alice", 2, true, |what| over(Shows::Certificate(&alice), what));
    compare("bob", 1, true, |what| over(Shows::Certificate(&bob), what));
    let mut stranger = authority.connect(&gateway, Some(&mallory));
    let refused = stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").and_then(|()| {
        stranger.flush()?;
        stranger.read(&mut [0; 64])
    });
    assert!(refused.is_err(), "a certificate of another authority: {refused:?}");
    let mut clear = TcpStream::connect(("127.0.0.1", gateway.http().port())).unwrap();
    clear.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _: io::Result<_> = clear.read_to_end(&mut said);
    assert!(!String::from_utf8_lossy(&said).contains("HTTP"), "{said:?}");
    gateway.stop();
}

/// Ten wrong tokens of a minute from an address, and none from there is looked at; who needs no token is answered.
#[test]
fn guesses_are_counted() {
    let folder = folder("http-guesses");
    let token = token(&folder, "ops", "operate");
    let config = "[http]\nlisten = \"127.0.0.1:0\"\ntokens_file = \"tokens\"\n";
    let mut gateway = Gateway::start(&folder, &controlled(config), &[]);
    let good = || ask(&mut gateway.http_connection(), ("GET", "/healthz"), Shows::Token(&token));
    assert_eq!(good().status, 200);
    let guess = || ask(&mut gateway.http_connection(), ("GET", "/healthz"), Shows::Token("weir_1"));
    // The minute may end meanwhile: then there are ten more.
    let refused = (0..21).map(|_| guess()).find(|answered| answered.status != 401).unwrap();
    assert_eq!((refused.status, &refused.json()["code"]), (429, &"too_many_guesses".into()));
    assert!(refused.head.contains("Retry-After: 60"), "{refused:?}");
    assert_eq!(gateway.http_get("/healthz").status, 200);
    gateway.stop();
}

/// A reload takes and gives tokens and certificates, for connections that exist, too; one whose files cannot be used
/// changes nothing.
#[test]
fn a_reload_changes_who_may_do_what() {
    let folder = folder("http-reload");
    let old = token(&folder, "old", "admin");
    let (first, second) = (Authority::new(), Authority::new());
    first.install(&folder);
    let config = controlled(
        "[http]\nlisten = \"127.0.0.1:0\"\ntokens_file = \"tokens\"\n\
         certificate = \"cert.pem\"\nkey = \"key.pem\"\n",
    );
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let status = |authority: &Authority, token: &str| {
        let mut stream = authority.connect(&gateway, None);
        ask(&mut stream, ("POST", "/api/v1/volumes/disk:quarantine"), Shows::Token(token)).status
    };
    assert_eq!(status(&first, &old), 409);
    let mut kept = first.connect(&gateway, None);
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(kept.read(&mut [0; 4_096]).unwrap() > 0);

    // Over HTTP itself: the answer comes before the connection ends.
    write_secret(&folder.join("tokens"), "");
    let new = token(&folder, "new", "admin");
    second.install(&folder);
    let mut stream = first.connect(&gateway, None);
    let reloaded = ask(&mut stream, ("POST", "/api/v1/config:reload"), Shows::Token(&old));
    assert_eq!((reloaded.status, reloaded.json()["dry_run"].as_bool()), (200, Some(false)));
    let ended = kept.read_to_end(&mut Vec::new());
    let waits = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    assert!(!ended.as_ref().is_err_and(waits), "it was of the old certificate: {ended:?}");
    assert_eq!((status(&second, &old), status(&second, &new)), (401, 409));

    fs::write(folder.join("cert.pem"), "no certificate").unwrap();
    let mut stream = second.connect(&gateway, None);
    let refused = ask(&mut stream, ("POST", "/api/v1/config:reload"), Shows::Token(&new));
    assert_eq!((refused.status, &refused.json()["code"]), (422, &"invalid".into()), "{refused:?}");
    assert!(refused.json()["detail"].as_str().unwrap().contains("cert.pem"), "{refused:?}");
    assert_eq!(status(&second, &new), 409);
    write_secret(&folder.join("tokens"), "new root sha256:00\n");
    gateway.refuse_reload(&config, &["tokens", "`root` is no role"]);
    assert_eq!(status(&second, &new), 409);
    gateway.stop();
}

/// Orders do what those of the control socket do, say what is wrong in the same words, and are in the log with their
/// user.
#[test]
fn orders_are_carried_out() {
    let folder = folder("http-orders");
    let token = token(&folder, "ops", "admin");
    let more = "[[volume]]\nname = \"logged\"\nfile = \"logged.img\"\nsize = \"64MiB\"\nlog = \"l.log\"\n\
                log_size = \"32MiB\"\n[http]\nlisten = \"127.0.0.1:0\"\ntokens_file = \"tokens\"\n";
    let config = controlled(more)
        .replace("luns = { 0 = \"disk\" }", "luns = { 0 = \"disk\", 1 = \"logged\" }");
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let document = gateway.http_get("/api/v1/openapi.json").json();
    let schema_of = |path: &str, status: &str| {
        let answer = &document["paths"][path]["post"]["responses"][status];
        answer["content"]["application/json"]["schema"].clone()
    };
    let order = |path: &str, body: &str| gateway.http_order(path, &token, body);
    let done = |path: &str, pattern: &str, body: &str| {
        let answered = order(path, body);
        assert_eq!(answered.status, 200, "{path}: {answered:?}");
        schema::check(&document, &schema_of(pattern, "200"), &answered.json()).unwrap();
        answered.json()
    };
    let path = "/api/v1/backends/disk/paths/0";
    let last = order(&format!("{path}:disable"), "");
    assert_eq!((last.status, &last.json()["code"]), (409, &"last_path".into()));
    assert_eq!(gateway.http_get("/api/v1/paths").json()["paths"][0]["changes"], 0);
    let pattern = "/api/v1/backends/{name}/paths/{number}";
    let disabled =
        done(&format!("{path}:disable"), &format!("{pattern}:disable"), "{\"force\":true}");
    assert_eq!(disabled["paths"][0]["state"], "disabled");
    gateway.logged(&[
        "order over HTTP",
        "user=\"ops\"",
        "role=\"admin\"",
        "peer=127.0.0.1:",
        "PathDisable",
    ]);
    gateway.logged(&["order to paths", "over=\"HTTP\"", "Disable"]);
    let enabled = done(&format!("{path}:enable"), &format!("{pattern}:enable"), "{}");
    assert_ne!(enabled["paths"][0]["state"], "disabled");
    done("/api/v1/backends/disk:failback", "/api/v1/backends/{name}:failback", "");
    let volume = |verb: &str| {
        let (path, pattern) = ("/api/v1/volumes/logged", "/api/v1/volumes/{name}");
        done(&format!("{path}:{verb}"), &format!("{pattern}:{verb}"), "")
    };
    for verb in ["drain", "resume", "retry"] {
        assert_eq!(volume(verb)["name"], "logged");
    }
    for (path, body, status, code) in [
        ("/api/v1/volumes/nothing:drain", "", 404, "unknown_volume"),
        ("/api/v1/volumes/disk:drain", "", 409, "no_log"),
        ("/api/v1/volumes/logged:quarantine", "", 409, "nothing_lost"),
        ("/api/v1/backends/nothing:failback", "", 404, "unknown_backend"),
        ("/api/v1/backends/disk/paths/7:enable", "", 404, "unknown_path"),
        ("/api/v1/backends/disk/paths/x:enable", "", 404, "unknown_name"),
        ("/api/v1/stop", "{\"now\":true}", 400, "not_a_request"),
        ("/api/v1/stop", "[]", 400, "not_a_request"),
        ("/api/v1/stop", "{", 400, "not_json"),
        ("/api/v1/stop?x", "", 400, "parameters"),
    ] {
        let refused = order(path, body);
        assert_eq!((refused.status, &refused.json()["code"]), (status, &code.into()), "{path}");
    }
    let dry = done("/api/v1/config:reload", "/api/v1/config:reload", "{\"dry_run\":true}");
    assert_eq!(dry["dry_run"], true);
    done("/api/v1/stop", "/api/v1/stop", "");
    assert_eq!(gateway.exit_code(), Some(0));
}

/// A page of another origin gives no order, even with a token: whatever it can have a browser send is refused before
/// the gateway looks at it.
#[test]
fn pages_of_other_origins_give_no_orders() {
    let folder = folder("http-origins");
    let token = token(&folder, "ops", "admin");
    let config = "[http]\nlisten = \"127.0.0.1:0\"\ntokens_file = \"tokens\"\n";
    let mut gateway = Gateway::start(&folder, &controlled(config), &[]);
    let own = gateway.http();
    let bearer = format!("Authorization: Bearer {token}");
    for (host, fields, status) in [
        (own.to_string(), &[JSON, "Origin: http://evil.example"][..], 403),
        (own.to_string(), &[JSON, "Origin: null"], 403),
        (own.to_string(), &[JSON, "Sec-Fetch-Site: cross-site"], 403),
        (own.to_string(), &[JSON, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate"], 403),
        ("evil.example".to_owned(), &[JSON], 421),
        (own.to_string(), &["Content-Type: text/plain"], 415),
        (own.to_string(), &["Content-Type: multipart/form-data; boundary=x"], 415),
        (own.to_string(), &[], 415),
    ] {
        let fields = [fields, &[&bearer]].concat();
        let mut stream = gateway.http_connection();
        let refused = say(&mut stream, &host, ("POST", "/api/v1/stop"), &fields, "");
        assert_eq!(refused.status, status, "{host} {fields:?}: {refused:?}");
        assert!(!refused.head.contains("Access-Control"), "{refused:?}");
    }
    // The question of a browser whether it may send an order.
    let asked = gateway.http_request("OPTIONS", "/api/v1/stop", &["Origin: http://evil.example"]);
    assert_eq!(asked.status, 403);
    let asked = gateway.http_request("OPTIONS", "/api/v1/stop", &[]);
    assert!(asked.status == 405 && asked.head.contains("Allow: POST"), "{asked:?}");
    assert_eq!(gateway.count("order over HTTP"), 0);
    let origin = format!("Origin: http://{own}");
    let fields = [JSON, &origin, "Sec-Fetch-Site: same-origin", &bearer];
    let mut stream = gateway.http_connection();
    let done = say(&mut stream, &own.to_string(), ("POST", "/api/v1/stop"), &fields, "");
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(gateway.exit_code(), Some(0));
}

/// Tokens are made once for a name, in a file that only its owner may access; the program says what is wrong.
#[test]
fn tokens_are_made() {
    let folder = folder("http-token");
    let make = |name: &str| {
        let arguments = ["api", "token", name, "--role", "read", "--file", "tokens"];
        let made = weir(&folder, &arguments).output().unwrap();
        (made.status.code(), String::from_utf8(made.stderr).unwrap())
    };
    assert_eq!(make("one").0, Some(0));
    let (code, told) = make("one");
    assert!(code == Some(3) && told.contains("`one` has a line"), "{told}");
    assert_eq!(make("a b").0, Some(2));
    fs::set_permissions(folder.join("tokens"), Permissions::from_mode(0o644)).unwrap();
    let (code, told) = make("two");
    assert!(code == Some(7) && told.contains("0644"), "{told}");
    let config = "[http]\ntokens_file = \"tokens\"\n";
    crate::gateway::configure(&folder, &controlled(config));
    let checked = weir(&folder, &["config", "check", "weir.toml"]).output().unwrap();
    let told = String::from_utf8(checked.stderr).unwrap();
    assert!(checked.status.code() == Some(3) && told.contains("chmod go="), "{told}");
    write_secret(&folder.join("tokens"), "one read\n");
    assert!(make("two").1.contains("line 1"));
}
