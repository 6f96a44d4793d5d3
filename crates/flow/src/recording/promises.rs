//! What tenants are promised, as the header of a recording has it.

use super::{FormatError, Reader, number};
use crate::clock::Duration;
use crate::control::{Contract, Group, Ops, PolicyHandover, Promises, Row, Target, Tier};
use alloc::vec::Vec;

/// Writes it.
pub(super) fn encode(out: &mut Vec<u8>, promises: &Promises) {
    let Promises { contracts, groups } = promises;
    number(out, groups.len() as u64);
    for &Group { parent, iops, size, limit, weight } in groups {
        index(out, parent);
        for value in [iops, size, limit.unwrap_or(0), weight] {
            number(out, u64::from(value));
        }
    }
    number(out, contracts.len() as u64);
    for contract in contracts {
        // A contract has a row: none is no contract.
        number(out, contract.as_ref().map_or(0, |contract| contract.rows.len() as u64));
        let Some(contract) = contract else { continue };
        let Contract { rows, burst, credit, peak_permille, limit, weight, tier, group } = contract;
        for Row { ops, size, iops, load_permille, targets } in rows {
            out.push(*ops as u8);
            let load = load_permille.unwrap_or(0);
            for value in [*size, *iops, load, targets.len() as u32] {
                number(out, u64::from(value));
            }
            for target in targets {
                number(out, u64::from(target.quantile_ppm));
                number(out, target.response.as_nanos());
            }
        }
        number(out, burst.as_nanos());
        number(out, credit.as_nanos());
        for value in [*peak_permille, limit.unwrap_or(0), *weight] {
            number(out, u64::from(value));
        }
        out.push(*tier as u8);
        index(out, *group);
    }
}

/// Reads it. The caller checks the values.
pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Promises, FormatError> {
    let mut promises = Promises::default();
    for _ in 0..reader.number()? {
        promises.groups.push(Group {
            parent: read_index(reader)?,
            iops: reader.small()?,
            size: reader.small()?,
            limit: limit(reader)?,
            weight: reader.small()?,
        });
    }
    for _ in 0..reader.number()? {
        let count = reader.number()?;
        let contract = if count == 0 { None } else { Some(contract(reader, count)?) };
        promises.contracts.push(contract);
    }
    Ok(promises)
}

fn contract(reader: &mut Reader<'_>, count: u64) -> Result<Contract, FormatError> {
    let mut rows = Vec::new();
    for _ in 0..count {
        let ops = match reader.byte()? {
            0 => Ops::Any,
            1 => Ops::Read,
            2 => Ops::Write,
            _ => return Err(FormatError::Damaged),
        };
        let (size, iops, load_permille) = (reader.small()?, reader.small()?, limit(reader)?);
        let mut targets = Vec::new();
        for _ in 0..reader.number()? {
            let quantile_ppm = reader.small()?;
            targets.push(Target { quantile_ppm, response: Duration::from_nanos(reader.number()?) });
        }
        rows.push(Row { ops, size, iops, load_permille, targets });
    }
    Ok(Contract {
        rows,
        burst: Duration::from_nanos(reader.number()?),
        credit: Duration::from_nanos(reader.number()?),
        peak_permille: reader.small()?,
        limit: limit(reader)?,
        weight: reader.small()?,
        tier: match reader.byte()? {
            0 => Tier::Bronze,
            1 => Tier::Silver,
            2 => Tier::Gold,
            _ => return Err(FormatError::Damaged),
        },
        group: read_index(reader)?,
    })
}

/// What a policy begins with.
pub(super) fn encode_handover(out: &mut Vec<u8>, handover: &PolicyHandover) {
    number(out, u64::from(handover.window.unwrap_or(0)));
    number(out, handover.credits.len() as u64);
    for saved in &handover.credits {
        number(out, saved.as_nanos());
    }
}

pub(super) fn decode_handover(reader: &mut Reader<'_>) -> Result<PolicyHandover, FormatError> {
    let mut handover = PolicyHandover { credits: Vec::new(), window: limit(reader)? };
    for _ in 0..reader.number()? {
        handover.credits.push(Duration::from_nanos(reader.number()?));
    }
    Ok(handover)
}

/// An index that may be missing, one higher than it is.
fn index(out: &mut Vec<u8>, index: Option<u32>) {
    number(out, index.map_or(0, |index| u64::from(index) + 1));
}

fn read_index(reader: &mut Reader<'_>) -> Result<Option<u32>, FormatError> {
    let index = reader.number()?.checked_sub(1);
    index.map(|index| u32::try_from(index).map_err(|_| FormatError::Damaged)).transpose()
}

/// A limit of zero is none.
fn limit(reader: &mut Reader<'_>) -> Result<Option<u32>, FormatError> {
    Ok(Some(reader.small()?).filter(|&limit| limit > 0))
}
