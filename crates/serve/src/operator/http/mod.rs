//! The HTTP interface for operators: metrics, health, and the questions of the control socket as REST.
//!
//! A separate thread parses requests, encodes answers and never makes the event loop wait. The thread
//! asks the event loop at most one question of each [`Subject`] at a time, and uses an answer for all clients that ask
//! within [`FRESH`]: many clients cost hosts no more than one. Each client asks for a request by its id alone; the limit of
//! requests a second is that of these questions, too. Orders go to it one by one, after [`guard`] has found that
//! the client may give them.
//! [Decision 42](../../../../docs/decisions/0042-http.md) has the reasons.

mod api;
mod connection;
pub(crate) mod guard;
mod health;
mod lists;
pub(crate) mod openapi;
mod orders;
mod problem;
mod request;
mod response;
mod routes;
pub(crate) mod server;
mod stream;
#[cfg(test)]
mod tests;

use super::metrics::page::Format;
use super::metrics::scraper::Scrape;
use super::protocol::{Answer, Request};
use weir_flow::clock::Duration;

/// What the thread asks the event loop for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Status,
    Paths,
    Volumes,
    Slow,
    Metrics(Format),
}

impl Subject {
    const ALL: [Self; 6] = [
        Self::Status,
        Self::Paths,
        Self::Volumes,
        Self::Slow,
        Self::Metrics(Format::Text),
        Self::Metrics(Format::OpenMetrics),
    ];

    const fn index(self) -> usize {
        match self {
            Self::Status => 0,
            Self::Paths => 1,
            Self::Volumes => 2,
            Self::Slow => 3,
            Self::Metrics(Format::Text) => 4,
            Self::Metrics(Format::OpenMetrics) => 5,
        }
    }

    /// The same question on the control socket.
    pub(crate) const fn request(self) -> Request {
        match self {
            Self::Status => Request::Status {},
            Self::Paths => Request::PathList { backend: None },
            Self::Volumes => Request::VolumeList { volume: None },
            Self::Slow => Request::slowest(SLOW),
            Self::Metrics(format) => {
                Request::Metrics { openmetrics: matches!(format, Format::OpenMetrics) }
            }
        }
    }
}

/// Identifies what the thread has asked for until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ticket {
    /// A question, for all clients that ask it meanwhile.
    Shared(Subject),
    /// A question of one client, with its serial number.
    Look(u64),
    /// An order of one client, with its serial number.
    Order(u64),
}

/// What the event loop says to a question or an order.
#[derive(Debug)]
pub(crate) enum Told {
    Answer(Answer),
    /// Metrics, which the thread encodes.
    Scrape(Scrape),
}

/// Slow requests in an answer.
const SLOW: u32 = 32;

/// For how long an answer of the event loop is used again.
const FRESH: Duration = Duration::from_millis(200);

/// A client gets an error if the event loop has not answered within this time.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The same for an order: a reload opens files.
const ORDER_LIMIT: Duration = Duration::from_secs(30);
