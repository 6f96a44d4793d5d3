//! The controller's end of NVMe over TCP: transport, Fabrics commands, admin commands and the NVM command set.
//!
//! Sources: NVM Express Base 1.4, NVMe over Fabrics 1.1, and the NVMe/TCP transport. What hosts of Linux 6.1 need
//! beyond the standards is said where it is done (`docs/decisions/0043-nvme.md`).
//!
//! One TCP connection is one queue. A [`Connection`] takes received bytes ([`Connection::receive`]) and the answers to
//! commands ([`Connection::respond`], [`Connection::respond_data`]); it returns [`Event`]s and fills an
//! [`Outbox`](crate::outbox::Outbox). Data from the host is passed on in parts as received, so the receive buffer need
//! not hold more than [`NEEDED_MAX`] bytes.
//!
//! A [`Controller`] is what a host sees through its queues: properties, features, events and logs. The shell hands it
//! the admin commands, and does what it returns. [`io::decode`] reads an I/O command.

mod commands;
mod connect;
mod connection;
pub mod controller;
pub mod discovery;
mod event;
mod fabrics;
pub mod io;
mod limits;
mod namespace;
mod pdu;
mod receive;
pub mod reservation;
mod respond;
mod status;

#[cfg(test)]
mod tests;

pub use connection::Connection;
pub use controller::Controller;
pub use event::{Completion, Connect, ConnectRefusal, Event, PeerError, Received};
pub use limits::{ADMIN_DEPTH, Digest, GATHER_MAX, Limits, NEEDED_MAX};
pub use namespace::{AnaState, NSID_MAX, Namespace, fused_blocks_max};
pub use pdu::{Sqe, Transfer};
pub use status::Status;
