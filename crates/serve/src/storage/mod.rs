//! What keeps the bytes of volumes: files and devices, upstreams, and the devices of logs.

pub(crate) mod blocking;
pub(crate) mod emulated;
pub(crate) mod file;
pub(crate) mod io;
pub(crate) mod layout;
pub(crate) mod log_device;
pub(crate) mod state_file;
pub(crate) mod store;
pub(crate) mod upstream;
