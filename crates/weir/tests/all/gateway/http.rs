//! The HTTP interface as its clients use it.

use super::Gateway;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// The lines of the head.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answered {
    /// Takes a whole answer apart.
    pub(crate) fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

impl Gateway {
    /// Where it listens for HTTP over TCP.
    pub(crate) fn http(&self) -> SocketAddr {
        let url = self.http.as_deref().expect("it has HTTP");
        url.split_once("://").unwrap().1.trim_end_matches('/').parse().unwrap()
    }

    /// A connection on which nothing has been said.
    pub(crate) fn http_connection(&self) -> TcpStream {
        let stream = TcpStream::connect(self.http()).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream
    }

    /// The answer to a request with these header fields besides `Host`; the connection closes with it.
    pub(crate) fn http_request(&self, method: &str, path: &str, fields: &[&str]) -> Answered {
        let host = self.http().to_string();
        say(&mut self.http_connection(), &host, (method, path), fields, "")
    }

    /// The answer to an order with this token and this body.
    pub(crate) fn http_order(&self, path: &str, token: &str, body: &str) -> Answered {
        let host = self.http().to_string();
        let fields = [&*format!("Authorization: Bearer {token}"), JSON];
        say(&mut self.http_connection(), &host, ("POST", path), &fields, body)
    }

    /// What is at a path, which must be there.
    pub(crate) fn http_get(&self, path: &str) -> Answered {
        let answered = self.http_request("GET", path, &[]);
        assert_eq!(answered.status, 200, "{path}: {answered:?}");
        answered
    }
}

/// Sends a request with these header fields and this body, and returns the answer, with which the connection closes.
pub(crate) fn say(
    stream: &mut (impl Read + Write),
    host: &str,
    (method, path): (&str, &str),
    fields: &[&str],
    body: &str,
) -> Answered {
    let host = format!("Host: {host}");
    let length = format!("Content-Length: {}", body.len());
    let length: &[&str] = if body.is_empty() { &[] } else { &[&length] };
    let fields = [&["Connection: close", &host][..], fields, length].concat().join("\r\n");
    write!(stream, "{method} {path} HTTP/1.1\r\n{fields}\r\n\r\n{body}").unwrap();
    stream.flush().unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    Answered::of(&text)
}

/// The header field that every order needs.
pub(crate) const JSON: &str = "Content-Type: application/json";
