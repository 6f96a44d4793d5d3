//! What headers on the log device say of the log's progress, and when they must say more.

use super::watermarks::Watermarks;
use crate::clock::{Duration, Instant};

/// What one header or super block says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// All records up to this one were durable.
    pub(crate) durable: u64,
    /// All records up to this one were upstream.
    pub(crate) applied: u64,
    /// The same, as the newest super block says.
    pub(crate) applied_super: u64,
    /// Writes may have gone upstream past the log, and not be flushed there.
    pub(crate) bypassed: bool,
}

/// The marks that are durable on the log device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marker {
    on_device: Marks,
    /// What the super block before the newest one says: all records up to this one were upstream, and more may be. The
    /// log continues from this one if the newest one rots.
    older_super: (u64, bool),
    /// The last record that is durable and not a note: a header should say so.
    last_durable_data: u64,
    /// Since when the device says less than is true.
    behind_since: Option<Instant>,
}

impl Marker {
    pub(crate) const fn new(on_device: Marks) -> Self {
        let last_durable_data = on_device.durable;
        Self { on_device, older_super: (0, false), last_durable_data, behind_since: None }
    }

    pub(crate) const fn on_device(&self) -> Marks {
        self.on_device
    }

    /// A batch with these marks is durable, a super block, too, if `with_super`.
    pub(crate) fn synced(&mut self, says: Marks, with_super: bool) {
        self.on_device.durable = self.on_device.durable.max(says.durable);
        self.on_device.applied = self.on_device.applied.max(says.applied);
        if with_super {
            self.older_super = (self.on_device.applied_super, self.on_device.bypassed);
            self.on_device.applied_super = says.applied_super;
            self.on_device.bypassed = says.bypassed;
        }
        let Marks { applied, applied_super, .. } = self.on_device;
        assert!(applied_super <= applied, "a super block is a header, too: {:?}", self.on_device);
    }

    /// Record `last` of hosts' data is durable.
    pub(crate) const fn data_synced(&mut self, last: u64) {
        assert!(self.last_durable_data <= last, "what is durable stays durable");
        self.last_durable_data = last;
    }

    #[cfg(test)]
    pub(crate) const fn last_durable_data(&self) -> u64 {
        self.last_durable_data
    }

    /// Whether the durable data of hosts is not marked.
    pub(crate) const fn lacks_durable(&self) -> bool {
        self.last_durable_data > self.on_device.durable
    }

    /// Whether a reader of the device would not know how far the log has come; `bypassed` as in [`Marks`].
    pub(crate) const fn is_behind(&self, marks: &Watermarks, bypassed: bool) -> bool {
        self.lacks_durable()
            || marks.applied() > self.on_device.applied
            || (self.on_device.bypassed && !bypassed)
    }

    /// A sync has ended at `now`, after which the device says less than is true, or not.
    pub(crate) fn restart(&mut self, now: Instant, behind: bool) {
        self.behind_since = behind.then_some(now);
    }

    /// The device says less than is true from now on, if it did not before.
    pub(crate) fn fall_behind(&mut self, now: Instant) {
        self.behind_since.get_or_insert(now);
    }

    pub(crate) const fn is_waiting(&self) -> bool {
        self.behind_since.is_some()
    }

    /// When a header must be written if none is written for another reason.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.behind_since.map(|since| since + MARK_WITHIN)
    }

    /// Whether both super blocks say, durably, that everything up to `applied` is upstream, and more may be.
    pub(crate) const fn is_void(&self, applied: u64) -> bool {
        let (older_applied, older_bypassed) = self.older_super;
        self.on_device.applied_super >= applied
            && self.on_device.bypassed
            && older_applied >= applied
            && older_bypassed
    }
}

/// Within this time after the last commit, the device says that it was durable.
const MARK_WITHIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// A log is void when both super blocks say so: with one of them, a rotten sector would bring old records back over
    /// writes that have bypassed the log.
    #[test]
    fn one_super_block_does_not_make_a_log_void() {
        let says = |applied, bypassed| Marks {
            applied,
            applied_super: applied,
            bypassed,
            ..Marks::default()
        };
        let mut marker = Marker::new(says(0, true));
        assert!(!marker.is_void(0), "what the other super block says is not known");
        marker.synced(says(7, true), true);
        assert_eq!((marker.is_void(0), marker.is_void(7)), (true, false));
        marker.synced(says(7, true), false);
        assert!(!marker.is_void(7), "a batch is no super block");
        marker.synced(says(7, true), true);
        assert!(marker.is_void(7));
        marker.synced(says(9, false), true);
        assert!(!marker.is_void(7));
    }
}
