//! Inspects a log, whole or damaged: what is intact, what is not, and what that means.
//!
//! [`recover`](super::recover) stops at the first thing that is wrong. Inspection continues behind it, and keeps to the same
//! rules: what a later segment says was given up does not count, nor does what follows a torn end.

use super::format::{Bad, Descriptor, PAGE, SUPERS, SegmentHead, Super, crc32c, presumed};
use super::reader::{
    ChainEnd, Claims, Device, EpochsOf, Located, Slot, batch_at, chain, scan, supers, survey,
    verify,
};
use super::recover::{Refusal, newest_known};
use super::settings::Settings;
use super::wal::Space;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// What is in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Super blocks A and B.
    pub supers: [Result<Super, Bad>; 2],
    /// The one that counts.
    pub block: Super,
    /// The segments that are needed, by number.
    pub segments: Vec<Segment>,
    /// The intact batches that count, in order. Only those that recovery would check have had their payload checked.
    pub batches: Vec<Located>,
    /// Records that were durable, are not known to be upstream, and are gone.
    pub gaps: Vec<Gap>,
    /// What is not as it should be.
    pub flaws: Vec<Flaw>,
    /// All records up to this one are known to be upstream.
    pub applied: u64,
    /// All records up to this one are known to have been durable.
    pub durable: u64,
}

/// A segment that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number.
    pub number: u64,
    /// Where it begins on the device.
    pub at: u64,
    /// Its header, if that is intact.
    pub head: Option<SegmentHead>,
    /// Bytes from its start to the end of the last batch that counts.
    pub used: u64,
}

/// Records that are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
    /// Where they should begin on the device.
    pub at: u64,
    /// What an unreadable header says of them, which nothing proves. Empty if it says nothing.
    pub presumed: Vec<Descriptor>,
}

/// Something that is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Where on the device.
    pub at: u64,
    /// What.
    pub kind: FlawKind,
}

/// What is wrong with a place of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlawKind {
    /// One super block is unreadable.
    Super(Bad),
    /// A place has neither a segment header that can be read nor only zeroes.
    Place(Bad),
    /// A needed segment has lost its header, and there are batches of it.
    Header(u64),
    /// A needed segment is nowhere.
    Missing(u64),
    /// A batch that was durable cannot be read; its first record.
    Batch(Bad, u64),
    /// The log ends in a batch that was never finished; its first record.
    Torn(u64),
    /// The payload of a record is not what was written.
    Payload(u64),
}

impl FlawKind {
    /// Whether something is lost; else nothing needs it.
    pub const fn is_damage(self) -> bool {
        !matches!(self, Self::Super(_) | Self::Place(_) | Self::Torn(_))
    }

    /// Its name for programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Super(_) => "super",
            Self::Place(_) => "place",
            Self::Header(_) => "header",
            Self::Missing(_) => "missing",
            Self::Batch(..) => "batch",
            Self::Torn(_) => "torn",
            Self::Payload(_) => "payload",
        }
    }
}

impl fmt::Display for FlawKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Super(bad) => {
                write!(f, "this super block cannot be read, {bad}: the other one counts")
            }
            Self::Place(bad) => {
                write!(
                    f,
                    "no header of a segment can be read here, {bad}: nothing says that one is needed"
                )
            }
            Self::Header(number) => {
                write!(
                    f,
                    "the header of segment {number} is lost: its batches can be told only by themselves"
                )
            }
            Self::Missing(number) => {
                write!(f, "the segment here names segment {number}, which is nowhere")
            }
            Self::Batch(bad, seq) => {
                write!(f, "the batch with record {seq} was durable, and cannot be read: {bad}")
            }
            Self::Torn(seq) => {
                write!(
                    f,
                    "a batch was not finished here: record {seq} and what follows were never acknowledged"
                )
            }
            Self::Payload(seq) => write!(f, "the data of record {seq} is not what was written"),
        }
    }
}

/// A record of a log, as [`Inspection::records`] gives it.
#[derive(Clone, Copy, Debug)]
pub struct Logged<'a> {
    /// Its number.
    pub seq: u64,
    /// The epoch that it belongs to.
    pub epoch: u64,
    /// Where its data is.
    pub batch: &'a Located,
    /// What it is.
    pub record: &'a Descriptor,
}

impl Inspection {
    /// The records that are there, in the order of the log.
    pub fn records(&self) -> impl Iterator<Item = Logged<'_>> {
        let (mut segment, mut epochs) = (0, EpochsOf::from(0));
        self.batches.iter().flat_map(move |batch| {
            if batch.batch.segment != segment {
                segment = batch.batch.segment;
                let head = self.segments.iter().find(|one| one.number == segment);
                let open = head.and_then(|one| one.head).map_or(0, |head| head.epoch);
                // Behind a gap only the header says in which epoch the segment begins.
                if open > 0 {
                    epochs = EpochsOf::from(open);
                }
            }
            let numbered = batch.numbered();
            let records = numbered.map(|(seq, record)| Logged {
                seq,
                epoch: epochs.of(seq, record),
                batch,
                record,
            });
            records.collect::<Vec<_>>()
        })
    }

    /// Whether a record has data of which not all is known to be upstream.
    pub fn is_dirty(&self, seq: u64, record: &Descriptor) -> bool {
        record.kind.is_data() && record.copied().unwrap_or(seq) > self.applied
    }

    /// The dirty records in the order in which they are to be applied: by epoch, in each as in the log.
    pub fn replay(&self) -> Vec<Logged<'_>> {
        let mut dirty: Vec<_> =
            self.records().filter(|logged| self.is_dirty(logged.seq, logged.record)).collect();
        dirty.sort_by_key(|logged| (logged.epoch, logged.seq));
        dirty
    }

    /// Where in that order lost records may be missing at the earliest: an epoch, and a record. Copies may be of any epoch, and
    /// are missed if what they are of is not there either.
    pub fn missing_from(&self, gap: &Gap) -> (u64, u64) {
        let first = self.segments.first().and_then(|one| one.head).map(|head| head.first);
        if first.is_none_or(|first| first > self.applied + 1) {
            return (0, 0);
        }
        let before = self.records().filter(|logged| logged.record.copied().is_none());
        let before = before.take_while(|logged| logged.seq < gap.first).last();
        (before.map_or(0, |logged| logged.epoch), gap.first)
    }
}

/// What recovery is to expect of a log of which only its super block is known.
pub fn as_found(block: &Super) -> Settings {
    Settings {
        volume: block.volume,
        block: block.block,
        segment: block.segment,
        capacity: SUPERS + block.segment * block.segments,
        ..Settings::default()
    }
}

/// Inspects a log. What is behind the end of a device that is too short should be given as zeroes.
///
/// It is refused if its super blocks cannot be understood: then nothing tells which log this is.
pub fn inspect<E>(device: Device<'_, E>, size: u64) -> Result<Inspection, Refusal<E>> {
    let mut device =
        |at, bytes: &mut [u8]| device(at, bytes).map_err(|source| Refusal::Device { at, source });
    let device: Device<'_, Refusal<E>> = &mut device;
    if size < SUPERS {
        return Err(Refusal::NotALog);
    }
    let copies = supers(device)?;
    let block = newest_known(&copies)?;
    // Before memory is set aside for what a device cannot have.
    let needed = SUPERS + block.segment * block.segments;
    if size < SUPERS + block.segment {
        return Err(Refusal::Short { needed, size });
    }
    let fits = (size - SUPERS).div_ceil(block.segment).min(block.segments);
    let seen = survey(device, &Super { segments: fits, ..block })?;
    let mut inspector = Inspector {
        claims: Claims::new(&block, &seen.slots),
        found: BTreeMap::new(),
        flaws: Vec::new(),
    };
    for (copy, at) in copies.iter().zip([0, PAGE]) {
        match copy {
            Ok(copy) => inspector.claims.add_super(copy),
            Err(bad) => inspector.flaw(at, FlawKind::Super(*bad)),
        }
    }
    for slot in &seen.slots {
        inspector.slot(device, &block, slot)?;
    }
    inspector.next_place(device, &block, fits)?;
    inspector.end(device, &block, copies)
}

/// The state of an inspection.
struct Inspector {
    claims: Claims,
    /// Segments by number, with what was found of each.
    found: BTreeMap<u64, Found>,
    flaws: Vec<Flaw>,
}

/// What was found of a segment.
#[derive(Default)]
struct Found {
    at: u64,
    head: Option<SegmentHead>,
    batches: Vec<Located>,
    /// Where its batches stop following each other, and what is there.
    broken: Option<(u64, Bad)>,
}

impl Inspector {
    fn flaw(&mut self, at: u64, kind: FlawKind) {
        self.flaws.push(Flaw { at, kind });
    }

    /// Finds what is in a place.
    fn slot<E>(&mut self, device: Device<'_, E>, block: &Super, slot: &Slot) -> Result<(), E> {
        let (from, end) = (slot.at + PAGE, slot.at + block.segment);
        match slot.head {
            Ok((head, sum)) if slot.first_batch.is_none_or(|number| number <= head.number) => {
                if head.number < self.claims.oldest {
                    // Nothing of it counts, but what else is there says what was true, as for recovery.
                    if slot.first_batch.is_some_and(|number| number != head.number) {
                        scan(device, block, from, end, |located| {
                            self.claims.add_batch(&located.batch);
                        })?;
                    }
                    return Ok(());
                }
                let found = self.walk(device, block, slot.at, (head, sum))?;
                // A copy of a header, where it does not belong, has no batches.
                if !found.batches.is_empty() || !self.found.contains_key(&head.number) {
                    self.found.insert(head.number, found);
                }
                return Ok(());
            }
            Err(bad) if !slot.blank => self.flaw(slot.at, FlawKind::Place(bad)),
            Err(_) if slot.first_batch.is_none() => return Ok(()),
            // A newer segment was begun in the place, and its header is not there.
            _ => {}
        }
        scan(device, block, from, end, |located| {
            let number = located.batch.segment;
            self.claims.add_batch(&located.batch);
            if number < self.claims.oldest {
                return;
            }
            let found = self.found.entry(number).or_default();
            if found.head.is_none() {
                found.at = slot.at;
                found.batches.push(located);
            }
        })
    }

    /// The batches of a segment whose header is intact: one after the other, and behind the first that is not there
    /// whatever can be found of it.
    fn walk<E>(
        &mut self,
        device: Device<'_, E>,
        block: &Super,
        start: u64,
        (head, sum): (SegmentHead, u32),
    ) -> Result<Found, E> {
        let mut found = Found { at: start, head: Some(head), ..Found::default() };
        let end = start + block.segment;
        let ChainEnd { at, mut next, bad } =
            chain(device, block, (start, head, sum), end, |located| {
                self.claims.add_batch(&located.batch);
                found.batches.push(located);
            })?;
        let Some(bad) = bad else { return Ok(found) };
        found.broken = Some((at, bad));
        let mut behind = at;
        scan(device, block, at, end, |located| {
            let batch = &located.batch;
            self.claims.add_batch(batch);
            if batch.segment == head.number && batch.first > next && located.at >= behind {
                behind = located.at + u64::from(batch.bytes);
                next = batch.last();
                found.batches.push(located);
            }
        })?;
        Ok(found)
    }

    /// Looks where the segment after the newest is begun, of `places`, for what its batches say, as recovery does.
    fn next_place<E>(
        &mut self,
        device: Device<'_, E>,
        block: &Super,
        places: u64,
    ) -> Result<(), E> {
        let newest = self.found.values().rev().find(|one| one.head.is_some());
        let last = newest.map(|one| (one.at - SUPERS) / block.segment);
        let mut ring = Space::ring(last, places).map(|slot| Space::at(slot, block.segment));
        let free = |&at: &u64| self.found.values().all(|one| one.at != at);
        let Some(at) = ring.find(free) else { return Ok(()) };
        scan(device, block, at + PAGE, at + block.segment, |located| {
            self.claims.add_batch(&located.batch);
        })
    }

    /// Which batches count, and which records are gone.
    fn end<E>(
        mut self,
        device: Device<'_, E>,
        block: &Super,
        supers: [Result<Super, Bad>; 2],
    ) -> Result<Inspection, E> {
        let mut found = core::mem::take(&mut self.found);
        // Of a segment that was given up when writing to it failed, not even the header need be there.
        let mut after = None;
        let given_up: Vec<u64> = found
            .iter()
            .rev()
            .filter_map(|(&number, one)| {
                after = one.head.or(after);
                let skipped = |head: SegmentHead| head.number > number && head.previous < number;
                (one.head.is_none() && after.is_some_and(skipped)).then_some(number)
            })
            .collect();
        found.retain(|number, _| !given_up.contains(number));
        found.retain(|&number, one| {
            // Without a header nothing shows that a batch was acknowledged but what came later.
            if one.head.is_none() {
                one.batches.retain(|located| located.batch.first <= self.claims.durable);
                one.batches.sort_by_key(|located| located.batch.first);
            }
            number >= self.claims.oldest && (one.head.is_some() || !one.batches.is_empty())
        });
        self.links(&found);
        let mut limits: Vec<u64> = found
            .values()
            .rev()
            .scan(u64::MAX, |least, one| {
                let limit = *least;
                *least = limit.min(one.first());
                Some(limit)
            })
            .collect();
        let mut selection = Selection { next: self.claims.applied + 1, ..Selection::default() };
        for (number, one) in found {
            let limit = limits.pop().expect("one for each");
            let (at, head) = (one.at, one.head);
            if number == self.claims.oldest {
                // What is not upstream of the records before was superseded or copied.
                selection.next = selection.next.max(one.certain_first().unwrap_or(0));
            }
            let used = self.segment(device, block, &mut selection, one, limit)?;
            selection.segments.push(Segment { number, at, head, used });
        }
        if self.claims.durable >= selection.next {
            self.gap(device, block, &mut selection, self.claims.durable + 1)?;
        } else if selection.lacks(self.claims.durable + 1) {
            self.hole(device, block, &selection)?;
        }
        let Selection { segments, batches, gaps, .. } = selection;
        let Self { claims: Claims { applied, durable, .. }, mut flaws, .. } = self;
        flaws.sort_by_key(|flaw| flaw.at);
        Ok(Inspection { supers, block: *block, segments, batches, gaps, flaws, applied, durable })
    }

    /// Segments without a header, and those that are named and nowhere.
    fn links(&mut self, found: &BTreeMap<u64, Found>) {
        for (&number, one) in found {
            match one.head {
                None => self.flaw(one.at, FlawKind::Header(number)),
                Some(head)
                    if head.previous >= self.claims.oldest.max(1)
                        && !found.contains_key(&head.previous) =>
                {
                    self.flaw(one.at, FlawKind::Missing(head.previous));
                }
                Some(_) => {}
            }
        }
        if found.is_empty() && self.claims.oldest > 1 {
            self.flaw(SUPERS, FlawKind::Missing(self.claims.oldest));
        }
    }

    /// Takes those batches of a segment that count; returns how much of it they use. `limit`: the first record that
    /// a later segment has.
    fn segment<E>(
        &mut self,
        device: Device<'_, E>,
        block: &Super,
        selection: &mut Selection,
        one: Found,
        limit: u64,
    ) -> Result<u64, E> {
        let last = limit == u64::MAX;
        let (mut used, mut tear) = (PAGE, None);
        if let Some(head) = one.head {
            if head.first > selection.next {
                self.gap(device, block, selection, head.first)?;
            } else if selection.lacks(head.first) && head.applied + 1 < head.first {
                self.hole(device, block, selection)?;
            }
            selection.least = selection.least.max(head.first);
            selection.end = one.at + PAGE;
        }
        for located in one.batches {
            let batch = located.batch;
            if batch.last() >= limit {
                break;
            }
            if batch.first < selection.least {
                continue;
            }
            let behind = one.broken.is_some_and(|(at, _)| located.at >= at);
            // What nothing shows to have been durable ends the log where it is torn, and recovery looks at its
            // payload. Behind a hole it is worth having.
            let torn = behind && *tear.get_or_insert(self.claims.durable < selection.next);
            let doubtful = batch.last() > self.claims.durable;
            if last && doubtful && (torn || verify(device, &located, crc32c)?.is_some()) {
                self.flaw(located.at, FlawKind::Torn(batch.first));
                return Ok(used);
            }
            if batch.first > selection.next {
                self.gap(device, block, selection, batch.first)?;
            } else if selection.lacks(batch.first) {
                self.hole(device, block, selection)?;
            }
            selection.end = located.at + u64::from(batch.bytes);
            used = used.max(selection.end.saturating_sub(one.at));
            selection.least = batch.last() + 1;
            selection.next = selection.next.max(selection.least);
            selection.batches.push(located);
        }
        if let Some((at, Bad::Checksum | Bad::Field(_))) = one.broken
            && last
            && self.claims.durable < selection.next
        {
            self.flaw(at, FlawKind::Torn(selection.next));
        }
        Ok(used)
    }

    /// Records from the next one to the one before `until` are gone.
    fn gap<E>(
        &mut self,
        device: Device<'_, E>,
        block: &Super,
        selection: &mut Selection,
        until: u64,
    ) -> Result<(), E> {
        let (first, last, at) = (selection.next, until - 1, selection.end.max(SUPERS));
        let presumed = self.hole(device, block, selection)?;
        selection.next = until;
        selection.gaps.push(Gap { first, last, at, presumed });
        Ok(())
    }

    /// A batch that should be behind the last one that was taken is not there. Returns what is left of its header.
    fn hole<E>(
        &mut self,
        device: Device<'_, E>,
        block: &Super,
        selection: &Selection,
    ) -> Result<Vec<Descriptor>, E> {
        let at = selection.end;
        let room = block.segment - at.saturating_sub(SUPERS) % block.segment;
        if at < SUPERS || room < PAGE {
            return Ok(Vec::new());
        }
        let bad = batch_at(device, block, at, room)?.err().unwrap_or(Bad::Foreign);
        self.flaw(at, FlawKind::Batch(bad, selection.least));
        let mut page = alloc::vec![0; PAGE as usize];
        device(at, &mut page)?;
        Ok(presumed(block.block, &page))
    }
}

impl Found {
    /// The first record that it has, if that is certain.
    fn certain_first(&self) -> Option<u64> {
        let first = self.batches.first().filter(|located| located.at == self.at + PAGE);
        self.head.map(|head| head.first).or(first.map(|located| located.batch.first))
    }

    /// The first record that it has, or may have had.
    fn first(&self) -> u64 {
        let batch = self.batches.first().map_or(u64::MAX, |located| located.batch.first);
        self.head.map_or(batch, |head| head.first)
    }
}

impl Selection {
    /// Whether there are records between the last one that was taken and `first`.
    const fn lacks(&self, first: u64) -> bool {
        self.least > 0 && first > self.least
    }
}

/// What counts so far.
#[derive(Default)]
struct Selection {
    segments: Vec<Segment>,
    batches: Vec<Located>,
    gaps: Vec<Gap>,
    /// The record that has to come next, after all that are upstream.
    next: u64,
    /// The first record that may still be taken.
    least: u64,
    /// Where what was taken ends on the device: what comes next should be there.
    end: u64,
}
