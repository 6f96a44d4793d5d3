//! Which reply goes first: the paper of DQBS, its worked examples and its trace experiment, and its rivals.
//!
//! Every policy is the one that the gateway uses, behind its public trait; the link sends one reply, or one
//! chunk of one, at a time. [`study`] runs the examples tick by tick, and reads of hosts at the paper's
//! operating point: a link on which first in, first out makes replies wait for 0.785 mean transfers.

mod claims;
mod contestants;
pub mod engine;
mod example;
pub mod page;
mod score;
pub mod study;
mod trace;

pub use trace::Trace;

/// Mean delay over mean transfer in the paper: 10.29/13.11 pages.
const DELAY: f64 = 0.785;

#[cfg(test)]
mod tests;
