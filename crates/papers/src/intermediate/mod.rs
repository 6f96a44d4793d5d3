//! An iSCSI target between a client and remote storage: a buffer, prefetch, and write-back.
//!
//! The paper that it is from measured what a mobile client gains by an intermediate target that is nearer
//! than the storage, over a narrow link (docs/reference/intermediate.md). Here the same packets go over the same two
//! links, one after the other, in whole nanoseconds; what the intermediate target finds in its buffer is
//! either assumed, as in the paper, or found by the state machines that the gateway uses. [`study`] runs both figures
//! of the paper, and what it leaves out.

mod claims;
mod exchange;
mod page;
mod play;
pub mod study;
mod target;
mod work;

use crate::chapter::Chapter;
use crate::{Progress, Settings, Traces};
use exchange::{Exchange, Kind};
use play::{Done, Met};
use weir_flow::clock::Duration;
use weir_flow::units::Bandwidth;

/// Runs the experiment and judges its claims.
pub(crate) fn chapter(settings: Settings, _traces: &Traces, progress: &Progress) -> Chapter {
    let study = study::run(settings, progress);
    let claims = claims::judge(&study);
    Chapter::new("intermediate", study.seed, claims, &study, page::parts(&study))
}

/// All of a run.
#[derive(Clone, Copy, Debug)]
struct Case {
    route: Route,
    exchange: Exchange,
    /// Of the client's link, in each direction.
    bandwidth: Bandwidth,
    /// Of the link to the storage, if that has a limit.
    far_bandwidth: Option<Bandwidth>,
    /// One way, between the client and the place of the intermediate target.
    near: Duration,
    /// One way, between there and the storage.
    far: Duration,
    kind: Kind,
    /// Percentage of blocks that follow the one before them.
    follows: u64,
    /// Commands that are outstanding.
    depth: usize,
    /// Commands in all.
    count: usize,
    seed: u64,
}

/// How the client's commands get to the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// To the storage.
    Direct,
    /// To the intermediate target.
    Through(Buffer, Forward),
}

/// What decides whether a block is in the intermediate target's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Buffer {
    /// This percentage of reads are hits, evenly spread.
    Assumed(u64),
    /// The gateway's lines under FIFO and its next-block prefetch, with 64 blocks.
    Machines,
}

/// How acknowledged writes reach the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forward {
    /// Each at once, as in the paper.
    AtOnce,
    /// One after the other.
    OneByOne,
}

/// What a run measured.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    /// Each command of the client, in the order in which they were issued.
    done: Vec<Done>,
    /// Blocks that followed the one before them.
    followed: usize,
}

impl Outcome {
    /// Bytes per second: all bytes over all of the time.
    fn bytes_over_time(&self) -> f64 {
        let last = self.done.iter().map(|done| done.ended).max();
        let nanos = last.map_or(0, weir_flow::clock::Instant::as_nanos).max(1);
        (self.done.len() as u64 * exchange::BLOCK) as f64 / nanos as f64 * 1e9
    }

    /// Bytes per second as the paper averages it: the mean of each block's own rate. It is higher than
    /// what arrives in a second, and fits no queue.
    fn mean_of_rates(&self) -> f64 {
        let rate = |done: &Done| 1e9 / done.ended.since(done.begun).as_nanos() as f64;
        let rates: f64 = self.done.iter().map(rate).sum();
        rates * exchange::BLOCK as f64 / self.done.len() as f64
    }

    /// The share of reads that found the buffer so.
    fn share(&self, met: Met) -> f64 {
        let some = self.done.iter().filter(|done| done.met == met).count();
        some as f64 / self.done.len() as f64
    }
}

/// What `through` gains over `direct`, in per cent.
fn gain(through: f64, direct: f64) -> f64 {
    100.0 * (through / direct - 1.0)
}

#[cfg(test)]
mod tests;
