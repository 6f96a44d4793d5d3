//! Answers requests: with what the thread knows, or with what the event loop says.

use super::problem::Fault;
use super::request::Head;
use super::response::Response;
use super::routes::{Here, ROUTES, Route, Source, content_type};
use super::{Subject, openapi};
use crate::operator::protocol::Answer;
use std::sync::Arc;

/// What the event loop has said, as far as it is kept.
#[derive(Clone, Debug)]
pub(super) enum Known {
    Answer(Arc<Answer>),
    Metrics(Arc<[u8]>),
}

/// How a request can be answered.
pub(super) enum Found {
    Now(Response),
    /// With what the event loop says to this.
    Ask(Subject),
}

/// Finds the answer to a request, or what to ask the event loop for.
pub(super) fn find(head: &Head, here: &Here<'_>) -> Result<Found, Fault> {
    if let Some((_, kind, text)) = PAGE.iter().find(|(path, ..)| *path == head.path) {
        return Ok(Found::Now(Response::ok(kind, text.as_bytes())));
    }
    let (route, _) = route(head)?;
    Ok(match route.source {
        Source::Here(answer) => Found::Now(answer(here)),
        Source::OpenApi => {
            Found::Now(Response::ok("application/json", openapi::document().into_bytes()))
        }
        Source::Metrics => Found::Ask(Subject::Metrics(head.format)),
        Source::Status(_) => Found::Ask(Subject::Status),
        Source::Paths(_) => Found::Ask(Subject::Paths),
        Source::Volumes(_) => Found::Ask(Subject::Volumes),
    })
}

/// The answer with what the event loop has said.
pub(super) fn answer(head: &Head, known: &Known) -> Result<Response, Fault> {
    let (route, name) = route(head)?;
    let told = match known {
        Known::Metrics(page) => return Ok(Response::ok(content_type(head.format), page.clone())),
        Known::Answer(told) => &**told,
    };
    match (&route.source, told) {
        (Source::Status(answer), Answer::Status(status)) => answer(status, name),
        (Source::Paths(answer), Answer::Paths(paths)) => answer(paths, name),
        (Source::Volumes(answer), Answer::Volumes(volumes)) => answer(volumes, name),
        _ => Err(Fault::NoAnswer),
    }
}

/// The route of a request, and the name in its path; empty if the route has none.
fn route(head: &Head) -> Result<(&'static Route, &str), Fault> {
    let shown = || head.path.chars().take(PATH_SHOWN).collect();
    let found = ROUTES.iter().find_map(|route| Some((route, matches(route.path, &head.path)?)));
    let found = found.ok_or_else(|| Fault::NotFound(shown()))?;
    if head.has_query {
        return Err(Fault::Parameters(shown()));
    }
    Ok(found)
}

/// Whether a path fits a pattern, and the name in it.
fn matches<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once("{name}") else {
        return (pattern == path).then_some("");
    };
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// The page and its parts: path, type, content.
static PAGE: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
];

/// Characters of a wrong path in the answer.
const PATH_SHOWN: usize = 200;
