//! Volumes, as the header of a recording and its entries have them.

use super::{FormatError, Reader, cache, number};
use crate::accept::{Cap, Layout, PARTS_MAX, Part, Volume};
use crate::clock::Duration;
use crate::pipeline::{Backend, Input, VolumeAdded};
use crate::request::{BackendId, TenantId, VolumeId};
use crate::units::Bandwidth;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// Writes a volume.
pub(super) fn encode(out: &mut Vec<u8>, volume: &Volume) {
    number(out, volume.capacity);
    encode_layout(out, &volume.layout);
    number(out, volume.max_transfer);
    encode_cap(out, volume.cap);
}

/// Reads one.
pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Volume, FormatError> {
    Ok(Volume {
        capacity: reader.number()?,
        layout: reader.layout()?,
        max_transfer: reader.number()?,
        cap: reader.cap()?,
    })
}

/// Writes an input that changes volumes, behind its head. Others are a bug.
pub(super) fn encode_input(out: &mut Vec<u8>, input: &Input, head: impl FnOnce(&mut Vec<u8>, u8)) {
    match input {
        Input::Resized(volume, capacity) => {
            head(out, RESIZED);
            number(out, volume.index() as u64);
            number(out, *capacity);
        }
        Input::Capped(volume, cap) => {
            head(out, CAPPED);
            number(out, volume.index() as u64);
            encode_cap(out, *cap);
        }
        Input::VolumeAdded(added) => {
            let VolumeAdded { id, volume, backends, owner, log } = &**added;
            head(out, if log.is_some() { LOGGED_VOLUME_ADDED } else { VOLUME_ADDED });
            number(out, id.index() as u64);
            encode(out, volume);
            number(out, owner.index() as u64);
            number(out, backends.len() as u64);
            for backend in backends {
                number(out, backend.groups.len() as u64);
                backend.groups.iter().for_each(|&group| number(out, group.into()));
            }
            if let Some(log) = log {
                cache::encode_log(out, log);
            }
        }
        Input::VolumeRemoved(volume) => {
            head(out, VOLUME_REMOVED);
            number(out, volume.index() as u64);
        }
        _ => unreachable!("an input that changes no volume"),
    }
}

/// Reads such an input, of one of these kinds.
pub(super) fn decode_input(reader: &mut Reader<'_>, kind: u8) -> Result<Input, FormatError> {
    let id = VolumeId::new(reader.small()?);
    Ok(match kind {
        RESIZED => Input::Resized(id, reader.number()?),
        CAPPED => Input::Capped(id, reader.cap()?),
        VOLUME_REMOVED => Input::VolumeRemoved(id),
        _ => {
            let (volume, owner) = (decode(reader)?, TenantId::new(reader.small()?));
            let count = reader.number()?;
            if count > PARTS_MAX as u64 {
                return Err(FormatError::Damaged);
            }
            let backends = (0..count).map(|_| reader.paths()).collect::<Result<_, _>>()?;
            let log =
                if kind == LOGGED_VOLUME_ADDED { Some(cache::decode_log(reader)?) } else { None };
            Input::VolumeAdded(Arc::new(VolumeAdded { id, volume, backends, owner, log }))
        }
    })
}

pub(super) const RESIZED: u8 = 8;
pub(super) const CAPPED: u8 = 10;
pub(super) const VOLUME_ADDED: u8 = 34;
pub(super) const VOLUME_REMOVED: u8 = 35;
/// With a log.
pub(super) const LOGGED_VOLUME_ADDED: u8 = 36;

fn encode_layout(out: &mut Vec<u8>, layout: &Layout) {
    let head = |out: &mut Vec<u8>, kind: u8| {
        out.push(kind);
        number(out, layout.parts() as u64);
    };
    match layout {
        Layout::One(backend) => {
            out.push(ONE);
            number(out, backend.index() as u64);
        }
        Layout::Concat(parts) => {
            head(out, CONCAT);
            for Part { backend, length } in parts {
                number(out, backend.index() as u64);
                number(out, *length);
            }
        }
        Layout::Stripe { backends, chunk } => {
            head(out, STRIPE);
            for backend in backends {
                number(out, backend.index() as u64);
            }
            number(out, *chunk);
        }
    }
}

const ONE: u8 = 0;
const CONCAT: u8 = 1;
const STRIPE: u8 = 2;

/// Neither rate can be zero: zero is none.
fn encode_cap(out: &mut Vec<u8>, cap: Cap) {
    number(out, cap.iops.map_or(0, |iops| iops.get().into()));
    number(out, cap.bandwidth.map_or(0, Bandwidth::bytes_per_second));
    number(out, cap.burst.as_nanos());
}

impl Reader<'_> {
    /// The groups of the paths of a backend.
    fn paths(&mut self) -> Result<Backend, FormatError> {
        let count = self.number()?;
        let groups = (0..count).map(|_| self.small()).collect::<Result<_, _>>()?;
        Ok(Backend { groups })
    }

    fn backend(&mut self) -> Result<BackendId, FormatError> {
        self.small().map(BackendId::new)
    }

    fn layout(&mut self) -> Result<Layout, FormatError> {
        let kind = self.byte()?;
        if kind == ONE {
            return Ok(Layout::One(self.backend()?));
        }
        let count = self.number()?;
        if count > PARTS_MAX as u64 {
            return Err(FormatError::Damaged);
        }
        match kind {
            CONCAT => {
                let mut part = || Ok(Part { backend: self.backend()?, length: self.number()? });
                Ok(Layout::Concat((0..count).map(|_| part()).collect::<Result<_, _>>()?))
            }
            STRIPE => {
                let backends = (0..count).map(|_| self.backend()).collect::<Result<_, _>>()?;
                Ok(Layout::Stripe { backends, chunk: self.number()? })
            }
            _ => Err(FormatError::Damaged),
        }
    }

    fn cap(&mut self) -> Result<Cap, FormatError> {
        let cap = Cap {
            iops: NonZeroU32::new(self.small()?),
            bandwidth: Bandwidth::per_second(self.number()?),
            burst: Duration::from_nanos(self.number()?),
        };
        cap.validate().map_or(Err(FormatError::Damaged), |()| Ok(cap))
    }
}
