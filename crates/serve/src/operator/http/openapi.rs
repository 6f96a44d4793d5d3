//! The `OpenAPI` 3.1 document of the REST interface, made from the routes and the types of their answers.

use super::problem::Problem;
use super::routes::{Content, ROUTES, Route, Source, content_type};
use crate::config::http::Role;
use crate::operator::metrics::page::Format;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The document, which is `docs/reference/openapi.json`.
pub fn document() -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings.with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>();
    let problem = json!({
        "description": "The request has no answer",
        "content": { "application/problem+json": { "schema": problem } }
    });
    let token = json!({
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `tokens_file` in [http], whose role is at least `x-role` of the operation"
    });
    let item = |route: &Route| (route.path.to_owned(), item(route, &mut generator));
    let paths: Map<String, Value> = ROUTES.iter().map(item).collect();
    let schemas = generator.take_definitions(true);
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir",
            "version": "1",
            "summary": "The state of a gateway, and orders to it",
            "description": "Times are in nanoseconds, ages are counted back from now. Readers ignore unknown fields.",
            "contact": { "name": "Weir" },
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" }
        },
        "servers": [{ "url": "/" }],
        "tags": [
            { "name": "state", "description": "What the gateway is doing" },
            { "name": "orders", "description": "What it shall do" }
        ],
        "paths": paths,
        "components": { "schemas": schemas, "responses": { "Problem": problem }, "securitySchemes": { "token": token } }
    });
    let mut text = serde_json::to_string_pretty(&document).expect("a document is plain data");
    text.push('\n');
    text
}

/// Makes schemas of what is read: a field that has a default may be missing.
fn bodies() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator()
}

/// Who may ask, and how often.
fn description(route: &Route) -> String {
    let needs = match route.role {
        None => "Needs no role.".to_owned(),
        Some(role) => format!("Needs the role `{}`.", role.as_str()),
    };
    let rest = match route.source {
        Source::Order(_) => "The answer comes when the order has been carried out.",
        Source::Request => "A request that has ended does not change.",
        _ => "The answer may be 200 ms old.",
    };
    format!("{needs} {rest}")
}

/// What can be done at a path.
fn item(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut body = None;
    let content = match route.content {
        Content::Order(fields, schema) => {
            body = Some(json!({
                "description": "Nothing is an object without fields",
                "required": true,
                "content": { "application/json": { "schema": fields(&mut bodies()) } }
            }));
            json!({ "application/json": { "schema": schema(generator) } })
        }
        Content::Json(schema) => json!({ "application/json": { "schema": schema(generator) } }),
        Content::Metrics => {
            let text = json!({ "schema": { "type": "string" } });
            let format = |format| (content_type(format).to_owned(), text.clone());
            [Format::Text, Format::OpenMetrics]
                .map(format)
                .into_iter()
                .collect::<Map<_, _>>()
                .into()
        }
    };
    let problem = json!({ "$ref": "#/components/responses/Problem" });
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "description": description(route),
        "tags": [if matches!(route.source, Source::Order(_)) { "orders" } else { "state" }],
        "responses": {
            "200": { "description": route.summary, "content": content },
            "default": problem
        }
    });
    if matches!(route.path, "/healthz" | "/readyz") {
        operation["responses"]["503"] = json!({ "description": "It is not", "content": content });
    }
    let name = json!({ "type": "string", "pattern": "^[A-Za-z0-9._-]+$" });
    let number = json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX });
    let id = json!({ "type": "string", "pattern": "^[0-9a-f]{4}-[0-9a-f]{12}$" });
    let parameter = |(text, schema): (&str, Value)| {
        let is_in = route.path.contains(&format!("{{{text}}}"));
        let parameter = json!({ "name": text, "in": "path", "required": true, "schema": schema });
        is_in.then_some(parameter)
    };
    let parameters: Vec<_> = [("name", name), ("number", number), ("id", id)]
        .into_iter()
        .filter_map(parameter)
        .collect();
    if !parameters.is_empty() {
        operation["responses"]["404"] = problem.clone();
        operation["parameters"] = parameters.into();
    }
    if let Some(role) = route.role {
        // Where everybody may read, a request needs no token.
        let none = (role == Role::Read).then(|| json!({}));
        let token = json!({ "token": [] });
        let security: Vec<_> = none.into_iter().chain([token]).collect();
        operation["security"] = security.into();
        operation["x-role"] = role.as_str().into();
        operation["responses"]["401"] = problem.clone();
        operation["responses"]["403"] = problem;
    }
    if let Some(body) = body {
        operation["requestBody"] = body;
        return json!({ "post": operation });
    }
    json!({ "get": operation })
}
