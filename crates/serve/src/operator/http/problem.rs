//! Why a request over HTTP has no answer, as a problem document (RFC 9457).

use super::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Fault {
    #[error("the request is not HTTP: {0}")]
    NotHttp(httparse::Error),
    #[error("the request has no `Host`, or several")]
    NoHost,
    #[error("`{0}` is not a name of this gateway")]
    WrongHost(String),
    #[error("a page of another origin has sent the request")]
    ForeignOrigin,
    #[error("the method {0} is not allowed")]
    Method(String),
    #[error("the head of the request has more than {HEAD_MAX} bytes")]
    HeadTooLarge,
    #[error("the request has a body")]
    Body,
    #[error("the head of the request did not arrive in time")]
    HeadTimeout,
    #[error("there is nothing at `{0}`")]
    NotFound(String),
    #[error("there is no {what} `{name}`")]
    Unknown { what: &'static str, name: String },
    #[error("`{0}` takes no parameters")]
    Parameters(String),
    #[error("too many requests")]
    TooMany,
    #[error("the event loop has not answered")]
    NoAnswer,
}

impl Fault {
    /// The status code.
    pub(super) const fn status(&self) -> u16 {
        match self {
            Self::NotHttp(_) | Self::NoHost | Self::Parameters(_) => 400,
            Self::ForeignOrigin => 403,
            Self::NotFound(_) | Self::Unknown { .. } => 404,
            Self::Method(_) => 405,
            Self::HeadTimeout => 408,
            Self::Body => 413,
            Self::WrongHost(_) => 421,
            Self::TooMany => 429,
            Self::HeadTooLarge => 431,
            Self::NoAnswer => 503,
        }
    }

    /// For programs.
    const fn code(&self) -> &'static str {
        match self {
            Self::NotHttp(_) => "not_http",
            Self::NoHost => "no_host",
            Self::WrongHost(_) => "wrong_host",
            Self::ForeignOrigin => "foreign_origin",
            Self::Method(_) => "method",
            Self::HeadTooLarge => "head_too_large",
            Self::Body => "body",
            Self::HeadTimeout => "head_timeout",
            Self::NotFound(_) => "not_found",
            Self::Unknown { .. } => "unknown_name",
            Self::Parameters(_) => "parameters",
            Self::TooMany => "too_many_requests",
            Self::NoAnswer => "no_answer",
        }
    }

    /// What to do.
    const fn help(&self) -> &'static str {
        match self {
            Self::NotHttp(_) => "use HTTP/1.1 without TLS",
            Self::NoHost => "send one `Host`",
            Self::WrongHost(_) => "use `localhost` or a loopback address in the URL",
            Self::ForeignOrigin => {
                "open the gateway's own page, or use a client that is no browser"
            }
            Self::Method(_) => {
                "use GET: this interface changes nothing; orders go over the control socket"
            }
            Self::HeadTooLarge => "send fewer or shorter header fields",
            Self::Body => "send no `Content-Length` but 0, and no `Transfer-Encoding`",
            Self::HeadTimeout => "send the head at once",
            Self::NotFound(_) => "/api/v1/openapi.json lists the routes",
            Self::Unknown { .. } => "the list without a name has all names",
            Self::Parameters(_) => "remove the part behind `?`",
            Self::TooMany => "ask less often",
            Self::NoAnswer => "look at /healthz and at the log of the gateway",
        }
    }

    /// Whether the connection ends with the answer: the rest of what the client has sent cannot be understood, or is
    /// not wanted.
    pub(super) const fn is_last(&self) -> bool {
        !matches!(
            self,
            Self::NotFound(_) | Self::Unknown { .. } | Self::Parameters(_) | Self::NoAnswer
        )
    }

    /// The answer.
    pub(super) fn response(&self) -> Response {
        let (status, code, help) = (self.status(), self.code().to_owned(), self.help().to_owned());
        let title = super::response::reason(status).to_owned();
        let problem = Problem { status, title, code, detail: self.to_string(), help };
        let mut response = Response::json(&problem);
        response.status = status;
        response.content_type = "application/problem+json";
        response.extra = match self {
            Self::Method(_) => Some(("Allow", METHODS)),
            Self::TooMany | Self::NoAnswer => Some(("Retry-After", "1")),
            _ => None,
        };
        response
    }
}

/// A problem document.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Problem {
    /// The status code of the answer.
    status: u16,
    /// The meaning of the status code.
    title: String,
    /// For programs; `docs/reference/http.md` lists them.
    code: String,
    /// What is wrong.
    detail: String,
    /// What to do.
    help: String,
}

/// The longest head of a request in bytes.
pub(super) const HEAD_MAX: usize = 16 * 1024;

/// The methods that are allowed.
const METHODS: &str = "GET, HEAD";
