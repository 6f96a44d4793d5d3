//! The cache's settings and answers in a recording: header and entries.

use super::{FormatError, Reader, encode_outcome, number};
use crate::cache::writeback::{self, LocalId, Mode, Order, Recovered, Sync};
use crate::cache::{Done, Settings};
use crate::clock::Duration;
use crate::request::{LinkId, Tag, TenantId, VolumeId};
use alloc::sync::Arc;
use alloc::vec::Vec;
use slotmap::{Key, KeyData};

/// Writes the settings of the cache.
pub(super) fn encode(out: &mut Vec<u8>, settings: &Settings) {
    let Settings { size, line, owners, logs } = settings;
    number(out, *size);
    number(out, u64::from(*line));
    number(out, owners.len() as u64);
    for owner in owners {
        number(out, owner.index() as u64);
    }
    number(out, logs.len() as u64);
    for log in logs {
        out.push(u8::from(log.is_some()));
        if let Some(log) = log {
            encode_log(out, log);
        }
    }
}

/// Reads it.
pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Settings, FormatError> {
    let (size, line) = (reader.number()?, reader.small()?);
    let mut owners = Vec::new();
    for _ in 0..reader.number()? {
        owners.push(TenantId::new(reader.small()?));
    }
    let mut logs = Vec::new();
    for _ in 0..reader.number()? {
        logs.push(match reader.byte()? {
            0 => None,
            _ => Some(decode_log(reader)?),
        });
    }
    Ok(Settings { size, line, owners, logs })
}

fn encode_log(out: &mut Vec<u8>, log: &writeback::Settings) {
    let writeback::Settings {
        volume,
        block,
        owner,
        mode,
        sync,
        order,
        capacity,
        segment,
        batch_bytes,
        batch_records,
        epoch_bytes,
        epoch_age,
        dirty_age,
        depth,
        merge,
        hold,
        upstream_flush,
        earn,
    } = *log;
    out.extend_from_slice(&volume);
    let flags =
        [mode == Mode::Ram, sync == Sync::Upstream, order == Order::Strict, upstream_flush, earn];
    out.push(flags.iter().rev().fold(0, |byte, &flag| byte << 1 | u8::from(flag)));
    for value in [
        owner,
        capacity,
        segment,
        epoch_bytes,
        merge,
        epoch_age.as_nanos(),
        dirty_age.as_nanos(),
        hold.as_nanos(),
    ] {
        number(out, value);
    }
    for value in [block, batch_bytes, batch_records, depth] {
        number(out, u64::from(value));
    }
}

fn decode_log(reader: &mut Reader<'_>) -> Result<writeback::Settings, FormatError> {
    let volume = reader.take(16)?.try_into().map_err(|_| FormatError::Damaged)?;
    let flags = reader.byte()?;
    let flag = |bit: u8| flags >> bit & 1 == 1;
    Ok(writeback::Settings {
        volume,
        mode: if flag(0) { Mode::Ram } else { Mode::Log },
        sync: if flag(1) { Sync::Upstream } else { Sync::Local },
        order: if flag(2) { Order::Strict } else { Order::Epochs },
        upstream_flush: flag(3),
        earn: flag(4),
        owner: reader.number()?,
        capacity: reader.number()?,
        segment: reader.number()?,
        epoch_bytes: reader.number()?,
        merge: reader.number()?,
        epoch_age: Duration::from_nanos(reader.number()?),
        dirty_age: Duration::from_nanos(reader.number()?),
        hold: Duration::from_nanos(reader.number()?),
        block: reader.small()?,
        batch_bytes: reader.small()?,
        batch_records: reader.small()?,
        depth: reader.small()?,
    })
}

/// Writes what the cache was told; `head` begins an entry of a kind.
pub(super) fn encode_done(out: &mut Vec<u8>, done: &Done, head: impl Fn(&mut Vec<u8>, u8)) {
    match done {
        Done::Fetched { fetch, outcome } => {
            head(out, FETCHED);
            number(out, fetch.data().as_ffi());
            encode_outcome(out, *outcome);
        }
        Done::Reserved { job, tag } => {
            head(out, RESERVED);
            number(out, job.data().as_ffi());
            number(out, tag.0);
        }
        Done::Logged { volume, io, outcome } => {
            head(out, LOGGED);
            number(out, volume.index() as u64);
            number(out, io.0);
            encode_outcome(out, *outcome);
        }
        Done::Recovered(volume, recovered) => {
            head(out, RECOVERED);
            number(out, volume.index() as u64);
            let bytes = recovered.encode();
            number(out, bytes.len() as u64);
            out.extend_from_slice(&bytes);
        }
        Done::Drain(volume, on) => {
            head(out, DRAIN);
            number(out, volume.index() as u64);
            out.push(u8::from(*on));
        }
        Done::Retry(volume) => {
            head(out, RETRY);
            number(out, volume.index() as u64);
        }
        Done::Abandoned(volume, outcome) => {
            head(out, ABANDONED);
            number(out, volume.index() as u64);
            encode_outcome(out, *outcome);
        }
        Done::Close(volume) => {
            head(out, CLOSE);
            number(out, volume.index() as u64);
        }
        Done::Gone(link) => {
            head(out, GONE);
            number(out, link.index() as u64);
        }
    }
}

/// Reads what the cache was told, if an entry of this kind is about that.
pub(super) fn decode_done(reader: &mut Reader<'_>, kind: u8) -> Result<Option<Done>, FormatError> {
    let volume = |reader: &mut Reader<'_>| reader.small().map(VolumeId::new);
    Ok(Some(match kind {
        FETCHED => Done::Fetched {
            fetch: KeyData::from_ffi(reader.number()?).into(),
            outcome: reader.outcome()?,
        },
        RESERVED => Done::Reserved {
            job: KeyData::from_ffi(reader.number()?).into(),
            tag: Tag(reader.number()?),
        },
        LOGGED => Done::Logged {
            volume: volume(reader)?,
            io: LocalId(reader.number()?),
            outcome: reader.outcome()?,
        },
        RECOVERED => {
            let volume = volume(reader)?;
            let length = reader.number()?;
            let recovered = Recovered::decode(reader.take(length)?);
            let recovered = recovered.map_err(|_| FormatError::Damaged)?;
            Done::Recovered(volume, Arc::new(recovered))
        }
        DRAIN => Done::Drain(volume(reader)?, reader.byte()? != 0),
        RETRY => Done::Retry(volume(reader)?),
        ABANDONED => Done::Abandoned(volume(reader)?, reader.outcome()?),
        CLOSE => Done::Close(volume(reader)?),
        GONE => Done::Gone(LinkId::new(reader.small()?)),
        _ => return Ok(None),
    }))
}

const FETCHED: u8 = 17;
const RESERVED: u8 = 18;
const LOGGED: u8 = 19;
const RECOVERED: u8 = 20;
const DRAIN: u8 = 21;
const RETRY: u8 = 22;
const ABANDONED: u8 = 23;
const CLOSE: u8 = 24;
const GONE: u8 = 25;
