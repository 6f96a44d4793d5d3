//! Finds the objective that covers a request: by operation, by size, and by the load of its tenant.
//!
//! Load is what arrived in the last second, as a share of what the contract earns in one. It is taken when
//! a request arrives, that request included, and says in which band of load the request is; the band is
//! left upwards as soon as its limit is passed, and entered again only 5 % below it. What is refused counts
//! as well: it was asked for.
//!
//! Source: `docs/reference/control.md` section 12, X1, bands. The second is counted in tenths, so that it is between
//! 0.9 and 1 s long.

use super::contract::{Contract, Promises, Row};
use super::tariff::Tariff;
use crate::clock::{Duration, Instant};
use crate::request::Request;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The contracts of all tenants, and the load of those for whom it matters.
#[derive(Debug)]
pub(crate) struct Rows {
    contracts: Vec<Option<(Contract, Option<Box<Meter>>)>>,
}

impl Rows {
    /// Meters without a request so far.
    pub(crate) fn new(promises: &Promises) -> Self {
        let kept = |contract: &Contract| (contract.clone(), Meter::of(&contract.rows));
        Self { contracts: promises.contracts.iter().map(|one| one.as_ref().map(kept)).collect() }
    }

    /// Other contracts hold from now on; a contract that stays keeps its load.
    pub(crate) fn set_promises(&mut self, promises: &Promises) {
        let mut old = core::mem::replace(self, Self::new(promises)).contracts;
        for (new, old) in self.contracts.iter_mut().zip(&mut old) {
            if let (Some((contract, meter)), Some((was, kept))) = (new, old)
                && contract == was
            {
                *meter = kept.take();
            }
        }
    }

    /// A request arrives: the row that it falls under, if any.
    pub(crate) fn arrive(&mut self, now: Instant, request: &Request) -> Option<u8> {
        let (contract, meter) = self.contracts.get_mut(request.tenant.index())?.as_mut()?;
        let band = meter.as_mut().map_or(0, |meter| meter.arrive(now, request));
        Some(contract.row(request, band)? as u8)
    }

    /// The row for a request that arrived when other promises held, at the load of now.
    pub(crate) fn again(&self, request: &Request) -> Option<u8> {
        let (contract, meter) = self.contracts.get(request.tenant.index())?.as_ref()?;
        let band = meter.as_ref().map_or(0, |meter| meter.band());
        Some(contract.row(request, band)? as u8)
    }
}

/// What a tenant has asked for in the last second.
#[derive(Debug)]
struct Meter {
    tariff: Tariff,
    /// Tokens per second.
    rate: u64,
    /// Milli-tokens in each tenth of a second, by its number modulo their count.
    tenths: [u64; TENTHS as usize],
    sum: u64,
    /// The number of the current tenth.
    tenth: u64,
    /// Up to where each band reaches, ascending, in thousandths of the contract.
    limits: Vec<u32>,
    /// The index of the band; past the last is beyond all.
    band: usize,
}

impl Meter {
    /// `None` if no row asks for the load.
    fn of(rows: &[Row]) -> Option<Box<Self>> {
        let mut limits: Vec<u32> = rows.iter().filter_map(|row| row.load_permille).collect();
        limits.sort_unstable();
        limits.dedup();
        let (rate, tariff) = (rows[0].iops.into(), Tariff::new(rows));
        let tenths = [0; TENTHS as usize];
        let meter = Self { tariff, rate, tenths, sum: 0, tenth: 0, limits, band: 0 };
        (!meter.limits.is_empty()).then(|| Box::new(meter))
    }

    /// Counts a request; gives where its band ends.
    fn arrive(&mut self, now: Instant, request: &Request) -> u32 {
        let number = now.as_nanos() / TENTH.as_nanos();
        let over = number.saturating_sub(self.tenth).min(TENTHS);
        for past in 1..=over {
            let slot = &mut self.tenths[((self.tenth + past) % TENTHS) as usize];
            self.sum -= core::mem::take(slot);
        }
        if over == TENTHS {
            self.tenths = [0; TENTHS as usize];
            self.sum = 0;
        }
        self.tenth = self.tenth.max(number);
        // What was asked for in one tenth must not overflow the sum of all.
        let cost = self.tariff.cost(request).min(u64::MAX / TENTHS / 2 - self.tenths[self.slot()]);
        let slot = self.slot();
        self.tenths[slot] += cost;
        self.sum += cost;
        debug_assert_eq!(
            self.sum,
            self.tenths.iter().sum::<u64>(),
            "the load is the sum of its tenths"
        );
        // Milli-tokens by tokens are thousandths.
        let load = self.sum.div_ceil(self.rate);
        while self.limits.get(self.band).is_some_and(|&limit| load > limit.into()) {
            self.band += 1;
        }
        while let Some(below) = self.band.checked_sub(1)
            && load.saturating_mul(1_000) < u64::from(self.limits[below]) * BACK_PERMILLE
        {
            self.band = below;
        }
        self.band()
    }

    fn slot(&self) -> usize {
        (self.tenth % TENTHS) as usize
    }

    /// Where the band ends.
    fn band(&self) -> u32 {
        self.limits.get(self.band).copied().unwrap_or(u32::MAX)
    }
}

const TENTHS: u64 = 10;

const TENTH: Duration = Duration::from_millis(100);

/// How far below a limit, in thousandths of it, the load must fall before its band holds again.
const BACK_PERMILLE: u64 = 950;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use alloc::vec;

    /// A contract of 100 requests of 4 KiB a second, with bands up to half of it and up to all of it.
    fn bands() -> Promises {
        let contract = Contract::new(100, 4_096, Duration::from_millis(9));
        let row = |load_permille| Row { load_permille, ..contract.rows[0].clone() };
        let rows = vec![row(Some(500)), row(Some(1_000))];
        Promises { contracts: vec![Some(Contract { rows, ..contract })], groups: Vec::new() }
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Requests at 20 ms each, which is half of the contract, stay in the lower band; at 10 ms they leave
    /// it, and past the whole contract nothing is promised.
    #[test]
    fn load_chooses_the_row() {
        let promises = bands();
        assert_eq!(promises.validate(), Ok(()));
        let request = testing::request(0);
        for (gap, last) in [(20, Some(0)), (10, Some(1)), (9, None)] {
            let mut rows = Rows::new(&promises);
            let found: Vec<_> =
                (0..3_000 / gap).map(|n| rows.arrive(at(gap * n), &request)).collect();
            assert_eq!(found[0], Some(0), "the first one is no load");
            assert!(found.is_sorted_by_key(|row| row.unwrap_or(u8::MAX)), "every {gap} ms");
            assert_eq!(*found.last().unwrap(), last, "every {gap} ms");
            assert_eq!(rows.again(&request), last);
        }
    }

    /// A band that was left is entered again when the load is 5 % below its limit, not before.
    #[test]
    fn bands_have_hysteresis() {
        let mut rows = Rows::new(&bands());
        let request = testing::request(0);
        let mut burst =
            |millis, count| (0..count).map(|_| rows.arrive(at(millis), &request)).last();
        assert_eq!(burst(0, 4), Some(Some(0)));
        assert_eq!(burst(500, 47), Some(Some(1)), "51 of 100");
        assert_eq!(burst(1_000, 1), Some(Some(1)), "48 of 100: the first four are over");
        assert_eq!(burst(1_600, 1), Some(Some(0)), "2 of 100");
        assert_eq!(burst(60_000, 50), Some(Some(0)), "a long silence leaves nothing");
        assert_eq!(burst(60_000, 1), Some(Some(1)));
    }

    /// However much is asked for at once, and whenever, the sum of the tenths is what was asked for.
    #[test]
    fn sums_are_in_range() {
        let promises = bands();
        let Some(contract) = &promises.contracts[0] else { panic!("a contract") };
        let mut meter = Meter::of(&contract.rows).expect("it has bands");
        let mut request = testing::request(0);
        request.extent.length = u64::MAX;
        let mut source = crate::rng::Rng::stream(1, "load");
        let mut now = Instant::ZERO;
        for _ in 0..100_000 {
            now += Duration::from_millis(source.below(4).pow(5));
            assert_eq!(meter.arrive(now, &request), u32::MAX);
            assert_eq!(meter.sum, meter.tenths.iter().sum::<u64>());
        }
    }

    /// Without bands nothing is counted, and a tenant without a contract has no objective.
    #[test]
    fn most_contracts_need_no_load() {
        let contracts = vec![Some(Contract::new(1, 4_096, Duration::from_millis(9))), None];
        let mut rows = Rows::new(&Promises { contracts, groups: Vec::new() });
        let of = |tenant| Request {
            tenant: crate::request::TenantId::new(tenant),
            ..testing::request(0)
        };
        assert!(rows.contracts[0].as_ref().is_some_and(|(_, meter)| meter.is_none()));
        assert_eq!([0, 1, 2].map(|tenant| rows.arrive(at(0), &of(tenant))), [Some(0), None, None]);
    }

    /// A sum that is not that of its tenths is found out, in a debug build: the check adds up a list.
    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "the sum of its tenths")]
    fn a_wrong_sum_is_noticed() {
        let list = bands();
        let mut meter = Meter::of(&list.contracts[0].as_ref().unwrap().rows).unwrap();
        meter.sum += 1;
        meter.arrive(at(0), &testing::request(0));
    }
}
