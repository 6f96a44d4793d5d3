//! Random bytes, behind a trait, so that a test can choose them.

use std::io;

/// A source of random bytes that cannot be guessed.
pub(crate) trait Random {
    /// Fills `bytes`; an error if the source has none.
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()>;
}

/// The kernel's random number generator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelRandom;

impl Random for KernelRandom {
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(|error| io::Error::other(error.to_string()))
    }
}
