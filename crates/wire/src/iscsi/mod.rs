//! iSCSI by RFC 7143, at error recovery level 0 with one connection per session.

pub(crate) mod account;
pub(crate) mod ahs;
pub(crate) mod binary;
pub(crate) mod chap;
pub(crate) mod codes;
pub(crate) mod framing;
pub mod initiator;
pub(crate) mod keys;
pub mod pdu;
pub(crate) mod serial;
pub mod target_role;
pub(crate) mod text;
