//! The experiments of `weir reproduce`: what was published, run again, with a verdict on every claim.
//!
//! * [`control`]: the control policies on the nine intervals of the token-bucket paper;
//! * [`dispatch`]: weighted shares over parallel flash chips, in the figures of the flash operation group
//!   paper and beyond them;
//! * [`path`]: the path selectors on the workloads of the `RounG` paper, and on paths that go bad;
//! * [`intermediate`]: a target between client and storage, with a buffer, prefetch and early
//!   acknowledgement;
//! * [`transfer`]: which reply goes first on a busy link, in the examples and on the traces of the DQBS paper;
//! * [`claim`]: a claim and what became of it.

mod chapter;
pub mod claim;
mod contestant;
pub mod control;
pub mod dispatch;
pub mod html;
pub mod intermediate;
pub mod path;
#[cfg(test)]
mod tests;
pub mod text;
pub mod transfer;

pub use chapter::{Chapter, met, object};

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The first seed; further runs take those that follow.
    pub seed: u64,
    /// Runs of every cell; `None` leaves it to the study, which says how many it took.
    pub seeds: Option<u32>,
}

impl Settings {
    /// The seeds of a cell that has `usual` runs if nothing else is asked for.
    fn seeds(self, usual: u32) -> impl Iterator<Item = u64> {
        self.seed..self.seed + u64::from(self.seeds.unwrap_or(usual))
    }
}
