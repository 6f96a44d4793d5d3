//! Start-time fair queueing: the tags by which tenants share what they compete for.
//!
//! A request starts at the virtual time or where its tenant's last one finished, whichever is later,
//! and finishes `cost / iops` later. The smallest start goes first; the virtual time is the start of the
//! one that went last. Tags are exact: all of them are multiples of `1 / (1000 n)` virtual seconds, where n is
//! the least common multiple of the tenants' rates, so that equal times are equal tags. Where n would not fit
//! into 64 bits it is 2^64, and each tenant's tags are short of exact by less than one part in 2^32.

use super::simple::SimpleContract;
use alloc::vec::Vec;

/// A time of the virtual clock, in units of `1 / (1000 n)` s.
pub(super) type Tag = u128;

/// The tags of all tenants.
#[derive(Clone, Debug)]
pub(super) struct Fair {
    now: Tag,
    finish: Vec<Tag>,
    /// By tenant, the virtual time of a milli-token.
    step: Vec<Tag>,
}

impl Fair {
    pub(super) fn new(promises: &[SimpleContract]) -> Self {
        let rates = promises.iter().map(|promise| u128::from(promise.iops));
        let denominator =
            rates.clone().try_fold(1, least_common_multiple).unwrap_or(DENOMINATOR_MAX);
        Self {
            now: 0,
            finish: promises.iter().map(|_| 0).collect(),
            step: rates.map(|rate| denominator / rate).collect(),
        }
    }

    /// Where a line's next request would start.
    pub(super) fn start(&self, line: usize) -> Tag {
        self.now.max(self.finish[line])
    }

    /// Gives a line's next request its tag.
    pub(super) fn tag(&mut self, line: usize, cost: u64) -> Tag {
        let start = self.start(line);
        self.finish[line] = start + u128::from(cost) * self.step[line];
        start
    }

    /// A request with this start has gone.
    pub(super) fn gone(&mut self, start: Tag) {
        assert!(start >= self.now, "virtual time ran backwards");
        self.now = start;
    }
}

/// The denominator where rates have no smaller common one. With 2^64 a tag lasts for 2^53 virtual seconds.
const DENOMINATOR_MAX: u128 = 1 << 64;

/// Of two positive numbers; `None` above [`DENOMINATOR_MAX`].
fn least_common_multiple(a: u128, b: u128) -> Option<u128> {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    Some(a / divisor * b).filter(|&multiple| multiple <= DENOMINATOR_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::simple::simple_contracts;
    use super::*;
    use crate::clock::Duration;
    use crate::control::Contract;
    use crate::control::contract::TOKEN;
    use crate::testing;

    fn fair(rates: &[u32]) -> Fair {
        let contract = |&iops| Some(Contract::new(iops, 4_096, Duration::from_millis(1)));
        let list: Vec<_> = rates.iter().map(contract).collect();
        Fair::new(&simple_contracts(&testing::promises(&list)))
    }

    /// Tenants that finish at the same virtual time have the same tag, whatever their rates: 2500 and 1000
    /// a second meet every 2 ms, 3 and 7 every second.
    #[test]
    fn equal_times_are_equal_tags() {
        for (rates, requests) in
            [([2_500, 1_000], [5, 2]), ([3, 7], [3, 7]), ([3_500, 1_500], [7, 3])]
        {
            let mut fair = fair(&rates);
            for round in 1..=1_000 {
                for (line, count) in requests.into_iter().enumerate() {
                    for _ in 0..count {
                        fair.tag(line, TOKEN);
                    }
                }
                assert_eq!(fair.finish[0], fair.finish[1], "{rates:?}, round {round}");
            }
        }
    }

    /// Where the rates have no common multiple below 2^64, tags are within one part in 2^32 of exact.
    #[test]
    fn rates_without_a_common_multiple_are_nearly_exact() {
        let rates = [4_294_967_291, 4_294_967_279, 4_294_967_231];
        let mut fair = fair(&rates);
        for (line, rate) in rates.into_iter().enumerate() {
            fair.tag(line, u64::from(rate));
            // A thousandth of a second's tokens.
            let error = (DENOMINATOR_MAX - fair.finish[line]) as f64 / DENOMINATOR_MAX as f64;
            assert!((0.0..1.0 / 4_294_967_296.0).contains(&error), "{rate}: {error}");
        }
    }

    /// Virtual time does not run backwards.
    #[test]
    #[should_panic(expected = "ran backwards")]
    fn virtual_time_is_monotone() {
        let mut fair = Fair::new(&[]);
        fair.gone(1);
        fair.gone(0);
    }
}
