//! The iSCSI front end: turns PDUs of hosts into commands, and replies into PDUs.

mod management;
pub(crate) mod reply;
pub(crate) mod session;

use crate::frontend::connection::{Connection, Speech, Wire};
use crate::frontend::login_throttle::Login;
use crate::frontend::logins::Logins;
use crate::frontend::session_view::SessionView;
use crate::frontend::{Verdict, delays};
use crate::ids::TaskKey;
use crate::tasks::set::{Origin, TaskSet};
use crate::tasks::table::{Phase, Retries, Task, TaskKind};
use crate::tasks::{CommandEngine, ConnectionAction, Held};
use reply::put_data;
use session::{is_elsewhere, is_proof, may_stay, warn_of_depth, window_of};
use tracing::{info, warn};
use weir_flow::clock::Duration;
use weir_flow::pipeline::Input;
use weir_wire::iscsi::target_role::{
    Attribute, ChapFault, Command, Event, Itt, LoginFault, LoginStatus,
};
use weir_wire::scsi::cdb::Media;
use weir_wire::scsi::disk::execute_absent;
use weir_wire::scsi::lba_status::DESCRIPTORS_MAX;
use weir_wire::scsi::nexus::{InitiatorPort, Refusal};
use weir_wire::scsi::unit::Action;
use weir_wire::scsi::{ScsiStatus, Sense};

/// The iSCSI front end at work on one connection.
pub(crate) struct IscsiFrontend<'a> {
    pub(crate) engine: &'a mut CommandEngine,
    pub(crate) logins: &'a mut Logins,
}

impl IscsiFrontend<'_> {
    /// Handles everything that an iSCSI connection has received.
    pub(crate) fn receive(&mut self, connection: &mut Connection) -> Verdict {
        // Taken out, so that its bytes can be read while the connection changes.
        let mut received = std::mem::take(&mut connection.received);
        let verdict = loop {
            if connection.allowance.stops_before(received.bytes()) {
                break Verdict::Keep;
            }
            let Speech::Iscsi(wire) = &mut connection.speech else {
                unreachable!("only iSCSI connections come here")
            };
            match wire.receive(received.bytes()) {
                Ok(step) => {
                    let (consumed, idle) = (step.consumed, step.event.is_none());
                    if let Some(event) = step.event {
                        self.event(connection, event);
                    }
                    received.consume(consumed);
                    if consumed == 0 && idle {
                        break Verdict::Keep;
                    }
                }
                Err(problem) => {
                    let (peer, initiator) = (&connection.peer, wire.initiator());
                    let TaskSet { log, now, .. } = &self.engine.set;
                    log.line(*now, peer.source(), "protocol error; connection dropped", |text| {
                        warn!(%peer, initiator, %problem, "{text}");
                    });
                    break Verdict::Close;
                }
            }
        };
        connection.received = received;
        verdict
    }

    fn event(&mut self, connection: &mut Connection, event: Event<'_>) {
        let Speech::Iscsi(wire) = &mut connection.speech else { return };
        match event {
            Event::SessionRequested { initiator, isid, tsih, target, account, .. } => {
                let initiator = InitiatorPort { name: initiator, isid: isid.0 };
                self.session(connection, initiator, tsih, target, account.as_deref());
            }
            Event::CredentialsOffered { initiator, account } => {
                self.credentials(connection, &initiator, &account);
            }
            Event::LoginFailed { status, reason } => self.login_failed(connection, status, &reason),
            Event::Command(command) => self.command(connection, &command),
            Event::Data { itt, offset, bytes, complete } => {
                let Some(key) = self.live(connection, itt) else { return };
                self.engine.set.keep(key, offset as usize, bytes);
                if complete && self.engine.set.tasks[key].phase == Phase::Gathering {
                    self.engine.begin(key, connection.link());
                }
            }
            Event::TransferFailed { itt, sense } => {
                let (peer, TaskSet { log, now, .. }) = (&connection.peer, &self.engine.set);
                log.line(*now, peer.source(), "write data broke a rule", |text| {
                    warn!(%peer, itt = itt.0, ?sense, "{text}");
                });
                let key = self.live(connection, itt);
                if key.is_none_or(|key| self.engine.set.tasks[key].phase == Phase::Gathering) {
                    self.check(connection, itt, sense, key);
                    connection.tasks.remove(&itt.0);
                    if let Some(key) = key {
                        self.engine.set.finish(key);
                    }
                }
            }
            Event::TaskManagement { itt, function, lun, referenced_itt, .. } => {
                self.manage(connection, itt, function, lun, referenced_itt);
            }
            Event::Logout { itt, reason } => {
                let (peer, TaskSet { log, now, .. }) = (&connection.peer, &self.engine.set);
                log.line(*now, peer.source(), "logout", |text| info!(%peer, ?reason, "{text}"));
                wire.logout_response(itt);
            }
            // The event loop notes when bytes were read; the answer itself says nothing more.
            Event::Pong => {}
            Event::Rejected { opcode, reason } => {
                let (peer, TaskSet { log, now, .. }) = (&connection.peer, &self.engine.set);
                log.line(*now, peer.source(), "a PDU was rejected", |text| {
                    warn!(%peer, opcode, ?reason, "{text}");
                });
            }
        }
    }

    /// The task with this initiator task tag, unless it was aborted.
    fn live(&self, connection: &Connection, itt: Itt) -> Option<TaskKey> {
        self.engine.set.live(*connection.tasks.get(&itt.0)?, connection.id)
    }

    /// Answers CHECK CONDITION, in the format that the unit of the task uses.
    fn check(&self, connection: &mut Connection, itt: Itt, sense: Sense, key: Option<TaskKey>) {
        let unit =
            key.map(|key| &self.engine.catalog.volumes[self.engine.set.tasks[key].volume].unit);
        let sense = unit.map_or(sense, |unit| unit.worded(sense));
        if let Some(wire) = connection.iscsi() {
            wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0);
        }
    }

    /// Checks the credentials of a login, if that is allowed now.
    fn credentials(&mut self, connection: &mut Connection, initiator: &str, account: &str) {
        let Speech::Iscsi(wire) = &mut connection.speech else { return };
        let (peer, now) = (&connection.peer, self.engine.set.now);
        let source = peer.source();
        let login = Login::new(source, account, initiator);
        connection.login = Some(login);
        let wait = self.logins.wait(login, source, initiator, now);
        if wait > Duration::ZERO {
            let status = LoginStatus::ServiceUnavailable;
            let reason = format!("too many failed logins; again in {wait}");
            self.engine.set.log.line(now, source, LOGIN_REFUSED, |text| {
                warn!(%peer, initiator, ?status, reason, "{text}");
            });
            wire.login_refused(status);
        } else if let Some(event) = wire.check_credentials() {
            self.event(connection, event);
        }
    }

    /// A login was refused by its protocol.
    fn login_failed(
        &mut self,
        connection: &mut Connection,
        status: LoginStatus,
        reason: &LoginFault,
    ) {
        let Speech::Iscsi(wire) = &mut connection.speech else { return };
        let (peer, initiator, now) = (&connection.peer, wire.initiator(), self.engine.set.now);
        let (source, log) = (peer.source(), &self.engine.set.log);
        log.line(now, source, LOGIN_REFUSED, |text| {
            warn!(%peer, initiator, ?status, %reason, "{text}");
        });
        let account = match reason {
            LoginFault::Chap(
                ChapFault::WrongResponse { account } | ChapFault::UnknownAccount { name: account },
            ) => Some(account),
            _ => None,
        };
        let guess = account.and(connection.login);
        let wait = self.logins.refused(now, (source, initiator), status, guess);
        if let (Some(account), true) = (account, wait > Duration::ZERO) {
            let account = account.escape_debug();
            log.line(now, source, TOO_MANY, |text| warn!(%source, %account, %wait, "{text}"));
        }
    }

    /// Admits or refuses a session, and ends the one that it replaces.
    fn session(
        &mut self,
        connection: &mut Connection,
        initiator: InitiatorPort,
        tsih: u16,
        target: Option<usize>,
        account: Option<&str>,
    ) {
        let (link, way) = (connection.link(), connection.way(true));
        let Speech::Iscsi(wire) = &mut connection.speech else { return };
        let peer = &connection.peer;
        let view = target.map(|index| {
            let place = &self.engine.catalog.targets[index];
            SessionView::new(
                initiator.clone(),
                index,
                place,
                &self.engine.catalog.volumes,
                &self.engine.catalog.claims,
            )
        });
        // RFC 7143 section 6.3.5: MaxConnections is 1, so a session takes no second connection.
        let refusal = match &view {
            _ if tsih != 0 && self.engine.set.sessions.has(tsih) => {
                Some(LoginStatus::TooManyConnections)
            }
            _ if tsih != 0 => Some(LoginStatus::SessionDoesNotExist),
            Some(view) if is_elsewhere(&self.engine.catalog, view) => {
                Some(LoginStatus::ServiceUnavailable)
            }
            Some(view)
                if !may_stay(&self.engine.catalog, view)
                    || !is_proof(&self.engine.catalog, view, account) =>
            {
                Some(LoginStatus::AuthorizationFailure)
            }
            _ => None,
        };
        if let Some(status) = refusal {
            let initiator = initiator.name;
            self.engine.set.log.line(self.engine.set.now, peer.source(), LOGIN_REFUSED, |text| {
                warn!(%peer, initiator, ?status, "{text}");
            });
            let (source, now) = (peer.source(), self.engine.set.now);
            self.logins.refused(now, (source, wire.initiator()), status, None);
            wire.login_refused(status);
            return;
        }
        if let (Some(login), Some(_)) = (connection.login, account) {
            self.logins.proved(login, self.engine.set.now);
        }
        let name = (initiator, target);
        let proven = account.map(str::to_owned);
        let (tsih, old) = self.engine.set.sessions.enter(name, connection.id, proven);
        self.engine
            .set
            .actions
            .extend(old.map(|old| ConnectionAction::Close(old, "the session was reinstated")));
        let window = window_of(self.engine, view.as_ref(), 1);
        wire.set_window(window);
        wire.session_admitted(tsih);
        self.engine.set.inputs.push_back(Input::Link(link, way));
        let reinstated = old.is_some();
        let target =
            target.map_or("(discovery)", |target| &self.engine.catalog.targets[target].name);
        let initiator = wire.initiator();
        let TaskSet { log, now, hosts, .. } = &self.engine.set;
        hosts.enter(*now, link, peer, Some(initiator));
        log.line(*now, peer.source(), "session", |text| {
            info!(%peer, initiator, account, target, tsih, reinstated, "{text}");
        });
        if let Some(view) = &view {
            warn_of_depth(self.engine, view);
        }
        self.engine.set.actions.push_back(ConnectionAction::Share);
        connection.serves = view.is_some();
        if let Some(seen) = view.as_ref().and_then(|view| view.units.first()) {
            let claim = view.as_ref().and_then(|view| view.claim);
            connection.tenant = self.engine.catalog.tenant(claim, seen.volume);
        }
        connection.view = view;
    }

    /// Takes a command in if there is memory for its payload.
    fn take_in(
        &mut self,
        connection: &mut Connection,
        itt: Itt,
        held: Held,
        task: Task,
    ) -> Option<TaskKey> {
        let claim = connection.view.as_ref().and_then(|view| view.claim);
        connection.tenant = self.engine.catalog.tenant(claim, task.volume);
        let tenant = connection.tenant.index();
        let origin =
            Origin { connection: connection.id, claim, name: itt.0, retries: Retries::Host };
        let key = self.engine.set.take_in(origin, tenant, held, task)?;
        connection.tasks.insert(itt.0, key);
        Some(key)
    }

    fn command(&mut self, connection: &mut Connection, command: &Command<'_>) {
        let itt = command.itt;
        connection.allowance.take(command.expected_length.into());
        let Connection { speech: Speech::Iscsi(wire), view: Some(view), .. } = connection else {
            let sense = Sense::LOGICAL_UNIT_NOT_SUPPORTED;
            self.check(connection, itt, sense, None);
            return;
        };
        let Some(unit) = view.unit(command.lun) else {
            match execute_absent(&command.cdb, view.numbers()) {
                Ok(Action::Data(data)) => put_data(wire, itt, &data),
                Ok(_) => unreachable!("an absent unit does nothing"),
                Err(sense) => wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0),
            }
            return;
        };
        let nexus = view.nexus.clone();
        let (port, seen) = view.look_at(unit);
        let index = seen.volume;
        let volume = &mut self.engine.catalog.volumes[index];
        if volume.change.is_some() && matches!(command.cdb[0], RESERVE_6 | RELEASE_6) {
            // A conflict is known only when the other reservation is saved.
            wire.respond(itt, ScsiStatus::Busy, None, 0);
            return;
        }
        match volume.unit.execute(&nexus, &port, &mut seen.attention, &command.cdb) {
            Ok(Action::Data(bytes)) => put_data(wire, itt, &bytes),
            Ok(Action::Done(effects)) => {
                self.engine.spread(index, &nexus, effects);
                if self.engine.catalog.volumes[index].has_left_failure() {
                    self.gather(connection, command, index, TaskKind::Internal, 0);
                } else {
                    wire.respond(itt, ScsiStatus::Good, None, 0);
                }
            }
            Ok(Action::Media(media)) => self.media(connection, command, index, media),
            Ok(Action::Parameters(list)) => {
                let length = list.length();
                let kind = TaskKind::Parameters(list, nexus);
                self.gather(connection, command, index, kind, length);
            }
            Ok(Action::Map { lba, blocks, allocation }) => {
                let block = u64::from(volume.block_size());
                let kind = TaskKind::Map {
                    offset: lba * block,
                    length: blocks * block,
                    max: DESCRIPTORS_MAX,
                    allocation,
                };
                self.gather(connection, command, index, kind, 0);
            }
            Ok(Action::Sanitize(plan)) => {
                let task = Task::new(self.engine.set.now, index, TaskKind::Internal);
                match self.take_in(connection, itt, Held { data: 0, medium: 0 }, task) {
                    Some(key) => self.engine.sanitize(key, index, plan),
                    None => self.full(connection, itt),
                }
            }
            Err(refusal) => self.refuse(connection, itt, index, refusal),
        }
    }

    /// Answers a command that the unit of a volume has refused.
    fn refuse(&mut self, connection: &mut Connection, itt: Itt, volume: usize, refusal: Refusal) {
        if delays(self.engine, connection, itt.0, volume, refusal) {
            return;
        }
        let Some(wire) = connection.iscsi() else { return };
        match refusal {
            Refusal::Check(sense) => {
                wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0);
            }
            Refusal::Conflict => wire.respond(itt, ScsiStatus::ReservationConflict, None, 0),
        }
    }

    /// There is no payload memory for a command.
    fn full(&mut self, connection: &mut Connection, itt: Itt) {
        let (peer, TaskSet { log, now, .. }) = (&connection.peer, &self.engine.set);
        log.line(*now, peer.source(), "task set full: no payload memory for a command", |text| {
            warn!(%peer, "{text}");
        });
        if let Some(wire) = connection.iscsi() {
            wire.respond(itt, ScsiStatus::TaskSetFull, None, 0);
        }
    }

    /// Takes in a command that concerns the medium.
    fn media(
        &mut self,
        connection: &mut Connection,
        command: &Command<'_>,
        volume: usize,
        media: Media,
    ) {
        let block = self.engine.catalog.volumes[volume].block_size();
        let offered = if command.writes { command.expected_length } else { 0 };
        match media.check_data_out(offered, block) {
            Ok(wanted) => self.gather(connection, command, volume, TaskKind::Media(media), wanted),
            Err(sense) => {
                let length = media.data_out_length(block) as u32;
                let sense = self.engine.catalog.volumes[volume].unit.worded(sense);
                if let Some(wire) = connection.iscsi() {
                    let status = ScsiStatus::CheckCondition;
                    wire.respond(command.itt, status, Some(&sense), length);
                }
            }
        }
    }

    /// Takes in a command and asks for its data, of which there are `wanted` bytes.
    fn gather(
        &mut self,
        connection: &mut Connection,
        command: &Command<'_>,
        volume: usize,
        kind: TaskKind,
        wanted: u32,
    ) {
        let itt = command.itt;
        let offered = if command.writes { command.expected_length } else { 0 };
        if matches!(kind, TaskKind::Parameters(..)) && offered < wanted {
            // SPC-4 section 4.3.5.3: a list that is cut off is wrong.
            let sense =
                self.engine.catalog.volumes[volume].unit.worded(Sense::PARAMETER_LIST_LENGTH_ERROR);
            if let Some(wire) = connection.iscsi() {
                wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0);
            }
            return;
        }
        let held = match &kind {
            TaskKind::Media(media) => {
                Held::of(media, wanted, self.engine.catalog.volumes[volume].block_size())
            }
            _ => Held { data: wanted, medium: 0 },
        };
        let mut task = Task::new(self.engine.set.now, volume, kind);
        task.order.ordered = command.attribute == Attribute::Ordered;
        let Some(key) = self.take_in(connection, itt, held, task) else {
            self.full(connection, itt);
            return;
        };
        self.engine.set.keep(key, 0, command.immediate);
        let waits = connection.iscsi().is_some_and(|wire: &mut Wire| wire.solicit(itt, wanted));
        if waits {
            self.engine.await_data(key);
        } else {
            self.engine.begin(key, connection.link());
        }
    }
}

const RESERVE_6: u8 = 0x16;
const RELEASE_6: u8 = 0x17;

const LOGIN_REFUSED: &str = "login refused";
const TOO_MANY: &str = "too many failed logins: more from there are refused for a while";
