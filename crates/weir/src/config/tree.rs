//! Walks a parsed file by its schema and collects everything that is wrong with it.
//!
//! A getter gives a value that is right, or nothing after it has noted why not. So a reader asks
//! for all of its keys first and builds its checked value only when it has all of them; the diagnostics
//! of one file are reported together.

use super::diagnostic::{Code, Diagnostic, Span};
use super::schema::{Default, Form as _, Key, Kind, Many, Schema, Section};
use super::suggest::nearest;
use super::units::shorten;
use super::value::{Rejected, Value, type_name};
use std::collections::BTreeSet;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weir_flow::settings::Settings;

/// What is found out while a file is read.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// What is wrong, in the order in which it was noticed.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The values that hold, in the order in which they were asked for.
    pub(crate) values: Vec<Effective>,
}

/// A value that holds, and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Effective {
    /// Its table.
    pub(crate) section: &'static Section,
    /// Which of several tables of that name, from zero.
    pub(crate) index: usize,
    /// Its key.
    pub(crate) key: &'static str,
    /// The value.
    pub(crate) value: Value,
    /// Where it is written; `None` for a default.
    pub(crate) origin: Option<Span>,
}

/// A value and where it is written; `None` for a default.
#[derive(Clone, Debug)]
pub(crate) struct Read<T> {
    /// The value.
    pub(crate) value: T,
    /// Its place in the file.
    pub(crate) span: Option<Span>,
}

/// There is no value because of a diagnostic, which has been noted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted;

/// A whole file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Document<'a> {
    schema: &'static Schema,
    root: &'a DeTable<'a>,
    end: usize,
}

/// One table, or what its defaults make of a missing one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    section: &'static Section,
    index: usize,
    entries: Option<&'a DeTable<'a>>,
    header: Option<&'a Spanned<DeValue<'a>>>,
    end: usize,
}

type Entry<'a> = (Span, &'a Spanned<DeValue<'a>>);

impl<'a> Document<'a> {
    /// Starts to read; notes what stands at the top and is not in the schema. `end` is the length
    /// of the text.
    pub(crate) fn new(
        context: &mut Context,
        schema: &'static Schema,
        root: &'a DeTable<'a>,
        end: usize,
    ) -> Self {
        let names: Vec<_> = schema.top_names().collect();
        for (key, _) in root {
            let name: &str = key.get_ref();
            if !names.contains(&name) {
                let message = format!("a {} has no key or table `{}`", schema.name, shorten(name));
                context.report(unknown(message, key.span(), name, &names));
            }
        }
        Self { schema, root, end }
    }

    /// Whether a table or key of this name stands at the top.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.root.contains_key(name)
    }

    /// The place of the first of `keys` that is there in the `index`-th table called `name`, or
    /// of that table, or the end of the file.
    pub(crate) fn locate(&self, name: &str, index: usize, keys: &[&str]) -> Span {
        let Some(header) = self.root.get(name) else { return self.end..self.end };
        let header = match header.get_ref() {
            DeValue::Array(items) => items.get(index).unwrap_or(header),
            _ => header,
        };
        let DeValue::Table(entries) = header.get_ref() else { return header.span() };
        let value = keys.iter().find_map(|key| entries.get(*key));
        value.map_or_else(|| header.span(), Spanned::span)
    }

    /// The keys before the first table.
    pub(crate) fn top(&self) -> Table<'a> {
        let section = self.schema.section("").expect("a reader asks for tables of its schema");
        Table { section, index: 0, entries: Some(self.root), header: None, end: self.end }
    }

    /// The table that may be there once.
    pub(crate) fn once(&self, context: &mut Context, name: &str) -> Table<'a> {
        let section = self.schema.section(name).expect("a reader asks for tables of its schema");
        let header = self.root.get(name);
        let absent = Table { section, index: 0, entries: None, header: None, end: self.end };
        match header.map(|header| (header, header.get_ref())) {
            None => absent,
            Some((header, DeValue::Table(entries))) => {
                let table = Table { entries: Some(entries), header: Some(header), ..absent };
                table.unknown_keys(context);
                table
            }
            Some((header, other)) => {
                context.report(wrong_table(section, header.span(), other));
                absent
            }
        }
    }

    /// The tables that may be there several times, in order.
    pub(crate) fn many(&self, context: &mut Context, name: &str) -> Vec<Table<'a>> {
        let section = self.schema.section(name).expect("a reader asks for tables of its schema");
        let Many::Times(min, max) = section.many else { return Vec::new() };
        let mut tables = Vec::new();
        match self.root.get(name).map(|header| (header, header.get_ref())) {
            None => {}
            Some((_, DeValue::Array(items))) => {
                for (index, item) in items.iter().enumerate() {
                    let DeValue::Table(entries) = item.get_ref() else {
                        context.report(wrong_table(section, item.span(), item.get_ref()));
                        continue;
                    };
                    let (entries, header) = (Some(entries), Some(item));
                    let table = Table { section, index, entries, header, end: self.end };
                    table.unknown_keys(context);
                    tables.push(table);
                }
            }
            Some((header, other)) => {
                context.report(wrong_table(section, header.span(), other));
                return tables;
            }
        }
        if tables.len() < min {
            let message = format!("there is no `{}`", section.heading());
            let help = format!("add at least {min}: {}", section.effect);
            let diagnostic = Diagnostic::new(Code::MissingKey, message).help(help);
            context.report(diagnostic.at(self.end..self.end, "the file ends here"));
        }
        if tables.len() > max {
            let message = format!("there are more than {max} `{}`", section.heading());
            let diagnostic = Diagnostic::new(Code::OutOfRange, message);
            context.report(diagnostic.at(tables[max].span(), "the first one too many"));
            tables.truncate(max);
        }
        tables
    }
}

impl<'a> Table<'a> {
    /// Where the table begins.
    pub(crate) fn span(&self) -> Span {
        self.header.map_or(self.end..self.end, Spanned::span)
    }

    /// Whether the table is in the file.
    pub(crate) const fn is_present(&self) -> bool {
        self.header.is_some()
    }

    /// Its place among the tables of its name.
    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// Whether tables of this kind have such a key.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.section.key(name).is_some()
    }

    /// Whether the key is in the file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// What was read from a key that may be missing.
    pub(crate) fn optional<T>(
        &self,
        name: &str,
        read: Option<Read<T>>,
    ) -> Result<Option<T>, Noted> {
        match read {
            None if self.has(name) => Err(Noted),
            read => Ok(read.map(|read| read.value)),
        }
    }

    /// Where the key's value is written.
    pub(crate) fn value_span(&self, name: &str) -> Option<Span> {
        self.entry(name).map(|(_, raw)| raw.span())
    }

    /// A text or a word.
    pub(crate) fn text(&self, context: &mut Context, name: &str) -> Option<Read<String>> {
        self.get(context, name, |value| match value {
            Value::Text(text) => text,
            other => other.to_toml(),
        })
    }

    /// A whole number or a quantity in its base unit.
    pub(crate) fn number(&self, context: &mut Context, name: &str) -> Option<Read<u64>> {
        self.get(context, name, |value| match value {
            Value::Number(number, _) => number,
            _ => unreachable!("the key `{name}` is a number in its schema"),
        })
    }

    /// A number with a fraction.
    pub(crate) fn real(&self, context: &mut Context, name: &str) -> Option<Read<f64>> {
        self.get(context, name, |value| match value {
            Value::Real(number) => number,
            _ => unreachable!("the key `{name}` is a number with a fraction in its schema"),
        })
    }

    /// A share or factor in thousandths.
    pub(crate) fn permille(&self, context: &mut Context, name: &str) -> Option<u64> {
        let read = self.real(context, name)?;
        context.permille(name, read.value, read.span.as_ref())
    }

    /// The settings of a declared table; diagnostics are noted.
    pub(crate) fn settings<S: Settings>(&self, context: &mut Context) -> Option<S> {
        self.settings_over(context, S::default())
    }

    /// The settings of a declared table over these, which hold where nothing is written.
    pub(crate) fn settings_over<S: Settings>(
        &self,
        context: &mut Context,
        mut settings: S,
    ) -> Option<S> {
        let Self { section, index, .. } = *self;
        let mut whole = true;
        for Key { name: key, kind, .. } in S::TABLE {
            let (value, origin) = match self.entry(key) {
                None => (settings.number(key).map(|number| Value::of_number(kind, number)), None),
                Some((_, raw)) => match Value::read(kind, raw.get_ref()) {
                    Ok(value) => {
                        let number = value.to_number(kind);
                        settings.assign(key, number.expect("a declared setting is a number"));
                        (Some(value), Some(raw.span()))
                    }
                    Err(rejected) => {
                        context.reject(key, raw.span(), rejected);
                        whole = false;
                        continue;
                    }
                },
            };
            let value = value.map(|value| Effective { section, index, key, value, origin });
            context.values.extend(value);
        }
        if !whole {
            return None;
        }
        for &(low, high) in S::ASCENDING {
            if settings.number(low) > settings.number(high) {
                self.descending(context, low, high);
                whole = false;
            }
        }
        whole.then_some(settings)
    }

    /// Notes that the value of the first key is above that of the second. One of them is in the file.
    fn descending(&self, context: &mut Context, low: &str, high: &str) {
        let (low_span, high_span) = (self.value_span(low), self.value_span(high));
        let (at, see) = match (low_span, high_span) {
            (Some(low), high) => (low, high),
            (None, high) => (high.unwrap_or_else(|| self.span()), None),
        };
        let message = format!("`{low}` must not be above `{high}`");
        let diagnostic = Diagnostic::new(Code::Conflict, message).at(at, "this value");
        let diagnostic = diagnostic.see(see.as_ref(), "and this one");
        context.report(diagnostic.help(format!("write a smaller `{low}` or a larger `{high}`")));
    }

    /// Yes or no.
    pub(crate) fn flag(&self, context: &mut Context, name: &str) -> Option<Read<bool>> {
        self.get(context, name, |value| value == Value::Flag(true))
    }

    /// A list of texts; one text without brackets is a list of one. Notes the values.
    pub(crate) fn texts(&self, context: &mut Context, name: &str) -> Option<Vec<Read<String>>> {
        let key = self.key(name);
        let Some((_, raw)) = self.entry(name) else {
            let Default::Is(text) = key.default else { return self.absent(context, key) };
            let items: Vec<_> = text.split(", ").filter(|item| !item.is_empty()).collect();
            let items: Vec<_> =
                items.into_iter().map(|item| Read { value: item.to_owned(), span: None }).collect();
            self.note(context, name, list(&items), None);
            return Some(items);
        };
        let raws = match raw.get_ref() {
            DeValue::Array(items) => items.iter().collect(),
            _ => vec![raw],
        };
        let diagnostics = context.diagnostics.len();
        let mut items = Vec::new();
        for raw in raws {
            match Value::read(&key.kind, raw.get_ref()) {
                Ok(Value::Text(value)) => items.push(Read { value, span: Some(raw.span()) }),
                Ok(_) => unreachable!("the key `{name}` is a list of texts in its schema"),
                Err(rejected) => context.reject(name, raw.span(), rejected),
            }
        }
        if context.diagnostics.len() > diagnostics {
            return None;
        }
        self.note(context, name, list(&items), Some(raw.span()));
        Some(items)
    }

    /// The value as it is written, for a form that the schema does not describe. The caller notes what it makes of it.
    pub(crate) fn raw(
        &self,
        context: &mut Context,
        name: &str,
    ) -> Option<&'a Spanned<DeValue<'a>>> {
        match self.entry(name) {
            Some((_, raw)) => Some(raw),
            None => self.absent(context, self.key(name)),
        }
    }

    /// Notes the value that holds for a key.
    pub(crate) fn note(
        &self,
        context: &mut Context,
        name: &str,
        value: Value,
        origin: Option<Span>,
    ) {
        let key = self.key(name).name;
        let Self { section, index, .. } = *self;
        context.values.push(Effective { section, index, key, value, origin });
    }

    /// Takes back what was noted for a key that another stands for.
    pub(crate) fn forget(&self, context: &mut Context, name: &str) {
        let here = |value: &Effective| {
            value.section.name == self.section.name && value.index == self.index
        };
        context.values.retain(|value| !(here(value) && value.key == name));
    }

    /// Notes the default of a key that its schema leaves to the reader, in base units.
    pub(crate) fn note_number(&self, context: &mut Context, name: &str, number: u64) {
        let scale = self.key(name).kind.scale().map(|(scale, ..)| scale);
        self.note(context, name, Value::Number(number, scale), None);
    }

    /// The value of a kind other than [`Kind::Other`], in base units and within its limits.
    fn get<T>(
        &self,
        context: &mut Context,
        name: &str,
        take: impl FnOnce(Value) -> T,
    ) -> Option<Read<T>> {
        let key = self.key(name);
        let Some((_, raw)) = self.entry(name) else {
            let Some(value) = default(key) else { return self.absent(context, key) };
            self.note(context, name, value.clone(), None);
            return Some(Read { value: take(value), span: None });
        };
        match Value::read(&key.kind, raw.get_ref()) {
            Ok(value) => {
                self.note(context, name, value.clone(), Some(raw.span()));
                Some(Read { value: take(value), span: Some(raw.span()) })
            }
            Err(rejected) => {
                context.reject(name, raw.span(), rejected);
                None
            }
        }
    }

    /// Nothing; a diagnostic if the key must be there.
    fn absent<T>(&self, context: &mut Context, key: &Key) -> Option<T> {
        if matches!(key.default, Default::Required) {
            self.missing(context, key.name);
        }
        None
    }

    /// Notes that a key must be there and is not.
    pub(crate) fn missing(&self, context: &mut Context, name: &str) {
        let key = self.key(name);
        let message = format!("`{}` has no `{}`", self.section.heading(), key.name);
        let help = format!("add `{} = …`: {}", key.name, key.effect);
        let label = if self.is_present() { "this table" } else { "the file ends here" };
        let diagnostic = Diagnostic::new(Code::MissingKey, message).help(help);
        context.report(diagnostic.at(self.span(), label));
    }

    fn key(&self, name: &str) -> &'static Key {
        self.section.key(name).expect("a reader asks for keys of its schema")
    }

    fn entry(&self, name: &str) -> Option<Entry<'a>> {
        let (key, value) = self.entries?.get_key_value(name)?;
        Some((key.span(), value))
    }

    fn unknown_keys(&self, context: &mut Context) {
        let mut names: Vec<_> = self.section.all().map(|(key, _)| key.name).collect();
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(*name));
        for (key, _) in self.entries.into_iter().flatten() {
            let name: &str = key.get_ref();
            if !names.contains(&name) {
                let message =
                    format!("`{}` has no key `{}`", self.section.heading(), shorten(name));
                context.report(unknown(message, key.span(), name, &names));
            }
        }
    }
}

impl Context {
    /// Notes that something is wrong.
    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Notes that the value of a key at `span` was not taken.
    pub(crate) fn reject(&mut self, key: &str, span: Span, why: Rejected) {
        let Rejected { code, message, help } = why;
        let diagnostic = Diagnostic::new(code, message).at(span, format!("the value of `{key}`"));
        self.report(match help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        });
    }

    /// The value of a key in thousandths, of which there are no parts.
    pub(crate) fn permille(&mut self, key: &str, value: f64, span: Option<&Span>) -> Option<u64> {
        let scaled = value * 1_000.0;
        if (scaled - scaled.round()).abs() > 1e-6 {
            let diagnostic =
                Diagnostic::new(Code::BadValue, "at most three decimals are kept here")
                    .at_some(span, format!("the value of `{key}`"));
            self.report(diagnostic.help(format!("write `{}`", scaled.round() / 1_000.0)));
            return None;
        }
        Some(scaled.round() as u64)
    }
}

/// The default of a key as a value, if it is one. Defaults are right; a test reads all of them.
pub(crate) fn default(key: &Key) -> Option<Value> {
    let (kind, text) = match key.default {
        Default::Required | Default::Else(_) => return None,
        Default::Number(number) => return Some(Value::of_number(&key.kind, number)),
        Default::Is(text) => (&key.kind, text),
    };
    let raw = match kind {
        Kind::Count(..) | Kind::OneOf(_) | Kind::Real(..) | Kind::Flag => {
            DeValue::parse(text).map_or_else(|_| DeValue::String(text.into()), Spanned::into_inner)
        }
        _ => DeValue::String(text.into()),
    };
    Some(Value::read(kind, &raw).expect("the schema's defaults are valid"))
}

fn list(items: &[Read<String>]) -> Value {
    Value::List(items.iter().map(|item| Value::Text(item.value.clone())).collect())
}

/// A key that is not among those that are known.
pub(crate) fn unknown(message: String, span: Span, name: &str, known: &[&str]) -> Diagnostic {
    let help = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("it has {}", known.join(", ")),
    };
    Diagnostic::new(Code::UnknownKey, message).at(span, "not known here").help(help)
}

fn wrong_table(section: &Section, span: Span, found: &DeValue<'_>) -> Diagnostic {
    let message = format!("{} where `{}` belongs", type_name(found), section.heading());
    let diagnostic = Diagnostic::new(Code::WrongType, message).at(span, "this");
    diagnostic.help(match section.many {
        Many::Once => format!("write `{}` once, and its keys below it", section.heading()),
        Many::Times(..) => {
            format!("write `{}` above each, with two brackets", section.heading())
        }
    })
}
