//! Compares the replies that an NBD client expects with those that it gets.

use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;

use weir_wire::nbd::{Command, Export, Extent, Request};

/// Most extents of one reply.
const EXTENTS_MAX: usize = 1024;
/// Option numbers that the client looks at.
const OPTION_GO: u32 = 7;
const OPTION_STRUCTURED_REPLY: u32 = 8;
const OPTION_SET_META_CONTEXT: u32 = 10;
/// Option reply types.
const ACK: u32 = 1;
const META_CONTEXT: u32 = 4;
/// Request types.
pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

/// A request as it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) cookie: u64,
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// What the shell answers to a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Done,
    /// The number of the error.
    Error(u32),
    /// The data of a read at this offset, see [`data_at`].
    Data(u64, u32),
    /// Lengths and flags of extents.
    Status(Vec<(u32, u32)>),
}

/// All data, read and written, is a part of this: period 64 KiB, and room for the longest request
/// from any place within the first.
static PATTERN: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..3 << 16).map(|at: u32| (at ^ at >> 8) as u8).collect());

/// The data at an offset.
pub(crate) fn data_at(offset: u64, length: u32) -> &'static [u8] {
    let start = (offset & 0xffff) as usize;
    &PATTERN[start..start + length as usize]
}

/// What a reply to a block status tells of these extents.
pub(crate) fn told_extents(request: &Request, extents: &[Extent]) -> Vec<(u32, u32)> {
    let mut told: Vec<(u32, u32)> = Vec::new();
    let mut left = request.length;
    for extent in extents {
        let length = extent.length.min(left);
        left -= length;
        let flags = u32::from(extent.hole) | u32::from(extent.zero) << 1;
        match told.last_mut() {
            Some(last) if last.1 == flags => last.0 += length,
            _ if length > 0 => told.push((length, flags)),
            _ => {}
        }
    }
    let most =
        if request.command == (Command::BlockStatus { one: true }) { 1 } else { EXTENTS_MAX };
    told.truncate(most);
    told
}

/// How the two sides talk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreed {
    pub(crate) structured: bool,
    /// The export whose extents the client may ask for.
    pub(crate) context: Option<usize>,
    pub(crate) is_transmission: bool,
}

/// What the client knows of the conversation.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) agreed: Agreed,
    greeted: bool,
    /// Exports of the context queries that have no answer yet.
    pub(crate) queries: VecDeque<Option<usize>>,
    /// A context was granted since the last query was answered.
    granted: bool,
    /// Requests by cookie that have no reply.
    pub(crate) open: BTreeMap<u64, Sent>,
    /// What the shell has answered to them.
    pub(crate) answers: BTreeMap<u64, Answer>,
}

impl Sent {
    /// Whether the shell is to be asked, by the document's rules for an export of this size.
    pub(crate) fn is_sound(&self, export: &Export, size: u64, agreed: Agreed, own: usize) -> bool {
        let (offset, length) = (self.offset, self.length);
        // Section "Command flags": FUA, NO_HOLE, DF, REQ_ONE and FAST_ZERO.
        let flags = match self.kind {
            READ if agreed.structured => 0b0_0101,
            READ | WRITE | FLUSH | TRIM => 0b0_0001,
            WRITE_ZEROES if export.fast_zero => 0b1_0011,
            WRITE_ZEROES => 0b0_0011,
            BLOCK_STATUS => 0b0_1001,
            _ => return false,
        };
        if self.flags & !flags != 0 {
            return false;
        }
        if self.kind == FLUSH {
            return offset == 0 && length == 0;
        }
        let is_allowed = match self.kind {
            WRITE | WRITE_ZEROES => !export.read_only,
            TRIM => export.trim && !export.read_only,
            BLOCK_STATUS => agreed.context == Some(own),
            _ => true,
        };
        let block = export.block_size;
        let fits = !matches!(self.kind, READ | WRITE) || length <= block.maximum;
        is_allowed
            && fits
            && length > 0
            && u128::from(offset) + u128::from(length) <= u128::from(size)
            && offset.is_multiple_of(block.minimum.into())
            && length.is_multiple_of(block.minimum)
    }

    /// Whether this is what the shell is asked.
    pub(crate) fn is(&self, request: &Request) -> bool {
        let set = |bit: u16| self.flags >> bit & 1 == 1;
        let command = match self.kind {
            READ => Command::Read,
            WRITE => Command::Write,
            FLUSH => Command::Flush,
            TRIM => Command::Trim,
            WRITE_ZEROES => Command::WriteZeroes { may_punch: !set(1), fast: set(4) },
            BLOCK_STATUS => Command::BlockStatus { one: set(3) },
            _ => return false,
        };
        let fua = matches!(self.kind, WRITE | TRIM | WRITE_ZEROES) && set(0);
        (request.command, request.offset, request.length, request.fua)
            == (command, self.offset, self.length, fua)
    }
}

fn be16(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn be64(bytes: &[u8]) -> u64 {
    u64::from(be32(bytes)) << 32 | u64::from(be32(&bytes[4..]))
}

impl Ledger {
    /// Nothing that was agreed on without TLS holds with it.
    pub(crate) fn forget(&mut self) {
        self.agreed = Agreed::default();
    }

    /// Takes apart what the server has said since the last time: whole messages. `is_admission` if
    /// the shell has just let the client use an export.
    pub(crate) fn read(&mut self, mut said: &[u8], is_admission: bool) {
        if !self.greeted && !said.is_empty() {
            let greeting = b"NBDMAGICIHAVEOPT\x00\x03";
            assert_eq!(said[..18], *greeting);
            self.greeted = true;
            said = &said[18..];
        }
        if is_admission && said.get(..8).is_none_or(|start| be64(start) != OPTION_REPLY) {
            // NBD_OPT_EXPORT_NAME: size and flags, and zeroes unless the client does without.
            assert!(said.len() == 10 || said.len() == 134 && said[10..] == [0; 124]);
            self.agreed.is_transmission = true;
            return;
        }
        while !said.is_empty() {
            let length = if self.agreed.is_transmission {
                self.read_reply(said)
            } else {
                self.read_option_reply(said)
            };
            said = &said[length..];
        }
        assert!(!is_admission || self.agreed.is_transmission, "an admission is reported");
    }

    /// One reply to an option; returns its length.
    fn read_option_reply(&mut self, said: &[u8]) -> usize {
        assert_eq!(be64(said), OPTION_REPLY);
        let (option, kind, length) = (be32(&said[8..]), be32(&said[12..]), be32(&said[16..]));
        let is_error = kind >> 31 == 1;
        assert!(is_error || (1..=4).contains(&kind), "no reply has type {kind}");
        match (option, kind) {
            (OPTION_STRUCTURED_REPLY, ACK) => self.agreed.structured = true,
            (OPTION_SET_META_CONTEXT, META_CONTEXT) => self.granted = true,
            (OPTION_SET_META_CONTEXT, _) => {
                let granted = std::mem::take(&mut self.granted);
                let query = self.queries.pop_front().flatten();
                self.agreed.context = query.filter(|_| granted);
            }
            (OPTION_GO, ACK) => self.agreed.is_transmission = true,
            _ => {}
        }
        20 + length as usize
    }

    /// One reply to a request; returns its length.
    fn read_reply(&mut self, said: &[u8]) -> usize {
        let cookie = match be32(said) {
            SIMPLE_REPLY | STRUCTURED_REPLY => be64(&said[8..]),
            other => panic!("no reply begins with {other:#x}"),
        };
        let sent = self.open.remove(&cookie).expect("one reply for each request");
        let answer = self.answers.remove(&cookie);
        if be32(said) == SIMPLE_REPLY {
            let error = be32(&said[4..]);
            let is_read = sent.kind == READ && error == 0;
            assert!(!(self.agreed.structured && (error != 0 || is_read)), "a chunk is due");
            return 16
                + match answer {
                    None => {
                        assert_ne!(error, 0, "{sent:?} was not even asked for");
                        0
                    }
                    Some(Answer::Done) => {
                        assert_eq!(error, 0);
                        0
                    }
                    Some(Answer::Error(number)) => {
                        assert_eq!(error, number);
                        0
                    }
                    Some(Answer::Data(offset, length)) => {
                        assert_eq!(error, 0);
                        assert!(said[16..].starts_with(data_at(offset, length)), "other data");
                        length as usize
                    }
                    Some(Answer::Status(_)) => panic!("extents are reported in a chunk"),
                };
        }
        assert!(self.agreed.structured, "chunks were not agreed on");
        let (flags, kind, length) = (be16(&said[4..]), be16(&said[6..]), be32(&said[16..]));
        assert_eq!(flags, 1, "every reply is one chunk");
        let body = &said[20..20 + length as usize];
        match (kind, answer) {
            (1, Some(Answer::Data(offset, length))) => {
                assert_eq!(be64(body), offset);
                assert!(body[8..] == *data_at(offset, length), "other data");
            }
            (5, Some(Answer::Status(extents))) => {
                let told = body[4..].chunks(8).map(|one| (be32(one), be32(&one[4..])));
                assert!(be32(body) == 1 && told.eq(extents), "the extents that the shell told");
            }
            (0x8001, Some(Answer::Error(number))) => assert_eq!(be32(body), number),
            (0x8001 | 0x8002, None) => {
                let words = usize::from(be16(&body[4..]));
                let offset = if kind == 0x8002 { 8 } else { 0 };
                assert!(be32(body) != 0 && body.len() == 6 + words + offset);
            }
            (kind, answer) => panic!("a chunk of type {kind:#x} for {answer:?}"),
        }
        20 + length as usize
    }
}

/// Before every reply to an option.
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// Before every simple reply.
const SIMPLE_REPLY: u32 = 0x6744_6698;
/// Before every chunk of a structured reply.
const STRUCTURED_REPLY: u32 = 0x668e_33ef;
