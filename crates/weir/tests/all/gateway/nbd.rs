//! An NBD client, written anew from the protocol's document.

use super::Gateway;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Request types.
pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

/// Command flag: durable when it ends.
pub(crate) const FUA: u16 = 1;
/// A command flag: no holes.
pub(crate) const NO_HOLE: u16 = 1 << 1;
/// A command flag: only if it is fast.
pub(crate) const FAST_ZERO: u16 = 1 << 4;

/// Errors, by their numbers.
pub(crate) const EPERM: u32 = 1;
pub(crate) const EINVAL: u32 = 22;
pub(crate) const ENOTSUP: u32 = 95;

/// Options and replies to them.
pub(crate) const STARTTLS: u32 = 5;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const SET_META_CONTEXT: u32 = 10;
pub(crate) const ACK: u32 = 1;
const INFO: u32 = 3;
pub(crate) const TLS_REQUIRED: u32 = (1 << 31) + 5;

/// A connection of some kind.
pub(crate) trait Stream: Read + Write + Send + Debug {}
impl<T: Read + Write + Send + Debug> Stream for T {}

/// The answer to a request: its data, or the number of an error.
pub(crate) type Answer = Result<Vec<u8>, u32>;

/// A client, first in the handshake, then with an export.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: Box<dyn Stream>,
    /// Bytes of the export.
    pub(crate) size: u64,
    next_cookie: u64,
    /// Requests without an answer: where they read, and what they have read.
    open: BTreeMap<u64, (u64, Vec<u8>)>,
    /// Answers that no test has asked for yet.
    answered: BTreeMap<u64, Answer>,
}

impl Gateway {
    /// The address of the first NBD listener over TCP.
    pub(crate) fn nbd_address(&self) -> SocketAddr {
        let mut addresses = self.nbd.iter().filter_map(|url| url.split_once("://"));
        addresses.find_map(|(_, address)| address.parse().ok()).unwrap()
    }

    /// A client of the export `disk`, over TCP.
    pub(crate) fn client(&self) -> Client {
        let mut client = Client::tcp(self.nbd_address());
        client.choose("disk");
        client
    }
}

impl Client {
    /// Connects over TCP and takes in the greeting.
    pub(crate) fn tcp(address: SocketAddr) -> Self {
        Self::greeted(Box::new(super::initiator::connect(address)))
    }

    /// Connects to a Unix socket and takes in the greeting.
    pub(crate) fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self::greeted(Box::new(stream))
    }

    fn greeted(mut stream: Box<dyn Stream>) -> Self {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        stream.write_all(&3_u32.to_be_bytes()).unwrap();
        let (open, answered) = (BTreeMap::new(), BTreeMap::new());
        Self { stream, size: 0, next_cookie: 1, open, answered }
    }

    /// Sends an option.
    pub(crate) fn option(&mut self, option: u32, data: &[u8]) {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes).unwrap();
    }

    /// The type and the data of the next reply to an option.
    pub(crate) fn option_reply(&mut self) -> io::Result<(u32, Vec<u8>)> {
        let mut header = [0; 20];
        self.stream.read_exact(&mut header)?;
        assert_eq!(header[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        let mut data = vec![0; number(&header[16..20]) as usize];
        self.stream.read_exact(&mut data)?;
        Ok((number(&header[12..16]) as u32, data))
    }

    /// Chooses an export, with structured replies and what is known of its holes.
    pub(crate) fn choose(&mut self, name: &str) {
        self.option(STRUCTURED_REPLY, &[]);
        assert_eq!(self.option_reply().unwrap().0, ACK);
        let length = (name.len() as u32).to_be_bytes();
        let context = b"base:allocation";
        let query = [&length, name.as_bytes(), &[0, 0, 0, 1, 0, 0, 0, 15], context].concat();
        self.option(SET_META_CONTEXT, &query);
        while self.option_reply().unwrap().0 != ACK {}
        self.option(GO, &[&length, name.as_bytes(), &[0, 0]].concat());
        loop {
            let (kind, data) = self.option_reply().unwrap();
            match kind {
                ACK => return,
                INFO if data[..2] == [0, 0] => self.size = number(&data[2..10]),
                INFO => {}
                refused => panic!("export {name} refused with {refused:#x}"),
            }
        }
    }

    /// Sends a request; returns its name.
    pub(crate) fn issue(
        &mut self,
        (kind, flags): (u16, u16),
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> u64 {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend([flags, kind].map(u16::to_be_bytes).concat());
        bytes.extend([cookie, offset].map(u64::to_be_bytes).concat());
        bytes.extend(length.to_be_bytes());
        bytes.extend(payload);
        self.stream.write_all(&bytes).unwrap();
        let room = if kind == READ { length as usize } else { 0 };
        self.open.insert(cookie, (offset, vec![0; room]));
        cookie
    }

    /// Names of the requests without an answer.
    pub(crate) fn outstanding(&self) -> Vec<u64> {
        self.open.keys().copied().collect()
    }

    /// Waits for the end of a request.
    pub(crate) fn wait(&mut self, cookie: u64) -> Answer {
        loop {
            if let Some(answer) = self.answered.remove(&cookie) {
                return answer;
            }
            self.hear();
        }
    }

    /// Takes in a simple reply, or one chunk of a structured one.
    fn hear(&mut self) {
        let mut header = [0; 20];
        self.stream.read_exact(&mut header[..16]).unwrap();
        if number(&header[..4]) == 0x6744_6698 {
            let (error, cookie) = (number(&header[4..8]) as u32, number(&header[8..16]));
            let (_, read) = self.open.remove(&cookie).expect("an answer to what was asked");
            assert!(read.is_empty(), "data comes in chunks, as was agreed on");
            self.answered.insert(cookie, if error == 0 { Ok(read) } else { Err(error) });
            return;
        }
        self.stream.read_exact(&mut header[16..]).unwrap();
        assert_eq!(number(&header[..4]), 0x668e_33ef, "the magic of a chunk");
        let (done, kind) = (header[5] & 1 != 0, number(&header[6..8]));
        let (cookie, length) = (number(&header[8..16]), number(&header[16..20]) as usize);
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data).unwrap();
        let (offset, read) = self.open.get_mut(&cookie).expect("an answer to what was asked");
        match kind {
            0 => {}
            1 => {
                let at = (number(&data[..8]) - *offset) as usize;
                read[at..at + length - 8].copy_from_slice(&data[8..]);
            }
            5 => *read = data[4..].to_vec(),
            _ => {
                assert!(kind >= 1 << 15 && done, "an error: {kind:#x}");
                self.open.remove(&cookie);
                self.answered.insert(cookie, Err(number(&data[..4]) as u32));
                return;
            }
        }
        if done {
            let (_, read) = self.open.remove(&cookie).unwrap();
            self.answered.insert(cookie, Ok(read));
        }
    }

    /// Executes a request from beginning to end.
    pub(crate) fn execute(&mut self, kind: u16, offset: u64, length: u32) -> Answer {
        let cookie = self.issue((kind, 0), offset, length, &[]);
        self.wait(cookie)
    }

    /// Reads.
    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        self.execute(READ, offset, length as u32).unwrap()
    }

    /// Writes.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Answer {
        let cookie = self.issue((WRITE, 0), offset, data.len() as u32, data);
        self.wait(cookie)
    }

    /// Which parts of a range are holes: length and whether it is one.
    pub(crate) fn holes(&mut self, offset: u64, length: u32) -> Vec<(u32, bool)> {
        let data = self.execute(BLOCK_STATUS, offset, length).unwrap();
        let runs = data.chunks(8);
        runs.map(|run| (number(&run[..4]) as u32, number(&run[4..]) & 1 != 0)).collect()
    }
}

/// Bytes as a number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
