//! How many files and sockets the process may have open.

use std::io;

/// Raises the limit of open descriptors (`RLIMIT_NOFILE`) towards `wanted`, as far as the process may
/// do that by itself, and returns the limit that holds then. Never lowers it.
///
/// A gateway needs one descriptor for each connection, volume and listener, and a few of its own;
/// what it inherits is often 1024.
#[expect(unsafe_code, reason = "the standard library has no call for resource limits")]
pub(crate) fn raise_descriptors(wanted: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes to a live structure of the type that it expects.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur >= wanted {
        return Ok(limit.rlim_cur);
    }
    limit.rlim_cur = wanted.min(limit.rlim_max);
    // SAFETY: the call reads a live structure of the type that it expects.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit.rlim_cur)
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
