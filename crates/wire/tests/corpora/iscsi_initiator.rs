//! An initiator, and what a target sends that may not mean well.
//!
//! The first byte of an input chooses the session. Records follow, each of what the shell does, how the
//! answer is bent, the kind of the answer, its flags, whose it is, a length and as many bytes. An answer
//! that is not bent is the one that is due, as far as the kind and the flags allow. In a text, bytes
//! below 32 stand for the keys in [`WORDS`]. The initiator is fed twice, with everything there is and
//! with no more than it asks for: what it says and sends must be the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use weir_wire::iscsi::initiator::{
    Account, Attribute, Chap, Command, DigestPolicy, Direction, Event, Initiator, Isid, Itt,
    Residual, Secret, Settings, TaskFunction,
};

/// What the bytes from 1 on stand for.
const WORDS: [&str; 26] = [
    "AuthMethod=None",
    "AuthMethod=CHAP",
    "CHAP_A=5",
    "CHAP_A=7",
    "CHAP_I=1",
    "CHAP_C=0x010203",
    REFLECTED,
    "CHAP_N=gateway",
    PROOF,
    "TargetPortalGroupTag=1",
    "TargetAddress=10.0.0.1:3260,1",
    "TargetName=iqn.2026-01.test.weir:disk",
    "HeaderDigest=CRC32C",
    "DataDigest=CRC32C",
    "HeaderDigest=None",
    "InitialR2T=Yes",
    "InitialR2T=No",
    "ImmediateData=Yes",
    "MaxBurstLength=1024",
    "FirstBurstLength=768",
    "MaxRecvDataSegmentLength=512",
    "MaxOutstandingR2T=2",
    "X-com.example.key=1",
    "IFMarker=No",
    "MaxBurstLength=Reject",
    "TargetAlias=x",
];
/// What CHAP asks the target.
const ENTROPY: [u8; 32] = *b"0123456789abcdefghijklmnopqrstuv";
/// The same as a challenge of the target.
const REFLECTED: &str = "CHAP_C=0x303132333435363738396162636465666768696a6b6c6d6e6f70717273747576";
/// MD5 of 0x30, the target's secret and what CHAP asks.
const PROOF: &str = "CHAP_R=0x449d4cd00a1c288e609376cccd4e60e7";
const ISID: [u8; 6] = [0x80, 1, 2, 3, 4, 5];
const SECRETS: [&[u8]; 2] = [b"alice's secret", b"gateway secret"];
/// Commands that may be outstanding.
const COMMANDS_MAX: u32 = 4;
const MAX_RECV: u32 = 1024;
/// Bytes of a PDU that the outbox holds itself, at most: a header with digests, or a text.
const OWNED_MAX: usize = 16 * 1024;
/// Opcodes of answers, and two that no target sends.
const KINDS: [u8; 12] = [0x25, 0x21, 0x31, 0x20, 0x22, 0x24, 0x26, 0x32, 0x3f, 0x23, 0x05, 0x1c];

/// How an answer is bent.
mod bend {
    pub(super) const STATUS_NUMBER: u8 = 0x01;
    pub(super) const DATA_NUMBER: u8 = 0x02;
    pub(super) const OFFSET: u8 = 0x04;
    pub(super) const EXPECTED: u8 = 0x08;
    pub(super) const WINDOW: u8 = 0x10;
    pub(super) const DIGEST: u8 = 0x20;
    pub(super) const LENGTH: u8 = 0x40;
    /// The shell has written nothing before the answer comes.
    pub(super) const EARLY: u8 = 0x80;
}

/// Looks at one input.
pub(crate) fn run(input: &[u8]) {
    let Some((&options, records)) = input.split_first() else { return };
    let whole = Play::new(options).all(records, false);
    let trickled = Play::new(options).all(records, true);
    assert_eq!(whole, trickled, "what is said depends on how the input was cut");
}

/// One record: what the shell does, and the answer that follows.
#[derive(Clone, Copy, Debug)]
struct Record<'a> {
    act: u8,
    bent: u8,
    kind: u8,
    flags: u8,
    whose: u8,
    data: &'a [u8],
}

/// A command as the target sees it.
#[derive(Clone, Copy, Debug)]
struct Live {
    tag: u64,
    reads: u32,
    writes: u32,
    /// Bytes that were handed out.
    heard: u32,
    /// Bytes of write data that left the outbox.
    sent: u32,
    /// What the target has sent or asked for, and how often.
    moved: u32,
    number: u32,
    forgotten: bool,
}

struct Play {
    initiator: Initiator<Arc<[u8]>>,
    mutual: bool,
    digests: (bool, bool),
    full: bool,
    live: BTreeMap<u32, Live>,
    /// The last request that was no command.
    asked: u32,
    stat_sn: u32,
    cmd_sn: u32,
    told_max: u32,
    next_tag: u64,
    said: String,
    heard_text: Vec<u8>,
}

impl Play {
    fn new(options: u8) -> Self {
        let mut settings = Settings::new("iqn.2026-01.test.weir:host".to_owned(), Isid(ISID), None);
        if options & 1 == 0 {
            settings.target = Some("iqn.2026-01.test.weir:disk".to_owned());
        }
        let account = |name: &str, at: usize| Account {
            name: name.to_owned(),
            secret: Secret::new(SECRETS[at]).unwrap(),
        };
        let mutual = options & 6 == 6;
        if options & 2 != 0 {
            let target = mutual.then(|| account("gateway", 1));
            settings.chap = Some(Chap { account: account("alice", 0), target });
        }
        settings.data_digest =
            if options & 8 != 0 { DigestPolicy::Required } else { DigestPolicy::Allowed };
        settings.initial_r2t = options & 16 != 0;
        settings.immediate_data = options & 32 == 0;
        (settings.max_recv, settings.max_burst, settings.first_burst) = (MAX_RECV, 1024, 768);
        (settings.max_outstanding_r2t, settings.commands_max) = (2, COMMANDS_MAX);
        let mut play = Self {
            initiator: Initiator::new(Arc::new(settings), ENTROPY),
            mutual,
            digests: (false, false),
            full: false,
            live: BTreeMap::new(),
            asked: u32::MAX,
            stat_sn: 9,
            cmd_sn: 1,
            told_max: 0,
            next_tag: 0,
            said: String::new(),
            heard_text: Vec::new(),
        };
        // Most inputs start behind the login.
        if options & 64 == 0 && !mutual {
            let digest: &[u8] = if options & 8 == 0 { &[] } else { &[14] };
            let mut answer = |flags, data: &[u8]| {
                let record = Record { act: 0, bent: 0, kind: 9, flags, whose: 0, data };
                play.record(record, false);
            };
            answer(0x81, &[1]);
            answer(0x87, &[&[17, 18, 19, 21, 22], digest].concat());
        }
        play
    }

    /// Everything that is said and sent in answer to the records.
    fn all(mut self, mut records: &[u8], trickle: bool) -> String {
        while let &[act, bent, kind, flags, whose, length, ref rest @ ..] = records {
            let (data, rest) = rest.split_at(rest.len().min(usize::from(length)));
            records = rest;
            self.record(Record { act, bent, kind, flags, whose, data }, trickle);
            if self.initiator.is_over() {
                let received = self.initiator.receive(b"more").expect("no fault after the end");
                assert!(received.event.is_none() && received.consumed == 4);
                break;
            }
        }
        self.said
    }

    fn record(&mut self, record: Record<'_>, trickle: bool) {
        self.act(record.act, record.whose);
        if record.bent & bend::EARLY == 0 || !self.full {
            self.write();
        }
        let pdu = self.answer(record);
        self.feed(&pdu, trickle);
        self.check();
    }

    /// What the shell does.
    fn act(&mut self, act: u8, whose: u8) {
        let itt = self.live.keys().nth(usize::from(whose) % 4).copied();
        match act & 7 {
            1..=3 if self.initiator.room() > 0 => {
                let length = [0, 100, 1000, 3000][usize::from(act >> 3 & 3)];
                let (reads, writes, data) = match act & 7 {
                    1 => (length, 0, Direction::Read(length)),
                    2 => {
                        let payload: Arc<[u8]> = vec![0xda; length as usize + 8].into();
                        (0, length, Direction::Write(payload, 8..length as usize + 8))
                    }
                    _ => (0, 0, Direction::None),
                };
                let tag = self.next_tag;
                self.next_tag += 1;
                let attribute = Attribute::Simple;
                let command = Command { lun: 1, cdb: [0; 16], attribute, data, tag };
                let itt = self.initiator.command(command);
                let live = Live {
                    tag,
                    reads,
                    writes,
                    heard: 0,
                    sent: 0,
                    moved: 0,
                    number: 0,
                    forgotten: false,
                };
                assert!(self.live.insert(itt.0, live).is_none(), "a tag names one task");
            }
            4 => self.ask(|initiator| initiator.ping(7)),
            5 => {
                let function = if act & 8 == 0 {
                    TaskFunction::AbortTask
                } else {
                    TaskFunction::LogicalUnitReset
                };
                self.ask(|initiator| initiator.manage(function, 1, itt.map(Itt), 8));
            }
            6 => {
                if let Some(itt) = itt {
                    self.initiator.forget(Itt(itt));
                    self.live.get_mut(&itt).expect("a live command").forgotten = true;
                }
            }
            7 if act & 8 == 0 => {
                self.initiator.send_targets();
            }
            7 => self.initiator.logout(),
            _ => {}
        }
    }

    fn ask(&mut self, ask: impl FnOnce(&mut Initiator<Arc<[u8]>>) -> Option<Itt>) {
        if let Some(itt) = ask(&mut self.initiator) {
            self.asked = itt.0;
        }
    }

    /// Writes everything and judges it.
    fn write(&mut self) {
        let bytes: Vec<u8> = self.initiator.outbox().slices().flatten().copied().collect();
        self.initiator.written(bytes.len());
        for secret in SECRETS {
            assert!(!bytes.windows(secret.len()).any(|one| one == secret), "a secret was sent");
        }
        let _ = writeln!(self.said, "{}", bytes.escape_ascii());
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let word = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
            let length = (word(4) & 0x00ff_ffff) as usize;
            let (itt, cmd_sn) = (word(16), word(24));
            let opcode = rest[0];
            match opcode {
                0x01 => {
                    assert_eq!(cmd_sn, self.cmd_sn, "command numbers follow each other");
                    let ahead = self.told_max.wrapping_sub(cmd_sn);
                    assert!(ahead < 1 << 31, "a command beyond the window");
                    self.cmd_sn = cmd_sn.wrapping_add(1);
                    if let Some(live) = self.live.get_mut(&itt) {
                        assert_eq!(word(20), live.reads + live.writes);
                        live.sent = length as u32;
                    }
                }
                0x05 => {
                    if let Some(live) = self.live.get_mut(&itt) {
                        assert_eq!(word(40), live.sent, "write data goes in order");
                        live.sent += length as u32;
                        assert!(length > 0 && live.sent <= live.writes);
                    }
                }
                0x44 | 0x46 => self.asked = itt,
                0x40 | 0x42 | 0x43 => {}
                other => panic!("no initiator sends {other:#04x}"),
            }
            let digest = |on: bool| if on { 4 } else { 0 };
            let data = if length == 0 { 0 } else { digest(self.digests.1) };
            rest = &rest[48 + digest(self.digests.0) + length.next_multiple_of(4) + data..];
        }
    }

    /// The answer that is due, bent.
    fn answer(&mut self, record: Record<'_>) -> Vec<u8> {
        let Record { bent, kind, flags, whose, data, .. } = record;
        let is = |bit: u8| bent & bit != 0;
        let opcode = if self.full { KINDS[usize::from(kind) % 12] } else { 0x23 };
        let itt = self.live.keys().nth(usize::from(whose) % 4).copied().unwrap_or(0);
        let (mut pdu, mut data) = ([0; 48], data.to_vec());
        pdu[0] = opcode;
        pdu[1] = flags;
        let mut put = |at: usize, value: u32| pdu[at..at + 4].copy_from_slice(&value.to_be_bytes());
        put(16, itt);
        put(20, u32::MAX);
        let more = |on: bool| u32::from(on) * 4;
        let mut uses_number = true;
        match opcode {
            0x25 => {
                let live = self.live.get_mut(&itt);
                let (moved, number, reads) =
                    live.as_ref().map_or((0, 0, 0), |live| (live.moved, live.number, live.reads));
                let length = (whose as usize * 16).max(data.len());
                let length = length.min(reads.saturating_sub(moved) as usize).min(1024);
                data = (0..length).map(|at| pattern(moved as usize + at)).collect();
                put(36, number + more(is(bend::DATA_NUMBER)));
                put(40, moved + more(is(bend::OFFSET)));
                if let Some(live) = live {
                    live.moved += length as u32;
                    live.number += 1;
                    if flags & 2 != 0 {
                        put(44, live.reads.saturating_sub(live.moved));
                    }
                }
                uses_number = flags & 1 != 0;
            }
            0x21 => {
                if let Some(live) = self.live.get(&itt)
                    && flags & 2 != 0
                {
                    let moved = if live.reads > 0 { live.moved } else { live.sent };
                    put(44, (live.reads + live.writes).saturating_sub(moved));
                }
            }
            0x31 => {
                if let Some(live) = self.live.get_mut(&itt) {
                    let from = live.moved.max(live.sent);
                    let length = (u32::from(whose) * 16).min(live.writes.saturating_sub(from));
                    put(20, 5);
                    put(36, live.number + more(is(bend::DATA_NUMBER)));
                    put(40, from + more(is(bend::OFFSET)));
                    put(44, length + more(is(bend::LENGTH)));
                    live.number += 1;
                    live.moved = from + length;
                }
                uses_number = false;
            }
            0x20 if whose & 1 == 1 => {
                put(16, u32::MAX);
                put(20, u32::from(whose));
                uses_number = false;
            }
            0x20 | 0x22 | 0x24 | 0x26 => {
                put(16, self.asked);
                if opcode == 0x24 && flags & 0x80 == 0 {
                    put(20, 3);
                }
            }
            0x23 => {
                put(16, 0);
                pdu[8..14].copy_from_slice(&ISID);
                pdu[15] = 7;
                pdu[36] = if is(bend::DATA_NUMBER) { whose & 3 } else { 0 };
            }
            _ => {}
        }
        if matches!(opcode, 0x22 | 0x26) {
            pdu[2] = if is(bend::DATA_NUMBER) { whose } else { 0 };
        }
        if matches!(opcode, 0x21 | 0x25) {
            pdu[3] = if is(bend::DATA_NUMBER) { 2 } else { 0 };
        }
        if matches!(opcode, 0x23 | 0x24) {
            data = expanded(&data);
            self.heard_text.extend_from_slice(&data);
        }
        let expected = self.cmd_sn.wrapping_add(if is(bend::EXPECTED) { 9 } else { 0 });
        let max = if is(bend::WINDOW) {
            self.told_max.wrapping_sub(u32::from(whose) << 24)
        } else {
            self.cmd_sn.wrapping_add(u32::from(whose & 7))
        };
        let status = self.stat_sn.wrapping_add(more(is(bend::STATUS_NUMBER)));
        for (at, value) in [(24, status), (28, expected), (32, max)] {
            pdu[at..at + 4].copy_from_slice(&u32::to_be_bytes(value));
        }
        if uses_number {
            self.stat_sn = self.stat_sn.wrapping_add(1);
        }
        // The rule of RFC 7143 section 4.2.2.1, in other words.
        let is_window = max.wrapping_sub(expected).wrapping_add(1) < 1 << 31;
        let ahead = max.wrapping_sub(self.told_max);
        if is_window && ahead < 1 << 31 {
            self.told_max = max;
        }
        self.framed(pdu, &data, is(bend::LENGTH), is(bend::DIGEST))
    }

    fn framed(&self, mut pdu: [u8; 48], data: &[u8], longer: bool, damaged: bool) -> Vec<u8> {
        let length = data.len() as u32 + if longer && pdu[0] != 0x31 { 700 } else { 0 };
        pdu[4..8].copy_from_slice(&length.to_be_bytes());
        let mut bytes = pdu.to_vec();
        if self.digests.0 {
            let digest = crc32c::crc32c(&pdu) ^ u32::from(damaged);
            bytes.extend_from_slice(&digest.to_le_bytes());
        }
        let mut data = data.to_vec();
        data.resize(length as usize, 0);
        data.resize((length as usize).next_multiple_of(4), 0);
        if self.digests.1 && !data.is_empty() {
            let digest = crc32c::crc32c(&data) ^ u32::from(damaged);
            data.extend_from_slice(&digest.to_le_bytes());
        }
        bytes.extend_from_slice(&data);
        bytes
    }

    /// Hands a PDU over, whole or no more than is asked for.
    fn feed(&mut self, pdu: &[u8], trickle: bool) {
        let mut end = if trickle { self.initiator.needed().min(pdu.len()) } else { pdu.len() };
        let mut rest = pdu;
        loop {
            let given = &rest[..end.min(rest.len())];
            let received = match self.initiator.receive(given) {
                Ok(received) => received,
                Err(fault) => {
                    let _ = writeln!(self.said, "{fault}");
                    assert!(self.initiator.is_over());
                    return;
                }
            };
            assert!(received.consumed <= given.len());
            rest = &rest[received.consumed..];
            let went_on = received.consumed > 0 || received.event.is_some();
            if let Some(event) = received.event {
                let _ = writeln!(self.said, "{event:?}");
                self.hear(&event);
            }
            if !went_on {
                let needed = self.initiator.needed();
                assert!(needed <= self.initiator.settings().pdu_length_max());
                if given.len() == rest.len() {
                    assert!(rest.is_empty() || needed > rest.len(), "more than there is");
                    return;
                }
                assert!(needed > end, "a part of what was asked for was not enough");
                end = needed;
            }
        }
    }

    /// Judges the events that the shell gets.
    fn hear(&mut self, event: &Event<'_>) {
        match event {
            Event::LoggedIn { parameters, .. } => {
                let proven = |text: &str| {
                    self.heard_text.windows(text.len()).any(|one| one == text.as_bytes())
                };
                assert!(!self.mutual || proven(PROOF), "a session without the target's proof");
                assert!(parameters.max_burst_length <= 1024);
                assert!(parameters.first_burst_length <= 768);
                self.full = true;
                self.digests = (parameters.header_digest, parameters.data_digest);
            }
            Event::Data { itt, tag, offset, bytes } => {
                let live = self.live.get_mut(&itt.0).expect("data of a command");
                assert!(!live.forgotten && live.tag == *tag && live.heard == *offset);
                for (at, &found) in (live.heard as usize..).zip(*bytes) {
                    // A bent length has zeros behind what is due.
                    assert!(found == pattern(at) || found == 0, "data of another place");
                }
                live.heard += bytes.len() as u32;
                assert!(live.heard <= live.reads, "data beyond the command");
            }
            Event::Done { itt, tag, status, sense, residual } => {
                let live = self.live.remove(&itt.0).expect("a command ends once");
                assert!(!live.forgotten && live.tag == *tag && sense.len() <= 252);
                if *status == Some(0) {
                    let missing = match residual {
                        Residual::Underflow(missing) => *missing,
                        _ => 0,
                    };
                    if live.reads > 0 {
                        assert_eq!(live.heard + missing, live.reads, "GOOD without its data");
                    }
                    if missing == 0 {
                        assert_eq!(live.sent, live.writes, "GOOD before the data was sent");
                    }
                }
            }
            Event::Aborted { itt, tag } => {
                let live = self.live.remove(&itt.0).expect("a command ends once");
                assert!(!live.forgotten && live.tag == *tag);
            }
            _ => {}
        }
    }

    /// What must hold between two answers.
    fn check(&mut self) {
        let left: BTreeMap<u32, bool> =
            self.initiator.outstanding().map(|one| (one.itt.0, one.forgotten)).collect();
        // The end of a forgotten command is no event.
        self.live.retain(|itt, live| !live.forgotten || left.contains_key(itt));
        assert!(left.keys().eq(self.live.keys()), "{left:?} is not {:?}", self.live);
        assert!(left.len() <= COMMANDS_MAX as usize);
        assert!(self.initiator.room() + left.len() as u32 <= COMMANDS_MAX);
        assert!(self.initiator.outbox().owned() <= OWNED_MAX);
    }
}

const fn pattern(at: usize) -> u8 {
    (at % 251 + 1) as u8
}

/// The text with its words.
fn expanded(text: &[u8]) -> Vec<u8> {
    let mut expanded = Vec::new();
    for &byte in text {
        match WORDS.get(usize::from(byte).wrapping_sub(1)) {
            None => expanded.push(byte),
            Some(word) => {
                expanded.extend_from_slice(word.as_bytes());
                expanded.push(0);
            }
        }
    }
    expanded
}
