//! iSCSI and SCSI without I/O: bytes in, events and bytes out.
//!
//! Nothing here opens a socket, reads a clock, starts a thread or draws a random number. The shell
//! that owns the sockets hands received bytes to a [`Connection`](iscsi::target::Connection), acts
//! on the events that come back, and writes what the connection's outbox holds.
//!
//! Two layers that know little of each other: [`iscsi`] moves commands, data and status over a
//! byte stream (RFC 7143); [`scsi`] says what a command means to a disk (SPC-4, SBC-3).

pub mod iscsi;
pub mod scsi;
