//! Generators of requests: when they come, how large they are and where they go.
//!
//! Each part of each workload draws from its own random stream, named after the workload and
//! the part. So adding a workload, or changing one part, does not shift what the others draw.

mod gaps;
mod places;
mod zipf;

use crate::plan::{SizeWeight, Workload};
use gaps::Gaps;
use places::Places;
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::{Op, Request, Tag};
use weir_flow::rng::Rng;
use weir_flow::units::Extent;

/// One workload at work.
#[derive(Debug)]
pub(crate) struct Generator {
    /// What all of its requests have in common.
    template: Request,
    gaps: Gaps,
    mix: Mix,
    places: Places,
    start: Instant,
    stop: Option<Instant>,
}

impl Generator {
    /// From a checked plan.
    pub(crate) fn new(workload: &Workload, seed: u64) -> Self {
        let stream = |part| Rng::stream(seed, &format!("workload/{}/{part}", workload.name));
        let template = Request {
            tag: Tag(0),
            tenant: workload.tenant,
            volume: workload.volume,
            link: workload.link,
            op: Op::Read,
            extent: Extent::default(),
            fua: false,
            ordered: false,
            job: false,
        };
        Self {
            template,
            gaps: Gaps::new(workload.arrivals, stream("gaps")),
            mix: Mix::new(workload, stream("sizes"), stream("ops")),
            places: Places::new(workload, stream("places")),
            start: Instant::ZERO + workload.start,
            stop: workload.stop.map(|stop| Instant::ZERO + stop),
        }
    }

    /// How many requests come at the start, and the think time, if the loop is closed.
    pub(crate) const fn closed(&self) -> Option<(u32, Duration)> {
        self.gaps.closed()
    }

    /// When the next request of an open loop comes; `None` when no other does.
    pub(crate) fn next_arrival(&mut self) -> Option<Instant> {
        let at = self.start + self.gaps.next_offset()?;
        self.open_at(at).then_some(at)
    }

    /// When a closed loop begins; `None` if it never does.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.open_at(self.start).then_some(self.start)
    }

    /// Whether requests may still come at `at`.
    pub(crate) fn open_at(&self, at: Instant) -> bool {
        self.stop.is_none_or(|stop| at < stop)
    }

    /// The next request, without a tag.
    pub(crate) fn draw(&mut self) -> Request {
        let (op, size) = self.mix.draw();
        Request { op, extent: self.places.draw(size), ..self.template }
    }
}

/// What requests do, and with how many bytes.
#[derive(Debug)]
struct Mix {
    /// Sizes with the sum of the weights up to and including their own.
    sizes: Vec<(u64, u64)>,
    read_permille: u64,
    sizes_rng: Rng,
    ops_rng: Rng,
}

impl Mix {
    fn new(workload: &Workload, sizes_rng: Rng, ops_rng: Rng) -> Self {
        let mut sum = 0;
        let cumulate = |&SizeWeight { bytes, weight }: &SizeWeight| {
            sum += u64::from(weight);
            (bytes, sum)
        };
        let sizes = workload.sizes.iter().map(cumulate).collect();
        let read_permille = u64::from(workload.read_permille);
        Self { sizes, read_permille, sizes_rng, ops_rng }
    }

    fn draw(&mut self) -> (Op, u64) {
        let total = self.sizes[self.sizes.len() - 1].1;
        let at = self.sizes_rng.below(total);
        let index = self.sizes.partition_point(|&(_, sum)| sum <= at);
        let read = self.ops_rng.below(1_000) < self.read_permille;
        (if read { Op::Read } else { Op::Write }, self.sizes[index].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Arrivals;
    use crate::testing;

    /// Sizes and directions come as often as their weights say; a weight of zero never comes.
    #[test]
    fn the_mix_follows_its_weights() {
        let mut workload = testing::workload(Arrivals::Poisson { rate: 1.0 });
        workload.read_permille = 300;
        let sizes = [(4_096, 3), (512, 0), (65_536, 1)];
        workload.sizes = sizes.map(|(bytes, weight)| SizeWeight { bytes, weight }).to_vec();
        let mut generator = Generator::new(&workload, 1);
        let (mut reads, mut large, count) = (0, 0, 100_000);
        for _ in 0..count {
            let request = generator.draw();
            reads += u32::from(request.op == Op::Read);
            assert_ne!(request.extent.length, 512);
            large += u32::from(request.extent.length == 65_536);
        }
        // Five standard deviations of a binomial variable are less than 0.8 % of the count.
        assert!((29_200..30_800).contains(&reads), "{reads}");
        assert!((24_200..25_800).contains(&large), "{large}");
    }

    /// Another workload in the plan, or another size, leaves a workload's times alone.
    #[test]
    fn streams_belong_to_a_part_of_a_workload() {
        let workload = testing::workload(Arrivals::Poisson { rate: 1_000.0 });
        let times = |workload: &Workload| -> Vec<Instant> {
            let mut generator = Generator::new(workload, 1);
            std::iter::from_fn(|| {
                generator.draw();
                generator.next_arrival()
            })
            .take(100)
            .collect()
        };
        let mut other = workload.clone();
        other.sizes[0].bytes = 8_192;
        assert_eq!(times(&workload), times(&other));
        other.name = "other".to_owned();
        assert_ne!(times(&workload), times(&other));
    }

    /// Nothing comes at or after the stop.
    #[test]
    fn a_workload_stops() {
        let mut workload =
            testing::workload(Arrivals::Constant { rate: 1_000.0, jitter_permille: 0 });
        workload.start = Duration::from_millis(5);
        workload.stop = Some(Duration::from_millis(8));
        let mut generator = Generator::new(&workload, 1);
        let times: Vec<u64> = std::iter::from_fn(|| generator.next_arrival())
            .map(|at| at.as_nanos() / 1_000_000)
            .collect();
        assert_eq!(times, [6, 7]);
    }
}
