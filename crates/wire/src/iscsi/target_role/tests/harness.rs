//! An initiator for tests: builds PDUs, keeps the numbers, takes answers apart.

use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes, transmute_ref};

use crate::crc32c as digest;
use crate::iscsi::pdu::{
    DataOut, FINAL, Header, IMMEDIATE, LoginRequest, LoginResponse, RESERVED_TAG, ScsiCommand,
    opcode,
};
use crate::iscsi::target_role::{
    Connection, Event, Limits, Node, PeerError, Received, TargetEntry,
};

pub(super) const TARGET: &str = "iqn.2026-01.test.weir:disk";
pub(super) const INITIATOR: &str = "iqn.2026-01.test.weir:host";
pub(super) const ISID: [u8; 6] = [0x80, 1, 2, 3, 4, 5];

/// The challenge of every connection here.
pub(super) const CHALLENGE: [u8; 32] = *b"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_";

/// Two targets for everyone.
pub(super) fn node() -> Node {
    let entry = |name: &str| TargetEntry { iqn: name.to_owned(), ..TargetEntry::default() };
    Node {
        targets: vec![entry(TARGET), entry("iqn.2026-01.test.weir:other")],
        portal_group: 1,
        ..Node::default()
    }
}

/// One PDU from the target.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) header: Header,
    pub(super) data: Vec<u8>,
}

impl Answer {
    pub(super) fn status_class_detail(&self) -> u16 {
        let response: &LoginResponse = transmute_ref!(&self.header);
        response.status.get()
    }

    pub(super) fn text(&self) -> Vec<&str> {
        let text = str::from_utf8(&self.data).unwrap();
        text.split_terminator('\0').collect()
    }

    pub(super) fn word(&self, at: usize) -> u32 {
        u32::read_from_prefix(&self.header.as_bytes()[at..]).unwrap().0.swap_bytes()
    }

    pub(super) fn byte(&self, at: usize) -> u8 {
        self.header.as_bytes()[at]
    }
}

pub(super) struct Peer {
    pub(super) connection: Connection<Arc<[u8]>>,
    pub(super) cmd_sn: u32,
    pub(super) digests: (bool, bool),
    /// Tasks whose responses were written.
    pub(super) done: Vec<u32>,
}

impl Peer {
    pub(super) fn new(limits: Limits) -> Self {
        Self::of_node(limits, node())
    }

    pub(super) fn of_node(limits: Limits, node: Node) -> Self {
        let (node, portals) = (Arc::new(node), vec!["127.0.0.1:3260".to_owned()]);
        let connection = Connection::new(node, limits, portals, CHALLENGE);
        Self { connection, cmd_sn: 100, digests: (false, false), done: Vec::new() }
    }

    /// A peer in the full feature phase, after one login request with these keys.
    pub(super) fn logged_in(limits: Limits, keys: &[&str]) -> Self {
        let mut peer = Self::new(limits);
        let answers = peer.log_in(keys);
        assert_eq!(answers.last().unwrap().status_class_detail(), 0);
        assert!(peer.connection.is_full_feature());
        peer
    }

    pub(super) fn log_in(&mut self, keys: &[&str]) -> Vec<Answer> {
        let names = [format!("InitiatorName={INITIATOR}"), format!("TargetName={TARGET}")];
        let all: Vec<&str> = names.iter().map(String::as_str).chain(keys.iter().copied()).collect();
        let event = self.login(0x87, &all);
        assert!(matches!(event, Some(Event::SessionRequested { .. })), "{event:?}");
        self.connection.session_admitted(7);
        self.answers()
    }

    /// Sends a login request; `flags` are T, C and the stages. Credentials are checked.
    pub(super) fn login(&mut self, flags: u8, keys: &[&str]) -> Option<Event<'static>> {
        match self.offer(flags, keys) {
            Some(Event::CredentialsOffered { .. }) => self.connection.check_credentials(),
            event => event,
        }
    }

    /// Sends a login request; credentials are not checked.
    pub(super) fn offer(&mut self, flags: u8, keys: &[&str]) -> Option<Event<'static>> {
        let request = LoginRequest {
            opcode: opcode::LOGIN_REQUEST | IMMEDIATE,
            flags,
            isid: ISID,
            itt: 1.into(),
            cid: 9.into(),
            cmd_sn: self.cmd_sn.into(),
            exp_stat_sn: 50.into(),
            ..LoginRequest::default()
        };
        self.send(&request, &text(keys)).unwrap()
    }

    /// Sends one PDU, which must be consumed completely.
    pub(super) fn send(
        &mut self,
        header: &(impl IntoBytes + Immutable),
        data: &[u8],
    ) -> Result<Option<Event<'static>>, PeerError> {
        let pdu = encode(header, data, self.digests);
        self.send_bytes(pdu)
    }

    pub(super) fn send_bytes(&mut self, pdu: Vec<u8>) -> Result<Option<Event<'static>>, PeerError> {
        let pdu: &'static [u8] = pdu.leak();
        let Received { consumed, event } = self.connection.receive(pdu)?;
        assert_eq!(consumed, pdu.len());
        Ok(event)
    }

    /// The flags of a command: F, R, W and the attribute.
    pub(super) fn command_header(&mut self, itt: u32, flags: u8, length: u32) -> ScsiCommand {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = cmd_sn.wrapping_add(1);
        ScsiCommand {
            opcode: opcode::SCSI_COMMAND,
            flags,
            lun: [0, 1, 0, 0, 0, 0, 0, 0],
            itt: itt.into(),
            expected_length: length.into(),
            cmd_sn: cmd_sn.into(),
            ..ScsiCommand::default()
        }
    }

    pub(super) fn command(
        &mut self,
        itt: u32,
        flags: u8,
        length: u32,
        data: &[u8],
    ) -> Option<Event<'static>> {
        let header = self.command_header(itt, flags, length);
        self.send(&header, data).unwrap()
    }

    pub(super) fn data_out(
        &mut self,
        itt: u32,
        ttt: u32,
        data_sn: u32,
        offset: u32,
        data: &[u8],
        is_final: bool,
    ) -> Option<Event<'static>> {
        let header = DataOut {
            opcode: opcode::DATA_OUT,
            flags: if is_final { FINAL } else { 0 },
            itt: itt.into(),
            ttt: ttt.into(),
            data_sn: data_sn.into(),
            buffer_offset: offset.into(),
            ..DataOut::default()
        };
        self.send(&header, data).unwrap()
    }

    pub(super) fn unsolicited(
        &mut self,
        itt: u32,
        data_sn: u32,
        offset: u32,
        data: &[u8],
        is_final: bool,
    ) -> Option<Event<'static>> {
        self.data_out(itt, RESERVED_TAG, data_sn, offset, data, is_final)
    }

    /// Everything that waits in the outbox, taken apart.
    pub(super) fn answers(&mut self) -> Vec<Answer> {
        let bytes = self.output();
        let mut answers = Vec::new();
        let mut rest = &bytes[..];
        let (with_header, with_data) = self.digests;
        while !rest.is_empty() {
            let (bhs, mut tail) = rest.split_at(48);
            if with_header {
                assert!(digest::matches(bhs, &tail[..4]));
                tail = &tail[4..];
            }
            let header = Header::read_from_bytes(bhs).unwrap();
            let length = header.data_length();
            let (padded, mut after) = tail.split_at(length.next_multiple_of(4));
            if with_data && length > 0 {
                assert!(digest::matches(padded, &after[..4]));
                after = &after[4..];
            }
            assert!(padded[length..].iter().all(|&byte| byte == 0));
            answers.push(Answer { header, data: padded[..length].to_vec() });
            rest = after;
        }
        answers
    }

    /// The one PDU that waits in the outbox.
    pub(super) fn answer(&mut self) -> Answer {
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0)
    }

    pub(super) fn output(&mut self) -> Vec<u8> {
        let outbox = self.connection.outbox();
        let bytes: Vec<u8> = outbox.slices().flatten().copied().collect();
        assert_eq!(bytes.len(), outbox.len());
        let done = &mut self.done;
        outbox.advance(bytes.len(), |itt| done.push(itt));
        bytes
    }
}

pub(super) fn text(keys: &[&str]) -> Vec<u8> {
    keys.iter().flat_map(|key| key.bytes().chain([0])).collect()
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
