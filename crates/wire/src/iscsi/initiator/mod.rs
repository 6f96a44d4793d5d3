//! The initiator's end of one iSCSI connection, which is also its session.
//!
//! An [`Initiator`] logs in by itself: its first request waits in the [`Outbox`] from the start. It takes received
//! bytes ([`Initiator::receive`]) and the number of outbox bytes written ([`Initiator::written`]), takes [`Command`]s
//! while there is [`room`](Initiator::room), and returns [`Event`]s. It parses whole PDUs only: [`Initiator::needed`]
//! says how many contiguous bytes the next one takes, which [`Settings::pdu_length_max`] bounds.
//!
//! It checks every field that it can: tags, numbers, lengths, offsets and the order of data. At error recovery level
//! 0 a connection does not survive a protocol violation (RFC 7143 section 7.1.4.4): the initiator returns a [`Fault`]
//! and the shell closes the connection. The result of [outstanding](Initiator::outstanding) commands is then unknown,
//! except of those that were never sent.

mod chap;
mod command;
mod discovery;
mod event;
mod fault;
mod full_feature;
mod login;
mod negotiation;
mod numbers;
mod session;
mod settings;
mod tasks;
mod transfer;

#[cfg(test)]
mod tests;

pub use super::account::{Account, Secret};
pub use super::codes::{Attribute, Isid, LoginStatus, TaskFunction, TmfResponse};
pub use super::keys::{DigestPolicy, Parameters};
pub use super::pdu::Itt;
pub use crate::outbox::Outbox;
pub use command::{Command, Direction};
pub use event::{AsyncEvent, Event, Portal, Received, Residual, Target};
pub use fault::{ChapFault, Fault, PduKind, Wanted};
pub use session::Initiator;
pub use settings::{Chap, IMMEDIATE_MAX, Settings, SettingsError};
pub use tasks::Outstanding;
