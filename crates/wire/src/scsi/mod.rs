//! SCSI for a disk: what commands ask, what the answers look like (SPC-4, SBC-3).
//!
//! [`disk::DiskInfo::execute`] takes a CDB and either answers it or says which [`Media`](cdb::Media)
//! operation the shell must perform. Nothing here touches data blocks.

pub mod attention;
pub(crate) mod capacity;
pub mod cdb;
pub(crate) mod commands;
pub mod disk;
pub(crate) mod inquiry;
pub mod luns;
pub(crate) mod mode;
pub mod nexus;
pub mod sense;
pub mod status;
pub mod unmap;
pub(crate) mod vpd;

pub use sense::Sense;
pub use status::ScsiStatus;
