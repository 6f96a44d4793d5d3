//! iSCSI as RFC 7143 has it, at error recovery level 0 with one connection per session.

pub(crate) mod ahs;
pub(crate) mod binary;
pub(crate) mod digest;
pub(crate) mod keys;
pub mod pdu;
pub(crate) mod serial;
pub mod target;
pub(crate) mod text;
