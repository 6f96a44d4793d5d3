//! Why a request failed, and what each protocol calls it.
//!
//! These are the errors of a *tenant's* request. A peer that breaks the protocol, an operator's
//! mistake and a bug are other kinds, with other types, and never become one of these.

use core::fmt;

/// The reason a request did not do what it was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoError {
    /// The device could not read or write the medium.
    Medium,
    /// The way to the device failed; another path may still work.
    PathFailed,
    /// No path was left for longer than the configured limit.
    NoPath,
    /// The storage behind a thin volume is full.
    NoSpace,
    /// The range ends past the end of the volume.
    OutOfRange,
    /// The volume, or the device behind it, refuses writes.
    WriteProtected,
    /// The device cannot do this operation.
    Unsupported,
    /// There was no room for it within the configured time; nothing was done, and it may come again.
    Busy,
    /// Another gateway owns the volume's storage now; nothing was done, and this gateway will not do it.
    Fenced,
}

/// A SCSI sense key with its additional sense code and qualifier (SPC-4, 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenseTriple {
    /// Sense key.
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
}

impl IoError {
    /// What the error is called in each protocol: the one table, so that hosts over iSCSI and over
    /// NBD report the same.
    ///
    /// | error | sense (SPC-4) | NBD |
    /// |---|---|---|
    /// | `Medium` on read | MEDIUM ERROR, unrecovered read error (3/11/00) | EIO |
    /// | `Medium` on write | MEDIUM ERROR, write error (3/0C/00) | EIO |
    /// | `PathFailed`, `NoPath` | HARDWARE ERROR, logical unit communication failure (4/08/00) | EIO |
    /// | `NoSpace` | DATA PROTECT, space allocation failed write protect (7/27/07) | ENOSPC |
    /// | `OutOfRange` | ILLEGAL REQUEST, logical block address out of range (5/21/00) | EINVAL |
    /// | `WriteProtected` | DATA PROTECT, write protected (7/27/00) | EPERM |
    /// | `Unsupported` | ILLEGAL REQUEST, invalid field in CDB (5/24/00) | ENOTSUP |
    /// | `Fenced` | NOT READY, target port in unavailable state (2/04/0C) | EIO |
    /// | `Busy` | no sense data: status BUSY | none: the gateway tries again |
    ///
    /// `None` if the status alone says it.
    pub const fn sense(self, writes: bool) -> Option<SenseTriple> {
        let (key, asc, ascq) = match self {
            Self::Medium if writes => (0x3, 0x0c, 0x00),
            Self::Medium => (0x3, 0x11, 0x00),
            Self::PathFailed | Self::NoPath => (0x4, 0x08, 0x00),
            Self::NoSpace => (0x7, 0x27, 0x07),
            Self::OutOfRange => (0x5, 0x21, 0x00),
            Self::WriteProtected => (0x7, 0x27, 0x00),
            Self::Unsupported => (0x5, 0x24, 0x00),
            Self::Fenced => (0x2, 0x04, 0x0c),
            Self::Busy => return None,
        };
        Some(SenseTriple { key, asc, ascq })
    }

    /// A small stable number for recordings and digests.
    pub const fn code(self) -> u8 {
        match self {
            Self::Medium => 1,
            Self::PathFailed => 2,
            Self::NoPath => 3,
            Self::NoSpace => 4,
            Self::OutOfRange => 5,
            Self::WriteProtected => 6,
            Self::Unsupported => 7,
            Self::Busy => 8,
            Self::Fenced => 9,
        }
    }

    /// The error with this stable number.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Medium,
            2 => Self::PathFailed,
            3 => Self::NoPath,
            4 => Self::NoSpace,
            5 => Self::OutOfRange,
            6 => Self::WriteProtected,
            7 => Self::Unsupported,
            8 => Self::Busy,
            9 => Self::Fenced,
            _ => return None,
        })
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Medium => "the device could not read or write the medium",
            Self::PathFailed => "the path to the device failed",
            Self::NoPath => "no path to the device is left",
            Self::NoSpace => "the storage behind the volume is full",
            Self::OutOfRange => "the range ends past the end of the volume",
            Self::WriteProtected => "the volume refuses writes",
            Self::Unsupported => "the device cannot do this operation",
            Self::Busy => "there was no room for it in time",
            Self::Fenced => "another gateway owns the storage now",
        })
    }
}

impl core::error::Error for IoError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stable numbers survive encoding and decoding, and zero stays free for success.
    #[test]
    fn codes_round_trip() {
        for code in 1..=9 {
            assert_eq!(IoError::from_code(code).map(IoError::code), Some(code));
        }
        assert_eq!(IoError::from_code(0), None);
        assert_eq!(IoError::from_code(10), None);
    }
}
