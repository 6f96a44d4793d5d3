//! One commit cycle: a batch, a super block, or both, and the sync that makes them durable.

use super::super::effect::{LocalId, Write};
use super::marker::Marks;
use crate::clock::Instant;
use crate::error::IoError;
use alloc::vec::Vec;

/// What a cycle is to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) batch: Option<Write>,
    /// The batch is a note: no request waits for it.
    pub(crate) note: bool,
    /// The batch is of copies, for which no request waits either.
    pub(crate) copies: bool,
    /// Write a super block.
    pub(crate) super_block: bool,
    /// Writes may have gone upstream past the log, and not be flushed there.
    pub(crate) bypassed: bool,
    /// In mode `ram`: what was written must be durable now.
    pub(crate) sync: bool,
}

/// What is being written to the log device, up to and with the sync.
#[derive(Clone, Debug)]
pub(crate) struct Cycle {
    /// Writes that have not ended.
    pub(crate) writes: Vec<LocalId>,
    pub(crate) sync: Option<LocalId>,
    /// It has to end with a sync.
    pub(crate) syncs: bool,
    pub(crate) batch: bool,
    pub(crate) note: bool,
    pub(crate) copies: bool,
    /// Generation and oldest segment of the super block.
    pub(crate) super_block: Option<(u64, u64)>,
    /// What the headers in it say.
    pub(crate) says: Marks,
    pub(crate) began: Instant,
    pub(crate) error: Option<IoError>,
}

/// What the end of an I/O of the log device means for its cycle.
#[derive(Clone, Debug)]
pub(crate) enum CycleEnd {
    /// The cycle has not ended, or ended without a sync.
    None,
    /// All of it is durable.
    Synced(Cycle),
    /// A write or the sync has failed.
    Failed(Cycle, IoError),
}

/// What a failed cycle means for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// What was in it is written again, to a fresh segment.
    Retry,
    /// The log device has failed for good.
    Fatal,
    /// The log device had failed before, and not even a super block can be written to it.
    Unmarkable,
}
