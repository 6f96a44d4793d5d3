//! The blocks that the client requests.

use weir_flow::rng::Rng;

/// Blocks of a stream in which one request follows the one before it with a given probability, and is
/// anywhere otherwise. Equal seeds give equal streams.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    rng: Rng,
    /// Percentage of requests that follow the one before them.
    follows: u64,
    last: u64,
    /// How many did.
    pub(super) followed: usize,
}

/// Blocks of the storage: 512 MiB, so that a jump hardly ever finds what is in a buffer of 64.
pub(super) const CAPACITY: u64 = 1 << 20;

impl Blocks {
    pub(super) fn new(follows: u64, seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "intermediate/blocks");
        let last = rng.below(CAPACITY);
        Self { rng, follows, last, followed: 0 }
    }

    pub(super) fn next(&mut self) -> u64 {
        let follows = self.rng.below(100) < self.follows && self.last + 1 < CAPACITY;
        self.followed += usize::from(follows);
        self.last = if follows { self.last + 1 } else { self.rng.below(CAPACITY) };
        self.last
    }
}
