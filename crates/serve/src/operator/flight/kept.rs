//! The slowest requests of each second, minute and hour.

use super::Reason;
use super::ring::Record;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use weir_flow::attribution::Part;
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::TenantId;

/// The slowest requests of late.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Those of this second, minute and hour so far.
    gathering: [List; 3],
    /// Those of the seconds, minutes and hours before, the latest last.
    before: [VecDeque<List>; 3],
}

/// Some requests of a span of time, and how many there were.
#[derive(Clone, Debug)]
pub(super) struct List {
    /// When it began and, if it has ended, when that was.
    from: Instant,
    to: Instant,
    pub(super) counts: Counts,
    entries: Vec<Entry>,
    /// What decides who leaves, for each entry: apart from them, as it is looked through often.
    places: Vec<Place>,
    most: usize,
    /// If it is full: the first of the entries with the lowest rank, and the most entries of one tenant.
    lowest: usize,
    fullest: u32,
    /// By the low bits of a tenant: the tenant, and the highest rank with which it was turned away. Empty when its time is
    /// over.
    floors: Vec<(TenantId, u64)>,
}

/// What decides whether an entry leaves its list.
#[derive(Clone, Copy, Debug)]
struct Place {
    rank: u64,
    tenant: TenantId,
    /// Entries of its tenant.
    of_tenant: u32,
}

/// Requests of a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) late: u64,
    pub(super) failed: u64,
    pub(super) slow: u64,
}

/// A request that is kept.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its number, counted from the start.
    pub(super) number: u64,
    pub(super) rank: u64,
    pub(super) record: Record,
    /// Who stood in front; `None` if too many were slow to say.
    pub(super) parts: Option<Box<[Part]>>,
}

/// A span of time: what ended in `last` before `until` ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Within {
    pub(super) last: Duration,
    pub(super) until: Duration,
}

impl Within {
    /// This time before now.
    pub(crate) const fn last(last: Duration) -> Self {
        Self { last, until: Duration::ZERO }
    }

    /// Around a moment this long ago: a minute, or an hour where only the slowest of each hour are kept.
    pub(crate) fn around(age: Duration) -> Self {
        let [_, minute, hour] = LENGTHS;
        let recent = age.as_nanos() <= hour.as_nanos() - minute.as_nanos();
        let last = if recent { minute } else { hour };
        let half = Duration::from_nanos(last.as_nanos() / 2);
        let until = age.as_nanos().saturating_sub(half.as_nanos());
        Self { last, until: Duration::from_nanos(until) }
    }
}

/// The rank of a request: those that missed an objective or failed come before all others, and then the slowest.
pub(super) const fn rank(response: Duration, urgent: bool) -> u64 {
    let nanos = response.as_nanos();
    (if nanos < URGENT { nanos } else { URGENT - 1 }) | (urgent as u64 * URGENT)
}

impl Kept {
    /// Counts a request that has ended.
    pub(super) const fn count(&mut self, reason: Option<Reason>) {
        let counts = &mut self.gathering[0].counts;
        counts.requests += 1;
        match reason {
            None => {}
            Some(Reason::Late) => counts.late += 1,
            Some(Reason::Failed) => counts.failed += 1,
            Some(Reason::Slow) => counts.slow += 1,
        }
    }

    /// Whether a request is among those to keep of this second.
    pub(super) fn admits(&mut self, rank: u64, tenant: TenantId) -> bool {
        self.gathering[0].admits(rank, tenant)
    }

    /// Keeps a request that was admitted just now.
    pub(super) fn keep(&mut self, entry: Entry) {
        self.gathering[0].keep(entry);
    }

    /// Ends the second at `ended`; the next one begins at `begun`. Nothing has ended in between.
    pub(super) fn turn(&mut self, ended: Instant, begun: Instant) {
        for (level, (&length, &kept)) in LENGTHS.iter().zip(&KEPT).enumerate() {
            let since = self.gathering[level].from;
            if level > 0 && begun.saturating_since(since) < length {
                break;
            }
            let mut list = std::mem::take(&mut self.gathering[level]);
            (self.gathering[level].from, list.to) = (begun, ended);
            if let Some(next) = self.gathering.get_mut(level + 1) {
                next.counts.add(list.counts);
                for entry in &list.entries {
                    next.offer(entry);
                }
            }
            (list.floors, list.places) = (Vec::new(), Vec::new());
            let before = &mut self.before[level];
            before.push_back(list);
            while before.len() > kept {
                before.pop_front();
            }
        }
    }

    /// The requests that ended within a span of time and that `wants` wants, at most `most`; the counts of all, and the span of
    /// time that they are of.
    pub(super) fn find(
        &self,
        now: Instant,
        Within { last, until }: Within,
        most: usize,
        wants: impl Fn(&Entry) -> bool,
    ) -> (Vec<Entry>, Counts, RangeInclusive<Instant>) {
        let before = |span: Duration| now.as_nanos().saturating_sub(span.as_nanos());
        let to = Instant::from_nanos(before(until));
        let from = Instant::from_nanos(to.as_nanos().saturating_sub(last.as_nanos()));
        let reach = now.saturating_since(from);
        let level =
            LENGTHS.iter().zip(&KEPT).position(|(&length, &kept)| reach <= length * kept as u64);
        let level = level.unwrap_or(LENGTHS.len() - 1);
        let (mut chosen, mut counts) = (List { most, ..List::default() }, Counts::default());
        let closed = self.before[level].iter().map(|list| (list, list.to));
        // That of a minute has its seconds that have ended.
        let ends = [now, self.gathering[0].from, self.gathering[1].from];
        let lists = closed.chain(self.gathering.iter().zip(ends).take(level + 1));
        // Without a list there was nothing to count, unless it has been dropped.
        let oldest = self.oldest()[level];
        let mut span = (from.max(oldest), to.max(oldest));
        for (list, end) in lists.filter(|(list, end)| list.from <= to && *end >= from) {
            counts.add(list.counts);
            span = (span.0.min(list.from), span.1.max(end));
            let of = |entry: &&Entry| (from..=to).contains(&entry.record.ended) && wants(entry);
            list.entries.iter().filter(of).for_each(|entry| chosen.offer(entry));
        }
        chosen.entries.sort_by_key(|entry| std::cmp::Reverse(entry.rank));
        (chosen.entries, counts, span.0..=span.1)
    }

    /// The request with this number.
    pub(super) fn get(&self, number: u64) -> Option<&Entry> {
        let lists = self.before.iter().flatten().chain(&self.gathering);
        lists.flat_map(|list| &list.entries).find(|entry| entry.number == number)
    }

    /// When the oldest second, minute and hour began that are kept.
    pub(super) fn oldest(&self) -> [Instant; 3] {
        [0, 1, 2].map(|level| self.before[level].front().unwrap_or(&self.gathering[level]).from)
    }

    /// The memory of the lists.
    pub(super) fn memory(&self) -> usize {
        let lists = self.before.iter().flatten().chain(&self.gathering);
        let list = |list: &List| {
            let parts = list.entries.iter().filter_map(|entry| entry.parts.as_ref());
            let parts: usize = parts.map(|parts| parts.len() * size_of::<Part>()).sum();
            size_of::<List>()
                + size_of_val(&list.floors[..])
                + parts
                + list.entries.capacity() * size_of::<Entry>()
                + list.places.capacity() * size_of::<Place>()
        };
        lists.map(list).sum()
    }
}

impl List {
    /// Whether a request would be kept. One that was turned away once sets what the next one of its tenant must exceed.
    fn admits(&mut self, rank: u64, tenant: TenantId) -> bool {
        let floor = &mut self.floors[tenant.index() % FLOORS];
        if floor.0 == tenant && rank <= floor.1 {
            return false;
        }
        if self.entries.len() < self.most {
            return true;
        }
        // All entries are of different tenants: only the slowest of all come in.
        let by_rank = self.is_of(tenant) || self.fullest <= 1;
        let lowest = self.places.get(self.lowest);
        let below = by_rank && lowest.is_none_or(|lowest| rank <= lowest.rank);
        let admitted = !below && (by_rank || self.leaver(rank, tenant).is_some());
        if !admitted {
            self.floors[tenant.index() % FLOORS] = (tenant, rank);
        }
        admitted
    }

    /// Whether it is full of requests of this tenant alone: only the slowest of all come in.
    fn is_of(&self, tenant: TenantId) -> bool {
        let own = self.places.first().is_some_and(|place| place.tenant == tenant);
        own && self.fullest as usize == self.most
    }

    /// Which entry leaves for a request: the lowest of the tenant with most entries, the request counted. `None` if the request
    /// is that lowest one itself.
    fn leaver(&self, rank: u64, tenant: TenantId) -> Option<usize> {
        let of_tenant = self.places.iter().find(|place| place.tenant == tenant);
        let own = of_tenant.map_or(0, |place| place.of_tenant) + 1;
        let others = self.places.iter().filter(|place| place.tenant != tenant);
        let from = match others.max_by_key(|place| place.of_tenant) {
            Some(fullest) if fullest.of_tenant > own => Some(fullest.tenant),
            // As many as any other, or the first one of its tenant among tenants with one each.
            _ => (own > 1).then_some(tenant),
        };
        let places = self.places.iter().enumerate();
        let may_leave = |place: &Place| from.is_none_or(|from| place.tenant == from);
        let (index, lowest) =
            places.filter(|(_, place)| may_leave(place)).min_by_key(|(_, place)| place.rank)?;
        let by_right = from.is_some_and(|from| from != tenant);
        (by_right || lowest.rank < rank).then_some(index)
    }

    /// Keeps a request that was admitted.
    fn keep(&mut self, entry: Entry) {
        let (rank, tenant) = (entry.rank, entry.record.request.tenant);
        if self.entries.len() < self.most {
            self.entries.push(entry);
            self.places.push(Place { rank, tenant, of_tenant: 0 });
            self.recount(tenant);
        } else if self.is_of(tenant) {
            self.entries[self.lowest] = entry;
            self.places[self.lowest].rank = rank;
        } else if let Some(index) = self.leaver(rank, tenant) {
            self.entries[index] = entry;
            let place = &mut self.places[index];
            let left = std::mem::replace(&mut place.tenant, tenant);
            place.rank = rank;
            self.recount(left);
            self.recount(tenant);
        }
        if self.entries.len() == self.most {
            let places = self.places.iter().enumerate();
            let lowest = places.min_by_key(|(_, place)| place.rank);
            self.lowest = lowest.map_or(0, |(index, _)| index);
        }
    }

    /// Counts the entries of a tenant.
    fn recount(&mut self, tenant: TenantId) {
        let of_tenant = self.places.iter().filter(|place| place.tenant == tenant).count() as u32;
        for place in &mut self.places {
            if place.tenant == tenant {
                place.of_tenant = of_tenant;
            }
        }
        self.fullest = self.places.iter().map(|place| place.of_tenant).max().unwrap_or(0);
    }

    fn offer(&mut self, entry: &Entry) {
        let known = |one: &Entry| one.number == entry.number;
        if !self.entries.iter().any(known) && self.admits(entry.rank, entry.record.request.tenant) {
            self.keep(entry.clone());
        }
    }
}

impl Default for List {
    fn default() -> Self {
        Self {
            from: Instant::ZERO,
            to: Instant::ZERO,
            counts: Counts::default(),
            entries: Vec::new(),
            places: Vec::new(),
            most: ENTRIES,
            lowest: 0,
            fullest: 0,
            floors: vec![(TenantId::new(u32::MAX), 0); FLOORS],
        }
    }
}

impl Counts {
    const fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.late += other.late;
        self.failed += other.failed;
        self.slow += other.slow;
    }
}

/// The bit of a rank that puts late and failed requests first.
const URGENT: u64 = 1 << 63;

/// Requests that are kept of a second, a minute and an hour.
const ENTRIES: usize = 32;

/// Seconds, minutes and hours that are kept.
const KEPT: [usize; 3] = [60, 60, 24];

const LENGTHS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(60), Duration::from_secs(3_600)];

/// Floors of a list. Tenants that share one are looked at more often.
const FLOORS: usize = 64;
