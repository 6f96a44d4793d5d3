//! SCSI for a disk: what commands ask, what the answers look like (SPC-4, SBC-3).

pub mod sense;
pub mod status;

pub use sense::Sense;
pub use status::ScsiStatus;
