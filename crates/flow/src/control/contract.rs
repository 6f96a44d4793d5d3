//! What a tenant is promised, and what a request counts against the promise.

use crate::clock::Duration;
use crate::request::Request;
use alloc::vec::Vec;

/// A tenant's contract: while it asks for no more than `iops` requests of `size` bytes a second,
/// they end within `response`.
///
/// Source: the tuple `W = {iops, size, rt}` of the token-bucket paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Requests per second, 1 to [`IOPS_MAX`].
    pub iops: u32,
    /// Bytes of such a request, 1 to [`SIZE_MAX`]. A larger request counts as several, a smaller one
    /// as one.
    pub size: u32,
    /// Time from arrival to end that is promised, [`RESPONSE_MIN`] to [`RESPONSE_MAX`].
    pub response: Duration,
}

/// The highest rate that can be promised.
pub const IOPS_MAX: u32 = 10_000_000;

/// The largest size that can be promised: 1 GiB.
pub const SIZE_MAX: u32 = 1 << 30;

/// The shortest response time that can be promised.
pub const RESPONSE_MIN: Duration = Duration::from_micros(1);

/// The longest response time that can be promised.
pub const RESPONSE_MAX: Duration = Duration::from_secs(3_600);

/// The most tenants that contracts can be listed for.
pub const CONTRACTS_MAX: usize = 16_384;

/// Milli-tokens in a token, the right to one request of the contract's size.
pub(super) const TOKEN: u64 = 1_000;

impl Contract {
    /// What is out of range here, in words for whoever made it.
    pub fn fault(&self) -> Option<&'static str> {
        if self.iops == 0 || self.iops > IOPS_MAX {
            return Some("a contract's rate is not from 1 to 10000000 requests per second");
        }
        if self.size == 0 || self.size > SIZE_MAX {
            return Some("a contract's size is not from 1 byte to 1 GiB");
        }
        if self.response < RESPONSE_MIN || self.response > RESPONSE_MAX {
            return Some("a contract's response time is not from 1 us to an hour");
        }
        None
    }

    /// Milli-tokens that a request costs: its size in units of the contract's, at least one token.
    pub(super) fn cost(&self, request: &Request) -> u64 {
        let bytes = u128::from(request.payload()) * u128::from(TOKEN);
        let cost = bytes.div_ceil(u128::from(self.size));
        u64::try_from(cost).unwrap_or(u64::MAX).clamp(TOKEN, COST_MAX)
    }
}

/// The most that a request costs: as much as 4 billion requests. Keeps sums in range.
const COST_MAX: u64 = 1 << 42;

/// With what weight tenants without a contract share what is left, and at what rate they go on while
/// the switched policies hold them: that of 100 requests of 4 KiB a second. Nothing is promised to
/// them, so the response time means nothing.
const BEST_EFFORT: Contract = Contract { iops: 100, size: 4_096, response: RESPONSE_MAX };

/// A line of requests: a tenant with its contract or, promised nothing, without.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    pub(super) contract: Contract,
    /// Whether it is a contract, not best effort.
    pub(super) kept: bool,
}

/// One line for each tenant in the list, and a last one for all others together.
pub(super) fn promises(contracts: &[Option<Contract>]) -> Vec<Promise> {
    let promise = |contract: Option<Contract>| Promise {
        contract: contract.unwrap_or(BEST_EFFORT),
        kept: contract.is_some(),
    };
    contracts.iter().copied().chain([None]).map(promise).collect()
}

/// The line of a request, of so many lines.
pub(super) fn line(request: &Request, lines: usize) -> usize {
    request.tenant.index().min(lines - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::units::Extent;

    /// A request costs its size in units of the contract's, rounded up to a milli-token; nothing,
    /// not even a flush, costs less than a token.
    #[test]
    fn cost_is_size_with_a_floor() {
        let contract = Contract { iops: 1, size: 4_096, response: Duration::from_millis(1) };
        let cost = |bytes| {
            let extent = Extent::new(0, bytes);
            contract.cost(&crate::request::Request { extent, ..testing::request(0) })
        };
        assert_eq!(
            [0, 512, 4_096, 4_097, 6_144, 8_192].map(cost),
            [1_000, 1_000, 1_000, 1_001, 1_500, 2_000]
        );
        assert_eq!(cost(u64::MAX), COST_MAX);
    }

    /// Each limit holds at its end and is named past it.
    #[test]
    fn ranges_end_where_they_say() {
        let good = Contract { iops: IOPS_MAX, size: SIZE_MAX, response: RESPONSE_MAX };
        assert_eq!(good.fault(), None);
        for (bad, word) in [
            (Contract { iops: 0, ..good }, "rate"),
            (Contract { iops: IOPS_MAX + 1, ..good }, "rate"),
            (Contract { size: 0, ..good }, "size"),
            (Contract { size: SIZE_MAX + 1, ..good }, "size"),
            (Contract { response: Duration::ZERO, ..good }, "response"),
            (Contract { response: RESPONSE_MAX + RESPONSE_MIN, ..good }, "response"),
        ] {
            assert!(bad.fault().is_some_and(|fault| fault.contains(word)), "{bad:?}");
        }
    }

    /// Tenants past the list share the last line, however high their numbers are.
    #[test]
    fn strangers_share_a_line() {
        let contract = Contract { iops: 5, ..BEST_EFFORT };
        let lines = promises(&[Some(contract), None]);
        assert_eq!(lines.iter().map(|l| l.kept).collect::<Vec<_>>(), [true, false, false]);
        let of = |tenant| {
            let tenant = crate::request::TenantId::new(tenant);
            line(&crate::request::Request { tenant, ..testing::request(0) }, lines.len())
        };
        assert_eq!([0, 1, 2, u32::MAX].map(of), [0, 1, 2, 2]);
    }
}
