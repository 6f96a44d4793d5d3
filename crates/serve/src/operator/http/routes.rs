//! The table of routes: what is at each path, and where its data comes from.

use super::health::{Health, State};
use super::lists::{
    BackendList, LogList, PathList, SessionList, TenantList, Version, VolumeList, named,
};
use super::problem::Fault;
use super::response::Response;
use crate::operator::metrics::Metrics;
use crate::operator::metrics::page::Format;
use crate::operator::metrics::totals::Totals;
use crate::operator::protocol::{PathStatus, Status, TenantStatus, VolumeStatus};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use weir_flow::clock::Duration;

/// What is at a path.
pub(super) struct Route {
    /// With `{name}` for a name.
    pub(super) path: &'static str,
    /// Its operation in the `OpenAPI` document.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) content: Content,
    pub(super) source: Source,
}

/// The form of an answer.
pub(super) enum Content {
    /// Metrics in one of their formats.
    Metrics,
    /// JSON with this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
}

/// Where the data of a route comes from. The text is the name in the path.
pub(super) enum Source {
    /// The thread itself.
    Here(fn(&Here<'_>) -> Response),
    /// The `OpenAPI` document.
    OpenApi,
    /// Metrics in the format that the client prefers.
    Metrics,
    /// The status of the gateway.
    Status(fn(&Status, &str) -> Result<Response, Fault>),
    /// All paths.
    Paths(fn(&[PathStatus], &str) -> Result<Response, Fault>),
    /// All volumes.
    Volumes(fn(&[VolumeStatus], &str) -> Result<Response, Fault>),
}

/// What the thread knows without the event loop.
pub(super) struct Here<'a> {
    /// How long ago the event loop has said that it lives.
    pub(super) beat_age: Duration,
    pub(super) metrics: &'a Metrics,
}

/// All routes, but those of the page.
pub(super) static ROUTES: &[Route] = &[
    Route {
        path: "/metrics",
        id: "getMetrics",
        summary: "Metrics in the text format 0.0.4 of Prometheus or as OpenMetrics 1.0",
        content: Content::Metrics,
        source: Source::Metrics,
    },
    Route {
        path: "/healthz",
        id: "getLiveness",
        summary: "Whether the event loop lives",
        content: Content::Json(schema::<Health>),
        source: Source::Here(|here| health(&Health::of_loop(here.beat_age))),
    },
    Route {
        path: "/readyz",
        id: "getReadiness",
        summary: "Whether hosts can be served, and what is degraded",
        content: Content::Json(schema::<Health>),
        source: Source::Status(|status, _| Ok(health(&Health::of_gateway(status)))),
    },
    Route {
        path: "/api/v1/version",
        id: "getVersion",
        summary: "The release of the gateway",
        content: Content::Json(schema::<Version>),
        source: Source::Here(|_| Response::json(&Version::of_this())),
    },
    Route {
        path: "/api/v1/openapi.json",
        id: "getOpenApi",
        summary: "This document",
        content: Content::Json(|_| json_schema!({ "type": "object" })),
        source: Source::OpenApi,
    },
    Route {
        path: "/api/v1/totals",
        id: "getTotals",
        summary: "Counters since the start: of volumes, of stages and rules, and response times",
        content: Content::Json(schema::<Totals>),
        source: Source::Here(|here| Response::json(&here.metrics.totals())),
    },
    Route {
        path: "/api/v1/status",
        id: "getStatus",
        summary: "The status of the gateway",
        content: Content::Json(schema::<Status>),
        source: Source::Status(|status, _| Ok(Response::json(status))),
    },
    Route {
        path: "/api/v1/sessions",
        id: "listSessions",
        summary: "Sessions, those with most outstanding commands first",
        content: Content::Json(schema::<SessionList>),
        source: Source::Status(|status, _| Ok(Response::json(&SessionList::of(status)))),
    },
    Route {
        path: "/api/v1/tenants",
        id: "listTenants",
        summary: "Tenants with a contract and requests, those first whose budget burned fastest",
        content: Content::Json(schema::<TenantList>),
        source: Source::Status(|status, _| Ok(Response::json(&TenantList::of(status)))),
    },
    Route {
        path: "/api/v1/tenants/{name}",
        id: "getTenant",
        summary: "A tenant of the list",
        content: Content::Json(schema::<TenantStatus>),
        source: Source::Status(|status, name| {
            named("tenant", name, &status.tenants, |tenant| &tenant.name)
        }),
    },
    Route {
        path: "/api/v1/backends",
        id: "listBackends",
        summary: "Backends, the fullest first",
        content: Content::Json(schema::<BackendList>),
        source: Source::Status(|status, _| Ok(Response::json(&BackendList::of(status)))),
    },
    Route {
        path: "/api/v1/backends/{name}/paths",
        id: "listPathsOfBackend",
        summary: "The paths to a backend",
        content: Content::Json(schema::<PathList>),
        source: Source::Paths(|paths, name| {
            let list = PathList::of(paths, Some(name));
            if list.paths.is_empty() {
                return Err(Fault::Unknown { what: "backend", name: name.to_owned() });
            }
            Ok(Response::json(&list))
        }),
    },
    Route {
        path: "/api/v1/paths",
        id: "listPaths",
        summary: "The paths to all backends",
        content: Content::Json(schema::<PathList>),
        source: Source::Paths(|paths, _| Ok(Response::json(&PathList::of(paths, None)))),
    },
    Route {
        path: "/api/v1/volumes",
        id: "listVolumes",
        summary: "The volumes, in the order of the configuration",
        content: Content::Json(schema::<VolumeList>),
        source: Source::Volumes(|volumes, _| Ok(Response::json(&VolumeList::of(volumes)))),
    },
    Route {
        path: "/api/v1/volumes/{name}",
        id: "getVolume",
        summary: "A volume",
        content: Content::Json(schema::<VolumeStatus>),
        source: Source::Volumes(|volumes, name| {
            named("volume", name, volumes, |volume| &volume.name)
        }),
    },
    Route {
        path: "/api/v1/logs",
        id: "listLogs",
        summary: "The write-back logs of volumes",
        content: Content::Json(schema::<LogList>),
        source: Source::Volumes(|volumes, _| Ok(Response::json(&LogList::of(volumes)))),
    },
];

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

fn health(health: &Health) -> Response {
    let mut response = Response::json(health);
    if health.status == State::Failing {
        response.status = 503;
    }
    response
}

/// The type of a page of metrics.
pub(super) const fn content_type(format: Format) -> &'static str {
    match format {
        Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
    }
}
