//! The configuration reader: raw text becomes checked types once, at the edge.
//!
//! [`source`] reads the text, TOML's own parser finds its tables and spans, [`tree`] walks them by
//! the keys of a [`schema`], one file per table checks what it means, and everything that is wrong
//! comes back as [`fault`]s, all at once, for [`render`].

pub(crate) mod backend;
pub(crate) mod cache;
mod cap;
mod contract;
pub(crate) mod fault;
pub(crate) mod gateway;
pub(crate) mod json_schema;
mod limits;
pub(crate) mod names;
mod path;
pub(crate) mod plan;
pub(crate) mod policy;
mod redact;
pub(crate) mod reference;
pub(crate) mod render;
pub(crate) mod schema;
mod shares;
pub(crate) mod show;
pub(crate) mod source;
mod suggest;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
pub(crate) mod units;
pub(crate) mod value;

use fault::{Code, Fault, Span};
use schema::Schema;
use source::Source;
use std::collections::BTreeSet;
use toml::de::{DeTable, Error};
use tree::{Context, Document, Effective, Table};
use weir_serve::config::Config;

/// Most faults of each kind that are kept. Nobody corrects more at once.
const MAX_FAULTS: usize = 1_000;

/// The two kinds of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The configuration of `weir serve`.
    Gateway,
    /// The plan of `weir sim`.
    Plan,
}

/// A file that can be used.
#[derive(Debug)]
pub(crate) struct Loaded<T> {
    /// What it says.
    pub(crate) checked: T,
    /// The values that hold, defaults included.
    pub(crate) values: Vec<Effective>,
    /// What is odd about it.
    pub(crate) warnings: Vec<Fault>,
}

impl Kind {
    /// The keys of this kind of file.
    pub(crate) const fn schema(self) -> &'static Schema {
        match self {
            Self::Gateway => &gateway::SCHEMA,
            Self::Plan => &plan::SCHEMA,
        }
    }

    /// Its name for programs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Plan => "plan",
        }
    }

    /// The command that takes this kind of file.
    const fn command(self) -> &'static str {
        match self {
            Self::Gateway => "weir serve",
            Self::Plan => "weir sim",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Gateway => Self::Plan,
            Self::Plan => Self::Gateway,
        }
    }

    /// The kind of which a text looks to be: that with more of its own names at the top.
    pub(crate) fn of(source: &Source) -> Self {
        let (root, _) = DeTable::parse_recoverable(&source.text);
        let count = |kind: Self| kind.own_names(root.get_ref()).count();
        if count(Self::Plan) > count(Self::Gateway) { Self::Plan } else { Self::Gateway }
    }

    /// The places of the names at the top that only this kind of file has, in the order of the text.
    fn own_names(self, root: &DeTable<'_>) -> impl Iterator<Item = Span> {
        let others: Vec<_> = self.other().schema().top_names().collect();
        let own: Vec<_> = self.schema().top_names().filter(|name| !others.contains(name)).collect();
        let keys = root.iter().map(|(key, _)| key);
        let mut spans: Vec<_> =
            keys.filter(|key| own.contains(&&**key.get_ref())).map(toml::Spanned::span).collect();
        spans.sort_by_key(|span| span.start);
        spans.into_iter()
    }

    /// The one fault of a file of the other kind: its keys would otherwise be unknown one by one.
    fn mistaken(self, root: &DeTable<'_>, source: &Source) -> Option<Fault> {
        let other = self.other();
        let mut names = other.own_names(root);
        let first = names.next()?;
        if names.count() < self.own_names(root).count() {
            return None;
        }
        let article = |kind: Self| match kind {
            Self::Gateway => "a gateway configuration",
            Self::Plan => "a plan",
        };
        let message = format!("this is {}, not {}", article(other), article(self));
        let fault = Fault::new(Code::WrongFile, message);
        let fault = fault.at(first, format!("only {} has this", article(other)));
        let path = source.path.display();
        Some(fault.help(format!("use `{} {path}`, or name {}", other.command(), article(self))))
    }
}

/// Reads the configuration of a gateway.
pub(crate) fn gateway(source: &Source) -> Result<Loaded<Config>, Vec<Fault>> {
    load(source, Kind::Gateway, gateway::read)
}

/// Reads a plan.
pub(crate) fn plan(source: &Source) -> Result<Loaded<plan::Experiment>, Vec<Fault>> {
    load(source, Kind::Plan, plan::read)
}

fn load<T>(
    source: &Source,
    kind: Kind,
    read: impl FnOnce(&mut Context, &Document<'_>, &Source) -> Option<T>,
) -> Result<Loaded<T>, Vec<Fault>> {
    let text = source.text.as_str();
    let (root, errors) = DeTable::parse_recoverable(text);
    if let Some(fault) = kind.mistaken(root.get_ref(), source) {
        return Err(vec![fault]);
    }
    let mut context = Context::default();
    let document =
        Document::new(&mut context, kind.schema(), root.get_ref(), text.trim_end().len());
    let checked = read(&mut context, &document, source);
    let Context { mut faults, values } = context;
    faults.truncate(MAX_FAULTS);
    if !errors.is_empty() {
        return Err(with_syntax(source, &errors, faults));
    }
    let (warnings, faults): (Vec<_>, Vec<_>) =
        faults.into_iter().partition(|fault| fault.code.is_warning());
    match checked {
        Some(checked) if faults.is_empty() => Ok(Loaded { checked, values, warnings }),
        _ => {
            assert!(!faults.is_empty(), "a file that gives nothing has a fault");
            Err(faults.into_iter().chain(warnings).collect())
        }
    }
}

/// The syntax errors, one per line as the second is mostly a consequence of the first, and those
/// other faults that do not come from what could not be read.
fn with_syntax(source: &Source, errors: &[Error], others: Vec<Fault>) -> Vec<Fault> {
    let mut lines = BTreeSet::new();
    let mut faults = Vec::new();
    for error in errors.iter().take(MAX_FAULTS) {
        let span = error.span().unwrap_or(0..0);
        if lines.insert(source.position(span.start).0) {
            let fault =
                Fault::new(Code::Syntax, error.message().replace(", expected ", "; expected "));
            faults.push(fault.at(span, "here").help("see https://toml.io for the syntax"));
        }
    }
    let read = |fault: &Fault| {
        let line = fault.at.as_ref().map(|(span, _)| source.position(span.start).0);
        !fault.code.is_absence() && line.is_none_or(|line| !lines.contains(&line))
    };
    faults.extend(others.into_iter().filter(read));
    faults
}

/// Notes keys that say nothing because `key` has the value `is`.
fn only_with(context: &mut Context, table: &Table<'_>, keys: &[&str], key: &str, is: &str) {
    for name in keys {
        if let Some(span) = table.value_span(name) {
            let message = format!("`{name}` means nothing when `{key}` is `{is}`");
            let fault = Fault::new(Code::Conflict, message).at(span, "this value");
            let see = table.value_span(key);
            let fault = fault.see(see.as_ref(), format!("this `{key}`"));
            context.faults.push(fault.help(format!("remove it, or change `{key}`")));
        }
    }
}
