//! Measures a run as it happens: counts, sums and histograms of fixed size.

use crate::account;
use crate::results::{LedgerResults, StageResults, TenantResults, Times, Totals};
use hdrhistogram::Histogram;
use weir_flow::account::Accounts;
use weir_flow::account::ledger::Ledger;
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::Promises;
use weir_flow::event::{Completed, Event, Observer, StageName};
use weir_flow::path::{Change, State};
use weir_flow::request::{Op, TenantId};

/// The longest time that histograms tell apart from longer ones: about 73 minutes.
const LONGEST_NS: u64 = 1 << 42;

/// An observer that measures what ends after the warm-up.
#[derive(Debug)]
pub(crate) struct Measure {
    warm_up: Instant,
    tenants: Vec<Tenant>,
    accounts: Accounts,
    pub(crate) paths_failed: u64,
    pub(crate) paths_reinstated: u64,
    pub(crate) overdue: u64,
}

#[derive(Clone, Debug, Default)]
struct Tenant {
    totals: Totals,
    errors: u64,
    refused: u64,
    bytes: u64,
    reads: Sample,
    writes: Sample,
    others: Sample,
    stages: [Sample; 7],
}

/// Times of one kind. Zeroes are not in the histogram: most stages hold most requests not at all,
/// and a stage that never holds any costs no memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    count: u64,
    sum: u128,
    max: u64,
    positive: Option<Histogram<u64>>,
}

impl Measure {
    pub(crate) fn new(tenants: usize, promises: &Promises, warm_up: Duration) -> Self {
        Self {
            warm_up: Instant::ZERO + warm_up,
            tenants: vec![Tenant::default(); tenants],
            accounts: Accounts::new(promises),
            paths_failed: 0,
            paths_reinstated: 0,
            overdue: 0,
        }
    }

    /// The results of all tenants together, and of each, over an interval of this length that ends now.
    pub(crate) fn results(
        &mut self,
        names: &[String],
        now: Instant,
        interval: Duration,
    ) -> (TenantResults, Vec<TenantResults>) {
        let (mut all, mut whole) = (Tenant::default(), Ledger::default());
        let mut each = Vec::new();
        for (index, (tenant, name)) in (0..).zip(self.tenants.iter().zip(names)) {
            all.add(tenant);
            let mut results = tenant.results(name, interval);
            if let Some(account) = self.accounts.tenant(TenantId::new(index)) {
                whole.merge(&account.ledger);
                results.ledger = account::ledger(&account.ledger);
                results.attainment =
                    account::attainment(&mut self.accounts, TenantId::new(index), now);
            }
            each.push(results);
        }
        let all = TenantResults { ledger: account::ledger(&whole), ..all.results("all", interval) };
        (all, each)
    }

    fn completed(&mut self, now: Instant, completed: &Completed<'_>) {
        let Completed { request, times, outcome, .. } = completed;
        let tenant = &mut self.tenants[request.tenant.index()];
        tenant.totals.completed += 1;
        tenant.totals.outstanding -= 1;
        if now < self.warm_up {
            return;
        }
        match outcome {
            Ok(()) => tenant.bytes += request.payload(),
            Err(_) => tenant.errors += 1,
        }
        let kind = match request.op {
            Op::Read => &mut tenant.reads,
            Op::Write => &mut tenant.writes,
            Op::Flush | Op::Discard | Op::WriteZeroes | Op::Verify | Op::Update => {
                &mut tenant.others
            }
        };
        let mut whole = Duration::ZERO;
        for (stage, sample) in StageName::ALL.into_iter().zip(&mut tenant.stages) {
            let spent = times.spent(stage);
            whole += spent;
            sample.record(spent);
        }
        kind.record(whole);
    }
}

impl Observer for Measure {
    fn event(&mut self, now: Instant, event: Event<'_>) {
        if now >= self.warm_up {
            self.accounts.event(now, event);
        }
        match event {
            Event::Arrived(request) => {
                let totals = &mut self.tenants[request.tenant.index()].totals;
                totals.arrived += 1;
                totals.outstanding += 1;
            }
            Event::Refused(request, _) => {
                let tenant = &mut self.tenants[request.tenant.index()];
                tenant.totals.arrived += 1;
                tenant.totals.refused += 1;
                tenant.refused += u64::from(now >= self.warm_up);
            }
            Event::Completed(completed) => self.completed(now, &completed),
            Event::Path(Change { state: State::Failed, .. }) => self.paths_failed += 1,
            Event::Path(Change { from: State::Failed, .. }) => self.paths_reinstated += 1,
            Event::Overdue { .. } => self.overdue += 1,
            Event::Path(_)
            | Event::Control(_)
            | Event::Cache(..)
            | Event::ControlSet(_)
            | Event::VolumeAdded(..)
            | Event::VolumeRemoved(_)
            | Event::Lost(_) => {}
            // The world answers each action once, so this would be the pipeline's mistake.
            Event::Stray => panic!("a simulated completion found nothing"),
        }
    }
}

impl Tenant {
    fn add(&mut self, other: &Self) {
        self.totals.arrived += other.totals.arrived;
        self.totals.completed += other.totals.completed;
        self.totals.refused += other.totals.refused;
        self.totals.outstanding += other.totals.outstanding;
        self.errors += other.errors;
        self.refused += other.refused;
        self.bytes += other.bytes;
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.others.add(&other.others);
        for (mine, theirs) in self.stages.iter_mut().zip(&other.stages) {
            mine.add(theirs);
        }
    }

    fn results(&self, name: &str, interval: Duration) -> TenantResults {
        let mut response = self.reads.clone();
        response.add(&self.writes);
        response.add(&self.others);
        let seconds = interval.as_secs_f64();
        let per_second = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        let stages = StageName::ALL.into_iter().zip(&self.stages);
        TenantResults {
            name: name.to_owned(),
            totals: self.totals,
            count: response.count,
            errors: self.errors,
            refused: self.refused,
            bytes: self.bytes,
            requests_per_second: per_second(response.count),
            megabytes_per_second: per_second(self.bytes) / 1e6,
            response: response.times(),
            reads: self.reads.times(),
            writes: self.writes.times(),
            stages: stages
                .map(|(stage, sample)| StageResults {
                    stage: stage.as_str(),
                    times: sample.times(),
                })
                .collect(),
            attainment: Vec::new(),
            ledger: LedgerResults::default(),
        }
    }
}

impl Sample {
    pub(crate) fn record(&mut self, time: Duration) {
        self.count += 1;
        let nanos = time.as_nanos();
        if nanos > 0 {
            self.sum += u128::from(nanos);
            self.max = self.max.max(nanos);
            self.positive.get_or_insert_with(histogram).saturating_record(nanos);
        }
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        if let Some(theirs) = &other.positive {
            let mine = self.positive.get_or_insert_with(histogram);
            mine.add(theirs).expect("all histograms have one range");
        }
    }

    pub(crate) fn times(&self) -> Times {
        Times {
            count: self.count,
            mean_ns: if self.count > 0 { self.sum as f64 / self.count as f64 } else { 0.0 },
            p50_ns: self.percentile(500),
            p95_ns: self.percentile(950),
            p99_ns: self.percentile(990),
            p999_ns: self.percentile(999),
            max_ns: self.max,
        }
    }

    /// The value at this many thousandths, by nearest rank.
    fn percentile(&self, permille: u64) -> u64 {
        let Some(positive) = &self.positive else { return 0 };
        let rank = (u128::from(self.count) * u128::from(permille)).div_ceil(1_000) as u64;
        let zeroes = self.count - positive.len();
        let Some(rank) = rank.checked_sub(zeroes).filter(|&rank| rank > 0) else { return 0 };
        // Half a rank less, so that rounding the quotient cannot lead to the next rank.
        let quantile = (rank as f64 - 0.5) / positive.len() as f64;
        positive.value_at_quantile(quantile).min(self.max)
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are in order")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::rng::Rng;

    /// Percentiles agree with those of the sorted values within the bucket width of 0.1 %, zeroes
    /// included; mean and maximum are exact.
    #[test]
    fn percentiles_agree_with_sorting() {
        let mut rng = Rng::stream(1, "values");
        let (mut sample, mut values) = (Sample::default(), Vec::new());
        for _ in 0..10_007 {
            let value = if rng.below(3) == 0 { 0 } else { rng.bits() >> (24 + rng.below(30)) };
            sample.record(Duration::from_nanos(value));
            values.push(value);
        }
        values.sort_unstable();
        let times = sample.times();
        let mean = values.iter().map(|&v| u128::from(v)).sum::<u128>() as f64 / 10_007.0;
        assert!((times.mean_ns - mean).abs() < 1e-6 * mean);
        assert_eq!(times.max_ns, values[10_006]);
        let pairs = [(500, times.p50_ns), (950, times.p95_ns), (990, times.p99_ns)];
        for (permille, measured) in pairs.into_iter().chain([(999, times.p999_ns)]) {
            let exact = values[(10_007_usize * permille).div_ceil(1_000) - 1];
            let error = measured.checked_sub(exact).expect("an upper end is not below");
            assert!(error as f64 <= exact as f64 * 0.001, "p{permille}: {exact}, not {measured}");
        }
    }

    /// A time past the histogram's range still has the right mean and maximum.
    #[test]
    fn an_endless_time_saturates() {
        let mut sample = Sample::default();
        let day = Duration::from_secs(86_400);
        sample.record(day);
        let times = sample.times();
        assert_eq!(times.max_ns, day.as_nanos());
        assert!(times.p50_ns >= LONGEST_NS && times.p50_ns <= day.as_nanos());
    }

    /// Only zeroes are zero at every percentile; nothing at all is all zero.
    #[test]
    fn zeroes_cost_nothing() {
        let mut sample = Sample::default();
        assert_eq!(sample.times(), Times::default());
        sample.record(Duration::ZERO);
        assert_eq!(sample.times(), Times { count: 1, ..Times::default() });
        assert!(sample.positive.is_none());
    }
}
