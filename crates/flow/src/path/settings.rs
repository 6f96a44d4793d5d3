//! The named times and factors of the path stage.

use crate::clock::Duration;

/// When the stage goes back to a better group of paths while the one in use still works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failback {
    /// As soon as the better group has a path that has fully returned.
    Immediate,
    /// When the better group has had such a path for so long, without a break.
    After(Duration),
    /// Never on its own: an operator asks for it.
    Manual,
}

/// How the stage judges paths. The default values let a dead or silent path stall nobody for a second
/// while another one works.
///
/// Times are from [`TIME_LEAST`] to [`TIME_MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// When to go back to a better group.
    pub failback: Failback,
    /// A path on which nothing has happened for so long is checked, if the backend has others.
    pub check_every: Duration,
    /// A path is doubted, and checked, when it is silent for [`overdue_factor`](Self::overdue_factor)
    /// times its usual response time, but not sooner than this. A doubted path gets no I/O while there
    /// is one without doubt.
    pub overdue_least: Duration,
    /// And not later than this; not below `overdue_least`.
    pub overdue_most: Duration,
    /// See `overdue_least`; from 1 to [`FACTOR_MOST`].
    pub overdue_factor: u32,
    /// A check that is unanswered for so long gives the path up while another one could take over.
    pub dead: Duration,
    /// The same where no other path is left; not below `dead`.
    pub dead_last: Duration,
    /// An I/O that is on a path for so long gives the path up, even if checks are answered, while
    /// another path could take over.
    pub io_timeout: Duration,
    /// How often a read that is overdue is sent another way, at most [`RETRIES_MOST`]. Nothing but
    /// reads ever is.
    pub read_retries: u32,
    /// A path that is so many times slower than the best of its group is ejected; from 2 to
    /// [`SLOW_MOST`].
    pub slow_factor: u32,
    /// How long after its ejection, and after a good probe, a path gets a probe: a small read that
    /// was to be done anyway.
    pub probe_every: Duration,
    /// Every bad probe doubles that time up to this; not below `probe_every`.
    pub probe_most: Duration,
    /// So many good probes in a row bring an ejected path back; from 1 to [`FACTOR_MOST`].
    pub good_probes: u32,
    /// A path that returns to a group in which others work may have one I/O at first, and after each step
    /// twice as many as before; after [`RETURN_STEPS`] steps, as many as it likes.
    pub return_step: Duration,
    /// Most changes of a path between usable and not in any minute: one that would go past it stays
    /// out while there is another path. From 2 to [`CHANGES_MOST`].
    pub changes_per_minute: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            failback: Failback::Immediate,
            check_every: Duration::from_secs(2),
            overdue_least: Duration::from_millis(100),
            overdue_most: Duration::from_millis(400),
            overdue_factor: 8,
            dead: Duration::from_millis(300),
            dead_last: Duration::from_secs(5),
            io_timeout: Duration::from_secs(30),
            read_retries: 2,
            slow_factor: 6,
            probe_every: Duration::from_millis(200),
            probe_most: Duration::from_millis(3_200),
            good_probes: 4,
            return_step: Duration::from_millis(25),
            changes_per_minute: 6,
        }
    }
}

impl Settings {
    /// What is out of range or contradicts itself, in words for whoever made it.
    pub fn fault(&self) -> Option<&'static str> {
        let delay = match self.failback {
            Failback::After(delay) => delay,
            Failback::Immediate | Failback::Manual => TIME_LEAST,
        };
        let times = [
            delay,
            self.check_every,
            self.overdue_least,
            self.overdue_most,
            self.dead,
            self.dead_last,
            self.io_timeout,
            self.probe_every,
            self.probe_most,
            self.return_step,
        ];
        let factors = [self.overdue_factor, self.good_probes];
        if times.iter().any(|&time| time < TIME_LEAST || time > TIME_MOST) {
            return Some("a time of the paths is below a millisecond or above a day");
        }
        if factors.iter().any(|&factor| factor == 0 || factor > FACTOR_MOST)
            || self.slow_factor < 2
            || self.slow_factor > SLOW_MOST
        {
            return Some("a factor of the paths is too small or too large");
        }
        if self.overdue_least > self.overdue_most {
            return Some("the least time until a path is doubted is above the most");
        }
        if self.dead > self.dead_last {
            return Some("the last path is given up sooner than others");
        }
        if self.probe_every > self.probe_most {
            return Some("the least time between probes is above the most");
        }
        if self.read_retries > RETRIES_MOST {
            return Some("overdue reads are sent another way more than 16 times");
        }
        if self.changes_per_minute < 2 || self.changes_per_minute > CHANGES_MOST {
            return Some("the changes of a path in a minute are not from 2 to 64");
        }
        None
    }
}

/// The shortest time.
pub const TIME_LEAST: Duration = Duration::from_millis(1);

/// The longest time.
pub const TIME_MOST: Duration = Duration::from_secs(24 * 3600);

/// The largest factor.
pub const FACTOR_MOST: u32 = 1_000;

/// The largest factor by which a path has to be slower.
pub const SLOW_MOST: u32 = 16;

/// The largest number of times that a read is sent another way.
pub const RETRIES_MOST: u32 = 16;

/// The largest bound on changes in a minute.
pub const CHANGES_MOST: u32 = 64;

/// Steps of a return: with the last one, a path may have 128 I/Os at once; after it, any number.
pub const RETURN_STEPS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// The defaults are good; each value out of its range, and each pair in the wrong order, is not.
    #[test]
    fn what_contradicts_itself_is_noticed() {
        let good = Settings::default();
        assert_eq!(good.fault(), None);
        let zero = Duration::ZERO;
        for bad in [
            Settings { check_every: zero, ..good },
            Settings { io_timeout: Duration::MAX, ..good },
            Settings { failback: Failback::After(zero), ..good },
            Settings { overdue_factor: 0, ..good },
            Settings { slow_factor: 1, ..good },
            Settings { slow_factor: SLOW_MOST + 1, ..good },
            Settings { good_probes: FACTOR_MOST + 1, ..good },
            Settings { overdue_least: good.dead_last, ..good },
            Settings { dead: good.io_timeout, ..good },
            Settings { probe_every: good.io_timeout, ..good },
            Settings { read_retries: RETRIES_MOST + 1, ..good },
            Settings { changes_per_minute: 1, ..good },
            Settings { changes_per_minute: CHANGES_MOST + 1, ..good },
        ] {
            assert!(bad.fault().is_some(), "{bad:?}");
        }
    }
}
