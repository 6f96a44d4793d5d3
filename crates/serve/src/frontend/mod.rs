//! The way in: connections, and the protocols that they speak.

pub(crate) mod connection;
pub(crate) mod iscsi;
pub(crate) mod listener;
pub(crate) mod login_throttle;
pub(crate) mod nbd;
pub(crate) mod session_view;
pub(crate) mod sessions;
pub(crate) mod socket;
pub(crate) mod tls;
pub(crate) mod unix_socket;

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does.
    Keep,
    /// The host broke a rule that a connection does not survive.
    Close,
}
