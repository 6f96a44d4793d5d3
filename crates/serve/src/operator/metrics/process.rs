//! What other exporters have of their process, too.

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::fs;

/// The process now. What cannot be read is missing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    /// User and system time.
    pub(crate) cpu_ns: u64,
    /// Memory that is not swapped out.
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) open_fds: Option<u64>,
    /// The soft limit of `open_fds`; `None`: there is none.
    pub(crate) max_fds: Option<u64>,
}

impl Process {
    /// Reads it.
    pub(crate) fn read() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let nanos = cpu.tv_sec.cast_unsigned() * 1_000_000_000 + cpu.tv_nsec.cast_unsigned();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|line| {
            line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        });
        Self {
            cpu_ns: nanos,
            resident_bytes: resident.map(|kib| kib * 1_024),
            // The folder is open while it is read.
            open_fds: fs::read_dir("/proc/self/fd").ok().map(|all| (all.count() - 1) as u64),
            max_fds: getrlimit(Resource::Nofile).current,
        }
    }
}
