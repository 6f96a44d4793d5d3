//! Commands that the shell gives a session.

use std::ops::Range;

use crate::iscsi::codes::Attribute;

/// A SCSI command to be sent.
#[derive(Clone, Debug)]
pub struct Command<P> {
    /// Logical unit number, 0 to 16383.
    pub lun: u64,
    /// Command descriptor block, padded with zeros.
    pub cdb: [u8; 16],
    /// The task attribute: how the target may order the command.
    pub attribute: Attribute,
    /// Its data.
    pub data: Direction<P>,
    /// The shell's identifier, which every event about the command contains.
    pub tag: u64,
}

/// The direction of a command's data.
#[derive(Clone, Debug)]
pub enum Direction<P> {
    /// There is none.
    None,
    /// To the initiator: as many bytes as are expected, below 2^32.
    Read(u32),
    /// To the target: the bytes in this range of the payload, fewer than 2^32. They must stay the
    /// same until every clone of the payload is dropped.
    Write(P, Range<usize>),
}
