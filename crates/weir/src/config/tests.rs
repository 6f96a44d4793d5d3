use super::*;
use schema::{Default, Form as _, Key, Section};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tree::Effective;
use weir_flow::accept::Cap;
use weir_flow::clock::Duration;
use weir_flow::control::{Contract, Group, Ops, Promises, Row, Target, Tier};
use weir_flow::dispatch::{Background, Shares, Weight};
use weir_flow::pipeline::{Limits, Policies};
use weir_flow::units::{Bandwidth, Extent};
use weir_model::{array, fixed, mech};
use weir_serve::config::{IoMode, Iscsi};
use weir_sim::plan::{Access, Arrivals, Model};

/// A gateway configuration with every key, as the design gives it.
const GATEWAY: &str = include_str!("tests/gateway.toml");

/// A plan with every key; those that exclude each other are in different tables.
const PLAN: &str = r#"
seed = 7
[run]
duration = "60s"
requests = 1000
warm_up = "5s"
drain = false
[[backend]]
name = "array"
model = "array-m1"
paths = 2
disks = 16
mean_service = "2ms"
media = "40MB/s"
buses = 8
bus = "160MB/s"
links = 4
link = "200MB/s"
[[backend]]
name = "flash"
model = "fixed"
service = "80us"
servers = 64
[[backend]]
name = "spindles"
model = "array-m2"
disks = 2
stroke_ppm = 1000000
window = 8
buses = 2
media = "50MB/s"
[[backend]]
name = "ssd"
model = "ssd-paper"
chips = 8
blocks = 1024
pages = 128
page = "8KiB"
spare_permille = 250
filled_permille = 500
register = "10us"
read = "20us"
program = "30us"
erase = "40us"
pipelined = true
buffer = 64
command = "5us"
[[backend]]
name = "drive"
model = "ssd-nvme"
capacity = "16GiB"
[[volume]]
name = "a"
size = "1GiB"
backend = "array"
max_transfer = "64KiB"
cap_iops = 500
cap_bandwidth = "50MiB/s"
cap_burst = "2s"
[[link]]
name = "front"
bandwidth = "1Gbit/s"
delay = "50us"
[[workload]]
name = "one"
tenant = "t"
volume = "a"
link = "front"
arrivals = "constant"
rate = "10.5/s"
jitter = 0.2
size = { 4KiB = 7, 64KiB = 3 }
reads = 0.7
access = "zipf"
skew = 0.9
alignment = "8KiB"
offset = "1MiB"
length = "16MiB"
start = "1s"
stop = "50s"
[[workload]]
name = "two"
arrivals = "closed"
depth = 4
think = "1ms"
[[trace]]
file = "t.csv"
format = "weir"
volume = "a"
tenant = "u"
devices = { 3 = { volume = "a", tenant = "v" } }
link = "front"
speed = 2.5
start = "1s"
[[fault]]
at = "1s"
backend = "array"
path = 1
change = "down"
detect = "1s"
[[fault]]
at = "1s"
backend = "array"
path = 0
change = "slow"
factor = 20
[[expect]]
tenant = "t"
mean = "1s"
p50 = "1s"
p95 = "1s"
p99 = "1s"
p999 = "1s"
max = "1s"
rate = "1/s"
errors = 0
refused = 0
[policy]
cache = "lru"
prefetch = "next-block"
control = "ta1"
dispatch = "sfq"
path = "round-robin"
transfer = "fifo"
[cache]
size = "1GiB"
line = "4KiB"
[path]
failback = "after"
failback_after = "10s"
check_interval = "2s"
overdue_factor = 8
overdue_min = "100ms"
overdue_max = "400ms"
dead_after = "300ms"
dead_after_last_path = "5s"
io_timeout = "30s"
max_read_retries = 2
slow_factor = 6
slow_after = "400ms"
slow_min = "1ms"
probe_interval = "200ms"
probe_interval_max = "3200ms"
probes_to_return = 4
return_step = "25ms"
max_changes_per_minute = 6
[limits]
max_requests = 4096
max_bytes = "256MiB"
max_tenant_requests = 100
max_tenant_bytes = "16MiB"
link_window = "4MiB"
no_path_timeout = "30s"
report_after = "10s"
[[group]]
name = "company"
iops = 20000
size = "8KiB"
max_iops = 30000
weight = 2
[[group]]
name = "gold"
parent = "company"
iops = 10000
[[tenant]]
name = "t"
group = "gold"
objectives = [
    { size = "4KiB", iops = 3500, p50 = "8ms", p99 = "41ms" },
    { op = "read", size = "64KiB", iops = 1200, p999 = "80ms" },
]
burst = "50ms"
credit = "60s"
peak = 1.5
max_iops = 5000
weight = 3
tier = "silver"
share = 4
[background]
write_back = 0.5
prefetch = 0.25
jobs = 0.001
"#;

fn source(text: &str) -> Source {
    Source::new(folder().join("weir.toml"), text.to_owned())
}

/// The folder of the texts. The files `secret` and `tokens` are there, and only their owner may read them.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("weir-config-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (file, text) in [
            ("secret", "not a secret: a text that is long enough for one\n"),
            ("tokens", "alice admin certificate:alice.example\n"),
        ] {
            let file = folder.join(file);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        }
        folder
    })
}

/// The smallest gateway that is valid, and more text.
fn small(more: &str) -> Source {
    source(&format!(
        "{more}\n[[volume]]\nname = \"d\"\nfile = \"d\"\n\
         [[target]]\nname = \"iqn.2026-11.org.example:d\"\nluns.0 = \"d\"\n"
    ))
}

fn keys(schema: &'static Schema) -> impl Iterator<Item = (&'static Section, &'static Key)> {
    schema.sections.iter().flat_map(|section| section.all().map(|(key, _)| (*section, key)))
}

/// Every key of the reference is read from the file and shown with its place there. The other
/// direction holds by construction: what is not in the reference is an unknown key.
#[test]
fn every_documented_key_is_read() {
    let check = |schema: &'static Schema, values: &[Effective]| {
        for (section, key) in keys(schema) {
            let read = values.iter().any(|value| {
                value.section.name == section.name
                    && value.key == key.name
                    && value.origin.is_some()
            });
            assert!(read, "{} {}", section.heading(), key.name);
        }
    };
    check(&gateway::SCHEMA, &gateway(&source(GATEWAY)).unwrap().values);
    check(&plan::SCHEMA, &plan(&source(PLAN)).unwrap().values);
}

/// What the reference prints for humans is there for every key.
#[test]
fn every_key_is_described() {
    for schema in [&gateway::SCHEMA, &plan::SCHEMA] {
        for (section, key) in keys(schema) {
            assert!(!key.effect.is_empty(), "{} {}", section.name, key.name);
            assert!(!key.kind.describe().is_empty(), "{} {}", section.name, key.name);
        }
    }
    for kind in [Kind::Gateway, Kind::Plan] {
        let (text, json) = (reference::text(kind, None), reference::json(kind, None));
        for (section, key) in keys(kind.schema()) {
            assert!(text.contains(key.name), "{} {}", section.name, key.name);
        }
        assert_eq!(json["keys"].as_array().unwrap().len(), keys(kind.schema()).count());
    }
}

/// The JSON Schema has every key; it admits what the reader does not know nowhere, and its patterns
/// admit the defaults.
#[test]
fn the_json_schema_has_every_key() {
    for kind in [Kind::Gateway, Kind::Plan] {
        let json = json_schema::schema(kind);
        assert_eq!(json["additionalProperties"], false);
        for (section, key) in keys(kind.schema()) {
            let table = match section.name {
                "" => &json,
                name if section.many == schema::Many::Once => &json["properties"][name],
                name => &json["properties"][name]["items"],
            };
            let property = &table["properties"][key.name];
            let text = property["description"].as_str().unwrap_or_default();
            assert!(text.contains(key.effect), "{} {}", section.heading(), key.name);
            let required = table["required"].as_array();
            let listed = required.is_some_and(|all| all.iter().any(|name| name == key.name));
            assert_eq!(listed, matches!(key.default, Default::Required), "{}", key.name);
        }
        let limits = &json["properties"]["limits"]["properties"];
        assert_eq!(limits["max_requests"]["maximum"], 1 << 20);
        assert_eq!(limits["report_after"]["default"], "10s");
        let pattern = limits["report_after"]["pattern"].as_str().unwrap();
        assert_eq!(pattern, r"^[0-9]+(\.[0-9]+)? ?(ns|µs|us|ms|s|min|h)$");
    }
}

/// What the groups and the tenant of both files say.
fn promises() -> Promises {
    let target = |quantile_ppm, ms| Target { quantile_ppm, response: Duration::from_millis(ms) };
    let row = |ops, size, iops, targets| Row { ops, size, iops, load_permille: None, targets };
    let small = vec![target(500_000, 8), target(990_000, 41)];
    let contract = Contract {
        rows: vec![
            row(Ops::Any, 4_096, 3_500, small),
            row(Ops::Read, 65_536, 1_200, vec![target(999_000, 80)]),
        ],
        burst: Duration::from_millis(50),
        credit: Duration::from_secs(60),
        peak_permille: 1_500,
        limit: Some(5_000),
        weight: 3,
        tier: Tier::Silver,
        group: Some(1),
    };
    let company = Group { parent: None, iops: 20_000, size: 8_192, limit: Some(30_000), weight: 2 };
    let gold = Group { parent: Some(0), iops: 10_000, size: 4_096, limit: None, weight: 10_000 };
    Promises { contracts: vec![Some(contract), None], groups: vec![company, gold] }
}

/// The values of the file arrive in the checked types; paths are relative to the file.
#[test]
fn a_gateway_is_what_its_file_says() {
    let config = gateway(&source(GATEWAY)).unwrap().checked;
    assert_eq!(config.listen.len(), 2);
    assert_eq!(config.advertise, ["10.0.2.2:3260"]);
    let names: Vec<_> = config.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!(names, ["db", "disk1"]);
    assert_eq!(config.promises, promises());
    let weights = |shares: &Shares| {
        let Background { write_back, prefetch, jobs } = shares.background;
        let background = [write_back, prefetch, jobs].into_iter();
        let all = background.chain(shares.tenants.iter().copied());
        all.map(Weight::as_1024ths).collect::<Vec<_>>()
    };
    assert_eq!(weights(&config.shares), [1_024, 512, 256, 2_560, 1_024]);
    assert_eq!(config.stop.timeout.as_nanos(), 1_500_000_000);
    assert_eq!(config.policies.dispatch.values().get("depth"), 7);
    let volume = &config.volumes[0];
    let file = volume.file().unwrap();
    assert_eq!(file.path, folder().join("disk0.img"));
    assert_eq!((file.size, volume.block_size), (Some(1 << 30), 4_096));
    assert!(volume.read_only && !volume.thin && file.io == IoMode::Buffered);
    assert_eq!((file.backend, config.volumes[1].file().unwrap().backend), (Some(1), None));
    let flash = fixed::Config { service: Duration::from_micros(80), servers: 64 };
    assert_eq!(config.backends[1].model, Model::Fixed(flash));
    assert_eq!(config.backends[0].name, "array");
    let cap = volume.cap;
    assert_eq!(cap.iops.map(std::num::NonZeroU32::get), Some(500));
    assert_eq!(cap.bandwidth, Bandwidth::per_second(50 << 20));
    assert_eq!(cap.burst, Duration::from_secs(2));
    assert_eq!(config.volumes[1].cap, Cap::default());
    assert_eq!(
        (config.limits.max_tenant_requests, config.limits.max_tenant_bytes),
        (100, 16 << 20)
    );
    assert_eq!(config.targets[0].luns, [(0, 0)]);
}

/// The defaults of the reference are those of the crates that give them a meaning.
#[test]
fn defaults_agree_with_the_data_path() {
    let loaded = gateway(&small("")).unwrap();
    assert!(loaded.warnings.is_empty());
    let config = loaded.checked;
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.iscsi, Iscsi::default());
    assert_eq!(config.policies, Policies::default());
    assert_eq!(config.volumes[0].file().unwrap().size, None);
    let promises = Promises { contracts: vec![None], groups: Vec::new() };
    assert_eq!((config.tenants.len(), config.promises), (1, promises));
    let shares = Shares { tenants: vec![Weight::ONE], ..Shares::default() };
    assert_eq!(config.shares, shares);

    let text = "[run]\nrequests = 1\n[[backend]]\nname = \"m1\"\n\
                [[backend]]\nname = \"m2\"\nmodel = \"array-m2\"\n\
                [[backend]]\nname = \"f\"\nmodel = \"fixed\"\n\
                [[volume]]\nname = \"v\"\nsize = \"1GiB\"\nbackend = \"m1\"\n\
                [[workload]]\nname = \"w\"\narrivals = \"poisson\"\nrate = \"1/s\"\n";
    let loaded = plan(&source(text)).unwrap();
    let models: Vec<_> = loaded.checked.plan.backends.iter().map(|backend| backend.model).collect();
    let defaults = [
        Model::Array(array::Config::default()),
        Model::Mech(mech::Config::default()),
        Model::Fixed(fixed::Config::default()),
    ];
    assert_eq!(models, defaults);
    for value in loaded.values.iter().filter(|value| value.section.name == "backend") {
        if value.value.to_toml() == "\"60MB/s\"" {
            // Said in words: the table has the default of the other array.
            assert_eq!(value.key, "media");
            continue;
        }
        let key = value.section.key(value.key).unwrap();
        if let (Default::Else(text), Some((scale, ..))) = (key.default, key.kind.scale()) {
            assert_eq!(
                value.value.to_toml(),
                format!("\"{}\"", scale.show(scale.parse(text).unwrap()))
            );
        } else if let Default::Else(text) = key.default {
            assert_eq!(value.value.to_toml(), text);
        }
    }
}

/// A plan's values arrive in the checked types, units and shares converted exactly.
#[test]
fn a_plan_is_what_its_file_says() {
    let plan = plan(&source(PLAN)).unwrap().checked.plan;
    assert_eq!((plan.seed, plan.end.requests, plan.end.drain), (7, Some(1_000), false));
    assert_eq!(plan.tenants, ["t", "two", "u", "v"]);
    let Promises { contracts, groups } = promises();
    assert_eq!(plan.promises.contracts, [contracts[0].clone(), None, None, None]);
    assert_eq!(plan.promises.groups, groups);
    assert_eq!(plan.volumes[0].cap.burst, Duration::from_secs(2));
    let spindles = mech::Config {
        disks: 2,
        stroke_ppm: 1_000_000,
        window: 8,
        media: Bandwidth::per_second(50_000_000).unwrap(),
        ..mech::Config::default()
    };
    assert_eq!(plan.backends[2].model, Model::Mech(mech::Config { buses: 2, ..spindles }));
    let workload = &plan.workloads[0];
    assert_eq!(workload.arrivals, Arrivals::Constant { rate: 10.5, jitter_permille: 200 });
    assert_eq!(workload.access, Access::Zipf { skew: 0.9 });
    assert_eq!(workload.read_permille, 700);
    assert_eq!(workload.region, Extent::new(1 << 20, 16 << 20));
    let sizes: Vec<_> = workload.sizes.iter().map(|size| (size.bytes, size.weight)).collect();
    assert_eq!(sizes, [(4_096, 7), (65_536, 3)]);
    assert_eq!(plan.workloads[1].region, Extent::new(0, 1 << 30));
    assert_eq!(plan.traces[0].speed_permille, 2_500);
    assert_eq!(plan.traces[0].path, folder().join("t.csv"));
    assert_eq!(plan.traces[0].devices[0].device, 3);
}

/// The shown values, taken as a file, mean the same.
#[test]
fn shown_values_are_a_configuration() {
    let first = gateway(&source(GATEWAY)).unwrap();
    let shown = show::text(Kind::Gateway, &first.values, &source(GATEWAY));
    assert!(!shown.contains("teen bytes") && !shown.contains("not a secret"), "{shown}");
    // Secrets are not shown.
    assert!(gateway(&source(&shown)).is_err());
    let shown = shown.replacen("\"…\"", "\"twelve bytes\"", 1);
    let shown = shown.replacen("\"…\"", "\"thirteen bytes\"", 1);
    let second = gateway(&source(&shown)).unwrap();
    assert_eq!(format!("{:?}", first.checked), format!("{:?}", second.checked));
    let first = plan(&source(PLAN)).unwrap();
    let shown = show::text(Kind::Plan, &first.values, &source(PLAN));
    let second = plan(&source(&shown)).unwrap();
    assert_eq!(first.checked.plan, second.checked.plan);
}

/// A file tells by its own tables what it is; one without any is taken for a gateway's.
#[test]
fn the_kind_of_a_file_is_found_out() {
    assert_eq!(Kind::of(&source(GATEWAY)), Kind::Gateway);
    assert_eq!(Kind::of(&source(PLAN)), Kind::Plan);
    assert_eq!(Kind::of(&source("")), Kind::Gateway);
    assert_eq!(Kind::of(&source("[[workload]]\n[oops")), Kind::Plan);
}

/// Each of these is one diagnostic of this code at this text, and nothing else is reported.
#[test]
fn each_diagnostic_is_noticed() {
    let cases = [
        ("[iscsi]\nlisten = 5", Code::WrongType, "5"),
        ("[iscsi]\nlisten = []", Code::OutOfRange, "[]"),
        ("[iscsi]\nlisten = [\"localhost:1\"]", Code::BadValue, "\"localhost:1\""),
        ("[iscsi]\nlisten = [\"[::1]:1\", \"[::1]:1\"]", Code::Duplicate, "\"[::1]:1\""),
        ("[iscsi]\nadvertise = [\"gate\"]", Code::BadValue, "\"gate\""),
        ("[iscsi]\nmax_commands = 0", Code::OutOfRange, "0"),
        ("[iscsi]\nmax_commands = -1", Code::OutOfRange, "-1"),
        ("[iscsi]\nmax_commands = 0x200000000000000000", Code::OutOfRange, "0x200000000000000000"),
        ("[[iscsi]]", Code::WrongType, "[[iscsi]]"),
        ("iscsi = 1979-05-27", Code::WrongType, "1979-05-27"),
        ("[limits]\nmax_bytes = \"1MiB\"", Code::OutOfRange, "\"1MiB\""),
        ("[limits]\nno_path_timeout = 30", Code::BadUnit, "30"),
        ("[limits]\nno_path_timeout = true", Code::WrongType, "true"),
        ("[path]\nslow_factor = 1", Code::OutOfRange, "1"),
        ("[path]\nfailback = \"later\"", Code::BadValue, "\"later\""),
        ("[path]\nfailback = \"after\"", Code::MissingKey, "\"after\""),
        ("[path]\ndead_after = \"6s\"", Code::Conflict, "\"6s\""),
        ("[stop]\ntimeout = \"30 sec\"", Code::BadUnit, "\"30 sec\""),
        ("[stopp]", Code::UnknownKey, "stopp"),
        ("[policy]\ndispatch = \"fife\"", Code::Dangling, "\"fife\""),
        ("[policy]\ndispatch = { depth = 1 }", Code::MissingKey, "{ depth = 1 }"),
        ("[policy]\ndispatch = { name = \"fifo\", dept = 1 }", Code::UnknownKey, "dept"),
        ("[policy]\ndispatch = { name = \"fifo\", depth = 0 }", Code::OutOfRange, "0"),
        ("[policy]\ndispatch = 3", Code::WrongType, "3"),
        ("[policy]\ncontrol = { name = \"open\", x = 1 }", Code::UnknownKey, "x"),
    ];
    for (text, code, at) in cases {
        let source = small(text);
        let diagnostics = gateway(&source).unwrap_err();
        assert_eq!(diagnostics.len(), 1, "{text}: {diagnostics:?}");
        let diagnostic = &diagnostics[0];
        assert_eq!(diagnostic.code, code, "{text}: {diagnostic:?}");
        assert!(diagnostic.help.is_some(), "{text}");
        if !at.is_empty() {
            let (span, _) = diagnostic.at.as_ref().unwrap();
            assert_eq!(&source.text[span.clone()], at, "{text}");
        }
    }
}

/// A line that is no TOML hides neither a second one nor a wrong value elsewhere, and does not make
/// what it hides a missing key.
#[test]
fn syntax_errors_come_together() {
    let source = source("[iscsi]\nmax_commands = 0\nbuffer = 1 2\n[limits\n");
    let diagnostics = gateway(&source).unwrap_err();
    let codes: Vec<_> = diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
    assert_eq!(codes, [Code::Syntax, Code::Syntax, Code::OutOfRange]);
}

/// A volume that no target offers, and a target without LUN 0, are odd but not wrong.
#[test]
fn oddities_are_warnings() {
    let text = small("[[volume]]\nname = \"e\"\nfile = \"e\"\n").text.replace("luns.0", "luns.1");
    let warnings = gateway(&source(&text)).unwrap().warnings;
    let messages: Vec<_> = warnings.iter().map(|diagnostic| diagnostic.message.as_str()).collect();
    assert_eq!(
        messages,
        ["this target has no LUN 0", "no target, export or subsystem offers volume `e`"]
    );
}

/// What only the simulator's own check finds points at its place in the file all the same.
#[test]
fn diagnostics_of_a_plan_have_a_place() {
    let text = PLAN.replace("length = \"16MiB\"", "length = \"16GiB\"");
    let source = source(&text);
    let diagnostics = plan(&source).unwrap_err();
    assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
    let (span, _) = diagnostics[0].at.as_ref().unwrap();
    assert_eq!(&text[span.clone()], "\"16GiB\"");
    assert_eq!(diagnostics[0].message, "the region must end within the volume");
}

/// A plan without work is reported as that, not that it has no tenants.
#[test]
fn a_plan_needs_work() {
    let text = "[[backend]]\nname = \"b\"\n[[volume]]\nname = \"v\"\nsize = \"1MiB\"\n";
    let diagnostics = plan(&source(text)).unwrap_err();
    assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
    assert_eq!(diagnostics[0].message, "there is no `[[workload]]` and no `[[trace]]`");
}

/// Any text is read to the end without a panic, and what cannot be used says why.
#[test]
fn damaged_texts_have_diagnostics() {
    for whole in [GATEWAY, PLAN] {
        for cut in (0..whole.len()).filter(|&cut| whole.is_char_boundary(cut)) {
            let source = source(&whole[..cut]);
            for diagnostics in [gateway(&source).err(), plan(&source).err()].into_iter().flatten() {
                assert!(!diagnostics.is_empty());
                assert!(!render::diagnostics(&diagnostics, Some(&source), false).is_empty());
            }
        }
    }
}
