//! The trait of all device models.

use weir_flow::clock::Instant;
use weir_flow::request::{Op, Outcome};
use weir_flow::units::Extent;

/// One I/O given to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIo {
    /// The caller's name for it, which comes back when it has ended.
    pub id: u64,
    /// What is to be done.
    pub op: Op,
    /// With which bytes of the device.
    pub extent: Extent,
    /// A write is durable when it ends: no volatile buffer may end it before.
    pub fua: bool,
}

/// A device as a machine of events, so that a model may reorder what it was given.
///
/// Time never runs backwards between calls. The driver of a device calls [`next`](Self::next) after
/// every call that changes it, and calls [`finished`](Self::finished) at that time until it answers
/// `None`. Being asked early is harmless; being asked late delays nothing inside the device that
/// was to end before, only the report of it.
///
/// What a device holds is bounded by what its caller leaves outstanding.
pub trait Device {
    /// Takes an I/O. It is reported by [`finished`](Self::finished) exactly once.
    fn start(&mut self, now: Instant, io: DeviceIo);

    /// When something happens inside the device next; `None` while nothing is outstanding.
    fn next(&self) -> Option<Instant>;

    /// An I/O that has ended by `now`, and how; those that end at one time in order of being
    /// scheduled. `None` when there is no other.
    fn finished(&mut self, now: Instant) -> Option<(u64, Outcome)>;

    /// The wear of its flash; `None` if it has none.
    fn wear(&self) -> Option<Wear> {
        None
    }
}

/// The wear of a flash device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wear {
    /// Pages that hosts have written.
    pub programs: u64,
    /// Pages that garbage collection has moved.
    pub moves: u64,
    /// Blocks that were erased.
    pub erases: u64,
    /// Erase cycles of the block that was erased least often.
    pub least: u32,
    /// Erase cycles of the block that was erased most often.
    pub most: u32,
    /// Pages programmed for each page that a host wrote; 1 if none was.
    pub amplification: f64,
}
