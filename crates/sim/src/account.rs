//! Attainment and ledgers of tenants as plain data for reports.

use crate::results::{CauseResults, LedgerResults, TargetResults};
use weir_flow::account::Accounts;
use weir_flow::account::ledger::Ledger;
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::Direction;
use weir_flow::request::TenantId;

/// How well a tenant's contract was kept until now.
pub(crate) fn attainment(
    accounts: &mut Accounts,
    tenant: TenantId,
    now: Instant,
) -> Vec<TargetResults> {
    let rows = accounts.contract(tenant).map(|contract| contract.rows.clone()).unwrap_or_default();
    let Some(account) = accounts.tenant(tenant) else { return Vec::new() };
    let mut results = Vec::new();
    for (row, direction, score) in account.rows() {
        let whole = score.whole(now);
        let (five, hour) = (score.five_minutes(now), score.hour(now));
        for (index, &target) in score.targets().iter().enumerate() {
            let tally = &whole.counts;
            let burn = |permille: u64| permille as f64 / 1e3;
            let measured = whole.times.quantile(target.quantile_ppm);
            results.push(TargetResults {
                row,
                size: rows[row].size,
                load: rows[row].load_permille.map(|load| f64::from(load) / 1e3),
                direction: match direction {
                    Direction::Read => "read",
                    Direction::Write => "write",
                },
                quantile: f64::from(target.quantile_ppm) / 1e6,
                target_ns: target.response.as_nanos(),
                count: tally.count,
                missed: tally.missed[index],
                met: (tally.count - tally.missed[index]) as f64 / tally.count.max(1) as f64,
                kept: tally.met_ppm(index) >= target.quantile_ppm,
                measured_ns: measured.filter(|&time| time < Duration::MAX).map(Duration::as_nanos),
                burn: burn(tally.burn_permille(index, target)),
                burn_5min: burn(five.burn_permille(index, target)),
                burn_1h: burn(hour.burn_permille(index, target)),
            });
        }
    }
    results
}

/// Where the time of a ledger went.
pub(crate) fn ledger(ledger: &Ledger) -> LedgerResults {
    let nanos = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
    let cause = |line: &weir_flow::account::ledger::Line| CauseResults {
        stage: line.stage.as_str(),
        rule: line.rule.0,
        requests: line.all.count,
        time_ns: nanos(line.all.nanos),
        late_requests: line.late.count,
        late_ns: nanos(line.late.nanos),
    };
    LedgerResults {
        requests: ledger.total.count,
        time_ns: nanos(ledger.total.nanos),
        late_requests: ledger.late.count,
        late_ns: nanos(ledger.late.nanos),
        beyond_ns: nanos(ledger.beyond_ns),
        causes: ledger.lines().iter().map(cause).collect(),
    }
}
