//! Parses the head of a request over HTTP/1.1, and refuses what a browser may have been made to send.

use super::problem::Fault;
use crate::operator::metrics::page::Format;
use std::net::IpAddr;

/// A request that may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Without the query.
    pub(super) path: String,
    /// There is a query.
    pub(super) has_query: bool,
    /// The answer is sent without its body.
    pub(super) no_body: bool,
    /// The connection stays open.
    pub(super) keep_alive: bool,
    /// The format of metrics that the client prefers.
    pub(super) format: Format,
}

/// The header fields that matter.
#[derive(Debug, Default)]
struct Fields<'a> {
    host: Option<&'a str>,
    origin: Option<&'a str>,
    fetch_site: Option<&'a str>,
    fetch_mode: Option<&'a str>,
    accept: &'a str,
    connection: &'a str,
}

/// Parses the head at the front of `bytes`: the request and its length, or `None` if more bytes are needed.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Fault> {
    let mut headers = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Fault::HeadTooLarge),
        Err(error) => return Err(Fault::NotHttp(error)),
    };
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let fields = fields(request.headers)?;
    if !matches!(method, "GET" | "HEAD") {
        return Err(Fault::Method(method.to_owned()));
    }
    let (path, has_query) = match target.split_once('?') {
        Some((path, _)) => (path.to_owned(), true),
        None => (target.to_owned(), false),
    };
    fields.allowed(&path)?;
    let says =
        |word: &str| fields.connection.split(',').any(|one| one.trim().eq_ignore_ascii_case(word));
    let keep_alive = match request.version {
        Some(1) => !says("close"),
        _ => says("keep-alive"),
    };
    let open = fields.accept.contains("application/openmetrics-text");
    let format = if open { Format::OpenMetrics } else { Format::Text };
    let head = Head { path, has_query, no_body: method == "HEAD", keep_alive, format };
    Ok(Some((head, length)))
}

/// The fields that matter; one that makes the request ambiguous, or announces a body, is a fault.
fn fields<'a>(headers: &[httparse::Header<'a>]) -> Result<Fields<'a>, Fault> {
    let mut fields = Fields::default();
    for header in headers {
        // What is no text matches nothing below, and is refused where it matters.
        let value = std::str::from_utf8(header.value).unwrap_or("\u{fffd}").trim();
        let name = header.name.to_ascii_lowercase();
        match name.as_str() {
            "host" if fields.host.is_some() => return Err(Fault::NoHost),
            "host" => fields.host = Some(value),
            "origin" => fields.origin = Some(value),
            "sec-fetch-site" => fields.fetch_site = Some(value),
            "sec-fetch-mode" => fields.fetch_mode = Some(value),
            "accept" => fields.accept = value,
            "connection" => fields.connection = value,
            "content-length" if value == "0" => {}
            "content-length" | "transfer-encoding" => return Err(Fault::Body),
            _ => {}
        }
    }
    Ok(fields)
}

impl Fields<'_> {
    /// Refuses a name that is not this gateway's, which a browser sends after DNS rebinding, and requests that the page
    /// of another origin has made. A link on such a page may lead to the gateway's page.
    fn allowed(&self, path: &str) -> Result<(), Fault> {
        let host = self.host.ok_or(Fault::NoHost)?;
        if !is_local(host) {
            return Err(Fault::WrongHost(host.chars().take(HOST_SHOWN).collect()));
        }
        if let Some(origin) = self.origin
            && !origin.strip_prefix("http://").is_some_and(|from| from.eq_ignore_ascii_case(host))
        {
            return Err(Fault::ForeignOrigin);
        }
        let by_link = path == "/" && self.fetch_mode == Some("navigate");
        match self.fetch_site {
            None | Some("same-origin" | "none") => Ok(()),
            Some(_) if by_link => Ok(()),
            Some(_) => Err(Fault::ForeignOrigin),
        }
    }
}

/// Whether a `Host` is `localhost` or a loopback address, whatever the port: the port may be another one behind a
/// tunnel. No page of another origin can have such a name.
fn is_local(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) => (name, port.strip_prefix(':').or(port.is_empty().then_some("0"))),
            None => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, Some("0")),
        },
    };
    let numbered = port.is_some_and(|port| port.parse::<u16>().is_ok());
    let local = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    numbered && local
}

/// Header fields of a request; more are refused.
const FIELDS_MAX: usize = 64;

/// Characters of a wrong `Host` in the answer.
const HOST_SHOWN: usize = 64;
