//! The order of replies on a busy link: the examples and the trace experiment of the DQBS paper, and rivals.
//!
//! Every policy is the one that the gateway uses, behind its public trait; the link sends one reply, or one
//! chunk of one, at a time. [`study`] runs the examples tick by tick, and reads of hosts at the paper's
//! operating point: a link on which first in, first out makes replies wait for 0.785 mean transfers.

mod claims;
mod contestants;
pub mod engine;
mod example;
mod page;
mod score;
pub mod study;
mod trace;

pub use trace::Trace;

use crate::chapter::Chapter;
use crate::{Progress, Settings, Traces};

/// Runs the experiment and judges its claims.
pub(crate) fn chapter(settings: Settings, traces: &Traces, progress: &Progress) -> Chapter {
    let study = study::run(settings, &traces.transfer, progress);
    let claims = claims::judge(&study);
    Chapter::new("transfer", study.seed, claims, &study, page::parts(&study))
}

/// Mean delay over mean transfer in the paper: 10.29/13.11 pages.
const DELAY: f64 = 0.785;

#[cfg(test)]
mod tests;
