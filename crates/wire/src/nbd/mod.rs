//! The server's end of one NBD connection: fixed newstyle negotiation, TLS by request, simple and
//! structured replies, `base:allocation`.
//!
//! The rules are those of the NBD protocol document (`doc/proto.md` of the Network Block Device
//! project), which comments cite by section or by the name of the message.
//!
//! A [`Connection`] takes received bytes ([`Connection::receive`]) and the results of requests
//! ([`Connection::respond`], [`Connection::respond_data`], [`Connection::respond_status`]); it returns [`Event`]s and
//! fills an [`Outbox`](crate::outbox::Outbox). Write data is passed on in parts as received, so the receive buffer
//! need not hold more than [`NEEDED_MAX`] bytes.
//!
//! A connection limits itself: while [`Connection::is_waiting`] holds, it consumes no input, and the shell stops
//! reading until a write or an answer has changed that.

mod connection;
mod event;
mod export;
mod handshake;
mod limits;
mod options;
mod protocol;
mod reply;
mod transmission;

#[cfg(test)]
mod tests;

pub use connection::Connection;
pub use event::{Command, Error, Event, Extent, PeerError, Received, Refusal, Request};
pub use export::{BlockSize, Export, ExportError, Exports};
pub use limits::{Limits, NEEDED_MAX, Tls};
