//! The configuration reader: raw text becomes checked types once, at the edge.
//!
//! [`source`] reads the text, TOML's own parser finds its tables and spans, [`tree`] walks them by
//! the keys of a [`schema`], one file per table checks what it means, and everything that is wrong
//! comes back as [`diagnostic`]s, all at once, for [`render`].

pub(crate) mod backend;
pub(crate) mod cache;
mod cap;
pub(crate) mod changes;
mod contract;
pub(crate) mod diagnostic;
pub(crate) mod events;
pub(crate) mod gateway;
pub(crate) mod json_schema;
mod limits;
pub(crate) mod names;
mod path;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod redact;
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

use diagnostic::{Code, Diagnostic, Span};
use schema::Schema;
use source::Source;
use std::collections::BTreeSet;
use toml::de::{DeTable, Error};
use tree::{Context, Document, Effective, Table};
use weir_serve::config::Config;

/// Most diagnostics of each kind that are kept.
const MAX_DIAGNOSTICS: usize = 1_000;

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
    pub(crate) warnings: Vec<Diagnostic>,
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

    /// The kind of which a text looks to be: that with more names at the top that only it has.
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

    /// The one diagnostic of a file of the other kind: its keys would otherwise be unknown one by one.
    fn mistaken(self, root: &DeTable<'_>, source: &Source) -> Option<Diagnostic> {
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
        let diagnostic = Diagnostic::new(Code::WrongFile, message);
        let diagnostic = diagnostic.at(first, format!("only {} has this", article(other)));
        let path = source.path.display();
        Some(diagnostic.help(format!(
            "use `{} {path}`, or name {}",
            other.command(),
            article(self)
        )))
    }
}

/// Reads the configuration of a gateway.
pub(crate) fn gateway(source: &Source) -> Result<Loaded<Config>, Vec<Diagnostic>> {
    load(source, Kind::Gateway, gateway::read)
}

/// The values of the configuration of a gateway that was valid when it was put into force; what it names may have gone.
fn values(source: &Source) -> Vec<Effective> {
    let (root, _) = DeTable::parse_recoverable(&source.text);
    let mut context = Context::default();
    let length = source.text.trim_end().len();
    let document = Document::new(&mut context, &gateway::SCHEMA, root.get_ref(), length);
    gateway::read(&mut context, &document, source);
    context.values
}

/// Reads a plan.
pub(crate) fn plan(source: &Source) -> Result<Loaded<plan::Experiment>, Vec<Diagnostic>> {
    load(source, Kind::Plan, plan::read)
}

fn load<T>(
    source: &Source,
    kind: Kind,
    read: impl FnOnce(&mut Context, &Document<'_>, &Source) -> Option<T>,
) -> Result<Loaded<T>, Vec<Diagnostic>> {
    let text = source.text.as_str();
    let (root, errors) = DeTable::parse_recoverable(text);
    if let Some(diagnostic) = kind.mistaken(root.get_ref(), source) {
        return Err(vec![diagnostic]);
    }
    let mut context = Context::default();
    let document =
        Document::new(&mut context, kind.schema(), root.get_ref(), text.trim_end().len());
    let checked = read(&mut context, &document, source);
    let Context { mut diagnostics, values } = context;
    diagnostics.truncate(MAX_DIAGNOSTICS);
    if !errors.is_empty() {
        return Err(with_syntax(source, &errors, diagnostics));
    }
    let (warnings, diagnostics): (Vec<_>, Vec<_>) =
        diagnostics.into_iter().partition(|diagnostic| diagnostic.code.is_warning());
    match checked {
        Some(checked) if diagnostics.is_empty() => Ok(Loaded { checked, values, warnings }),
        _ => {
            assert!(!diagnostics.is_empty(), "a file that gives nothing has a diagnostic");
            Err(diagnostics.into_iter().chain(warnings).collect())
        }
    }
}

/// The syntax errors, one per line as the second is mostly a consequence of the first, and those
/// other diagnostics that do not come from what could not be read.
fn with_syntax(source: &Source, errors: &[Error], others: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let mut lines = BTreeSet::new();
    let mut diagnostics = Vec::new();
    for error in errors.iter().take(MAX_DIAGNOSTICS) {
        let span = error.span().unwrap_or(0..0);
        if lines.insert(source.position(span.start).0) {
            let diagnostic = Diagnostic::new(
                Code::Syntax,
                error.message().replace(", expected ", "; expected "),
            );
            diagnostics
                .push(diagnostic.at(span, "here").help("see https://toml.io for the syntax"));
        }
    }
    let read = |diagnostic: &Diagnostic| {
        let line = diagnostic.at.as_ref().map(|(span, _)| source.position(span.start).0);
        !diagnostic.code.is_absence() && line.is_none_or(|line| !lines.contains(&line))
    };
    diagnostics.extend(others.into_iter().filter(read));
    diagnostics
}

/// Notes keys that say nothing because `key` has the value `is`.
fn only_with(context: &mut Context, table: &Table<'_>, keys: &[&str], key: &str, is: &str) {
    for name in keys {
        if let Some(span) = table.value_span(name) {
            let message = format!("`{name}` means nothing when `{key}` is `{is}`");
            let diagnostic = Diagnostic::new(Code::Conflict, message).at(span, "this value");
            let see = table.value_span(key);
            let diagnostic = diagnostic.see(see.as_ref(), format!("this `{key}`"));
            context.report(diagnostic.help(format!("remove it, or change `{key}`")));
        }
    }
}
