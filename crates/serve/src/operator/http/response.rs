//! An answer over HTTP/1.1.

use serde::Serialize;
use std::fmt::Write as _;
use std::sync::Arc;

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: Arc<[u8]>,
    /// A header field besides those of every answer.
    pub(super) extra: Option<(&'static str, &'static str)>,
}

impl Response {
    /// 200 with these bytes.
    pub(super) fn ok(content_type: &'static str, body: impl Into<Arc<[u8]>>) -> Self {
        Self { status: 200, content_type, body: body.into(), extra: None }
    }

    /// 200 with an object.
    pub(super) fn json(value: &impl Serialize) -> Self {
        // Maps have texts for keys here, and numbers are finite: there is no other way to fail.
        let body = serde_json::to_vec(value).expect("an answer is plain data");
        Self::ok("application/json", body)
    }

    /// The head: status line and header fields.
    pub(super) fn head(&self, keep_alive: bool) -> Vec<u8> {
        let Self { status, content_type, body, extra } = self;
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(*status));
        let _ = write!(head, "Content-Type: {content_type}\r\nContent-Length: {}\r\n", body.len());
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let _ = write!(head, "Connection: {connection}\r\n");
        if let Some((name, value)) = extra {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str(ALWAYS);
        head.push_str("\r\n");
        head.into_bytes()
    }
}

/// The meaning of a status code.
pub(super) const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    }
}

/// Header fields of every answer: a browser shows an answer to no other origin, guesses no type, and loads only what
/// comes from here. No field of CORS is ever sent.
const ALWAYS: &str = "Cache-Control: no-store\r\n\
    X-Content-Type-Options: nosniff\r\n\
    Referrer-Policy: no-referrer\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Cross-Origin-Opener-Policy: same-origin\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n";
