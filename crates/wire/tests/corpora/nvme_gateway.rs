//! A gateway for the NVMe/TCP targets: a connection, its controller, a shell that answers by a policy, and a host that
//! checks what comes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use weir_wire::nvme::controller::{Action, NOT_ABORTED, Subsystem, View};
use weir_wire::nvme::io::{self, Io, Target};
use weir_wire::nvme::{
    Completion, Connect, ConnectRefusal, Connection, Controller, Event, GATHER_MAX, Limits,
    NEEDED_MAX, Namespace, PeerError, Sqe, Status, Transfer, discovery, reservation,
};

use super::nvme_host::{Grant, Host};

/// What the shell does with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Answer it as soon as it can be.
    AtOnce,
    /// Fail it before its data has come.
    Fail,
    /// Answer it when the script says so.
    Late,
    /// Fail it when the first of its data comes.
    Halfway,
}

/// A command that the shell works on.
#[derive(Clone, Debug)]
struct Pending {
    /// What its answer is when its data has come.
    work: Work,
    policy: Policy,
    /// Data that has come, in bytes.
    received: u32,
    /// Its data has come completely, or there is none.
    is_ready: bool,
}

#[derive(Clone, Debug)]
enum Work {
    Done,
    /// Bytes to the host.
    Read(u32),
    Ranges(usize),
    /// Bytes of the keys of a reservation command.
    Keys(usize),
    Admin(Sqe),
    /// An Asynchronous Event Request.
    Held,
    /// An Abort that waits.
    Abort,
}

pub(crate) struct Gateway {
    pub(crate) connection: Connection<Arc<[u8]>>,
    pub(crate) host: Host,
    pub(crate) controller: Option<Controller>,
    namespaces: Vec<Namespace>,
    page: Arc<[u8]>,
    limits: Limits,
    pending: BTreeMap<u32, Pending>,
    /// Slots of `pending` that can be answered, in the order of their becoming so.
    ready: VecDeque<u32>,
    pub(crate) policy: Policy,
    pub(crate) now: Duration,
    pub(crate) fault: Option<PeerError>,
    /// What was reported, parts of data apart.
    pub(crate) told: Vec<(u8, u32, u64)>,
    /// The bytes of the last input that were not taken.
    input: Vec<u8>,
    payload: Arc<[u8]>,
    byte_by_byte: bool,
}

impl Gateway {
    pub(crate) fn new(limits: Limits, host: Host, byte_by_byte: bool) -> Self {
        let namespace = |nsid: u32| Namespace {
            nsid,
            blocks: 4096,
            block_shift: if nsid == 2 { 12 } else { 9 },
            thin: true,
            read_only: nsid == 3,
            persists_reservations: nsid == 1,
            physical_block_exponent: 3,
            unmap_granularity_blocks: 8,
            optimal_transfer_blocks: 0,
            fused_blocks: 1,
            nguid: [nsid as u8; 16],
            uuid: [7; 16],
            ana: weir_wire::nvme::AnaState::Optimized,
        };
        Self {
            connection: Connection::new(limits),
            host,
            controller: None,
            namespaces: (1..4).map(namespace).collect(),
            page: discovery::page(&discovery::Generation::default(), &[]),
            limits,
            pending: BTreeMap::new(),
            ready: VecDeque::new(),
            policy: Policy::AtOnce,
            now: Duration::ZERO,
            fault: None,
            told: Vec::new(),
            input: Vec::new(),
            payload: vec![0x5a; limits.max_transfer as usize].into(),
            byte_by_byte,
        }
    }

    /// Hands bytes of the host to the connection, and does what it says. Returns whether the connection still receives.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> bool {
        let step = if self.byte_by_byte { 1 } else { bytes.len().max(1) };
        for part in bytes.chunks(step) {
            self.input.extend_from_slice(part);
            let input = std::mem::take(&mut self.input);
            let mut rest = &input[..];
            while self.fault.is_none() {
                let needed = self.connection.needed();
                assert!((1..=NEEDED_MAX).contains(&needed), "{needed} bytes are needed");
                match self.connection.receive(rest) {
                    Ok(received) => {
                        assert!(received.consumed <= rest.len());
                        let idle = received.consumed == 0 && received.event.is_none();
                        assert!(!idle || rest.len() < NEEDED_MAX || self.connection.is_deciding());
                        rest = &rest[received.consumed..];
                        if let Some(event) = received.event {
                            self.on_event(event);
                        } else if idle || rest.is_empty() {
                            break;
                        }
                    }
                    Err(error) => {
                        assert!((1..=6).contains(&error.fes()));
                        assert!(self.connection.wants_close());
                        self.fault = Some(error);
                    }
                }
            }
            self.input = rest.to_vec();
            if self.fault.is_some() {
                return false;
            }
            assert!(self.input.len() < NEEDED_MAX, "what is not taken is a header");
        }
        !self.connection.wants_close()
    }

    fn on_event(&mut self, event: Event<'_>) {
        match event {
            Event::Connect(connect) => self.on_connect(&connect),
            Event::Property { slot, property } => {
                self.told.push((1, slot, property.offset.into()));
                let controller = self.controller.as_mut().expect("an admin queue has a controller");
                let completion = match controller.property(property) {
                    Ok((value, _)) => {
                        let (dw0, dw1) = (value as u32, (value >> 32) as u32);
                        Completion { status: Status::SUCCESS, dw0, dw1 }
                    }
                    Err(status) => Completion::failed(status),
                };
                self.connection.respond(slot, completion);
            }
            Event::Command { slot, sqe, transfer } => {
                self.told.push((2, slot, sqe.cid().into()));
                assert_eq!(self.connection.find(sqe.cid()), Some(slot));
                self.on_command(slot, &sqe, transfer);
            }
            Event::Data { slot, offset, bytes, complete } => {
                let pending = self.pending.get_mut(&slot).expect("data of an outstanding command");
                assert_eq!(offset, pending.received, "data comes in order");
                assert!(complete || !bytes.is_empty());
                pending.received += bytes.len() as u32;
                let fails = pending.policy == Policy::Halfway;
                if complete {
                    self.told.push((3, slot, pending.received.into()));
                }
                if fails {
                    self.fail(slot);
                } else if complete {
                    self.become_ready(slot);
                }
            }
            Event::Gathered { slot, sqe, data } => {
                self.told.push((4, slot, data.len() as u64));
                assert!(data.len() as u32 <= GATHER_MAX);
                let pending = &self.pending[&slot];
                match pending.work {
                    Work::Ranges(length) => {
                        assert_eq!(data.len(), length, "a list is cut to its length");
                        match io::ranges(&data, &self.namespaces[0]) {
                            Ok(_) => self.become_ready(slot),
                            Err(status) => self.end(slot, Completion::failed(status)),
                        }
                    }
                    Work::Keys(length) => {
                        assert_eq!(data.len(), length, "keys are cut to their length");
                        let [_, second] = reservation::keys(&data);
                        assert!(length == 16 || second == 0);
                        self.become_ready(slot);
                    }
                    Work::Admin(of) => {
                        assert_eq!((of.cid(), of.cdw(10)), (sqe.cid(), sqe.cdw(10)));
                        let controller = self.controller.as_mut().expect("there is one");
                        match controller.gathered(&sqe, &data) {
                            Action::Complete(completion) => self.end(slot, completion),
                            other => panic!("{other:?} after gathering"),
                        }
                    }
                    _ => panic!("{pending:?} has not gathered"),
                }
            }
            Event::TransferFailed { slot, status } => {
                self.told.push((5, slot, 0));
                assert!(!status.is_final());
                self.end(slot, Completion::failed(status));
            }
            Event::Disconnect { slot } => {
                self.told.push((6, slot, 0));
                for slot in self.pending.keys().copied().collect::<Vec<_>>() {
                    self.end(slot, Completion::failed(Status::ABORTED_BY_QUEUE_DELETION));
                }
                assert!(!self.connection.wants_close());
                self.connection.respond(slot, Completion::SUCCESS);
                assert!(self.connection.wants_close());
            }
            Event::Terminated { fes, fei } => {
                self.told.push((7, fes.into(), fei.into()));
                assert!(self.connection.wants_close());
            }
        }
    }

    fn on_connect(&mut self, connect: &Connect) {
        self.told.push((0, connect.queue.into(), connect.kato_ms.into()));
        assert!(self.connection.is_deciding());
        if connect.subsystem.is_empty() || self.policy == Policy::Fail {
            return self.connection.refused(ConnectRefusal::Host);
        }
        let subsystem = Subsystem {
            nqn: connect.subsystem.clone(),
            serial: "1".to_owned(),
            revision: "1".to_owned(),
            quiesce_ms: 1000,
        };
        let controller = Controller::new(1, Arc::new(subsystem), self.limits, connect, self.now);
        self.controller = Some(controller);
        self.connection.admitted(1);
    }

    fn on_command(&mut self, slot: u32, sqe: &Sqe, transfer: Transfer) {
        let policy = self.policy;
        let pending = |work| Pending { work, policy, received: 0, is_ready: false };
        if self.connection.queue() == Some(0) {
            return self.on_admin(slot, sqe, transfer);
        }
        let checked = io::decode(sqe, transfer, &self.namespaces).and_then(|(io, target)| {
            if let Target::One(index) = target {
                io.check(transfer, &self.namespaces[index], self.limits.max_transfer)?;
            }
            Ok(io)
        });
        let io = match checked {
            Ok(io) if policy != Policy::Fail => io,
            Ok(_) => return self.respond(slot, Completion::failed(Status::INTERNAL_ERROR)),
            Err(status) => return self.respond(slot, Completion::failed(status)),
        };
        match (io, transfer) {
            (Io::DatasetManagement { .. }, _) => {
                let length = io.list_length();
                self.pending.insert(slot, pending(Work::Ranges(length as usize)));
                self.connection.gather(slot, *sqe, length);
            }
            (Io::Reserve(_), _) => {
                let length = io.list_length();
                self.pending.insert(slot, pending(Work::Keys(length as usize)));
                self.connection.gather(slot, *sqe, length);
            }
            (_, Transfer::ToHost(length)) => {
                self.pending.insert(slot, pending(Work::Read(length)));
                self.become_ready(slot);
            }
            (_, Transfer::InCapsule(_)) => {
                self.pending.insert(slot, pending(Work::Done));
            }
            (_, Transfer::ByRequest(length)) => {
                self.pending.insert(slot, pending(Work::Done));
                self.connection.solicit(slot, length);
            }
            _ => {
                self.pending.insert(slot, pending(Work::Done));
                self.become_ready(slot);
            }
        }
    }

    fn on_admin(&mut self, slot: u32, sqe: &Sqe, transfer: Transfer) {
        let policy = self.policy;
        let pending = |work| Pending { work, policy, received: 0, is_ready: false };
        let view =
            View { namespaces: &self.namespaces, controllers: &[1], discovery: Some(&self.page) };
        let controller = self.controller.as_mut().expect("an admin queue has a controller");
        controller.heard(self.now);
        match controller.admin(slot, sqe, transfer, &view) {
            Action::Complete(completion) => self.respond(slot, completion),
            Action::Data { data, from } => {
                let length = data.len();
                self.connection.respond_padded(slot, data, from..length);
            }
            Action::Gather(length) => {
                self.pending.insert(slot, pending(Work::Admin(*sqe)));
                self.connection.gather(slot, *sqe, length);
            }
            Action::Persistence { nsid, .. } => {
                assert!(self.namespaces.iter().any(|one| one.nsid == nsid));
                self.respond(slot, Completion::SUCCESS);
            }
            Action::Hold => {
                self.pending.insert(slot, pending(Work::Held));
                self.give_events();
            }
            Action::Abort { queue, cid } => self.on_abort(slot, queue, cid, policy),
        }
    }

    fn on_abort(&mut self, slot: u32, queue: u16, cid: u16, policy: Policy) {
        let found = self.connection.find(cid).filter(|_| queue == 0);
        let target = found.filter(|target| {
            self.pending.get(target).is_some_and(|it| !matches!(it.work, Work::Abort))
        });
        let Some(target) = target else {
            return self.respond(slot, Completion::value(NOT_ABORTED));
        };
        let controller = self.controller.as_mut().expect("there is one");
        if self.connection.is_receiving(target) || controller.withdraw(target) {
            self.end(target, Completion::failed(Status::ABORTED_BY_REQUEST));
            return self.respond(slot, Completion::value(0));
        }
        controller.abort_waits(slot, queue, target).expect("the limit was checked");
        let abort = Pending { work: Work::Abort, policy, received: 0, is_ready: false };
        self.pending.insert(slot, abort);
    }

    /// Answers requests with the events that there are.
    pub(crate) fn give_events(&mut self) {
        while let Some((slot, dw0)) = self.controller.as_mut().and_then(Controller::take_event) {
            assert!(matches!(self.pending[&slot].work, Work::Held));
            self.end(slot, Completion::value(dw0));
        }
    }

    fn become_ready(&mut self, slot: u32) {
        let pending = self.pending.get_mut(&slot).expect("it is outstanding");
        assert!(!pending.is_ready, "data is complete once");
        pending.is_ready = true;
        self.ready.push_back(slot);
        if pending.policy != Policy::Late {
            self.finish(false);
        }
    }

    fn fail(&mut self, slot: u32) {
        self.end(slot, Completion::failed(Status::INTERNAL_ERROR));
    }

    /// Answers the oldest or newest command that can be, and returns whether there was one.
    pub(crate) fn finish(&mut self, oldest: bool) -> bool {
        let slot = if oldest { self.ready.pop_front() } else { self.ready.pop_back() };
        let Some(slot) = slot else { return false };
        let pending = &self.pending[&slot];
        let Work::Read(length) = pending.work else {
            self.end(slot, Completion::SUCCESS);
            return true;
        };
        if length == 0 || pending.policy == Policy::Halfway {
            self.fail(slot);
            return true;
        }
        self.pending.remove(&slot);
        let (payload, half) = (self.payload.clone(), length as usize / 2);
        if half > 0 {
            self.connection.respond_data(slot, payload.clone(), 0..half);
        }
        self.connection.respond_data(slot, payload, half..length as usize);
        self.ended(slot);
        true
    }

    /// Answers a command that the shell works on.
    fn end(&mut self, slot: u32, completion: Completion) {
        self.pending.remove(&slot).expect("a command is answered once");
        self.ready.retain(|&other| other != slot);
        self.respond(slot, completion);
    }

    fn respond(&mut self, slot: u32, completion: Completion) {
        self.connection.respond(slot, completion);
        self.ended(slot);
    }

    /// Answers the Aborts that have waited for a command.
    fn ended(&mut self, slot: u32) {
        let queue = self.connection.queue().unwrap_or(0);
        let aborts = self.controller.as_mut().map(|it| it.ended(queue, slot)).unwrap_or_default();
        for abort in aborts {
            self.end(abort, Completion::value(NOT_ABORTED));
        }
    }

    /// Writes everything to the host, which checks it.
    pub(crate) fn drain(&mut self) {
        let outbox = self.connection.outbox();
        let bytes: Vec<u8> = outbox.slices().flatten().copied().collect();
        assert!(outbox.owned() <= OWNED_MAX, "{} bytes are kept", outbox.owned());
        outbox.advance(bytes.len(), |_| ());
        assert!(outbox.is_empty());
        self.host.receive(&bytes);
    }

    /// The oldest grants that the host has data for.
    pub(crate) fn grant(&mut self, which: usize) -> Option<&mut Grant> {
        let count = self.host.grants.len();
        self.host.grants.get_mut(which % count.max(1))
    }

    /// The end of a conversation: everything is answered, and every command has had one answer.
    pub(crate) fn finish_all(&mut self) {
        if self.fault.is_none() {
            for slot in self.pending.keys().copied().collect::<Vec<_>>() {
                // An Abort ends with its command.
                if self.pending.contains_key(&slot) {
                    self.fail(slot);
                }
            }
            // Answers that are held get their data.
            self.drain();
            while let Some(grant) = self.host.grants.pop_front() {
                let pdu = self.host.rest(&grant);
                if !self.feed(&pdu) {
                    break;
                }
                self.drain();
            }
        }
        self.drain();
        if self.fault.is_none() && !self.connection.wants_close() && self.input.is_empty() {
            assert_eq!(self.connection.outstanding(), 0);
            self.host.assert_answered();
        }
        if self.connection.wants_close() {
            assert_eq!(self.connection.receive(&[0; 9]).expect("it is dropped").consumed, 9);
        }
    }
}

/// What the outbox may hold itself: for each slot of the longest queue here an R2T, two parts of data and a capsule, and
/// the initialization and termination.
const OWNED_MAX: usize = 2 * 32 * (28 + 2 * (128 + 4) + 28) + 128 + 152;
