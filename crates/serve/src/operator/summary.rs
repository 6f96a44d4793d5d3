//! The state of tenants for operators: how well each contract is met, and which rules held its requests.

use crate::operator::{CauseStatus, TargetStatus, TenantStatus};
use std::cmp::Reverse;
use tracing::info;
use weir_flow::account::attainment::Attainment;
use weir_flow::account::ledger::Ledger;
use weir_flow::account::{Account, Accounts};
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::Direction;
use weir_flow::request::TenantId;
use weir_flow::units::ByteCount;

/// The tenants with a contract and requests, those first whose budget burned fastest in the
/// last hour: at most [`TENANTS`] of them, and how many more there are.
pub(crate) fn tenants(
    accounts: &mut Accounts,
    names: &[String],
    now: Instant,
) -> (Vec<TenantStatus>, u64) {
    let ranked = ranked(accounts, now);
    let told = ranked.iter().take(TENANTS);
    let told = told.filter_map(|&tenant| status(accounts, tenant, names, now)).collect();
    (told, ranked.len().saturating_sub(TENANTS) as u64)
}

/// Logs a line for each of these tenants, and one for each target of its contract.
pub(crate) fn log(tenants: &[TenantStatus], left_out: u64) {
    for tenant in tenants {
        account(tenant);
    }
    if left_out > 0 {
        info!(left_out, "tenants whose budgets burn no faster");
    }
}

/// The tenants with a contract and requests, the one with the worst burn first.
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

/// The highest burn rate of a target, in thousandths.
fn fastest(score: &mut Attainment, now: Instant) -> u64 {
    let hour = score.hour(now);
    let burn = (0..).zip(score.targets()).map(|(index, &target)| hour.burn_permille(index, target));
    burn.max().unwrap_or(0)
}

fn status(
    accounts: &mut Accounts,
    tenant: TenantId,
    names: &[String],
    now: Instant,
) -> Option<TenantStatus> {
    let rows = accounts.contract(tenant)?.rows.clone();
    let account = accounts.tenant(tenant)?;
    let Ledger { total, late, refused, .. } = &account.ledger;
    let mut status = TenantStatus {
        name: names.get(tenant.index()).cloned().unwrap_or_default(),
        requests: total.count,
        late: late.count,
        refused: *refused,
        time_ns: nanos(total.nanos),
        causes: causes(&account.ledger),
        targets: Vec::new(),
    };
    for (row, direction, score) in account.rows() {
        let (whole, five, hour) = (score.whole(now), score.five_minutes(now), score.hour(now));
        for (index, &target) in score.targets().iter().enumerate() {
            let burn = |permille: u64| permille as f64 / 1e3;
            let measured = whole.times.quantile(target.quantile_ppm);
            status.targets.push(TargetStatus {
                direction: match direction {
                    Direction::Read => "read",
                    Direction::Write => "write",
                }
                .to_owned(),
                size: rows[row].size.into(),
                load: rows[row].load_permille.map(|load| f64::from(load) / 1e3),
                quantile: f64::from(target.quantile_ppm) / 1e6,
                target_ns: target.response.as_nanos(),
                count: whole.counts.count,
                missed: whole.counts.missed[index],
                measured_ns: measured.filter(|&time| time < Duration::MAX).map(Duration::as_nanos),
                burn: burn(whole.counts.burn_permille(index, target)),
                burn_5min: burn(five.burn_permille(index, target)),
                burn_1h: burn(hour.burn_permille(index, target)),
            });
        }
    }
    Some(status)
}

fn account(tenant: &TenantStatus) {
    let TenantStatus { name, requests, late, refused, causes, .. } = tenant;
    let share = |nanos: u64| nanos as f64 / tenant.time_ns.max(1) as f64 * 1e2;
    let told = causes.iter().map(|cause| format!("{} {:.1} %", cause.rule, share(cause.time_ns)));
    let causes = told.collect::<Vec<_>>().join(", ");
    info!(tenant = name, requests, late, refused, %causes, "account");
    for target in &tenant.targets {
        let TargetStatus { direction, burn, burn_5min, burn_1h, count, .. } = target;
        let response = Duration::from_nanos(target.target_ns);
        let quantile = (target.quantile * 1e6).round() / 1e4;
        let measured = target.measured_ns.map(Duration::from_nanos);
        // Cut, not rounded: 99.00 % is never less.
        let met = (count - target.missed) * 10_000 / (*count).max(1);
        info!(
            tenant = name,
            op = direction,
            size = %ByteCount(target.size),
            load = target.load,
            promised = %format_args!("p{quantile} {response}"),
            measured = %measured.map_or_else(|| "never".to_owned(), |time| time.to_string()),
            requests = count,
            met_per_cent = met as f64 / 1e2,
            burn,
            burn_5min,
            burn_1h,
            "promise"
        );
    }
}

/// The rules that held requests for longest.
fn causes(ledger: &Ledger) -> Vec<CauseStatus> {
    let mut lines: Vec<_> = ledger.lines().iter().collect();
    lines.sort_by_key(|line| Reverse(line.all.nanos));
    let told = lines.into_iter().take(CAUSES);
    told.map(|line| CauseStatus { rule: (*line.rule.0).to_owned(), time_ns: nanos(line.all.nanos) })
        .collect()
}

/// Sums of more than 584 years are shown as 584 years.
fn nanos(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

/// Tenants in a summary.
const TENANTS: usize = 100;

/// Causes of a tenant's time in a summary.
const CAUSES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::control::{Contract, Promises};
    use weir_flow::event::{Completed, Event, Observer, StageTimes, Trail};
    use weir_flow::request::{LinkId, Op, Request, Tag, VolumeId};
    use weir_flow::units::Extent;

    /// Tenants with a contract come by how fast their budgets burn, then by number; those without
    /// requests or without a contract are left out.
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
                job: false,
            };
            let (arrived, times) = (Instant::ZERO, &StageTimes::default());
            let (request, row, outcome, trail) = (&request, Some(0), Ok(()), Trail::default());
            for _ in 0..met {
                let end = Completed { request, row, arrived, times, outcome, trail };
                accounts.event(Instant::ZERO, Event::Completed(end));
            }
            for _ in 0..missed {
                accounts.event(Instant::ZERO, Event::Refused(request, row));
            }
        }
        let ranked: Vec<_> =
            ranked(&mut accounts, Instant::ZERO).iter().map(|id| id.index()).collect();
        assert_eq!(ranked, [2, 1, 0, 5]);
    }
}
