//! What a planned move asks of the command engine: whether anything of a volume is in progress, and to forget its cache.

use super::CommandEngine;
use super::table::Phase;
use weir_flow::cache::Done;
use weir_flow::pipeline::Input;
use weir_flow::request::VolumeId;

impl CommandEngine {
    /// Whether no command of a volume that has begun, no job and no read-ahead has not ended. Commands whose data is
    /// still to come have not begun: nothing of them was promised or done. O(tasks).
    pub(crate) fn is_quiet(&self, index: usize) -> bool {
        let volume = &self.catalog.volumes[index];
        !self.set.tasks.values().any(|task| task.volume == index && task.phase != Phase::Gathering)
            && !self.cache.waits_for(index)
            && self.jobs.of(index).is_none()
            && volume.change.is_none()
            && volume.changes.is_empty()
    }

    /// Drops what is cached of a volume: another gateway has written to it, or will.
    pub(crate) fn forget_cached(&mut self, index: usize) {
        // The same size again is the input that drops it.
        let size = self.catalog.capacity(index);
        self.set.inputs.push_back(Input::Resized(VolumeId::new(index as u32), size));
    }

    /// Has the log of a volume written back and new writes pass it, or has it used again.
    pub(crate) fn drain(&mut self, index: usize, on: bool) {
        let volume = VolumeId::new(index as u32);
        self.set.inputs.push_back(Input::Cache(Done::Drain(volume, on)));
    }
}
