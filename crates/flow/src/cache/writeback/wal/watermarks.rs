//! The watermarks of a log: how far its records have come, in an order that is asserted on every change.
//!
//! `applied <= durable <= stored <= written < next`, each a sequence number:
//!
//! | | all records up to it |
//! |---|---|
//! | `written` | have been handed to the log device |
//! | `stored`  | have been written there, perhaps to its volatile cache |
//! | `durable` | are durable there |
//! | `applied` | are on the upstream, and flushed there |
//!
//! `next` is the number of the next record. When the log device has failed for good, records go upstream from
//! memory: then only `applied < next` and `durable <= stored <= written < next` hold.

/// The five watermarks of one log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watermarks {
    next: u64,
    written: u64,
    stored: u64,
    durable: u64,
    applied: u64,
    device_failed: bool,
}

impl Watermarks {
    /// Those of a log that recovery has found: its next record, and the last durable and applied ones.
    pub(crate) fn new(next: u64, durable: u64, applied: u64) -> Self {
        let last = next - 1;
        let marks =
            Self { next, written: last, stored: last, durable, applied, device_failed: false };
        marks.check();
        marks
    }

    fn check(&self) {
        assert!(
            self.durable <= self.stored && self.stored <= self.written && self.written < self.next,
            "records are stored after they are written, and durable after they are stored: {self:?}"
        );
        let limit = if self.device_failed { self.next - 1 } else { self.durable };
        assert!(self.applied <= limit, "records are applied after they are durable: {self:?}");
    }

    /// Number of the next record.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// The last record that has a number.
    pub(crate) const fn last(&self) -> u64 {
        self.next - 1
    }

    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    pub(crate) const fn stored(&self) -> u64 {
        self.stored
    }

    pub(crate) const fn durable(&self) -> u64 {
        self.durable
    }

    pub(crate) const fn applied(&self) -> u64 {
        self.applied
    }

    /// Whether the log device has failed for good.
    pub(crate) const fn device_failed(&self) -> bool {
        self.device_failed
    }

    /// Gives a new record its number.
    pub(crate) fn assign(&mut self) -> u64 {
        self.next += 1;
        self.check();
        self.next - 1
    }

    /// Records up to `last` are handed to the log device.
    pub(crate) fn hand_over(&mut self, last: u64) {
        assert!(last > self.written, "a record is handed over once: {last}, {self:?}");
        self.written = last;
        self.check();
    }

    /// The device has written what it was handed.
    pub(crate) fn store(&mut self) {
        self.stored = self.written;
        self.check();
    }

    /// The device has made durable what it has written. Returns how many records that is.
    pub(crate) fn sync(&mut self) -> u64 {
        assert!(self.stored == self.written, "a sync follows all writes: {self:?}");
        let synced = self.written - self.durable;
        self.durable = self.written;
        self.check();
        synced
    }

    /// A write or sync has failed: what is not durable must be written again.
    pub(crate) fn roll_back(&mut self) {
        (self.written, self.stored) = (self.durable, self.durable);
        self.check();
    }

    /// All records up to `last` are upstream; earlier calls stay true.
    pub(crate) fn apply(&mut self, last: u64) {
        self.applied = self.applied.max(last);
        self.check();
    }

    /// The log device has failed for good.
    pub(crate) const fn fail_device(&mut self) {
        self.device_failed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records 1 and 2 were applied, 3 to 5 are in the log.
    fn opened() -> Watermarks {
        Watermarks::new(6, 5, 2)
    }

    /// A batch passes the watermarks one after the other, and a failed write takes back what is not durable.
    #[test]
    fn a_batch_passes_all_watermarks() {
        let mut marks = opened();
        assert_eq!((marks.assign(), marks.assign()), (6, 7));
        marks.hand_over(7);
        marks.store();
        marks.roll_back();
        assert_eq!((marks.written(), marks.stored(), marks.durable()), (5, 5, 5));
        marks.hand_over(7);
        marks.store();
        assert_eq!(marks.sync(), 2);
        marks.apply(7);
        marks.apply(3);
        assert_eq!((marks.durable(), marks.applied(), marks.next()), (7, 7, 8));
    }

    /// After the log device has failed, records are applied from memory.
    #[test]
    fn a_failed_device_frees_applied_from_durable() {
        let mut marks = opened();
        marks.assign();
        marks.fail_device();
        marks.apply(6);
        assert_eq!((marks.durable(), marks.applied()), (5, 6));
    }

    /// What is not durable is never taken for applied.
    #[test]
    #[should_panic(expected = "applied after they are durable")]
    fn applied_never_passes_durable() {
        let mut marks = opened();
        marks.assign();
        marks.apply(6);
    }

    /// Even from memory, only a record that exists is applied.
    #[test]
    #[should_panic(expected = "applied after they are durable")]
    fn applied_never_passes_the_last_record() {
        let mut marks = opened();
        marks.fail_device();
        marks.apply(6);
    }

    /// A record that has no number is not written.
    #[test]
    #[should_panic(expected = "stored after they are written")]
    fn written_stays_below_next() {
        opened().hand_over(6);
    }

    /// A batch is handed over after the one before it.
    #[test]
    #[should_panic(expected = "handed over once")]
    fn written_never_falls() {
        opened().hand_over(5);
    }

    /// A sync that passes a write which has not ended makes nothing durable.
    #[test]
    #[should_panic(expected = "a sync follows all writes")]
    fn a_sync_waits_for_its_writes() {
        let mut marks = opened();
        marks.assign();
        marks.hand_over(6);
        marks.sync();
    }

    /// A log is not opened with more durable records than it has.
    #[test]
    #[should_panic(expected = "stored after they are written")]
    fn a_log_opens_in_order() {
        Watermarks::new(6, 6, 2);
    }
}
