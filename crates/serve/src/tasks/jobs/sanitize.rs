//! SANITIZE: all data of a volume is destroyed, whatever happens meanwhile.
//!
//! The state file says so before the first block is touched, and no more when the last is durable: a
//! restart in between continues it.
//!
//! Overwriting does not allocate the holes of a sparse file, which have no data: it deallocates them once more, after
//! all writes that are in flight.

use super::{Job, JobContext, JobKey, Jobs, Step, Stepped};
use crate::buffer::Shared;
use crate::ids::TaskKey;
use crate::limits::{PIECE, ZEROES_AT_ONCE};
use crate::storage::blocking::Run;
use crate::storage::file::atomic_journal;
use crate::storage::state_file;
use crate::storage::state_file::StateError;
use crate::tasks::blocking_calls::{MappedFor, SavedFor};
use crate::tasks::table::Answer;
use crate::tasks::table::Phase;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use tracing::{error, info, warn};
use weir_flow::error::IoError;
use weir_flow::request::Op;
use weir_flow::units::Extent;
use weir_wire::scsi::Sense;
use weir_wire::scsi::sanitize::{Fill, Method, Plan};

/// A sanitize in progress.
#[derive(Debug)]
pub(crate) struct Sanitize {
    volume: usize,
    plan: Plan,
    /// The command, if it is still to be answered.
    pub(super) key: Option<TaskKey>,
    stage: Stage,
    pass: u8,
    /// Bytes of this pass that are done.
    done: u64,
    /// Bytes of the present step.
    under_way: u64,
    /// Data and holes of the file from `done` on, as far as they are known.
    runs: VecDeque<Run>,
    failed: Option<IoError>,
    /// What the state file said before.
    before: state_file::Sanitize,
    pub(super) buffer: Option<Shared>,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// That it has begun is being made durable.
    Beginning,
    /// It could not be: that it has not begun is being made durable instead.
    Reverting,
    /// Blocks are being destroyed.
    Working,
    /// All that is being made durable.
    Flushing,
    /// That it has ended is being made durable.
    Ending,
}

impl Sanitize {
    /// The volume whose data is destroyed.
    pub(super) const fn volume(&self) -> usize {
        self.volume
    }

    fn new(volume: usize, plan: Plan, key: Option<TaskKey>, stage: Stage) -> Self {
        let before = state_file::Sanitize::None;
        let (pass, done, under_way, failed, buffer) = (0, 0, 0, None, None);
        let runs = VecDeque::new();
        Self { volume, plan, key, stage, pass, done, under_way, runs, failed, before, buffer }
    }

    /// A step has ended.
    pub(super) fn stepped(&mut self, result: Stepped) {
        match result {
            Err(error) => self.failed = Some(error),
            Ok(()) if self.stage == Stage::Flushing => self.stage = Stage::Ending,
            Ok(()) => {
                self.done += self.under_way;
                if let Some((length, _)) = self.runs.front_mut() {
                    *length -= self.under_way;
                    if *length == 0 {
                        self.runs.pop_front();
                    }
                }
            }
        }
    }

    /// The map of the file from `done` on is there.
    pub(super) fn mapped(&mut self, runs: io::Result<Vec<Run>>) {
        match runs {
            Ok(runs) => self.runs = runs.into(),
            Err(problem) => {
                error!(%problem, "sanitize: cannot find out which blocks are allocated");
                self.failed = Some(IoError::Medium);
            }
        }
    }
}

impl Jobs {
    /// Begins a sanitize for a command that waits aside.
    pub(crate) fn sanitize(
        &mut self,
        cx: &mut JobContext<'_>,
        key: TaskKey,
        volume: usize,
        plan: Plan,
    ) {
        cx.set.tasks[key].phase = Phase::Blocked;
        info!(
            volume = cx.catalog.volumes[volume].name,
            ?plan,
            "sanitize: all data is being destroyed"
        );
        cx.catalog.volumes[volume].unit.sanitize_begun(plan.ause);
        let running = state_file::Sanitize::Running(encode(&plan));
        let mut job = Sanitize::new(volume, plan, Some(key), Stage::Beginning);
        job.before = std::mem::replace(&mut cx.catalog.volumes[volume].sanitize, running);
        let job = self.running.insert(Job::Sanitize(job));
        Self::save_for(cx, job, volume);
    }

    /// Continues what was interrupted when a volume was closed last.
    pub(crate) fn resume(&mut self, cx: &mut JobContext<'_>, volume: usize) {
        let name = &cx.catalog.volumes[volume].name;
        match &cx.catalog.volumes[volume].sanitize {
            state_file::Sanitize::None => {}
            state_file::Sanitize::Failed(bytes) => {
                warn!(volume = name, "a sanitize has failed: the volume serves no data");
                let ause = decode(bytes).is_some_and(|plan| plan.ause);
                cx.catalog.volumes[volume].unit.sanitize_begun(ause);
                cx.catalog.volumes[volume].unit.sanitize_ended(false);
            }
            state_file::Sanitize::Running(bytes) => {
                let plan = decode(bytes).unwrap_or_else(|| {
                    error!(volume = name, "the sanitize state is damaged");
                    Plan { method: Method::BlockErase, immediate: true, ause: false }
                });
                info!(volume = name, ?plan, "sanitize continues after the restart");
                cx.catalog.volumes[volume].unit.sanitize_begun(plan.ause);
                let job = Sanitize::new(volume, plan, None, Stage::Working);
                let job = self.running.insert(Job::Sanitize(job));
                self.sanitize_on(cx, job);
            }
        }
    }

    /// Makes that durable for the command that has done it.
    pub(crate) fn leave_failure(cx: &mut JobContext<'_>, key: TaskKey) {
        let task = &mut cx.set.tasks[key];
        task.phase = Phase::Blocked;
        let index = task.volume;
        cx.catalog.volumes[index].sanitize = state_file::Sanitize::None;
        Self::save(cx, SavedFor::Exit(key), index);
    }

    /// It is durable, or could not be made so.
    pub(crate) fn left_failure(
        cx: &mut JobContext<'_>,
        key: TaskKey,
        saved: &Result<(), StateError>,
    ) {
        let volume = &mut cx.catalog.volumes[cx.set.tasks[key].volume];
        let Err(problem) = saved else {
            cx.set.decide(key, Answer::Good);
            return;
        };
        error!(volume = volume.name, %problem, "sanitize: the state is not saved");
        // As the file may say: failed, and to be left again.
        let plan = Plan { method: Method::BlockErase, immediate: true, ause: true };
        volume.sanitize = state_file::Sanitize::Failed(encode(&plan));
        volume.unit.sanitize_begun(true);
        volume.unit.sanitize_ended(false);
        cx.set.decide(key, Answer::Refused(Sense::SANITIZE_COMMAND_FAILED.into()));
    }

    /// A command is aborted: a sanitize that it has begun continues without it (SBC-4 section 4.11).
    /// True if there is one.
    pub(crate) fn disown(&mut self, key: TaskKey) -> bool {
        let mut sanitizes = self.running.values_mut().filter_map(|job| match job {
            Job::Sanitize(sanitize) => Some(sanitize),
            Job::Copy(_) => None,
        });
        let mine = sanitizes.find(|sanitize| sanitize.key == Some(key));
        mine.is_some_and(|sanitize| sanitize.key.take().is_some())
    }

    /// Makes a volume's state durable; the job continues then.
    fn save_for(cx: &mut JobContext<'_>, job: JobKey, volume: usize) {
        Self::save(cx, SavedFor::Job(job), volume);
    }

    fn save(cx: &mut JobContext<'_>, who: SavedFor, volume: usize) {
        let volume = &cx.catalog.volumes[volume];
        let path =
            volume.state.clone().expect("the configuration offers it only with a state file");
        // A change that is being saved must not be undone by what is saved behind it.
        let reservations = match &volume.change {
            Some((_, change)) => &change.next,
            None => volume.unit.reservations(),
        };
        let bytes = volume.state_with(reservations);
        let bytes = bytes.expect("reservations and a pattern fit a state file");
        cx.blocking.save(who, path, bytes);
    }

    /// A volume's state is durable, or could not be made so.
    pub(crate) fn job_saved(
        &mut self,
        cx: &mut JobContext<'_>,
        job: JobKey,
        saved: &Result<(), StateError>,
    ) {
        let Job::Sanitize(sanitize) = &mut self.running[job] else {
            unreachable!("copies have no state")
        };
        let (volume, key) = (sanitize.volume, sanitize.key);
        if let Err(problem) = saved {
            error!(volume = cx.catalog.volumes[volume].name, %problem, "sanitize: the state is not saved");
        }
        match (sanitize.stage, saved.is_ok()) {
            (Stage::Beginning, true) => {
                sanitize.stage = Stage::Working;
                if sanitize.plan.immediate
                    && let Some(key) = sanitize.key.take()
                {
                    cx.set.decide(key, Answer::Good);
                }
                self.go_on_with(cx, job);
            }
            (Stage::Beginning, false) => {
                // Nothing was touched, but the file may say otherwise, and a restart would believe it.
                sanitize.stage = Stage::Reverting;
                cx.catalog.volumes[volume].sanitize = sanitize.before.clone();
                Self::save_for(cx, job, volume);
            }
            (Stage::Reverting, saved) => {
                let before = sanitize.before.clone();
                self.running.remove(job);
                let unit = &mut cx.catalog.volumes[volume].unit;
                match (&before, saved) {
                    (state_file::Sanitize::None, true) => unit.sanitize_ended(true),
                    (state_file::Sanitize::Failed(bytes), true) => {
                        unit.sanitize_begun(decode(bytes).is_some_and(|plan| plan.ause));
                        unit.sanitize_ended(false);
                    }
                    // What the file says is not known: out of service until it can be written.
                    _ => unit.sanitize_ended(false),
                }
                if let Some(key) = key {
                    let sense = Sense::SANITIZE_COMMAND_FAILED;
                    cx.set.decide(key, Answer::Refused(sense.into()));
                }
            }
            (_, saved) => {
                let ok = saved && sanitize.failed.is_none();
                let plan = encode(&sanitize.plan);
                self.running.remove(job);
                if !ok {
                    cx.catalog.volumes[volume].sanitize = state_file::Sanitize::Failed(plan);
                }
                let name = &cx.catalog.volumes[volume].name;
                if ok {
                    info!(volume = name, "sanitize: done");
                } else {
                    error!(volume = name, "sanitize failed: the volume serves no data");
                }
                cx.catalog.volumes[volume].unit.sanitize_ended(ok);
                if let Some(key) = key {
                    let failed = Answer::Refused(Sense::SANITIZE_COMMAND_FAILED.into());
                    cx.set.decide(key, if ok { Answer::Good } else { failed });
                }
            }
        }
    }

    /// Does the next step.
    pub(super) fn sanitize_on(&mut self, cx: &mut JobContext<'_>, job: JobKey) {
        let Job::Sanitize(sanitize) = &mut self.running[job] else {
            unreachable!("asked of a sanitize")
        };
        let index = sanitize.volume;
        let disk = cx.catalog.volumes[index].unit.disk();
        let (block, capacity) = (disk.block_size, disk.blocks * u64::from(disk.block_size));
        let passes = sanitize.plan.method.passes();
        if sanitize.failed.is_none()
            && sanitize.stage == Stage::Working
            && sanitize.done == capacity
        {
            (sanitize.pass, sanitize.done) = (sanitize.pass + 1, 0);
            if let Some(buffer) = sanitize.buffer.take() {
                cx.set.memory.give(buffer);
            }
            if sanitize.pass == passes {
                sanitize.stage = Stage::Flushing;
                // The last atomic write is still in the journal. Few bytes, and once in a lifetime.
                let journal = cx.catalog.volumes[index].journal.as_ref();
                if let Some(problem) =
                    journal.and_then(|journal| atomic_journal::wipe(journal).err())
                {
                    error!(%problem, "sanitize: the journal cannot be wiped");
                    sanitize.failed = Some(IoError::Medium);
                }
            }
        }
        if sanitize.failed.is_some() || sanitize.stage == Stage::Ending {
            if let Some(buffer) = sanitize.buffer.take() {
                cx.set.memory.give(buffer);
            }
            let failed = sanitize.failed.is_some();
            sanitize.stage = Stage::Ending;
            let plan = encode(&sanitize.plan);
            cx.catalog.volumes[index].sanitize = if failed {
                state_file::Sanitize::Failed(plan)
            } else {
                state_file::Sanitize::None
            };
            Self::save_for(cx, job, index);
            return;
        }
        if sanitize.stage == Stage::Flushing {
            let extent = Extent::default();
            self.make_step(
                cx,
                job,
                Step { volume: index, op: Op::Flush, extent, fua: false, buffer: None },
            );
            return;
        }
        let whole = u128::from(capacity) * u128::from(passes);
        let so_far = u128::from(capacity) * u128::from(sanitize.pass) + u128::from(sanitize.done);
        let progress = (so_far * 65_536 / whole) as u16;
        let mut left = capacity - sanitize.done;
        let overwrites = matches!(sanitize.plan.method, Method::Overwrite { .. });
        if overwrites
            && sanitize.runs.is_empty()
            && let Some(file) = cx.catalog.sparse_file(index)
        {
            let file = file.file();
            let rest = (sanitize.done, left);
            cx.blocking.map(MappedFor::Job(job), file, rest, block.into(), RUNS_MAX);
            return;
        }
        let mut is_hole = false;
        if let Some(&(length, mapped)) = sanitize.runs.front() {
            (left, is_hole) = (length, !mapped);
        }
        if is_hole && let Some(buffer) = sanitize.buffer.take() {
            cx.set.memory.give(buffer);
        }
        let (op, length, buffer) = match sanitize.plan.method.pass(sanitize.pass, block) {
            Fill::Unmap if disk.thin => (Op::Discard, ZEROES_AT_ONCE.min(left), None),
            Fill::Unmap => (Op::WriteZeroes, ZEROES_AT_ONCE.min(left), None),
            Fill::Block(_) if is_hole => (Op::Discard, ZEROES_AT_ONCE.min(left), None),
            Fill::Block(bytes) => {
                let buffer = if let Some(buffer) = sanitize.buffer.take() {
                    buffer
                } else {
                    let Some(mut buffer) = cx.set.memory.take(PIECE as usize) else {
                        self.stall(job);
                        return;
                    };
                    let memory = Rc::get_mut(&mut buffer).expect("fresh from the pool");
                    for part in memory.bytes_mut().chunks_exact_mut(block as usize) {
                        part.copy_from_slice(&bytes);
                    }
                    buffer
                };
                (Op::Write, PIECE.min(left), Some(buffer))
            }
        };
        sanitize.under_way = length;
        let extent = Extent::new(sanitize.done, length);
        cx.catalog.volumes[index].unit.sanitize_progress(progress);
        self.make_step(cx, job, Step { volume: index, op, extent, fua: false, buffer });
    }
}

/// A plan as the state file keeps it: passes (0 for a block erase), whether every second pass is
/// inverted, whether failure may be left, then the pattern.
fn encode(plan: &Plan) -> Vec<u8> {
    let ause = u8::from(plan.ause);
    match &plan.method {
        Method::BlockErase => vec![0, 0, ause],
        Method::Overwrite { passes, invert, pattern } => {
            let mut bytes = vec![*passes, u8::from(*invert), ause];
            bytes.extend_from_slice(pattern);
            bytes
        }
    }
}

fn decode(bytes: &[u8]) -> Option<Plan> {
    let (&[passes, invert, ause], pattern) = bytes.split_first_chunk()?;
    let method = match (passes, pattern) {
        (0, []) => Method::BlockErase,
        (1..=31, [_, ..]) => {
            Method::Overwrite { passes, invert: invert != 0, pattern: pattern.to_vec() }
        }
        _ => return None,
    };
    Some(Plan { method, immediate: true, ause: ause != 0 })
}

/// Runs of data and holes that are asked for at once.
const RUNS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A restart continues what was asked for.
    #[test]
    fn plans_survive_a_restart() {
        let overwrite = Method::Overwrite { passes: 3, invert: true, pattern: vec![1, 2, 3] };
        for method in [Method::BlockErase, overwrite] {
            for ause in [false, true] {
                let plan = Plan { method: method.clone(), immediate: true, ause };
                assert_eq!(decode(&encode(&plan)), Some(plan));
            }
        }
        for damaged in [&[][..], &[0, 0], &[0, 0, 0, 1], &[1, 0, 0], &[32, 0, 0, 1]] {
            assert_eq!(decode(damaged), None);
        }
    }
}
