//! A client for tests: builds options and requests, takes answers apart.

use std::sync::Arc;

use crate::nbd::{
    BlockSize, Connection, Event, Export, Exports, Limits, PeerError, Received, Request, Tls,
};

/// Index of the export `disk`, which can be written.
pub(super) const DISK: usize = 0;
/// Its size in bytes.
pub(super) const SIZE: u64 = 1 << 20;
/// Its maximum payload in bytes.
pub(super) const PAYLOAD_MAX: u32 = 1 << 16;
/// Client flags: fixed newstyle, no zeroes.
pub(super) const FLAGS: u32 = 3;

pub(super) mod option {
    pub(in super::super) const EXPORT_NAME: u32 = 1;
    pub(in super::super) const ABORT: u32 = 2;
    pub(in super::super) const LIST: u32 = 3;
    pub(in super::super) const STARTTLS: u32 = 5;
    pub(in super::super) const INFO: u32 = 6;
    pub(in super::super) const GO: u32 = 7;
    pub(in super::super) const STRUCTURED_REPLY: u32 = 8;
    pub(in super::super) const LIST_META_CONTEXT: u32 = 9;
    pub(in super::super) const SET_META_CONTEXT: u32 = 10;
}

pub(super) const ACK: u32 = 1;
pub(super) const ERR_UNSUP: u32 = 0x8000_0001;
pub(super) const ERR_POLICY: u32 = 0x8000_0002;
pub(super) const ERR_INVALID: u32 = 0x8000_0003;
pub(super) const ERR_TLS_REQD: u32 = 0x8000_0005;
pub(super) const ERR_UNKNOWN: u32 = 0x8000_0006;
pub(super) const ERR_SHUTDOWN: u32 = 0x8000_0007;
pub(super) const ERR_TOO_BIG: u32 = 0x8000_0009;

pub(super) fn exports() -> Exports {
    let block_size = BlockSize { minimum: 512, preferred: 4096, maximum: PAYLOAD_MAX };
    let disk = Export {
        name: "disk".to_owned(),
        description: "a disk".to_owned(),
        size: SIZE,
        trim: true,
        block_size,
        ..Export::default()
    };
    let golden = Export { name: "golden".to_owned(), read_only: true, ..disk.clone() };
    let block_size = BlockSize { maximum: 1 << 26, ..block_size };
    let big = Export { name: "big".to_owned(), block_size, ..golden.clone() };
    let unnamed = Export { size: 5000, fast_zero: true, ..Export::default() };
    Exports::new(vec![disk, golden, unnamed, big]).unwrap()
}

/// An event that keeps its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    StartTls,
    Export(usize),
    Request(Request),
    Data { slot: u32, offset: u32, bytes: Vec<u8>, complete: bool },
    Disconnect,
}

impl From<Event<'_>> for Told {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::StartTls => Self::StartTls,
            Event::ExportChosen { index } => Self::Export(index),
            Event::Request(request) => Self::Request(request),
            Event::Data { slot, offset, bytes, complete } => {
                Self::Data { slot, offset, bytes: bytes.to_vec(), complete }
            }
            Event::Disconnect => Self::Disconnect,
        }
    }
}

/// A reply to a request: a simple one has no kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) cookie: u64,
    pub(super) kind: Option<u16>,
    pub(super) error: u32,
    pub(super) data: Vec<u8>,
}

pub(super) struct Client {
    pub(super) connection: Connection<Arc<[u8]>>,
    /// Bytes that were sent and not taken.
    pub(super) pending: Vec<u8>,
    /// Bytes that came and were not looked at.
    pub(super) output: Vec<u8>,
    /// Slots whose replies were written.
    pub(super) done: Vec<u32>,
}

impl Client {
    /// A client that has seen the greeting and sent its flags.
    pub(super) fn new(limits: Limits) -> Self {
        let mut client = Self::silent(limits);
        client.drain();
        client.output.clear();
        assert_eq!(client.send(&FLAGS.to_be_bytes()), Ok(vec![]));
        client
    }

    /// A client to which the server has nothing said yet.
    pub(super) fn silent(limits: Limits) -> Self {
        let connection = Connection::new(Arc::new(exports()), limits);
        Self { connection, pending: Vec::new(), output: Vec::new(), done: Vec::new() }
    }

    /// A client in the transmission phase of this export, perhaps with structured replies and
    /// `base:allocation`.
    pub(super) fn ready(name: &str, structured: bool) -> Self {
        Self::ready_with(Limits::default(), name, structured)
    }

    pub(super) fn ready_with(limits: Limits, name: &str, structured: bool) -> Self {
        let mut client = Self::new(limits);
        if structured {
            assert_eq!(client.ask(option::STRUCTURED_REPLY, &[]), [(ACK, vec![])]);
            let query = contexts(name, &["base:allocation"]);
            assert_eq!(client.ask(option::SET_META_CONTEXT, &query).len(), 2);
        }
        client.choose(name);
        client.connection.export_admitted();
        client.drain();
        assert!(client.connection.is_transmission());
        client.output.clear();
        client
    }

    /// Sends `NBD_OPT_GO` and leaves it to the shell.
    pub(super) fn choose(&mut self, name: &str) -> usize {
        let told = self.send(&encode_option(option::GO, &go(name, &[]))).unwrap();
        let [Told::Export(index)] = told[..] else {
            panic!("an export is chosen: {told:?}");
        };
        index
    }

    /// Sends bytes as a shell would hand them on: writes the outbox whenever the connection waits
    /// for that.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<Vec<Told>, PeerError> {
        self.pending.extend_from_slice(bytes);
        let mut told = Vec::new();
        loop {
            let was_waiting = self.connection.is_waiting();
            let Received { consumed, event } = self.connection.receive(&self.pending)?;
            let idle = consumed == 0 && event.is_none();
            assert!(idle || !was_waiting, "nothing is taken while the connection waits");
            told.extend(event.map(Told::from));
            self.pending.drain(..consumed);
            if idle {
                let is_behind = self.connection.is_waiting() && !self.connection.outbox.is_empty();
                if !is_behind {
                    return Ok(told);
                }
                self.drain();
            }
        }
    }

    /// Sends one option and returns the types and data of the replies.
    pub(super) fn ask(&mut self, number: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        assert_eq!(self.send(&encode_option(number, data)), Ok(vec![]));
        self.option_replies(number)
    }

    /// The replies to an option that have come, and nothing else.
    pub(super) fn option_replies(&mut self, number: u32) -> Vec<(u32, Vec<u8>)> {
        self.drain();
        let output = std::mem::take(&mut self.output);
        let mut rest = &output[..];
        let mut replies = Vec::new();
        while !rest.is_empty() {
            assert_eq!(rest[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
            assert_eq!(word(&rest[8..]), number);
            let (kind, length) = (word(&rest[12..]), word(&rest[16..]) as usize);
            replies.push((kind, rest[20..20 + length].to_vec()));
            rest = &rest[20 + length..];
        }
        replies
    }

    /// Sends one request that needs the shell, and returns it.
    pub(super) fn request(&mut self, flags: u16, kind: u16, range: (u64, u32)) -> Request {
        let told = self.send(&encode_request(flags, kind, 7, range)).unwrap();
        let [Told::Request(request)] = told[..] else {
            panic!("a request is an event: {told:?}");
        };
        request
    }

    /// The one answer that has come; a simple one with `length` bytes of data.
    pub(super) fn answer(&mut self, length: usize) -> Answer {
        let mut answers = self.answers(length);
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0)
    }

    /// The answers that have come, of which simple ones have `length` bytes of data.
    pub(super) fn answers(&mut self, length: usize) -> Vec<Answer> {
        self.drain();
        let output = std::mem::take(&mut self.output);
        let mut rest = &output[..];
        let mut answers = Vec::new();
        while !rest.is_empty() {
            let (answer, behind) = match word(rest) {
                0x6744_6698 => {
                    let (head, behind) = rest.split_at(16);
                    let error = word(&head[4..]);
                    let (data, behind) = behind.split_at(if error == 0 { length } else { 0 });
                    let cookie = long(&head[8..]);
                    (Answer { cookie, kind: None, error, data: data.to_vec() }, behind)
                }
                0x668e_33ef => {
                    assert_eq!(rest[4..6], [0, 1], "one chunk is the whole reply");
                    let kind = u16::from_be_bytes([rest[6], rest[7]]);
                    let (data, behind) = rest[20..].split_at(word(&rest[16..]) as usize);
                    let error = if kind & 0x8000 == 0 { 0 } else { word(data) };
                    let cookie = long(&rest[8..]);
                    (Answer { cookie, kind: Some(kind), error, data: data.to_vec() }, behind)
                }
                other => panic!("{other:#x} begins no reply"),
            };
            answers.push(answer);
            rest = behind;
        }
        answers
    }

    /// Writes all that waits in the outbox.
    pub(super) fn drain(&mut self) {
        let outbox = self.connection.outbox();
        let bytes: Vec<u8> = outbox.slices().flatten().copied().collect();
        assert_eq!(bytes.len(), outbox.len());
        let done = &mut self.done;
        outbox.advance(bytes.len(), |slot| done.push(slot));
        self.output.extend(bytes);
    }
}

pub(super) fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(*bytes.first_chunk().unwrap())
}

pub(super) fn long(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(*bytes.first_chunk().unwrap())
}

pub(super) fn limits(requests: u32, tls: Tls) -> Limits {
    Limits { requests, tls }
}

pub(super) fn encode_option(number: u32, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u32;
    [b"IHAVEOPT", &number.to_be_bytes()[..], &length.to_be_bytes(), data].concat()
}

pub(super) fn encode_request(flags: u16, kind: u16, cookie: u64, range: (u64, u32)) -> Vec<u8> {
    let (offset, length) = range;
    [
        &0x2560_9513_u32.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &kind.to_be_bytes(),
        &cookie.to_be_bytes(),
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
    ]
    .concat()
}

/// Data of `NBD_OPT_GO` and `NBD_OPT_INFO`.
pub(super) fn go(name: &str, infos: &[u16]) -> Vec<u8> {
    let infos_count = (infos.len() as u16).to_be_bytes();
    let infos = infos.iter().flat_map(|info| info.to_be_bytes());
    string(name).into_iter().chain(infos_count).chain(infos).collect()
}

/// Data of the options for metadata contexts.
pub(super) fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let count = (queries.len() as u32).to_be_bytes();
    let queries = queries.iter().flat_map(|query| string(query));
    string(name).into_iter().chain(count).chain(queries).collect()
}

pub(super) fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}
