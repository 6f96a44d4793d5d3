//! What hosts say over iSCSI, and what is done about it.

use crate::frontend::Verdict;
use crate::frontend::connection::{Connection, Speech, Wire};
use crate::frontend::session_view::Seat;
use crate::ids::TaskKey;
use crate::tasks::table::{Deed, Phase, Task};
use crate::tasks::{Desk, Errand, Held, put_data};
use std::collections::BTreeSet;
use tracing::{info, warn};
use weir_flow::pipeline::Input;
use weir_wire::iscsi::target_role::{Attribute, Command, Event, Itt, LoginStatus};
use weir_wire::scsi::cdb::Media;
use weir_wire::scsi::disk::execute_absent;
use weir_wire::scsi::lba_status::DESCRIPTORS_MAX;
use weir_wire::scsi::nexus::{InitiatorPort, Refusal};
use weir_wire::scsi::unit::Action;
use weir_wire::scsi::{ScsiStatus, Sense};

impl Desk {
    /// Deals with everything that an iSCSI connection has received.
    pub(crate) fn receive_iscsi(&mut self, connection: &mut Connection) -> Verdict {
        // Lent out, so that its bytes can be looked at while the connection changes.
        let mut received = std::mem::take(&mut connection.received);
        let verdict = loop {
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
                    warn!(%peer, initiator, %problem, "protocol error; connection dropped");
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
            Event::LoginFailed { status, reason } => {
                let (peer, initiator) = (&connection.peer, wire.initiator());
                warn!(%peer, initiator, ?status, %reason, "login refused");
                connection.login_failed = is_guess(status);
            }
            Event::Command(command) => self.command(connection, &command),
            Event::Data { itt, offset, bytes, complete } => {
                let Some(key) = self.live(connection, itt) else { return };
                self.keep(key, offset as usize, bytes);
                if complete && self.tasks[key].phase == Phase::Gathering {
                    self.begin(connection, key);
                }
            }
            Event::TransferFailed { itt, sense } => {
                if self.faults.speaks() {
                    let faults_total = self.faults.total();
                    let peer = &connection.peer;
                    warn!(%peer, itt = itt.0, ?sense, faults_total, "write data broke a rule");
                }
                let key = self.live(connection, itt);
                if key.is_none_or(|key| self.tasks[key].phase == Phase::Gathering) {
                    self.check(connection, itt, sense, key);
                    connection.tasks.remove(&itt.0);
                    if let Some(key) = key {
                        self.finish(key);
                    }
                }
            }
            Event::TaskManagement { itt, function, lun, referenced_itt, .. } => {
                self.manage(connection, itt, function, lun, referenced_itt);
            }
            Event::Logout { itt, reason } => {
                info!(peer = %connection.peer, ?reason, "logout");
                wire.logout_response(itt);
            }
            // That it was heard at all is what counts, and that is noted where it was read.
            Event::Pong => {}
            Event::Rejected { opcode, reason } => {
                if self.faults.speaks() {
                    let faults_total = self.faults.total();
                    let peer = &connection.peer;
                    warn!(%peer, opcode, ?reason, faults_total, "a PDU was rejected");
                }
            }
        }
    }

    /// The task of this name that the connection still waits for.
    fn live(&self, connection: &Connection, itt: Itt) -> Option<TaskKey> {
        let key = *connection.tasks.get(&itt.0)?;
        let task = self.tasks.get(key)?;
        (task.connection == Some(connection.id)).then_some(key)
    }

    /// Answers CHECK CONDITION, in the format that the unit of the task uses.
    fn check(&self, connection: &mut Connection, itt: Itt, sense: Sense, key: Option<TaskKey>) {
        let unit = key.map(|key| &self.volumes[self.tasks[key].volume].unit);
        let sense = unit.map_or(sense, |unit| unit.worded(sense));
        if let Some(wire) = connection.iscsi() {
            wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0);
        }
    }

    /// Decides about a session, and ends the one that it replaces.
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
        let seat = target.map(|index| {
            let place = &self.targets[index];
            Seat::new(initiator.clone(), index, place, &self.volumes, &self.claims)
        });
        // RFC 7143 section 6.3.5: MaxConnections is 1, so a session takes no second connection.
        let refusal = match &seat {
            _ if tsih != 0 && self.sessions.has(tsih) => Some(LoginStatus::TooManyConnections),
            _ if tsih != 0 => Some(LoginStatus::SessionDoesNotExist),
            Some(seat) if !self.may_stay(seat) || !self.is_proof(seat, account) => {
                Some(LoginStatus::AuthorizationFailure)
            }
            _ => None,
        };
        if let Some(status) = refusal {
            warn!(%peer, initiator = initiator.name, ?status, "login refused");
            wire.session_refused(status);
            connection.login_failed = is_guess(status);
            return;
        }
        let name = (initiator, target);
        let proven = account.map(str::to_owned);
        let (tsih, old) = self.sessions.enter(name, connection.id, proven);
        self.errands.extend(old.map(|old| Errand::Close(old, "the session was reinstated")));
        let window = self.window_of(seat.as_ref(), 1);
        wire.set_window(window);
        wire.session_admitted(tsih);
        self.inbox.push_back(Input::Link(link, way));
        let reinstated = old.is_some();
        let target = target.map_or("(discovery)", |target| &self.targets[target].name);
        let initiator = wire.initiator();
        info!(%peer, initiator, account, target, tsih, reinstated, "session");
        if let Some(seat) = &seat {
            self.warn_of_depth(seat);
        }
        self.errands.push_back(Errand::Share);
        connection.widen = seat.is_some();
        connection.seat = seat;
    }

    /// Warns of contracts that are out of reach: with so many commands outstanding no host gets more
    /// than that many per response time (Little's law).
    pub(crate) fn warn_of_depth(&self, seat: &Seat) {
        let window = self.window_of(Some(seat), 0);
        let tenants = seat.units.iter().map(|seen| self.tenant(seat.claim, seen.volume));
        for tenant in tenants.collect::<BTreeSet<_>>() {
            let needed = self.claims.depth(tenant);
            if needed > window.into() {
                let tenant = &self.tenant_names.borrow()[tenant.index()];
                let initiator = &seat.nexus.initiator.name;
                warn!(
                    initiator,
                    tenant,
                    window,
                    needed,
                    "the command window is smaller than rate \
                    times response time of the contract: this session alone does not reach it"
                );
            }
        }
    }

    fn command(&mut self, connection: &mut Connection, command: &Command<'_>) {
        let itt = command.itt;
        let Connection { speech: Speech::Iscsi(wire), seat: Some(seat), .. } = connection else {
            let sense = Sense::LOGICAL_UNIT_NOT_SUPPORTED;
            self.check(connection, itt, sense, None);
            return;
        };
        let Some(unit) = seat.unit(command.lun) else {
            match execute_absent(&command.cdb, seat.numbers()) {
                Ok(Action::Data(data)) => put_data(wire, itt, &data),
                Ok(_) => unreachable!("an absent unit does nothing"),
                Err(sense) => wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0),
            }
            return;
        };
        let nexus = seat.nexus.clone();
        let (port, seen) = seat.look_at(unit);
        let index = seen.volume;
        let volume = &mut self.volumes[index];
        if volume.change.is_some() && matches!(command.cdb[0], RESERVE_6 | RELEASE_6) {
            // Whether it conflicts is not known before the other reservation is saved.
            wire.respond(itt, ScsiStatus::Busy, None, 0);
            return;
        }
        match volume.unit.execute(&nexus, &port, &mut seen.attention, &command.cdb) {
            Ok(Action::Data(bytes)) => put_data(wire, itt, &bytes),
            Ok(Action::Done(effects)) => {
                self.spread(index, &nexus, effects);
                if self.has_left_failure(index) {
                    self.gather(connection, command, index, Deed::Aside, 0);
                } else {
                    wire.respond(itt, ScsiStatus::Good, None, 0);
                }
            }
            Ok(Action::Media(media)) => self.media(connection, command, index, media),
            Ok(Action::Parameters(list)) => {
                let length = list.length();
                let deed = Deed::Parameters(list, nexus);
                self.gather(connection, command, index, deed, length);
            }
            Ok(Action::Map { lba, blocks, allocation }) => {
                let block = u64::from(volume.block_size());
                let deed = Deed::Map {
                    offset: lba * block,
                    length: blocks * block,
                    max: DESCRIPTORS_MAX,
                    allocation,
                };
                self.gather(connection, command, index, deed, 0);
            }
            Ok(Action::Sanitize(plan)) => {
                let task = Task::new(self.now, index, Deed::Aside);
                match self.take_in(connection, itt.0, Held { data: 0, medium: 0 }, task) {
                    Some(key) => self.sanitize(key, index, plan),
                    None => self.full(connection, itt),
                }
            }
            Err(Refusal::Check(sense)) => {
                wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0);
            }
            Err(Refusal::Conflict) => {
                wire.respond(itt, ScsiStatus::ReservationConflict, None, 0);
            }
        }
    }

    /// There is no payload memory for a command.
    fn full(&mut self, connection: &mut Connection, itt: Itt) {
        if self.refused.speaks() {
            let (peer, refused_total) = (&connection.peer, self.refused.total());
            warn!(%peer, refused_total, "task set full: no payload memory for a command");
        }
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
        let block = self.volumes[volume].block_size();
        let offered = if command.writes { command.expected_length } else { 0 };
        match media.check_data_out(offered, block) {
            Ok(wanted) => self.gather(connection, command, volume, Deed::Media(media), wanted),
            Err(sense) => {
                let length = media.data_out_length(block) as u32;
                let sense = self.volumes[volume].unit.worded(sense);
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
        deed: Deed,
        wanted: u32,
    ) {
        let itt = command.itt;
        let offered = if command.writes { command.expected_length } else { 0 };
        if matches!(deed, Deed::Parameters(..)) && offered < wanted {
            // SPC-4 section 4.3.5.3: a list that is cut off is wrong.
            let sense = self.volumes[volume].unit.worded(Sense::PARAMETER_LIST_LENGTH_ERROR);
            if let Some(wire) = connection.iscsi() {
                wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0);
            }
            return;
        }
        let held = match &deed {
            Deed::Media(media) => Held::of(media, wanted, self.volumes[volume].block_size()),
            _ => Held { data: wanted, medium: 0 },
        };
        let mut task = Task::new(self.now, volume, deed);
        task.ordered = command.attribute == Attribute::Ordered;
        let Some(key) = self.take_in(connection, itt.0, held, task) else {
            self.full(connection, itt);
            return;
        };
        self.keep(key, 0, command.immediate);
        let waits = connection.iscsi().is_some_and(|wire: &mut Wire| wire.solicit(itt, wanted));
        if !waits {
            self.begin(connection, key);
        }
    }
}

const RESERVE_6: u8 = 0x16;
const RELEASE_6: u8 = 0x17;

/// Whether a login that ended so may have been a guess, at a secret or at a name. A host that is sent
/// elsewhere, or that comes back to a session which is gone, has guessed nothing.
const fn is_guess(status: LoginStatus) -> bool {
    matches!(
        status,
        LoginStatus::AuthenticationFailure
            | LoginStatus::AuthorizationFailure
            | LoginStatus::NotFound
    )
}
