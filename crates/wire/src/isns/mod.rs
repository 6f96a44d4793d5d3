//! The client of an Internet Storage Name Service (iSNS, RFC 4171): where the targets of this gateway are.
//!
//! iSNS tells hosts where targets are, and when that changes. An answer from it is a hint: it grants no access.
//!
//! A [`Client`] keeps the registration at one server. The shell that owns the connection tells it that the connection is
//! [made](Client::connected) or [lost](Client::disconnected), passes on what was [received](Client::receive) and the
//! [time](Client::tick), and writes what is [waiting](Client::output). Servers call back on the same connection, which the
//! client answers, or on one of their own, which is a [`Callback`]: entity status inquiries (ESI) and state change
//! notifications (SCN).
//!
//! Neither reads a clock: a time is the [`Duration`](std::time::Duration) since any fixed moment, and never decreases.

mod attribute;
mod callback;
mod client;
mod codes;
mod fault;
mod message;
mod objects;
mod request;
#[cfg(test)]
mod tests;

pub use callback::{Callback, Notice, Own};
pub use client::{Client, Phase, Settings, View};
pub use codes::{Function, Status};
pub use fault::{Failure, Fault};
pub use objects::{ALIAS_MAX, Object, Objects, TEXT_MAX, Target, is_entity};

/// The well-known TCP port of a server (RFC 4171).
pub const PORT: u16 = 3_205;

/// The longest PDU in bytes: what a receive buffer must hold.
pub const PDU_MAX: usize = message::HEADER_LENGTH + u16::MAX as usize;
