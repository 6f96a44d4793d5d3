//! Why a request over HTTP has no answer, as a problem document (RFC 9457).

use super::response::Response;
use crate::config::http::Role;
use crate::operator::protocol::Problem as Refused;
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
    #[error("the method is not allowed here")]
    Method(&'static str),
    #[error("the head of the request has more than {HEAD_MAX} bytes")]
    HeadTooLarge,
    #[error("the request has a body")]
    Body,
    #[error("the length of the body is not known")]
    Length,
    #[error("the body has more than {BODY_MAX} bytes")]
    BodyTooLarge,
    #[error("the body is not announced as `application/json`")]
    ContentType,
    #[error("the role `{}` is needed", .0.as_str())]
    NoProof(Role),
    #[error("the token is not known")]
    WrongToken,
    #[error("more than {GUESSES_MAX} wrong tokens came from this address in a minute")]
    TooManyGuesses,
    #[error("the role `{}` is needed", .0.as_str())]
    Role(Role),
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
    #[error("the event loop has not said whether the order was carried out")]
    NoVerdict,
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    #[error("the body does not fit the order: {0}")]
    NotARequest(String),
    #[error("{}", .0.message)]
    Refused(Refused),
}

impl Fault {
    /// The status code.
    pub(super) fn status(&self) -> u16 {
        match self {
            Self::NotHttp(_)
            | Self::NoHost
            | Self::Parameters(_)
            | Self::NotJson(_)
            | Self::NotARequest(_) => 400,
            Self::NoProof(_) | Self::WrongToken => 401,
            Self::ForeignOrigin | Self::Role(_) => 403,
            Self::NotFound(_) | Self::Unknown { .. } => 404,
            Self::Method(_) => 405,
            Self::HeadTimeout => 408,
            Self::Length => 411,
            Self::Body | Self::BodyTooLarge => 413,
            Self::ContentType => 415,
            Self::WrongHost(_) => 421,
            Self::TooMany | Self::TooManyGuesses => 429,
            Self::HeadTooLarge => 431,
            Self::NoAnswer | Self::NoVerdict => 503,
            Self::Refused(refused) => order_status(&refused.code),
        }
    }

    /// For programs.
    fn code(&self) -> &str {
        match self {
            Self::NotHttp(_) => "not_http",
            Self::NoHost => "no_host",
            Self::WrongHost(_) => "wrong_host",
            Self::ForeignOrigin => "foreign_origin",
            Self::Method(_) => "method",
            Self::HeadTooLarge => "head_too_large",
            Self::Body => "body",
            Self::Length => "length",
            Self::BodyTooLarge => "body_too_large",
            Self::ContentType => "content_type",
            Self::NoProof(_) => "no_token",
            Self::WrongToken => "wrong_token",
            Self::TooManyGuesses => "too_many_guesses",
            Self::Role(_) => "role",
            Self::HeadTimeout => "head_timeout",
            Self::NotFound(_) => "not_found",
            Self::Unknown { .. } => "unknown_name",
            Self::Parameters(_) => "parameters",
            Self::TooMany => "too_many_requests",
            Self::NoAnswer => "no_answer",
            Self::NoVerdict => "no_verdict",
            Self::NotJson(_) => "not_json",
            Self::NotARequest(_) => "not_a_request",
            Self::Refused(refused) => &refused.code,
        }
    }

    /// What to do.
    fn help(&self) -> &str {
        match self {
            Self::NotHttp(_) => {
                "use HTTP/1.1; whether under TLS, the ready message of the gateway says"
            }
            Self::NoHost => "send one `Host`",
            Self::WrongHost(_) => {
                "use the address of the gateway in the URL, or add the name to `hosts` of [http]"
            }
            Self::ForeignOrigin => {
                "open the gateway's own page, or use a client that is no browser"
            }
            Self::Method(_) => "`Allow` has the methods: GET to look, POST for orders",
            Self::HeadTooLarge => "send fewer or shorter header fields",
            Self::Body => "send no `Content-Length` but 0, and no `Transfer-Encoding`",
            Self::Length => "send one `Content-Length`, and no `Transfer-Encoding`",
            Self::BodyTooLarge => "send only the fields that the order has",
            Self::ContentType => "send `Content-Type: application/json`, and an object or nothing",
            Self::NoProof(_) => {
                "send `Authorization: Bearer` and a token of `tokens_file` in [http], which `weir api token` makes"
            }
            Self::WrongToken => "`tokens_file` of [http] has the hashes of tokens that are known",
            Self::TooManyGuesses => "wait a minute, or use the control socket",
            Self::Role(_) => "use a token of that role, which `weir api token` makes",
            Self::HeadTimeout => "send the head and the body at once",
            Self::NotFound(_) => "/api/v1/openapi.json lists the routes",
            Self::Unknown { .. } => "the list without a name has all names",
            Self::Parameters(_) => "remove the part behind `?`",
            Self::TooMany => "ask less often",
            Self::NoVerdict => "look at the state before you give the order again: it may be done",
            Self::NotJson(_) | Self::NotARequest(_) => {
                "send an object, or nothing; /api/v1/openapi.json has its fields"
            }
            Self::Refused(refused) => &refused.help,
            Self::NoAnswer => "look at /healthz and at the log of the gateway",
        }
    }

    /// Whether the connection ends with the answer: the rest of what the client has sent cannot be understood, or is
    /// not wanted.
    pub(super) const fn is_last(&self) -> bool {
        !matches!(
            self,
            Self::NotFound(_)
                | Self::Unknown { .. }
                | Self::Parameters(_)
                | Self::NoProof(_)
                | Self::Role(_)
                | Self::NoAnswer
                | Self::NotJson(_)
                | Self::NotARequest(_)
                | Self::Refused(_)
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
            Self::Method(allowed) => Some(("Allow", *allowed)),
            Self::NoProof(_) | Self::WrongToken => Some(("WWW-Authenticate", "Bearer")),
            Self::TooManyGuesses => Some(("Retry-After", "60")),
            Self::TooMany | Self::NoAnswer => Some(("Retry-After", "1")),
            _ => None,
        };
        response
    }
}

/// The status code of an order that the gateway has refused, by the code of the control socket.
fn order_status(code: &str) -> u16 {
    match code {
        "unknown_volume" | "unknown_backend" | "unknown_path" | "unknown_request" => 404,
        "invalid" => 422,
        "stopping" => 503,
        // It could be carried out in another state.
        _ => 409,
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

/// The longest body in bytes.
pub(super) const BODY_MAX: usize = 4_096;

/// Wrong tokens of an origin in a minute; with more no token of it is looked at.
pub(super) const GUESSES_MAX: u32 = 10;
