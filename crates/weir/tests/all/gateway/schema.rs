//! Checks a value against a schema of the `OpenAPI` document, more strictly than JSON Schema does: a property that the
//! schema does not name is an error, too.

use serde_json::Value;

/// The first thing that is wrong, with its place.
pub(crate) fn check(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    at(document, schema, value, "")
}

fn at(document: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("{place}: {why}: {value} is not {schema}"));
    if let Some(target) = schema["$ref"].as_str() {
        let target = document.pointer(target.trim_start_matches('#'));
        return at(document, target.ok_or_else(|| format!("no {schema}"))?, value, place);
    }
    for any in ["anyOf", "oneOf"] {
        if let Some(all) = schema[any].as_array()
            && !all.iter().any(|one| at(document, one, value, place).is_ok())
        {
            return wrong("none of several");
        }
    }
    if schema.get("const").is_some_and(|only| only != value) {
        return wrong("another value");
    }
    if schema["enum"].as_array().is_some_and(|all| !all.contains(value)) {
        return wrong("none of the values");
    }
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        Value::Null => Vec::new(),
        kind => vec![kind.clone()],
    };
    let is = |kind: &Value| match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("a type that this check does not know: {other}"),
    };
    if !kinds.is_empty() && !kinds.iter().any(is) {
        return wrong("another type");
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        at(document, &schema["items"], item, &format!("{place}/{index}"))?;
    }
    let (Some(object), Some(properties)) = (value.as_object(), schema["properties"].as_object())
    else {
        return Ok(());
    };
    for name in schema["required"].as_array().into_iter().flatten() {
        if !object.contains_key(name.as_str().unwrap()) {
            return wrong(&format!("{name} is missing"));
        }
    }
    for (name, inner) in object {
        let Some(known) = properties.get(name) else { return wrong(&format!("{name} is unknown")) };
        at(document, known, inner, &format!("{place}/{name}"))?;
    }
    Ok(())
}
