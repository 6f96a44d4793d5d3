//! The live world: sockets, disks and the only clock.

pub mod config;
