//! Answers requests: with what the thread knows, or with what the event loop says.

use super::guard::Caller;
use super::lists::PathList;
use super::problem::Fault;
use super::request::{Head, Method};
use super::response::Response;
use super::routes::{Here, READ_METHODS, ROUTES, Route, Source, content_type};
use super::{Subject, openapi};
use crate::operator::protocol::{Answer, Request};
use std::sync::{Arc, LazyLock};

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
    /// With what the event loop says to this, which hardly anybody else asks for.
    Look(Request),
    /// When the event loop has carried out this.
    Order(Request),
}

/// Finds the answer to a request, or what to ask the event loop for.
pub(super) fn find(
    head: &Head,
    body: &[u8],
    caller: &Caller,
    here: &Here<'_>,
) -> Result<Found, Fault> {
    if let Some((_, kind, text)) = PAGE.iter().find(|(path, ..)| *path == head.path) {
        if !matches!(head.method, Method::Get | Method::Head) {
            return Err(Fault::Method(READ_METHODS));
        }
        return Ok(Found::Now(Response::ok(kind, text.as_bytes())));
    }
    let (route, texts) = route(head)?;
    if !route.takes(head.method) {
        return Err(Fault::Method(route.methods()));
    }
    if head.method == Method::Post && !head.is_json {
        return Err(Fault::ContentType);
    }
    caller.may(route.role)?;
    Ok(match route.source {
        Source::Here(answer) => Found::Now(answer(here)),
        Source::OpenApi => {
            static DOCUMENT: LazyLock<Arc<[u8]>> =
                LazyLock::new(|| openapi::document().into_bytes().into());
            Found::Now(Response::ok("application/json", DOCUMENT.clone()))
        }
        Source::Metrics => Found::Ask(Subject::Metrics(head.format)),
        Source::Status(_) => Found::Ask(Subject::Status),
        Source::Paths(_) => Found::Ask(Subject::Paths),
        Source::Volumes(_) => Found::Ask(Subject::Volumes),
        Source::Slow => Found::Ask(Subject::Slow),
        Source::Request => Found::Look(Request::ended(texts[0].to_owned())),
        Source::Order(order) => Found::Order(order(texts, body)?),
    })
}

/// The answer with what the event loop has said.
pub(super) fn answer(head: &Head, known: &Known) -> Result<Response, Fault> {
    let (route, [name, _]) = route(head)?;
    let told = match known {
        Known::Metrics(page) => return Ok(Response::ok(content_type(head.format), page.clone())),
        Known::Answer(told) => &**told,
    };
    match (&route.source, told) {
        (Source::Status(answer), Answer::Status(status)) => answer(status, name),
        (Source::Paths(answer), Answer::Paths(paths)) => answer(paths, name),
        (Source::Volumes(answer), Answer::Volumes(volumes)) => answer(volumes, name),
        (Source::Slow, Answer::Slow(slow)) => Ok(Response::json(slow)),
        (Source::Request, Answer::Slow(slow)) => {
            slow.told.first().map(Response::json).ok_or(Fault::NoAnswer)
        }
        (Source::Slow | Source::Request, Answer::Error(problem)) => {
            Err(Fault::Refused(problem.clone()))
        }
        (Source::Order(_), told) => ordered(told),
        _ => Err(Fault::NoAnswer),
    }
}

/// The answer to an order.
fn ordered(told: &Answer) -> Result<Response, Fault> {
    match told {
        Answer::Paths(paths) => Ok(Response::json(&PathList::of(paths, None))),
        Answer::Volumes(volumes) => volumes.first().map(Response::json).ok_or(Fault::NoVerdict),
        Answer::Reloaded(verdict) => Ok(Response::json(verdict)),
        Answer::Stopping(leaving) => Ok(Response::json(leaving)),
        Answer::Error(problem) => Err(Fault::Refused(problem.clone())),
        Answer::Status(_)
        | Answer::Sample(_)
        | Answer::Slow(_)
        | Answer::Metrics(_)
        | Answer::Move(_) => Err(Fault::NoVerdict),
    }
}

/// The route of a request, and the texts in its path; those that the route does not have are empty.
fn route(head: &Head) -> Result<(&'static Route, [&str; 2]), Fault> {
    let shown = || head.path.chars().take(PATH_SHOWN).collect();
    let found = ROUTES.iter().find_map(|route| Some((route, matches(route.path, &head.path)?)));
    let found = found.ok_or_else(|| Fault::NotFound(shown()))?;
    if head.has_query {
        return Err(Fault::Parameters(shown()));
    }
    Ok(found)
}

/// Whether a path fits a pattern, and the texts at its braces.
fn matches<'a>(mut pattern: &str, mut path: &'a str) -> Option<[&'a str; 2]> {
    let mut texts = [""; 2];
    for text in &mut texts {
        let Some((before, rest)) = pattern.split_once('{') else { break };
        path = path.strip_prefix(before)?;
        let end = path.find(['/', ':']).unwrap_or(path.len());
        (*text, path) = path.split_at(end);
        pattern = rest.split_once('}')?.1;
        if text.is_empty() {
            return None;
        }
    }
    (pattern == path).then_some(texts)
}

/// The page and its parts: path, type, content.
static PAGE: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
];

/// Characters of a wrong path in the answer.
const PATH_SHOWN: usize = 200;
