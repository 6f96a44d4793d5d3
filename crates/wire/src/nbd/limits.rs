//! Limits towards a client, per connection.

use super::protocol::OptionHeader;

/// Whether the connection may, or must, use TLS: section "TLS support".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// There is no TLS; a client that asks for it is refused (NOTLS).
    #[default]
    Off,
    /// If the client asks for it (SELECTIVETLS without exports that need it).
    Offered,
    /// Before anything else (FORCEDTLS).
    Required,
}

/// Limits of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that have no complete reply yet; 1 to 1024, default 128. At the limit the
    /// connection takes no further one until a reply has been written.
    pub requests: u32,
    /// TLS support; default off.
    pub tls: Tls,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests: 128, tls: Tls::Off }
    }
}

impl Limits {
    /// The first limit that is out of its range, as a message for the operator.
    pub fn check(&self) -> Result<(), &'static str> {
        if !(1..=REQUESTS_MAX).contains(&self.requests) {
            return Err("requests must lie between 1 and 1024");
        }
        Ok(())
    }
}

/// Most contiguous bytes that [`needed`](super::Connection::needed) asks for: what a receive buffer
/// must hold.
pub const NEEDED_MAX: usize = size_of::<OptionHeader>() + OPTION_LENGTH_MAX;

/// Longest data of an option that is looked at, in bytes: two strings of the greatest length and as
/// much again for lists. Longer data is skipped and answered with `NBD_REP_ERR_TOO_BIG`.
pub(super) const OPTION_LENGTH_MAX: usize = 16 << 10;

/// Longest data of an option that is skipped, in bytes. A client that sends more is dropped.
pub(super) const OPTION_SKIP_MAX: usize = 1 << 20;

/// Longest payload of a refused write that is skipped, in bytes, if the export does not take longer
/// ones. A client that sends more is dropped.
// Section "Size constraints": up to 2^25 bytes should not be taken for an attack.
pub(super) const PAYLOAD_SKIP_MAX: u32 = 1 << 25;

/// Bytes of replies, payload apart, that may wait to be written before no further request is taken.
/// It bounds what refused requests can make the outbox hold, for they take no slot.
pub(super) const REPLIES_MAX: usize = 256 << 10;

/// Most extents in one reply to `NBD_CMD_BLOCK_STATUS`; the client asks again for the rest.
pub(super) const EXTENTS_MAX: usize = 1024;

/// Most requests that [`Limits::requests`] allows.
const REQUESTS_MAX: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of requests has both a lower and an upper bound.
    #[test]
    fn limits_have_ranges() {
        for (requests, good) in [(0, false), (1, true), (1024, true), (1025, false)] {
            assert_eq!(Limits { requests, tls: Tls::Off }.check().is_ok(), good, "{requests}");
        }
        assert_eq!(Limits::default().check(), Ok(()));
    }
}
