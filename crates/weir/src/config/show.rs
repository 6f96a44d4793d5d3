//! The values that hold, as text and for programs, and where each comes from.

use super::Kind;
use super::schema::Section;
use super::source::Source;
use super::tree::Effective;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// All values in the syntax of the file, with a comment that says where each is written.
pub(crate) fn text(kind: Kind, values: &[Effective], source: &Source) -> String {
    let mut text = format!("# effective values of the {}\n", kind.schema().name);
    let width = values.iter().map(|value| line(value).chars().count()).max().unwrap_or(0).min(60);
    for (heading, group) in groups(kind, values) {
        if !heading.is_empty() {
            let _ = writeln!(text, "\n{heading}");
        }
        for value in group {
            let origin = match &value.origin {
                Some(span) => source.place(span.start),
                None => "default".to_owned(),
            };
            let _ = writeln!(text, "{:width$}  # {origin}", line(value));
        }
    }
    text
}

/// The same as one object.
pub(crate) fn json(kind: Kind, values: &[Effective], source: &Source) -> Value {
    let values: Vec<_> = values
        .iter()
        .map(|value| {
            let mut entry = json!({
                "table": value.section.name,
                "index": value.index,
                "key": value.key,
                "value": value.value.to_json(),
                "text": value.value.to_toml(),
                "source": if value.origin.is_some() { "file" } else { "default" },
            });
            if let Some(span) = &value.origin {
                let (line, column) = source.position(span.start);
                entry["line"] = json!(line);
                entry["column"] = json!(column);
            }
            entry
        })
        .collect();
    let file = source.path.display().to_string();
    json!({ "version": 1, "kind": kind.as_str(), "file": file, "values": values })
}

fn line(value: &Effective) -> String {
    format!("{} = {}", value.key, value.value.to_toml())
}

/// The values table by table, in the order of the schema.
fn groups(kind: Kind, values: &[Effective]) -> Vec<(String, Vec<&Effective>)> {
    let mut groups: BTreeMap<(usize, usize), (String, Vec<&Effective>)> = BTreeMap::new();
    for value in values {
        let same = |section: &&Section| section.name == value.section.name;
        let order = kind.schema().sections.iter().copied().position(|section| same(&section));
        let heading = || match value.section.name {
            "" => String::new(),
            _ => value.section.heading(),
        };
        let group = groups.entry((order.unwrap_or(usize::MAX), value.index));
        group.or_insert_with(|| (heading(), Vec::new())).1.push(value);
    }
    groups.into_values().collect()
}
