//! A part of an NVMe command: one request for a volume.

use weir_wire::scsi::cdb::Media;

/// What is asked of which volume, by index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) volume: usize,
    pub(super) media: Media,
}
