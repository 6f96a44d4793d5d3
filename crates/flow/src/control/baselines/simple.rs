//! Contracts as policies with one rate and one response time for each tenant see them.

use crate::clock::Duration;
use crate::control::contract::{Contract, Promises, best_effort};
use crate::control::tariff::Tariff;
use crate::request::Request;
use alloc::vec::Vec;

/// A line of requests as policies with one tuple see it: a tenant with its contract or, promised
/// nothing, without.
#[derive(Clone, Debug)]
pub(super) struct SimpleContract {
    /// Tokens per second.
    pub(super) iops: u32,
    /// The response time of the first row; for best effort it means nothing.
    pub(super) response: Duration,
    /// What a request costs.
    tariff: Tariff,
    /// Whether it is a contract, not best effort.
    pub(super) kept: bool,
}

impl SimpleContract {
    /// Milli-tokens that a request costs, at least one token for the smallest.
    pub(super) fn cost(&self, request: &Request) -> u64 {
        self.tariff.cost(request)
    }
}

/// One line for each tenant in the list, and a last one for all others together.
pub(super) fn simple_contracts(promises: &Promises) -> Vec<SimpleContract> {
    let best_effort = best_effort();
    let simple = |contract: Option<&Contract>| {
        let kept = contract.is_some();
        let contract = contract.unwrap_or(&best_effort);
        let row = &contract.rows[0];
        let tariff = Tariff::new(&contract.rows);
        SimpleContract { iops: row.iops, response: row.response(), tariff, kept }
    };
    promises.contracts.iter().map(Option::as_ref).chain([None]).map(simple).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::contract::line;
    use crate::request::TenantId;
    use crate::testing;
    use alloc::vec;

    /// Tenants past the list share the last line, however high their numbers are.
    #[test]
    fn strangers_share_a_line() {
        let list = Promises {
            contracts: vec![Some(Contract::new(400, 4_096, Duration::from_millis(20))), None],
            groups: Vec::new(),
        };
        let lines = simple_contracts(&list);
        assert_eq!(lines.iter().map(|l| l.kept).collect::<Vec<_>>(), [true, false, false]);
        let of = |tenant| {
            let tenant = TenantId::new(tenant);
            line(&Request { tenant, ..testing::request(0) }, lines.len())
        };
        assert_eq!([0, 1, 2, u32::MAX].map(of), [0, 1, 2, 2]);
    }
}
