//! The cache's settings and answers in a recording: header and entries.

use super::{FormatError, Reader, encode_outcome, encode_settings, number};
use crate::cache::quarantine::LostRange;
use crate::cache::writeback::{self, LocalId, Recovered};
use crate::cache::{Done, Settings};
use crate::request::{LinkId, Tag, TenantId, VolumeId};
use crate::settings::{Kind, Setting, Settings as _};
use crate::units::Extent;
use alloc::sync::Arc;
use alloc::vec::Vec;
use slotmap::{Key, KeyData};

/// Writes the settings of the cache.
pub(super) fn encode(out: &mut Vec<u8>, settings: &Settings) {
    let Settings { owners, logs, .. } = settings;
    encode_settings(out, settings);
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
    let settings = reader.settings()?;
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
    Ok(Settings { owners, logs, ..settings })
}

/// The name of the volume, what has two values as bits of one byte, and the numbers.
pub(super) fn encode_log(out: &mut Vec<u8>, log: &writeback::Settings) {
    out.extend_from_slice(&log.volume);
    let bits = writeback::Settings::TABLE.iter().filter(|setting| is_bit(setting));
    let bit = |setting: &Setting| log.number(setting.name).map_or(0, |bit| bit as u8);
    out.push(bits.rev().fold(0, |byte, setting| byte << 1 | bit(setting)));
    let numbers = writeback::Settings::TABLE.iter().filter(|setting| !is_bit(setting));
    numbers.filter_map(|setting| log.number(setting.name)).for_each(|value| number(out, value));
}

pub(super) fn decode_log(reader: &mut Reader<'_>) -> Result<writeback::Settings, FormatError> {
    let volume = reader.take(16)?.try_into().map_err(|_| FormatError::Damaged)?;
    let mut log = writeback::Settings { volume, ..writeback::Settings::default() };
    let mut bits = reader.byte()?;
    for setting in writeback::Settings::TABLE {
        let number = if is_bit(setting) {
            let bit = bits & 1;
            bits >>= 1;
            bit.into()
        } else {
            reader.number()?
        };
        log.set(setting, number).map_err(|_| FormatError::Damaged)?;
    }
    Ok(log)
}

/// Whether a setting of a log has two values.
const fn is_bit(setting: &Setting) -> bool {
    matches!(setting.kind, Kind::Word([_, _]) | Kind::Flag)
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
        Done::Lost(volume, ranges) => {
            head(out, LOST);
            number(out, volume.index() as u64);
            number(out, ranges.len() as u64);
            for LostRange { extent, seq, since } in ranges {
                for value in [extent.offset, extent.length, *seq, *since] {
                    number(out, value);
                }
            }
        }
        Done::Quarantine(volume, since) => {
            head(out, QUARANTINE);
            number(out, volume.index() as u64);
            number(out, *since);
        }
        Done::LostKept(volume, outcome) => {
            head(out, LOST_KEPT);
            number(out, volume.index() as u64);
            encode_outcome(out, *outcome);
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
        LOST => {
            let (volume, mut ranges) = (volume(reader)?, Vec::new());
            for _ in 0..reader.number()? {
                let extent = Extent::new(reader.number()?, reader.number()?);
                let (seq, since) = (reader.number()?, reader.number()?);
                if extent.length == 0 || extent.end().is_none() {
                    return Err(FormatError::Damaged);
                }
                ranges.push(LostRange { extent, seq, since });
            }
            Done::Lost(volume, ranges)
        }
        QUARANTINE => Done::Quarantine(volume(reader)?, reader.number()?),
        LOST_KEPT => Done::LostKept(volume(reader)?, reader.outcome()?),
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
const LOST: u8 = 28;
const QUARANTINE: u8 = 29;
const LOST_KEPT: u8 = 30;
