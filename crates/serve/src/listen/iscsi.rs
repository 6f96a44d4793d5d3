//! What hosts say over iSCSI, and what is done about it.

use crate::buffer::Shared;
use crate::desk::{Desk, Errand, Refusal};
use crate::listen::connection::{Connection, Payload};
use crate::task::{End, Phase, Task, TaskKey};
use std::rc::Rc;
use tracing::{info, warn};
use weir_flow::request::LinkId;
use weir_wire::iscsi::target::{Attribute, Command, Event, Isid, Itt, LoginStatus};
use weir_wire::scsi::attention::UnitAttention;
use weir_wire::scsi::cdb::{Media, MediaOp};
use weir_wire::scsi::disk::{Action, execute_absent};
use weir_wire::scsi::{ScsiStatus, Sense};

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does.
    Keep,
    /// The host broke a rule that a connection does not survive.
    Close,
}

/// Where data goes; nowhere if there is none.
type Place = Option<Shared>;

impl Desk {
    /// Deals with everything that a connection has received.
    pub(crate) fn receive(&mut self, connection: &mut Connection) -> Verdict {
        // Lent out, so that its bytes can be looked at while the connection changes.
        let mut received = std::mem::take(&mut connection.received);
        let verdict = loop {
            match connection.wire.receive(received.bytes()) {
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
                    let initiator = connection.wire.initiator();
                    warn!(
                        peer = %connection.peer,
                        initiator,
                        %problem,
                        "protocol error; connection dropped"
                    );
                    break Verdict::Close;
                }
            }
        };
        connection.received = received;
        verdict
    }

    fn event(&mut self, connection: &mut Connection, event: Event<'_>) {
        match event {
            Event::SessionRequested { initiator, isid, tsih, target, .. } => {
                self.session(connection, &initiator, isid, tsih, target);
            }
            Event::LoginFailed { status } => warn!(
                peer = %connection.peer,
                initiator = connection.wire.initiator(),
                ?status,
                "login refused"
            ),
            Event::Command(command) => self.command(connection, &command),
            Event::Data { itt, offset, bytes, complete } => {
                self.data(connection, itt, offset as usize, bytes, complete);
            }
            Event::TransferFailed { itt, sense } => {
                if self.faults.speaks() {
                    let faults_total = self.faults.total();
                    let peer = connection.peer;
                    warn!(%peer, itt = itt.0, ?sense, faults_total, "write data broke a rule");
                }
                let key = connection.tasks.get(&itt).copied();
                if key.is_none_or(|key| self.tasks[key].phase == Phase::Gathering) {
                    connection.wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0);
                    connection.tasks.remove(&itt);
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
                connection.wire.logout_response(itt);
            }
            // That it was heard at all is what counts, and that is noted where it was read.
            Event::Pong => {}
            Event::Rejected { opcode, reason } => {
                if self.faults.speaks() {
                    let faults_total = self.faults.total();
                    let peer = connection.peer;
                    warn!(%peer, opcode, ?reason, faults_total, "a PDU was rejected");
                }
            }
        }
    }

    /// Decides about a session, and ends the one that it replaces.
    fn session(
        &mut self,
        connection: &mut Connection,
        initiator: &str,
        isid: Isid,
        tsih: u16,
        target: Option<usize>,
    ) {
        if tsih != 0 {
            // RFC 7143 section 6.3.5: MaxConnections is 1, so a session takes no second connection.
            let status = if self.sessions.has(tsih) {
                LoginStatus::TooManyConnections
            } else {
                LoginStatus::SessionDoesNotExist
            };
            connection.wire.session_refused(status);
            warn!(peer = %connection.peer, initiator, ?status, "login refused");
            return;
        }
        let (tsih, old) = self.sessions.enter((initiator.to_owned(), isid, target), connection.id);
        self.errands.extend(old.map(Errand::Close));
        connection.wire.set_window(self.window());
        connection.wire.session_admitted(tsih);
        self.errands.push_back(Errand::Share);
        let units = target.map_or(0, |target| self.targets[target].unit_count());
        connection.units = vec![UnitAttention::new(); units];
        connection.widen = target.is_some();
        let target = target.map_or("(discovery)", |target| &self.node.targets[target].iqn);
        info!(peer = %connection.peer, initiator, target, tsih, reinstated = old.is_some(), "session");
    }

    fn command(&mut self, connection: &mut Connection, command: &Command<'_>) {
        let itt = command.itt;
        let Some(target) = connection.wire.target() else {
            let sense = Sense::LOGICAL_UNIT_NOT_SUPPORTED;
            connection.wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0);
            return;
        };
        let port = self.targets[target].port();
        let action = match self.targets[target].unit(command.lun) {
            None => execute_absent(&command.cdb, port.units),
            Some(unit) => {
                let disk = &self.volumes[self.targets[target].volume(unit)].disk;
                match disk.execute(&command.cdb, &port, &mut connection.units[unit]) {
                    Ok(Action::Media(media)) => {
                        let volume = self.targets[target].volume(unit);
                        self.media(connection, command, volume, media);
                        return;
                    }
                    action => action,
                }
            }
        };
        match action {
            Ok(Action::Data(bytes)) => {
                let length = bytes.len();
                let payload = Payload::Small(Rc::from(bytes));
                connection.wire.respond_data(itt, payload, 0..length, length as u32);
            }
            Ok(Action::Done) => connection.wire.respond(itt, ScsiStatus::Good, None, 0),
            Ok(Action::Media(_)) => unreachable!("an absent unit has no medium"),
            Err(sense) => {
                connection.wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0);
            }
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
        let itt = command.itt;
        let block = self.volumes[volume].block_size();
        let offered = if command.writes { command.expected_length } else { 0 };
        let wanted = match media.check_data_out(offered, block) {
            Ok(wanted) => wanted,
            Err(sense) => {
                let length = media.data_out_length(block) as u32;
                connection.wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), length);
                return;
            }
        };
        let medium = match media.op {
            MediaOp::Read | MediaOp::Verify(_) => media.blocks * u64::from(block),
            _ => 0,
        };
        let held = u64::from(wanted) + medium;
        let owner = connection.id.serial;
        let Some((data, medium)) = self.set_aside(owner, wanted.into(), medium) else {
            if self.refused.speaks() {
                let (peer, refused_total) = (connection.peer, self.refused.total());
                warn!(%peer, refused_total, "task set full: no payload memory for a command");
            }
            connection.wire.respond(itt, ScsiStatus::TaskSetFull, None, 0);
            return;
        };
        *self.held.entry(owner).or_default() += held;
        let key = self.tasks.insert(Task {
            connection: Some(connection.id),
            owner,
            held,
            came: self.now,
            itt,
            volume,
            media,
            ordered: command.attribute == Attribute::Ordered,
            data,
            data_length: wanted,
            medium,
            phase: Phase::Gathering,
            awaited_by: Vec::new(),
        });
        connection.tasks.insert(itt, key);
        self.keep(key, 0, command.immediate);
        if !connection.wire.solicit(itt, wanted) {
            self.begin(connection, key);
        }
    }

    /// Buffers for a host's data and for the medium's; `None` if there is no memory for both.
    fn set_aside(&mut self, owner: u64, data: u64, medium: u64) -> Option<(Place, Place)> {
        if !self.may_hold(owner, data + medium) {
            return None;
        }
        let mut take = |length| match length {
            0 => Some(None),
            _ => self.pool.take(length as usize).map(Some),
        };
        let data = take(data)?;
        let Some(medium) = take(medium) else {
            if let Some(buffer) = data {
                self.pool.give(buffer);
            }
            return None;
        };
        Some((data, medium))
    }

    /// Write data has come.
    fn data(
        &mut self,
        connection: &mut Connection,
        itt: Itt,
        offset: usize,
        bytes: &[u8],
        complete: bool,
    ) {
        let Some(&key) = connection.tasks.get(&itt) else { return };
        self.keep(key, offset, bytes);
        if complete && self.tasks[key].phase == Phase::Gathering {
            self.begin(connection, key);
        }
    }

    /// Copies write data to its place; what lies past the end of the command is not wanted.
    fn keep(&mut self, key: TaskKey, offset: usize, bytes: &[u8]) {
        let task = &mut self.tasks[key];
        let length = (task.data_length as usize).saturating_sub(offset).min(bytes.len());
        if let Some(buffer) = &mut task.data {
            let memory = Rc::get_mut(buffer).expect("nobody else has it before it is complete");
            if length > 0 {
                memory.bytes_mut()[offset..offset + length].copy_from_slice(&bytes[..length]);
            }
        }
    }

    /// All data of a command is here.
    fn begin(&mut self, connection: &mut Connection, key: TaskKey) {
        let link = LinkId::new(connection.id.index as u32);
        let itt = self.tasks[key].itt;
        match self.start(key, link) {
            Ok(()) if self.tasks[key].phase != (Phase::Flowing { left: 0, end: End::Good }) => {
                return;
            }
            Ok(()) => self.put_reply(&mut connection.wire, key),
            Err(Refusal::Full) => {
                connection.wire.respond(itt, ScsiStatus::TaskSetFull, None, 0);
            }
            Err(Refusal::Wrong(sense)) => {
                connection.wire.respond(itt, ScsiStatus::CheckCondition, Some(&sense), 0);
            }
        }
        connection.tasks.remove(&itt);
        self.finish(key);
    }
}
