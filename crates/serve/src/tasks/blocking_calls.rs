//! Blocking calls that helper threads make, and the task or volume that each continues.
//!
//! Invariant: every call that was handed over has one entry in `awaited` until it has ended.

use crate::ids::{JobKey, TaskKey};
use crate::storage::blocking::{Blocking, BlockingCall, BlockingResult, Run};
use crate::storage::state_file::StateError;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use weir_flow::request::VolumeId;

/// What continues when a file was replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SavedFor {
    /// The change of this volume's reservations.
    Reservations(usize),
    /// A job, which takes its next step when its volume's state is saved.
    Job(JobKey),
    /// A command that leaves the failure mode of a sanitize.
    Exit(TaskKey),
    /// A log that has failed, and is remembered as such.
    Void(VolumeId),
    /// The lost ranges of a volume, and how many there are.
    Lost(VolumeId, usize),
    /// No task: what a volume remembers of its units.
    Units,
    /// No task: the burst credits are saved once a minute.
    Credits,
}

/// What continues when a map is there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MappedFor {
    /// A command.
    Task(TaskKey),
    /// A job.
    Job(JobKey),
}

#[derive(Clone, Copy, Debug)]
enum Awaited {
    Save(SavedFor),
    Map(MappedFor),
}

/// A blocking call that has ended.
#[derive(Debug)]
pub(crate) enum CallDone {
    /// A file was replaced, or not.
    Saved(SavedFor, Result<(), StateError>),
    /// A map, or not.
    Mapped(MappedFor, io::Result<Vec<Run>>),
}

/// The helper threads, and the calls that they make.
pub(crate) struct BlockingCalls {
    saves: Box<dyn Blocking>,
    /// Makes the maps, which may be many: no reservation waits for them.
    maps: Box<dyn Blocking>,
    awaited: BTreeMap<u64, Awaited>,
    last: u64,
    finished: Vec<BlockingResult>,
}

impl BlockingCalls {
    pub(crate) fn new([saves, maps]: [Box<dyn Blocking>; 2]) -> Self {
        Self { saves, maps, awaited: BTreeMap::new(), last: 0, finished: Vec::new() }
    }

    fn enter(&mut self, awaited: Awaited) -> u64 {
        self.last += 1;
        self.awaited.insert(self.last, awaited);
        self.last
    }

    /// Replaces a small file durably.
    pub(crate) fn save(&mut self, what_for: SavedFor, path: PathBuf, bytes: Vec<u8>) {
        let owner = self.enter(Awaited::Save(what_for));
        self.saves.submit(BlockingCall::Save { owner, path, bytes });
    }

    /// Finds out which blocks of a range of a file are mapped.
    pub(crate) fn map(
        &mut self,
        what_for: MappedFor,
        file: Arc<File>,
        (offset, length): (u64, u64),
        block: u64,
        max: usize,
    ) {
        let token = self.enter(Awaited::Map(what_for));
        self.maps.submit(BlockingCall::Map { token, file, offset, length, block, max });
    }

    /// The calls that have ended since the last time.
    pub(crate) fn reap(&mut self, done: &mut Vec<CallDone>) {
        if self.awaited.is_empty() {
            // The event loop asks several times for each request, and asking takes two locks.
            return;
        }
        self.saves.reap(&mut self.finished);
        self.maps.reap(&mut self.finished);
        let awaited = &mut self.awaited;
        done.extend(self.finished.drain(..).map(|finished| {
            let (token, result) = match finished {
                BlockingResult::Saved { owner, result } => (owner, Ok(result)),
                BlockingResult::Mapped { token, result } => (token, Err(result)),
            };
            match (awaited.remove(&token).expect("every call is awaited"), result) {
                (Awaited::Save(what_for), Ok(result)) => CallDone::Saved(what_for, result),
                (Awaited::Map(what_for), Err(result)) => CallDone::Mapped(what_for, result),
                (awaited, _) => unreachable!("a call ends as what it began: {awaited:?}"),
            }
        }));
    }
}
