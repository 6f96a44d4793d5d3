//! The connections of hosts: reading, writing, closing, and closing those that are silent.

mod idle;
mod moves;
mod nvme;

use super::kernel::Kernel;
use super::read_queue::ReadQueue;
use crate::config::Config;
use crate::frontend::channel::{Channel, Presence, Progress, Reading};
use crate::frontend::connection::{Allowance, Connection, Encryption, Protocol, Speech};
use crate::frontend::iscsi::session::{take_leave, tenants_of, window_of};
use crate::frontend::login_queue::LoginQueue;
use crate::frontend::logins::Logins;
use crate::frontend::nvme::controllers::Controllers;
use crate::frontend::socket::{Socket, Stream};
use crate::frontend::{self, Verdict};
use crate::ids::ConnectionId;
use crate::tasks::reply::Reply;
use crate::tasks::{CommandEngine, ConnectionAction};
use idle::PING_AFTER;
use rustls::ServerConfig;
use std::io;
use std::sync::Arc;
use weir_flow::accept::intake::QUANTUM;
use weir_flow::clock::Instant;
use weir_flow::dispatch::Shares;
use weir_flow::transfer::Port;
use weir_wire::iscsi::target_role::{LoginStatus, TmfResponse};
use weir_wire::scsi::Sense;

/// A connection with its socket.
struct Connected<S: Stream> {
    connection: Connection,
    channel: Channel<S>,
}

/// A connection that was accepted.
pub(crate) struct Incoming<S: Stream> {
    pub(crate) socket: Socket<S>,
    /// Where its replies leave, if others leave there as well.
    pub(crate) port: Option<Port>,
    pub(crate) speech: Speech,
    /// It gets a status for its first request, and counts towards no limit of connections.
    pub(crate) turned_away: bool,
}

/// The connections by index. An index is used again; the serial number of a [`ConnectionId`] is not.
pub(crate) struct Connections<S: Stream> {
    /// The first place stays empty: it stands for the gateway, for requests that no host has sent.
    places: Vec<Option<Box<Connected<S>>>>,
    free: Vec<usize>,
    /// Connections of each protocol.
    counts: [u32; Protocol::COUNT],
    serial: u64,
    /// Connections with bytes to handle.
    reads: ReadQueue,
    /// Connections with something to write.
    dirty: Vec<usize>,
    /// The list that is `dirty` while that one is written.
    spare_dirty: Vec<usize>,
    /// Names of replies that have left; its memory is used again.
    sent: Vec<u32>,
    /// Connections that have not logged in.
    logging_in: LoginQueue<ConnectionId>,
    /// Connections that were turned away and have not got their status.
    leaving: LoginQueue<ConnectionId>,
    pub(crate) logins: Logins,
    controllers: Controllers,
    tls: Option<Arc<ServerConfig>>,
    /// Nothing is read any more: a stop was requested.
    draining: bool,
    /// Nothing is read of the sessions of these targets: their volumes are being moved.
    frozen: Vec<usize>,
}

impl<S: Stream> Connections<S> {
    /// None yet.
    pub(crate) fn new(config: &Config, tls: Option<Arc<ServerConfig>>) -> Self {
        Self {
            places: vec![None],
            free: Vec::new(),
            counts: [0; Protocol::COUNT],
            serial: 0,
            reads: ReadQueue::new(&config.shares),
            dirty: Vec::new(),
            spare_dirty: Vec::new(),
            sent: Vec::new(),
            logging_in: LoginQueue::new(config.iscsi.max_logins),
            leaving: LoginQueue::new(TURNED_AWAY_MAX),
            logins: Logins::new(),
            controllers: Controllers::new(frontend::nvme::limits(&config.nvme)),
            tls,
            draining: false,
            frozen: Vec::new(),
        }
    }

    /// All connections.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Connection> {
        self.places.iter().flatten().map(|one| &one.connection)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.places.iter_mut().flatten().map(|one| &mut one.connection)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts == [0; Protocol::COUNT]
    }

    /// Whether some have more to read, of which no event tells.
    pub(crate) fn has_more(&self) -> bool {
        !self.reads.is_empty()
    }

    /// Tenants have other weights from now on.
    pub(crate) fn set_weights(&mut self, shares: &Shares) {
        self.reads.set_weights(shares);
    }

    /// Whether one more connection of this protocol may be there, of at most `limit`. The one that has been
    /// logging in for longest is closed for it.
    pub(crate) fn make_room(
        &mut self,
        engine: &mut CommandEngine,
        protocol: Protocol,
        limit: u32,
    ) -> bool {
        if self.counts[protocol as usize] < limit {
            return true;
        }
        let places = &self.places;
        let longest = self.logging_in.longest(|id| {
            let place = places[id.index].as_deref();
            place.is_some_and(|one| one.connection.protocol() == protocol)
        });
        if let Some(longest) = longest {
            self.close_id(engine, longest, "others wait to log in");
        }
        longest.is_some()
    }

    /// Takes a new connection in.
    pub(crate) fn enter<K: Kernel<Stream = S>>(
        &mut self,
        kernel: &mut K,
        engine: &mut CommandEngine,
        now: Instant,
        Incoming { mut socket, port, speech, turned_away }: Incoming<S>,
    ) -> io::Result<()> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        if let Err(error) = kernel.watch(&mut socket, index) {
            self.free.push(index);
            return Err(error);
        }
        self.serial += 1;
        let id = ConnectionId { index, serial: self.serial };
        let mut connection = Connection::new(id, socket.peer().clone(), port, speech);
        connection.turned_away = turned_away;
        self.counts[connection.protocol() as usize] += u32::from(!turned_away);
        let connected = Connected { connection, channel: Channel::new(socket, now) };
        self.places[index] = Some(Box::new(connected));
        let queue = if turned_away { &mut self.leaving } else { &mut self.logging_in };
        if let Some(longest) = queue.enter(id) {
            self.close_id(engine, longest, "others wait to log in");
        }
        // NBD speaks first.
        self.write(engine, now, index);
        Ok(())
    }

    /// A connection has bytes, as an event says. `ends`: the host sends nothing more.
    pub(crate) fn readable(&mut self, index: usize, ends: bool) {
        let Some(Some(connected)) = self.places.get_mut(index) else { return };
        let channel = &mut connected.channel;
        channel.ends |= ends;
        // No other event comes for these bytes, even if bytes before them are still to be handled.
        channel.has_more = true;
        if channel.reading != Reading::Queued {
            channel.reading = Reading::Queued;
            self.reads.push(index);
        }
    }

    /// One round: reads from connections that have bytes, and handles what their tenants may take in now.
    pub(crate) fn read_on(&mut self, engine: &mut CommandEngine, now: Instant) {
        if self.reads.is_empty() {
            return;
        }
        for _ in 0..self.reads.begin_round() {
            let index = self.reads.take_arrived().expect("counted");
            match self.places[index].as_deref() {
                Some(one) if one.connection.speech.is_established() => {
                    self.reads.enter(one.connection.tenant, index);
                }
                _ => {
                    self.read(engine, now, index, Allowance::unlimited());
                }
            }
        }
        while let Some((tenant, index)) = self.reads.next() {
            let taken = self.read(engine, now, index, Allowance::of(QUANTUM));
            self.reads.took(tenant, index, taken.taken, taken.left_over);
        }
    }

    /// Reads from a connection once, unless it has bytes left over, and handles the bytes as far as the allowance goes.
    /// Returns what it has taken in.
    fn read(
        &mut self,
        engine: &mut CommandEngine,
        now: Instant,
        index: usize,
        allowance: Allowance,
    ) -> Allowance {
        let Some(mut connected) = self.places.get_mut(index).and_then(Option::take) else {
            return allowance;
        };
        let Connected { connection, channel } = &mut *connected;
        channel.reading = Reading::OnEvent;
        let is_frozen =
            connection.view.as_ref().is_some_and(|view| self.frozen.contains(&view.target));
        let is_over = self.draining && connection.speech.is_established() || is_frozen;
        if is_over || connection.is_behind() || connection.is_stuck() {
            channel.reading = Reading::Paused;
            self.places[index] = Some(connected);
            return allowance;
        }
        if channel.ends && connection.protocol() == Protocol::Nvme {
            // What was not read of a lost queue was never done: its host may have sent it again elsewhere.
            self.close(engine, connected, "closed by the host");
            return allowance;
        }
        if !connection.allowance.left_over {
            let progress = channel.read(connection);
            if progress == Progress::Closed {
                self.close(engine, connected, "closed by the host");
                return allowance;
            }
            channel.presence.heard(now);
            channel.has_more = progress == Progress::More;
        }
        connection.allowance = allowance;
        self.handle(engine, now, connected);
        self.run_actions(engine, now);
        let Some(Connected { connection, channel }) = self.places[index].as_deref_mut() else {
            return allowance;
        };
        let mut taken = connection.allowance;
        if channel.reading != Reading::OnEvent {
            // It is paused, or in the queue already.
            taken.left_over = false;
        } else if taken.left_over {
            channel.reading = Reading::Queued;
        } else if channel.has_more {
            channel.reading = Reading::Queued;
            self.reads.push(index);
        }
        taken
    }

    /// Handles what a connection has received, and puts it back into its place.
    fn handle(
        &mut self,
        engine: &mut CommandEngine,
        now: Instant,
        mut connected: Box<Connected<S>>,
    ) {
        let Connected { connection, channel } = &mut *connected;
        let index = connection.id.index;
        engine.set.now = now;
        let established = connection.speech.is_established();
        let verdict =
            frontend::receive(engine, &mut self.logins, &mut self.controllers, connection);
        if connection.is_stuck() {
            // The bytes that are left are handled when there is room for them.
            channel.reading = Reading::Paused;
        }
        if !established && connection.speech.is_established() {
            self.logging_in.leave(connection.id);
            channel.presence = Presence::Heard { at: now };
            channel.keep_alive(&engine.set.log, now, &connection.peer);
        }
        if !channel.dirty && (!connection.speech.outbox().is_empty() || channel.wants_write()) {
            channel.dirty = true;
            self.dirty.push(index);
        }
        match verdict {
            Verdict::Keep if connection.speech.is_finished() => {
                let reason = connection.farewell();
                self.close(engine, connected, reason);
            }
            Verdict::Keep => self.places[index] = Some(connected),
            Verdict::Close => {
                // The last bytes may tell the host why.
                self.sent.clear();
                channel.write(connection, now, &mut self.sent);
                self.close(engine, connected, "the host broke the protocol");
            }
        }
    }

    /// Does what the command engine wants done with connections.
    pub(crate) fn run_actions(&mut self, engine: &mut CommandEngine, now: Instant) {
        while let Some(action) = engine.set.actions.pop_front() {
            match action {
                ConnectionAction::Write(id) => self.mark_dirty(id),
                ConnectionAction::Close(id, reason) => {
                    self.write(engine, now, id.index);
                    self.close_id(engine, id, reason);
                }
                ConnectionAction::Abandon(id, itt, key) => {
                    // The tag may name another command by now.
                    let of = |one: &&mut Connection| one.tasks.get(&itt.0) == Some(&key);
                    if let Some(connection) = self.find(id).filter(of) {
                        let window = window_of(engine, connection.view.as_ref(), 0);
                        connection.tasks.remove(&itt.0);
                        if let Some(wire) = connection.iscsi() {
                            wire.abandon(itt);
                            // Opens the window again if that was its last command.
                            wire.set_window(window);
                        }
                        self.preempted(engine, id, itt.0);
                        self.mark_dirty(id);
                    }
                }
                ConnectionAction::Preempt(id, volume) => self.preempt(engine, id, volume),
                ConnectionAction::Managed(id, itt) => {
                    if let Some(wire) = self.find(id).and_then(Connection::iscsi) {
                        wire.task_management_response(itt, TmfResponse::Complete);
                        self.mark_dirty(id);
                    }
                }
                ConnectionAction::Attention(from, volume, attention) => {
                    for connection in self.all_mut().filter(|one| Some(one.id) != from) {
                        if let Some(view) = &mut connection.view {
                            view.attend(volume, attention);
                        }
                    }
                    if attention == Sense::CAPACITY_CHANGED {
                        self.refresh_namespaces(engine);
                    }
                }
                ConnectionAction::Tell(who, volume, attention) => {
                    self.tell(engine, &who, volume, attention);
                }
                ConnectionAction::Answer(key) => {
                    // It may have been answered, or forgotten with its connection, meanwhile.
                    if engine.set.tasks.contains_key(key) {
                        let reply = engine.answer(key, None);
                        self.send(engine, reply);
                    }
                }
                ConnectionAction::Feed(id) => self.feed(engine, now, id),
                ConnectionAction::Abort(abort) => self.abort(engine, now, abort),
                ConnectionAction::Aborted(id, slot, completion) => {
                    if let Some(Speech::Nvme(admin)) = self.find(id).map(|one| &mut one.speech) {
                        admin.wire.respond(slot, completion);
                        self.mark_dirty(id);
                    }
                }
                ConnectionAction::Share => self.share_window(engine),
            }
        }
    }

    /// Handles what a connection has received, for which there may be payload memory now.
    fn feed(&mut self, engine: &mut CommandEngine, now: Instant, id: ConnectionId) {
        let frozen = &self.frozen;
        let place = self.places.get(id.index).and_then(Option::as_deref);
        let view = place.and_then(|one| one.connection.view.as_ref());
        if self.draining || view.is_some_and(|view| frozen.contains(&view.target)) {
            return;
        }
        if let Some(mut connected) = self.take(id) {
            connected.connection.allowance = Allowance::unlimited();
            self.handle(engine, now, connected);
            self.resume(id.index);
        }
        if self.find(id).is_none_or(|fed| !fed.is_hungry()) {
            // It has left some for the next.
            engine.set.feed_next();
        }
    }

    /// Has the front end of its connection put a reply into the outbox.
    pub(crate) fn send(&mut self, engine: &mut CommandEngine, reply: Option<Reply>) {
        let Some(reply) = reply else { return };
        let id = engine.set.tasks[reply.task].connection;
        let place = id.and_then(|id| self.places.get_mut(id.index)?.as_deref_mut());
        match place.filter(|one| Some(one.connection.id) == id) {
            Some(one) => {
                if !std::mem::replace(&mut one.channel.dirty, true) {
                    self.dirty.push(one.connection.id.index);
                }
                frontend::reply(engine, &mut self.controllers, &mut one.connection, reply);
            }
            None => engine.unheard(reply),
        }
    }

    /// A connection, unless it was closed.
    fn find(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let connected = self.places.get_mut(id.index)?.as_deref_mut();
        connected.map(|one| &mut one.connection).filter(|found| found.id == id)
    }

    /// A connection, out of its place.
    fn take(&mut self, id: ConnectionId) -> Option<Box<Connected<S>>> {
        self.places.get_mut(id.index)?.take_if(|one| one.connection.id == id)
    }

    /// Puts a connection on the list of those with something to write.
    fn mark_dirty(&mut self, id: ConnectionId) {
        if let Some(Some(one)) = self.places.get_mut(id.index)
            && one.connection.id == id
            && !std::mem::replace(&mut one.channel.dirty, true)
        {
            self.dirty.push(id.index);
        }
    }

    fn share_window(&mut self, engine: &mut CommandEngine) {
        let views = self.places.iter().flatten().filter_map(|one| one.connection.view.as_ref());
        let catalog = &engine.catalog;
        let sessions = views.map(|view| tenants_of(catalog, Some(view)));
        engine.set.quotas.count_sessions(sessions);
        for connection in self.all_mut() {
            let window = window_of(engine, connection.view.as_ref(), 0);
            if let Some(wire) = connection.iscsi() {
                wire.set_window(window);
            }
            if !connection.speech.outbox().is_empty() {
                engine.set.actions.push_back(ConnectionAction::Write(connection.id));
            }
        }
    }

    /// Writes the outboxes of all connections that have something to write; false if there is none.
    pub(crate) fn write_dirty(&mut self, engine: &mut CommandEngine, now: Instant) -> bool {
        if self.dirty.is_empty() {
            return false;
        }
        let mut dirty = std::mem::replace(&mut self.dirty, std::mem::take(&mut self.spare_dirty));
        for index in dirty.drain(..) {
            self.write(engine, now, index);
        }
        self.spare_dirty = dirty;
        true
    }

    /// Writes the outbox of a connection.
    pub(crate) fn write(&mut self, engine: &mut CommandEngine, now: Instant, index: usize) {
        let Some(mut connected) = self.places.get_mut(index).and_then(Option::take) else {
            return;
        };
        let Connected { connection, channel } = &mut *connected;
        channel.dirty = false;
        self.sent.clear();
        let waiting = connection.speech.outbox().len();
        let progress = channel.write(connection, now, &mut self.sent);
        if connection.speech.outbox().len() < waiting {
            // A host that takes replies is there, even if its answer to a ping waits behind them.
            channel.presence.heard(now);
        }
        for name in self.sent.drain(..) {
            frontend::sent(engine, connection, name);
        }
        if progress == Progress::Closed {
            self.close(engine, connected, "closed by the host");
            return;
        }
        if connection.encryption == Encryption::Requested
            && channel.has_sent_all(connection)
            && !channel.start_tls(&engine.set.log, now, connection, self.tls.as_ref())
        {
            self.close(engine, connected, "TLS could not begin");
            return;
        }
        if connection.speech.is_finished() && channel.has_sent_all(connection) {
            let reason = connection.farewell();
            self.close(engine, connected, reason);
        } else {
            self.places[index] = Some(connected);
            self.resume(index);
        }
    }

    /// Reads again from a paused connection, if its outbox and its memory have room.
    fn resume(&mut self, index: usize) {
        let Some(connected) = &mut self.places[index] else { return };
        let Connected { connection, channel } = &mut **connected;
        if channel.reading == Reading::Paused && !connection.is_stuck() && !connection.is_behind() {
            channel.reading = Reading::Queued;
            self.reads.push(index);
        }
    }

    /// Ends a connection that was taken out of its place. Its requests in flight end without a reply.
    /// The kernel forgets its socket when that is closed.
    #[expect(
        clippy::boxed_local,
        reason = "it comes in the box of its place, and is taken apart here"
    )]
    fn close(&mut self, engine: &mut CommandEngine, connected: Box<Connected<S>>, reason: &str) {
        let Connected { connection, channel } = *connected;
        self.free.push(connection.id.index);
        self.counts[connection.protocol() as usize] -= u32::from(!connection.turned_away);
        self.logging_in.leave(connection.id);
        self.leaving.leave(connection.id);
        frontend::disconnected(engine, &mut self.controllers, connection, reason);
        drop(channel);
    }

    fn close_id(&mut self, engine: &mut CommandEngine, id: ConnectionId, reason: &str) {
        if let Some(old) = self.take(id) {
            self.close(engine, old, reason);
        }
    }

    /// Once a second: closes connections that do not log in, and pings silent ones.
    pub(crate) fn tick(&mut self, engine: &mut CommandEngine, now: Instant) {
        self.tick_nvme(engine, now);
        for index in 0..self.places.len() {
            if self.draining {
                // Nothing is read any more, so no host can answer.
                break;
            }
            let Some(connected) = &mut self.places[index] else { continue };
            if let Some(reason) = connected.is_over(engine, now) {
                let connected = self.places[index].take().expect("it is there");
                self.close(engine, connected, reason);
                continue;
            }
            let Connected { connection, channel } = &mut **connected;
            if let Presence::Heard { at } = channel.presence
                && now.saturating_since(at) >= PING_AFTER
                && connection.speech.is_established()
                && let Some(wire) = connection.iscsi()
            {
                wire.ping();
                channel.presence = Presence::Pinged { at: now };
                engine.set.actions.push_back(ConnectionAction::Write(connection.id));
            }
        }
        self.run_actions(engine, now);
    }

    /// Takes no commands any more, and turns away hosts that log in.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
        for connection in self.all_mut().filter(|one| !one.speech.is_established()) {
            if let Some(wire) = connection.iscsi() {
                wire.refuse_logins(LoginStatus::ServiceUnavailable);
            }
        }
    }

    /// A sentence for the service manager.
    pub(crate) fn summary(&self) -> String {
        format!("serving {} connections", self.all().count())
    }

    /// Announces to all sessions that their connections are dropped, and writes that at once. `kept`: hosts can
    /// connect again at once.
    pub(crate) fn take_leave(&mut self, engine: &mut CommandEngine, now: Instant, kept: bool) {
        for connection in self.all_mut() {
            take_leave(engine, connection, kept);
        }
        self.run_actions(engine, now);
        self.write_dirty(engine, now);
    }

    /// Whether everything that was put into outboxes has left.
    pub(crate) fn have_sent_all(&mut self) -> bool {
        let mut connected = self.places.iter_mut().flatten();
        connected.all(|one| one.channel.has_sent_all(&mut one.connection))
    }

    /// Shows all connections what a reload has changed for them.
    pub(crate) fn refresh(&mut self, engine: &mut CommandEngine) {
        for connection in self.all_mut() {
            frontend::refresh(engine, connection);
        }
        self.refresh_namespaces(engine);
    }
}

/// Connections that were turned away and may be open until they have got their status; one more closes the one that
/// has waited longest.
pub(crate) const TURNED_AWAY_MAX: u32 = 64;
