//! What travels: a request, its names and its way of ending.

use crate::error::IoError;
use crate::units::Extent;

slotmap::new_key_type! {
    /// A request, or one piece of a split request, inside the pipeline.
    ///
    /// Carries a generation: a completion that comes twice or too late finds nothing and is
    /// noticed, instead of ending another's request.
    pub struct RequestKey;
}

/// Defines a dense index type. `new` and `index` are its only conversions.
macro_rules! dense_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The id with this index.
            pub const fn new(index: u32) -> Self {
                Self(index)
            }

            /// The index, dense from zero.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

dense_id! {
    /// Who is promised something: the unit of control, weights and reports.
    TenantId
}
dense_id! {
    /// A logical volume: an address space with a capacity, on one backend or several.
    VolumeId
}
dense_id! {
    /// Where a reply goes: a session's connection, or a target port.
    LinkId
}
dense_id! {
    /// A device or upstream target behind the gateway.
    BackendId
}
dense_id! {
    /// One of the ways to a backend, counted within that backend.
    PathId
}

/// The caller's own name for a request. It comes back in every action about that request and
/// means nothing to the pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// What is to be done with the extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Return the data.
    Read,
    /// Store the data.
    Write,
    /// Make everything that was acknowledged before durable; has no extent.
    Flush,
    /// Forget the data; later reads return zeroes.
    Discard,
    /// Store zeroes without a payload.
    WriteZeroes,
    /// Read the medium and return nothing.
    Verify,
    /// Read, decide and write, with nothing in between: compare and write, write and verify, a write
    /// that is whole or not at all. Never cut: where it would have to be, it is refused.
    Update,
}

impl Op {
    /// Whether the operation changes what a later read returns.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes | Self::Update)
    }

    /// Its name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write-zeroes",
            Self::Verify => "verify",
            Self::Update => "update",
        }
    }

    /// A small stable number for recordings and digests.
    pub const fn code(self) -> u8 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Flush => 2,
            Self::Discard => 3,
            Self::WriteZeroes => 4,
            Self::Verify => 5,
            Self::Update => 6,
        }
    }

    /// The operation with this stable number.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Flush,
            3 => Self::Discard,
            4 => Self::WriteZeroes,
            5 => Self::Verify,
            6 => Self::Update,
            _ => return None,
        })
    }
}

/// One request of a host, as the policies see it: names, sizes and wishes, never its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller's name for it.
    pub tag: Tag,
    /// Who asks.
    pub tenant: TenantId,
    /// What is addressed.
    pub volume: VolumeId,
    /// Where the reply goes.
    pub link: LinkId,
    /// What is to be done.
    pub op: Op,
    /// With which bytes of the volume; empty for [`Op::Flush`].
    pub extent: Extent,
    /// Force unit access: a write is durable before it is acknowledged.
    pub fua: bool,
    /// An ordered task (SAM-5, 8.6): everything earlier on the volume ends before it starts, and
    /// nothing later starts before it ends.
    pub ordered: bool,
    /// One of the many that a job of the gateway makes, such as a copy: it has its own share at the
    /// backends ([`Owner::Job`](crate::dispatch::Owner::Job)).
    pub job: bool,
}

impl Request {
    /// Bytes that the request moves between host and device, which is what links, buckets and
    /// shares count. Discards and zeroes move none.
    pub const fn payload(&self) -> u64 {
        match self.op {
            Op::Read | Op::Write | Op::Verify | Op::Update => self.extent.length,
            Op::Flush | Op::Discard | Op::WriteZeroes => 0,
        }
    }

    /// What caps and control are taken to give it, in bytes: a request without payload is something, too.
    pub const fn cost(&self) -> u64 {
        self.payload() + 4_096
    }

    /// Bytes that the reply carries back to the host. What a job reads stays in the gateway.
    pub const fn reply_bytes(&self) -> u64 {
        match self.op {
            Op::Read if !self.job => self.extent.length,
            _ => 0,
        }
    }
}

/// How a request, or an I/O to a device, ended.
pub type Outcome = Result<(), IoError>;
