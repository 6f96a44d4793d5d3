//! Hosts' reads: from the log, the read buffer and the upstream.

use super::super::bug::Bug;
use super::super::content::{Image, SECTOR};
use super::{Asked, Fault, Io, Shell, VOLUME, bytes, sector};
use std::ops::Range;
use weir_flow::cache::lines::FillId;
use weir_flow::cache::writeback::format::Span;
use weir_flow::cache::writeback::{Found, Mode, Pin};
use weir_flow::request::RequestKey;

/// Where a sector of a read comes from.
pub(super) enum Place {
    Log(Span),
    Is(Option<u64>),
    Upstream,
}

/// A fetch for a read, with what the upstream had at some moment of it.
pub(super) struct Fill {
    id: Option<FillId>,
    first: u32,
    data: Image,
}

impl Shell<'_> {
    /// Begins a read, unless it has to wait for a commit.
    pub(super) fn read(&mut self, key: RequestKey, sectors: &Range<u32>) {
        let mut dirty = Vec::new();
        self.log.look_up(bytes(sectors), &mut dirty);
        let waits = dirty.iter().any(|dirty| matches!(dirty.found, Found::NotYet(_)));
        if waits && !self.is(Bug::ReadBeforeCommit) {
            return;
        }
        let pin = (!self.is(Bug::ReadWithoutPin)).then(|| self.log.pin());
        let mut parts: Vec<Place> = sectors.clone().map(|_| Place::Upstream).collect();
        let mut copies = Vec::new();
        self.lines.read(VOLUME, bytes(sectors), &mut copies);
        for copy in copies {
            for i in 0..copy.length as usize / SECTOR {
                let content = self.frames[copy.frame.index()][copy.at as usize / SECTOR + i];
                let at = copy.offset as usize / SECTOR + i;
                parts[at] = Place::Is(self.lasting.store.token(content));
            }
        }
        for dirty in &dirty {
            let first = sector(dirty.extent.offset);
            for i in 0..sector(dirty.extent.length) {
                let at = (first + i - sectors.start) as usize;
                parts[at] = match dirty.found {
                    Found::Zeroes => Place::Is(Some(0)),
                    Found::Log(span) => {
                        let skip = u64::from(i) * SECTOR as u64;
                        Place::Log(Span { at: span.at + skip, length: SECTOR as u64, ..span })
                    }
                    Found::NotYet(_) => Place::Is(self.lasting.history.newest(first + i)),
                };
            }
        }
        let fill =
            parts.iter().any(|part| matches!(part, Place::Upstream)).then(|| self.fill(sectors));
        if let Some(Asked::Read { begun, .. }) = self.asked.get_mut(&key) {
            *begun = true;
        }
        self.ios.push(Io::Read { key, pin, parts, fill });
    }

    /// Begins to fetch whole lines.
    pub(super) fn fill(&mut self, sectors: &Range<u32>) -> Fill {
        let line = self.plan.line;
        let first = sectors.start / line * line;
        let end = sectors.end.next_multiple_of(line).min(self.plan.sectors);
        let extent = bytes(&(first..end));
        let data = self.far.visible()[first as usize..end as usize].to_vec();
        if self.lines.filling(VOLUME, extent).is_some() {
            return Fill { id: None, first, data };
        }
        let fill = self.lines.begin(VOLUME, extent, false);
        if !self.is(Bug::FillOverNewerData) {
            let mut dirty = Vec::new();
            self.log.look_up(extent, &mut dirty);
            for dirty in dirty {
                self.lines.exclude(fill, dirty.extent);
            }
        }
        Fill { id: Some(fill), first, data }
    }

    /// A read ends.
    pub(super) fn returns(
        &mut self,
        key: RequestKey,
        pin: Option<Pin>,
        parts: &[Place],
        fill: Option<Fill>,
    ) -> Result<(), Fault> {
        let Some(Asked::Read { sectors, before, .. }) = self.asked.get(&key) else {
            unreachable!("a read is answered here alone");
        };
        let (sectors, before) = (sectors.clone(), *before);
        // The upstream has read when the fetch began, or now.
        let data = fill.map(|fill| {
            let range = fill.first as usize..fill.first as usize + fill.data.len();
            let late = self.rng.below(2) == 0;
            let data = if late { self.far.visible()[range].to_vec() } else { fill.data };
            if let Some(id) = fill.id {
                let mut copies = Vec::new();
                self.lines.end(id, true, &mut copies);
                for copy in copies {
                    let (from, to) = (copy.offset as usize / SECTOR, copy.at as usize / SECTOR);
                    let count = copy.length as usize / SECTOR;
                    self.frames[copy.frame.index()][to..to + count]
                        .copy_from_slice(&data[from..from + count]);
                }
            }
            (fill.first, data)
        });
        for (part, sector) in parts.iter().zip(sectors) {
            let has = match (part, &data) {
                (Place::Is(token), _) => *token,
                (Place::Log(span), _) => {
                    let bytes = self.logged(*span)?;
                    self.lasting.store.known(bytes.first_chunk().expect("a sector was asked for"))
                }
                (Place::Upstream, Some((first, data))) => {
                    self.lasting.store.token(data[(sector - first) as usize])
                }
                (Place::Upstream, None) => unreachable!("a fetch was begun for it"),
            };
            let history = &mut self.lasting.history;
            let seen = history.read(sector, has, before)?;
            // What was read must not be gone after a crash, but of a volatile cache.
            if self.plan.settings.mode == Mode::Log {
                history.promise_seen(seen, sector);
            }
        }
        if let Some(pin) = pin {
            self.log.unpin(pin);
        }
        self.told(key, Ok(()))
    }
}
