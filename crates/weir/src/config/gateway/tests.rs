use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::source::Source;
use crate::config::{gateway, render};
use std::fmt::Write as _;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_serve::config::{Config, DigestPolicy, Export, Nbd, Redirect, Secret, Where};
mod links;
mod memory;
mod stores;

/// A volume, a target and two accounts that are in use, with more keys in each.
struct Parts {
    top: &'static str,
    volume: &'static str,
    target: &'static str,
}

const NONE: Parts = Parts { top: "", volume: "", target: "" };

impl Parts {
    fn source(&self) -> Source {
        let Self { top, volume, target } = self;
        let accounts = if target.contains("accounts") || top.contains("[discovery]") {
            "[[account]]\nname = \"alice\"\nsecret = \"alice's secret\"\n\
             [[account]]\nname = \"twin\"\nsecret = \"alice's secret\"\n\
             [[account]]\nname = \"gate\"\nsecret = \"the gate's secret\"\n"
        } else {
            ""
        };
        let luns = if target.contains("redirect =") { "" } else { "luns = { 0 = \"d\" }\n" };
        at(
            "nowhere/weir.toml",
            &format!(
                "{top}\n{accounts}[[volume]]\nname = \"d\"\nfile = \"d\"\n{volume}\n\
             [[target]]\nname = \"iqn.2026-11.org.example:d\"\n{luns}{target}\n"
            ),
        )
    }
}

fn at(path: &str, text: &str) -> Source {
    Source::new(path, text.to_owned())
}

fn top(top: &'static str) -> Parts {
    Parts { top, ..NONE }
}

fn volume(volume: &'static str) -> Parts {
    Parts { volume, ..NONE }
}

fn target(target: &'static str) -> Parts {
    Parts { target, ..NONE }
}

fn good(source: &Source) -> Config {
    gateway(source).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}")).checked
}

/// The text that a diagnostic points at.
fn pointed<'a>(source: &'a Source, diagnostic: &Diagnostic) -> &'a str {
    diagnostic.at.as_ref().map_or("", |(span, _)| &source.text[span.clone()])
}

/// One diagnostic of this code at this text, which says what to do, and no other but warnings.
fn check(source: &Source, code: Code, at: &str) {
    let diagnostics = gateway(source).map(|_| ()).unwrap_err();
    let diagnostics: Vec<_> =
        diagnostics.iter().filter(|diagnostic| !diagnostic.code.is_warning()).collect();
    assert_eq!(diagnostics.len(), 1, "{}: {diagnostics:?}", source.text);
    assert_eq!(diagnostics[0].code, code, "{}: {diagnostics:?}", source.text);
    assert_eq!(pointed(source, diagnostics[0]), at, "{}", source.text);
    assert!(diagnostics[0].help.is_some(), "{}", source.text);
}

/// The messages of the warnings of a file that is valid.
fn warnings(source: &Source) -> Vec<String> {
    let loaded = gateway(source).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"));
    assert!(
        loaded
            .warnings
            .iter()
            .all(|diagnostic| diagnostic.at.is_some() && diagnostic.help.is_some())
    );
    loaded.warnings.into_iter().map(|diagnostic| diagnostic.message).collect()
}

/// A modelled device of a gateway has one path: a configuration cannot ask for more.
#[test]
fn modelled_devices_have_no_paths() {
    good(&top("[[backend]]\nname = \"m\"\nmodel = \"array-m1\"").source());
    let two = top("[[backend]]\nname = \"m\"\nmodel = \"array-m1\"\npaths = 2").source();
    check(&two, Code::UnknownKey, "paths");
}

/// Flash has all parameters of the model, each with a default of its preset, and room for the volumes on it.
#[test]
fn flash_is_described_in_full() {
    let ssd = |lines: &str| format!("[[backend]]\nname = \"m\"\nmodel = \"ssd-paper\"\n{lines}");
    let model = |text: String| {
        let text: &'static str = text.leak();
        match good(&top(text).source()).backends[0].model {
            weir_model::Model::Ssd(config) => config,
            other => panic!("{other:?}"),
        }
    };
    let paper = weir_model::ssd::Config::paper();
    assert_eq!(model(ssd("")), paper);
    let nvme = ssd("").replace("paper", "nvme");
    assert_eq!(model(nvme), weir_model::ssd::Config::nvme(64 << 30));
    let all = "chips = 8\npages = 64\npage = \"16KiB\"\nspare_permille = 100\nfilled_permille = 900\n\
               register = \"1us\"\nread = \"2us\"\nprogram = \"3us\"\nerase = \"4us\"\npipelined = true\n\
               buffer = 7\ncommand = \"5us\"\n";
    let micros = weir_flow::clock::Duration::from_micros;
    let expected = weir_model::ssd::Config {
        chips: 8,
        blocks: 1_024,
        pages: 64,
        page: 16_384,
        spare_permille: 100,
        filled_permille: 900,
        register: micros(1),
        read: micros(2),
        program: micros(3),
        erase: micros(4),
        pipelined: true,
        buffer: 7,
        command: micros(5),
    };
    assert_eq!(model(ssd(&format!("{all}blocks = 1024"))), expected);
    let sized = model(ssd(&format!("{all}capacity = \"1GiB\"")));
    assert_eq!(sized, expected.with_capacity(1 << 30));
    assert!(sized.capacity() >= 1 << 30);
}

/// What is wrong with flash is reported at its key, and at the device if the volumes on it are too large.
#[test]
fn diagnostics_of_flash() {
    let ssd = |lines: &str| {
        let text = format!("[[backend]]\nname = \"m\"\nmodel = \"ssd-paper\"\n{lines}");
        let text: &'static str = text.leak();
        top(text)
    };
    let cases = [
        ("chips = 0", Code::OutOfRange, "0"),
        ("page = \"4kilo\"", Code::BadUnit, "\"4kilo\""),
        ("erase = \"2m s\"", Code::BadUnit, "\"2m s\""),
        ("pipelined = \"yes\"", Code::WrongType, "\"yes\""),
        ("disks = 8", Code::Conflict, "8"),
        ("chips = 4096\nblocks = 16777216", Code::OutOfRange, "16777216"),
        ("capacity = \"1PiB\"", Code::OutOfRange, "\"1PiB\""),
        ("blocks = 16\nspare_permille = 20", Code::OutOfRange, "20"),
        ("capacity = \"1GiB\"\nblocks = 77", Code::Conflict, "\"1GiB\""),
    ];
    for (lines, code, at) in cases {
        check(&ssd(lines).source(), code, at);
    }
    let two = "[[volume]]\nname = \"e\"\nfile = \"e\"\nsize = \"600MiB\"\nbackend = \"m\"\n";
    let small =
        format!("[[backend]]\nname = \"m\"\nmodel = \"ssd-paper\"\ncapacity = \"1GiB\"\n{two}");
    let small: &'static str = small.leak();
    let on = "size = \"600MiB\"\nbackend = \"m\"";
    let both = Parts { top: small, volume: on, target: "" };
    check(&both.source(), Code::OutOfRange, "\"1GiB\"");
    let one = Parts { top: small, volume: "size = \"300MiB\"\nbackend = \"m\"", target: "" };
    good(&one.source());
}

/// What initiators must prove, in every place where it can be wrong.
#[test]
fn diagnostics_of_authentication() {
    let cases = [
        (target("accounts = [\"alcie\"]"), Code::Dangling, "\"alcie\""),
        (target("accounts = []"), Code::BadValue, "[]"),
        (target("accounts = [\"alice\", \"alice\"]"), Code::Duplicate, "\"alice\""),
        (target("accounts = [\"alice\"]\nmutual = \"gat\""), Code::Dangling, "\"gat\""),
        (target("accounts = [\"alice\"]\nmutual = \"alice\""), Code::Conflict, "\"alice\""),
        (target("accounts = [\"alice\"]\nmutual = \"twin\""), Code::Conflict, "\"twin\""),
        (target("accounts = [\"alice\"]\nmutual = 3"), Code::WrongType, "3"),
        (target("mutual = \"gate\" # accounts"), Code::Conflict, "\"gate\""),
        (top("[discovery]\nmutual = \"gate\""), Code::Conflict, "\"gate\""),
        (top("[discovery]\naccounts = [\"gate\"]\nmutual = \"gate\""), Code::Conflict, "\"gate\""),
        (top("[discovery]\nacounts = [\"gate\"]"), Code::UnknownKey, "acounts"),
        (top("[[account]]\nsecret = \"long enough!\""), Code::MissingKey, "[[account]]"),
        (top("[[account]]\nname = \"a\""), Code::MissingKey, "[[account]]"),
        (
            top("[[account]]\nname = \"a\"\nsecret = \"shortsecret\""),
            Code::OutOfRange,
            "\"shortsecret\"",
        ),
        (top("[[account]]\nname = \"a\"\nsecret = 123456789012"), Code::WrongType, "123456789012"),
        (top("[[account]]\nname = \"a\"\nsecret_file = \"none\""), Code::Unreadable, "\"none\""),
        (
            top("[[account]]\nname = \"a\"\nsecret_file = \"/dev/null\""),
            Code::Unreadable,
            "\"/dev/null\"",
        ),
        (
            top("[[account]]\nname = \"a\"\nsecret = \"long enough!\"\nsecret_file = \"b\""),
            Code::Conflict,
            "\"b\"",
        ),
        (
            top(
                "[[account]]\nname = \"a\"\nsecret = \"long enough!\"\n[[account]]\nname = \"a\"\nsecret = \"long enough!\"",
            ),
            Code::Duplicate,
            "\"a\"",
        ),
    ];
    for (parts, code, at) in cases {
        check(&parts.source(), code, at);
    }
    let long = format!("[[account]]\nname = \"a\"\nsecret = \"{}\"\n", "x".repeat(256));
    let long = format!("{long}{}", NONE.source().text);
    check(&at("weir.toml", &long), Code::OutOfRange, &format!("\"{}\"", "x".repeat(256)));
    let long = format!("[[account]]\nname = \"{}\"\nsecret = \"long enough!\"\n", "x".repeat(256));
    let long = format!("{long}{}", NONE.source().text);
    check(&at("weir.toml", &long), Code::OutOfRange, &format!("\"{}\"", "x".repeat(256)));
}

/// A gateway with one volume on an upstream, with these tables.
fn on_upstream(upstream: &str, volume: &str) -> Source {
    let accounts = "[[account]]\nname = \"alice\"\nsecret = \"alice's secret\"\n\
                    [[account]]\nname = \"twin\"\nsecret = \"alice's secret\"\n";
    let named = upstream.contains("account") || upstream.contains("mutual");
    let accounts = if named { accounts } else { "" };
    at(
        "nowhere/weir.toml",
        &format!(
            "{accounts}[[upstream]]\nname = \"a\"\ntarget = \"iqn.2026-11.org.example:a\"\n{upstream}\n\
             [[volume]]\nname = \"d\"\nupstream = \"a\"\n{volume}\n\
             [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns = {{ 0 = \"d\" }}\n"
        ),
    )
}

/// Upstreams: portals in both forms with their groups, and what may not be said of them or of the volumes
/// on them.
#[test]
fn diagnostics_of_upstreams() {
    let portals = "portals = [\"192.0.2.1:3260\", { address = \"[2001:db8::1]:860\", group = 3 }]";
    let config = good(&on_upstream(&format!("lun = 7\n{portals}"), ""));
    let upstream = &config.upstreams[0];
    assert_eq!((upstream.lun, upstream.max_commands), (7, 128));
    let [one, other] = upstream.portals[..] else { panic!("two portals") };
    assert_eq!((one.address.to_string(), one.group), ("192.0.2.1:3260".to_owned(), 0));
    assert_eq!((other.address.to_string(), other.group), ("[2001:db8::1]:860".to_owned(), 3));
    assert_eq!(config.volumes[0].stores, [Where::Upstream { index: 0, size: None }]);
    assert_eq!(config.volumes[0].state, None);
    for (upstream, code, text) in [
        ("", Code::MissingKey, "[[upstream]]"),
        ("portals = []", Code::BadValue, "[]"),
        ("portals = [3]", Code::WrongType, "3"),
        ("portals = \"192.0.2.1\"", Code::BadValue, "\"192.0.2.1\""),
        ("portals = \"0.0.0.0:3260\"", Code::BadValue, "\"0.0.0.0:3260\""),
        ("portals = \"192.0.2.1:0\"", Code::BadValue, "\"192.0.2.1:0\""),
        ("portals = [\"192.0.2.1:1\", \"192.0.2.1:1\"]", Code::Duplicate, "\"192.0.2.1:1\""),
        ("portals = [{ group = 1 }]", Code::MissingKey, "{ group = 1 }"),
        ("portals = [{ address = \"192.0.2.1:1\", group = 256 }]", Code::BadValue, "256"),
        ("portals = [{ address = \"192.0.2.1:1\", grup = 2 }]", Code::UnknownKey, "grup"),
        ("portals = \"192.0.2.1:1\"\nlun = 16384", Code::OutOfRange, "16384"),
        ("portals = \"192.0.2.1:1\"\naccount = \"bob\"", Code::Dangling, "\"bob\""),
        ("portals = \"192.0.2.1:1\"\nmutual = \"alice\"", Code::Conflict, "\"alice\""),
        (
            "portals = \"192.0.2.1:1\"\naccount = \"alice\"\nmutual = \"twin\"",
            Code::Conflict,
            "\"twin\"",
        ),
        ("portals = \"192.0.2.1:1\"\ninitiator_name = \"me\"", Code::BadValue, "\"me\""),
    ] {
        check(&on_upstream(upstream, ""), code, text);
    }
    for (volume, code, text) in [
        ("file = \"d\"", Code::Conflict, "\"d\""),
        ("size = \"1GiB\"", Code::Conflict, "\"1GiB\""),
        ("io = \"direct\"", Code::Conflict, "\"direct\""),
        ("atomic = true\nstate = \"s\"", Code::Conflict, "true"),
        ("sanitize = true", Code::MissingKey, "true"),
        ("[[volume]]\nname = \"e\"\nupstream = \"a\"", Code::Duplicate, "\"a\""),
        ("[[volume]]\nname = \"e\"\nupstream = \"b\"", Code::Dangling, "\"b\""),
        ("[[volume]]\nname = \"e\"", Code::MissingKey, "[[volume]]"),
    ] {
        check(&on_upstream(portals, volume), code, text);
    }
}

/// An upstream that no volume is on is reported, and is not connected; volumes are on theirs all the same.
#[test]
fn unused_upstreams_are_not_connected() {
    let upstream = |name: &str| {
        format!(
            "portals = \"192.0.2.1:1\"\n[[upstream]]\nname = \"{name}\"\n\
             target = \"iqn.2026-11.org.example:{name}\"\n"
        )
    };
    let three = format!("{}{}portals = \"192.0.2.2:1\"", upstream("b"), upstream("c"));
    let source = on_upstream(&three, "[[volume]]\nname = \"e\"\nupstream = \"c\"");
    let warned = warnings(&source);
    assert_eq!(warned[1..], ["no volume is on upstream `b`: it is not connected"]);
    let config = good(&source);
    let names: Vec<_> = config.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    assert_eq!(names, ["a", "c"]);
    let on = |volume: usize, upstream: usize| config.volumes[volume].is_on(upstream);
    assert!(on(0, 0) && !on(0, 1) && on(1, 1) && !on(1, 0));
}

/// Targets and volumes: who sees them, where they send hosts, what they promise.
#[test]
fn diagnostics_of_targets_and_volumes() {
    let cases = [
        (target("initiators = []"), Code::BadValue, "[]"),
        (target("initiators = [\"host\"]"), Code::BadValue, "\"host\""),
        (target("initiators = \"iqn.2026-13*\""), Code::BadValue, "\"iqn.2026-13*\""),
        (target("initators = \"*\""), Code::UnknownKey, "initators"),
        (target("redirect = \"elsewhere\""), Code::BadValue, "\"elsewhere\""),
        (target("redirect_permanent = false"), Code::Conflict, "false"),
        (target("alias = \"\""), Code::BadValue, "\"\""),
        (volume("initiators = [\"iqn.*.org\"]"), Code::BadValue, "\"iqn.*.org\""),
        (volume("sanitize = true\nread_only = true"), Code::Conflict, "true"),
        (volume("atomic = true\nread_only = true"), Code::Conflict, "true"),
        (volume("removable = 1"), Code::WrongType, "1"),
        (volume("state = \"./d\""), Code::Duplicate, "\"./d\""),
        (volume("state = 7"), Code::WrongType, "7"),
        (volume("[[volume]]\nname = \"e\"\nfile = \"d.state\""), Code::Duplicate, "\"d\""),
        (
            volume("[[volume]]\nname = \"e\"\nfile = \"e\"\nstate = \"x/../d.state\""),
            Code::Duplicate,
            "\"x/../d.state\"",
        ),
        (
            volume("state = \"s\"\n[[volume]]\nname = \"e\"\nfile = \"e\"\nstate = \"s\""),
            Code::Duplicate,
            "\"s\"",
        ),
        (top("[iscsi]\nmax_logins = 0"), Code::OutOfRange, "0"),
        (top("[iscsi]\nheader_digest = \"alowed\""), Code::BadValue, "\"alowed\""),
        (top("[iscsi]\ndata_digest = true"), Code::WrongType, "true"),
    ];
    for (parts, code, at) in cases {
        check(&parts.source(), code, at);
    }
    let text = target("").source().text.replace("luns = { 0 = \"d\" }\n", "");
    let source = at("weir.toml", &text);
    let diagnostics = gateway(&source).unwrap_err();
    assert_eq!(diagnostics[0].message, "`[[target]]` has no `luns`");
    let alias = format!("alias = \"{}\"\n", "x".repeat(256));
    let source = at("weir.toml", &format!("{}{alias}", NONE.source().text));
    check(&source, Code::OutOfRange, &format!("\"{}\"", "x".repeat(256)));
}

/// The NBD front end: where it listens, what it exports, what TLS needs.
#[test]
fn diagnostics_of_nbd() {
    let cases = [
        ("listen = [\"127.0.0.1\"]\nexports.d = \"d\"", Code::BadValue, "\"127.0.0.1\""),
        ("listen = [\"127.0.0.1:3260\"]\nexports.d = \"d\"", Code::Duplicate, "\"127.0.0.1:3260\""),
        ("listen = [\"[::1]:1\", \"[::1]:1\"]\nexports.d = \"d\"", Code::Duplicate, "\"[::1]:1\""),
        ("unix = [\"s\", \"./s\"]\nexports.d = \"d\"", Code::Duplicate, "\"./s\""),
        ("unix = \"s\"", Code::MissingKey, "\"s\""),
        ("unix = \"s\"\nexports = {}", Code::MissingKey, "{}"),
        ("unix = \"s\"\nexports = \"d\"", Code::WrongType, "\"d\""),
        ("unix = \"s\"\nexports = { d = 1 }", Code::WrongType, "1"),
        ("unix = \"s\"\nexports = { x = \"e\" }", Code::Dangling, "\"e\""),
        ("unix = \"s\"\nexports = { \"a\\nb\" = \"d\" }", Code::BadValue, "\"a\\nb\""),
        ("exports = { d = \"d\" }", Code::MissingKey, "{ d = \"d\" }"),
        ("max_connections = 0", Code::OutOfRange, "0"),
        ("unix = \"s\"\nexports.d = \"d\"\nkey = \"k\"", Code::Conflict, "\"k\""),
        (
            "unix = \"s\"\nexports.d = \"d\"\ntls = \"off\"\nclient_ca = \"c\"",
            Code::Conflict,
            "\"c\"",
        ),
        (
            "unix = \"s\"\nexports.d = \"d\"\ntls = \"of\"\nclient_ca = \"c\"",
            Code::BadValue,
            "\"of\"",
        ),
        (
            "unix = \"s\"\nexports.d = \"d\"\ntls = \"allowed\"\ncertificate = \"c\"\nkey = \"k\"",
            Code::Conflict,
            "\"allowed\"",
        ),
        (
            "listen = \"127.0.0.1:1\"\nexports.d = \"d\"\ntls = \"required\"\nkey = \"k\"",
            Code::MissingKey,
            "\"required\"",
        ),
        (
            "listen = \"127.0.0.1:1\"\nexports.d = \"d\"\ntls = \"required\"\ncertificate = \"c\"",
            Code::MissingKey,
            "\"required\"",
        ),
    ];
    for (nbd, code, pointed) in cases {
        check(&at("weir.toml", &format!("[nbd]\n{nbd}\n{}", NONE.source().text)), code, pointed);
    }
    let path = "s".repeat(108);
    let text = format!("[nbd]\nunix = \"{path}\"\nexports.d = \"d\"\n{}", NONE.source().text);
    check(&at("weir.toml", &text), Code::OutOfRange, &format!("\"{path}\""));
    let name = "n".repeat(4_097);
    let text = format!("[nbd]\nunix = \"s\"\nexports.{name} = \"d\"\n{}", NONE.source().text);
    check(&at("weir.toml", &text), Code::BadValue, &name);
}

/// A gateway must offer something somewhere; with NBD alone it needs no target and no portal.
#[test]
fn something_is_offered_somewhere() {
    let volume = "[[volume]]\nname = \"d\"\nfile = \"d\"\n";
    let nbd = "[nbd]\nunix = \"s\"\nexports = { \"\" = \"d\" }\n";
    let read = |text: String| good(&at("weir.toml", &text));
    let config = read(format!("[iscsi]\nlisten = []\n{nbd}{volume}"));
    assert!(config.listen.is_empty() && config.targets.is_empty());
    assert_eq!(config.nbd.unix, [PathBuf::from("s")]);
    assert_eq!(config.nbd.exports, [Export { name: String::new(), volume: 0 }]);
    assert_eq!(config.nbd.max_connections, 256);
    assert_eq!(
        warnings(&at("weir.toml", &format!("{nbd}{volume}"))),
        ["iSCSI is listened for, and there is no `[[target]]`"]
    );
    check(&at("weir.toml", volume), Code::MissingKey, "");
    check(&at("weir.toml", &format!("[nbd]\n{volume}")), Code::MissingKey, "");
    check(&top("[iscsi]\nlisten = []").source(), Code::OutOfRange, "[]");
    assert_eq!(
        warnings(&at("weir.toml", &format!("[iscsi]\nlisten = []\n{nbd}{}", NONE.source().text))),
        ["no host can log in to a target: `[iscsi]` has no listener"]
    );
}

/// The values of the file arrive in the checked types; paths are relative to the file.
#[test]
fn values_arrive() {
    let config = good(&at(
        "folder/weir.toml",
        &Parts {
            top: "[iscsi]\nmax_logins = 7\nheader_digest = \"never\"\ndata_digest = \"required\"\n\
                  [nbd]\nlisten = \"127.0.0.1:0\"\nunix = [\"s\", \"/run/s\"]\ntls = \"required\"\n\
                  certificate = \"c\"\nkey = \"/k\"\nclient_ca = \"ca\"\nmax_connections = 9\n\
                  exports = { b = \"d\", a = \"d\" }\n\
                  [discovery]\naccounts = [\"twin\"]\n",
            volume: "initiators = \"iqn.2026-11.org.example:*\"\nremovable = true\nsanitize = true\n\
                     atomic = true",
            target: "alias = \"Ä\"\ninitiators = [\"iqn.2026-11.org.example:a\"]\n\
                     accounts = [\"twin\", \"alice\"]\nmutual = \"gate\"",
        }
        .source()
        .text,
    ));
    assert_eq!(config.iscsi.max_logins, 7);
    assert_eq!(config.iscsi.header_digest, DigestPolicy::Never);
    assert_eq!(config.iscsi.data_digest, DigestPolicy::Required);
    assert_eq!(config.accounts[2].name, "gate");
    assert_eq!(Some(&config.accounts[2].secret), Secret::new(*b"the gate's secret").as_ref());
    assert_eq!((&config.discovery.accounts[..], config.discovery.mutual), (&[1][..], None));
    let target = &config.targets[0];
    assert_eq!(target.alias.as_deref(), Some("Ä"));
    assert_eq!(target.initiators.names(), ["iqn.2026-11.org.example:a"]);
    assert_eq!(target.authentication.accounts, [1, 0]);
    assert_eq!(target.authentication.mutual, Some(2));
    assert_eq!(target.redirect, None);
    let volume = &config.volumes[0];
    assert_eq!(volume.initiators.names(), ["iqn.2026-11.org.example:*"]);
    assert!(volume.removable && volume.sanitize && volume.atomic);
    assert_eq!(volume.state, Some(PathBuf::from("folder/d.state")));
    let Nbd { unix, exports, tls, max_connections, .. } = &config.nbd;
    assert_eq!(unix[..], [PathBuf::from("folder/s"), PathBuf::from("/run/s")]);
    assert_eq!(exports.iter().map(|export| &*export.name).collect::<Vec<_>>(), ["a", "b"]);
    let tls = tls.as_ref().unwrap();
    assert!(tls.required);
    assert_eq!((&*tls.certificate, &*tls.key), (Path::new("folder/c"), Path::new("/k")));
    assert_eq!(tls.client_ca, Some(PathBuf::from("folder/ca")));
    assert_eq!(*max_connections, 9);

    let config = good(&target_of("redirect = \"[::1]:3260\"\nredirect_permanent = true"));
    let redirect = Redirect { portal: "[::1]:3260".to_owned(), permanent: true };
    assert_eq!(config.targets[0].redirect, Some(redirect));
    assert_eq!(config.targets[0].luns, []);
    let config = good(&target_of("redirect = \"gate.example:3260\"\nluns = {}"));
    assert!(!config.targets[0].redirect.as_ref().unwrap().permanent);
}

fn target_of(keys: &'static str) -> Source {
    target(keys).source()
}

/// Accounts that no login uses, volumes that no initiator sees and checks that can be evaded are odd
/// but not wrong.
#[test]
fn oddities_are_warnings() {
    let unused = ["no login uses account `alice`", "no login uses account `gate`"];
    assert_eq!(warnings(&top("[discovery]\naccounts = \"twin\"").source()), unused);
    let lists = |volume, target| warnings(&Parts { volume, target, ..NONE }.source());
    let (a, b) = ("initiators = \"iqn.2026-11.org.a:*\"", "initiators = \"iqn.2026-11.org.b:b\"");
    let unseen = ["no initiator sees volume `d` as LUN 0 of this target"];
    assert_eq!(lists(a, b), unseen);
    assert!(lists(b, b).is_empty() && lists(a, "").is_empty() && lists("", b).is_empty());
    let tls = "[nbd]\nlisten = \"127.0.0.1:0\"\nexports.d = \"d\"\ntls = \"allowed\"\n\
               certificate = \"c\"\nkey = \"k\"\nclient_ca = \"ca\"";
    assert_eq!(
        warnings(&top(tls).source()),
        ["clients without a certificate can connect all the same, without TLS"]
    );
    let required = top(tls).source().text.replace("allowed", "required");
    assert!(warnings(&at("weir.toml", &required)).is_empty());
}

/// A configuration, a secret file and a private key that any user but their owner may access are refused, each at
/// its line; the secret is the first line of its file.
#[test]
fn secrets_that_others_may_read_are_refused() {
    let folder = std::env::temp_dir().join(format!("weir-guard-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let mut text = NONE.source().text;
    let _ = write!(
        text,
        "accounts = [\"a\", \"b\"]\n[[account]]\nname = \"a\"\nsecret = \"a long secret\"\n\
         [[account]]\nname = \"b\"\nsecret_file = \"secret\"\n\
         [nbd]\nlisten = \"127.0.0.1:0\"\nexports.d = \"d\"\ntls = \"required\"\n\
         certificate = \"c\"\nkey = \"key\"\n"
    );
    let read = |mode: u32, secret: &str| {
        file("secret", secret, mode);
        file("key", "", mode);
        Source::read(&file("weir.toml", &text, mode)).unwrap()
    };
    for mode in [0o600, 0o400, 0o700] {
        assert!(warnings(&read(mode, "a kept secret\n")).is_empty());
    }
    for mode in [0o640, 0o604, 0o660, 0o611, 0o644] {
        let source = read(mode, "a kept secret\n");
        let refused = gateway(&source).unwrap_err();
        let places = [("weir.toml", "a long secret"), ("secret", "secret"), ("key", "key")];
        assert_eq!(refused.len(), places.len());
        for (one, (name, value)) in refused.iter().zip(places) {
            let path = folder.join(name).display().to_string();
            let message =
                format!("users other than its owner may access `{path}` (mode {mode:04o})");
            assert_eq!((one.code, &one.message), (Code::Permissions, &message));
            assert_eq!(source.text[one.at.clone().unwrap().0], format!("\"{value}\""));
        }
    }
    let secret = |text: &str| good(&read(0o600, text)).accounts[1].secret.clone();
    let expected = Secret::new(*b"a kept secret").unwrap();
    for text in ["a kept secret", "a kept secret\n", "a kept secret\r\n", "a kept secret\nmore"] {
        assert_eq!(secret(text), expected, "{text:?}");
    }
    assert_ne!(secret("a kept secret\r"), expected, "no end of a line");
    assert_eq!(secret(&"x".repeat(255)), secret(&format!("{}\n", "x".repeat(255))));
    for text in ["", "\na kept secret", "short\n", &"x".repeat(256), &"x".repeat(4_096)] {
        check(&read(0o600, text), Code::OutOfRange, "\"secret\"");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A block device has no state unless one is named, and promises nothing without one.
#[test]
fn devices_need_a_state() {
    let devices = std::fs::read_dir("/dev").unwrap().filter_map(Result::ok);
    let block = |entry: &std::fs::DirEntry| {
        entry.file_type().is_ok_and(|file_type| file_type.is_block_device())
    };
    // A container may have none.
    let Some(device) = devices.into_iter().find(block) else { return };
    let device = format!("file = \"{}\"", device.path().display());
    let on_device = |keys: &'static str| {
        at("weir.toml", &volume(keys).source().text.replace("file = \"d\"", &device))
    };
    assert_eq!(good(&on_device("")).volumes[0].state, None);
    assert_eq!(good(&on_device("read_only = true")).volumes[0].state, None);
    let config = good(&on_device("sanitize = true\natomic = true\nstate = \"s\""));
    assert_eq!(config.volumes[0].state, Some(PathBuf::from("s")));
    check(&on_device("sanitize = true"), Code::MissingKey, "true");
    check(&on_device("atomic = true"), Code::MissingKey, "true");
}

/// No message about a damaged file shows a secret, wherever the file ends.
#[test]
fn messages_hide_secrets() {
    let text = "[[account]]\nname = \"a\"\nsecret = \"hunter2\"\nsecrets = \"hunter2\"\n\
                [[account]]\nname = \"b\"\nsecret = \"\"\"hunter2\nhunter2\"\"\"\nx = 1\n\
                account = [{ name = \"c\", secret = 'hunter2' }, 7]\n";
    for cut in 0..=text.len() {
        let source = at("weir.toml", &text[..cut]);
        let diagnostics = gateway(&source).unwrap_err();
        let shown = render::diagnostics(&diagnostics, Some(&source), false);
        assert!(!shown.contains("hunt"), "{shown}");
        assert!(
            diagnostics.iter().all(|diagnostic| !format!("{diagnostic:?}").contains("hunt")),
            "{diagnostics:?}"
        );
    }
}
