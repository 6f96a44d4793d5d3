use crate::config::diagnostic::Code;
use crate::config::gateway;
use crate::config::source::Source;
use weir_flow::dispatch::Weight;
use weir_serve::config::{AnaState, Config, DigestPolicy, HostShares, Streams};

/// A gateway for NVMe alone: `nvme` is said of the front end, `subsystem` of its only subsystem.
fn with(nvme: &str, subsystem: &str) -> Source {
    let text = format!(
        "[iscsi]\nlisten = []\n[nvme]\n{nvme}\n[[volume]]\nname = \"d\"\nfile = \"d\"\n\
         [[volume]]\nname = \"e\"\nfile = \"e\"\n[[subsystem]]\n{subsystem}\n"
    );
    Source::new("weir.toml", text)
}

const LISTEN: &str = "listen = [\"127.0.0.1:4420\"]";
const SUBSYSTEM: &str =
    "name = \"nqn.2026-11.org.example:d\"\nnamespaces = { 1 = \"d\", 256 = \"e\" }";

fn good(source: &Source) -> Config {
    gateway(source).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}")).checked
}

/// The values of the file arrive in the checked types.
#[test]
fn values_arrive() {
    let nvme = format!(
        "{LISTEN}\nadvertise = [\"192.0.2.1:4420\"]\ndata_digest = \"never\"\nqueues = 3\n\
         max_transfer = \"64KiB\""
    );
    let ana = "ana = { \"127.0.0.1:4420\" = \"non-optimized\" }";
    let hosts = "hosts = [\"nqn.2014-08.org.nvmexpress:uuid:*\"]";
    let nvme = good(&with(&nvme, &format!("{SUBSYSTEM}\n{hosts}\n{ana}"))).nvme;
    assert_eq!(nvme.listen, ["127.0.0.1:4420".parse().unwrap()]);
    assert_eq!(nvme.advertise, ["192.0.2.1:4420".parse().unwrap()]);
    assert_eq!(nvme.header_digest, DigestPolicy::Allowed);
    assert_eq!(nvme.data_digest, DigestPolicy::Never);
    assert_eq!((nvme.queues, nvme.queue_depth, nvme.max_transfer), (3, 128, 64 << 10));
    let subsystem = &nvme.subsystems[0];
    assert_eq!(subsystem.namespaces, [(1, 0), (256, 1)]);
    assert_eq!(subsystem.ana, [("127.0.0.1:4420".parse().unwrap(), AnaState::NonOptimized)]);
    assert_eq!(subsystem.streams, Streams::Tenant);
    assert_eq!(subsystem.hosts.names(), ["nqn.2014-08.org.nvmexpress:uuid:*"]);
}

/// Queues are streams where the file says so, with the weights that it gives them; a policy that cannot tell them apart
/// is warned of.
#[test]
fn queues_are_streams() {
    let keys = format!("{SUBSYSTEM}\nstreams = \"queue\"\nqueue_shares = {{ 1 = 4, 3 = 0.5 }}");
    let with = |dispatch: &str| {
        let mut source = with(LISTEN, &keys);
        source.text = format!("[policy]\ndispatch = \"{dispatch}\"\n{}", source.text);
        gateway(&source).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"))
    };
    let found = with("fog");
    let Config { nvme, .. } = &found.checked;
    let weight = |parts| Weight::from_1024ths(parts).unwrap();
    let shares = [(1, weight(4_096)), (3, weight(512))];
    assert_eq!(nvme.subsystems[0].streams, Streams::Queue(shares.into()));
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    for policy in ["fifo", "round-robin", "deficit-round-robin"] {
        let warnings = with(policy).warnings;
        let told = warnings
            .iter()
            .any(|one| one.message.contains("does not tell streams of a tenant apart"));
        assert!(told, "{policy}: {warnings:?}");
    }
}

/// So are hosts and namespaces.
#[test]
fn hosts_and_namespaces_are_streams() {
    let weight = |parts| Weight::from_1024ths(parts).unwrap();
    let host = "nqn.2014-08.org.nvmexpress:uuid:*";
    let by_host = HostShares::new([(host.to_owned(), weight(2_048))]);
    let by_namespace = [(256, weight(512))];
    for (keys, streams) in [
        ("streams = \"host\"".to_owned(), Streams::Host(HostShares::default())),
        (format!("streams = \"host\"\nhost_shares = {{ \"{host}\" = 2 }}"), Streams::Host(by_host)),
        (
            "streams = \"namespace\"\nnamespace_shares = { 256 = 0.5 }".to_owned(),
            Streams::Namespace(by_namespace.into()),
        ),
    ] {
        let found = good(&with(LISTEN, &format!("{SUBSYSTEM}\n{keys}")));
        assert_eq!(found.nvme.subsystems[0].streams, streams);
    }
}

/// Weights of what is no stream cause a warning.
#[test]
fn shares_without_their_streams_warn() {
    for (streams, shares) in [
        ("host", "queue_shares = { 1 = 2 }"),
        ("queue", "namespace_shares = { 1 = 2 }"),
        ("tenant", "host_shares = { \"nqn.*\" = 2 }"),
    ] {
        let keys = format!("{SUBSYSTEM}\nstreams = \"{streams}\"\n{shares}");
        let mut source = with(LISTEN, &keys);
        source.text = format!("[policy]\ndispatch = \"fog\"\n{}", source.text);
        let warnings = gateway(&source).unwrap_or_else(|told| panic!("{told:?}")).warnings;
        let told = |one: &crate::config::diagnostic::Diagnostic| one.code == Code::Unused;
        assert!(warnings.iter().any(told), "{shares}: {warnings:?}");
    }
}

/// Each mistake has a message that says what to do.
#[test]
fn diagnostics() {
    let name = "name = \"nqn.2026-11.org.example:d\"";
    let named = |name: &str| format!("name = \"{name}\"\nnamespaces = {{ 1 = \"d\", 2 = \"e\" }}");
    let on = |namespaces: &str| format!("{name}\nnamespaces = {namespaces}");
    let more = |more: &str| format!("{SUBSYSTEM}\n{more}");
    let streams = |shares: &str| more(&format!("streams = \"queue\"\nqueue_shares = {shares}"));
    let listening = |nvme: &str| format!("{LISTEN}\n{nvme}");
    let cases = [
        (LISTEN.to_owned(), named("iqn.2026-11.org.example:d"), Code::BadValue, "an iSCSI name"),
        (LISTEN.to_owned(), named("nqn.example:d"), Code::BadValue, "a reversed domain"),
        (
            LISTEN.to_owned(),
            named("nqn.2014-08.org.nvmexpress.discovery"),
            Code::BadValue,
            "every discovery subsystem",
        ),
        (
            LISTEN.to_owned(),
            on("{ 0 = \"d\" }"),
            Code::BadValue,
            "`0` is not a namespace identifier",
        ),
        (
            LISTEN.to_owned(),
            on("{ 257 = \"d\" }"),
            Code::BadValue,
            "`257` is not a namespace identifier",
        ),
        (
            LISTEN.to_owned(),
            on("{ 01 = \"d\" }"),
            Code::BadValue,
            "`01` is not a namespace identifier",
        ),
        (LISTEN.to_owned(), on("{}"), Code::BadValue, "offers nothing"),
        (LISTEN.to_owned(), on("\"d\""), Code::WrongType, "a table of namespaces"),
        (LISTEN.to_owned(), on("{ 1 = 1 }"), Code::WrongType, "a volume's name"),
        (LISTEN.to_owned(), on("{ 1 = \"x\" }"), Code::Dangling, "`x`"),
        (LISTEN.to_owned(), on("{ 1 = \"d\", 2 = \"d\" }"), Code::Duplicate, "twice"),
        (LISTEN.to_owned(), name.to_owned(), Code::MissingKey, "`namespaces`"),
        (LISTEN.to_owned(), streams("{ 9 = 1 }"), Code::OutOfRange, "queue `9`, but `queues` is 8"),
        (LISTEN.to_owned(), streams("{ 0 = 1 }"), Code::OutOfRange, "queue `0`"),
        (LISTEN.to_owned(), streams("{ 1 = 0 }"), Code::OutOfRange, "0"),
        (LISTEN.to_owned(), streams("{ 1 = \"x\" }"), Code::WrongType, "text"),
        (
            LISTEN.to_owned(),
            more("ana = { \"127.0.0.1:4421\" = \"optimized\" }"),
            Code::Dangling,
            "nothing listens",
        ),
        (LISTEN.to_owned(), more("ana = { 4420 = \"optimized\" }"), Code::Dangling, "`4420`"),
        (
            LISTEN.to_owned(),
            more("ana = { \"127.0.0.1:4420\" = \"best\" }"),
            Code::BadValue,
            "no state",
        ),
        (LISTEN.to_owned(), more("ana = 1"), Code::WrongType, "a table of addresses"),
        (
            LISTEN.to_owned(),
            more("streams = \"host\"\nhost_shares = { \"iqn.x\" = 1 }"),
            Code::BadValue,
            "the NQN of a host",
        ),
        (
            LISTEN.to_owned(),
            more("streams = \"namespace\"\nnamespace_shares = { 2 = 1 }"),
            Code::Dangling,
            "names `2`, which is not in `namespaces`",
        ),
        (LISTEN.to_owned(), streams("3"), Code::WrongType, "a table of weights"),
        (LISTEN.to_owned(), more("hosts = []"), Code::BadValue, "everyone in"),
        (LISTEN.to_owned(), more("hosts = [\"iqn.x\"]"), Code::BadValue, "the NQN of a host"),
        (LISTEN.to_owned(), more("hosts = [\"nqn.*x\"]"), Code::BadValue, "the NQN of a host"),
        (
            LISTEN.to_owned(),
            more(&format!("[[subsystem]]\n{name}\nnamespaces = {{ 1 = \"d\" }}")),
            Code::Duplicate,
            "two subsystems",
        ),
        (String::new(), SUBSYSTEM.to_owned(), Code::MissingKey, "without a listener"),
        (
            listening("max_transfer = \"96KiB\""),
            SUBSYSTEM.to_owned(),
            Code::OutOfRange,
            "power of two",
        ),
        (
            listening("in_capsule = \"5000B\""),
            SUBSYSTEM.to_owned(),
            Code::OutOfRange,
            "multiple of 16B",
        ),
        (listening("queues = 65"), SUBSYSTEM.to_owned(), Code::OutOfRange, "65"),
        (
            listening("advertise = [\"0.0.0.0:4420\"]"),
            SUBSYSTEM.to_owned(),
            Code::BadValue,
            "hosts can use",
        ),
    ];
    for (nvme, subsystem, code, part) in cases {
        let diagnostics = gateway(&with(&nvme, &subsystem)).expect_err(part);
        let found = |one: &&crate::config::diagnostic::Diagnostic| {
            one.code == code && one.message.contains(part)
        };
        assert!(diagnostics.iter().any(|one| found(&one)), "{part}: {diagnostics:?}");
    }
    let alone = "[iscsi]\nlisten = []\n[nvme]\nlisten = [\"127.0.0.1:4420\"]\n";
    let diagnostics = gateway(&Source::new("weir.toml", alone.to_owned())).unwrap_err();
    let found = diagnostics.iter().any(|one| one.message.contains("no subsystem"));
    assert!(found, "{diagnostics:?}");
}
