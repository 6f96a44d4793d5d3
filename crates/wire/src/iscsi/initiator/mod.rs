//! The initiator's end of one iSCSI connection, which is also its session.
//!
//! An [`Initiator`] logs in by itself: its first request waits in the [`Outbox`] from the start. It
//! takes received bytes ([`Initiator::receive`]) and how much of the outbox was written
//! ([`Initiator::written`]), takes [`Command`]s while there is [`room`](Initiator::room), and returns
//! [`Event`]s. It parses whole PDUs only: [`Initiator::needed`] says how many contiguous bytes the
//! next one takes, which [`Settings::pdu_length_max`] bounds.
//!
//! It believes nothing that it can check: tags, numbers, lengths, places and the order of data. At
//! error recovery level 0 nothing on a connection survives a broken rule (RFC 7143 section 7.1.4.4),
//! so a [`Fault`] says what was wrong and the shell closes. What was
//! [outstanding](Initiator::outstanding) then has no known end, except commands that were never sent.

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
