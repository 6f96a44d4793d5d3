//! The check whether a commit to the log is faster than a write upstream.
//!
//! Running medians over the last [`SAMPLES`] of each. Upstream counts only writes of write-back that are
//! small: a host that wrote through would wait for about as long as these take.

use crate::clock::Duration;
use alloc::collections::VecDeque;

/// Both medians.
#[derive(Clone, Debug, Default)]
pub(super) struct CommitLatencyCheck {
    local: Median,
    upstream: Median,
}

impl CommitLatencyCheck {
    /// A batch was committed.
    pub(super) fn committed(&mut self, took: Duration) {
        self.local.add(took);
    }

    /// A write of `bytes` upstream has ended.
    pub(super) fn wrote(&mut self, bytes: u64, took: Duration) {
        if bytes <= SMALL {
            self.upstream.add(took);
        }
    }

    /// The medians of local commit and upstream write, each when it is known.
    pub(super) fn medians(&self) -> (Option<Duration>, Option<Duration>) {
        (self.local.get(), self.upstream.get())
    }

    /// The medians, if the log is slower by a quarter or more.
    pub(super) fn slower(&self) -> Option<(Duration, Duration)> {
        let (local, upstream) = (self.local.get()?, self.upstream.get()?);
        (local.as_nanos() / 5 * 4 > upstream.as_nanos()).then_some((local, upstream))
    }

    /// Begins anew.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

/// The last samples, in order of arrival and in order of size.
#[derive(Clone, Debug, Default)]
pub(super) struct Median {
    last: VecDeque<Duration>,
    sorted: VecDeque<Duration>,
}

impl Median {
    pub(super) fn add(&mut self, sample: Duration) {
        if self.last.len() == SAMPLES
            && let Some(old) = self.last.pop_front()
        {
            let at = self.sorted.partition_point(|&other| other < old);
            self.sorted.remove(at);
        }
        self.last.push_back(sample);
        let at = self.sorted.partition_point(|&other| other < sample);
        self.sorted.insert(at, sample);
        assert!(
            self.sorted.len() == self.last.len() && self.last.len() <= SAMPLES,
            "each sample is in both orders: {} and {}",
            self.sorted.len(),
            self.last.len()
        );
    }

    pub(super) fn get(&self) -> Option<Duration> {
        (self.last.len() == SAMPLES).then(|| self.sorted[SAMPLES / 2])
    }
}

/// How many samples make a median.
const SAMPLES: usize = 65;

/// The longest write upstream that counts, in bytes.
const SMALL: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is said before there are enough samples; then a quarter decides; old samples go.
    #[test]
    fn a_quarter_slower_is_slower() {
        let mut check = CommitLatencyCheck::default();
        let ms = Duration::from_millis;
        for i in 0..SAMPLES {
            assert_eq!(check.slower(), None, "{i}");
            check.committed(ms(5));
            check.wrote(1 << 20, ms(1));
            check.wrote(4096, ms(3));
        }
        assert_eq!(check.slower(), Some((ms(5), ms(3))));
        for _ in 0..=SAMPLES / 2 {
            check.wrote(4096, ms(4));
        }
        assert_eq!((check.slower(), check.medians()), (None, (Some(ms(5)), Some(ms(4)))));
    }
}
