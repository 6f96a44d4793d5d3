//! Limits towards a host.

/// Whether digests may, or must, be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Digest {
    /// There are none. A Linux host that asks for them ends the connection.
    Off,
    /// If the host asks for them.
    #[default]
    Allowed,
    /// A host that does not ask for them is refused with a termination request.
    Required,
}

/// Limits of one connection and its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// I/O queues of a controller; 1 to 64, default 8. A host that asks for more gets this many; Connect refuses a
    /// greater queue identifier.
    pub queues: u16,
    /// Commands of an I/O queue; 16 to 1024, default 128. Connect refuses a longer queue; a host with more unanswered
    /// commands than its queue has places loses the connection.
    pub queue_depth: u16,
    /// Data of one command, in bytes: a power of two from 64 KiB to 4 MiB, default 1 MiB. A command for more is refused.
    pub max_transfer: u32,
    /// Data in the capsule of an I/O command, in bytes: 4 to 16 KiB, a multiple of 16; default 8 KiB. A longer capsule
    /// ends the connection.
    pub in_capsule: u32,
    /// Digests of headers; default allowed.
    pub header_digest: Digest,
    /// Digests of data; default allowed.
    pub data_digest: Digest,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queues: 8,
            queue_depth: 128,
            max_transfer: 1 << 20,
            in_capsule: 8 << 10,
            header_digest: Digest::Allowed,
            data_digest: Digest::Allowed,
        }
    }
}

impl Limits {
    /// The first limit that is out of its range, as a message for the operator.
    pub fn check(&self) -> Result<(), &'static str> {
        if !(1..=64).contains(&self.queues) {
            return Err("queues must lie between 1 and 64");
        }
        if !(16..=1024).contains(&self.queue_depth) {
            return Err("queue_depth must lie between 16 and 1024");
        }
        let range = 64 << 10..=4 << 20;
        if !self.max_transfer.is_power_of_two() || !range.contains(&self.max_transfer) {
            return Err("max_transfer must be a power of two from 64KiB to 4MiB");
        }
        let range = 4 << 10..=16 << 10;
        if !self.in_capsule.is_multiple_of(16) || !range.contains(&self.in_capsule) {
            return Err("in_capsule must be a multiple of 16 from 4KiB to 16KiB");
        }
        Ok(())
    }

    /// MDTS and VSL: the greatest transfer as a power of two, in pages of 4 KiB.
    pub(super) const fn mdts(&self) -> u8 {
        (self.max_transfer.trailing_zeros() - PAGE_SHIFT) as u8
    }
}

/// Most contiguous bytes that [`needed`](super::Connection::needed) asks for: an `ICReq`.
pub const NEEDED_MAX: usize = 128;

/// Commands of an admin queue, held Asynchronous Event Requests included.
pub const ADMIN_DEPTH: u16 = 32;

/// Most data that [`gather`](super::Connection::gather) collects for one command, in bytes.
pub const GATHER_MAX: u32 = 4096;

/// Data in the capsule of an admin or Fabrics command, in bytes. Hosts rely on it.
pub(super) const ADMIN_IN_CAPSULE: u32 = 8192;

/// Unanswered commands before Connect has succeeded; one more ends the connection.
pub(super) const DEPTH_BEFORE_CONNECT: u16 = 4;

/// Length of a page as a power of two: CAP.MPSMIN is 0.
pub(super) const PAGE_SHIFT: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every limit has both a lower and an upper bound.
    #[test]
    fn limits_have_ranges() {
        let base = Limits::default();
        assert_eq!(base.check(), Ok(()));
        assert_eq!(base.mdts(), 8);
        for (queues, good) in [(0, false), (1, true), (64, true), (65, false)] {
            assert_eq!(Limits { queues, ..base }.check().is_ok(), good, "{queues}");
        }
        for (queue_depth, good) in [(15, false), (16, true), (1024, true), (1025, false)] {
            assert_eq!(Limits { queue_depth, ..base }.check().is_ok(), good, "{queue_depth}");
        }
        for (kib, good) in [(32, false), (64, true), (96, false), (4096, true), (8192, false)] {
            assert_eq!(Limits { max_transfer: kib << 10, ..base }.check().is_ok(), good, "{kib}");
        }
        for (in_capsule, good) in
            [(4095, false), (4096, true), (4100, false), (16384, true), (16400, false)]
        {
            assert_eq!(Limits { in_capsule, ..base }.check().is_ok(), good, "{in_capsule}");
        }
    }
}
