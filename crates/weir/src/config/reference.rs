//! The reference of all keys, printed from the tables that the reader works by.

use super::policy;
use super::schema::{Default, Form as _, Key, Kind, Many, Part, Presets, Section};
use super::tree;
use super::value::{Value, one_of};
use crate::table::{Align, Table};
use serde_json::{Value as Json, json};
use std::fmt::Write as _;
use weir_flow::policy::{Parameter, Policy};
use weir_flow::{cache, control, dispatch, path, transfer};

/// All keys of one kind of file, as text; or those of one table.
pub(crate) fn text(kind: super::Kind, only: Option<&Section>) -> String {
    let mut text = format!("Keys of a {}\n", kind.schema().name);
    for section in sections(kind, only) {
        let _ = writeln!(text, "\n{}: {}{}", title(section), section.effect, times(section));
        let mut table = Table::new(&[
            ("key", Align::Left),
            ("value", Align::Left),
            ("default", Align::Left),
            ("effect", Align::Left),
        ]);
        for (key, part) in section.related() {
            let (default, effect) = (default(key, part), effect(key, part));
            table.row(vec![key.name.to_owned(), key.kind.describe(), default, effect]);
        }
        text.push_str(&table.render("  "));
    }
    if !has_policies(only) {
        return text;
    }
    text.push_str("\nPolicies\n");
    let mut table = Table::new(&[
        ("stage", Align::Left),
        ("policy", Align::Left),
        ("parameter", Align::Left),
        ("default", Align::Left),
        ("effect", Align::Left),
    ]);
    for policy in policies() {
        let (name, summary) = (policy.shown(), policy.summary.to_owned());
        table.row(vec![policy.stage.to_owned(), name, String::new(), String::new(), summary]);
        for parameter in policy.parameters {
            table.row(vec![
                String::new(),
                String::new(),
                format!("{} ({})", parameter.name, policy::describe(parameter)),
                policy::default(parameter).to_toml(),
                parameter.effect.to_owned(),
            ]);
        }
    }
    text.push_str(&table.render("  "));
    text
}

/// All keys of both kinds of file, as a page of the book.
pub(crate) fn markdown() -> String {
    let mut text = String::from(
        "# The keys of configurations and plans\n\n\
         `weir config reference` prints this page. `weir config show --defaults TABLE` prints one table, and\n\
         `weir config schema` a JSON Schema for editors. A time has a unit (`ms`, `s`), and so has a size (`KiB`, `GB`).\n",
    );
    for kind in [super::Kind::Gateway, super::Kind::Plan] {
        let _ = writeln!(text, "\n## A {}, for `{}`", kind.schema().name, kind.command());
        for section in kind.schema().sections {
            let name = match section.name {
                "" => "Before the first table".to_owned(),
                _ => format!("`{}`", section.heading()),
            };
            let _ =
                writeln!(text, "\n### {name}\n\n{}.{}\n", sentence(section.effect), times(section));
            text.push_str("| key | value | default | effect |\n| --- | --- | --- | --- |\n");
            for (key, part) in section.related() {
                let (value, default) = (key.kind.describe(), default(key, part));
                let effect = sentence(&effect(key, part));
                row(&mut text, &[&format!("`{}`", key.name), &value, &default, &effect]);
            }
        }
    }
    text.push_str("\n## Policies\n\n| stage | policy | parameter | default | effect |\n| --- | --- | --- | --- | --- |\n");
    for policy in policies() {
        let summary = sentence(policy.summary);
        row(&mut text, &[policy.stage, &policy.shown(), "", "", &summary]);
        for parameter in policy.parameters {
            let name = format!("`{}`: {}", parameter.name, policy::describe(parameter));
            let default = policy::default(parameter).to_toml();
            row(&mut text, &["", "", &name, &default, &sentence(parameter.effect)]);
        }
    }
    text
}

/// A row of a table in Markdown.
fn row(text: &mut String, cells: &[&str]) {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

/// A text that begins with a capital, but for the word of a model, without a stop at its end.
fn sentence(text: &str) -> String {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.split(' ').next().is_some_and(|word| word.contains('-') || word.ends_with(':')) {
        return text.to_owned();
    }
    let mut rest = text.chars();
    rest.next().into_iter().flat_map(char::to_uppercase).chain(rest).collect()
}

/// The same as one object.
pub(crate) fn json(kind: super::Kind, only: Option<&Section>) -> Json {
    let keys: Vec<_> = sections(kind, only)
        .flat_map(|section| {
            section.related().into_iter().map(move |(key, part)| (section, key, part))
        })
        .map(|(section, key, part)| {
            json!({
                "table": section.name,
                "repeats": section.many != Many::Once,
                "key": key.name,
                "value": key.kind.describe(),
                "required": matches!(key.default, Default::Required),
                "default": default(key, part),
                "effect": effect(key, part),
            })
        })
        .collect();
    let policies: Vec<_> = policies()
        .into_iter()
        .filter(|_| has_policies(only))
        .map(|policy| {
            let parameters: Vec<_> = policy
                .parameters
                .iter()
                .map(|parameter| {
                    json!({
                        "name": parameter.name,
                        "value": policy::describe(parameter),
                        "default": policy::default(parameter).to_json(),
                        "effect": parameter.effect,
                    })
                })
                .collect();
            json!({
                "stage": policy.stage,
                "name": policy.name,
                "default": policy.is_default,
                "summary": policy.summary,
                "parameters": parameters,
            })
        })
        .collect();
    json!({ "version": 1, "kind": kind.as_str(), "keys": keys, "policies": policies })
}

/// The table of this name, in a file of this kind or else of the other, or what to write instead.
pub(crate) fn find(
    kind: super::Kind,
    name: &str,
) -> Result<(super::Kind, &'static Section), String> {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let kinds = [kind, kind.other()];
    let found = kinds.iter().find_map(|&kind| Some((kind, kind.schema().section(bare)?)));
    found.filter(|_| !bare.is_empty()).ok_or_else(|| {
        let tables = kinds.iter().flat_map(|kind| kind.schema().sections);
        let mut known: Vec<_> = tables.map(|section| section.name).collect();
        known.retain(|name| !name.is_empty());
        known.sort_unstable();
        known.dedup();
        one_of(bare, &known)
    })
}

fn sections(kind: super::Kind, only: Option<&Section>) -> impl Iterator<Item = &'static Section> {
    let chosen = move |section: &&Section| only.is_none_or(|only| only.name == section.name);
    kind.schema().sections.iter().copied().filter(chosen)
}

/// Whether the list of policies belongs to what is shown.
fn has_policies(only: Option<&Section>) -> bool {
    only.is_none_or(|section| section.name == policy::POLICY.name)
}

/// A policy without the types of its stage.
pub(crate) struct Listed {
    /// Its stage.
    pub(crate) stage: &'static str,
    /// Its name.
    pub(crate) name: &'static str,
    /// Whether the stage has it where no other is named.
    is_default: bool,
    summary: &'static str,
    parameters: &'static [Parameter],
}

impl Listed {
    /// Its name, marked if it is the default.
    fn shown(&self) -> String {
        if self.is_default { format!("{} (default)", self.name) } else { self.name.to_owned() }
    }
}

/// All policies, stage by stage.
pub(crate) fn policies() -> Vec<Listed> {
    fn stage<B>(stage: &'static str, list: &'static [Policy<B>], all: &mut Vec<Listed>) {
        all.extend(list.iter().enumerate().map(|(index, policy)| Listed {
            stage,
            name: policy.name,
            is_default: index == 0,
            summary: policy.summary,
            parameters: policy.parameters,
        }));
    }
    let mut all = Vec::new();
    stage("cache", cache::evict::POLICIES, &mut all);
    stage("prefetch", cache::prefetch::POLICIES, &mut all);
    stage("control", control::POLICIES, &mut all);
    stage("dispatch", dispatch::POLICIES, &mut all);
    stage("path", path::POLICIES, &mut all);
    stage("transfer", transfer::POLICIES, &mut all);
    all
}

fn title(section: &Section) -> String {
    match section.name {
        "" => "(before the first table)".to_owned(),
        _ => section.heading(),
    }
}

fn times(section: &Section) -> String {
    match section.many {
        Many::Once => String::new(),
        Many::Times(0, max) => format!(" (at most {max})"),
        Many::Times(min, max) => format!(" ({min} to {max})"),
    }
}

/// What a key does, and with which models.
pub(super) fn effect(key: &Key, part: Option<&Part>) -> String {
    let models = part.map_or(&[][..], |part| part.models);
    let models: Vec<_> = models.iter().map(|(model, _)| *model).collect();
    match &models[..] {
        [] => key.effect.to_owned(),
        models => format!("{}: {}", models.join(", "), key.effect),
    }
}

/// What holds where nothing is written: for each model that differs from the first.
fn default(key: &Key, part: Option<&Part>) -> String {
    let models = part.map_or(&[][..], |part| part.models);
    let shown = |presets: &Presets| {
        let number = presets(key.name)?;
        Some(Value::of_number(&key.kind, number).to_toml())
    };
    if let Some(first) = models.first().and_then(|(_, presets)| shown(presets)) {
        let mut text = first.clone();
        for (model, presets) in &models[1..] {
            let own = shown(presets).filter(|own| *own != first);
            if let Some(own) = own {
                let _ = write!(text, ", {model}: {own}");
            }
        }
        return text;
    }
    match (key.default, key.kind) {
        (Default::Required, _) => "(required)".to_owned(),
        (Default::Else(what), _) => format!("({what})"),
        (Default::Is(text), Kind::Texts(_)) => format!("[{}]", super::value::quote(text)),
        (Default::Is(_) | Default::Number(_), _) => {
            tree::default(key).map_or_else(String::new, |value| value.to_toml())
        }
    }
}
