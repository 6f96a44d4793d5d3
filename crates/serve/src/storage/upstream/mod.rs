//! Upstreams: logical units of somebody else's targets, over sessions of our own.
//!
//! All sessions live in the one event loop, beside those of hosts. A path is a portal, and has one session
//! at a time. The data path chooses the path of each operation and judges how paths fare; here they are
//! connected, looked at, and connected again, and each operation becomes SCSI commands.
//!
//! | what happens | to reads and flushes | to writes |
//! |---|---|---|
//! | a command was not sent yet, or was refused | another path | another path |
//! | the session is lost, or given up | another path, at once | held until the target has confirmed that the session is dead to it, then another path |
//!
//! So nothing that changes the medium is ever done twice, however late the first lands. See [`path::Fence`].

mod cdb;
mod claim;
mod fence;
mod flight;
pub(crate) mod network;
mod owner;
mod path;
mod payload;
mod probe;
mod retry;
mod sense;
mod session;
mod session_events;
mod start;
#[cfg(test)]
pub(crate) mod testing;

pub use claim::Denied;
pub(crate) use claim::Key;
pub use owner::Unowned;
pub(crate) use owner::{Ownership, owners};
pub use start::{Unreachable, UnreachablePath};

use crate::config;
use crate::config::Config;
use crate::identity::identity;
use crate::limits::Tally;
use crate::storage::io::{Ended, Io, StorageDone, Whose, Work};
use crate::storage::random::Random;
use crate::storage::store::Unit;
use claim::Owner;
use flight::Terms;
use mio::Token;
use network::{Network, Readiness};
use path::{GOOD_AFTER, LOOK_EVERY, Link, Path};
use payload::Payload;
use probe::Facts;
use session::{Around, Loss, PATH_FAILED, Session, SessionEvent};
use std::io;
use std::sync::Arc;
use weir_flow::clock::Instant;
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_flow::request::{BackendId, PathId, RequestKey};
use weir_flow::rng::{Rng, mix};
use weir_wire::iscsi::initiator::{Chap, Initiator, Isid, Settings};

/// All upstreams.
pub(crate) struct Upstreams<N: Network> {
    network: N,
    random: Box<dyn Random>,
    all: Vec<Upstream>,
    /// Those of one upstream stand together.
    paths: Vec<Path<N::Stream>>,
    /// The first backend that is an upstream.
    first_backend: usize,
    /// What has happened, in order.
    pub(crate) done: Vec<StorageDone>,
    /// Empty; its memory is used again.
    told: Vec<SessionEvent>,
    /// Paths with something to write, and those with more to read.
    dirty: Vec<usize>,
    queued: Vec<usize>,
    chance: Rng,
    /// No session is begun any more.
    closing: bool,
    pub(crate) now: Instant,
}

/// An upstream.
struct Upstream {
    config: config::Upstream,
    /// Index of its first path.
    first: usize,
    /// What its unit takes, once a session has looked at it.
    terms: Option<Terms>,
    /// Who owns its unit; `None` if nobody is kept from it.
    owner: Option<Owner>,
    errors: Tally,
    /// Something was written that may not be durable.
    written: bool,
    /// It was said that its unit cannot be reset.
    not_reset: bool,
    /// How far its last flush has come, and then giving up its unit.
    farewell: Farewell,
    release: Farewell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    Wanted,
    /// On this path.
    Asked(usize),
    Done(Result<(), IoError>),
}

impl<N: Network> Upstreams<N> {
    /// These upstreams; nothing is connected yet. To the data path they are the backends from
    /// `first_backend` on.
    pub(crate) fn new(
        upstreams: &[config::Upstream],
        first_backend: usize,
        network: N,
        mut random: Box<dyn Random>,
    ) -> Self {
        let node = identity();
        let mut paths = Vec::new();
        let upstream = |(index, upstream): (usize, &config::Upstream)| {
            let first = paths.len();
            for (number, portal) in upstream.portals.iter().enumerate() {
                let who = format!("{} path {number} ({})", upstream.name, portal.address);
                let isid = isid(&[&node, &upstream.name, &upstream.target], number);
                let id = PathId::new(number as u32);
                paths.push(Path::new(index, id, portal.address, who, isid));
            }
            Upstream {
                config: upstream.clone(),
                first,
                terms: None,
                owner: None,
                errors: Tally::default(),
                written: false,
                not_reset: false,
                farewell: Farewell::Wanted,
                release: Farewell::Done(Ok(())),
            }
        };
        let all = upstreams.iter().enumerate().map(upstream).collect();
        let mut seed = [0; 8];
        // Without random numbers all gateways come back at the same time, which is only unkind.
        let _ = random.fill(&mut seed);
        Self {
            network,
            random,
            all,
            paths,
            first_backend,
            done: Vec::new(),
            told: Vec::new(),
            dirty: Vec::new(),
            queued: Vec::new(),
            chance: Rng::stream(u64::from_le_bytes(seed), "retries"),
            closing: false,
            now: Instant::ZERO,
        }
    }

    /// What is known of an upstream's unit. Panics before a session has looked at it.
    pub(crate) fn unit(&self, upstream: usize) -> Unit {
        let Upstream { config, terms, first, .. } = &self.all[upstream];
        let terms = terms.as_ref().expect("one path works before anything is served");
        let Facts { write_cache, zeroes, unmaps_by_write_same, unmap_blocks, .. } = terms.facts;
        let paths = &self.paths[*first..first + config.portals.len()];
        Unit {
            capacity: terms.facts.capacity().into(),
            block_size: terms.facts.block_size,
            write_cache,
            thin: zeroes && (unmaps_by_write_same || unmap_blocks.is_some()),
            max_transfer: terms.max_transfer(),
            name: config.name.clone(),
            target: config.target.clone(),
            lun: config.lun.into(),
            paths: paths.len() as u32,
            ready: paths.iter().filter(|path| path.is_ready()).count() as u32,
        }
    }

    /// The backend that an upstream is to the data path.
    fn backend(&self, upstream: usize) -> BackendId {
        BackendId::new((self.first_backend + upstream) as u32)
    }

    fn index(&self, backend: BackendId, path: PathId) -> usize {
        self.all[backend.index() - self.first_backend].first + path.index()
    }

    /// Whether a backend of the data path is an upstream.
    pub(crate) const fn has(&self, backend: BackendId) -> bool {
        let index = backend.index();
        index >= self.first_backend && index < self.first_backend + self.all.len()
    }

    /// Takes an operation for a path.
    pub(crate) fn submit(&mut self, backend: BackendId, path: PathId, io: Io) {
        let index = self.index(backend, path);
        let Path { upstream, .. } = self.paths[index];
        if self.is_lost(upstream) {
            let Io { whose, promise, .. } = io;
            let outcome = Err(IoError::Fenced);
            self.end(Ended { whose, outcome, flushed: false, promise });
            return;
        }
        self.all[upstream].written |= !matches!(io.work, Work::Read { .. } | Work::Sync);
        if self.paths[index].is_ready() {
            self.with(index, |session, around| {
                session.submit(io, around);
                Ok(())
            });
        } else {
            // The data path has not heard yet that it is down.
            let Io { whose, promise, .. } = io;
            self.end(Ended { whose, outcome: PATH_FAILED, flushed: false, promise });
        }
    }

    /// Asks for a sign of life on a path.
    pub(crate) fn check(&mut self, backend: BackendId, path: PathId) {
        let index = self.index(backend, path);
        if self.is_lost(self.paths[index].upstream) {
            self.input(Input::Checked(backend, path));
        } else if self.paths[index].is_ready() {
            self.with(index, |session, _| {
                session.check();
                Ok(())
            });
        } else {
            self.input(Input::PathDown(backend, path));
        }
    }

    /// Forgets a read, and an end of it that has not been told.
    pub(crate) fn abandon(&mut self, backend: BackendId, path: PathId, key: RequestKey) {
        let whose = Whose::Request(key);
        self.done.retain(|one| !matches!(one, StorageDone::Ended(ended) if ended.whose == whose));
        let index = self.index(backend, path);
        if let Some(session) = self.paths[index].session() {
            session.abandon(key);
        }
    }

    /// Gives a path up if its target has put this operation off, or takes none.
    pub(crate) fn recall(&mut self, backend: BackendId, path: PathId, key: RequestKey) {
        let index = self.index(backend, path);
        let session = self.paths[index].session();
        if session.is_some_and(|session| session.is_ready() && session.has_put_off(key)) {
            self.lose(index, &Loss::PutOff);
        }
    }

    /// Gives a path up, and tries to get it back.
    pub(crate) fn reset(&mut self, backend: BackendId, path: PathId) {
        let index = self.index(backend, path);
        if self.paths[index].session().is_some_and(|session| session.is_ready()) {
            self.lose(index, &Loss::GivenUp);
        }
    }

    /// Something has happened at the socket with this number.
    pub(crate) fn event(&mut self, number: usize, event: Readiness) {
        let Readiness { readable, writable, ended } = event;
        let (index, helps) = (number / 2, number % 2 == 1);
        if index >= self.paths.len() {
            return;
        }
        let fence = &mut self.paths[index].fence;
        if helps && let Some((session, _)) = &mut fence.helper {
            session.ends |= ended;
        } else if !helps && let Some(session) = self.paths[index].session() {
            session.ends |= ended;
        }
        if helps {
            self.helper_event(index, readable, writable);
            return;
        }
        if writable {
            self.with(index, Session::writable);
        }
        if readable {
            self.read(index);
        }
    }

    fn read(&mut self, index: usize) {
        let more = self.with(index, Session::read);
        if more == Some(true)
            && let Some(session) = self.paths[index].session()
            && !std::mem::replace(&mut session.queued, true)
        {
            self.queued.push(index);
        }
    }

    /// Whether there is more to read that the kernel will not tell of.
    pub(crate) const fn has_more(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Reads on where there was more.
    pub(crate) fn read_on(&mut self) {
        for index in std::mem::take(&mut self.queued) {
            self.read(index);
        }
    }

    /// Writes what waits on all sessions.
    pub(crate) fn write_all(&mut self) {
        while let Some(index) = self.dirty.pop() {
            self.with(
                index,
                |session, around| {
                    if session.dirty { session.write(around) } else { Ok(()) }
                },
            );
        }
    }

    /// When something is to be done without being told.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.paths.iter().filter_map(Path::next).chain(self.next_look()).min()
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self) {
        for index in 0..self.paths.len() {
            if self.paths[index].next().is_some_and(|at| at <= self.now) {
                self.tick_path(index);
            }
        }
        self.look_at_owners();
    }

    fn tick_path(&mut self, index: usize) {
        let now = self.now;
        let path = &mut self.paths[index];
        let looks = !path.access.is_accessible() && path.look_at <= now;
        match &mut path.link {
            Link::Down(at) if *at <= now => self.begin(index),
            Link::Down(_) => {}
            Link::Up(session, by) if *by <= now && (!session.is_ready() || path.leaves) => {
                let late = session.waits_for();
                self.lose(index, &Loss::Late(late));
            }
            Link::Up(..) => {
                path.look_at = if looks { now + LOOK_EVERY } else { path.look_at };
                self.with(index, |session, around| {
                    if looks {
                        session.look_again();
                    }
                    session.start_waiting(around);
                    Ok(())
                });
            }
        }
        self.tick_fence(index);
    }

    /// Begins a session on a path.
    fn begin(&mut self, index: usize) {
        let now = self.now;
        if self.closing || self.is_lost(self.paths[index].upstream) {
            self.paths[index].link = Link::Down(now + GOOD_AFTER);
            return;
        }
        let by = now + self.connection_within(self.paths[index].upstream);
        let path = &mut self.paths[index];
        path.began = now;
        let address = path.redirect.take().unwrap_or(path.portal);
        match self.open(index, address, Token(FIRST_TOKEN + 2 * index)) {
            Ok(session) => {
                self.paths[index].link = Link::Up(session, by);
                self.paths[index].leaves = false;
            }
            Err(error) => self.failed(index, &Loss::Broken(error)),
        }
    }

    /// A session whose connection is being made.
    fn open(
        &mut self,
        index: usize,
        address: std::net::SocketAddr,
        token: Token,
    ) -> io::Result<Box<Session<N::Stream>>> {
        let Path { upstream, isid, .. } = self.paths[index];
        let mut entropy = [0; 32];
        self.random.fill(&mut entropy)?;
        let config = &self.all[upstream].config;
        let wire: Initiator<Payload> = Initiator::new(Arc::new(settings(config, isid)), entropy);
        let stream = self.network.connect(address, token)?;
        Ok(Box::new(Session::new(stream, wire, config.lun.into())))
    }

    /// Has a session do something, and does what follows from it.
    fn with<T>(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Session<N::Stream>, &mut Around<'_>) -> Result<T, Loss>,
    ) -> Option<T> {
        let mut told = std::mem::take(&mut self.told);
        let path = &mut self.paths[index];
        let Upstream { terms, owner, errors, .. } = &mut self.all[path.upstream];
        let Link::Up(session, _) = &mut path.link else { return None };
        let was_dirty = session.dirty;
        let who = &path.who;
        let mut around = Around { terms, owner, told: &mut told, errors, who, now: self.now };
        let result = act(session, &mut around);
        if session.dirty && (!was_dirty || !self.dirty.contains(&index)) {
            self.dirty.push(index);
        }
        let mut reason = None;
        for one in told.drain(..) {
            reason = reason.or(self.take(index, one).err());
        }
        self.told = told;
        match (result, reason) {
            (Err(loss), _) | (Ok(_), Some(loss)) => {
                self.lose(index, &loss);
                None
            }
            (Ok(value), None) => {
                self.leave_if_idle(index);
                Some(value)
            }
        }
    }

    fn end(&mut self, ended: Ended) {
        self.done.push(StorageDone::Ended(ended));
    }

    fn input(&mut self, input: Input) {
        self.done.push(StorageDone::Input(input));
    }
}

/// How sessions with an upstream are made.
fn settings(config: &config::Upstream, isid: Isid) -> Settings {
    let name = config
        .initiator_name
        .clone()
        .unwrap_or_else(|| format!("iqn.2026-11.io.weir:{:016x}", fold(&[&identity()])));
    let mut settings = Settings::new(name, isid, Some(config.target.clone()));
    settings.header_digest = config.header_digest;
    settings.data_digest = config.data_digest;
    settings.commands_max = config.max_commands;
    settings.chap =
        config.account.clone().map(|account| Chap { account, target: config.mutual.clone() });
    settings
}

/// The initiator's part of the name of a path's sessions: the same after a restart, so that a gateway
/// that comes back ends what it has left behind. Of the random type (RFC 7143, 11.12.5).
fn isid(parts: &[&str], path: usize) -> Isid {
    let mut isid = [0x80; 6];
    isid[1..].copy_from_slice(&mix(fold(parts) ^ path as u64).to_be_bytes()[3..]);
    Isid(isid)
}

fn fold(parts: &[&str]) -> u64 {
    let fold = |id, byte: u8| mix(id ^ mix(u64::from(byte) + 1));
    parts.iter().fold(0, |id, part| part.bytes().chain([0]).fold(id, fold))
}

/// The volume that is on an upstream.
pub(crate) fn volume_on(config: &Config, upstream: usize) -> Option<usize> {
    config.volumes.iter().position(|volume| volume.is_on(upstream))
}

/// Sockets of paths have the tokens from here on, two for each path.
pub(crate) const FIRST_TOKEN: usize = 1 << 24;
