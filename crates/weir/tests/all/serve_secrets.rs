//! Secrets are planted wherever a gateway has one, and looked for in everything that it writes.

use crate::gateway::chap::Proof;
use crate::gateway::initiator::Login;
use crate::gateway::nbd::{Client, STARTTLS};
use crate::gateway::{Gateway, ONE_DISK, configure, folder, weir};
use crate::serve_nbd::{CERTIFICATE, KEY};
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::{Read, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What hosts prove; in the configuration.
const HOST: Proof = Proof::of("host", "planted-secret-of-the-host");
/// What the gateway proves to hosts; in a file.
const GATE: (&str, &str) = ("gate", "planted-secret-of-the-gate");
/// What the gateway proves to its upstream; in a file.
const FRONT: (&str, &str) = ("front", "planted-secret-of-the-front");
/// What the upstream proves to the gateway; in the configuration.
const ARRAY: (&str, &str) = ("array", "planted-secret-of-the-array");
/// In every one of the four, and in every wrong one.
const PLANTED: &str = "planted-secret";

/// Writes a file that only its owner may read.
fn keep(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).unwrap();
    fs::set_permissions(folder.join(name), Permissions::from_mode(0o600)).unwrap();
}

/// The files that have the secrets; the only ones that may.
const KEPT: [&str; 5] = ["weir.toml", "bad.toml", "gate.secret", "front.secret", "key.pem"];

/// The upstream, which asks for the account `front` and proves itself as `array`.
fn behind(test: &str) -> Gateway {
    let account = |(name, secret)| format!("[[account]]\nname = {name:?}\nsecret = {secret:?}\n");
    let accounts = [FRONT, ARRAY].map(account).concat();
    let config = format!("{accounts}{ONE_DISK}accounts = [\"front\"]\nmutual = \"array\"\n");
    Gateway::start_with_log(&folder(test), &config, &[], "trace")
}

/// A gateway in front of it that has all secrets.
fn in_front(folder: &Path, behind: &Gateway) -> String {
    keep(folder, "gate.secret", GATE.1);
    keep(folder, "front.secret", FRONT.1);
    keep(folder, "key.pem", KEY);
    fs::write(folder.join("cert.pem"), CERTIFICATE).unwrap();
    let (host, array, portal) = (HOST.secret, ARRAY.1, behind.portal);
    format!(
        r#"
[control]
socket = "c.sock"
[nbd]
listen = ["127.0.0.1:0"]
exports = {{ disk = "disk" }}
tls = "allowed"
certificate = "cert.pem"
key = "key.pem"
[discovery]
accounts = ["host"]
[[account]]
name = "host"
secret = "{host}"
[[account]]
name = "gate"
secret_file = "gate.secret"
[[account]]
name = "front"
secret_file = "front.secret"
[[account]]
name = "array"
secret = "{array}"
[[upstream]]
name = "array"
target = "iqn.2026-11.org.example:disk"
portals = ["{portal}"]
account = "front"
mutual = "array"
[[volume]]
name = "disk"
upstream = "array"
[[target]]
name = "iqn.2026-11.org.example:disk"
luns = {{ 0 = "disk" }}
accounts = ["host"]
mutual = "gate"
"#
    )
}

/// Starts the gateway with the finest log, a recording, and without a limit for core dumps.
fn start(folder: &Path, config: &str) -> Gateway {
    configure(folder, config);
    let mut command = Command::new("sh");
    let script = "ulimit -c unlimited; exec \"$0\" \"$@\"";
    command.current_dir(folder).args(["-c", script, env!("CARGO_BIN_EXE_weir"), "serve"]);
    command.args(["weir.toml", "--listen", "127.0.0.1:0", "--json", "--record", "recording"]);
    command.env("WEIR_LOG", "trace");
    Gateway::launch(folder, command)
}

/// How a secret may look: as text, in hexadecimal, and as the numbers of its bytes.
fn forms(secret: &[u8]) -> [Vec<u8>; 3] {
    let hex = secret.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let numbers = format!("{secret:?}");
    let numbers = numbers.trim_matches(['[', ']']).to_owned();
    [secret.to_vec(), hex.into_bytes(), numbers.into_bytes()]
}

/// The secret in `bytes`, in letters of either case, if one is there.
fn found(bytes: &[u8]) -> Option<String> {
    // Each byte is a character.
    let text = |bytes: &[u8]| -> String {
        bytes.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect()
    };
    let lines = KEY.lines().filter(|line| !line.starts_with("-----"));
    let secrets = lines.map(str::as_bytes).chain([PLANTED.as_bytes(), &SCALAR]);
    let bytes = text(bytes);
    secrets.flat_map(forms).map(|form| text(&form)).find(|form| bytes.contains(form))
}

/// The private number of [`KEY`], as the program has it in memory: the first bytes.
const SCALAR: [u8; 12] = [0x35, 0x99, 0xe9, 0x90, 0xca, 0x13, 0x1e, 0x37, 0x61, 0xe3, 0xd3, 0x8b];

/// What a command of the program prints, which must be something and have no secret.
fn printed(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = weir(folder, arguments).output().unwrap();
    let bytes = [output.stdout, output.stderr].concat();
    assert!(!bytes.is_empty(), "{arguments:?}");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert_eq!(found(&bytes), None, "{arguments:?}: {text}");
    (output.status.code(), text)
}

/// No file of a folder has a secret but those that were given one.
fn nothing_is_left(folder: &Path) {
    let mut read = 0;
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file()
            && !KEPT.iter().any(|&kept| entry.file_name() == kept)
        {
            // A volume has what hosts wrote.
            let mut bytes = Vec::new();
            fs::File::open(entry.path()).unwrap().take(16 << 20).read_to_end(&mut bytes).unwrap();
            assert_eq!(found(&bytes), None, "{}", entry.path().display());
            read += bytes.len();
        }
    }
    assert!(read > 1_000, "there are a log and a recording: {read} bytes");
}

/// Logs in with the right secret and with wrong ones, and tries TLS without a handshake.
fn use_secrets(gateway: &Gateway) {
    let mut session = Proof { mutual: Some(GATE), ..HOST }
        .connect(&Login::of("host"), gateway.portal)
        .unwrap()
        .ready();
    session.write(0, &[1; 4096]);
    let wrong = Proof::of("host", "planted-secret that is wrong");
    assert_eq!(wrong.connect(&Login::of("host"), gateway.portal).unwrap_err(), 0x0201);
    let other = Proof::of("array", ARRAY.1);
    assert_eq!(other.connect(&Login::of("host"), gateway.portal).unwrap_err(), 0x0201);
    let mut client = Client::tcp(gateway.nbd_address());
    client.option(STARTTLS, &[]);
    client.option_reply().unwrap();
    client.stream.write_all(&[0x55; 64]).unwrap();
    let _ = client.stream.read_to_end(&mut Vec::new());
    session.ping();
}

/// Whatever the gateway and its commands write while secrets are used, right and wrong, has none of them: the log at its
/// finest level, a recording, answers of the control socket, effective values, and messages about configurations.
#[test]
fn no_output_has_a_secret() {
    let mut behind = behind("planted-behind");
    let folder = folder("planted");
    let config = in_front(&folder, &behind);
    let mut gateway = start(&folder, &config);
    use_secrets(&gateway);
    for command in [&["status"][..], &["path", "list"], &["volume", "status"]] {
        for json in [&[][..], &["--json"]] {
            let arguments = [command, &["--socket", "c.sock"], json].concat();
            assert_eq!(printed(&folder, &arguments).0, Some(0), "{arguments:?}");
        }
    }
    let check = ["config", "check", "--file-only", "--json"];
    assert_eq!(printed(&folder, &[&check[..], &["weir.toml"]].concat()).0, Some(0));
    let (code, shown) = printed(&folder, &["config", "show", "weir.toml"]);
    assert!(code == Some(0) && shown.contains("gate.secret"), "{shown}");
    assert_eq!(printed(&folder, &["config", "show", "weir.toml", "--json"]).0, Some(0));
    let secret = format!("secret = \"{}\"", HOST.secret);
    for (from, to, problem) in [
        (&*secret, "secret = \"planted-secret", "syntax"),
        (&*secret, "secret = planted-secret", "syntax"),
        (&*secret, "secrte = \"planted-secret-of-the-host\"", "unknown-key"),
        (&*secret, "secret = [\"planted-secret-of-the-host\"]", "wrong-type"),
        (&*secret, &format!("secret = \"planted-secret{}\"", "x".repeat(255)), "out-of-range"),
        (&*secret, &format!("{secret}\nsecret_file = \"gate.secret\""), "conflict"),
        (&*secret, "secret_file = \"planted\"", "unreadable"),
        ("\"cert.pem\"", "\"key.pem\"", ""),
        ("\"key.pem\"", "\"cert.pem\"", ""),
    ] {
        assert!(config.contains(from), "{from}");
        keep(&folder, "bad.toml", &config.replacen(from, to, 1));
        let report = printed(&folder, &[&check[..], &["bad.toml"]].concat()).1;
        assert!(report.contains(problem), "{to}: {report}");
        printed(&folder, &["config", "check", "bad.toml"]);
        let serve = ["serve", "bad.toml", "--listen", "127.0.0.1:0"];
        assert_ne!(printed(&folder, &serve).0, Some(0), "{to}");
        if !problem.is_empty() {
            gateway.refuse_reload(&config.replacen(from, to, 1), &[problem]);
        }
    }
    // The upstream refuses a wrong secret.
    let wrong = config.replacen("front.secret", "gate.secret", 1);
    let wrong = wrong.replacen("portals =", "connect_timeout = \"1s\"\nportals =", 1);
    keep(&folder, "bad.toml", &wrong);
    let (code, told) = printed(&folder, &["serve", "bad.toml", "--listen", "127.0.0.1:0"]);
    assert!(code == Some(7) && told.contains("authentication failure"), "{code:?}: {told}");
    gateway.stop();
    nothing_is_left(&folder);
    behind.stop();
    nothing_is_left(&behind.folder);
}

/// A gateway that has secrets leaves no core dump, whatever limit it was started with; also if a reload gave it the
/// first one.
#[test]
fn no_core_dump_has_a_secret() {
    let behind = behind("dump-behind");
    let folder = folder("dump");
    let config = in_front(&folder, &behind);
    let mut gateway = start(&folder, &config);
    use_secrets(&gateway);
    assert!(!gateway.abort(), "a core dump was written");
    nothing_is_left(&folder);
    let mut gateway = start(&folder, ONE_DISK);
    let account = format!("[[account]]\nname = \"host\"\nsecret = {:?}\n", HOST.secret);
    gateway.reload(&format!("{account}{ONE_DISK}accounts = [\"host\"]\n"));
    assert!(!gateway.abort(), "a core dump was written after a reload");
    nothing_is_left(&folder);
}
