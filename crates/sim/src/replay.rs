//! Replays a recording of `weir serve` through the pipeline and compares digests.
//!
//! A recording comes from somewhere else, and may be damaged or made up. So everything in it is
//! checked against its own configuration, and that against fixed bounds, before the pipeline sees
//! it: what is wrong is a [`ReplayError`] with the place in the file, never a panic, and memory is
//! bounded. A completion of something that is not outstanding is legal, as it is for the pipeline.
//!
//! Where two runs part cannot be told: a recording holds what went in, not what came out, of which
//! it has only one digest at its end.

use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;
use weir_flow::accept::Volume;
use weir_flow::cache::Done;
use weir_flow::clock::{Duration, Instant};
use weir_flow::digest::Digest;
use weir_flow::dispatch::Member;
use weir_flow::event::{Event, Observer};
use weir_flow::path::PathOrder;
use weir_flow::pipeline::{Action, Census, Config, Input, Pipeline};
use weir_flow::recording::{Decoder, Entry, FormatError, MAX_ENTRY, MAX_HEADER};
use weir_flow::request::{BackendId, PathId, Request};
use weir_flow::stage::{self, Stage, Wake, World};
use weir_flow::transfer::Link;

/// What became of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replay {
    /// Entries read, the end not counted.
    pub entries: u64,
    /// Time of the last entry.
    pub virtual_ns: u64,
    /// Requests that came, refused ones included.
    pub arrived: u64,
    /// Requests that were answered.
    pub completed: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Actions of this run.
    pub actions: u64,
    /// Digest of this run, 16 hexadecimal digits.
    pub digest: String,
    /// What the recording says; `None` if it has no end, because its writer was killed.
    pub recorded: Option<Recorded>,
}

/// The end of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// Actions of the recorded run.
    pub actions: u64,
    /// Digest of the recorded run, 16 hexadecimal digits.
    pub digest: String,
}

/// What a replay says about the recorded run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// The same actions at the same times.
    Same,
    /// Other actions, or other times.
    Different,
    /// The recording has no end to compare with.
    Cut,
}

impl Replay {
    /// How the two runs compare.
    pub fn verdict(&self) -> Verdict {
        match &self.recorded {
            None => Verdict::Cut,
            Some(recorded) if recorded.actions != self.actions => Verdict::Different,
            Some(recorded) if recorded.digest != self.digest => Verdict::Different,
            Some(_) => Verdict::Same,
        }
    }
}

/// Why a recording could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("the recording cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is no recording, or a damaged one.
    #[error("at byte {offset}: {message}")]
    Damaged {
        /// Where the entry that is wrong begins.
        offset: u64,
        /// What is wrong.
        message: String,
    },
}

/// Most of each kind of thing that a recording may name: links, tenants, paths together.
const MAX_INDEX: usize = 65_536;

/// Most lines of a cache: 16 GiB at 4 KiB each, whose bookkeeping takes a fifth of a GiB.
const MAX_LINES: u32 = 1 << 22;

/// Most pieces of requests outstanding at once.
const MAX_PIECES: u64 = 1 << 20;

/// Times and durations from here on, 73 years, do not occur: sums of a few of them fit the clock.
const MAX_TIME: Duration = Duration::from_nanos(1 << 61);

/// How often `progress` is called, in entries.
const PROGRESS: u64 = 1 << 16;

/// Replays a recording. `progress` gets the number of entries from time to time.
pub fn replay(path: &Path, progress: impl FnMut(u64)) -> Result<Replay, ReplayError> {
    replay_from(File::open(path)?, progress)
}

/// Replays a recording from any source.
pub fn replay_from(source: impl Read, progress: impl FnMut(u64)) -> Result<Replay, ReplayError> {
    replay_watched(source, |_| ((), ()), progress).map(|(replay, ..)| replay)
}

/// Sees what goes into a replayed pipeline and what comes out.
pub trait Tap {
    /// The pipeline gets this input.
    fn input(&mut self, now: Instant, input: &Input);

    /// The pipeline asks for this.
    fn action(&mut self, now: Instant, action: &Action);
}

impl Tap for () {
    fn input(&mut self, _: Instant, _: &Input) {}

    fn action(&mut self, _: Instant, _: &Action) {}
}

/// Replays a recording before the eyes of an observer and a tap, and returns both.
pub fn replay_watched<O: Observer, T: Tap>(
    source: impl Read,
    begin: impl FnOnce(&Config) -> (O, T),
    progress: impl FnMut(u64),
) -> Result<(Replay, O, T), ReplayError> {
    replay_before(source, begin, progress).map(|(replay, observer, tap, _)| (replay, observer, tap))
}

/// The same, and returns also what was outstanding at the end.
pub(crate) fn replay_before<O: Observer, T: Tap>(
    source: impl Read,
    begin: impl FnOnce(&Config) -> (O, T),
    progress: impl FnMut(u64),
) -> Result<(Replay, O, T, [Census; 7]), ReplayError> {
    let mut window = Window { source, bytes: Vec::new(), start: 0, offset: 0, ended: false };
    let (decoder, config) = window.header()?;
    let pieces = Rc::new(Cell::new(0));
    let (observer, tap) = begin(&config);
    let known = Rc::new(RefCell::new(config.clone()));
    let counts = Counts {
        config: Rc::clone(&known),
        pieces: Rc::clone(&pieces),
        arrived: 0,
        completed: 0,
        refused: 0,
    };
    let mut pipeline = Pipeline::new(&config, (counts, observer));
    let mut player = Player {
        tap,
        window,
        decoder,
        config: known,
        pieces,
        now: Instant::ZERO,
        entries: 0,
        digest: Digest::default(),
        recorded: None,
        error: None,
        progress,
    };
    stage::run(&mut pipeline, &mut player);
    if let Some(error) = player.error {
        return Err(error);
    }
    let Player { tap, now, entries, digest, recorded, mut progress, .. } = player;
    progress(entries);
    let outstanding = pipeline.census(now);
    let (Counts { arrived, completed, refused, .. }, observer) = pipeline.into_observer();
    let replay = Replay {
        entries,
        virtual_ns: now.as_nanos(),
        arrived,
        completed,
        refused,
        actions: digest.actions(),
        digest: digest.to_string(),
        recorded: recorded
            .map(|recorded| Recorded { actions: recorded.actions(), digest: recorded.to_string() }),
    };
    Ok((replay, observer, tap, outstanding))
}

/// The part of a file that is being decoded.
struct Window<R> {
    source: R,
    bytes: Vec<u8>,
    /// Bytes of the window that have been decoded.
    start: usize,
    /// Place of the window in the file.
    offset: u64,
    ended: bool,
}

impl<R: Read> Window<R> {
    /// Makes sure that `wanted` bytes are there to be decoded, or all that the file has.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        while !self.ended && self.bytes.len() - self.start < wanted {
            self.offset += self.start as u64;
            self.bytes.drain(..self.start);
            self.start = 0;
            let room = wanted.max(1 << 16);
            let read = self.source.by_ref().take(room as u64).read_to_end(&mut self.bytes)?;
            self.ended = read == 0;
        }
        Ok(())
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn damaged(&self, message: impl Into<String>) -> ReplayError {
        ReplayError::Damaged { offset: self.offset + self.start as u64, message: message.into() }
    }

    /// Reads and checks the header.
    fn header(&mut self) -> Result<(Decoder, Config), ReplayError> {
        self.fill(MAX_HEADER)?;
        let head = &self.rest()[..self.rest().len().min(MAX_HEADER)];
        let (decoder, config, length) =
            Decoder::begin(head).map_err(|error| self.damaged(error.to_string()))?;
        self.start += length;
        let paths: u64 = config.backends.iter().map(|backend| backend.groups.len() as u64).sum();
        let excess = [
            (config.volumes.len() > MAX_INDEX, "volumes"),
            (paths > MAX_INDEX as u64, "paths"),
            (config.cache.lines() > MAX_LINES, "lines in the cache"),
        ];
        match excess.into_iter().find(|&(exceeds, _)| exceeds) {
            Some((_, what)) => Err(ReplayError::Damaged {
                offset: 0,
                message: format!("the configuration asks for too many or too much: {what}"),
            }),
            None => Ok((decoder, config)),
        }
    }
}

/// The world of a replay: what was recorded happens again, and nothing else.
struct Player<R, F, T> {
    tap: T,
    window: Window<R>,
    decoder: Decoder,
    /// What the pipeline has now.
    config: Rc<RefCell<Config>>,
    pieces: Rc<Cell<u64>>,
    now: Instant,
    entries: u64,
    digest: Digest,
    recorded: Option<Digest>,
    error: Option<ReplayError>,
    progress: F,
}

impl<R: Read, F: FnMut(u64), T: Tap> Player<R, F, T> {
    /// The next entry; `None` at the end.
    fn read(&mut self) -> Result<Option<Wake<Input>>, ReplayError> {
        self.window.fill(MAX_ENTRY)?;
        if self.window.rest().is_empty() {
            return Ok(None);
        }
        let mut decoded = self.decoder.entry(self.window.rest());
        if matches!(decoded, Err(FormatError::Truncated)) {
            // Promises are longer than anything else.
            self.window.fill(MAX_HEADER)?;
            decoded = self.decoder.entry(self.window.rest());
        }
        let (entry, length) = match decoded {
            // The writer was killed while it wrote: what came before is whole.
            Err(FormatError::Truncated) => return Ok(None),
            Err(error) => return Err(self.window.damaged(error.to_string())),
            Ok(decoded) => decoded,
        };
        let wake = match entry {
            Entry::Input(at, input) => {
                self.check(&input).map_err(|message| self.window.damaged(message))?;
                Wake::Input(at, input)
            }
            Entry::Deadline(at) => Wake::Deadline(at),
            Entry::End(digest) => {
                self.window.start += length;
                self.recorded = Some(digest);
                self.window.fill(1)?;
                return if self.window.rest().is_empty() {
                    Ok(None)
                } else {
                    Err(self.window.damaged("there is something behind the end"))
                };
            }
        };
        if let Wake::Input(at, _) | Wake::Deadline(at) = wake {
            if at.as_nanos() > MAX_TIME.as_nanos() {
                return Err(self.window.damaged("the time is past 73 years"));
            }
            self.now = at;
        }
        self.window.start += length;
        Ok(Some(wake))
    }

    /// Whether there is such a backend, with such a path.
    fn check_path(&self, backend: BackendId, path: Option<PathId>) -> Result<(), String> {
        let config = self.config.borrow();
        let Some(known) = config.backends.get(backend.index()) else {
            return Err(format!("there is no backend {}", backend.index()));
        };
        match path {
            Some(path) if path.index() >= known.groups.len() => {
                Err(format!("backend {} has no path {}", backend.index(), path.index()))
            }
            _ => Ok(()),
        }
    }

    /// Whether its cache may be told so.
    fn check_done(&self, done: &Done) -> Result<(), String> {
        let volume = match *done {
            Done::Lost(volume, _) if volume.index() < self.config.borrow().volumes.len() => {
                return Ok(());
            }
            Done::Lost(volume, _) => return Err(format!("there is no volume {}", volume.index())),
            Done::Fetched { .. } | Done::Reserved { .. } | Done::Gone(_) => return Ok(()),
            Done::Logged { volume, .. }
            | Done::Recovered(volume, _)
            | Done::Drain(volume, _)
            | Done::Retry(volume)
            | Done::Quarantine(volume, _)
            | Done::LostKept(volume, _)
            | Done::Abandoned(volume, _)
            | Done::Close(volume) => volume,
        };
        match self.config.borrow().cache.logs.get(volume.index()) {
            Some(Some(_)) if volume.index() < self.config.borrow().volumes.len() => Ok(()),
            _ => Err(format!("there is no volume {} with a log", volume.index())),
        }
    }

    /// Whether the pipeline of this configuration may see the input.
    fn check(&self, input: &Input) -> Result<(), String> {
        match *input {
            Input::Arrive(request) => {
                let config = self.config.borrow();
                let there = |volume: &&Volume| volume.layout.parts() > 0;
                let volume = config.volumes.get(request.volume.index()).filter(there);
                let Some(volume) = volume else {
                    return Err(format!("there is no volume {}", request.volume.index()));
                };
                for (what, index) in
                    [("tenant", request.tenant.index()), ("link", request.link.index())]
                {
                    if index >= MAX_INDEX {
                        return Err(format!("{what} {index} is past the last, {}", MAX_INDEX - 1));
                    }
                }
                if self.pieces.get().saturating_add(pieces(volume, &request)) > MAX_PIECES {
                    return Err(format!("requests are cut into more than {MAX_PIECES} pieces"));
                }
                Ok(())
            }
            Input::PathDown(backend, path)
            | Input::PathUp(backend, path)
            | Input::PathAccess(backend, path, _)
            | Input::Checked(backend, path)
            | Input::PathOrder(backend, PathOrder::Disable(path) | PathOrder::Enable(path)) => {
                self.check_path(backend, Some(path))
            }
            Input::UnitReset(backend)
            | Input::WriteLost(backend)
            | Input::PathOrder(backend, PathOrder::Failback) => self.check_path(backend, None),
            Input::Resized(volume, _)
            | Input::Capped(volume, _)
            | Input::VolumeRemoved(volume)
            | Input::Substream(Member::Volume(volume), _)
                if volume.index() >= self.config.borrow().volumes.len() =>
            {
                Err(format!("there is no volume {}", volume.index()))
            }
            Input::Link(link, _)
            | Input::Substream(Member::Link(link) | Member::Host(link, _), _)
                if link.index() >= MAX_INDEX =>
            {
                Err(format!("link {} is past the last, {}", link.index(), MAX_INDEX - 1))
            }
            Input::Substream(Member::Host(_, host), _) if host.0 as usize >= MAX_INDEX => {
                Err(format!("host {} is past the last, {}", host.0, MAX_INDEX - 1))
            }
            Input::Link(_, Link { port: Some(port), .. }) if port.id as usize >= MAX_INDEX => {
                Err(format!("port {} is past the last, {}", port.id, MAX_INDEX - 1))
            }
            Input::VolumeAdded(ref added) => {
                let config = self.config.borrow();
                let (volumes, backends) = (&config.volumes, config.backends.len());
                let paths = config.backends.iter().chain(&added.backends);
                if paths.map(|backend| backend.groups.len()).sum::<usize>() > MAX_INDEX {
                    return Err(format!("there are more than {MAX_INDEX} paths"));
                }
                added.validate(volumes.len(), backends).map_err(ToOwned::to_owned)
            }
            Input::Cache(ref done) => self.check_done(done),
            Input::Stored { .. }
            | Input::Sent { .. }
            | Input::Link(..)
            | Input::Substream(..)
            | Input::Resized(..)
            | Input::Capped(..)
            | Input::VolumeRemoved(_)
            | Input::TakeOver(_)
            | Input::SetControl(_)
            | Input::SetWeights(_) => Ok(()),
        }
    }
}

impl<R: Read, F: FnMut(u64), T: Tap, S: Stage<Input = Input, Output = Action>> World<S>
    for Player<R, F, T>
{
    fn wait(&mut self, _: Option<Instant>) -> Wake<Input> {
        match self.read() {
            Ok(Some(wake)) => {
                self.entries += 1;
                if self.entries.is_multiple_of(PROGRESS) {
                    (self.progress)(self.entries);
                }
                if let Wake::Input(now, input) = &wake {
                    self.tap.input(*now, input);
                }
                wake
            }
            Ok(None) => Wake::End,
            Err(error) => {
                self.error = Some(error);
                Wake::End
            }
        }
    }

    fn perform(&mut self, now: Instant, action: Action) {
        self.digest.action(now, &action);
        self.tap.action(now, &action);
    }
}

/// Into how many pieces the request is cut.
fn pieces(volume: &Volume, request: &Request) -> u64 {
    if volume.holds(request) { volume.pieces(request) } else { 1 }
}

/// Counts what comes and goes.
struct Counts {
    /// What the pipeline has now.
    config: Rc<RefCell<Config>>,
    /// Pieces of the requests that are outstanding, for the player to see.
    pieces: Rc<Cell<u64>>,
    arrived: u64,
    completed: u64,
    refused: u64,
}

impl Observer for Counts {
    fn event(&mut self, _: Instant, event: Event<'_>) {
        let of = |request: &Request| {
            pieces(&self.config.borrow().volumes[request.volume.index()], request)
        };
        match event {
            Event::Arrived(request) => {
                self.arrived += 1;
                self.pieces.set(self.pieces.get() + of(request));
            }
            Event::Refused(..) => {
                self.arrived += 1;
                self.refused += 1;
            }
            Event::Completed(completed) => {
                self.completed += 1;
                self.pieces.set(self.pieces.get() - of(completed.request));
            }
            Event::Path(_)
            | Event::Overdue { .. }
            | Event::Control(_)
            | Event::Cache(..)
            | Event::ControlSet(_)
            | Event::Lost(_)
            | Event::Stray => {}
            Event::VolumeAdded(id, volume, backends, log) => {
                self.config.borrow_mut().add(id, volume, backends, log);
            }
            Event::VolumeRemoved(id) => self.config.borrow_mut().remove(id),
        }
    }
}

#[cfg(test)]
mod tests;
