//! What part of the backends' time streams are due, as the header of a recording and its entries have it.

use super::{FormatError, Reader, number};
use crate::dispatch::{Background, HostNumber, Member, Shares, Weight};
use crate::pipeline::Input;
use crate::request::{LinkId, VolumeId};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Writes an input about weights; `head` writes what is before its fields.
pub(super) fn encode_input(out: &mut Vec<u8>, input: &Input, head: impl FnOnce(&mut Vec<u8>, u8)) {
    match input {
        Input::SetWeights(shares) => {
            head(out, SET_WEIGHTS);
            encode(out, shares);
        }
        Input::Substream(member, weight) => {
            match *member {
                Member::Link(link) => {
                    head(out, QUEUE);
                    number(out, link.index() as u64);
                }
                Member::Host(link, host) => {
                    head(out, HOST);
                    number(out, link.index() as u64);
                    number(out, host.0.into());
                }
                Member::Volume(volume) => {
                    head(out, VOLUME);
                    number(out, volume.index() as u64);
                }
            }
            number(out, weight.map_or(0, |weight| weight.as_1024ths().into()));
        }
        _ => unreachable!("an input that concerns no weight"),
    }
}

/// Reads an input about weights of this kind.
pub(super) fn decode_input(reader: &mut Reader<'_>, kind: u8) -> Result<Input, FormatError> {
    if kind == SET_WEIGHTS {
        return Ok(Input::SetWeights(Arc::new(decode(reader)?)));
    }
    let name = reader.small()?;
    let member = match kind {
        QUEUE => Member::Link(LinkId::new(name)),
        HOST => Member::Host(LinkId::new(name), HostNumber(reader.small()?)),
        _ => Member::Volume(VolumeId::new(name)),
    };
    Ok(Input::Substream(member, Weight::from_1024ths(reader.small()?)))
}

/// Writes it.
pub(super) fn encode(out: &mut Vec<u8>, shares: &Shares) {
    let Shares { tenants, background: Background { write_back, prefetch, jobs } } = shares;
    for weight in [write_back, prefetch, jobs] {
        number(out, u64::from(weight.as_1024ths()));
    }
    number(out, tenants.len() as u64);
    for weight in tenants {
        number(out, u64::from(weight.as_1024ths()));
    }
}

/// Reads it.
pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Shares, FormatError> {
    let mut weight = || Weight::from_1024ths(reader.small()?).ok_or(FormatError::Damaged);
    let background = Background { write_back: weight()?, prefetch: weight()?, jobs: weight()? };
    let mut tenants = Vec::new();
    for _ in 0..reader.number()? {
        tenants.push(Weight::from_1024ths(reader.small()?).ok_or(FormatError::Damaged)?);
    }
    Ok(Shares { tenants, background })
}

pub(super) const SET_WEIGHTS: u8 = 26;
pub(super) const QUEUE: u8 = 33;
pub(super) const HOST: u8 = 37;
pub(super) const VOLUME: u8 = 38;
