//! Paths, as the header of a recording and its entries have them.

use super::{FormatError, Reader, encode_settings, number};
use crate::path::{Access, PathOrder, Settings};
use crate::pipeline::{Backend, Input};
use crate::request::{BackendId, PathId};
use alloc::vec::Vec;

/// Writes the backends and how their paths are judged.
pub(super) fn encode(out: &mut Vec<u8>, backends: &[Backend], settings: &Settings) {
    number(out, backends.len() as u64);
    for backend in backends {
        number(out, backend.groups.len() as u64);
        for &group in &backend.groups {
            number(out, u64::from(group));
        }
    }
    encode_settings(out, settings);
}

/// Reads them.
pub(super) fn decode(reader: &mut Reader<'_>) -> Result<(Vec<Backend>, Settings), FormatError> {
    let mut backends = Vec::new();
    for _ in 0..reader.number()? {
        let mut groups = Vec::new();
        for _ in 0..reader.number()? {
            groups.push(reader.small()?);
        }
        backends.push(Backend { groups });
    }
    let settings = reader.settings()?;
    Ok((backends, settings))
}

/// Writes an input that concerns paths, behind its head. Others are a bug.
pub(super) fn encode_input(out: &mut Vec<u8>, input: &Input, head: impl FnOnce(&mut Vec<u8>, u8)) {
    let (kind, backend, path) = match *input {
        Input::PathDown(backend, path) => (PATH_DOWN, backend, path),
        Input::PathUp(backend, path) => (PATH_UP, backend, path),
        Input::UnitReset(backend) => (UNIT_RESET, backend, PathId::new(0)),
        Input::WriteLost(backend) => (WRITE_LOST, backend, PathId::new(0)),
        Input::PathAccess(backend, path, _) => (PATH_ACCESS, backend, path),
        Input::Checked(backend, path) => (CHECKED, backend, path),
        Input::PathOrder(backend, PathOrder::Disable(path)) => (DISABLE, backend, path),
        Input::PathOrder(backend, PathOrder::Enable(path)) => (ENABLE, backend, path),
        Input::PathOrder(backend, PathOrder::Failback) => (FAILBACK, backend, PathId::new(0)),
        _ => unreachable!("an input that concerns no path"),
    };
    head(out, kind);
    number(out, backend.index() as u64);
    number(out, path.index() as u64);
    if let Input::PathAccess(_, _, access) = input {
        out.push(access.code());
    }
}

/// Reads such an input; `None` if the kind is none of these.
pub(super) fn decode_input(
    reader: &mut Reader<'_>,
    kind: u8,
) -> Result<Option<Input>, FormatError> {
    let changes = matches!(kind, PATH_DOWN | PATH_UP | PATH_ACCESS | CHECKED);
    if !changes && !matches!(kind, UNIT_RESET | WRITE_LOST | DISABLE | ENABLE | FAILBACK) {
        return Ok(None);
    }
    let (backend, path) = (BackendId::new(reader.small()?), PathId::new(reader.small()?));
    Ok(Some(match kind {
        PATH_DOWN => Input::PathDown(backend, path),
        PATH_UP => Input::PathUp(backend, path),
        UNIT_RESET => Input::UnitReset(backend),
        WRITE_LOST => Input::WriteLost(backend),
        PATH_ACCESS => {
            let access = Access::from_code(reader.byte()?).ok_or(FormatError::Damaged)?;
            Input::PathAccess(backend, path, access)
        }
        CHECKED => Input::Checked(backend, path),
        DISABLE => Input::PathOrder(backend, PathOrder::Disable(path)),
        ENABLE => Input::PathOrder(backend, PathOrder::Enable(path)),
        _ => Input::PathOrder(backend, PathOrder::Failback),
    }))
}

const PATH_DOWN: u8 = 4;
const PATH_UP: u8 = 5;
const PATH_ACCESS: u8 = 11;
const CHECKED: u8 = 12;
const DISABLE: u8 = 13;
const ENABLE: u8 = 14;
const FAILBACK: u8 = 15;
const UNIT_RESET: u8 = 31;
const WRITE_LOST: u8 = 32;
