//! Weighted shares over parallel chips: the figures of the flash operation group paper, and what it leaves out.
//!
//! Hosts keep windows of requests in front of a flash device; a translation layer cuts those into page
//! operations, and a dispatch policy, the one that the gateway uses, behind its public trait, gives them
//! to chips. Chips are `weir-model`'s. Everything is in whole nanoseconds. [`study`] runs the paper's
//! figures 3 to 6 under its policy and under rivals (docs/reference/dispatch.md), and hot chips, small reads among
//! writes, and garbage collection of real blocks (docs/research/dispatch.md, section 6). [`live`] reads figures 3 and 5
//! from recordings of gateways.

mod claims;
mod contestants;
mod hosts;
pub mod live;
mod machine;
mod page;
mod score;
pub mod study;

use crate::chapter::Chapter;
use crate::{Progress, Settings, Traces};
use contestants::Rival;
use hosts::Host;
use score::Outcome;
use weir_model::ssd;

/// Runs the experiment and judges its claims.
pub(crate) fn chapter(settings: Settings, traces: &Traces, progress: &Progress) -> Chapter {
    let study = study::run(settings, &traces.live, progress);
    let claims = claims::judge(&study);
    Chapter::new("dispatch", study.seed, claims, &study, page::parts(&study))
}

/// All of a run but its seed.
#[derive(Clone, Debug)]
struct Case {
    rival: Rival,
    hosts: Vec<Host>,
    garbage: Garbage,
    /// When it ends, in nanoseconds, if not with the last request.
    until: Option<u64>,
}

/// Where garbage collection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Garbage {
    /// Nothing is collected.
    None,
    /// Every `period` nanoseconds a block with `pages` valid pages, on each chip in turn, as in the paper.
    Periodic { period: u64, pages: u32 },
    /// Blocks of a filled device, as writes use them up.
    Real,
}

impl Case {
    fn play(&self, seed: u64) -> Outcome {
        machine::play(self, seed)
    }

    /// The device.
    fn device(&self) -> ssd::Config {
        let paper = ssd::Config::paper();
        match self.garbage {
            // Few blocks, so that collection is in its long run after a second or two.
            Garbage::Real => ssd::Config { blocks: 64, pages: 64, filled_permille: 1_000, ..paper },
            _ => paper,
        }
    }
}

#[cfg(test)]
mod tests;
