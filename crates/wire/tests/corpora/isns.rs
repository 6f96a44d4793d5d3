//! An iSNS server that answers as it likes, and calls back as it likes.
//!
//! An input is records: what happens, and a few bytes for it. A client is fed twice, with everything at once and byte by
//! byte; both must do the same. What it writes is read when the input says so. It has at most one request outstanding,
//! which fits one PDU; the bytes that it has to write are bounded; it knows when it is due unless it has left; without a
//! connection it has nothing to write.

use std::net::SocketAddr;
use std::time::Duration;
use weir_wire::isns::{Callback, Client, Notice, Objects, Own, PDU_MAX, Settings, Target, View};

const SOURCE: &str = "iqn.2026-11.org.example:g1";

/// The longest request with its header.
const REQUEST_MAX: usize = 12 + 4_000;

/// Answers of a callback that may wait, and the longest that may come on top.
const OUTPUT_MAX: usize = (128 << 10) + PDU_MAX;

/// Looks at one input.
pub(crate) fn run(input: &[u8]) {
    let whole = converse(input, false);
    let bytes = converse(input, true);
    assert_eq!(whole, bytes, "what happens depends on how the input was cut");
}

/// What a client was after a step, and the bytes that it sent.
type Seen = (View, Vec<u8>);

struct World {
    client: Client,
    callback: Callback,
    now: Duration,
    byte_by_byte: bool,
    /// Bytes that the client has not taken, and those that its callback has not.
    left: [Vec<u8>; 2],
    /// What the client has written, up to the part of a PDU.
    written: Vec<u8>,
    /// The function and transaction of the last request.
    asked: [u8; 4],
    /// Requests that are not answered.
    outstanding: usize,
    seen: Vec<Seen>,
}

fn converse(mut input: &[u8], byte_by_byte: bool) -> Vec<Seen> {
    let settings = Settings {
        source: SOURCE.into(),
        alias: "weir g1".into(),
        entity: "e".into(),
        period: 60,
        inquiries: 20,
        seed: 1,
    };
    let now = Duration::ZERO;
    let mut world = World {
        client: Client::new(settings, now),
        callback: Callback::default(),
        now,
        byte_by_byte,
        left: Default::default(),
        written: Vec::new(),
        asked: [0; 4],
        outstanding: 0,
        seen: Vec::new(),
    };
    while let [what, rest @ ..] = input {
        input = rest;
        world.step(*what, &mut input);
        world.look();
    }
    world.seen
}

impl World {
    fn step(&mut self, what: u8, input: &mut &[u8]) {
        match what & 7 {
            0 => {
                if self.client.wants_connection(self.now) {
                    self.client.connecting(self.now);
                    self.left[0].clear();
                    self.written.clear();
                    self.outstanding = 0;
                    self.client.connected(self.now, objects(what >> 3));
                }
            }
            // The answer to the last request, with a status and raw attributes, or good ones.
            1 => {
                let [status, length] = take(input);
                let good = if length & 0x80 == 0 { raw(input, length) } else { shown(status) };
                let mut payload = vec![0, 0, 0, if length & 0x80 == 0 { status } else { 0 }];
                payload.extend(good);
                let [f0, f1, t0, t1] = self.asked;
                self.outstanding = self.outstanding.saturating_sub(1);
                let length = (payload.len() as u16).to_be_bytes();
                let head = [0, 1, f0 | 0x80, f1, length[0], length[1], 0x4c, 0, t0, t1, 0, 0];
                self.feed(&[&head[..], &payload].concat());
            }
            2 => {
                let [length] = take(input);
                let bytes = raw(input, length);
                self.feed(&bytes);
            }
            3 => {
                let [length] = take(input);
                let bytes = raw(input, length);
                self.call(&bytes);
            }
            4 => self.client.change(self.now, objects(what >> 3)),
            5 => self.client.disconnected(self.now, None),
            6 => {
                let due = self.client.deadline().unwrap_or(self.now);
                self.now = self.now.max(due) + Duration::from_millis(u64::from(what >> 3));
                self.client.tick(self.now);
            }
            _ if what == 0xff => self.client.leave(self.now),
            _ if what == 0xf7 => self.client.notice(self.now, Notice::Removed),
            // The server reads: all, or a part.
            _ if what & 0x80 != 0 => self.read(usize::MAX),
            _ if what & 0x40 != 0 => self.read(usize::from(what >> 3)),
            // A good inquiry, on its own connection and on that of the client.
            _ if what & 0x20 != 0 => self.call(&inquiry()),
            _ => self.feed(&inquiry()),
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        if !self.client.uses_connection() {
            return;
        }
        for part in bytes.chunks(if self.byte_by_byte { 1 } else { usize::MAX }) {
            self.left[0].extend(part);
            let taken = self.client.receive(self.now, &self.left[0]);
            self.left[0].drain(..taken);
            assert!(self.left[0].len() < PDU_MAX, "a whole PDU is taken or refused");
        }
    }

    fn call(&mut self, bytes: &[u8]) {
        let portals = vec![portal(1)];
        let own = Own { source: SOURCE.into(), entity: "e".into(), portals };
        for part in bytes.chunks(if self.byte_by_byte { 1 } else { usize::MAX }) {
            self.left[1].extend(part);
            let Ok((taken, notices)) = self.callback.receive(&self.left[1], &own) else {
                (self.callback, self.left[1]) = (Callback::default(), Vec::new());
                return;
            };
            self.left[1].drain(..taken);
            for notice in notices {
                self.client.notice(self.now, notice);
            }
            let full = self.callback.output().len() >= OUTPUT_MAX - PDU_MAX;
            // A shell reads no more from a server that does not read, either.
            if full {
                self.left[1].clear();
            }
            assert!(self.left[1].len() < PDU_MAX);
        }
    }

    /// The server reads up to `most` bytes of the client, and of its callback.
    fn read(&mut self, most: usize) {
        let output = self.client.output();
        let length = output.len().min(most);
        self.written.extend(&output[..length]);
        self.client.wrote(length);
        self.callback.wrote(self.callback.output().len().min(most));
        while let [_, _, f0, f1, l0, l1, flags, _, t0, t1, ..] = self.written[..] {
            let length = 12 + usize::from(u16::from_be_bytes([l0, l1]));
            if self.written.len() < length {
                break;
            }
            if f0 & 0x80 == 0 {
                self.asked = [f0, f1, t0, t1];
                self.outstanding += 1;
                assert_eq!(self.outstanding, 1, "more than one request is outstanding");
                assert!(length <= REQUEST_MAX, "a request is too long for servers");
            }
            assert_eq!(flags, 0x8c, "a message is one PDU, never with the replace flag");
            self.written.drain(..length);
        }
    }

    fn look(&mut self) {
        let (output, answers) = (self.client.output(), self.callback.output().len());
        assert!(output.len() <= OUTPUT_MAX + REQUEST_MAX, "{} bytes wait", output.len());
        assert!(answers <= OUTPUT_MAX, "{answers} bytes of answers wait");
        let idle = output.is_empty() || self.client.uses_connection();
        assert!(idle, "nothing is sent without a connection");
        let due = self.client.deadline();
        assert_eq!(due.is_none(), self.client.has_left(), "it is due, or it has left");
        let most = self.now + Duration::from_secs(751);
        assert!(due.is_none_or(|at| at <= most), "it waits for at most ten minutes and a quarter");
        self.seen.push((self.client.view(), output.to_vec()));
    }
}

fn portal(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 3_260))
}

/// One or two portals, and up to seven targets.
fn objects(bits: u8) -> Objects {
    let name = |n: u8| format!("iqn.2026-11.org.example:{n}");
    let targets = (0..bits & 7).map(|n| Target { name: name(n), alias: None }).collect();
    let portals = (0..=bits >> 4 & 1).map(|n| portal(n + 1)).collect();
    Objects { portals, targets, callback: 4_000 }
}

/// A portal as a server shows it, the first or the second by the third bit; an odd number: with the wrong port for
/// callbacks. The period is a few seconds.
fn shown(bits: u8) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 4, b'e', 0, 0, 0]);
    bytes.extend([0, 0, 0, 6, 0, 0, 0, 4, 0, 0, 0, bits >> 3]);
    bytes.extend(key(1 + (bits >> 2 & 1)));
    bytes.extend([0, 0, 0, 23, 0, 0, 0, 4, 0, 0, 15, 0xa0 ^ (bits & 1)]);
    bytes
}

/// The key of a portal.
fn key(last: u8) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 16, 0, 0, 0, 16];
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last]);
    bytes.extend([0, 0, 0, 17, 0, 0, 0, 4, 0, 0, 12, 188]);
    bytes
}

fn inquiry() -> Vec<u8> {
    let payload = [&[0, 0, 0, 1, 0, 0, 0, 4, b'e', 0, 0, 0], &key(1)[..]].concat();
    let length = payload.len() as u8;
    [&[0, 1, 0, 13, 0, length, 0x4c, 0, 0, 9, 0, 0], &payload[..]].concat()
}

fn take<const N: usize>(input: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let (front, rest) = input.split_at(input.len().min(N));
    bytes[..front.len()].copy_from_slice(front);
    *input = rest;
    bytes
}

fn raw(input: &mut &[u8], length: u8) -> Vec<u8> {
    let (front, rest) = input.split_at(input.len().min((length & 0x7f).into()));
    *input = rest;
    front.to_vec()
}
