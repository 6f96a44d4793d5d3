//! `[policy]`: which policy each stage follows, and its parameters.

use super::diagnostic::{Code, Diagnostic, Span};
use super::schema::{Default, Form as _, Key, Kind, Many, Section};
use super::tree::{Context, Document, Table};
use super::units::shorten;
use super::value::{Rejected, Value, one_of, type_name};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weir_flow::pipeline::Policies;
use weir_flow::policy::{Choice, Parameter, Policy, Unit};
use weir_flow::{cache, control, dispatch, path, transfer};

/// The table.
pub(crate) static POLICY: Section = Section {
    name: "policy",
    many: Many::Once,
    effect: "the policy of each stage",
    keys: &[
        stage("cache", cache::evict::POLICIES, "which line leaves the read cache"),
        stage("prefetch", cache::prefetch::POLICIES, "what is read ahead"),
        stage("control", control::POLICIES, "when a request may go to shared storage"),
        stage("dispatch", dispatch::POLICIES, "which request goes to a backend next"),
        stage("path", path::POLICIES, "which path to a backend it takes"),
        stage("transfer", transfer::POLICIES, "which finished reply is sent first"),
    ],
    settings: &[],
};

/// What the values look like.
pub(crate) const FORM: &str = "a policy's name, or `{ name = \"…\", parameter = … }`";

/// The key of a stage. Its default is the first policy of the stage's list.
const fn stage<B>(name: &'static str, list: &[Policy<B>], effect: &'static str) -> Key {
    Key { name, kind: Kind::Other(FORM), default: Default::Is(list[0].name), effect }
}

/// Reads the table.
pub(crate) fn read(context: &mut Context, document: &Document<'_>) -> Option<Policies> {
    let table = document.once(context, "policy");
    let cache = choose(context, &table, "cache", cache::evict::POLICIES);
    let prefetch = choose(context, &table, "prefetch", cache::prefetch::POLICIES);
    let control = choose(context, &table, "control", control::POLICIES);
    let dispatch = choose(context, &table, "dispatch", dispatch::POLICIES);
    let path = choose(context, &table, "path", path::POLICIES);
    let transfer = choose(context, &table, "transfer", transfer::POLICIES);
    Some(Policies {
        cache: cache?,
        prefetch: prefetch?,
        control: control?,
        dispatch: dispatch?,
        path: path?,
        transfer: transfer?,
    })
}

/// A policy as a value.
pub(crate) fn value<B>(choice: &Choice<B>) -> Value {
    let policy = choice.policy();
    let name = Value::Text(policy.name.to_owned());
    if policy.parameters.is_empty() {
        return name;
    }
    let parameters = choice.values();
    let parameters = parameters.iter().map(|(of, values)| (of.name.to_owned(), shown(of, values)));
    Value::Pairs(std::iter::once(("name".to_owned(), name)).chain(parameters).collect())
}

/// A parameter's default as a value.
pub(crate) fn default(parameter: &Parameter) -> Value {
    shown(parameter, &[parameter.default])
}

/// The values of a parameter as they are written: one, or a list without the defaults at its end.
fn shown(parameter: &Parameter, values: &[u64]) -> Value {
    let first = values[0];
    match parameter.unit {
        Unit::Flag => Value::Flag(first == 1),
        Unit::Word(words) => Value::Text(words[first as usize].to_owned()),
        Unit::Counts(_) => {
            let last = values.iter().rposition(|&value| value != parameter.default);
            let given = values.iter().take(last.map_or(1, |last| last + 1));
            Value::List(given.map(|&value| Value::Number(value, None)).collect())
        }
        Unit::Bytes | Unit::Count | Unit::Time => {
            Value::Number(first, kind(parameter).scale().map(|(scale, ..)| scale))
        }
    }
}

/// What a parameter's value may be in words.
pub(crate) fn describe(parameter: &Parameter) -> String {
    match parameter.unit {
        Unit::Counts(most) => {
            format!("a list of up to {most}, each {}", kind(parameter).describe())
        }
        _ => kind(parameter).describe(),
    }
}

/// What a parameter's value may be, or each of a list.
const fn kind(parameter: &Parameter) -> Kind {
    match parameter.unit {
        Unit::Bytes => Kind::Size(parameter.min, parameter.max),
        Unit::Count | Unit::Counts(_) => Kind::Count(parameter.min, parameter.max),
        Unit::Flag => Kind::Flag,
        Unit::Word(words) => Kind::Word(words),
        Unit::Time => Kind::Time(parameter.min, parameter.max),
    }
}

fn choose<B>(
    context: &mut Context,
    table: &Table<'_>,
    stage: &str,
    list: &'static [Policy<B>],
) -> Option<Choice<B>> {
    let Some(raw) = table.raw(context, stage) else {
        let choice = Choice::default_of(list);
        table.note(context, stage, value(&choice), None);
        return Some(choice);
    };
    let (name, span, parameters) = form(context, stage, raw)?;
    let Ok(mut choice) = Choice::named(list, name) else {
        let message = format!("no policy of `{stage}` is called `{}`", shorten(name));
        let known: Vec<_> = list.iter().map(|policy| policy.name).collect();
        let diagnostic = Diagnostic::new(Code::Dangling, message).at(span, "names a policy");
        context.report(diagnostic.help(one_of(name, &known)));
        return None;
    };
    let diagnostics = context.diagnostics.len();
    if let Some(entries) = parameters {
        set(context, stage, &mut choice, entries);
    }
    if context.diagnostics.len() > diagnostics {
        return None;
    }
    table.note(context, stage, value(&choice), Some(raw.span()));
    Some(choice)
}

/// The two ways to write a policy, taken apart: its name with its place, and its parameters.
fn form<'a>(
    context: &mut Context,
    stage: &str,
    raw: &'a Spanned<DeValue<'a>>,
) -> Option<(&'a str, Span, Option<&'a DeTable<'a>>)> {
    let (name, parameters) = match raw.get_ref() {
        DeValue::Table(entries) => {
            let Some(name) = entries.get("name") else {
                let message = format!("the policy of `{stage}` has no name");
                let diagnostic =
                    Diagnostic::new(Code::MissingKey, message).at(raw.span(), "this table");
                context.report(diagnostic.help(format!("write {FORM}")));
                return None;
            };
            (name, Some(entries))
        }
        _ => (raw, None),
    };
    if let Some(text) = name.get_ref().as_str() {
        return Some((text, name.span(), parameters));
    }
    let message = format!("{} where a policy's name belongs", type_name(name.get_ref()));
    let diagnostic = Diagnostic::new(Code::WrongType, message).at(name.span(), "this");
    context.report(diagnostic.help(format!("write {FORM}")));
    None
}

fn set<B>(context: &mut Context, stage: &str, choice: &mut Choice<B>, entries: &DeTable<'_>) {
    let policy = choice.policy();
    for (key, raw) in entries {
        let name: &str = key.get_ref();
        if name == "name" {
            continue;
        }
        let Some(parameter) = policy.parameters.iter().find(|known| known.name == name) else {
            let message = format!("policy `{}` has no parameter `{}`", policy.name, shorten(name));
            let known: Vec<_> = policy.parameters.iter().map(|known| known.name).collect();
            let diagnostic =
                Diagnostic::new(Code::UnknownKey, message).at(key.span(), "not known here");
            context.report(if known.is_empty() {
                diagnostic.help("it takes none")
            } else {
                diagnostic.help(one_of(name, &known))
            });
            continue;
        };
        let items = match (parameter.unit, raw.get_ref()) {
            (Unit::Counts(_), DeValue::Array(items)) => &items[..],
            _ => core::slice::from_ref(raw),
        };
        for (place, item) in items.iter().enumerate() {
            let number = match Value::read(&kind(parameter), item.get_ref()) {
                Ok(value) => number(parameter, &value),
                Err(rejected) => {
                    context.reject(name, item.span(), rejected);
                    continue;
                }
            };
            if let Err(error) = choice.set_at(name, place, number) {
                let rejected =
                    Rejected { code: Code::OutOfRange, message: error.to_string(), help: None };
                context.reject(stage, item.span(), rejected);
                break;
            }
        }
    }
}

/// The number that stands for a value of this parameter's [`kind`].
fn number(parameter: &Parameter, value: &Value) -> u64 {
    match (parameter.unit, value) {
        (_, Value::Number(number, _)) => *number,
        (_, Value::Flag(flag)) => u64::from(*flag),
        (Unit::Word(words), Value::Text(word)) => {
            words.iter().position(|one| one == word).expect("it was read as one of them") as u64
        }
        _ => unreachable!("a parameter is a number, a flag or a word"),
    }
}

/// Reads a policy from a command line: `NAME[,parameter=value]…`, where a list is `value:value…`.
pub(crate) fn parse<B>(list: &'static [Policy<B>], text: &str) -> Result<Choice<B>, String> {
    let mut parts = text.split(',');
    let name = parts.next().unwrap_or_default();
    let mut choice = Choice::named(list, name).map_err(|error| error.to_string())?;
    for part in parts {
        let (name, value) =
            part.split_once('=').ok_or_else(|| format!("write `{part}=VALUE` or leave it out"))?;
        assign(&mut choice, name, value)?;
    }
    Ok(choice)
}

fn assign<B>(choice: &mut Choice<B>, name: &str, value: &str) -> Result<(), String> {
    let known = choice.policy().parameters.iter().find(|known| known.name == name);
    let whole = |value: &str| value.parse().map_err(|_| format!("`{name}` is a whole number"));
    let done = match known.map(|parameter| (parameter.unit, kind(parameter).scale())) {
        Some((Unit::Word(_) | Unit::Flag, _)) => choice.set_word(name, value),
        Some((Unit::Counts(_), _)) => {
            let mut items = value.split(':').enumerate();
            items.try_for_each(|(place, item)| {
                choice.set_at(name, place, whole(item)?).map_err(|error| error.to_string())
            })?;
            Ok(())
        }
        Some((_, Some((scale, ..)))) => {
            let number = scale.parse(value);
            choice.set(name, number.map_err(|bad| format!("{}; {}", bad.message, bad.help))?)
        }
        Some((_, None)) => choice.set(name, whole(value)?),
        // `set` reports it.
        None => choice.set(name, 0),
    };
    done.map_err(|error| error.to_string())
}
