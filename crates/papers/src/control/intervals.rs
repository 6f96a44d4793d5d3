//! The workload sets of the token-bucket paper: two tenants with contracts, and nine intervals in which
//! each asks for less than, as much as, or more than it is promised.
//!
//! | | |
//! |---|---|
//! | Model    | open loops of reads of the contract's size; a Poisson process, or request i at `(i + (U[0, 1) - 0.5) / 5) / rate` |
//! | Streams  | `SplitMix64` in counter mode; a stream is named by a tuple of small integers. The i-th request of a tenant has the same disk and service time under every policy |
//! | Source   | docs/reference/control.md, sections 1, 5 and 6 |
//!
//! These streams are not those of [`Rng`](weir_flow::rng::Rng): other programs draw the same numbers, so
//! results can be compared request by request.

use weir_flow::clock::Duration;
use weir_flow::control::Contract;
use weir_flow::rng::mix;

/// A workload set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Two databases of 4 KiB requests.
    A,
    /// One tenant of 32 KiB requests and a database.
    B,
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalModel {
    /// Exponential gaps.
    Poisson,
    /// Equal gaps, each request moved by up to a tenth of one.
    Constant,
}

/// Tenants of a set.
pub(crate) const TENANTS: usize = 2;

impl Set {
    /// What the two tenants are promised.
    pub fn contracts(self) -> [Contract; TENANTS] {
        let contract =
            |iops, size, millis| Contract::new(iops, size, Duration::from_millis(millis));
        match self {
            Self::A => [contract(3_500, 4_096, 41), contract(1_500, 4_096, 41)],
            Self::B => [contract(2_500, 32_768, 40), contract(1_000, 4_096, 40)],
        }
    }

    /// Requests per second that the two tenants ask for in an interval, 1 to 9. The first asks for
    /// little in 1 to 3, for its contract in 4 to 6 and for more in 7 to 9; the second likewise in
    /// every first, second and third of those.
    pub fn rates(self, interval: u32) -> [u32; TENANTS] {
        assert!((1..=9).contains(&interval), "there are nine intervals");
        let index = interval as usize - 1;
        let (first, second) = match self {
            Self::A => ([2_000, 3_500, 5_500], [500, 1_500, 4_000]),
            Self::B => ([1_430, 2_500, 3_600], [330, 1_000, 3_800]),
        };
        [first[index / 3], second[index % 3]]
    }

    /// The set's number in the names of streams.
    pub(crate) const fn code(self) -> u64 {
        match self {
            Self::A => b'A' as u64,
            Self::B => b'B' as u64,
        }
    }
}

/// A `SplitMix64` stream in counter mode.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    seed: u64,
    count: u64,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Stream {
    /// The stream with this name.
    pub(crate) fn new(name: &[u64]) -> Self {
        let fold = |seed, &part: &u64| mix(seed ^ mix((part + 1).wrapping_mul(GOLDEN)));
        Self { seed: name.iter().fold(0, fold), count: 0 }
    }

    /// The next number, from 0 up to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.count += 1;
        let bits = mix(self.seed.wrapping_add(self.count.wrapping_mul(GOLDEN)));
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// What devices draw for the requests of one tenant: the i-th request has the same draws under every
/// policy.
pub(crate) struct Draws([Stream; 4]);

impl Draws {
    /// The streams of a tenant of the run with this name.
    pub(crate) fn new(name: [u64; 3], tenant: u64) -> Self {
        let [seed, set, interval] = name;
        Self([0, 1, 2, 3].map(|what| Stream::new(&[seed, set, interval, tenant, 99, what])))
    }

    /// Of the tenant's next request: disk, service time or cylinder, angle, and what befalls it, each from
    /// 0 up to 1.
    pub(crate) fn next(&mut self) -> [f64; 4] {
        self.0.each_mut().map(Stream::unit)
    }
}

/// The stream of the gaps of a tenant of the run with this name, in this segment of the run.
pub(crate) fn gaps(name: [u64; 3], tenant: u64, segment: u64) -> Stream {
    let [seed, set, interval] = name;
    Stream::new(&[seed, set, interval, tenant, segment, 0])
}

/// The times of a tenant's requests in nanoseconds, in order, before `length` seconds.
pub(crate) fn times(
    model: ArrivalModel,
    rate: f64,
    length: f64,
    mut gaps: Stream,
) -> impl Iterator<Item = u64> {
    let (mut sum, mut count) = (0.0, 0.0);
    let seconds = std::iter::from_fn(move || {
        let unit = gaps.unit();
        count += 1.0;
        sum += -libm::log(1.0 - unit) / rate;
        Some(match model {
            ArrivalModel::Poisson => sum,
            ArrivalModel::Constant => count / rate + (unit - 0.5) * 0.2 / rate,
        })
    });
    let inside = seconds.take_while(move |&at| at < length);
    inside.map(|at| libm::rint(at * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The streams are those that other programs draw: the first arrivals at a constant 3000 a second
    /// under the name (7, 1, 0, 0, 0) are known.
    #[test]
    fn streams_are_the_published_ones() {
        let stream = Stream::new(&[7, 1, 0, 0, 0]);
        let times: Vec<u64> = times(ArrivalModel::Constant, 3_000.0, 0.0014, stream).collect();
        assert_eq!(times, [338_698, 654_409, 971_158, 1_312_393]);
    }

    /// The grid of the paper: one tenant's rate changes every three intervals, the other's every one,
    /// and five is exactly what is promised.
    #[test]
    fn five_is_the_contract() {
        for set in [Set::A, Set::B] {
            assert_eq!(set.rates(5), set.contracts().map(|contract| contract.rows[0].iops));
            assert_eq!(set.rates(3)[0], set.rates(1)[0]);
            assert_eq!(set.rates(3)[1], set.rates(9)[1]);
            assert!(set.rates(7)[0] > set.rates(4)[0]);
        }
    }
}
