//! The Connect command: what it asks for, and how it is answered.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Limits;
use super::event::{Completion, Connect, ConnectRefusal};
use super::limits::ADMIN_DEPTH;
use super::pdu::Sqe;
use super::status::Status;

/// The part of the SQE that Connect defines.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Fields {
    before: [u8; 40],
    format: U16,
    queue: U16,
    size: U16,
    attributes: u8,
    reserved: u8,
    kato: U32,
    rest: [u8; 12],
}

/// The data of Connect.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Data {
    host_id: [u8; 16],
    controller: U16,
    reserved: [u8; 238],
    subsystem: [u8; 256],
    host: [u8; 256],
    rest: [u8; 256],
}

/// What Connect says about its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) id: u16,
    /// Places, at least 2.
    pub(super) depth: u16,
    /// The host does without SQ flow control.
    pub(super) no_flow_control: bool,
}

/// Length of the data of Connect, in bytes.
pub(super) const DATA_LENGTH: u32 = size_of::<Data>() as u32;

/// Reads a Connect. `data` has [`DATA_LENGTH`] bytes.
pub(super) fn parse(
    sqe: &Sqe,
    data: &[u8],
    limits: &Limits,
) -> Result<(Queue, Connect), Completion> {
    let fields: Fields = zerocopy::transmute!(*sqe);
    let data = Data::read_from_bytes(data).expect("Connect gathers its data");
    if fields.format.get() != 0 {
        return Err(Completion::failed(Status::CONNECT_FORMAT));
    }
    let (id, size) = (fields.queue.get(), fields.size.get());
    if id > limits.queues {
        return Err(in_command(offset::QUEUE));
    }
    let most = if id == 0 { ADMIN_DEPTH } else { limits.queue_depth };
    // SQSIZE is zero-based, and a queue has at least two places.
    if size == 0 || size >= most {
        return Err(in_command(offset::SIZE));
    }
    let controller = data.controller.get();
    if id == 0 && controller != DYNAMIC {
        return Err(in_data(offset::CONTROLLER));
    }
    let subsystem = nqn(&data.subsystem).ok_or(in_data(offset::SUBSYSTEM))?;
    let host = nqn(&data.host).ok_or(in_data(offset::HOST))?;
    let no_flow_control = fields.attributes & NO_FLOW_CONTROL != 0;
    let queue = Queue { id, depth: size + 1, no_flow_control };
    let connect = Connect {
        queue: id,
        depth: size + 1,
        kato_ms: fields.kato.get(),
        controller,
        host_id: data.host_id,
        host,
        subsystem,
    };
    Ok((queue, connect))
}

/// An NQN: UTF-8 without control characters, 1 to 223 bytes, ended by a null.
fn nqn(bytes: &[u8; 256]) -> Option<String> {
    let length = bytes.iter().position(|&byte| byte == 0)?;
    if !(1..=NQN_MAX).contains(&length) {
        return None;
    }
    let name = std::str::from_utf8(&bytes[..length]).ok()?;
    (!name.chars().any(char::is_control)).then(|| name.to_owned())
}

/// The completion that says why a Connect is refused.
pub(super) const fn refusal(reason: ConnectRefusal) -> Completion {
    match reason {
        ConnectRefusal::Subsystem => in_data(offset::SUBSYSTEM),
        ConnectRefusal::Host => Completion::failed(Status::CONNECT_HOST),
        ConnectRefusal::HostName => in_data(offset::HOST),
        ConnectRefusal::HostId => in_data(offset::HOST_ID),
        ConnectRefusal::Controller => in_data(offset::CONTROLLER),
        ConnectRefusal::Busy => Completion::failed(Status::CONNECT_BUSY),
        ConnectRefusal::Sequence => Completion::failed(Status::SEQUENCE_ERROR),
    }
}

/// A wrong parameter at this offset of the command.
const fn in_command(offset: u32) -> Completion {
    Completion { status: Status::CONNECT_PARAMETERS, dw0: offset, dw1: 0 }
}

/// A wrong parameter at this offset of the data: IATTR is 1.
const fn in_data(offset: u32) -> Completion {
    Completion { status: Status::CONNECT_PARAMETERS, dw0: offset | 1 << 16, dw1: 0 }
}

/// Offsets of parameters.
mod offset {
    pub(super) const QUEUE: u32 = 42;
    pub(super) const SIZE: u32 = 44;
    pub(super) const HOST_ID: u32 = 0;
    pub(super) const CONTROLLER: u32 = 16;
    pub(super) const SUBSYSTEM: u32 = 256;
    pub(super) const HOST: u32 = 512;
}

/// The controller identifier that asks for any controller.
const DYNAMIC: u16 = 0xffff;
/// CATTR: no SQ flow control.
const NO_FLOW_CONTROL: u8 = 1 << 2;
/// Longest NQN, in bytes.
const NQN_MAX: usize = 223;

const _: () = assert!(size_of::<Data>() == 1024);
