//! An NBD client from its first byte on.
//!
//! The first byte of an input chooses the limits and how much is agreed on already. Records follow,
//! each of a control byte and what its kind asks for: raw bytes, an option, a request, many of them,
//! or something that the shell does. The connection is fed twice, with everything there is and bit by
//! bit: what it tells and sends must be the same.

use weir_wire::nbd::{Error, Limits, PeerError, Tls};

use super::nbd_client::{Client, Cut, NAMES, Policy, encode, payload};
use super::nbd_replies::Sent;

/// Control byte: what kind of record it is.
const KIND: u8 = 0x07;
/// Control byte: the bytes are sent together with those of the next record.
const JOINED: u8 = 0x08;
/// Control byte: the client does not read for now.
const NOT_READING: u8 = 0x10;
/// First byte: the client is in the transmission phase already.
const READY: u8 = 0x80;
/// First byte: bit by bit means in single bytes.
const SINGLE_BYTES: u8 = 0x40;
/// Payload that this client does not send, in bytes: it goes away before.
const PAYLOAD_MAX: u32 = 128 << 10;
/// Most requests of one conversation, by number.
const FLOOD_MAX: usize = 5000;
/// The reply that lets a client begin with TLS.
const STARTTLS_ACKNOWLEDGED: &[u8] = b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x05\0\0\0\x01\0\0\0\0";
/// The option that asks for extents.
const SET_META_CONTEXT: u8 = 10;

/// Looks at one input.
pub(crate) fn run(input: &[u8]) {
    let Some((&options, records)) = input.split_first() else { return };
    let bit_by_bit = if options & SINGLE_BYTES == 0 { Cut::AsNeeded } else { Cut::SingleBytes };
    let whole = converse(options, records, Cut::Whole);
    let parts = converse(options, records, bit_by_bit);
    assert_eq!(whole.error, parts.error, "the error depends on how the input was cut");
    let mut same = whole.output == parts.output;
    if whole.error == Some(PeerError::PlaintextBehindStartTls) {
        // What comes behind is seen before the answer if it is there already.
        same |= parts.output.strip_prefix(&whole.output[..]) == Some(STARTTLS_ACKNOWLEDGED);
    }
    assert!(same, "what is sent depends on how the input was cut");
    assert_eq!(whole.asked, parts.asked, "what is asked depends on how the input was cut");
}

/// One conversation, to its end.
fn converse(options: u8, records: &[u8], cut: Cut) -> Client {
    let limits = Limits {
        requests: [1, 2, 4, 16][usize::from(options & 3)],
        tls: [Tls::Off, Tls::Offered, Tls::Required, Tls::Off][usize::from(options >> 2 & 3)],
    };
    let mut speaker =
        Speaker { client: Client::new(limits, cut), cookie: 0, joined: Vec::new(), last: None };
    if options & READY == 0 {
        // Client flags: fixed newstyle, no zeroes.
        let flags = u32::from(options >> 4 & 3);
        speaker.say(&flags.to_be_bytes(), false);
    } else {
        speaker.say(&3_u32.to_be_bytes(), false);
        for (number, form) in [(5, 0), (8, 0), (SET_META_CONTEXT, 0x23), (7, 2)] {
            speaker.option(number, form, &mut &[][..], false);
        }
    }
    speaker.talk(records);
    speaker.client.end();
    speaker.client
}

/// The client, and what it has said.
struct Speaker {
    client: Client,
    /// Of the last request; no two have the same.
    cookie: u64,
    /// What goes out together with what comes next.
    joined: Vec<u8>,
    /// The last request.
    last: Option<Sent>,
}

/// Takes bytes from the front, zeros when there are no more.
fn take<const N: usize>(records: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let n = N.min(records.len());
    bytes[..n].copy_from_slice(&records[..n]);
    *records = &records[n..];
    bytes
}

/// Takes a length and as many bytes.
fn take_string<'a>(records: &mut &'a [u8]) -> &'a [u8] {
    let [length] = take(records);
    let (string, rest) = records.split_at(records.len().min(length.into()));
    *records = rest;
    string
}

/// A name of an export as the protocol writes it.
fn name(form: u8) -> Vec<u8> {
    let name = NAMES[usize::from(form >> 3 & 3)];
    [&(name.len() as u32).to_be_bytes(), name.as_bytes()].concat()
}

impl Speaker {
    fn talk(&mut self, mut records: &[u8]) {
        while let Some((&control, rest)) = records.split_first() {
            records = rest;
            self.client.policy = [Policy::AtOnce, Policy::Fail, Policy::Late, Policy::Halfway]
                [usize::from(control >> 6)];
            let joins = control & JOINED != 0;
            let goes_on = match control & KIND {
                0 => {
                    let bytes = take_string(&mut records);
                    self.client.is_tracked = false;
                    self.say(bytes, joins)
                }
                1 => {
                    let [number, form] = take(&mut records);
                    self.option(number, form, &mut records, joins)
                }
                2 => {
                    let [deed] = take(&mut records);
                    let sent = self.request(&mut records);
                    self.send(&sent, deed, joins)
                }
                3 => {
                    let [count] = take(&mut records);
                    // A few, or rarely enough to fill the outbox.
                    self.flood(if count < 0xff { usize::from(count) % 16 } else { 1000 })
                }
                _ => {
                    let [deed] = take(&mut records);
                    self.stir(deed);
                    true
                }
            };
            if !goes_on {
                return;
            }
            if control & NOT_READING == 0 {
                self.client.drain();
            }
        }
        self.say(&[], false);
    }

    /// Sends bytes, or keeps them for the next time.
    fn say(&mut self, bytes: &[u8], joins: bool) -> bool {
        self.joined.extend_from_slice(bytes);
        if joins {
            return true;
        }
        let bytes = std::mem::take(&mut self.joined);
        self.client.feed(&bytes)
    }

    /// Sends an option with data in one of several forms.
    fn option(&mut self, number: u8, form: u8, records: &mut &[u8], joins: bool) -> bool {
        let mut query = None;
        let data = match form & 7 {
            0 => Vec::new(),
            1 => name(form)[4..].to_vec(),
            // Requests for information by number.
            2 => {
                let mut data = name(form);
                data.extend_from_slice(&u16::from(form >> 5).to_be_bytes());
                data.extend((0..form >> 5).flat_map(|kind| [0, kind]));
                data
            }
            3 => {
                let index = usize::from(form >> 3 & 3);
                query = Some(index);
                let queries: &[&str] = match form >> 5 {
                    0 => &[],
                    1 => &["base:allocation"],
                    2 => &["base:"],
                    3 => &["x:y", "base:allocation", "base:"],
                    _ => &["base:other"],
                };
                let mut data = name(form);
                data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
                for query in queries {
                    data.extend_from_slice(&(query.len() as u32).to_be_bytes());
                    data.extend_from_slice(query.as_bytes());
                }
                data
            }
            4 => take_string(records).to_vec(),
            // The longest that is looked at, and the shortest that is skipped.
            5 => vec![0; 16 << 10],
            6 => vec![0; (16 << 10) + 1],
            _ => vec![0; 600],
        };
        if number == SET_META_CONTEXT {
            self.client.is_tracked &= form & 7 != 4;
            self.client.ledger.queries.push_back(query);
        }
        // With the last form the data does not end, and is mostly longer than is skipped.
        self.client.is_tracked &= form & 7 != 7;
        let length =
            if form & 7 == 7 { (1 << 20) + u32::from(form >> 3) } else { data.len() as u32 };
        let mut bytes = b"IHAVEOPT\0\0\0".to_vec();
        bytes.push(number);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend(data);
        self.say(&bytes, joins)
    }

    /// The next request, with an offset near the beginning or the end of the export.
    fn request(&mut self, records: &mut &[u8]) -> Sent {
        let [kind, flags, o0, o1, l0, l1] = take(records);
        let number = |high: u8, low: u8| u64::from(u16::from_be_bytes([high, low]));
        let unit = |high: u8| if high & 0x40 == 0 { 512 } else { 1 };
        let offset = number(o0 & 0x3f, o1) * unit(o0);
        let offset = if o0 & 0x80 == 0 { offset } else { self.client.size.wrapping_sub(offset) };
        let length = number(l0 & 0x3f, l1) * unit(l0) * if l0 & 0x80 == 0 { 1 } else { 64 };
        self.cookie += 1;
        Sent {
            cookie: self.cookie,
            kind: kind.into(),
            flags: flags.into(),
            offset,
            length: length as u32,
        }
    }

    /// Sends a request; half way through its payload the shell does something.
    fn send(&mut self, sent: &Sent, deed: u8, joins: bool) -> bool {
        self.last = Some(*sent);
        self.client.expect(*sent);
        if sent.kind == 1 && sent.length > PAYLOAD_MAX {
            self.client.is_tracked = false;
            self.say(&encode(sent), false);
            return false;
        }
        let payload = payload(sent);
        let (front, back) = payload.split_at(payload.len() / 3);
        if joins {
            return self.say(&[&encode(sent), front, back].concat(), true);
        }
        let goes_on = self.say(&[&encode(sent), front].concat(), false);
        self.stir(deed);
        goes_on && self.say(back, false)
    }

    /// Sends the last request without its payload again and again, all at once.
    fn flood(&mut self, count: usize) -> bool {
        let Some(mut sent) = self.last.filter(|sent| sent.kind != 1) else { return true };
        sent.length = sent.length.min(512);
        let mut bytes = Vec::new();
        for _ in 0..count.min(FLOOD_MAX.saturating_sub(self.cookie as usize)) {
            self.cookie += 1;
            sent.cookie = self.cookie;
            self.client.expect(sent);
            bytes.extend(encode(&sent));
        }
        self.say(&bytes, false)
    }

    /// What the shell does by itself: the lower half says what, the upper half is a number.
    fn stir(&mut self, deed: u8) {
        let client = &mut self.client;
        let number = usize::from(deed >> 4);
        match deed & 0x0f {
            1 => drop(client.finish_oldest(None)),
            2 => drop(client.finish_newest()),
            3 => {
                let errors = [Error::Eperm, Error::Enospc, Error::Eshutdown, Error::Enotsup];
                client.finish_oldest(Some(errors[number % errors.len()]));
            }
            4 => client.drain(),
            5 => client.write(number * 5),
            6 => client.resize(number as u64 * 700),
            7 => while client.finish_newest() {},
            _ => {}
        }
    }
}
