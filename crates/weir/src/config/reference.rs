//! The reference of all keys, printed from the tables that the reader works by.

use super::policy;
use super::schema::{Default, Form as _, Key, Kind, Many, Section};
use super::tree;
use super::value::one_of;
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
        for key in section.keys {
            let effect = key.effect.to_owned();
            table.row(vec![key.name.to_owned(), key.kind.describe(), default(key), effect]);
        }
        text.push_str(&table.render("  "));
    }
    if !has_policies(only) {
        return text;
    }
    text.push_str("\nPolicies; the first of each stage is its default\n");
    let mut table = Table::new(&[
        ("stage", Align::Left),
        ("policy", Align::Left),
        ("parameter", Align::Left),
        ("default", Align::Left),
        ("effect", Align::Left),
    ]);
    for policy in policies() {
        let stage = policy.stage.to_owned();
        let (name, summary) = (policy.name.to_owned(), policy.summary.to_owned());
        table.row(vec![stage, name, String::new(), String::new(), summary]);
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

/// The same as one object.
pub(crate) fn json(kind: super::Kind, only: Option<&Section>) -> Json {
    let keys: Vec<_> = sections(kind, only)
        .flat_map(|section| section.keys.iter().map(move |key| (section, key)))
        .map(|(section, key)| {
            json!({
                "table": section.name,
                "repeats": section.many != Many::Once,
                "key": key.name,
                "value": key.kind.describe(),
                "required": matches!(key.default, Default::Required),
                "default": default(key),
                "effect": key.effect,
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
    summary: &'static str,
    parameters: &'static [Parameter],
}

/// All policies, stage by stage.
pub(crate) fn policies() -> Vec<Listed> {
    fn stage<B>(stage: &'static str, list: &'static [Policy<B>], all: &mut Vec<Listed>) {
        all.extend(list.iter().map(|policy| Listed {
            stage,
            name: policy.name,
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

fn default(key: &Key) -> String {
    match (key.default, key.kind) {
        (Default::Required, _) => "(required)".to_owned(),
        (Default::Else(what), _) => format!("({what})"),
        (Default::Is(text), Kind::Texts(_)) => format!("[{}]", super::value::quote(text)),
        (Default::Is(_) | Default::Number(_), _) => {
            tree::default(key).map_or_else(String::new, |value| value.to_toml())
        }
    }
}
