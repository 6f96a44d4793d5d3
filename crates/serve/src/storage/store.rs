//! A store of a volume: a file or device of this machine, an upstream, or memory.

use crate::limits::PIECE;
use crate::storage::file::backing::Backing;
use crate::storage::memory::Memory;
use std::cell::Cell;
use std::io;
use std::rc::Rc;

/// What keeps the bytes of a volume.
#[derive(Debug)]
pub(crate) enum Store {
    /// An open file or device.
    File(Backing),
    /// A logical unit of another target.
    Upstream(Unit),
    /// Memory, or nothing: what is written is gone when the gateway stops, or at once.
    Memory(Rc<Memory>),
    /// Nothing: its volume has gone, and no other has its place yet.
    Closed,
}

/// What is known of the logical unit of an upstream.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// Its size in bytes, as it said last.
    pub(crate) capacity: Cell<u64>,
    /// Bytes in a logical block.
    pub(crate) block_size: u32,
    /// It has a volatile write cache.
    pub(crate) write_cache: bool,
    /// Blocks can be given back to it.
    pub(crate) thin: bool,
    /// The most bytes that one command may move.
    pub(crate) max_transfer: u64,
    /// What operators call it, its target and its number.
    pub(crate) name: String,
    pub(crate) target: String,
    pub(crate) lun: u64,
    /// Number of its paths, and of those that work when hosts can connect.
    pub(crate) paths: u32,
    pub(crate) ready: u32,
}

impl Store {
    /// Bytes of the volume.
    pub(crate) fn capacity(&self) -> u64 {
        match self {
            Self::File(backing) => backing.capacity,
            Self::Upstream(unit) => unit.capacity.get(),
            Self::Memory(memory) => memory.capacity(),
            Self::Closed => 0,
        }
    }

    /// Whether space can be given back.
    pub(crate) const fn gives_back(&self) -> bool {
        match self {
            Self::File(backing) => backing.holes,
            Self::Upstream(unit) => unit.thin,
            Self::Memory(_) => true,
            Self::Closed => false,
        }
    }

    /// Whether what is written is not durable before it is flushed.
    pub(crate) const fn has_cache(&self) -> bool {
        match self {
            // Neither driver makes a write durable before it is asked to.
            Self::File(_) => true,
            Self::Upstream(unit) => unit.write_cache,
            // A flush could make nothing durable.
            Self::Memory(_) | Self::Closed => false,
        }
    }

    /// The most bytes that one I/O may move.
    pub(crate) fn max_transfer(&self) -> u64 {
        match self {
            Self::File(_) | Self::Memory(_) | Self::Closed => PIECE,
            Self::Upstream(unit) => unit.max_transfer.min(PIECE),
        }
    }

    /// The size now, in bytes.
    pub(crate) fn measure(&self) -> io::Result<u64> {
        match self {
            Self::File(backing) => backing.measure(),
            Self::Upstream(unit) => Ok(unit.capacity.get()),
            Self::Memory(memory) => Ok(memory.capacity()),
            Self::Closed => Ok(0),
        }
    }

    /// Extends it to `size` bytes if it is shorter. Upstreams cannot be extended.
    pub(crate) fn grow(&self, size: u64) -> io::Result<()> {
        match self {
            Self::File(backing) => backing.grow(size),
            Self::Memory(memory) => {
                memory.grow(size);
                Ok(())
            }
            Self::Upstream(_) | Self::Closed => Ok(()),
        }
    }

    /// Whether [`grow`](Self::grow) makes sense.
    pub(crate) fn can_grow(&self, size: u64) -> io::Result<()> {
        match self {
            Self::File(backing) => backing.can_grow(size),
            // An upstream is given the size that it has.
            Self::Upstream(_) | Self::Memory(_) | Self::Closed => Ok(()),
        }
    }

    /// Makes everything written so far durable, and waits for it. An upstream was flushed, over a path,
    /// when the gateway took its leave.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match self {
            Self::File(backing) => backing.sync(),
            Self::Upstream(_) | Self::Memory(_) | Self::Closed => Ok(()),
        }
    }
}
