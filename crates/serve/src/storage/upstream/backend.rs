//! One upstream: a logical unit of another target, over all of its paths.
//!
//! It owns what the paths share, the facts of the unit and its reservation, and decides what an event of one path
//! means for the others.

mod hand_over;
mod reset_reports;

use super::context::Context;
use super::held_writes::RESET_INTERVAL;
use super::network::{Network, Readiness};
use super::ownership::{Denied, Holder, Key, Owner, Ownership, Release, TakenOver};
use super::path::{Link, Path};
use super::path_set::PathSet;
use super::probe::Facts;
use super::remembered::RememberedUnit;
use super::resets::Resets;
use super::session::{Loss, PATH_FAILED, Session, SessionEvent, UnitState};
use super::start::{Unreachable, UnreachablePath};
use super::unit::LogicalUnit;
use crate::storage::io::{Ended, Io, StorageDone, Work};
use crate::storage::store::Unit;
use reset_reports::NO_ANSWER;
use tracing::{error, info, warn};
use weir_flow::clock::Instant;
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_flow::request::{PathId, RequestKey};

/// An upstream.
pub(super) struct Upstream<N: Network> {
    /// Its index among all upstreams.
    index: usize,
    pub(super) paths: PathSet<N>,
    pub(super) unit: LogicalUnit,
    pub(super) resets: Resets,
    shutdown: Shutdown,
}

/// How far an upstream has come when the gateway stops.
struct Shutdown {
    /// The last flush.
    flush: ShutdownStep,
    /// The release of the reservation.
    release: ShutdownStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownStep {
    Wanted,
    /// Sent on this path.
    Sent(usize),
    Done(Result<(), IoError>),
}

impl<N: Network> Upstream<N> {
    /// An upstream without a session.
    pub(super) fn new(index: usize, paths: PathSet<N>) -> Self {
        let shutdown =
            Shutdown { flush: ShutdownStep::Wanted, release: ShutdownStep::Done(Ok(())) };
        let resets = Resets::new(paths.len());
        Self { index, paths, unit: LogicalUnit::default(), resets, shutdown }
    }

    /// What a store needs to know of the unit. Panics before a session has probed it.
    pub(super) fn unit(&self) -> Unit {
        let ready = self.paths.iter().filter(|path| path.is_ready()).count();
        self.unit.describe(&self.paths.config, ready as u32)
    }

    /// Takes an operation for a path.
    pub(super) fn submit(&mut self, context: &mut Context<N>, path: PathId, io: Io) {
        let refused = if self.unit.is_lost() {
            Err(IoError::Fenced)
        } else {
            self.unit.written |= !matches!(io.work, Work::Read { .. } | Work::Sync);
            if self.paths[path.index()].is_ready() {
                self.with(context, path.index(), |session, unit| {
                    session.submit(io, unit);
                    Ok(())
                });
                return;
            }
            // The pipeline does not know yet that the path is down.
            PATH_FAILED
        };
        let Io { whose, promise, .. } = io;
        context.end(Ended { whose, outcome: refused, flushed: false, promise });
    }

    /// Asks for a sign of life on a path.
    pub(super) fn check(&mut self, context: &mut Context<N>, path: PathId) {
        if self.unit.is_lost() {
            context.input(Input::Checked(self.paths.backend, path));
        } else if self.paths[path.index()].is_ready() {
            self.with(context, path.index(), |session, _| {
                session.check();
                Ok(())
            });
        } else {
            context.input(Input::PathDown(self.paths.backend, path));
        }
    }

    /// Forgets a read.
    pub(super) fn abandon(&mut self, path: PathId, key: RequestKey) {
        if let Some(session) = self.paths[path.index()].session() {
            session.abandon(key);
        }
    }

    /// Gives a path up if its target has deferred this operation, or takes none.
    pub(super) fn recall(&mut self, context: &mut Context<N>, path: PathId, key: RequestKey) {
        let session = self.paths[path.index()].session();
        if session.is_some_and(|session| session.is_ready() && session.has_deferred(key)) {
            self.lose(context, path.index(), &Loss::PutOff);
        }
    }

    /// Gives a path up, and connects it again.
    pub(super) fn reset(&mut self, context: &mut Context<N>, path: PathId) {
        if self.paths[path.index()].session().is_some_and(|session| session.is_ready()) {
            self.lose(context, path.index(), &Loss::GivenUp);
        }
    }

    /// An event of the socket of a path's session.
    pub(super) fn event(&mut self, context: &mut Context<N>, path: usize, event: Readiness) {
        if let Some(session) = self.paths[path].session() {
            session.note_end(event.ended);
        }
        if event.writable {
            self.with(context, path, Session::writable);
        }
        if event.readable {
            self.read(context, path);
        }
    }

    /// An event of the socket of a path's helper session.
    pub(super) fn helper_event(&mut self, context: &mut Context<N>, path: usize, event: Readiness) {
        let mut events = Vec::new();
        let Path { held, who, .. } = &mut self.paths[path];
        let mut unit = self.unit.state(&mut events, who, context.now);
        if held.helper_event(context, &mut unit, event) {
            held.confirm(context, who);
        }
    }

    /// Reads once from a path's session.
    pub(super) fn read(&mut self, context: &mut Context<N>, path: usize) {
        let more = self.with(context, path, Session::read);
        let Path { number, .. } = self.paths[path];
        if more == Some(true)
            && let Some(session) = self.paths[path].session()
            && !std::mem::replace(&mut session.queued, true)
        {
            context.queued.push(number);
        }
    }

    /// Writes the output of a path's session.
    pub(super) fn write(&mut self, context: &mut Context<N>, path: usize) {
        self.paths[path].listed = false;
        self.with(
            context,
            path,
            |session, unit| {
                if session.is_dirty() { session.write(unit) } else { Ok(()) }
            },
        );
    }

    /// When something is due without an event.
    pub(super) fn next(&self) -> Option<Instant> {
        let answers = (0..self.paths.len()).filter_map(|index| self.answer_due(index)).min();
        [self.paths.next(), answers, self.unit.next_check()].into_iter().flatten().min()
    }

    /// Does what is due on a path.
    pub(super) fn tick_path(&mut self, context: &mut Context<N>, index: usize) {
        let now = context.now;
        let unanswered = self.answer_due(index).is_some_and(|at| at <= now);
        let path = &mut self.paths[index];
        match &mut path.link {
            Link::Down(at) if *at <= now => self.begin(context, index),
            Link::Down(_) => {}
            Link::Up(session, by)
                if *by <= now && (!session.is_ready() || path.logout_requested) =>
            {
                let late = session.waits_for();
                self.lose(context, index, &Loss::Late(late));
            }
            Link::Up(..) if unanswered => self.lose(context, index, &NO_ANSWER),
            Link::Up(..) => {
                let check = path.takes_access_check(now);
                self.with(context, index, |session, unit| {
                    if check {
                        session.refresh();
                    }
                    session.start_waiting(unit);
                    Ok(())
                });
            }
        }
        if self.paths.tick_held(context, index) {
            self.reset_unit(context, index);
        }
    }

    /// Starts a session on a path, unless none may be started.
    pub(super) fn begin(&mut self, context: &mut Context<N>, index: usize) {
        self.paths.begin(context, index, self.unit.is_shut());
    }

    /// Has the session of a path do something, and handles its events.
    pub(super) fn with<T>(
        &mut self,
        context: &mut Context<N>,
        index: usize,
        act: impl FnOnce(&mut Session<N::Stream>, &mut UnitState<'_>) -> Result<T, Loss>,
    ) -> Option<T> {
        let Path { link: Link::Up(session, _), who, listed, number, .. } = &mut self.paths[index]
        else {
            return None;
        };
        let mut events = std::mem::take(&mut context.events);
        let mut unit = self.unit.state(&mut events, who, context.now);
        let result = act(session, &mut unit);
        if session.is_dirty() && !std::mem::replace(listed, true) {
            context.dirty.push(*number);
        }
        let mut reason = None;
        for event in events.drain(..) {
            reason = reason.or(self.session_event(context, index, event).err());
        }
        context.events = events;
        match (result, reason) {
            (Err(loss), _) | (Ok(_), Some(loss)) => {
                self.lose(context, index, &loss);
                None
            }
            (Ok(value), None) => {
                self.log_out_if_idle(context, index);
                Some(value)
            }
        }
    }

    /// Handles an event of a path's session.
    pub(super) fn session_event(
        &mut self,
        context: &mut Context<N>,
        index: usize,
        event: SessionEvent,
    ) -> Result<(), Loss> {
        match event {
            SessionEvent::Ended(ended) => context.end(ended),
            SessionEvent::FlushEnded(ended) => self.flush_ended(context, ended),
            SessionEvent::Ready => self.has_no_reset(context, index),
            SessionEvent::Connected => {
                let timeout = self.paths.config.login_timeout;
                self.paths[index].connected(timeout);
            }
            SessionEvent::LoggedIn(group) => {
                self.paths[index].group = group;
                self.paths.confirm(context, index);
            }
            SessionEvent::Probed(facts) => self.probed(context, index, *facts)?,
            SessionEvent::Claimed => self.claimed(context, index),
            SessionEvent::Owner(holder) => self.holder_reported(context, holder),
            SessionEvent::Cleared => self.shutdown.release = ShutdownStep::Done(Ok(())),
            SessionEvent::Refreshed(facts) => {
                let access = facts.access;
                self.compare(context, &facts)?;
                self.paths.report_access(context, index, access);
            }
            SessionEvent::Access(access) => self.paths.report_access(context, index, access),
            SessionEvent::Sign => {
                context.input(Input::Checked(self.paths.backend, self.paths[index].id));
            }
            SessionEvent::Reset => self.unit_was_reset(context),
            SessionEvent::WasReset => self.was_reset(context, index),
            SessionEvent::WriteLost(sense) => {
                let upstream = &self.paths[index].who;
                error!(upstream, %sense, "the unit has lost a write that it had acknowledged");
                context.input(Input::WriteLost(self.paths.backend));
            }
            SessionEvent::NotReset(response) => {
                self.unit.not_reset(&self.paths[index].who, &format!("{response:?}"));
            }
            SessionEvent::Flushed(result) => self.shutdown.flush = ShutdownStep::Done(result),
            SessionEvent::LogoutRequested => self.paths.logout_requested(context, index),
        }
        Ok(())
    }

    /// A new session has probed the unit, which must be the unit of the other paths.
    fn probed(&mut self, context: &mut Context<N>, index: usize, facts: Facts) -> Result<(), Loss> {
        // First of all: a session that is useless was not good since the last one that was.
        self.paths[index].attempts.ready_since = context.now;
        self.compare(context, &facts)?;
        let access = facts.access;
        let path = &mut self.paths[index];
        self.unit.probed(facts, &path.who);
        if self.unit.owner.is_some() {
            path.access = access;
            self.claim_on(context, index);
            return Ok(());
        }
        info!(upstream = path.who, %access, "path is ready");
        path.attempts.failure = None;
        self.paths.report_access(context, index, access);
        self.ask_for_resets(context, index);
        Ok(())
    }

    /// Compares the unit behind a session with that of the other paths, and reports it if it has grown.
    fn compare(&mut self, context: &mut Context<N>, facts: &Facts) -> Result<(), Loss> {
        if let Some(capacity) = self.unit.compare(facts)? {
            context.done.push(StorageDone::Resized(self.index, capacity));
        }
        Ok(())
    }

    fn log_out_if_idle(&mut self, context: &mut Context<N>, index: usize) {
        let path = &mut self.paths[index];
        if path.log_out_if_idle() && !std::mem::replace(&mut path.listed, true) {
            context.dirty.push(path.number);
        }
    }

    /// The session of a path is over.
    pub(super) fn lose(&mut self, context: &mut Context<N>, index: usize, loss: &Loss) {
        let Some(session) = self.paths[index].take_session(context.now) else { return };
        self.paths.report_down(context, index);
        self.shutdown.path_lost(index);
        self.paths[index].bury(context, *session, loss);
        self.forget_reports(context, index);
        self.paths.connect_later(context, index, loss);
        if let Loss::Denied(denied) = loss {
            self.denied(context, denied);
        }
    }

    /// Resets the unit over another path than this one.
    pub(super) fn reset_unit(&mut self, context: &mut Context<N>, index: usize) {
        let Some(over) = self.paths.other_ready(index) else { return };
        warn!(
            upstream = self.paths[index].who,
            over = self.paths[over].who,
            "no portal of the same group confirms that the old session is dead: the unit is reset"
        );
        let since = self.with(context, over, |session, unit| Ok(session.reset_unit(unit.now)));
        if since.flatten().is_some_and(|since| since + RESET_INTERVAL <= context.now) {
            self.unit.not_reset(&self.paths[over].who, "no answer");
        }
    }

    /// The unit was reset: no command of any session is in progress there any more.
    fn unit_was_reset(&mut self, context: &mut Context<N>) {
        for index in 0..self.paths.len() {
            if matches!(&self.paths[index].link, Link::Up(session, _) if session.is_ready()) {
                self.lose(context, index, &Loss::Reset);
            }
        }
        for index in 0..self.paths.len() {
            self.paths.confirm(context, index);
        }
    }

    /// Claims the unit for this owner, on every path that works.
    pub(super) fn claim(&mut self, context: &mut Context<N>, owner: Owner) {
        self.unit.owner = Some(owner);
        for index in 0..self.paths.len() {
            if self.paths[index].is_ready() {
                self.claim_on(context, index);
            }
        }
    }

    /// Has the session of a path claim the unit.
    fn claim_on(&mut self, context: &mut Context<N>, index: usize) {
        let until = context.now + self.paths.config.login_timeout;
        self.paths[index].set_deadline(|by| by.max(until));
        self.with(context, index, |session, unit| {
            session.claim(unit);
            Ok(())
        });
    }

    /// The unit is ours on a path.
    fn claimed(&mut self, context: &mut Context<N>, index: usize) {
        let path = &mut self.paths[index];
        if let Some(owner) = &mut self.unit.owner {
            owner.checked(context.now);
            context.done.push(StorageDone::Claimed(self.index));
            let key = owner.key();
            info!(upstream = path.who, %key, access = %path.access, "path is ready: the unit is reserved");
        }
        path.attempts.failure = None;
        let access = path.access;
        self.paths.report_access(context, index, access);
        self.ask_for_resets(context, index);
    }

    /// A claim was denied.
    pub(super) fn denied(&mut self, context: &mut Context<N>, denied: &Denied) {
        if let Some(by) = self.unit.note_denial(denied) {
            self.fence(context, by);
        }
    }

    /// The target reports the holder of the reservation.
    pub(super) fn holder_reported(&mut self, context: &mut Context<N>, holder: Option<Holder>) {
        if let Some(by) = self.unit.note_holder(holder) {
            self.fence(context, by);
        }
    }

    /// Ends all I/O with the unit, which another gateway owns now.
    fn fence(&mut self, context: &mut Context<N>, by: TakenOver) {
        let name = &self.paths.config.name;
        if let Some(owner) = &mut self.unit.owner
            && owner.leave(by, name, context.now)
        {
            self.end_sessions(context, &Loss::Fenced);
            context.done.push(StorageDone::Left(self.index));
            return;
        }
        let owner = self.unit.owner.as_mut();
        if !owner.is_some_and(|owner| owner.lose(by, name, context.now)) {
            return;
        }
        for index in 0..self.paths.len() {
            // The target has ended the commands of the old owner, and refuses those that still arrive.
            self.paths.confirm(context, index);
            self.lose(context, index, &Loss::Fenced);
            self.paths.report_fenced(context, index);
        }
        context.done.push(StorageDone::Fenced(self.index));
    }

    /// Reads the reservation, on one path, if that is due.
    pub(super) fn check_reservation(&mut self, context: &mut Context<N>) {
        if self.unit.takes_check(context.now)
            && let Some(index) = self.paths.first_ready()
        {
            self.with(context, index, |session, _| {
                session.read_reservation();
                Ok(())
            });
        }
    }

    /// Starts without the unit, which is away and is remembered.
    pub(super) fn start_without(&mut self) {
        let Unreachable { upstream, within, paths } = self.unreachable();
        for UnreachablePath { portal, reason } in paths {
            warn!(upstream, %portal, reason, "the path does not work");
        }
        warn!(
            upstream,
            %within,
            "STARTED WITHOUT THE UPSTREAM: it does not answer. Writes are logged, reads of what the log does not \
             have wait, and nothing is written back before the unit is claimed"
        );
        self.unit.start_without();
    }

    /// Who owns the unit, if it is reserved.
    pub(super) fn ownership(&self) -> Option<Ownership> {
        self.unit.ownership(|| {
            let reasons = self.paths.reasons().into_iter();
            let told = reasons.map(|path| format!("{}: {}", path.portal, path.reason));
            told.collect::<Vec<_>>().join("; ")
        })
    }

    /// What is to be remembered of the unit. `stops`: the gateway stops, and gives the reservation up if it can.
    pub(super) fn to_remember(&self, stops: bool) -> Option<RememberedUnit> {
        self.unit.to_remember(&self.paths.config, stops && self.is_reachable())
    }

    /// Whether a path works.
    pub(super) fn is_reachable(&self) -> bool {
        self.paths.first_ready().is_some()
    }

    /// Why no path works.
    pub(super) fn unreachable(&self) -> Unreachable {
        let config = &self.paths.config;
        let (upstream, within) = (config.name.clone(), config.connect_timeout);
        Unreachable { upstream, within, paths: self.paths.reasons() }
    }

    /// Prepares the last flush.
    pub(super) fn prepare_shutdown(&mut self) {
        // One that was given over, and is owned again, had a flush then.
        self.shutdown.flush =
            if self.unit.needs_flush() { ShutdownStep::Wanted } else { ShutdownStep::Done(Ok(())) };
    }

    /// Sends the last flush over a path that works; true until it has ended.
    pub(super) fn flush(&mut self, context: &mut Context<N>) -> bool {
        if self.shutdown.flush == ShutdownStep::Wanted
            && let Some(index) = self.paths.first_ready()
        {
            self.shutdown.flush = ShutdownStep::Sent(index);
            self.with(context, index, |session, unit| {
                session.last_flush(unit);
                Ok(())
            });
        }
        !matches!(self.shutdown.flush, ShutdownStep::Done(_))
    }

    /// How the last flush has ended.
    pub(super) const fn flushed(&self) -> Result<(), IoError> {
        match self.shutdown.flush {
            ShutdownStep::Done(result) => result,
            ShutdownStep::Wanted | ShutdownStep::Sent(_) => Err(IoError::NoPath),
        }
    }

    /// Gives up the reservation if the log is clean, so that the next owner needs no take-over; true until that has
    /// ended.
    pub(super) fn release(&mut self, context: &mut Context<N>, clean: bool) -> bool {
        let name = &self.paths.config.name;
        let release = self.unit.owner.as_mut().map(|owner| owner.release(clean, name));
        if let Some(Release::Clear(key)) = release {
            if let Some(index) = self.paths.first_ready() {
                self.shutdown.release = ShutdownStep::Sent(index);
                self.with(context, index, |session, _| {
                    session.clear_reservation(key);
                    Ok(())
                });
            } else {
                let key = Key(key);
                warn!(upstream = name, %key, "no path works: the unit stays reserved");
            }
        }
        matches!(self.shutdown.release, ShutdownStep::Sent(_))
    }

    /// Logs out on every path.
    pub(super) fn log_out(&mut self, context: &mut Context<N>) {
        for index in 0..self.paths.len() {
            self.with(context, index, |session, unit| {
                if session.is_ready() {
                    session.log_out();
                }
                session.write(unit)
            });
        }
    }

    /// Whether a path has a session.
    pub(super) fn has_session(&self) -> bool {
        self.paths.iter().any(|path| matches!(path.link, Link::Up(..)))
    }
}

impl Shutdown {
    /// What was sent on a path that is lost is to be sent again.
    fn path_lost(&mut self, index: usize) {
        for step in [&mut self.flush, &mut self.release] {
            if *step == ShutdownStep::Sent(index) {
                *step = ShutdownStep::Wanted;
            }
        }
    }
}
