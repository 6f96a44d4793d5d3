//! Who sees what: accounts, initiators and masked units.

use crate::gateway::chap::{Proof, discover, send_targets};
use crate::gateway::commands::{NOT_SUPPORTED_UNIT, READY, REGISTER, Reserve};
use crate::gateway::initiator::{GOOD, Login, Transfer, WAS_RESET, read16, write16};
use crate::gateway::{Gateway, ONE_DISK, configure, folder};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// One target with a unit for everyone and one for the host `friend`.
const MASKED: &str = r#"
[[volume]]
name = "open"
file = "open.img"
size = "1MiB"
[[volume]]
name = "mine"
file = "mine.img"
size = "1MiB"
initiators = ["iqn.2026-11.org.example.host:friend"]
[[target]]
name = "iqn.2026-11.org.example:disk"
luns = { 0 = "open", 7 = "mine" }
"#;

const ALICE: Proof = Proof::of("alice", "alice has a secret");
const BOB: Proof = Proof::of("bob", "bob has another one");
const GATE: (&str, &str) = ("gate", "what the gate knows");

/// `ONE_DISK` for the account `alice`; the gateway proves itself as `gate`. Discovery is for `bob`.
fn with_accounts() -> String {
    let account = |name, secret| format!("[[account]]\nname = {name:?}\nsecret = {secret:?}\n");
    let accounts = [(ALICE.name, ALICE.secret), (BOB.name, BOB.secret), GATE];
    let accounts = accounts.map(|(name, secret)| account(name, secret)).concat();
    let discovery = "[discovery]\naccounts = [\"bob\"]\n";
    format!("{discovery}{accounts}{ONE_DISK}accounts = [\"alice\"]\nmutual = \"gate\"\n")
}

/// Everything that the gateway makes is for its user alone, whatever the umask: images, state, logs, the recording and
/// the folder of the control socket.
#[test]
fn files_are_for_their_owner_alone() {
    let folder = folder("modes");
    let config =
        ONE_DISK.replacen("size = ", "log = \"disk.log\"\nlog_size = \"32MiB\"\nsize = ", 1);
    let config = format!("{config}[control]\nsocket = \"run/weir.socket\"\n");
    let known = ["weir.toml", "log"];
    for umask in ["000", "022", "077"] {
        configure(&folder, &config);
        let mut command = Command::new("sh");
        let script = format!("umask {umask}; exec \"$0\" \"$@\"");
        command.current_dir(&folder).args(["-c", &script, env!("CARGO_BIN_EXE_weir"), "serve"]);
        command.args(["weir.toml", "--listen", "127.0.0.1:0", "--json", "--record", "recording"]);
        let mut gateway = Gateway::launch(&folder, command);
        let mut session = gateway.session("host");
        session.write(0, &[1; 512]);
        let register = Reserve { action: REGISTER, other: 5, survives: true, ..Reserve::default() };
        assert_eq!(session.reserve(register), GOOD);
        let mut found = Vec::new();
        let mut folders = vec![folder.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
                let (name, metadata) = (entry.file_name(), entry.metadata().unwrap());
                if known.contains(&name.to_str().unwrap()) {
                    continue;
                }
                let mode = metadata.permissions().mode() & 0o777;
                let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
                assert_eq!(mode, expected, "{} under umask {umask}", entry.path().display());
                if metadata.is_dir() {
                    folders.push(entry.path());
                }
                found.push(name);
            }
        }
        assert!(found.len() >= 5, "{found:?}");
        gateway.stop();
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
    }
}

/// A unit that a host may not see is in no list, says of itself that it is not there, and takes no
/// command by its number; the host that may see it has all of that.
#[test]
fn a_masked_unit_is_not_there() {
    let mut gateway = Gateway::start(&folder("masked"), MASKED, &[]);
    let mut friend = gateway.session("friend");
    assert_eq!(friend.luns(), [0, 7]);
    let mut friend = friend.at(7);
    assert_eq!(friend.inquiry(None)[0], 0);
    friend.write(0, &[7; 512]);
    let mut stranger = gateway.session("stranger");
    assert_eq!(stranger.luns(), [0]);
    stranger.lun = 7;
    assert_eq!(stranger.luns(), [0], "whichever unit is asked");
    // SPC-4 section 6.6.2: no device can be here, and its type is not known.
    assert_eq!(stranger.inquiry(None)[0], 0x7f);
    let read = stranger.sense_of(read16(0, 512), Transfer::In(512));
    assert_eq!(read, NOT_SUPPORTED_UNIT);
    let write = stranger.sense_of(write16(0, 512, false), Transfer::Out(vec![8; 512]));
    assert_eq!(write, NOT_SUPPORTED_UNIT);
    // LOGICAL UNIT RESET and ABORT TASK SET: the unit does not exist.
    assert_eq!((stranger.manage(5, 7, u32::MAX), stranger.manage(2, 7, u32::MAX)), (2, 2));
    assert_eq!(friend.read(0, 512), [7; 512], "no reset and no write came through");
    assert_eq!(gateway.stored("mine.img", 0, 512), [7; 512]);
    gateway.stop();
}

/// A target reset by a host that does not see a unit does not reset it.
#[test]
fn a_target_reset_spares_masked_units() {
    let mut gateway = Gateway::start(&folder("masked-reset"), MASKED, &[]);
    let mut friend = gateway.session("friend").at(7);
    let mut stranger = gateway.session("stranger");
    assert_eq!(stranger.manage(6, 0, u32::MAX), 0, "TARGET WARM RESET");
    friend.execute(READY, Transfer::None).good();
    friend.lun = 0;
    assert_eq!(friend.sense_of(READY, Transfer::None), WAS_RESET, "the unit that both see");
    gateway.stop();
}

/// A target with a list of initiators does not exist for others, neither at a login nor in
/// discovery; the log says who was refused.
#[test]
fn a_target_is_hidden() {
    let config = format!("{ONE_DISK}initiators = [\"iqn.2026-11.org.example.host:fri*\"]\n");
    let mut gateway = Gateway::start(&folder("hidden"), &config, &[]);
    assert_eq!(Login::of("stranger").connect(gateway.portal).unwrap_err(), 0x0203);
    gateway.logged(&["login refused", "host:stranger", "does not admit"]);
    assert!(discover(gateway.portal, "stranger").unwrap().is_empty());
    assert_eq!(discover(gateway.portal, "friend").unwrap(), ["iqn.2026-11.org.example:disk"]);
    gateway.session("friend").ping();
    gateway.stop();
}

/// Where accounts are named, the right secret lets in, to a session that works; a wrong one, another
/// account and no proof at all are refused with 0201, and no secret is in the log.
#[test]
fn a_secret_is_needed() {
    let mut gateway = Gateway::start(&folder("secret"), &with_accounts(), &[]);
    let (portal, login) = (gateway.portal, Login::of("host"));
    let mut session = ALICE.connect(&login, portal).unwrap().ready();
    session.write(0, &[1; 4096]);
    assert_eq!(session.read(0, 4096), [1; 4096]);
    let wrong = Proof::of("alice", "alice had a secret");
    assert_eq!(wrong.connect(&login, portal).unwrap_err(), 0x0201);
    gateway.logged(&["login refused", "wrong response for account `alice`"]);
    assert_eq!(BOB.connect(&login, portal).unwrap_err(), 0x0201, "not an account of this target");
    assert_eq!(login.connect(portal).unwrap_err(), 0x0201, "straight past the authentication");
    for (_, secret) in [(ALICE.name, ALICE.secret), (BOB.name, BOB.secret), GATE] {
        assert!(!gateway.log().contains(secret));
    }
    session.ping();
    gateway.stop();
}

/// The gateway proves to a host that asks that it knows the secret of the gateway's account.
#[test]
fn the_gateway_proves_itself() {
    let mut gateway = Gateway::start(&folder("mutual"), &with_accounts(), &[]);
    let mutual = Proof { mutual: Some(GATE), ..ALICE };
    mutual.connect(&Login::of("host"), gateway.portal).unwrap().ready().ping();
    gateway.stop();
}

/// Discovery lists every portal of a target, whichever of them is asked; a wildcard address is given as the
/// address that the host has used (RFC 7143 appendix C).
#[test]
fn discovery_lists_every_portal() {
    let arguments = ["--listen", "127.0.0.2:0", "--listen", "0.0.0.0:0"];
    let mut gateway = Gateway::start(&folder("portals"), ONE_DISK, &arguments);
    let [first, second, any] = gateway.portals[..] else { panic!("three portals are ready") };
    for asked in [first, second, (first.ip(), any.port()).into(), (second.ip(), any.port()).into()]
    {
        let own: SocketAddr = (asked.ip(), any.port()).into();
        let records = format!(
            "TargetName=iqn.2026-11.org.example:disk\0TargetAddress={first},1\0\
             TargetAddress={second},1\0TargetAddress={own},1\0"
        );
        assert_eq!(send_targets(asked, "host").unwrap(), records, "asked at {asked}");
    }
    gateway.stop();
}

/// Discovery with accounts lists nothing without a proof.
#[test]
fn discovery_needs_a_secret() {
    let mut gateway = Gateway::start(&folder("discovery"), &with_accounts(), &[]);
    assert_eq!(discover(gateway.portal, "host").unwrap_err(), 0x0201);
    gateway.stop();
}

/// A target that is served elsewhere sends hosts there; to be sent away often is no guessing, so
/// the other targets stay open to them.
#[test]
fn a_redirect_is_no_failure() {
    let moved = "[[target]]\nname = \"iqn.2026-11.org.example:moved\"\n\
                 redirect = \"192.0.2.1:3260\"\n";
    let mut gateway = Gateway::start(&folder("redirect"), &format!("{ONE_DISK}{moved}"), &[]);
    let login = Login { target: "moved", ..Login::of("host") };
    for _ in 0..8 {
        assert_eq!(login.connect(gateway.portal).unwrap_err(), 0x0101);
    }
    gateway.session("host").ping();
    gateway.stop();
}
