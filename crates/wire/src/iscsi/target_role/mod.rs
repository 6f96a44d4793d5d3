//! The target's end of one iSCSI connection, which is also its session.
//!
//! A [`Connection`] takes received bytes ([`Connection::receive`]) and the results of commands
//! ([`Connection::respond`], [`Connection::respond_data`]); it returns [`Event`]s and fills an
//! [`Outbox`]. It parses whole PDUs only: [`Connection::needed`] says how many contiguous bytes the
//! next one takes, which [`Limits::pdu_length_max`] bounds.
//!
//! After an error the shell writes the outbox, if the socket accepts it at once, and closes the connection: at error
//! recovery level 0 a connection does not survive a protocol violation (RFC 7143 section 7.1.4.4).

mod access;
mod announce;
mod chap;
mod connection;
mod data_out;
mod discovery;
mod event;
mod full_feature;
mod limits;
mod login;
mod respond;
mod task;
mod window;

#[cfg(test)]
mod tests;

pub use super::account::{Account, Secret};
pub use super::chap::ChapAlgorithm;
pub use super::codes::{
    Attribute, Isid, LoginStatus, LogoutReason, RejectReason, TaskFunction, TmfResponse,
};
pub use super::keys::{DigestPolicy, Parameters};
pub use super::pdu::Itt;
pub use crate::outbox::Outbox;
pub use access::{Authentication, Initiators, Redirect};
pub use chap::ChapFault;
pub use connection::Connection;
pub use event::{Command, Event, PeerError, Received};
pub use limits::{Advertised, IMMEDIATE_TASKS_MAX, Limits, Node, TargetEntry};
pub use login::LoginFault;
