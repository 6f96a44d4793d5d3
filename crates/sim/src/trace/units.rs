//! Units of the columns of a trace, and other meanings that a file does not say itself.

use std::fmt;

/// The unit of a column of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Nanoseconds.
    Nanoseconds,
    /// 100 ns, the unit of Windows file times.
    FileTime,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
}

impl TimeUnit {
    /// Those that can be named, by increasing length.
    pub const NAMED: [Self; 4] =
        [Self::Nanoseconds, Self::Microseconds, Self::Milliseconds, Self::Seconds];

    /// Its symbol: `ns`, `100ns`, `us`, `ms` or `s`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::FileTime => "100ns",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
        }
    }

    /// The unit that can be named by this symbol.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|unit| unit.as_str() == name)
    }

    /// Nanoseconds of one unit.
    pub const fn nanos(self) -> u64 {
        match self {
            Self::Nanoseconds => 1,
            Self::FileTime => 100,
            Self::Microseconds => 1_000,
            Self::Milliseconds => 1_000_000,
            Self::Seconds => 1_000_000_000,
        }
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The unit of a column of offsets or sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressUnit {
    /// Bytes.
    Bytes,
    /// Sectors of 512 bytes.
    Sectors,
}

impl AddressUnit {
    /// `bytes` or `sectors`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Sectors => "sectors",
        }
    }

    /// The unit of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Bytes, Self::Sectors].into_iter().find(|unit| unit.as_str() == name)
    }

    /// The other one.
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Bytes => Self::Sectors,
            Self::Sectors => Self::Bytes,
        }
    }

    /// Bytes of one unit.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bytes => 1,
            Self::Sectors => 512,
        }
    }
}

/// What a fio iolog of version 2 means by `wait N`: its manual and its code differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Microseconds after the line before.
    Relative,
    /// Milliseconds since the start of the trace.
    Absolute,
}

impl Wait {
    /// `us-relative` or `ms-absolute`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Relative => "us-relative",
            Self::Absolute => "ms-absolute",
        }
    }

    /// The meaning of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Relative, Self::Absolute].into_iter().find(|wait| wait.as_str() == name)
    }
}

/// Which event of a request is its arrival in a trace of the Linux block layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// `Q`: it came to the queue.
    Queued,
    /// `D`: it was issued to the device.
    #[default]
    Issued,
}

impl Event {
    /// `Q` or `D`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "Q",
            Self::Issued => "D",
        }
    }

    /// The event of this letter.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Queued, Self::Issued].into_iter().find(|event| event.as_str() == name)
    }
}
