//! `[[expect]]`: what a run must achieve, for plans that are tests.

use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Read, Table};
use crate::config::units::TIME;
use crate::config::value::one_of;
use serde_json::{Value, json};
use weir_sim::results::{Results, TenantResults, Times};

/// The table.
pub(super) static EXPECT: Section = Section {
    name: "expect",
    many: Many::Times(0, 4_096),
    effect: "what must hold of the measured part; otherwise the exit code is 4",
    keys: &[
        Key {
            name: "tenant",
            kind: Kind::Text("a tenant's name"),
            default: Default::Else("all tenants together"),
            effect: "whose requests are meant",
        },
        time("mean", "largest mean response time"),
        time("p50", "largest median response time"),
        time("p95", "largest 95th percentile"),
        time("p99", "largest 99th percentile"),
        time("p999", "largest 99.9th percentile"),
        time("max", "largest response time of any request"),
        Key {
            name: "rate",
            kind: Kind::Rate(1, 1_000_000_000_000),
            default: Default::Else("not checked"),
            effect: "fewest requests completed per second",
        },
        Key {
            name: "errors",
            kind: Kind::Count(0, u64::MAX),
            default: Default::Else("not checked"),
            effect: "most requests that ended with an error",
        },
        Key {
            name: "refused",
            kind: Kind::Count(0, u64::MAX),
            default: Default::Else("not checked"),
            effect: "most requests refused",
        },
    ],
    settings: &[],
};

const fn time(name: &'static str, effect: &'static str) -> Key {
    let default = Default::Else("not checked");
    Key { name, kind: Kind::Time(1, super::MAX_TIME), default, effect }
}

/// A key, and which response time it bounds.
type Bound = (&'static str, fn(&Times) -> u64);

/// The response times that can be bounded.
const TIMES: [Bound; 6] = [
    ("mean", |times| times.mean_ns as u64),
    ("p50", |times| times.p50_ns),
    ("p95", |times| times.p95_ns),
    ("p99", |times| times.p99_ns),
    ("p999", |times| times.p999_ns),
    ("max", |times| times.max_ns),
];

/// One thing that must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expectation {
    /// Index of the tenant; `None` for all together.
    tenant: Option<usize>,
    key: &'static str,
    bound: u64,
}

/// Whether it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    tenant: String,
    key: &'static str,
    bound: u64,
    measured: u64,
    /// Whether the expectation is met.
    pub(crate) met: bool,
}

impl Expectation {
    /// Compares with what was measured.
    pub(crate) fn verdict(&self, results: &Results) -> Verdict {
        let tenant = self.tenant.and_then(|index| results.tenants.get(index));
        let tenant = tenant.unwrap_or(&results.all);
        let measured = measure(self.key, tenant);
        let met = match self.key {
            "rate" => measured >= self.bound,
            _ => measured <= self.bound,
        };
        let Self { key, bound, .. } = *self;
        Verdict { tenant: tenant.name.clone(), key, bound, measured, met }
    }
}

impl Verdict {
    /// One line for people.
    pub(crate) fn text(&self) -> String {
        let Self { tenant, key, bound, measured, met } = self;
        let show = |value: u64| match *key {
            "rate" => format!("{:.1}/s", value as f64 / 1e3),
            "errors" | "refused" => value.to_string(),
            _ => format!("{:.3} ms", value as f64 / 1e6),
        };
        let (bound, measured) = (show(*bound), show(*measured));
        let word = if *key == "rate" { "at least" } else { "at most" };
        let verdict = if *met { "met" } else { "NOT MET" };
        format!("expected {key} of {tenant} {word} {bound}: {measured}, {verdict}\n")
    }

    /// The same for programs.
    pub(crate) fn to_json(&self) -> Value {
        let Self { tenant, key, bound, measured, met } = self;
        let unit = match *key {
            "rate" => "requests per 1000 s",
            "errors" | "refused" => "requests",
            _ => "ns",
        };
        json!({
            "tenant": tenant, "what": key, "bound": bound, "measured": measured, "unit": unit,
            "met": met,
        })
    }
}

fn measure(key: &str, tenant: &TenantResults) -> u64 {
    match key {
        "rate" => (tenant.requests_per_second * 1e3) as u64,
        "errors" => tenant.errors,
        "refused" => tenant.refused,
        key => TIMES
            .iter()
            .find(|(name, _)| *name == key)
            .map_or(0, |(_, measure)| measure(&tenant.response)),
    }
}

/// Reads the tables, in order.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    tenants: &[String],
) -> Option<Vec<Expectation>> {
    let tables = document.many(context, "expect");
    let all: Vec<_> = tables.iter().map(|table| one(context, table, tenants)).collect();
    all.into_iter().collect::<Option<Vec<_>>>().map(|all| all.into_iter().flatten().collect())
}

fn one(context: &mut Context, table: &Table<'_>, tenants: &[String]) -> Option<Vec<Expectation>> {
    let diagnostics = context.diagnostics.len();
    let tenant = table.text(context, "tenant").map(|name| find(context, &name, tenants));
    let mut expectations = Vec::new();
    let keys = TIMES.iter().map(|(name, _)| *name).chain(["rate", "errors", "refused"]);
    for key in keys {
        if let Some(bound) = table.number(context, key) {
            let tenant = tenant.flatten();
            expectations.push(Expectation { tenant, key, bound: bound.value });
        }
    }
    if expectations.is_empty() && context.diagnostics.len() == diagnostics {
        let diagnostic = Diagnostic::new(Code::MissingKey, "`[[expect]]` expects nothing");
        let diagnostic = diagnostic.at(table.span(), "this table");
        context.report(
            diagnostic.help(format!("add a bound such as `p99 = \"{}\"`", TIME.show(10_000_000))),
        );
    }
    (context.diagnostics.len() == diagnostics).then_some(expectations)
}

fn find(context: &mut Context, name: &Read<String>, tenants: &[String]) -> Option<usize> {
    let index = tenants.iter().position(|known| *known == name.value);
    if index.is_none() {
        let known: Vec<_> = tenants.iter().map(String::as_str).take(12).collect();
        let message = format!("no tenant is called `{}`", name.value);
        let diagnostic = Diagnostic::new(Code::Dangling, message);
        let diagnostic = diagnostic.at_some(name.span.as_ref(), "names a tenant");
        context.report(diagnostic.help(one_of(&name.value, &known)));
    }
    index
}
