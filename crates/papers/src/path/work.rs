//! The I/Os of a run: sizes and arrival times.

use weir_flow::rng::Rng;

/// An I/O that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Io {
    /// When, in nanoseconds from the start of the run; 0 in a closed loop, where the end of another
    /// decides.
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// How large I/Os are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    /// Files of 0.1 to 50 MB and of more than 50 to 100 MB in turn: situation A of the paper.
    SmallLarge,
    /// The same with four fifths of the large ones at every second place.
    EightyTwenty,
    /// Files of 0.1 to 100 MB, each by itself.
    Uniform,
    /// All alike.
    Constant(u64),
    /// 4 KiB and 512 KiB in turn.
    Alternating,
    /// 4 KiB to 1 MiB by a Pareto distribution of exponent 1.1.
    Pareto,
    /// One of 1 MiB in this many, the others 64 KiB.
    OneLargeIn(u64),
}

/// When they come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arrivals {
    /// All at time zero.
    AtOnce,
    /// One after each interval, for this load of all paths together.
    Interval(f64),
    /// By a Poisson process, for this load of all paths together.
    Poisson(f64),
    /// This number is outstanding: the next comes when one ends.
    Closed(usize),
}

impl Sizes {
    /// Whether every run has the same.
    pub(super) const fn are_given(self) -> bool {
        matches!(self, Self::Constant(_) | Self::Alternating | Self::OneLargeIn(_))
    }

    /// Sizes of `count` I/Os. Equal seeds give equal sizes.
    pub(super) fn draw(self, count: usize, seed: u64) -> Vec<u64> {
        let mut rng = Rng::stream(seed, "path/sizes");
        (0..count).map(|index| self.size(index, &mut rng)).collect()
    }

    fn size(self, index: usize, rng: &mut Rng) -> u64 {
        let second = !index.is_multiple_of(2);
        match self {
            Self::SmallLarge => small_or_large(second, rng),
            Self::EightyTwenty => {
                let usual = rng.below(5) < 4;
                small_or_large(second == usual, rng)
            }
            Self::Uniform => between(SMALLEST, LARGEST, rng),
            Self::Constant(bytes) => bytes,
            Self::Alternating if second => 512 << 10,
            Self::Alternating => 4 << 10,
            Self::Pareto => pareto(rng.unit()),
            Self::OneLargeIn(n) if (index as u64 + 1).is_multiple_of(n) => 1 << 20,
            Self::OneLargeIn(_) => 64 << 10,
        }
    }
}

/// The I/Os of a run. `needed` is what one I/O of the mean size takes of all paths together, in
/// nanoseconds: at load 1 one comes in each such time.
pub(super) fn ios(sizes: &[u64], arrivals: Arrivals, needed: f64, seed: u64) -> Vec<Io> {
    let mut rng = Rng::stream(seed, "path/arrivals");
    let mut passed = 0.0;
    let mut time = |index: usize| match arrivals {
        Arrivals::AtOnce | Arrivals::Closed(_) => 0,
        // Rounded once: beyond capacity the reading `busy` is so touchy that a nanosecond matters.
        Arrivals::Interval(load) => libm::rint(index as f64 * needed / load) as u64,
        Arrivals::Poisson(load) => {
            passed -= libm::log(1.0 - rng.unit()) * needed / load;
            libm::rint(passed) as u64
        }
    };
    sizes.iter().enumerate().map(|(index, &bytes)| Io { at: time(index), bytes }).collect()
}

fn between(first: u64, last: u64, rng: &mut Rng) -> u64 {
    first + rng.below(last - first + 1)
}

fn small_or_large(large: bool, rng: &mut Rng) -> u64 {
    if large { between(HALF + 1, LARGEST, rng) } else { between(SMALLEST, HALF, rng) }
}

/// The bounded Pareto distribution, by inversion.
fn pareto(chance: f64) -> u64 {
    let (least, most) = PARETO;
    let reach = 1.0 - libm::pow(least / most, EXPONENT);
    libm::floor(least / libm::pow(1.0 - chance * reach, 1.0 / EXPONENT)) as u64
}

/// The files of the paper, in bytes; megabytes are decimal.
const SMALLEST: u64 = 100_000;
const HALF: u64 = 50_000_000;
const LARGEST: u64 = 100_000_000;

/// The file of mean size.
pub(super) const MEAN_FILE: u64 = u64::midpoint(SMALLEST, LARGEST);

/// The smallest and the largest I/O of the heavy-tailed sizes, in bytes, and the exponent.
const PARETO: (f64, f64) = (4_096.0, 1_048_576.0);
const EXPONENT: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(sizes: &[u64]) -> f64 {
        sizes.iter().map(|&bytes| bytes as f64).sum::<f64>() / sizes.len() as f64
    }

    /// In situation A every second file is above 50 MB and the others are not; with the other repair
    /// four fifths of each half; the means are those of the distributions.
    #[test]
    fn large_files_are_where_they_belong() {
        for (sizes, share) in [(Sizes::SmallLarge, 1.0), (Sizes::EightyTwenty, 0.8)] {
            let drawn = sizes.draw(20_000, 1);
            let (first, second): (Vec<_>, Vec<_>) =
                drawn.chunks(2).map(|pair| (pair[0], pair[1])).unzip();
            let large = |files: &[u64]| {
                files.iter().filter(|&&bytes| bytes > HALF).count() as f64 / files.len() as f64
            };
            assert!((large(&second) - share).abs() < 0.02, "{}", large(&second));
            assert!((large(&first) - (1.0 - share)).abs() < 0.02, "{}", large(&first));
            assert!((mean(&drawn) / MEAN_FILE as f64 - 1.0).abs() < 0.01);
            assert!(drawn.iter().all(|bytes| (SMALLEST..=LARGEST).contains(bytes)));
        }
    }

    /// The heavy tail goes from 4 KiB to 1 MiB and has the mean that its formula gives, 19 222 bytes.
    #[test]
    fn the_tail_is_heavy_and_bounded() {
        assert_eq!(pareto(0.0), 4_096);
        assert!((1_000_000..=1_048_576).contains(&pareto(1.0 - 1e-9)));
        let drawn = Sizes::Pareto.draw(200_000, 1);
        assert!((mean(&drawn) / 19_222.0 - 1.0).abs() < 0.02, "{}", mean(&drawn));
    }

    /// At load 0.5 one comes in twice the time that it needs, exactly or on average.
    #[test]
    fn loads_are_what_they_say() {
        let sizes = Sizes::Constant(1).draw(100_000, 1);
        let ios_of = |arrivals| ios(&sizes, arrivals, 1_000.0, 1);
        assert_eq!(ios_of(Arrivals::Interval(0.5))[3].at, 6_000);
        let last = ios_of(Arrivals::Poisson(0.5)).last().unwrap().at as f64;
        assert!((last / 200_000_000.0 - 1.0).abs() < 0.01, "{last}");
        assert!(ios_of(Arrivals::Closed(4)).iter().all(|io| io.at == 0));
    }
}
