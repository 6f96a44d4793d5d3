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
        url.strip_prefix("http://").unwrap().trim_end_matches('/').parse().unwrap()
    }

    /// A connection on which nothing has been said.
    pub(crate) fn http_connection(&self) -> TcpStream {
        let stream = TcpStream::connect(self.http()).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream
    }

    /// The answer to a request with these header fields besides `Host`; the connection closes with it.
    pub(crate) fn http_request(&self, method: &str, path: &str, fields: &[&str]) -> Answered {
        let mut stream = self.http_connection();
        let host = format!("Host: {}", self.http());
        let own = ["Connection: close", &host];
        let fields = [&own[..], fields].concat().join("\r\n");
        write!(stream, "{method} {path} HTTP/1.1\r\n{fields}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Answered::of(&text)
    }

    /// What is at a path, which must be there.
    pub(crate) fn http_get(&self, path: &str) -> Answered {
        let answered = self.http_request("GET", path, &[]);
        assert_eq!(answered.status, 200, "{path}: {answered:?}");
        answered
    }
}
