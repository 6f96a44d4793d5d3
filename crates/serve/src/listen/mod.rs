//! The way in: connections, and the protocols that they speak.

pub(crate) mod connection;
pub(crate) mod iscsi;
pub(crate) mod management;
