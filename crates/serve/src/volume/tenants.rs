//! The tenant of a request, by host and volume.

use crate::config::{Initiators, Tenant};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weir_flow::clock::Duration;
use weir_flow::control::{Contract, Promises};
use weir_flow::dispatch::Weight;
use weir_flow::request::TenantId;

/// The names of tenants, by tenant id, for the event log. They change with the configuration.
pub(crate) type TenantNames = Rc<RefCell<Vec<String>>>;

/// The tenants that hosts are by their names, looked up when a session begins.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// By a host's whole name.
    whole: BTreeMap<String, TenantId>,
    /// By the beginning of a name, the longest first.
    beginnings: Vec<(String, TenantId)>,
    /// By tenant id, the commands that a host must have outstanding to reach its contract.
    depths: Vec<u64>,
}

impl Claims {
    /// Those of a configuration's tenants.
    pub(crate) fn new(tenants: &[Tenant], promises: &Promises) -> Self {
        let mut claims = Self { depths: depths(promises), ..Self::default() };
        for (id, tenant) in (0..).map(TenantId::new).zip(tenants) {
            for name in tenant.initiators.iter().flat_map(Initiators::names) {
                if let Some(front) = name.strip_suffix('*') {
                    claims.beginnings.push((front.to_owned(), id));
                } else {
                    claims.whole.entry(name.clone()).or_insert(id);
                }
            }
        }
        // The sort is stable: of equals the first counts.
        claims.beginnings.sort_by_key(|(front, _)| std::cmp::Reverse(front.len()));
        claims
    }

    /// The tenant that claims the host with this name, in lower case: by its whole name before a
    /// beginning of it, by a longer beginning before a shorter one.
    pub(crate) fn of(&self, name: &str) -> Option<TenantId> {
        let begins = |(front, _): &&(String, TenantId)| name.starts_with(front.as_str());
        let by_beginning = || self.beginnings.iter().find(begins).map(|&(_, id)| id);
        self.whole.get(name).copied().or_else(by_beginning)
    }

    /// The commands that a host must have outstanding to reach a tenant's contract while requests take
    /// as long as they may; zero without a contract.
    pub(crate) fn depth(&self, tenant: TenantId) -> u64 {
        self.depths.get(tenant.index()).copied().unwrap_or(0)
    }
}

/// Little's law for the first row of each contract. Of several response times the shortest counts:
/// requests that all take as long as the slowest may are not what was promised.
fn depths(promises: &Promises) -> Vec<u64> {
    let depth = |contract: &Contract| {
        let row = &contract.rows[0];
        let response = row.targets[0].response.as_nanos();
        u64::from(row.iops).saturating_mul(response).div_ceil(Duration::from_secs(1).as_nanos())
    };
    promises.contracts.iter().map(|contract| contract.as_ref().map_or(0, depth)).collect()
}

/// Gives the tenants of a new configuration the ids that they have had, whatever their order is now:
/// requests in flight refer to them. Those that are new come last; those that are gone keep
/// their ids, without a contract, until a restart. `contracts`,
/// `weights` and `volumes` go by the ids as well.
pub(crate) fn keep_ids<'a>(
    old: &[Tenant],
    new: Vec<Tenant>,
    contracts: &mut Vec<Option<Contract>>,
    weights: &mut Vec<Weight>,
    volumes: impl Iterator<Item = &'a mut usize>,
) -> Vec<Tenant> {
    let gone = |tenant: &Tenant| Tenant { initiators: None, ..tenant.clone() };
    let mut tenants: Vec<Tenant> = old.iter().map(gone).collect();
    let known: BTreeMap<&str, usize> =
        (old.iter().zip(0..)).map(|(tenant, id)| (tenant.name.as_str(), id)).collect();
    let mut ids = Vec::new();
    for tenant in new {
        if let Some(&id) = known.get(tenant.name.as_str()) {
            ids.push(id);
            tenants[id] = tenant;
        } else {
            ids.push(tenants.len());
            tenants.push(tenant);
        }
    }
    let mut placed = vec![None; tenants.len()];
    for (contract, &id) in std::mem::take(contracts).into_iter().zip(&ids) {
        placed[id] = contract;
    }
    *contracts = placed;
    let mut placed = vec![Weight::ONE; tenants.len()];
    for (weight, &id) in std::mem::take(weights).into_iter().zip(&ids) {
        placed[id] = weight;
    }
    *weights = placed;
    for tenant in volumes {
        *tenant = ids[*tenant];
    }
    tenants
}

#[cfg(test)]
mod tests;
