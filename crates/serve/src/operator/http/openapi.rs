//! The `OpenAPI` 3.1 document of the REST interface, made from the routes and the types of their answers.

use super::problem::Problem;
use super::routes::{Content, ROUTES, Route, content_type};
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
    let item = |route: &Route| (route.path.to_owned(), item(route, &mut generator));
    let paths: Map<String, Value> = ROUTES.iter().map(item).collect();
    let schemas = generator.take_definitions(true);
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir",
            "version": "1",
            "summary": "The state of a gateway; nothing here changes it",
            "description": "Times are in nanoseconds, ages are counted back from now. Readers ignore unknown fields.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" }
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": { "schemas": schemas, "responses": { "Problem": problem } }
    });
    let mut text = serde_json::to_string_pretty(&document).expect("a document is plain data");
    text.push('\n');
    text
}

/// What can be done at a path.
fn item(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let content = match route.content {
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
        "responses": {
            "200": { "description": route.summary, "content": content },
            "default": problem
        }
    });
    if matches!(route.path, "/healthz" | "/readyz") {
        operation["responses"]["503"] = json!({ "description": "It is not", "content": content });
    }
    if route.path.contains("{name}") {
        operation["responses"]["404"] = problem;
        let schema = json!({ "type": "string", "pattern": "^[A-Za-z0-9._-]+$" });
        operation["parameters"] =
            json!([{ "name": "name", "in": "path", "required": true, "schema": schema }]);
    }
    json!({ "get": operation })
}
