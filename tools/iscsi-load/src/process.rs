//! The clock, and the CPU time of a process.

use std::fs;
use std::time::Instant;

/// The time now.
#[expect(clippy::disallowed_methods, reason = "a load generator measures time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The CPU time that all threads of a process have used, user and system, in seconds: proc(5).
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
    // The second field is the program's name, which may hold anything, even parentheses.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = after_name.split_ascii_whitespace().skip(UTIME);
    let mut field = || fields.next().and_then(|text| text.parse::<u64>().ok());
    let (Some(user), Some(system)) = (field(), field()) else {
        return Err(format!("{path} has not the form that proc(5) describes"));
    };
    Ok((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Fields between the program's name and `utime`; `stime` follows.
const UTIME: usize = 11;
