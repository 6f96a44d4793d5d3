//! Sizes that several parts of the gateway keep to, and counters that speak rarely.

use crate::buffer::LARGEST;

/// Counts something that a host can cause at will, and says it once per power of two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally(u64);

impl Tally {
    /// Counts one more; whether it is worth a line in the log.
    pub(crate) const fn speaks(&mut self) -> bool {
        self.0 += 1;
        self.0.is_power_of_two()
    }

    /// How many there were.
    pub(crate) const fn total(self) -> u64 {
        self.0
    }
}

/// The one portal group of a gateway.
pub(crate) const PORTAL_GROUP: u16 = 1;

/// Requests are cut into pieces of this many bytes, so that a large one lets others in between.
pub(crate) const PIECE: u64 = 1 << 20;

const _: () = assert!(LARGEST as u64 >= PIECE, "a pattern buffer holds a whole piece");

/// Bytes that are zeroed or given back in one request. A host that asks for more at once, as NBD
/// lets it, has it done in steps of this size.
pub(crate) const ZEROES_AT_ONCE: u64 = 16 * PIECE;
