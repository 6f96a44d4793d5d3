//! The history of host requests and replies, and the contents that it allows after a crash.
//!
//! Writes, zeroes and unmaps are numbered in the order in which they arrived, which is the order of the
//! log. Two laws are held against every crash:
//!
//! * *prefix*: the volume, as recovery gives it, is what some first part of this order makes, and that
//!   has everything that hosts were promised or have read. Changes that bypassed the log are in the *debt* until a
//!   flush that covers them was answered, or something of the log is sent upstream: each of them may be lost without
//!   the others, and without what the log has behind them. When the log device has failed, the volume has at
//!   least everything that was promised;
//! * *legal*: the upstream alone is what a disk with a volatile cache may have after a power cut: up to
//!   some barrier everything, of what came before the next one anything, of what came later nothing.
//!
//! A barrier is an acknowledgement that lets a host believe that what it sends next comes later: of a flush
//! or a write with FUA; of anything, while a host that writes has never flushed.

mod lost;
mod restart;
mod text;
mod update;

pub(super) use lost::GONE;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// Something that changes what a read returns.
#[derive(Clone, Debug)]
struct Change {
    sectors: Range<u32>,
    /// Whether it leaves zeroes.
    zero: bool,
    /// A number, unique over all gateway starts.
    number: u64,
    acked: bool,
    /// It is a part of a copy, and the gateway has its answer; the host hears of it when the copy ends.
    done: bool,
    /// It goes to the upstream as such, and is durable there when it is acknowledged.
    update: bool,
}

/// An acknowledgement after which a host may send what relies on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Barrier {
    /// The number of changes that come before everything that arrives later.
    before: usize,
    /// How many had arrived.
    arrived: usize,
}

/// All changes, and what was promised about them.
#[derive(Clone)]
pub(super) struct History {
    sectors: u32,
    changes: Vec<Change>,
    /// For each sector, what it has had: the place of the change, one more, and the number in the sector.
    /// The first is how the volume began.
    versions: Vec<Vec<(usize, u64)>>,
    /// What each barrier separates, in order; the first is the beginning.
    barriers: Vec<Barrier>,
    /// The number of changes that must survive, and of sectors of the next one.
    promised: (usize, u32),
    /// The number of changes that must be durable upstream.
    upstream: usize,
    /// The number of changes that were there after the last start.
    recovered: usize,
    /// Changes that bypassed the log: the first, and one more than the last. Those from `upstream` on are in the debt.
    direct: Option<Range<usize>>,
    /// The log device has failed: what is upstream may have more than the log.
    loose: bool,
    /// What each sector had before the upstream lost its cache, as long as the gateway does not know that it has: memory
    /// may still show it.
    faded: Option<Vec<Vec<(usize, u64)>>>,
    numbers: u64,
    revision: u64,
    /// What was before the last start, until what recovery found is durable: if that dies in a cache of the
    /// device, what lies under it is found instead, which is as good while no host has seen anything.
    unsettled: Option<Box<Self>>,
    /// What the last recovery found is durable.
    durable: bool,
    /// For each sector, what it had until the last crash, and recovery did not find.
    taken_back: Vec<Vec<u64>>,
    /// Updates that were not answered, of which recovery has found something: by the place and one more. The upstream may
    /// have it in its cache only.
    unsure: BTreeSet<usize>,
    /// Updates that are whole or not at all, and are not answered.
    atomic: BTreeSet<usize>,
    /// What was given up because the log cannot be read there.
    given: lost::Given,
}

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The log that a crash left cannot be opened.
    Refused(String),
    /// Something that was acknowledged, or read, is gone.
    Lost(String),
    /// The volume is not what a first part of all changes makes.
    NotAPrefix(String),
    /// The upstream alone has something without what has to come before it.
    Upstream(String),
    /// A read has returned what it must not.
    Read(String),
    /// Log space that was to be read has other data.
    Damaged(String),
    /// Hosts wait, and nothing is in progress.
    Stuck(String),
    /// The gateway has written to a unit that another one owns.
    Owner(String),
    /// A rotten sector of the log device has become a loss, or wrong data.
    Rot(String),
    /// Of an atomic write a part is there.
    Torn(String),
    /// A copy has not what its source had.
    Copied(String),
}

impl Broken {
    /// The law's name.
    pub const fn law(&self) -> &'static str {
        match self {
            Self::Refused(_) => "recovery",
            Self::Lost(_) => "promise",
            Self::NotAPrefix(_) => "prefix",
            Self::Upstream(_) => "upstream",
            Self::Read(_) => "read",
            Self::Damaged(_) => "log",
            Self::Stuck(_) => "progress",
            Self::Owner(_) => "owner",
            Self::Rot(_) => "rot",
            Self::Torn(_) => "atomic",
            Self::Copied(_) => "copy",
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Refused(text)
        | Self::Lost(text)
        | Self::NotAPrefix(text)
        | Self::Upstream(text)
        | Self::Read(text)
        | Self::Damaged(text)
        | Self::Stuck(text)
        | Self::Owner(text)
        | Self::Rot(text)
        | Self::Torn(text)
        | Self::Copied(text)) = self;
        f.write_str(text)
    }
}

impl History {
    pub(super) fn new(sectors: u32) -> Self {
        Self {
            sectors,
            changes: Vec::new(),
            versions: vec![vec![(0, 0)]; sectors as usize],
            barriers: vec![Barrier { before: 0, arrived: 0 }],
            promised: (0, 0),
            upstream: 0,
            recovered: 0,
            direct: None,
            loose: false,
            faded: None,
            numbers: 0,
            revision: 0,
            unsettled: None,
            durable: true,
            taken_back: vec![Vec::new(); sectors as usize],
            unsure: BTreeSet::new(),
            atomic: BTreeSet::new(),
            given: lost::Given::default(),
        }
    }

    /// A change arrives. Gives its place.
    pub(super) fn arrive(&mut self, sectors: Range<u32>, zero: bool) -> usize {
        let number = self.numbers + 1;
        let token = |sector| if zero { 0 } else { self.token(number, sector) };
        let tokens: Vec<u64> = sectors.clone().map(token).collect();
        let place = self.arrive_copy(sectors, &tokens);
        self.changes[place].zero = zero;
        place
    }

    /// A change arrives that leaves these numbers. Gives its place.
    pub(super) fn arrive_copy(&mut self, sectors: Range<u32>, tokens: &[u64]) -> usize {
        let place = self.changes.len();
        self.numbers += 1;
        self.revision += 1;
        for (sector, &token) in sectors.clone().zip(tokens) {
            self.versions[sector as usize].push((place + 1, token));
        }
        let number = self.numbers;
        let (zero, acked, done, update) = (false, false, false, false);
        self.changes.push(Change { sectors, zero, number, acked, done, update });
        place
    }

    /// The sectors of a change.
    pub(super) fn sectors(&self, place: usize) -> Range<u32> {
        self.changes[place].sectors.clone()
    }

    /// Another number whenever what a crash may leave has changed.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// What a change writes to a sector.
    pub(super) fn written(&self, place: usize, sector: u32) -> u64 {
        self.token(self.changes[place].number, sector)
    }

    fn token(&self, number: u64, sector: u32) -> u64 {
        number * u64::from(self.sectors) + u64::from(sector) + 1
    }

    /// The host was told that a change is done.
    pub(super) fn acked(&mut self, place: usize) {
        self.noticed();
        self.changes[place].acked = true;
        self.revision += u64::from(self.changes[place].update);
        self.atomic.remove(&(place + 1));
    }

    /// The gateway has the answer to a part of a copy.
    pub(super) fn part_done(&mut self, place: usize) {
        self.changes[place].done = true;
    }

    /// A host has noticed what recovery found.
    fn noticed(&mut self) {
        self.revision += u64::from(self.unsettled.take().is_some());
    }

    /// What recovery found is durable.
    pub(super) fn settle(&mut self) {
        self.noticed();
        self.durable = true;
    }

    /// The host was told that a change was not begun: it never was.
    pub(super) fn refused(&mut self, place: usize) {
        self.cut(place, 0);
    }

    /// A change goes past the log: everything before is upstream, and durable there.
    pub(super) fn passed(&mut self, place: usize) {
        let first = self.direct.as_ref().map_or(place, |direct| direct.start);
        if self.direct.is_none() {
            self.promise_upstream(place);
        }
        let end = self.direct.as_ref().map_or(0, |direct| direct.end);
        self.revision += 1;
        self.direct = Some(first..end.max(place + 1));
    }

    /// Something of the log is sent upstream: what bypassed the log before is durable there.
    pub(super) fn written_back(&mut self) {
        self.make_sure();
        if let Some(direct) = self.direct.take() {
            self.promise_upstream(direct.end);
            self.promise(direct.end);
        }
    }

    /// Whether changes are in the debt.
    pub(super) const fn is_in_debt(&self) -> bool {
        self.direct.is_some()
    }

    /// A flush is answered. When it was sent, the last acknowledged change was number `before`, and the first `whole`
    /// changes were acknowledged. With `upstream` it waits for the upstream.
    pub(super) fn flushed(&mut self, before: usize, whole: usize, upstream: bool) {
        self.promise(before);
        self.make_sure();
        let end = self.direct.as_ref().map(|direct| direct.end);
        // A flush that bypasses the log, too, covers what was acknowledged and no more.
        let bypassed = end.is_some_and(|end| before <= end);
        if let Some(end) = end {
            self.promise_upstream(whole.min(end));
            if whole >= end {
                self.direct = None;
                self.promise(end);
            }
        }
        if upstream && !bypassed {
            self.promise_upstream(before);
        }
        self.barrier(if bypassed { whole } else { before });
    }

    /// Whether a version of a sector, by the place of its change and one more, is in the debt.
    fn owed(&self, version: usize) -> bool {
        if self.is_update(version) {
            return !self.is_solid(version);
        }
        let direct = self.direct.as_ref();
        direct.is_some_and(|direct| {
            version > direct.start.max(self.upstream) && version <= direct.end
        })
    }

    /// Whether a sector may have this if the log has the first `changes`: the newest of them, or anything newer or
    /// older that is in the debt, if nothing of the log covers that.
    fn may_have(&self, sector: u32, has: Option<u64>, changes: usize) -> bool {
        if has == GONE {
            return true;
        }
        for &(version, token) in self.versions[sector as usize].iter().rev() {
            let owed = self.owed(version);
            let sure = self.is_solid(version) || (!owed && version <= changes);
            if (owed || sure) && has == Some(token) {
                return true;
            }
            if sure {
                return false;
            }
        }
        false
    }

    /// The log device has failed.
    pub(super) const fn loosen(&mut self) {
        self.loose = true;
        self.revision += 1;
    }

    /// Whether the log device has failed.
    pub(super) const fn is_loose(&self) -> bool {
        self.loose
    }

    /// The number of changes, from the first, that were acknowledged or never will be.
    pub(super) fn first_unacked(&self) -> usize {
        let open = |change: &Change| !change.acked && !change.sectors.is_empty();
        let after = &self.changes[self.recovered..];
        after.iter().position(open).map_or(self.changes.len(), |place| self.recovered + place)
    }

    /// What arrives from now on comes after this number of changes.
    pub(super) fn barrier(&mut self, before: usize) {
        let last = self.barriers[self.barriers.len() - 1];
        let arrived = self.changes.len();
        self.barriers.push(Barrier { before: before.max(last.before), arrived });
        self.revision += 1;
    }

    /// This number of changes must survive a crash from now on.
    pub(super) fn promise(&mut self, changes: usize) {
        self.promise_part(changes, 0);
    }

    /// What a read has returned of a sector must survive, by its place and one more: of a change that
    /// is neither acknowledged nor found whole and durable, only what comes before the sector and the sector itself.
    pub(super) fn promise_seen(&mut self, version: usize, sector: u32) {
        self.noticed();
        if self.is_update(version) || self.owed(version) || self.loose {
            return;
        }
        let Some(change) = version.checked_sub(1).map(|place| &self.changes[place]) else { return };
        if change.acked || self.durable && version <= self.recovered {
            self.promise(version);
        } else {
            self.promise_part(version - 1, sector + 1 - change.sectors.start);
        }
    }

    fn promise_part(&mut self, changes: usize, sectors: u32) {
        let promised = self.promised.max((changes, sectors));
        self.revision += u64::from(promised > self.promised);
        self.promised = promised;
    }

    /// This number of changes must be durable upstream from now on.
    pub(super) fn promise_upstream(&mut self, changes: usize) {
        self.revision += u64::from(changes > self.upstream);
        self.upstream = self.upstream.max(changes);
    }

    /// One more than the place of the last change that was acknowledged from the log. Updates are durable apart from those
    /// before them.
    pub(super) fn last_acked(&self) -> usize {
        let acked = |change: &Change| change.acked && !change.update;
        self.changes.iter().rposition(acked).map_or(0, |place| place + 1)
    }

    /// The number of changes that a read which arrives now must find.
    pub(super) fn settled(&self) -> usize {
        self.last_acked().max(self.recovered)
    }

    /// Which first part of all changes a volume has, at least as many as were promised: how many whole ones,
    /// and how many sectors of the one after them, which was written in pieces.
    pub(super) fn prefix(&self, volume: &[Option<u64>]) -> Result<(usize, u32), Broken> {
        let is = |changes| {
            let mut sectors = (0..).zip(volume);
            sectors.all(|(sector, &has)| self.may_have(sector, has, changes))
        };
        let all = self.changes.len();
        let (promised, part) = self.promised;
        let enough = promised + usize::from(part > 0);
        if let Some(whole) = (enough..=all).rev().find(|&changes| is(changes)) {
            return Ok((whole, 0));
        }
        for place in (promised..all).rev() {
            let count = self.partly(volume, place);
            if let Some(count) = count.filter(|&count| place > promised || count >= part) {
                return Ok((place, count));
            }
        }
        // Not allowed. Which law is it?
        if let Some(less) = (0..enough).rev().find(|&changes| is(changes)) {
            return Err(Broken::Lost(format!("after recovery {}", self.lack(less, enough))));
        }
        Err(Broken::NotAPrefix(format!("after recovery {}", self.nearest(volume))))
    }

    /// Whether a volume has everything before a change, and how many of its first sectors.
    fn partly(&self, volume: &[Option<u64>], place: usize) -> Option<u32> {
        let change = &self.changes[place];
        let mut count = None;
        for (sector, &has) in (0..).zip(volume) {
            let inside = change.sectors.contains(&sector);
            if inside && count.is_none() && self.may_have(sector, has, place + 1) {
                continue;
            }
            if !self.may_have(sector, has, place) {
                return None;
            }
            if inside {
                count.get_or_insert(sector - change.sectors.start);
            }
        }
        count
    }

    /// Whether a volume is what recovery may give.
    pub(super) fn survives(&self, volume: &[Option<u64>]) -> Result<(), Broken> {
        self.survives_settled(volume).or_else(|broken| match &self.unsettled {
            Some(before) if before.survives(volume).is_ok() => Ok(()),
            _ => Err(broken),
        })
    }

    fn survives_settled(&self, volume: &[Option<u64>]) -> Result<(), Broken> {
        if self.loose { self.has_promised(volume) } else { self.prefix(volume).map(|_| ()) }
    }

    /// Whether every sector has what was promised of it, or something newer: all that holds until it is
    /// remembered that a failed log is void, since older records may be written over what came from memory.
    fn has_promised(&self, volume: &[Option<u64>]) -> Result<(), Broken> {
        for (sector, &has) in (0..).zip(volume) {
            let least = self.promised.0.max(self.upstream);
            if self.may_have(sector, has, least) {
                continue;
            }
            self.read(sector, has, least).map_err(|broken| {
                Broken::Lost(format!("after recovery of a failed log: {broken}"))
            })?;
        }
        Ok(())
    }

    /// Whether each sector has something that was written there once.
    pub(super) fn knows(&self, volume: &[Option<u64>]) -> Result<(), Broken> {
        let known = |(versions, has): (&Vec<(usize, u64)>, &Option<u64>)| {
            versions.iter().any(|version| *has == Some(version.1))
        };
        let mut pairs = self.versions.iter().zip(volume);
        let Some(sector) = pairs.position(|pair| !known(pair)) else { return Ok(()) };
        if let Some(before) = &self.unsettled {
            return before.knows(volume);
        }
        Err(Broken::Rot(format!(
            "after recovery of a log with a rotten sector, sector {sector} has {}",
            self.name(volume[sector])
        )))
    }

    /// Whether everything is there.
    pub(super) fn whole(&self, volume: &[Option<u64>]) -> Result<(), Broken> {
        let lacks = (0..self.sectors).find(|&sector| {
            !self.given.is_gone(sector) && volume[sector as usize] != self.newest(sector)
        });
        let Some(sector) = lacks else { return Ok(()) };
        Err(Broken::Upstream(format!(
            "sector {sector} has {}, not {}",
            self.name(volume[sector as usize]),
            self.name(self.newest(sector))
        )))
    }

    /// Whether the upstream alone is legal: it fits a barrier.
    pub(super) fn legal(&self, upstream: &[Option<u64>]) -> Result<(), Broken> {
        let ends = self.barriers[1..].iter().map(|barrier| barrier.arrived);
        let ends = ends.chain([self.changes.len()]).collect::<Vec<_>>();
        let mut fault = None;
        for (barrier, &end) in self.barriers.iter().zip(&ends).rev() {
            let whole = barrier.before.max(self.upstream);
            let allowed = |sector: u32| {
                let versions = &self.versions[sector as usize];
                let from = versions.iter().rposition(|version| self.is_at_least(version.0, whole));
                let from = from.unwrap_or(0);
                let may = versions[from..].iter().take_while(|version| version.0 <= end.max(whole));
                may.map(|version| version.1)
            };
            let wrong = (0..self.sectors).find(|&sector| {
                let has = upstream[sector as usize];
                !self.given.excuses(sector) && !allowed(sector).any(|token| has == Some(token))
            });
            let Some(sector) = wrong else { return Ok(()) };
            // The one that tells most is that of the barrier that is furthest back.
            fault = Some(sector);
        }
        let sector = fault.expect("there is a barrier, the beginning");
        Err(Broken::Upstream(format!(
            "the upstream alone fits no barrier: the first at which it fails says that sector {sector} has {}{}",
            self.name(upstream[sector as usize]),
            self.ahead(upstream)
        )))
    }

    /// What a sector has after all that has arrived.
    pub(super) fn newest(&self, sector: u32) -> Option<u64> {
        self.versions[sector as usize].last().map(|version| version.1)
    }

    /// The change, as its place and one more, that a read of a sector has returned: the oldest that it may be,
    /// if this number of changes had been acknowledged before it arrived.
    pub(super) fn read(
        &self,
        sector: u32,
        has: Option<u64>,
        floor: usize,
    ) -> Result<usize, Broken> {
        let since = |versions: &Vec<Vec<(usize, u64)>>| {
            let versions = &versions[sector as usize];
            let from = versions.iter().rposition(|version| self.is_at_least(version.0, floor));
            let from = from.unwrap_or(0);
            let found = versions[from..].iter().find(|version| has == Some(version.1));
            (versions[from].0, found.map(|version| version.0))
        };
        let (oldest, found) = since(&self.versions);
        let faded = || since(self.faded.as_ref()?).1;
        found.or_else(faded).ok_or_else(|| {
            Broken::Read(format!(
                "a read of sector {sector} returned {}, and {} had been acknowledged before it was asked",
                self.name(has),
                self.change(oldest)
            ))
        })
    }

    /// Sectors of a change that were ever written.
    fn cut(&mut self, place: usize, sectors: u32) {
        self.revision += 1;
        let change = &mut self.changes[place];
        let end = change.sectors.start + sectors;
        for sector in end..change.sectors.end {
            self.versions[sector as usize].retain(|version| version.0 != place + 1);
        }
        change.sectors.end = end;
    }

    /// The place, one more, of the newest change that leaves this in a sector.
    fn place(&self, sector: u32, token: u64) -> Option<usize> {
        let mut versions = self.versions[sector as usize].iter().rev();
        versions.find(|version| version.1 == token).map(|version| version.0)
    }
}

/// The version of a sector after this many changes.
fn at(versions: &[(usize, u64)], changes: usize) -> (usize, u64) {
    let after = versions.iter().rev().find(|version| version.0 <= changes);
    *after.expect("every sector began with something")
}

#[cfg(test)]
mod tests;
