//! Tables in a value: those whose keys are numbers and whose values are volumes, LUNs and namespaces, and others.

use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::names::Names;
use crate::config::tree::{Context, Read, Table};
use crate::config::units::shorten;
use crate::config::value::{Value, type_name};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A key whose value is a table of volumes by number.
pub(super) struct Numbered {
    /// The key.
    pub(super) key: &'static str,
    /// What a number is, with its article.
    pub(super) one: &'static str,
    /// What several of them are.
    pub(super) several: &'static str,
    /// The numbers that there are.
    pub(super) numbers: RangeInclusive<u32>,
    /// What the value looks like.
    pub(super) form: &'static str,
    /// What is wrong if a volume is there twice, and what to do.
    pub(super) twice: (&'static str, &'static str),
}

impl Numbered {
    /// The volumes by number. `used` has those that may not come again, and gets these.
    pub(super) fn read(
        &self,
        context: &mut Context,
        table: &Table<'_>,
        volumes: &Names,
        used: &mut BTreeMap<usize, Span>,
    ) -> Option<BTreeMap<u32, usize>> {
        let Self { key: name, one, several, ref numbers, form, twice } = *self;
        let Some(raw) = table.raw(context, name) else {
            table.missing(context, name);
            return None;
        };
        let entries = entries(context, raw, (name, several), form)?;
        let diagnostics = context.diagnostics.len();
        let (mut found, mut pairs) = (BTreeMap::new(), BTreeMap::new());
        for (key, value) in entries {
            let Some(number) = number(key.get_ref()).filter(|number| numbers.contains(number))
            else {
                let message = format!("`{}` is not {one}", shorten(key.get_ref()));
                let diagnostic = Diagnostic::new(Code::BadValue, message);
                let diagnostic = diagnostic.at(key.span(), format!("a key of `{name}`"));
                let (first, last) = (numbers.start(), numbers.end());
                context.report(diagnostic.help(format!("write a number from {first} to {last}")));
                continue;
            };
            let Some(text) = value.get_ref().as_str() else {
                let message =
                    format!("{} where a volume's name belongs", type_name(value.get_ref()));
                let diagnostic = Diagnostic::new(Code::WrongType, message).at(value.span(), "this");
                context.report(diagnostic.help(form));
                continue;
            };
            let read = Read { value: text.to_owned(), span: Some(value.span()) };
            let Some(volume) = volumes.find(context, &read) else { continue };
            if let Some(first) = used.get(&volume) {
                let (message, help) = (format!("volume `{text}` {}", twice.0), twice.1);
                let diagnostic = Diagnostic::new(Code::Duplicate, message)
                    .at(value.span(), "the second")
                    .see(Some(first), "the first");
                context.report(diagnostic.help(help));
                continue;
            }
            used.insert(volume, value.span());
            found.insert(number, volume);
            pairs.insert(number, Value::Text(text.to_owned()));
        }
        if context.diagnostics.len() > diagnostics {
            return None;
        }
        let pairs = pairs.into_iter().map(|(number, text)| (number.to_string(), text));
        table.note(context, name, Value::Pairs(pairs.collect()), Some(raw.span()));
        Some(found)
    }
}

/// The entries of a value that is a table. `names`: its key, and what its keys are in messages.
pub(super) fn entries<'a>(
    context: &mut Context,
    raw: &'a Spanned<DeValue<'a>>,
    (key, several): (&str, &str),
    form: &'static str,
) -> Option<&'a DeTable<'a>> {
    if let DeValue::Table(entries) = raw.get_ref() {
        return Some(entries);
    }
    let message = format!("{} where a table of {several} belongs", type_name(raw.get_ref()));
    let diagnostic = Diagnostic::new(Code::WrongType, message);
    context.report(diagnostic.at(raw.span(), format!("the value of `{key}`")).help(form));
    None
}

/// A number in its only form: digits without leading zeros.
pub(super) fn number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain && (text == "0" || !text.starts_with('0')))
}
