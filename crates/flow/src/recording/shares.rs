//! What part of the backends' time streams are due, as the header of a recording and its entries have it.

use super::{FormatError, Reader, number};
use crate::dispatch::{Background, Shares, Weight};
use alloc::vec::Vec;

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
