//! iSCSI, SCSI, NBD, NVMe/TCP and the client of iSNS without I/O: bytes in, events and bytes out.
//!
//! This crate opens no socket, reads no clock, starts no thread and draws no random number. The shell that owns the
//! sockets passes received bytes to a connection (iSCSI [as target](iscsi::target_role::Connection) or [as
//! initiator](iscsi::initiator::Initiator), [NBD](nbd::Connection), [NVMe/TCP](nvme::Connection), or
//! [iSNS](isns::Client)), handles the events that it returns, and writes the connection's [outbox](outbox::Outbox).
//!
//! The layers are nearly independent: [`iscsi`] moves commands, data and status over a byte stream (RFC 7143);
//! [`scsi`] interprets commands to a disk (SPC-4, SBC-3); [`nbd`] and [`nvme`] do both in one protocol (the NBD protocol
//! document; NVMe Base and NVMe/TCP); [`isns`] tells a name server where targets are (RFC 4171).
//!
//! # Example
//!
//! An initiator has its first login request ready before anything is received.
//!
//! ```
//! use std::sync::Arc;
//! use weir_wire::iscsi::initiator::{Initiator, Isid, Settings};
//!
//! let settings = Settings::new("iqn.2026-01.org.example:gateway".into(), Isid([0; 6]), None);
//! let session: Initiator<Vec<u8>> = Initiator::new(Arc::new(settings), [7; 32]);
//!
//! let pdu: Vec<u8> = session.outbox().slices().flatten().copied().collect();
//! assert_eq!(pdu[0] & 0x3f, 0x03, "a Login Request (RFC 7143 section 11.12)");
//! let keys = String::from_utf8_lossy(&pdu[48..]);
//! assert!(keys.starts_with("InitiatorName=iqn.2026-01.org.example:gateway\0"));
//! ```

pub(crate) mod crc32c;
pub mod iscsi;
pub mod isns;
pub mod nbd;
pub mod nvme;
pub mod outbox;
pub mod scsi;
pub(crate) mod slots;
