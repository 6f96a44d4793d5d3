//! How tenants fare, for operators: how well each contract is kept, and what held its tenant.

use std::cmp::Reverse;
use tracing::info;
use weir_flow::account::attainment::Attainment;
use weir_flow::account::ledger::Ledger;
use weir_flow::account::{Account, Accounts};
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::Direction;
use weir_flow::request::TenantId;
use weir_flow::units::ByteCount;

/// Logs a line for each tenant with a contract that has asked for something, and one for each target of it:
/// those first whose budget burned fastest in the last hour, and at most [`TENANTS`] of them.
pub(crate) fn log(accounts: &mut Accounts, names: &[String], now: Instant) {
    let ranked = ranked(accounts, now);
    for &tenant in ranked.iter().take(TENANTS) {
        account(accounts, tenant, names, now);
    }
    let left_out = ranked.len().saturating_sub(TENANTS);
    if left_out > 0 {
        info!(left_out, "tenants whose budgets burn no faster");
    }
}

/// The tenants with a contract that have asked for something, the one with the worst burn first.
fn ranked(accounts: &mut Accounts, now: Instant) -> Vec<TenantId> {
    let asked: Vec<TenantId> = accounts.tenants().map(|(tenant, _)| tenant).collect();
    let mut ranked = Vec::new();
    for tenant in asked {
        if accounts.contract(tenant).is_some() {
            let scores = accounts.tenant(tenant).into_iter().flat_map(Account::rows);
            let burn = scores.map(|(.., score)| fastest(score, now)).max();
            ranked.push((Reverse(burn), tenant));
        }
    }
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, tenant)| tenant).collect()
}

/// How fast the budget of the target burns that does so fastest.
fn fastest(score: &mut Attainment, now: Instant) -> u64 {
    let hour = score.hour(now);
    let burn = (0..).zip(score.targets()).map(|(index, &target)| hour.burn_permille(index, target));
    burn.max().unwrap_or(0)
}

fn account(accounts: &mut Accounts, tenant: TenantId, names: &[String], now: Instant) {
    let contract = accounts.contract(tenant);
    let rows = contract.map(|contract| contract.rows.clone());
    let (Some(rows), Some(account)) = (rows, accounts.tenant(tenant)) else { return };
    let name = names.get(tenant.index()).map_or("", String::as_str);
    let Ledger { total, late, refused, .. } = &account.ledger;
    let (requests, late, refused) = (total.count, late.count, *refused);
    let causes = causes(&account.ledger);
    info!(tenant = name, requests, late, refused, %causes, "account");
    for (row, direction, score) in account.rows() {
        let (whole, five, hour) = (score.whole(now), score.five_minutes(now), score.hour(now));
        for (index, &target) in score.targets().iter().enumerate() {
            let burn = |permille: u64| permille as f64 / 1e3;
            // Cut, not rounded: 99.00 % is never less.
            let met = f64::from(whole.tally.met_ppm(index) / 100) / 1e2;
            let measured = whole.times.quantile(target.quantile_ppm);
            let measured = measured.filter(|&time| time < Duration::MAX);
            info!(
                tenant = name,
                op = match direction {
                    Direction::Read => "read",
                    Direction::Write => "write",
                },
                size = %ByteCount(rows[row].size.into()),
                load = rows[row].load_permille.map(|load| f64::from(load) / 1e3),
                promised = %format_args!(
                    "p{} {}", f64::from(target.quantile_ppm) / 1e4, target.response
                ),
                measured = %measured.map_or_else(|| "never".to_owned(), |time| time.to_string()),
                requests = whole.tally.count,
                met_per_cent = met,
                burn = burn(whole.tally.burn_permille(index, target)),
                burn_5min = burn(five.burn_permille(index, target)),
                burn_1h = burn(hour.burn_permille(index, target)),
                "promise"
            );
        }
    }
}

/// What most of the time was spent on.
fn causes(ledger: &Ledger) -> String {
    let mut lines: Vec<_> = ledger.lines().iter().collect();
    lines.sort_by_key(|line| Reverse(line.all.nanos));
    let share = |nanos: u128| nanos as f64 / ledger.total.nanos.max(1) as f64 * 1e2;
    let told = lines.iter().take(CAUSES);
    let told = told.map(|line| format!("{} {:.1} %", line.rule.0, share(line.all.nanos)));
    told.collect::<Vec<_>>().join(", ")
}

/// Tenants in a summary.
const TENANTS: usize = 100;

/// Causes of a tenant's time in a summary.
const CAUSES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::control::{Contract, Promises};
    use weir_flow::event::{Completed, Event, Observer, StageTimes};
    use weir_flow::request::{LinkId, Op, Request, Tag, VolumeId};
    use weir_flow::units::Extent;

    /// Tenants with a contract come by how fast their budgets burn, then by number; who has asked for
    /// nothing, or was promised nothing, does not come.
    #[test]
    fn the_worst_burn_comes_first() {
        let contract = Some(Contract::new(100, 512, Duration::from_secs(1)));
        let mut contracts = vec![contract; 6];
        contracts[4] = None;
        let mut accounts = Accounts::new(&Promises { contracts, ..Promises::default() });
        for (tenant, met, missed) in [(0, 5, 0), (1, 9, 1), (2, 1, 9), (4, 0, 9), (5, 3, 0)] {
            let request = Request {
                tag: Tag(0),
                tenant: TenantId::new(tenant),
                volume: VolumeId::new(0),
                link: LinkId::new(0),
                op: Op::Read,
                extent: Extent::new(0, 512),
                fua: false,
                ordered: false,
            };
            let (arrived, times) = (Instant::ZERO, &StageTimes::default());
            for _ in 0..met {
                let end =
                    Completed { request: &request, row: Some(0), arrived, times, outcome: Ok(()) };
                accounts.event(Instant::ZERO, Event::Completed(end));
            }
            for _ in 0..missed {
                accounts.event(Instant::ZERO, Event::Refused(&request, Some(0)));
            }
        }
        let ranked: Vec<_> =
            ranked(&mut accounts, Instant::ZERO).iter().map(|id| id.index()).collect();
        assert_eq!(ranked, [2, 1, 0, 5]);
    }
}
