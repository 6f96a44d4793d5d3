//! The trait of all device models.

use weir_flow::clock::Instant;
use weir_flow::request::{Op, Outcome};
use weir_flow::units::Extent;

/// One I/O given to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIo {
    /// The caller's identifier, which the completion returns.
    pub id: u64,
    /// The operation.
    pub op: Op,
    /// The range of the device.
    pub extent: Extent,
    /// A write must be durable when it completes: a volatile buffer may not complete it earlier.
    pub fua: bool,
}

/// A device as an event-driven state machine, so that a model may reorder its I/Os.
///
/// Time never runs backwards between calls. The driver of a device calls [`next`](Self::next) after every call that
/// changes it, and calls [`finished`](Self::finished) at that time until it answers `None`. An early call has no
/// effect; a late call delays only the report of completions, not the device.
///
/// The state of a device is bounded by the number of outstanding I/Os.
pub trait Device {
    /// Takes an I/O. It is reported by [`finished`](Self::finished) exactly once.
    fn start(&mut self, now: Instant, io: DeviceIo);

    /// The time of the next event in the device; `None` while no I/O is outstanding.
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
