//! The rows of a contract: how many requests of which kind end within which times.

use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::schema::Kind;
use crate::config::tree::{Context, Table, unknown};
use crate::config::units::{SIZE, TIME};
use crate::config::value::{Value, type_name};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weir_flow::clock::Duration;
use weir_flow::control::{
    Direction, IOPS_MAX, LOAD_MAX, Ops, RESPONSE_MAX, RESPONSE_MIN, ROWS_MAX, Row, SIZE_MAX, Target,
};

/// What the value looks like.
const FORM: &str = "write `objectives = [{ size = \"4KiB\", iops = 3500, p99 = \"41ms\" }]`";

const OP: Kind = Kind::Word(&["any", "read", "write"]);
const BYTES: Kind = Kind::Size(1, SIZE_MAX as u64);
const RATE: Kind = Kind::Count(1, IOPS_MAX as u64);
const LOAD: Kind = Kind::Real(0.001, LOAD_MAX as f64 / 1_000.0);
const RESPONSE: Kind = Kind::Time(RESPONSE_MIN.as_nanos(), RESPONSE_MAX.as_nanos());

/// The keys of response times, and the share of requests that each is for, in millionths.
const PERCENTILES: &[(&str, u32)] = &[
    ("p50", 500_000),
    ("p90", 900_000),
    ("p95", 950_000),
    ("p99", 990_000),
    ("p999", 999_000),
    ("p9999", 999_900),
];

/// Reads the key `objectives`.
pub(super) fn read(context: &mut Context, table: &Table<'_>) -> Option<Vec<Row>> {
    let raw = table.raw(context, "objectives")?;
    let DeValue::Array(items) = raw.get_ref() else {
        let message = format!("{} where a list of rows belongs", type_name(raw.get_ref()));
        let diagnostic =
            Diagnostic::new(Code::WrongType, message).at(raw.span(), "the value of `objectives`");
        context.report(diagnostic.help(FORM));
        return None;
    };
    let diagnostics = context.diagnostics.len();
    if items.is_empty() {
        let diagnostic =
            Diagnostic::new(Code::BadValue, "a contract without rows promises nothing");
        let help = "add a row, or remove `objectives` for a tenant without a contract";
        context.report(diagnostic.at(raw.span(), "the value of `objectives`").help(help));
    }
    if let Some(extra) = items.get(ROWS_MAX) {
        let diagnostic =
            Diagnostic::new(Code::OutOfRange, format!("there are more than {ROWS_MAX} rows"));
        let diagnostic = diagnostic.at(extra.span(), "the first one too many");
        context
            .report(diagnostic.help("leave sizes out: between two rows the rate is interpolated"));
    }
    let read: Vec<_> = items.iter().take(ROWS_MAX).map(|item| one(context, item)).collect();
    let whole: Vec<_> = read.iter().flatten().collect();
    order(context, &whole);
    if context.diagnostics.len() > diagnostics {
        return None;
    }
    let shown = whole.iter().map(|read| read.shown()).collect();
    table.note(context, "objectives", Value::List(shown), Some(raw.span()));
    Some(read.into_iter().flatten().map(|read| read.row).collect())
}

/// A row and where its parts are written.
struct Written {
    row: Row,
    size: Span,
    iops: Span,
    load: Option<Span>,
}

impl Written {
    /// The row as a value.
    fn shown(&self) -> Value {
        let Row { ops, size, iops, load_permille, targets } = &self.row;
        let op = match ops {
            Ops::Any => "any",
            Ops::Read => "read",
            Ops::Write => "write",
        };
        let targets = targets.iter().map(|target| {
            let key = PERCENTILES.iter().find(|(_, share)| *share == target.quantile_ppm);
            let (key, _) = key.expect("quantiles are read from these keys");
            ((*key).to_owned(), Value::Number(target.response.as_nanos(), Some(&TIME)))
        });
        let first = [
            ("op".to_owned(), Value::Text(op.to_owned())),
            ("size".to_owned(), Value::Number((*size).into(), Some(&SIZE))),
            ("iops".to_owned(), Value::Number((*iops).into(), None)),
        ];
        let load = load_permille.map(|load| f64::from(load) / 1_000.0);
        let load = load.map(|load| ("load".to_owned(), Value::Real(load)));
        Value::Pairs(first.into_iter().chain(load).chain(targets).collect())
    }
}

fn one(context: &mut Context, item: &Spanned<DeValue<'_>>) -> Option<Written> {
    let DeValue::Table(entries) = item.get_ref() else {
        let message = format!("{} where a row belongs", type_name(item.get_ref()));
        let diagnostic =
            Diagnostic::new(Code::WrongType, message).at(item.span(), "in `objectives`");
        context.report(diagnostic.help(FORM));
        return None;
    };
    let percentiles = PERCENTILES.iter().map(|(key, _)| *key);
    let known: Vec<_> = ["op", "size", "iops", "load"].into_iter().chain(percentiles).collect();
    let diagnostics = context.diagnostics.len();
    for (key, _) in entries {
        let name: &str = key.get_ref();
        if !known.contains(&name) {
            let message = format!("a row has no key `{}`", crate::config::units::shorten(name));
            context.report(unknown(message, key.span(), name, &known));
        }
    }
    let ops = match value(context, entries, "op", &OP) {
        Some((Value::Text(op), _)) if op == "read" => Ops::Read,
        Some((Value::Text(op), _)) if op == "write" => Ops::Write,
        _ => Ops::Any,
    };
    let size = needed(context, item, entries, "size", &BYTES);
    let iops = needed(context, item, entries, "iops", &RATE);
    let load = load(context, entries);
    let targets = targets(context, item, entries);
    if context.diagnostics.len() > diagnostics {
        return None;
    }
    let ((bytes, size), (rate, iops)) = (size?, iops?);
    let (load_permille, load) = load.unzip();
    let row = Row { ops, size: bytes as u32, iops: rate as u32, load_permille, targets };
    Some(Written { row, size, iops, load })
}

/// Up to which load a row holds, in thousandths of the contract.
fn load(context: &mut Context, entries: &DeTable<'_>) -> Option<(u32, Span)> {
    match value(context, entries, "load", &LOAD)? {
        (Value::Real(load), span) => {
            Some((context.permille("load", load, Some(&span))? as u32, span))
        }
        _ => unreachable!("`load` is a real number"),
    }
}

/// The response times of a row; a larger share is not promised a shorter one.
fn targets(
    context: &mut Context,
    item: &Spanned<DeValue<'_>>,
    entries: &DeTable<'_>,
) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    let mut last: Option<(&str, Span)> = None;
    for &(key, quantile_ppm) in PERCENTILES {
        let Some((time, span)) = number(context, entries, key, &RESPONSE) else { continue };
        let response = Duration::from_nanos(time);
        if let (Some(before), Some((small, see))) = (targets.last(), &last)
            && before.response > response
        {
            let message = format!("`{key}` is shorter than `{small}`, which is for fewer requests");
            let diagnostic = Diagnostic::new(Code::Conflict, message).at(span.clone(), "this time");
            let diagnostic = diagnostic.see(Some(see), "this time");
            context.report(diagnostic.help("let times grow with the share of the requests"));
        }
        targets.push(Target { quantile_ppm, response });
        last = Some((key, span));
    }
    if targets.is_empty() && !PERCENTILES.iter().any(|(key, _)| entries.contains_key(*key)) {
        let diagnostic =
            Diagnostic::new(Code::MissingKey, "a row without a response time promises none");
        let diagnostic = diagnostic.at(item.span(), "this row");
        context.report(diagnostic.help("add `p99 = \"…\"`: what 99 % of the requests end within"));
    }
    targets
}

/// Rows for one operation go up in size and down in rate.
fn order(context: &mut Context, rows: &[&Written]) {
    let mut told: Vec<usize> = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
        let rows: Vec<_> =
            rows.iter().enumerate().filter(|(_, row)| row.row.ops.cover(direction)).collect();
        for pair in rows.windows(2) {
            let ((_, small), (index, large)) = (pair[0], pair[1]);
            let reach = |written: &Written| written.row.load_permille.unwrap_or(u32::MAX);
            let alike = small.row.size == large.row.size && small.row.iops == large.row.iops;
            let bands = alike && (small.load.is_some() || large.load.is_some());
            let (message, at, see) = if bands && reach(small) < reach(large) {
                continue;
            } else if bands {
                let message = "rows for one operation and size are listed by ascending load";
                let at = large.load.as_ref().unwrap_or(&large.size);
                (message, at, small.load.as_ref().unwrap_or(&small.size))
            } else if small.row.size >= large.row.size {
                ("rows for one operation are listed by ascending size", &large.size, &small.size)
            } else if small.row.iops < large.row.iops {
                let message = "larger requests are promised at a higher rate than smaller ones";
                (message, &large.iops, &small.iops)
            } else {
                continue;
            };
            if told.contains(&index) {
                continue;
            }
            told.push(index);
            let diagnostic =
                Diagnostic::new(Code::Conflict, message).at(at.clone(), "the later row");
            let diagnostic = diagnostic.see(Some(see), "the row before it");
            context.report(diagnostic.help(
                "order the rows by size, the smallest first, each at most at the rate of the one \
                 before; rows of one size and rate by `load`, the last one without if it shall \
                 always hold",
            ));
        }
    }
}

/// A value of a row that may be missing, and its place.
fn value(
    context: &mut Context,
    entries: &DeTable<'_>,
    key: &str,
    kind: &Kind,
) -> Option<(Value, Span)> {
    let raw = entries.get(key)?;
    match Value::read(kind, raw.get_ref()) {
        Ok(value) => Some((value, raw.span())),
        Err(rejected) => {
            context.reject(key, raw.span(), rejected);
            None
        }
    }
}

fn number(
    context: &mut Context,
    entries: &DeTable<'_>,
    key: &str,
    kind: &Kind,
) -> Option<(u64, Span)> {
    match value(context, entries, key, kind)? {
        (Value::Number(number, _), span) => Some((number, span)),
        _ => unreachable!("`{key}` is a number"),
    }
}

fn needed(
    context: &mut Context,
    item: &Spanned<DeValue<'_>>,
    entries: &DeTable<'_>,
    key: &str,
    kind: &Kind,
) -> Option<(u64, Span)> {
    if !entries.contains_key(key) {
        let diagnostic = Diagnostic::new(Code::MissingKey, format!("a row has no `{key}`"));
        context.report(diagnostic.at(item.span(), "this row").help(FORM));
    }
    number(context, entries, key, kind)
}
