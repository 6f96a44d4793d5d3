//! iSCSI, SCSI and NBD without I/O: bytes in, events and bytes out.
//!
//! Nothing here opens a socket, reads a clock, starts a thread or draws a random number. The shell
//! that owns the sockets hands received bytes to a connection (iSCSI [as target](iscsi::target_role::Connection)
//! or [as initiator](iscsi::initiator::Initiator), or [NBD](nbd::Connection)), acts on the events that come back, and writes what the
//! connection's [outbox](outbox::Outbox) holds.
//!
//! Layers that know little of each other: [`iscsi`] moves commands, data and status over a byte
//! stream (RFC 7143); [`scsi`] says what a command means to a disk (SPC-4, SBC-3); [`nbd`] does both
//! in a protocol of its own (the NBD protocol document).

pub mod iscsi;
pub mod nbd;
pub mod outbox;
pub mod scsi;
