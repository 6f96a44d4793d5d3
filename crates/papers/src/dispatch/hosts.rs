//! The hosts: their arrivals and the pages of their requests.

use weir_flow::rng::Rng;

/// A stream of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    /// In 1024ths.
    pub(super) weight: u32,
    pub(super) kind: Kind,
    /// Requests outstanding.
    pub(super) window: u32,
    /// Pages of a request.
    pub(super) pages: u32,
    /// Requests in all; without a number, until the end.
    pub(super) count: Option<u64>,
    /// When it begins, in nanoseconds.
    pub(super) from: u64,
    /// When it turns to writing, in nanoseconds.
    pub(super) writes_from: Option<u64>,
    /// All its pages are on the first chip.
    pub(super) hot: bool,
    /// Requests arrive this many nanoseconds apart, independent of completions.
    pub(super) every: Option<u64>,
}

/// What requests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// Each is a write with probability one half.
    Mixed,
}

impl Host {
    /// A window of 32 requests of 16 KiB at random, without end, at weight 1.
    pub(super) const fn of(kind: Kind) -> Self {
        Self {
            weight: 1_024,
            kind,
            window: 32,
            pages: 4,
            count: None,
            from: 0,
            writes_from: None,
            hot: false,
            every: None,
        }
    }

    /// Whether its next request is a write.
    pub(super) fn writes(&self, now: u64, chance: &mut Rng) -> bool {
        match self.kind {
            Kind::Read => self.writes_from.is_some_and(|from| now >= from),
            Kind::Write => true,
            Kind::Mixed => chance.below(2) == 0,
        }
    }

    /// The pages of its next request, in a region of this many pages that begins on the first chip.
    pub(super) fn place(&self, region: (u64, u64), chips: u64, chance: &mut Rng) -> Vec<u32> {
        let (first, length) = region;
        let (unit, step) = if self.hot { (chips, chips) } else { (u64::from(self.pages), 1) };
        let span = if self.hot { u64::from(self.pages) * chips } else { unit };
        let start = first + chance.below((length - span) / unit) * unit;
        (0..u64::from(self.pages)).map(|page| (start + page * step) as u32).collect()
    }
}
