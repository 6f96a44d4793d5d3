//! The format of a recorded run: what a pipeline was made from, and every input with its time.
//!
//! A recording holds no payload and no wall-clock time. Fed to a pipeline again it must give the
//! same actions; the digest at its end says so. Integers are LEB128 varints.
//!
//! | part | content |
//! |---|---|
//! | header | [`MAGIC`], then the configuration |
//! | entries | kind, nanoseconds since the previous entry, fields |
//! | end | kind [`Entry::End`], digest, number of actions, checksum of everything before |
//!
//! The checksum is FNV-1a over 64 bits: no change of one byte escapes it.
//!
//! A recording without its end is one whose writer was killed: it can be replayed up to there, but not compared.

mod cache;
mod paths;
mod promises;
mod shares;
mod volumes;

use crate::clock::{Duration, Instant};
use crate::digest::Digest;
use crate::error::IoError;
use crate::pipeline::{Config, Input, Policies, SetControl};
use crate::policy::{Choice, Policy};
use crate::request::{LinkId, Op, Outcome, Request, RequestKey, Tag, TenantId, VolumeId};
use crate::rng::{FNV_OFFSET as CHECKSUM_START, fnv1a};
use crate::settings::Settings;
use crate::transfer::Port;
use crate::units::{Bandwidth, Extent};
use crate::{control, dispatch, path, transfer};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use shares::{HOST, QUEUE, SET_WEIGHTS, VOLUME};
use slotmap::{Key, KeyData};
use volumes::{CAPPED, LOGGED_VOLUME_ADDED, RESIZED, VOLUME_ADDED, VOLUME_REMOVED};

/// The first bytes of a recording; the last one is the version of the format.
pub const MAGIC: &[u8; 8] = b"WEIRREC\x0a";

/// The longest entry in bytes, but for those that change promises or shares, add a volume, or bring along what was kept. A reader that holds this many
/// needs no more for any other.
pub const MAX_ENTRY: usize = 128;

/// The longest possible header, or entry that changes promises or shares, adds a volume, or brings along what was kept, in bytes: a reader refuses to look
/// further for its end.
pub const MAX_HEADER: usize = 32 << 20;

/// One entry of a recording.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// The pipeline was given an input.
    Input(Instant, Input),
    /// The pipeline was told that its deadline had come.
    Deadline(Instant),
    /// The run ended; the digest covers all actions.
    End(Digest),
}

/// Why bytes are not a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// The bytes end in the middle; more may follow.
    Truncated,
    /// The first bytes are not those of a recording.
    NotARecording,
    /// A recording of a version that this program does not know.
    UnknownVersion(u8),
    /// The stage has no policy or parameter of the recorded name.
    UnknownPolicy,
    /// A field has a value that no writer writes.
    Damaged,
    /// The checksum at the end is not that of what came before.
    WrongChecksum,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the recording ends in the middle of an entry"),
            Self::NotARecording => f.write_str("this is not a recording of weir serve"),
            Self::UnknownVersion(version) => {
                write!(f, "the recording has version {version}, which this program does not know")
            }
            Self::UnknownPolicy => {
                f.write_str("the recording uses a policy or parameter that this program lacks")
            }
            Self::Damaged => f.write_str("the recording is damaged"),
            Self::WrongChecksum => {
                f.write_str("the recording is damaged somewhere: its checksum is wrong")
            }
        }
    }
}

impl core::error::Error for FormatError {}

/// Writes a recording, piece by piece.
#[derive(Clone, Debug)]
pub struct Encoder {
    previous: Instant,
    checksum: u64,
}

impl Encoder {
    /// Begins a recording: appends the header to `out`.
    pub fn begin(out: &mut Vec<u8>, config: &Config) -> Self {
        let start = out.len();
        encode_header(out, config);
        Self { previous: Instant::ZERO, checksum: fnv1a(CHECKSUM_START, &out[start..]) }
    }

    /// Appends an entry. Times must not run backwards; nothing may follow the end.
    pub fn entry(&mut self, out: &mut Vec<u8>, entry: &Entry) {
        let start = out.len();
        encode_entry(out, self.previous, entry);
        self.checksum = fnv1a(self.checksum, &out[start..]);
        match *entry {
            Entry::Input(at, _) | Entry::Deadline(at) => self.previous = at,
            Entry::End(_) => out.extend_from_slice(&self.checksum.to_le_bytes()),
        }
    }
}

/// Reads a recording, piece by piece.
#[derive(Clone, Debug)]
pub struct Decoder {
    previous: Instant,
    checksum: u64,
}

impl Decoder {
    /// Reads the header at the front of `bytes`; the last value is its length.
    pub fn begin(bytes: &[u8]) -> Result<(Self, Config, usize), FormatError> {
        let (config, length) = decode_header(bytes)?;
        let checksum = fnv1a(CHECKSUM_START, &bytes[..length]);
        Ok((Self { previous: Instant::ZERO, checksum }, config, length))
    }

    /// Reads the entry at the front of `bytes`, and its length. After an error it can be tried again with more bytes.
    pub fn entry(&mut self, bytes: &[u8]) -> Result<(Entry, usize), FormatError> {
        let (entry, length) = decode_entry(bytes, self.previous)?;
        let checksum = fnv1a(self.checksum, &bytes[..length]);
        if let Entry::Input(at, _) | Entry::Deadline(at) = entry {
            (self.previous, self.checksum) = (at, checksum);
            return Ok((entry, length));
        }
        let end = length + CHECKSUM_LENGTH;
        let written = bytes.get(length..end).ok_or(FormatError::Truncated)?;
        if written != checksum.to_le_bytes() {
            return Err(FormatError::WrongChecksum);
        }
        Ok((entry, end))
    }
}

/// Writes the header.
fn encode_header(out: &mut Vec<u8>, config: &Config) {
    out.extend_from_slice(MAGIC);
    let Config { volumes, backends, promises, shares, limits, paths, cache, policies } = config;
    number(out, volumes.len() as u64);
    for volume in volumes {
        volumes::encode(out, volume);
    }
    paths::encode(out, backends, paths);
    cache::encode(out, cache);
    promises::encode(out, promises);
    shares::encode(out, shares);
    encode_settings(out, limits);
    let Policies { cache, prefetch, control, dispatch, path, transfer } = policies;
    encode_choice(out, cache);
    encode_choice(out, prefetch);
    encode_choice(out, control);
    encode_choice(out, dispatch);
    encode_choice(out, path);
    text(out, STORAGE);
    number(out, 0);
    encode_choice(out, transfer);
}

/// Reads the header; the second value is its length.
fn decode_header(bytes: &[u8]) -> Result<(Config, usize), FormatError> {
    let mut reader = Reader { bytes, at: 0 };
    let magic = reader.take(MAGIC.len() as u64)?;
    if magic[..7] != MAGIC[..7] {
        return Err(FormatError::NotARecording);
    }
    if magic[7] != MAGIC[7] {
        return Err(FormatError::UnknownVersion(magic[7]));
    }
    let mut volumes = Vec::new();
    for _ in 0..reader.number()? {
        volumes.push(volumes::decode(&mut reader)?);
    }
    let (backends, paths) = paths::decode(&mut reader)?;
    let cache = cache::decode(&mut reader)?;
    let promises = promises::decode(&mut reader)?;
    let shares = shares::decode(&mut reader)?;
    let limits = reader.settings()?;
    let policies = Policies {
        cache: reader.choice(crate::cache::evict::POLICIES)?,
        prefetch: reader.choice(crate::cache::prefetch::POLICIES)?,
        control: reader.choice(control::POLICIES)?,
        dispatch: reader.choice(dispatch::POLICIES)?,
        path: reader.choice(path::POLICIES)?,
        transfer: {
            let storage = (reader.text()?, reader.number()?);
            if storage != (STORAGE, 0) {
                return Err(FormatError::UnknownPolicy);
            }
            reader.choice(transfer::POLICIES)?
        },
    };
    let config = Config { volumes, backends, promises, shares, limits, paths, cache, policies };
    match config.validate() {
        Ok(()) => Ok((config, reader.at)),
        Err(_) => Err(FormatError::Damaged),
    }
}

/// Writes one entry. `previous` is the time of the entry before it, or zero.
fn encode_entry(out: &mut Vec<u8>, previous: Instant, entry: &Entry) {
    let head = |out: &mut Vec<u8>, kind: u8, at: Instant| {
        out.push(kind);
        number(out, at.since(previous).as_nanos());
    };
    match *entry {
        Entry::Input(at, Input::Arrive(request)) => {
            head(out, ARRIVE, at);
            number(out, request.tag.0);
            number(out, request.tenant.index() as u64);
            number(out, request.volume.index() as u64);
            number(out, request.link.index() as u64);
            let Request { fua, ordered, job, .. } = request;
            let flags = u8::from(fua) << 4 | u8::from(ordered) << 5 | u8::from(job) << 6;
            out.push(request.op.code() | flags);
            number(out, request.extent.offset);
            number(out, request.extent.length);
        }
        Entry::Input(at, Input::Stored { key, outcome }) => {
            head(out, STORED, at);
            number(out, key.data().as_ffi());
            encode_outcome(out, outcome);
        }
        Entry::Input(at, Input::Sent { key, bytes }) => {
            head(out, SENT, at);
            number(out, key.data().as_ffi());
            number(out, bytes);
        }
        Entry::Input(at, Input::Link(id, link)) => {
            head(out, LINK, at);
            number(out, id.index() as u64);
            out.push(u8::from(link.interleaves) | u8::from(link.port.is_some()) << 1);
            if let Some(Port { id, rate }) = link.port {
                number(out, u64::from(id));
                number(out, rate.bytes_per_second());
            }
        }
        Entry::Input(
            at,
            ref input @ (Input::Resized(..)
            | Input::Capped(..)
            | Input::VolumeAdded(_)
            | Input::VolumeRemoved(_)),
        ) => volumes::encode_input(out, input, |out, kind| head(out, kind, at)),
        Entry::Input(at, Input::SetControl(ref set_control)) => {
            head(out, SET_CONTROL, at);
            encode_choice(out, &set_control.control);
            promises::encode(out, &set_control.promises);
        }
        Entry::Input(at, ref input @ (Input::SetWeights(_) | Input::Substream(..))) => {
            shares::encode_input(out, input, |out, kind| head(out, kind, at));
        }
        Entry::Input(at, Input::TakeOver(ref handover)) => {
            head(out, TAKE_OVER, at);
            promises::encode_handover(out, handover);
        }
        Entry::Input(
            at,
            ref input @ (Input::PathDown(..)
            | Input::PathUp(..)
            | Input::UnitReset(..)
            | Input::WriteLost(..)
            | Input::PathAccess(..)
            | Input::Checked(..)
            | Input::PathOrder(..)),
        ) => paths::encode_input(out, input, |out, kind| head(out, kind, at)),
        Entry::Input(at, Input::Cache(ref done)) => {
            cache::encode_done(out, done, |out, kind| head(out, kind, at));
        }
        Entry::Deadline(at) => head(out, DEADLINE, at),
        Entry::End(digest) => {
            out.push(END);
            out.extend_from_slice(&digest.value().to_le_bytes());
            number(out, digest.actions());
        }
    }
}

/// Reads one entry; the second value is its length.
fn decode_entry(bytes: &[u8], previous: Instant) -> Result<(Entry, usize), FormatError> {
    let mut reader = Reader { bytes, at: 0 };
    let kind = reader.byte()?;
    if kind == END {
        let state = reader.take(8)?.try_into().map_err(|_| FormatError::Damaged)?;
        let digest = Digest::resume(u64::from_le_bytes(state), reader.number()?);
        return Ok((Entry::End(digest), reader.at));
    }
    let passed = Duration::from_nanos(reader.number()?);
    let at = previous.as_nanos().checked_add(passed.as_nanos()).ok_or(FormatError::Damaged)?;
    let at = Instant::from_nanos(at);
    let input = match kind {
        ARRIVE => Input::Arrive(reader.request()?),
        STORED => {
            let key = reader.key()?;
            Input::Stored { key, outcome: reader.outcome()? }
        }
        SENT => Input::Sent { key: reader.key()?, bytes: reader.number()? },
        LINK => {
            let id = LinkId::new(reader.small()?);
            let flags = reader.byte()?;
            if flags > 3 {
                return Err(FormatError::Damaged);
            }
            let port = if flags & 2 == 0 {
                None
            } else {
                let id = reader.small()?;
                let rate = Bandwidth::per_second(reader.number()?);
                Some(Port { id, rate: rate.ok_or(FormatError::Damaged)? })
            };
            Input::Link(id, transfer::Link { interleaves: flags & 1 != 0, port })
        }
        SET_CONTROL => {
            let control = reader.choice(control::POLICIES)?;
            let promises = promises::decode(&mut reader)?;
            if promises.validate().is_err() {
                return Err(FormatError::Damaged);
            }
            Input::SetControl(Arc::new(SetControl { control, promises }))
        }
        SET_WEIGHTS | QUEUE | HOST | VOLUME => shares::decode_input(&mut reader, kind)?,
        TAKE_OVER => Input::TakeOver(Arc::new(promises::decode_handover(&mut reader)?)),
        RESIZED | CAPPED | VOLUME_ADDED | LOGGED_VOLUME_ADDED | VOLUME_REMOVED => {
            volumes::decode_input(&mut reader, kind)?
        }
        DEADLINE => return Ok((Entry::Deadline(at), reader.at)),
        kind => match cache::decode_done(&mut reader, kind)? {
            Some(done) => Input::Cache(done),
            None => paths::decode_input(&mut reader, kind)?.ok_or(FormatError::Damaged)?,
        },
    };
    Ok((Entry::Input(at, input), reader.at))
}

/// Bytes of the checksum behind the end.
const CHECKSUM_LENGTH: usize = 8;

const ARRIVE: u8 = 1;
const STORED: u8 = 2;
const SENT: u8 = 3;
// 4, 5, 11 to 15, 31 and 32 are in `paths`, 17 to 25 and 28 to 30 in `cache`, 8, 10 and 34 to 36 in `volumes`,
// 26, 33, 37 and 38 in `shares`.
const DEADLINE: u8 = 6;
const END: u8 = 7;
const SET_CONTROL: u8 = 9;
const TAKE_OVER: u8 = 16;
const LINK: u8 = 27;

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The values of a table, in its order.
fn encode_settings<S: Settings>(out: &mut Vec<u8>, settings: &S) {
    for setting in S::TABLE {
        let value = settings.number(setting.name);
        number(out, value.expect("settings of a recording have a value"));
    }
}

fn encode_outcome(out: &mut Vec<u8>, outcome: Outcome) {
    out.push(outcome.err().map_or(0, IoError::code));
}

/// The only policy that the storage stage ever had; the format keeps its place.
const STORAGE: &str = "direct";

fn encode_choice<B>(out: &mut Vec<u8>, choice: &Choice<B>) {
    text(out, choice.policy().name);
    let values =
        || choice.values().iter().flat_map(|(of, values)| values.iter().map(move |v| (of, v)));
    number(out, values().count() as u64);
    for (parameter, &value) in values() {
        text(out, parameter.name);
        number(out, value);
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, FormatError> {
        let byte = *self.bytes.get(self.at).ok_or(FormatError::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], FormatError> {
        if count > MAX_HEADER as u64 {
            return Err(FormatError::Damaged);
        }
        let end = self.at + count as usize;
        let taken = self.bytes.get(self.at..end).ok_or(FormatError::Truncated)?;
        self.at = end;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, FormatError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(FormatError::Damaged);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(FormatError::Damaged)
    }

    fn small(&mut self) -> Result<u32, FormatError> {
        u32::try_from(self.number()?).map_err(|_| FormatError::Damaged)
    }

    /// The values of a table; one outside its range is damage.
    fn settings<S: Settings>(&mut self) -> Result<S, FormatError> {
        let mut settings = S::default();
        for setting in S::TABLE {
            settings.set(setting, self.number()?).map_err(|_| FormatError::Damaged)?;
        }
        Ok(settings)
    }

    fn key(&mut self) -> Result<RequestKey, FormatError> {
        Ok(KeyData::from_ffi(self.number()?).into())
    }

    fn outcome(&mut self) -> Result<Outcome, FormatError> {
        Ok(match self.byte()? {
            0 => Ok(()),
            code => Err(IoError::from_code(code).ok_or(FormatError::Damaged)?),
        })
    }

    fn text(&mut self) -> Result<&'a str, FormatError> {
        let length = self.number()?;
        core::str::from_utf8(self.take(length)?).map_err(|_| FormatError::Damaged)
    }

    fn request(&mut self) -> Result<Request, FormatError> {
        let tag = Tag(self.number()?);
        let tenant = TenantId::new(self.small()?);
        let volume = VolumeId::new(self.small()?);
        let link = LinkId::new(self.small()?);
        let op = self.byte()?;
        Ok(Request {
            tag,
            tenant,
            volume,
            link,
            op: Op::from_code(op & 0x0f).ok_or(FormatError::Damaged)?,
            extent: Extent::new(self.number()?, self.number()?),
            fua: op & 0x10 != 0,
            ordered: op & 0x20 != 0,
            job: op & 0x40 != 0,
        })
    }

    fn choice<B>(&mut self, list: &'static [Policy<B>]) -> Result<Choice<B>, FormatError> {
        let unknown = |_| FormatError::UnknownPolicy;
        let mut choice = Choice::named(list, self.text()?).map_err(unknown)?;
        // The values of a list follow each other under one name.
        let (mut before, mut place) = ("", 0);
        for _ in 0..self.number()? {
            let name = self.text()?;
            place = if name == before { place + 1 } else { 0 };
            choice.set_at(name, place, self.number()?).map_err(unknown)?;
            before = name;
        }
        Ok(choice)
    }
}

#[cfg(test)]
mod tests;
