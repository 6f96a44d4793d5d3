//! The table of routes: what is at each path, who may ask for it, and where its data comes from.

use super::health::{Health, State};
use super::lists::{
    BackendList, LogList, PathList, SessionList, TenantList, Version, VolumeList, named,
};
use super::orders::{self, Disable, NoFields, Reload};
use super::problem::Fault;
use super::request::Method;
use super::response::Response;
use crate::config::http::Role;
use crate::operator::metrics::Metrics;
use crate::operator::metrics::history::{History, HistoryStatus};
use crate::operator::metrics::page::Format;
use crate::operator::metrics::totals::Totals;
use crate::operator::protocol::{
    Leaving, PathStatus, Request, Slow, SlowRequest, Status, TenantStatus, Verdict, VolumeStatus,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use weir_flow::clock::{Duration, Instant};

/// What is at a path.
pub(super) struct Route {
    /// With `{name}` for a name, `{number}` for that of a path, and `{id}` for that of a request.
    pub(super) path: &'static str,
    /// Who may ask; `None`: everybody.
    pub(super) role: Option<Role>,
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
    /// JSON with the second schema, in answer to a body with the first.
    Order(fn(&mut SchemaGenerator) -> Schema, fn(&mut SchemaGenerator) -> Schema),
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
    /// The slowest requests of the last minute.
    Slow,
    /// The request with the id in the path.
    Request,
    /// An order, from the texts in the path and the body.
    Order(fn([&str; 2], &[u8]) -> Result<Request, Fault>),
}

impl Route {
    /// The methods that it takes.
    pub(super) const fn methods(&self) -> &'static str {
        match self.source {
            Source::Order(_) => "POST",
            _ => READ_METHODS,
        }
    }

    /// Whether it takes a method.
    pub(super) fn takes(&self, method: Method) -> bool {
        match method {
            Method::Get | Method::Head => !matches!(self.source, Source::Order(_)),
            Method::Post => matches!(self.source, Source::Order(_)),
            Method::Other => false,
        }
    }
}

/// What the thread knows without the event loop.
pub(super) struct Here<'a> {
    /// How long ago the event loop has said that it lives.
    pub(super) beat_age: Duration,
    pub(super) metrics: &'a Metrics,
    pub(super) history: &'a History,
    pub(super) now: Instant,
}

/// All routes, but those of the page.
pub(super) static ROUTES: &[Route] = &[
    Route {
        path: "/metrics",
        role: Some(Role::Read),
        id: "getMetrics",
        summary: "Metrics in the text format 0.0.4 of Prometheus or as OpenMetrics 1.0",
        content: Content::Metrics,
        source: Source::Metrics,
    },
    Route {
        path: "/healthz",
        role: None,
        id: "getLiveness",
        summary: "Whether the event loop lives",
        content: Content::Json(schema::<Health>),
        source: Source::Here(|here| health(&Health::of_loop(here.beat_age))),
    },
    Route {
        path: "/readyz",
        role: Some(Role::Read),
        id: "getReadiness",
        summary: "Whether hosts can be served, and what is degraded",
        content: Content::Json(schema::<Health>),
        source: Source::Status(|status, _| Ok(health(&Health::of_gateway(status)))),
    },
    Route {
        path: "/api/v1/version",
        role: Some(Role::Read),
        id: "getVersion",
        summary: "The release of the gateway",
        content: Content::Json(schema::<Version>),
        source: Source::Here(|_| Response::json(&Version::of_this())),
    },
    Route {
        path: "/api/v1/openapi.json",
        role: Some(Role::Read),
        id: "getOpenApi",
        summary: "This document",
        content: Content::Json(|_| json_schema!({ "type": "object" })),
        source: Source::OpenApi,
    },
    Route {
        path: "/api/v1/totals",
        role: Some(Role::Read),
        id: "getTotals",
        summary: "Counters since the start: of volumes, of stages and rules, and response times",
        content: Content::Json(schema::<Totals>),
        source: Source::Here(|here| Response::json(&here.metrics.totals())),
    },
    Route {
        path: "/api/v1/history",
        role: Some(Role::Read),
        id: "getHistory",
        summary: "What hosts got in the last ten minutes, in steps of two seconds",
        content: Content::Json(schema::<HistoryStatus<'_>>),
        source: Source::Here(|here| Response::json(&here.history.status(here.now))),
    },
    Route {
        path: "/api/v1/status",
        role: Some(Role::Read),
        id: "getStatus",
        summary: "The status of the gateway",
        content: Content::Json(schema::<Status>),
        source: Source::Status(|status, _| Ok(Response::json(status))),
    },
    Route {
        path: "/api/v1/sessions",
        role: Some(Role::Read),
        id: "listSessions",
        summary: "Sessions, those with most outstanding commands first",
        content: Content::Json(schema::<SessionList>),
        source: Source::Status(|status, _| Ok(Response::json(&SessionList::of(status)))),
    },
    Route {
        path: "/api/v1/tenants",
        role: Some(Role::Read),
        id: "listTenants",
        summary: "Tenants with a contract and requests, those first whose budget burned fastest",
        content: Content::Json(schema::<TenantList>),
        source: Source::Status(|status, _| Ok(Response::json(&TenantList::of(status)))),
    },
    Route {
        path: "/api/v1/tenants/{name}",
        role: Some(Role::Read),
        id: "getTenant",
        summary: "A tenant of the list",
        content: Content::Json(schema::<TenantStatus>),
        source: Source::Status(|status, name| {
            named("tenant", name, &status.tenants, |tenant| &tenant.name)
        }),
    },
    Route {
        path: "/api/v1/backends",
        role: Some(Role::Read),
        id: "listBackends",
        summary: "Backends, the fullest first",
        content: Content::Json(schema::<BackendList>),
        source: Source::Status(|status, _| Ok(Response::json(&BackendList::of(status)))),
    },
    Route {
        path: "/api/v1/backends/{name}/paths",
        role: Some(Role::Read),
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
        role: Some(Role::Read),
        id: "listPaths",
        summary: "The paths to all backends",
        content: Content::Json(schema::<PathList>),
        source: Source::Paths(|paths, _| Ok(Response::json(&PathList::of(paths, None)))),
    },
    Route {
        path: "/api/v1/volumes",
        role: Some(Role::Read),
        id: "listVolumes",
        summary: "The volumes, in the order of the configuration",
        content: Content::Json(schema::<VolumeList>),
        source: Source::Volumes(|volumes, _| Ok(Response::json(&VolumeList::of(volumes)))),
    },
    Route {
        path: "/api/v1/volumes/{name}",
        role: Some(Role::Read),
        id: "getVolume",
        summary: "A volume",
        content: Content::Json(schema::<VolumeStatus>),
        source: Source::Volumes(|volumes, name| {
            named("volume", name, volumes, |volume| &volume.name)
        }),
    },
    Route {
        path: "/api/v1/logs",
        role: Some(Role::Read),
        id: "listLogs",
        summary: "The write-back logs of volumes",
        content: Content::Json(schema::<LogList>),
        source: Source::Volumes(|volumes, _| Ok(Response::json(&LogList::of(volumes)))),
    },
    Route {
        path: "/api/v1/slow",
        role: Some(Role::Read),
        id: "listSlowRequests",
        summary: "The slowest requests of the last minute, and who was served while they waited",
        content: Content::Json(schema::<Slow>),
        source: Source::Slow,
    },
    Route {
        path: "/api/v1/requests/{id}",
        role: Some(Role::Read),
        id: "getRequest",
        summary: "A request that has ended, by its id in the log or in the list of slow ones, while the flight recorder has it",
        content: Content::Json(schema::<SlowRequest>),
        source: Source::Request,
    },
    Route {
        path: "/api/v1/backends/{name}/paths/{number}:disable",
        role: Some(Role::Operate),
        id: "disablePath",
        summary: "Use a path no more until it is enabled again",
        content: Content::Order(schema::<Disable>, schema::<PathList>),
        source: Source::Order(orders::disable),
    },
    Route {
        path: "/api/v1/backends/{name}/paths/{number}:enable",
        role: Some(Role::Operate),
        id: "enablePath",
        summary: "Use a disabled path again",
        content: Content::Order(schema::<NoFields>, schema::<PathList>),
        source: Source::Order(orders::enable),
    },
    Route {
        path: "/api/v1/backends/{name}:failback",
        role: Some(Role::Operate),
        id: "failBack",
        summary: "Go back to the best priority group with a path that can be used",
        content: Content::Order(schema::<NoFields>, schema::<PathList>),
        source: Source::Order(orders::failback),
    },
    Route {
        path: "/api/v1/volumes/{name}:drain",
        role: Some(Role::Operate),
        id: "drainVolume",
        summary: "Write everything in the log of a volume to its storage, and new writes directly there",
        content: Content::Order(schema::<NoFields>, schema::<VolumeStatus>),
        source: Source::Order(orders::drain),
    },
    Route {
        path: "/api/v1/volumes/{name}:resume",
        role: Some(Role::Operate),
        id: "resumeVolume",
        summary: "Write to the log of a drained volume again",
        content: Content::Order(schema::<NoFields>, schema::<VolumeStatus>),
        source: Source::Order(orders::resume),
    },
    Route {
        path: "/api/v1/volumes/{name}:retry",
        role: Some(Role::Operate),
        id: "retryVolume",
        summary: "Retry the write-back of a volume that its storage has refused",
        content: Content::Order(schema::<NoFields>, schema::<VolumeStatus>),
        source: Source::Order(orders::retry),
    },
    Route {
        path: "/api/v1/volumes/{name}:quarantine",
        role: Some(Role::Admin),
        id: "quarantineVolume",
        summary: "Give up the data that the log of a volume cannot give: reads of it fail until it is overwritten",
        content: Content::Order(schema::<NoFields>, schema::<VolumeStatus>),
        source: Source::Order(orders::quarantine),
    },
    Route {
        path: "/api/v1/config:reload",
        role: Some(Role::Admin),
        id: "reloadConfig",
        summary: "Read the configuration again, as at SIGHUP",
        content: Content::Order(schema::<Reload>, schema::<Verdict>),
        source: Source::Order(orders::reload),
    },
    Route {
        path: "/api/v1/stop",
        role: Some(Role::Admin),
        id: "stopGateway",
        summary: "Stop the gateway, as at SIGTERM",
        content: Content::Order(schema::<NoFields>, schema::<Leaving>),
        source: Source::Order(orders::stop),
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

/// The methods of what changes nothing.
pub(super) const READ_METHODS: &str = "GET, HEAD";
