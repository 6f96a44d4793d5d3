//! Parses the head of a request over HTTP/1.1, and refuses what a browser may have been made to send.

use super::problem::{BODY_MAX, Fault};
use crate::operator::metrics::page::Format;
use std::fmt;
use std::net::IpAddr;

/// The head of a request that may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: Method,
    /// Without the query.
    pub(super) path: String,
    /// There is a query.
    pub(super) has_query: bool,
    /// What the client says to prove who it is.
    pub(super) bearer: Bearer,
    /// The body is said to be JSON: the forms of a page of another origin cannot send that.
    pub(super) is_json: bool,
    /// The bytes of the body that follows.
    pub(super) body: usize,
    /// The connection stays open.
    pub(super) keep_alive: bool,
    /// The format of metrics that the client prefers.
    pub(super) format: Format,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Head,
    /// An order.
    Post,
    /// One that nothing takes.
    Other,
}

/// The field `Authorization`.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) enum Bearer {
    #[default]
    None,
    Token(String),
    /// Of another scheme, or several.
    Malformed,
}

/// Without the token, so that no log has it.
impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Token(_) => "Token(…)",
            Self::Malformed => "Malformed",
        })
    }
}

/// How a gateway is named in requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site<'a> {
    /// Connections are encrypted.
    pub(super) secure: bool,
    /// The address that the client has connected to; a Unix socket has none.
    pub(super) local: Option<IpAddr>,
    /// Further names.
    pub(super) hosts: &'a [String],
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
    content_type: &'a str,
    length: Option<&'a str>,
    /// The body has no length.
    is_coded: bool,
    bearer: Bearer,
}

/// Parses the head at the front of `bytes`: the head and its length, or `None` if more bytes are needed.
pub(super) fn parse(bytes: &[u8], site: &Site<'_>) -> Result<Option<(Head, usize)>, Fault> {
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
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        _ => Method::Other,
    };
    let (path, has_query) = match target.split_once('?') {
        Some((path, _)) => (path.to_owned(), true),
        None => (target.to_owned(), false),
    };
    fields.allowed(method, &path, site)?;
    let body = fields.body(method)?;
    let says =
        |word: &str| fields.connection.split(',').any(|one| one.trim().eq_ignore_ascii_case(word));
    let keep_alive = match request.version {
        Some(1) => !says("close"),
        _ => says("keep-alive"),
    };
    let open = fields.accept.contains("application/openmetrics-text");
    let format = if open { Format::OpenMetrics } else { Format::Text };
    let kind = fields.content_type.split(';').next().unwrap_or_default().trim();
    let is_json = kind.eq_ignore_ascii_case("application/json");
    let bearer = fields.bearer;
    let head = Head { method, path, has_query, bearer, is_json, body, keep_alive, format };
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
            // Two lengths that differ would hide a request in a body.
            "content-length" if fields.length.is_some() => return Err(Fault::Length),
            "content-length" => fields.length = Some(value),
            "transfer-encoding" => fields.is_coded = true,
            "content-type" => fields.content_type = value,
            "authorization" => {
                fields.bearer = match (&fields.bearer, value.split_once(' ')) {
                    (Bearer::None, Some((scheme, token)))
                        if scheme.eq_ignore_ascii_case("bearer") =>
                    {
                        Bearer::Token(token.trim().to_owned())
                    }
                    _ => Bearer::Malformed,
                }
            }
            _ => {}
        }
    }
    Ok(fields)
}

impl Fields<'_> {
    /// Refuses a name that is not this gateway's, which a browser sends after DNS rebinding, and requests that the page
    /// of another origin has made. A link on such a page may lead to the gateway's page.
    fn allowed(&self, method: Method, path: &str, site: &Site<'_>) -> Result<(), Fault> {
        let host = self.host.ok_or(Fault::NoHost)?;
        if !site.is_named(host) {
            return Err(Fault::WrongHost(host.chars().take(HOST_SHOWN).collect()));
        }
        let scheme = if site.secure { "https://" } else { "http://" };
        if let Some(origin) = self.origin
            && !origin.strip_prefix(scheme).is_some_and(|from| from.eq_ignore_ascii_case(host))
        {
            return Err(Fault::ForeignOrigin);
        }
        let by_link = method == Method::Get && path == "/" && self.fetch_mode == Some("navigate");
        match self.fetch_site {
            None | Some("same-origin" | "none") => Ok(()),
            Some(_) if by_link => Ok(()),
            Some(_) => Err(Fault::ForeignOrigin),
        }
    }

    /// The length of the body. Only an order has one.
    fn body(&self, method: Method) -> Result<usize, Fault> {
        let number = |text: &str| {
            if !text.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(Fault::Length);
            }
            text.parse::<usize>().map_err(|_| Fault::BodyTooLarge)
        };
        let length = self.length.map_or(Ok(0), number)?;
        if method != Method::Post {
            return if length > 0 || self.is_coded { Err(Fault::Body) } else { Ok(0) };
        }
        if self.is_coded {
            return Err(Fault::Length);
        }
        if length > BODY_MAX { Err(Fault::BodyTooLarge) } else { Ok(length) }
    }
}

impl Site<'_> {
    /// Whether a `Host` is `localhost`, a loopback address, the address that the client has connected to, or a name of
    /// `hosts`, whatever the port: that may be another one behind a tunnel. A page of another origin can only have such
    /// a name if the operator has given it one.
    fn is_named(&self, host: &str) -> bool {
        let (name, port) = match host.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((name, "")) => (name, "0"),
                Some((name, port)) => match port.strip_prefix(':') {
                    Some(port) => (name, port),
                    None => return false,
                },
                None => return false,
            },
            None => host.split_once(':').unwrap_or((host, "0")),
        };
        if port.parse::<u16>().is_err() {
            return false;
        }
        if let Ok(address) = name.parse::<IpAddr>() {
            let address = address.to_canonical();
            return address.is_loopback() || self.local == Some(address);
        }
        let mut known = ["localhost"].into_iter().chain(self.hosts.iter().map(String::as_str));
        known.any(|one| one.eq_ignore_ascii_case(name))
    }
}

/// Header fields of a request; more are refused.
const FIELDS_MAX: usize = 64;

/// Characters of a wrong `Host` in the answer.
const HOST_SHOWN: usize = 64;
