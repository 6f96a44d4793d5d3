//! `[[workload]]`: a generator of requests of one tenant to one volume.

use super::{MAX_TIME, Parts, link_of, only_with, volume_of};
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::names::{self, Names, Tenants};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Read, Table};
use crate::config::units;
use crate::config::value::Value;
use toml::de::DeValue;
use weir_flow::clock::Duration;
use weir_flow::request::TenantId;
use weir_flow::units::Extent;
use weir_sim::plan::{Access, Arrivals, MAX_DEPTH, MAX_PARTS, SizeWeight, Workload};

/// The table.
pub(super) static WORKLOAD: Section = Section {
    name: "workload",
    many: Many::Times(0, MAX_PARTS),
    effect: "a generator of requests of one tenant to one volume",
    keys: &[
        names::key("names the workload, and its random streams"),
        Key {
            name: "tenant",
            kind: Kind::Text("a name"),
            default: Default::Else("the workload's name"),
            effect: "who asks; tenants exist by being named",
        },
        Key {
            name: "volume",
            kind: Kind::Text("a volume's name"),
            default: Default::Else("the only volume"),
            effect: "what is addressed",
        },
        Key {
            name: "link",
            kind: Kind::Text("a link's name"),
            default: Default::Else("the only link"),
            effect: "where replies go",
        },
        Key {
            name: "arrivals",
            kind: Kind::Word(&["poisson", "constant", "closed"]),
            default: Default::Required,
            effect: "open with exponential or constant gaps, or a closed loop of hosts that wait",
        },
        Key {
            name: "rate",
            kind: Kind::Rate(1, 1_000_000_000_000),
            default: Default::Else("needed for `poisson` and `constant`"),
            effect: "requests per second",
        },
        Key {
            name: "jitter",
            kind: Kind::Real(0.0, 1.0),
            default: Default::Else("0"),
            effect: "constant: width of the jitter in gaps; 0.2 is plus or minus 10 %",
        },
        Key {
            name: "depth",
            kind: Kind::Count(1, MAX_DEPTH as u64),
            default: Default::Else("needed for `closed`"),
            effect: "closed: requests outstanding",
        },
        Key {
            name: "think",
            kind: Kind::Time(0, MAX_TIME),
            default: Default::Else("0s"),
            effect: "closed: time between a reply and the next request",
        },
        Key {
            name: "size",
            kind: Kind::Other("a size, or sizes with weights: `{ 4KiB = 7, 64KiB = 3 }`"),
            default: Default::Else("4KiB"),
            effect: "how large requests are",
        },
        Key {
            name: "reads",
            kind: Kind::Real(0.0, 1.0),
            default: Default::Is("1.0"),
            effect: "share of reads; the others are writes",
        },
        Key {
            name: "access",
            kind: Kind::Word(&["random", "sequential", "zipf"]),
            default: Default::Is("random"),
            effect: "where requests go: anywhere, on and on, or hot blocks more often",
        },
        Key {
            name: "skew",
            kind: Kind::Real(0.001, 10.0),
            default: Default::Else("1.0"),
            effect: "zipf: exponent; larger makes hot blocks hotter",
        },
        Key {
            name: "alignment",
            kind: Kind::Size(1, 1 << 60),
            default: Default::Is("4KiB"),
            effect: "offsets are multiples of this from the start of the region",
        },
        Key {
            name: "offset",
            kind: Kind::Size(0, 1 << 60),
            default: Default::Is("0"),
            effect: "start of the region of the volume that is used",
        },
        Key {
            name: "length",
            kind: Kind::Size(1, 1 << 60),
            default: Default::Else("to the end of the volume"),
            effect: "length of the region",
        },
        Key {
            name: "start",
            kind: Kind::Time(0, MAX_TIME),
            default: Default::Is("0s"),
            effect: "nothing comes before this time",
        },
        Key {
            name: "stop",
            kind: Kind::Time(0, MAX_TIME),
            default: Default::Else("never"),
            effect: "nothing comes at or after this time",
        },
    ],
    settings: &[],
};

/// What a request's size may be.
const SIZE: Kind = Kind::Size(1, 1 << 40);

/// How often a size comes relative to the others.
const WEIGHT: Kind = Kind::Count(0, u32::MAX as u64);

/// Reads the tables, in order.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    parts: &Parts,
    tenants: &mut Tenants,
) -> Option<Vec<Workload>> {
    let mut names = Names::new("workload");
    let tables = document.many(context, "workload");
    let workloads: Vec<_> =
        tables.iter().map(|table| one(context, table, parts, &mut names, tenants)).collect();
    workloads.into_iter().collect()
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    parts: &Parts,
    names: &mut Names,
    tenants: &mut Tenants,
) -> Option<Workload> {
    let name = table.text(context, "name");
    if let Some(name) = &name {
        names.define(context, name, table.index());
    }
    let tenant = match (&name, table.has("tenant")) {
        (_, true) => table.text(context, "tenant"),
        (Some(name), false) => {
            table.note(context, "tenant", Value::Text(name.value.clone()), None);
            Some(Read { value: name.value.clone(), span: None })
        }
        (None, false) => None,
    };
    let tenant = tenant.map(|tenant| TenantId::new(tenants.index(context, &tenant) as u32));
    let volume = volume_of(context, table, parts);
    let link = link_of(context, table, parts);
    let arrivals = arrivals(context, table);
    let sizes = sizes(context, table);
    let reads = table.permille(context, "reads");
    let access = access(context, table);
    let alignment = table.number(context, "alignment");
    let offset = table.number(context, "offset");
    let length = table.number(context, "length");
    let length = table.optional("length", length).ok();
    let start = table.number(context, "start");
    let stop = table.number(context, "stop");
    let stop = table.optional("stop", stop).ok();
    let volume = volume?;
    let offset = offset?.value;
    let rest = parts.sizes.get(volume.index())?.saturating_sub(offset);
    Some(Workload {
        name: name?.value,
        tenant: tenant?,
        volume,
        link: link?,
        arrivals: arrivals?,
        sizes: sizes?,
        read_permille: reads? as u32,
        access: access?,
        alignment: alignment?.value,
        region: Extent::new(offset, length?.unwrap_or(rest)),
        start: Duration::from_nanos(start?.value),
        stop: stop?.map(Duration::from_nanos),
    })
}

fn arrivals(context: &mut Context, table: &Table<'_>) -> Option<Arrivals> {
    let kind = table.text(context, "arrivals")?.value;
    if kind == "closed" {
        only_with(context, table, &["rate", "jitter"], "arrivals", &kind);
        let depth = needed(context, table, "depth", &kind);
        let think = table.number(context, "think");
        let think = table.optional("think", think).ok()?.unwrap_or(0);
        return Some(Arrivals::Closed { depth: depth? as u32, think: Duration::from_nanos(think) });
    }
    only_with(context, table, &["depth", "think"], "arrivals", &kind);
    let rate = needed(context, table, "rate", &kind).map(|rate| rate as f64 / 1e3);
    if kind == "poisson" {
        only_with(context, table, &["jitter"], "arrivals", &kind);
        return Some(Arrivals::Poisson { rate: rate? });
    }
    let jitter = if table.has("jitter") { table.permille(context, "jitter") } else { Some(0) };
    Some(Arrivals::Constant { rate: rate?, jitter_permille: jitter? as u32 })
}

/// A number that this kind of arrivals cannot do without.
fn needed(context: &mut Context, table: &Table<'_>, key: &str, kind: &str) -> Option<u64> {
    let read = table.number(context, key);
    let given = table.optional(key, read).ok()?;
    if given.is_none() {
        let message = format!("`{kind}` arrivals need a `{key}`");
        let span = table.value_span("arrivals").unwrap_or_else(|| table.span());
        let diagnostic = Diagnostic::new(Code::MissingKey, message).at(span, "these arrivals");
        context.report(diagnostic.help(format!("add `{key} = …`")));
    }
    given
}

fn access(context: &mut Context, table: &Table<'_>) -> Option<Access> {
    let kind = table.text(context, "access")?.value;
    if kind == "zipf" {
        let skew = table.real(context, "skew");
        return Some(Access::Zipf { skew: table.optional("skew", skew).ok()?.unwrap_or(1.0) });
    }
    only_with(context, table, &["skew"], "access", &kind);
    Some(if kind == "random" { Access::Random } else { Access::Sequential })
}

fn sizes(context: &mut Context, table: &Table<'_>) -> Option<Vec<SizeWeight>> {
    let Some(raw) = table.raw(context, "size") else {
        let bytes = 4_096;
        table.note(context, "size", Value::size(bytes), None);
        return Some(vec![SizeWeight { bytes, weight: 1 }]);
    };
    let diagnostics = context.diagnostics.len();
    let mut sizes = Vec::new();
    let mut take = |context: &mut Context, span, size: &DeValue<'_>, weight: u64| match Value::read(
        &SIZE, size,
    ) {
        Ok(Value::Number(bytes, _)) => sizes.push(SizeWeight { bytes, weight: weight as u32 }),
        Ok(_) => unreachable!("a size is a number"),
        Err(rejected) => context.reject("size", span, rejected),
    };
    if let DeValue::Table(entries) = raw.get_ref() {
        for (key, weight) in entries {
            match Value::read(&WEIGHT, weight.get_ref()) {
                Ok(Value::Number(number, _)) => {
                    let size = DeValue::String(key.get_ref().clone());
                    take(context, key.span(), &size, number);
                }
                Ok(_) => unreachable!("a weight is a number"),
                Err(rejected) => context.reject("size", weight.span(), rejected),
            }
        }
    } else {
        take(context, raw.span(), raw.get_ref(), 1);
    }
    sizes.sort_by_key(|size| size.bytes);
    if context.diagnostics.len() > diagnostics {
        return None;
    }
    let value = match (raw.get_ref(), &sizes[..]) {
        (DeValue::Table(_), sizes) => Value::Pairs(
            sizes
                .iter()
                .map(|size| (units::SIZE.show(size.bytes), Value::Number(size.weight.into(), None)))
                .collect(),
        ),
        (_, sizes) => Value::size(sizes.first().map_or(0, |size| size.bytes)),
    };
    table.note(context, "size", value, Some(raw.span()));
    Some(sizes)
}
