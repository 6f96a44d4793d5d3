//! When a path is checked, given up, ejected and used again.

use crate::clock::Duration;
use crate::settings;
use crate::settings::{DAY, MILLISECOND, SECOND};
use crate::word_field;

/// When the stage goes back to a better group of paths while the one in use still works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failback {
    /// As soon as the better group has a path that has fully returned.
    Immediate,
    /// Never on its own: an operator orders it.
    Manual,
    /// When the better group has had such a path for [`Settings::failback_after`], without a break.
    After,
}

word_field!(Failback { Immediate, Manual, After });

settings! {
    /// How the stage judges paths. With the default values a dead or silent path delays no request for a
    /// second while another path works.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Settings {
        /// When to go back to a better group of paths while the one in use works: at once, when an
        /// operator orders it, or after `failback_after`.
        pub failback: Failback = Word(&["immediate", "manual", "after"]), 0;
        /// With `failback = "after"`: how long the better group must have had a working path.
        pub failback_after: Duration = Time(0, DAY), 0;
        /// How long a path may be idle before it is checked, if the backend has others.
        pub check_interval: Duration = Time(MILLISECOND, DAY), 2 * SECOND;
        /// The shortest time without an answer after which a path is suspected and checked. A suspected
        /// path gets no I/O while there is another.
        pub overdue_min: Duration = Time(MILLISECOND, DAY), 100 * MILLISECOND;
        /// The longest time without an answer after which a path is suspected and checked.
        pub overdue_max: Duration = Time(MILLISECOND, DAY), 400 * MILLISECOND;
        /// A check that is unanswered for this long gives the path up while another could take over.
        pub dead_after: Duration = Time(MILLISECOND, DAY), 300 * MILLISECOND;
        /// A check that is unanswered for this long gives the path up where no other is left.
        pub dead_after_last_path: Duration = Time(MILLISECOND, DAY), 5 * SECOND;
        /// An I/O that takes this long gives its path up while another could take over, even if checks
        /// are answered.
        pub io_timeout: Duration = Time(MILLISECOND, DAY), 30 * SECOND;
        /// The time between probes of an ejected path that answers them well. A probe is a small read
        /// that is due anyway.
        pub probe_interval: Duration = Time(MILLISECOND, DAY), 200 * MILLISECOND;
        /// The longest time between probes; every bad probe doubles the time up to this.
        pub probe_interval_max: Duration = Time(MILLISECOND, DAY), 3_200 * MILLISECOND;
        /// A path that returns has one I/O at a time at first, and twice as many after each such step;
        /// after eight steps there is no limit.
        pub return_step: Duration = Time(MILLISECOND, DAY), 25 * MILLISECOND;
        /// A path is suspected when it gives no answer for this many times its usual response time,
        /// within `overdue_min` and `overdue_max`.
        pub overdue_factor: u32 = Count(1, 1_000), 8;
        /// How often an overdue read is sent again on another path; other I/Os are never.
        pub max_read_retries: u32 = Count(0, 16), 2;
        /// A path that is this many times slower than the best of its group is ejected.
        pub slow_factor: u32 = Count(2, 16), 6;
        /// How long a path has to be that slow. Pauses that are shorter do not eject it.
        pub slow_after: Duration = Time(MILLISECOND, DAY), 400 * MILLISECOND;
        /// A response that is longer by less than this than on the best path is not slow.
        pub slow_min: Duration = Time(0, DAY), MILLISECOND;
        /// Good probes in a row after which an ejected path returns.
        pub probes_to_return: u32 = Count(1, 1_000), 4;
        /// Changes of a path between usable and unusable in any minute; after these it stays out while
        /// there is another.
        pub max_changes_per_minute: u32 = Count(2, CHANGES_MAX as u64), 6;
    }
    ascending {
        overdue_min <= overdue_max,
        dead_after <= dead_after_last_path,
        probe_interval <= probe_interval_max,
    }
}

/// The largest bound on changes in a minute.
pub const CHANGES_MAX: u32 = 64;

/// Steps of a return: with the last one, a path may have 128 I/Os at once; after it, any number.
pub const RETURN_STEPS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Invalid, Settings as _};

    /// The defaults are valid; each pair in the wrong order is not, and the error has both names.
    #[test]
    fn what_contradicts_itself_is_noticed() {
        let good = Settings::default();
        assert_eq!(good.validate(), Ok(()));
        for (bad, low, high) in [
            (Settings { overdue_min: good.io_timeout, ..good }, "overdue_min", "overdue_max"),
            (
                Settings { dead_after: good.io_timeout, ..good },
                "dead_after",
                "dead_after_last_path",
            ),
            (
                Settings { probe_interval: good.io_timeout, ..good },
                "probe_interval",
                "probe_interval_max",
            ),
        ] {
            assert_eq!(bad.validate(), Err(Invalid::Order(low, high)));
        }
    }
}
