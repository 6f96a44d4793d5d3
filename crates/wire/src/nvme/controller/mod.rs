//! A controller: what one host sees of a subsystem through its queues.
//!
//! A state machine without connections: the shell hands it properties, admin commands and the time, and does what it
//! returns. It waits for nothing itself; what it holds is bounded: Asynchronous Event Requests, Aborts, and the entries
//! of its logs.

mod aborts;
mod events;
mod features;
mod identify;
mod logs;
mod notices;
mod properties;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::event::{Completion, Connect};
use super::namespace::{NSID_MAX, Namespace};
use super::pdu::{Sqe, Transfer};
use super::status::Status;
use super::{Limits, discovery};
use aborts::Aborts;
use events::Events;
use features::Features;
use notices::Notices;
use properties::Registers;

pub use events::Event;
pub use properties::{Property, PropertyValue, Transition};

/// Facts about a subsystem, the same through all of its controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// Its NQN; [`discovery::NQN`] makes its controllers discovery controllers.
    pub nqn: String,
    /// Serial number; the first 20 bytes are shown.
    pub serial: String,
    /// Firmware revision; the first 8 bytes are shown.
    pub revision: String,
    /// CQT: how long after the loss of a controller its commands may still take effect, in milliseconds.
    pub quiesce_ms: u16,
}

/// What a controller needs to know of the gateway to execute a command.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Namespaces that the host may see, in ascending order of their identifiers.
    pub namespaces: &'a [Namespace],
    /// Identifiers of the controllers of the subsystem, in ascending order.
    pub controllers: &'a [u16],
    /// The current discovery page of the host, see [`discovery::page`]; only discovery controllers need it.
    pub discovery: Option<&'a Arc<[u8]>>,
}

/// What is to be done with an admin command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answer it so.
    Complete(Completion),
    /// Send `data` from offset `from` on: [`respond_padded`](super::Connection::respond_padded).
    Data {
        /// The data.
        data: Arc<[u8]>,
        /// Where the answer begins, in bytes; at most the length of `data`.
        from: usize,
    },
    /// Gather this many bytes of its data, then call [`Controller::gathered`].
    Gather(u32),
    /// Answer with dword 0 that says whether the reservations of this namespace outlive a loss of power, or have them do
    /// so or not: [`HostAction::Persist`](crate::scsi::reservation::HostAction::Persist).
    Persistence {
        /// The namespace, which is one of the view.
        nsid: u32,
        /// What is set; `None` only asks.
        set: Option<bool>,
    },
    /// Keep it: it is answered when [`Controller::take_event`] returns its slot.
    Hold,
    /// End another command. The shell looks for it and
    /// * answers with 1 in dword 0 if there is none, or it is an Abort itself;
    /// * ends it with [`Status::ABORTED_BY_REQUEST`] and answers with 0 if nothing of it can have taken effect: its data
    ///   has not come completely, or [`Controller::withdraw`] says that it was held;
    /// * otherwise calls [`Controller::abort_waits`].
    Abort {
        /// The queue of the command.
        queue: u16,
        /// Its command identifier.
        cid: u16,
    },
}

impl Action {
    const fn failed(status: Status) -> Self {
        Self::Complete(Completion::failed(status))
    }

    fn data(data: impl Into<Arc<[u8]>>) -> Self {
        Self::Data { data: data.into(), from: 0 }
    }
}

/// A controller.
#[derive(Debug)]
pub struct Controller {
    id: u16,
    subsystem: Arc<Subsystem>,
    limits: Limits,
    host: String,
    host_id: [u8; 16],
    registers: Registers,
    features: Features,
    /// When the host was heard last.
    heard: Duration,
    /// The host was silent for longer than its keep alive timeout.
    expired: bool,
    events: Events,
    aborts: Aborts,
    /// Namespaces of the log page of changes.
    changed: BTreeSet<u32>,
    /// Counts changes of ANA states.
    ana_changes: u64,
    notices: Notices,
    /// The discovery page that is being read.
    page: Option<Arc<[u8]>>,
}

impl Controller {
    /// A new controller, for a Connect of an admin queue at this time.
    pub fn new(
        id: u16,
        subsystem: Arc<Subsystem>,
        limits: Limits,
        connect: &Connect,
        now: Duration,
    ) -> Self {
        let is_discovery = subsystem.nqn == discovery::NQN;
        Self {
            id,
            limits,
            host: connect.host.clone(),
            host_id: connect.host_id,
            registers: Registers::default(),
            features: Features::new(is_discovery, connect.kato_ms),
            heard: now,
            expired: false,
            events: Events::default(),
            aborts: Aborts::default(),
            changed: BTreeSet::new(),
            ana_changes: 0,
            notices: Notices::default(),
            page: None,
            subsystem,
        }
    }

    /// The controller identifier.
    pub const fn id(&self) -> u16 {
        self.id
    }

    /// The subsystem.
    pub fn subsystem(&self) -> &Subsystem {
        &self.subsystem
    }

    /// NQN of the host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Identifier of the host.
    pub const fn host_id(&self) -> &[u8; 16] {
        &self.host_id
    }

    /// Whether this is a discovery controller.
    pub fn is_discovery(&self) -> bool {
        self.subsystem.nqn == discovery::NQN
    }

    /// Executes an admin command in this slot of the admin queue.
    pub fn admin(&mut self, slot: u32, sqe: &Sqe, transfer: Transfer, view: &View<'_>) -> Action {
        let action = self.perform(slot, sqe, transfer, view);
        action.unwrap_or_else(Action::failed)
    }

    fn perform(
        &mut self,
        slot: u32,
        sqe: &Sqe,
        transfer: Transfer,
        view: &View<'_>,
    ) -> Result<Action, Status> {
        let opcode = sqe.opcode();
        let is_known = opcode::OF_DISCOVERY.contains(&opcode)
            || opcode == opcode::ABORT && !self.is_discovery();
        if !is_known {
            return Err(Status::INVALID_OPCODE);
        }
        if sqe.fuse() != 0 {
            return Err(Status::INVALID_FIELD);
        }
        if let Transfer::Invalid(status) = transfer {
            return Err(status);
        }
        if !self.is_enabled() {
            return Err(Status::SEQUENCE_ERROR);
        }
        match opcode {
            opcode::GET_LOG_PAGE => self.log_page(sqe, transfer, view),
            opcode::IDENTIFY => self.identify(sqe, transfer, view),
            opcode::ABORT => self.abort(sqe),
            opcode::SET_FEATURES => self.set_features(sqe, transfer, view),
            opcode::GET_FEATURES => self.get_features(sqe, transfer, view),
            opcode::ASYNC_EVENT_REQUEST => self.events.hold(slot).map(|()| Action::Hold),
            _ => match self.features.kato {
                // Keep Alive: its arrival counts, as that of every command.
                Some(_) => Ok(Action::Complete(Completion::SUCCESS)),
                None => Err(Status::KEEP_ALIVE_INVALID),
            },
        }
    }

    fn abort(&self, sqe: &Sqe) -> Result<Action, Status> {
        let (queue, cid) = (sqe.cdw(10) as u16, (sqe.cdw(10) >> 16) as u16);
        if queue == 0 && cid == sqe.cid() {
            return Ok(Action::Complete(Completion::value(NOT_ABORTED)));
        }
        if self.aborts.is_full() {
            return Err(Status::ABORT_LIMIT);
        }
        Ok(Action::Abort { queue, cid })
    }

    /// An Abort, in slot `abort` of the admin queue, waits for the end of the command in this slot of this queue. The
    /// error is the status of an Abort that is one too many.
    pub fn abort_waits(&mut self, abort: u32, queue: u16, slot: u32) -> Result<(), Status> {
        self.aborts.wait(abort, queue, slot)
    }

    /// The command in this slot of this queue has ended by itself. Returns the slots of the Aborts that have waited for
    /// it, which the shell answers with 1 in dword 0: the command was not aborted.
    pub fn ended(&mut self, queue: u16, slot: u32) -> Vec<u32> {
        self.aborts.ended(queue, slot)
    }

    /// A queue has ended, and with it every command of it. Returns as [`ended`](Self::ended).
    pub fn queue_ended(&mut self, queue: u16) -> Vec<u32> {
        self.aborts.queue_ended(queue)
    }

    /// Forgets a held Asynchronous Event Request, and returns whether the slot had one.
    pub fn withdraw(&mut self, slot: u32) -> bool {
        self.events.withdraw(slot)
    }

    /// A held Asynchronous Event Request and the dword 0 with which it is to be answered now. To be called until it
    /// returns nothing, after each event and each admin command.
    pub fn take_event(&mut self) -> Option<(u32, u32)> {
        self.events.take()
    }

    /// A namespace was resized, has come, or has left.
    pub fn namespace_changed(&mut self, nsid: u32) {
        assert!(
            (1..=NSID_MAX).contains(&nsid),
            "namespace identifiers are checked when configured"
        );
        self.changed.insert(nsid);
        self.raise(Event::NamespaceAttribute);
    }

    /// The ANA state of a namespace has changed, or there are others. To be called before the first command is refused
    /// for it.
    pub fn ana_changed(&mut self) {
        self.ana_changes += 1;
        self.raise(Event::AnaChange);
    }

    /// The discovery page of the host has changed.
    pub fn discovery_changed(&mut self) {
        self.raise(Event::DiscoveryChange);
    }

    /// An event is raised only if the host wants it, and never one that this kind of controller does not announce.
    fn raise(&mut self, event: Event) {
        if self.features.events & event.bit() != 0 {
            self.events.raise(event);
        }
    }

    /// A command was taken from any queue of the controller.
    pub const fn heard(&mut self, now: Duration) {
        self.heard = now;
    }

    /// When the host will have been silent for too long; `None` without a timer.
    pub fn deadline(&self) -> Option<Duration> {
        if self.expired || self.registers.is_shut_down() {
            return None;
        }
        self.features.kato.map(|kato| self.heard + kato)
    }

    /// Looks at the keep alive timer. When it has expired the controller fails (CSTS.CFS), once: the shell ends all of
    /// its connections and waits for no task.
    pub fn expires(&mut self, now: Duration) -> bool {
        let expires = self.deadline().is_some_and(|deadline| now >= deadline);
        self.expired |= expires;
        expires
    }

    /// Whether I/O queues may be connected: it is enabled, and no shutdown has begun.
    pub fn takes_queues(&self) -> bool {
        self.is_enabled() && !self.expired && !self.registers.is_shut_down()
    }

    /// Whether the keep alive timer has expired.
    pub const fn is_expired(&self) -> bool {
        self.expired
    }
}

/// Admin opcodes.
mod opcode {
    pub(super) const GET_LOG_PAGE: u8 = 0x02;
    pub(super) const IDENTIFY: u8 = 0x06;
    pub(super) const ABORT: u8 = 0x08;
    pub(super) const SET_FEATURES: u8 = 0x09;
    pub(super) const GET_FEATURES: u8 = 0x0a;
    pub(super) const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    pub(super) const KEEP_ALIVE: u8 = 0x18;

    /// Those of a discovery controller.
    pub(super) const OF_DISCOVERY: [u8; 6] =
        [GET_LOG_PAGE, IDENTIFY, SET_FEATURES, GET_FEATURES, ASYNC_EVENT_REQUEST, KEEP_ALIVE];
}

/// Dword 0 of an Abort whose command was not aborted.
pub const NOT_ABORTED: u32 = 1;
