//! An initiator and our own target in one process, with a small disk behind; and an initiator alone,
//! with hand-made answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, transmute_ref};

use crate::crc32c as digest;
use crate::iscsi::initiator::AsyncEvent;
use crate::iscsi::initiator::{
    Attribute, Command, Direction, Event, Fault, Initiator, Isid, Itt, Residual, Settings, Target,
    TmfResponse,
};
use crate::iscsi::pdu::{Header, LoginRequest, LoginResponse, ScsiResponse, opcode};
use crate::iscsi::target_role::{self, Connection, Limits, LoginStatus, Node, TargetEntry};
use crate::scsi::{ScsiStatus, Sense};

pub(super) const TARGET: &str = "iqn.2026-01.test.weir:disk";
pub(super) const INITIATOR: &str = "iqn.2026-01.test.weir:host";
pub(super) const ISID: Isid = Isid([0x80, 1, 2, 3, 4, 5]);
pub(super) const ENTROPY: [u8; 32] = *b"0123456789abcdefghijklmnopqrstuv";
/// The challenge of every target here.
pub(super) const CHALLENGE: [u8; 32] = *b"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_";
/// Size of the disk, in bytes.
pub(super) const DISK: usize = 128 * 1024;

pub(super) type Buffer = Arc<[u8]>;

pub(super) fn settings() -> Settings {
    Settings::new(INITIATOR.to_owned(), ISID, Some(TARGET.to_owned()))
}

pub(super) fn node() -> Node {
    let entry = |name: &str| TargetEntry { iqn: name.to_owned(), ..TargetEntry::default() };
    Node { targets: vec![entry(TARGET)], portal_group: 9, ..Node::default() }
}

/// What the shell was told, without references; data is gathered by tag.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    LoggedIn { tsih: u16, portal_group: Option<u16>, window: u32 },
    Redirected(String, bool),
    Done { tag: u64, status: Option<u8>, sense: Vec<u8>, residual: Residual },
    Aborted(u64),
    Pong(u64),
    Managed(u64, TmfResponse),
    Targets(Vec<Target>),
    Asked(AsyncEvent),
    LoggedOut,
}

/// A command that moves `length` bytes at `offset`, in a language that only the disk here knows.
pub(super) fn command(tag: u64, offset: u32, data: Direction<Buffer>) -> Command<Buffer> {
    let (operation, length) = match &data {
        Direction::None => (0, 0),
        Direction::Read(length) => (1, *length),
        Direction::Write(_, range) => (2, range.len() as u32),
    };
    let mut cdb = [0; 16];
    cdb[0] = operation;
    cdb[4..8].copy_from_slice(&offset.to_be_bytes());
    cdb[8..12].copy_from_slice(&length.to_be_bytes());
    Command { lun: 3, cdb, attribute: Attribute::Simple, data, tag }
}

/// A write that the disk takes.
#[derive(Debug)]
struct Write {
    offset: usize,
    length: usize,
    gathered: Vec<u8>,
}

/// Both ends of a connection, joined by buffers.
pub(super) struct Pair {
    pub(super) initiator: Initiator<Buffer>,
    pub(super) target: Connection<Buffer>,
    pub(super) disk: Vec<u8>,
    pub(super) reads: BTreeMap<u64, Vec<u8>>,
    /// Bytes that a write to a socket takes.
    pub(super) step: usize,
    /// The disk leaves its commands unanswered.
    pub(super) stalled: bool,
    writes: BTreeMap<u32, Write>,
    to_target: Vec<u8>,
    to_initiator: Vec<u8>,
}

impl Pair {
    pub(super) fn new(settings: Settings, node: Node, limits: Limits) -> Self {
        Self::starting_at(settings, node, limits, 1)
    }

    pub(super) fn starting_at(settings: Settings, node: Node, limits: Limits, cmd_sn: u32) -> Self {
        let (node, portals) = (Arc::new(node), vec!["127.0.0.1:3260".to_owned()]);
        Self {
            initiator: Initiator::starting_at(Arc::new(settings), ENTROPY, cmd_sn),
            target: Connection::new(node, limits, portals, CHALLENGE),
            disk: (0..DISK).map(|at| (at * 7 + at / 256) as u8).collect(),
            reads: BTreeMap::new(),
            step: usize::MAX,
            stalled: false,
            writes: BTreeMap::new(),
            to_target: Vec::new(),
            to_initiator: Vec::new(),
        }
    }

    /// A pair that has logged in.
    pub(super) fn logged_in(settings: Settings, limits: Limits) -> Self {
        let mut pair = Self::new(settings, node(), limits);
        let said = pair.run().unwrap();
        assert!(matches!(said[..], [Said::LoggedIn { .. }]), "{said:?}");
        pair
    }

    /// Moves bytes until nothing moves any more; returns what the initiator said.
    pub(super) fn run(&mut self) -> Result<Vec<Said>, Fault> {
        let mut said = Vec::new();
        loop {
            let out = flat(self.initiator.outbox().slices(), self.step);
            self.initiator.written(out.len());
            self.to_target.extend_from_slice(&out);
            self.serve();
            let back = flat(self.target.outbox().slices(), self.step);
            self.target.outbox().advance(back.len(), |_| {});
            self.to_initiator.extend_from_slice(&back);
            let heard = self.hear(&mut said)?;
            if out.is_empty() && back.is_empty() && !heard {
                return Ok(said);
            }
        }
    }

    /// The initiator takes what has arrived.
    fn hear(&mut self, said: &mut Vec<Said>) -> Result<bool, Fault> {
        let input = std::mem::take(&mut self.to_initiator);
        let mut rest = &input[..];
        loop {
            let received = self.initiator.receive(rest)?;
            rest = &rest[received.consumed..];
            if received.event.is_none() && received.consumed == 0 {
                self.to_initiator = rest.to_vec();
                return Ok(rest.len() < input.len());
            }
            if let Some(event) = received.event {
                keep(&mut self.reads, said, event);
            }
        }
    }

    /// The target takes what has arrived, and the disk answers.
    fn serve(&mut self) {
        let input = std::mem::take(&mut self.to_target);
        let mut rest = &input[..];
        loop {
            let received = self.target.receive(rest).expect("this initiator breaks no rule");
            rest = &rest[received.consumed..];
            match received.event {
                None if received.consumed == 0 => break,
                None | Some(target_role::Event::Pong) => {}
                Some(target_role::Event::CredentialsOffered { .. }) => {
                    match self.target.check_credentials() {
                        None => {}
                        Some(target_role::Event::SessionRequested { .. }) => {
                            self.target.session_admitted(77);
                        }
                        Some(event) => {
                            assert!(matches!(event, target_role::Event::LoginFailed { .. }));
                        }
                    }
                }
                Some(target_role::Event::SessionRequested { .. }) => {
                    self.target.session_admitted(77);
                }
                Some(target_role::Event::LoginFailed { status, .. }) => {
                    assert_ne!(status, LoginStatus::Success);
                }
                Some(target_role::Event::Command(command)) => {
                    let word = |at: usize| {
                        let bytes = command.cdb[at..at + 4].try_into().unwrap();
                        u32::from_be_bytes(bytes) as usize
                    };
                    let (offset, length) = (word(4), word(8));
                    assert_eq!(command.lun, 3);
                    if command.writes {
                        let gathered = command.immediate.to_vec();
                        self.writes.insert(command.itt.0, Write { offset, length, gathered });
                        if !self.target.solicit(command.itt, length as u32) {
                            self.finish_write(command.itt);
                        }
                    } else if self.stalled {
                        // It waits for ever.
                    } else if command.reads && offset + length <= self.disk.len() {
                        let data: Buffer = self.disk[offset..offset + length].into();
                        self.target.respond_data(command.itt, data, 0..length, length as u32);
                    } else if command.reads {
                        let sense = Some(&Sense::LBA_OUT_OF_RANGE);
                        self.target.respond(command.itt, ScsiStatus::CheckCondition, sense, 0);
                    } else {
                        self.target.respond(command.itt, ScsiStatus::Good, None, 0);
                    }
                }
                Some(target_role::Event::Data { itt, offset, bytes, complete }) => {
                    let write = self.writes.get_mut(&itt.0).unwrap();
                    assert_eq!(write.gathered.len(), offset as usize);
                    write.gathered.extend_from_slice(bytes);
                    if complete {
                        self.finish_write(itt);
                    }
                }
                Some(target_role::Event::TaskManagement { itt, .. }) => {
                    for task in self.target.outstanding_tasks().to_vec() {
                        self.target.abandon(task);
                    }
                    self.target.task_management_response(itt, target_role::TmfResponse::Complete);
                }
                Some(target_role::Event::Logout { itt, .. }) => self.target.logout_response(itt),
                Some(other) => panic!("this initiator breaks no rule: {other:?}"),
            }
        }
        self.to_target = rest.to_vec();
    }

    fn finish_write(&mut self, itt: Itt) {
        if self.stalled {
            return;
        }
        let write = self.writes.remove(&itt.0).unwrap();
        assert_eq!(write.gathered.len(), write.length);
        self.disk[write.offset..write.offset + write.length].copy_from_slice(&write.gathered);
        self.target.respond(itt, ScsiStatus::Good, None, write.length as u32);
    }
}

fn keep(reads: &mut BTreeMap<u64, Vec<u8>>, said: &mut Vec<Said>, event: Event<'_>) {
    said.push(match event {
        Event::LoggedIn { tsih, portal_group, window, .. } => {
            Said::LoggedIn { tsih, portal_group, window }
        }
        Event::Redirected { address, permanent } => Said::Redirected(address, permanent),
        Event::Data { tag, offset, bytes, .. } => {
            let data = reads.entry(tag).or_default();
            assert_eq!(data.len(), offset as usize, "data comes in order");
            data.extend_from_slice(bytes);
            return;
        }
        Event::Done { tag, status, sense, residual, .. } => {
            Said::Done { tag, status, sense: sense.to_vec(), residual }
        }
        Event::Aborted { tag, .. } => Said::Aborted(tag),
        Event::Pong { tag } => Said::Pong(tag),
        Event::Managed { tag, response } => Said::Managed(tag, response),
        Event::Targets(targets) => Said::Targets(targets),
        Event::Asked(what) => Said::Asked(what),
        Event::LoggedOut => Said::LoggedOut,
    });
}

/// The first bytes that wait.
fn flat<'a>(slices: impl Iterator<Item = &'a [u8]>, most: usize) -> Vec<u8> {
    slices.flatten().copied().take(most).collect()
}

/// One PDU of the initiator.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) header: Header,
    pub(super) data: Vec<u8>,
}

impl Sent {
    pub(super) fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.header.as_bytes()[at..at + 4].try_into().unwrap())
    }

    pub(super) fn text(&self) -> Vec<&str> {
        str::from_utf8(&self.data).unwrap().split_terminator('\0').collect()
    }
}

/// An initiator alone, without digests, and the numbers of a target that is played by hand.
pub(super) struct Alone {
    pub(super) initiator: Initiator<Buffer>,
    pub(super) stat_sn: u32,
    pub(super) exp_cmd_sn: u32,
    pub(super) max_cmd_sn: u32,
    pub(super) reads: BTreeMap<u64, Vec<u8>>,
}

impl Alone {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            initiator: Initiator::new(Arc::new(settings), ENTROPY),
            stat_sn: 500,
            exp_cmd_sn: 1,
            max_cmd_sn: 16,
            reads: BTreeMap::new(),
        }
    }

    /// An initiator in the full feature phase, after answers with these operational keys.
    pub(super) fn logged_in(settings: Settings, keys: &[&str]) -> Self {
        let mut alone = Self::new(settings);
        alone.sent();
        assert_eq!(alone.login(0x81, &["AuthMethod=None"]).unwrap(), []);
        alone.sent();
        let said = alone.login(0x87, keys).unwrap();
        assert!(matches!(said[..], [Said::LoggedIn { .. }]), "{said:?}");
        alone
    }

    /// Writes everything and takes it apart.
    pub(super) fn sent(&mut self) -> Vec<Sent> {
        let bytes = flat(self.initiator.outbox().slices(), usize::MAX);
        self.initiator.written(bytes.len());
        let mut rest = &bytes[..];
        let mut sent = Vec::new();
        while let Ok((header, _)) = Header::read_from_prefix(rest) {
            let length = header.data_length();
            sent.push(Sent { header, data: rest[48..48 + length].to_vec() });
            rest = &rest[48 + length.next_multiple_of(4)..];
        }
        assert!(rest.is_empty());
        sent
    }

    /// Answers the login: `flags` are T, C and the stages.
    pub(super) fn login(&mut self, flags: u8, keys: &[&str]) -> Result<Vec<Said>, Fault> {
        let response = LoginResponse {
            opcode: opcode::LOGIN_RESPONSE,
            flags,
            isid: ISID.0,
            tsih: 7.into(),
            ..LoginResponse::default()
        };
        let text: Vec<u8> = keys.iter().flat_map(|key| key.bytes().chain([0])).collect();
        self.answer(&response, &text)
    }

    /// A PDU with the numbers that are due.
    pub(super) fn pdu(&mut self, header: &(impl IntoBytes + Immutable), data: &[u8]) -> Vec<u8> {
        let mut header = ScsiResponse::read_from_bytes(header.as_bytes()).unwrap();
        let uses_number = match header.opcode {
            opcode::DATA_IN => header.flags & 1 != 0,
            opcode::R2T => false,
            opcode::NOP_IN => header.itt.get() != u32::MAX,
            _ => true,
        };
        if uses_number {
            header.stat_sn = self.stat_sn.into();
            self.stat_sn = self.stat_sn.wrapping_add(1);
        }
        header.exp_cmd_sn = self.exp_cmd_sn.into();
        header.max_cmd_sn = self.max_cmd_sn.into();
        encode(&header, data, (false, false))
    }

    pub(super) fn answer(
        &mut self,
        header: &(impl IntoBytes + Immutable),
        data: &[u8],
    ) -> Result<Vec<Said>, Fault> {
        let pdu = self.pdu(header, data);
        self.receive(&pdu)
    }

    /// Takes whole PDUs.
    pub(super) fn receive(&mut self, mut bytes: &[u8]) -> Result<Vec<Said>, Fault> {
        let mut said = Vec::new();
        loop {
            let received = self.initiator.receive(bytes)?;
            bytes = &bytes[received.consumed..];
            match received.event {
                Some(event) => keep(&mut self.reads, &mut said, event),
                None if received.consumed == 0 => break,
                None => {}
            }
        }
        assert!(bytes.is_empty(), "a whole PDU is taken");
        Ok(said)
    }

    /// Gives a command and writes it; the target has it now.
    pub(super) fn command(&mut self, tag: u64, data: Direction<Buffer>) -> (Itt, Vec<Sent>) {
        let itt = self.initiator.command(command(tag, 0, data));
        self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
        (itt, self.sent())
    }
}

/// One PDU as bytes.
pub(super) fn encode(
    header: &(impl IntoBytes + Immutable),
    data: &[u8],
    digests: (bool, bool),
) -> Vec<u8> {
    let mut pdu = header.as_bytes().to_vec();
    pdu[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    if digests.0 {
        let digest = digest::padded(&pdu, 0);
        pdu.extend_from_slice(&digest);
    }
    let padding = data.len().wrapping_neg() % 4;
    pdu.extend_from_slice(data);
    pdu.resize(pdu.len() + padding, 0);
    if digests.1 && !data.is_empty() {
        pdu.extend_from_slice(&digest::padded(data, padding));
    }
    pdu
}

/// The login request that a PDU is.
pub(super) fn login_request(sent: &Sent) -> &LoginRequest {
    transmute_ref!(&sent.header)
}

/// GOOD for a command, without data.
pub(super) fn good(itt: Itt) -> ScsiResponse {
    ScsiResponse {
        opcode: opcode::SCSI_RESPONSE,
        flags: 0x80,
        itt: itt.0.into(),
        ..ScsiResponse::new_zeroed()
    }
}
