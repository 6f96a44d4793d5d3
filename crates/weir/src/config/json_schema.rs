//! The keys of a file as a JSON Schema, for editors that complete and check TOML.

use super::Kind as File;
use super::reference::{self, Listed};
use super::schema::{Default, Form as _, Key, Kind, Many, Part, Section};
use super::tree;
use super::value::Value;
use serde_json::{Map, Value as Json, json};

/// The schema of one kind of file (JSON Schema, draft 2020-12). Rules across keys are not in it:
/// `weir config check` has them.
pub(crate) fn schema(kind: File) -> Json {
    let mut properties = Map::new();
    for section in kind.schema().sections {
        let table = table(section);
        match section.many {
            _ if section.name.is_empty() => {
                let own = table["properties"].as_object().cloned();
                properties.extend(own.unwrap_or_default());
            }
            Many::Once => {
                properties.insert(section.name.to_owned(), table);
            }
            Many::Times(min, max) => {
                let tables = json!({
                    "type": "array", "items": table, "minItems": min, "maxItems": max,
                    "description": section.effect,
                });
                properties.insert(section.name.to_owned(), tables);
            }
        }
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("Weir {}", kind.schema().name),
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

fn table(section: &Section) -> Json {
    let mut properties: Map<String, Json> = Map::new();
    for (key, part) in section.all() {
        let mut own = property(section, key, part);
        if let Some(other) =
            properties.get(key.name).and_then(|other| other["description"].as_str())
        {
            let both = format!("{other}; {}", own["description"].as_str().unwrap_or_default());
            own["description"] = both.into();
        }
        properties.insert(key.name.to_owned(), own);
    }
    let required = section.all().map(|(key, _)| key);
    let required = required.filter(|key| matches!(key.default, Default::Required));
    let required: Vec<_> = required.map(|key| key.name).collect();
    json!({
        "type": "object",
        "description": section.effect,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn property(section: &Section, key: &Key, part: Option<&Part>) -> Json {
    let mut property = match section.name {
        "policy" => policy(key.name),
        _ => value(&key.kind),
    };
    let effect = reference::effect(key, part);
    let description = format!("{effect} ({})", key.kind.describe());
    property["description"] = description.into();
    let fixed = part.is_none_or(|part| part.models.is_empty());
    if let Some(default) = tree::default(key).filter(|_| fixed) {
        property["default"] = match default {
            Value::Number(_, Some(_)) => default.to_toml().trim_matches('"').into(),
            other => other.to_json(),
        };
    }
    property
}

fn value(kind: &Kind) -> Json {
    if let Some((scale, ..)) = kind.scale() {
        let text = json!({ "type": "string", "pattern": scale.pattern() });
        return if scale.takes_bare_numbers() {
            json!({ "anyOf": [text, { "type": "integer", "minimum": 0 }] })
        } else {
            text
        };
    }
    match *kind {
        Kind::Texts(_) => json!({
            "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }],
        }),
        Kind::Word(words) => json!({ "enum": words }),
        Kind::OneOf(numbers) => json!({ "enum": numbers }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Count(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Real(min, max) => json!({ "type": "number", "minimum": min, "maximum": max }),
        Kind::Text(_) => json!({ "type": "string" }),
        _ => json!({}),
    }
}

/// A policy by its name, or with parameters.
fn policy(stage: &str) -> Json {
    let of_stage = |policy: &Listed| policy.stage == stage;
    let names: Vec<_> =
        reference::policies().into_iter().filter(of_stage).map(|policy| policy.name).collect();
    json!({
        "anyOf": [
            { "enum": names },
            { "type": "object", "properties": { "name": { "enum": names } }, "required": ["name"] },
        ],
    })
}
