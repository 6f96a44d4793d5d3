//! SCSI for a disk: commands and their parameter data (SPC-4, SBC-3).
//!
//! [`unit::Unit`] takes a CDB and either answers it or says what the shell must do: a
//! [`Media`](cdb::Media) operation, or to fetch a parameter list. Nothing here touches data blocks.

pub mod attention;
pub(crate) mod capacity;
pub mod cdb;
pub(crate) mod commands;
pub mod copy;
pub(crate) mod defects;
pub mod disk;
pub(crate) mod inquiry;
pub mod lba_status;
pub(crate) mod log;
pub mod luns;
pub(crate) mod mode;
pub mod nexus;
pub(crate) mod opcodes;
pub(crate) mod ports;
pub mod reservation;
pub mod sanitize;
pub mod sense;
pub mod status;
pub mod unit;
pub mod unmap;
pub(crate) mod vpd;

pub use sense::Sense;
pub use status::ScsiStatus;
