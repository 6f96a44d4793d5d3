//! What is done with connections: reading, writing, closing, and looking after the silent ones.

use super::{Gateway, KEEP_EVERY, Stop};
use crate::frontend::connection::{Connection, Progress, Speech};
use crate::frontend::iscsi::session::{tenants_of, window_of};
use crate::frontend::socket::Peer;
use crate::frontend::{self, Verdict};
use crate::ids::ConnectionId;
use crate::operator::Question;
use crate::tasks::ConnectionAction;
use crate::tasks::reply::Reply;
use std::sync::Arc;
use tracing::warn;
use weir_flow::clock::Duration;
use weir_wire::iscsi::target_role::TmfResponse;

impl Gateway<'_> {
    /// Reads from a connection once and deals with what has come.
    pub(super) fn read(&mut self, index: usize, ends: bool) {
        if self.stop != Stop::No {
            return;
        }
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        connection.ends |= ends;
        if connection.is_behind() || connection.is_stuck() {
            connection.paused = true;
            self.connections[index] = Some(connection);
            return;
        }
        let progress = connection.read();
        if progress == Progress::Closed {
            self.close(connection, "closed by the host");
            return;
        }
        connection.last_heard = self.now;
        connection.pinged = None;
        if progress == Progress::More && !std::mem::replace(&mut connection.queued, true) {
            self.readable.push_back(index);
        }
        self.deal(connection);
        self.run_errands();
    }

    /// Deals with what a connection has received, and puts it back into its place.
    fn deal(&mut self, mut connection: Box<Connection>) {
        let index = connection.id.index;
        self.engine.set.now = self.now;
        let established = connection.speech.is_established();
        let verdict = frontend::receive(&mut self.engine, &mut connection);
        // What is left over is dealt with when there is room for it.
        connection.paused |= connection.is_stuck();
        if !established && connection.speech.is_established() {
            self.door.leave(connection.id);
            connection.entered = true;
            if let Err(error) = connection.socket.keep_alive() {
                warn!(peer = %connection.peer, %error, "cannot enable TCP keep-alive");
            }
        }
        if std::mem::take(&mut connection.login_failed)
            && let Peer::Tcp(address) = &connection.peer
        {
            let wait = self.door.failed(address.ip(), self.now);
            if wait > Duration::ZERO {
                warn!(source = %address.ip(), %wait, "too many failed logins: connections from there are refused for a while");
            }
        }
        if (!connection.speech.outbox().is_empty() || connection.socket.wants_write())
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push(index);
        }
        let finished = connection.speech.is_finished();
        match verdict {
            Verdict::Keep if finished => {
                let reason = connection.farewell();
                self.close(connection, reason);
            }
            Verdict::Keep => self.connections[index] = Some(connection),
            Verdict::Close => {
                // Whatever still tells the host why.
                self.sent.clear();
                connection.write(self.now, &mut self.sent);
                self.close(connection, "the host broke the protocol");
            }
        }
    }

    /// Does what the command engine wants done with connections.
    pub(super) fn run_errands(&mut self) {
        while let Some(errand) = self.engine.set.actions.pop_front() {
            match errand {
                ConnectionAction::Write(id) => self.mark_dirty(id),
                ConnectionAction::Close(id, reason) => {
                    self.write(id.index);
                    let place = self.connections.get_mut(id.index);
                    if let Some(old) = place.and_then(|place| place.take_if(|old| old.id == id)) {
                        self.close(old, reason);
                    }
                }
                ConnectionAction::Abandon(id, itt, key) => {
                    let place = self.connections.get_mut(id.index).and_then(Option::as_mut);
                    // The tag may name another command by now.
                    let of = |one: &&mut Box<Connection>| {
                        one.id == id && one.tasks.get(&itt.0) == Some(&key)
                    };
                    if let Some(connection) = place.filter(of) {
                        let window = window_of(&self.engine, connection.seat.as_ref(), 0);
                        connection.tasks.remove(&itt.0);
                        if let Some(wire) = connection.iscsi() {
                            wire.abandon(itt);
                            // Opens the window again if that was its last command.
                            wire.set_window(window);
                        }
                        self.mark_dirty(id);
                    }
                }
                ConnectionAction::Managed(id, itt) => {
                    if let Some(wire) = self.connection(id).and_then(Connection::iscsi) {
                        wire.task_management_response(itt, TmfResponse::Complete);
                        self.mark_dirty(id);
                    }
                }
                ConnectionAction::Attention(from, volume, attention) => {
                    let others = self.connections.iter_mut().flatten();
                    for connection in others.filter(|connection| Some(connection.id) != from) {
                        if let Some(seat) = &mut connection.seat {
                            seat.attend(volume, attention);
                        }
                    }
                }
                ConnectionAction::Tell(nexus, volume, attention) => {
                    let id = self.engine.set.sessions.find(&nexus);
                    let seat = id.and_then(|id| self.connection(id)?.seat.as_mut());
                    if let Some(seat) = seat {
                        seat.attend(volume, attention);
                    }
                }
                ConnectionAction::Answer(key) => {
                    // It may have been answered, or forgotten with its connection, meanwhile.
                    if self.engine.set.tasks.contains_key(key) {
                        let reply = self.engine.answer(key, None);
                        self.send(reply);
                    }
                }
                ConnectionAction::Feed(id) => {
                    if self.stop != Stop::No {
                        continue;
                    }
                    let place = self.connections.get_mut(id.index);
                    if let Some(fed) = place.and_then(|place| place.take_if(|one| one.id == id)) {
                        self.deal(fed);
                        self.resume(id.index);
                    }
                    if self.connection(id).is_none_or(|fed| fed.waiting.is_none()) {
                        // It has left some for the next.
                        self.engine.set.feed_next();
                    }
                }
                ConnectionAction::Share => self.share_window(),
            }
        }
    }

    /// Has the front end of its connection put a reply into the outbox.
    pub(super) fn send(&mut self, reply: Option<Reply>) {
        let Some(reply) = reply else { return };
        let id = self.engine.set.tasks[reply.task].connection;
        let place = id.and_then(|id| self.connections.get_mut(id.index)?.as_deref_mut());
        match place.filter(|connection| Some(connection.id) == id) {
            Some(connection) => {
                self.engine.set.actions.push_back(ConnectionAction::Write(connection.id));
                frontend::reply(&mut self.engine, connection, reply);
            }
            None => self.engine.unheard(reply),
        }
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id.index)?.as_deref_mut().filter(|found| found.id == id)
    }

    /// Puts a connection on the list of those with something to write.
    fn mark_dirty(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connection(id)
            && !std::mem::replace(&mut connection.dirty, true)
        {
            self.dirty.push(id.index);
        }
    }

    fn share_window(&mut self) {
        let seats = self.connections.iter().flatten().filter_map(|one| one.seat.as_ref());
        let catalog = &self.engine.catalog;
        let sessions = seats.map(|seat| tenants_of(catalog, Some(seat)));
        self.engine.set.quotas.count_sessions(sessions);
        for connection in self.connections.iter_mut().flatten() {
            let window = window_of(&self.engine, connection.seat.as_ref(), 0);
            if let Some(wire) = connection.iscsi() {
                wire.set_window(window);
            }
            if !connection.speech.outbox().is_empty() {
                self.engine.set.actions.push_back(ConnectionAction::Write(connection.id));
            }
        }
    }

    /// Writes what waits on a connection.
    pub(super) fn write(&mut self, index: usize) {
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        connection.dirty = false;
        self.sent.clear();
        let waiting = connection.speech.outbox().len();
        let progress = connection.write(self.now, &mut self.sent);
        if connection.speech.outbox().len() < waiting {
            // A host that takes replies is there, even if its answer to a ping waits behind them.
            connection.last_heard = self.now;
            connection.pinged = None;
        }
        for name in self.sent.drain(..) {
            frontend::sent(&mut self.engine, &mut connection, name);
        }
        if progress == Progress::Closed {
            self.close(connection, "closed by the host");
            return;
        }
        if connection.starts_tls
            && connection.has_told_all()
            && !self.go_over_to_tls(&mut connection)
        {
            self.close(connection, "TLS could not begin");
            return;
        }
        if connection.speech.is_finished() && connection.has_told_all() {
            let reason = connection.farewell();
            self.close(connection, reason);
        } else {
            self.connections[index] = Some(connection);
            self.resume(index);
        }
    }

    /// Reads again from a connection that was left alone, if there is room for what it says.
    fn resume(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else { return };
        if connection.paused && !connection.is_stuck() && !connection.is_behind() {
            connection.paused = false;
            if !std::mem::replace(&mut connection.queued, true) {
                self.readable.push_back(index);
            }
        }
    }

    fn go_over_to_tls(&self, connection: &mut Connection) -> bool {
        connection.starts_tls = false;
        let (Some(config), Speech::Nbd(wire)) = (&self.tls, &mut connection.speech) else {
            return false;
        };
        if !connection.received.bytes().is_empty() {
            // Said in the clear behind the request for TLS, it may be from anybody.
            warn!(peer = %connection.peer, "unencrypted data where TLS must begin");
            return false;
        }
        let started = connection.socket.start_tls(Arc::clone(config));
        wire.tls_started();
        started.is_ok()
    }

    /// Ends a connection that has been taken out of its place. What it has in flight goes on and is
    /// told to nobody.
    pub(super) fn close(&mut self, mut connection: Box<Connection>, reason: &str) {
        // Deregistering a socket that is about to be closed can only fail if it is gone already.
        drop(self.poll.registry().deregister(&mut connection.socket));
        self.free.push(connection.id.index);
        self.counts[connection.protocol() as usize] -= 1;
        self.door.leave(connection.id);
        frontend::disconnected(&mut self.engine, *connection, reason);
    }

    /// Once a second: connections that do not log in or do not answer are given up.
    pub(super) fn tick(&mut self) {
        self.next_tick = self.now + TICK;
        self.engine.set.ended = true;
        if self.config.savings.is_some() && self.next_keep <= self.now {
            self.next_keep = self.now + KEEP_EVERY;
            self.questions.push_back(Question::Keep);
        }
        // Listeners tell of new connections once; those that no descriptor was free for wait still.
        for listener in &mut self.listeners {
            listener.ready = true;
        }
        for index in 0..self.connections.len() {
            if self.stop != Stop::No {
                // Nothing is read any more, so nobody can answer.
                break;
            }
            let Some(connection) = &self.connections[index] else { continue };
            if let Some(reason) = self.verdict_on(connection) {
                let connection = self.connections[index].take().expect("seen above");
                self.close(connection, reason);
                continue;
            }
            let silent = self.now.saturating_since(connection.last_heard);
            let Some(connection) = &mut self.connections[index] else { continue };
            if silent >= PING_AFTER
                && connection.pinged.is_none()
                && connection.speech.is_established()
                && let Some(wire) = connection.iscsi()
            {
                wire.ping();
                connection.pinged = Some(self.now);
                self.engine.set.actions.push_back(ConnectionAction::Write(connection.id));
            }
        }
        self.run_errands();
    }

    /// Why a connection is to be closed now, if it is.
    fn verdict_on(&self, connection: &Connection) -> Option<&'static str> {
        let since = |then| self.now.saturating_since(then);
        if connection.leave_by.is_some_and(|at| at <= self.now) {
            return Some("it did not log out when requested");
        }
        if !connection.entered {
            return (since(connection.opened) >= LOGIN_WITHIN).then_some("no login in time");
        }
        if let Some(pinged) = connection.pinged {
            return (since(pinged) >= PING_ANSWER_WITHIN).then_some("no answer to a ping");
        }
        if self.engine.set.waits_in_vain(connection.tasks.values().copied(), DATA_WITHIN) {
            return Some("write data did not arrive in time");
        }
        let discovers = matches!(connection.speech, Speech::Iscsi(_)) && connection.seat.is_none();
        (discovers && since(connection.last_heard) >= PING_AFTER)
            .then_some("an idle discovery session")
    }
}

/// Write data of a command must have come by then.
const DATA_WITHIN: Duration = Duration::from_secs(60);

/// How often connections are looked over.
const TICK: Duration = Duration::from_secs(1);

/// A connection must have logged in, or chosen its export, by then.
const LOGIN_WITHIN: Duration = Duration::from_secs(15);

/// A session that has been silent for so long is pinged; a discovery session is closed. NBD has no
/// pings: the kernel's keep-alive finds clients that are gone.
const PING_AFTER: Duration = Duration::from_secs(30);

/// A session that does not answer a ping within this time is given up.
const PING_ANSWER_WITHIN: Duration = Duration::from_secs(30);
