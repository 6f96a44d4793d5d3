//! Raises the limit of open files and sockets of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the limit of open descriptors (`RLIMIT_NOFILE`) towards `wanted`, as far as the process may
/// do that by itself, and returns the limit that holds then. Never lowers it.
///
/// A gateway needs one descriptor for each connection, volume and listener, and a few for itself;
/// what it inherits is often 1024.
pub(crate) fn raise_descriptors(wanted: u64) -> io::Result<u64> {
    // `None` stands for no limit.
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match current {
        Some(limit) if limit < wanted => {
            let raised = wanted.min(maximum.unwrap_or(u64::MAX));
            setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum })?;
            Ok(raised)
        }
        limit => Ok(limit.unwrap_or(u64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The soft and the hard limit, as the kernel tells them.
    fn limits() -> (u64, u64) {
        let table = fs::read_to_string("/proc/self/limits").expect("Linux has it");
        let line = table.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
        let mut words = line.split_whitespace().skip(3);
        let mut number = || {
            let word = words.next().expect("two limits");
            word.parse().unwrap_or(u64::MAX)
        };
        (number(), number())
    }

    /// The limit goes up to what is wanted and no further than the hard limit, and never down.
    #[test]
    fn the_limit_only_rises() {
        let (soft, hard) = limits();
        assert_eq!(raise_descriptors(0).unwrap(), soft);
        let more = (soft + 1).min(hard);
        assert_eq!(raise_descriptors(more).unwrap(), more);
        assert_eq!(limits(), (more, hard));
        assert_eq!(raise_descriptors(u64::MAX).unwrap(), hard);
        assert_eq!(limits(), (hard, hard));
        assert_eq!(raise_descriptors(soft).unwrap(), hard);
    }
}
