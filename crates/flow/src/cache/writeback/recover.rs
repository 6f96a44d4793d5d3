//! Makes a log, and opens one after a crash or a stop.
//!
//! What a crash leaves unfinished at the end is cut off: it was never acknowledged. What is missing
//! although something later says that it was durable is damage: the log is refused and left as it is.
//! Nothing is ever written here; the segment that the log continues with says where the one before ends.

use super::format::{Bad, PAGE, RecordKind, SUPERS, SegmentHead, Super, VERSION, crc32c};
use super::reader::{
    Claims, Device, EpochsOf, Located, Slot, chain, newest, scan, supers, survey, verify,
};
use super::recovered::{FoundRecord, Recovered};
use super::settings::Settings;
use super::wal::{Segment, Space};
use alloc::vec::Vec;
use core::fmt;

/// Why a log is not opened. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal<E> {
    /// The device could not be read.
    Device {
        /// Where.
        at: u64,
        /// Why.
        source: E,
    },
    /// Nothing here was ever a log.
    NotALog,
    /// An older or newer program wrote it, in another version of the format.
    Version {
        /// The version of its format.
        version: u32,
    },
    /// It is the log of another volume.
    WrongVolume {
        /// The volume that it is of.
        found: [u8; 16],
    },
    /// It was made with other sizes.
    Sizes {
        /// Bytes of a block, bytes of a segment, number of segments: of the log.
        found: (u32, u64, u64),
        /// The same, as configured.
        expected: (u32, u64, u64),
    },
    /// The device is shorter than the log that it says it has.
    Short {
        /// Bytes that there should be.
        needed: u64,
        /// Bytes that there are.
        size: u64,
    },
    /// Something that was durable is not there.
    Damaged {
        /// Where on the device.
        at: u64,
        /// The first record that is missing.
        seq: u64,
        /// What is wrong.
        why: Damage,
    },
}

/// What is wrong with a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Neither super block can be read.
    Supers,
    /// A segment is missing whose number another one names.
    Segment(u64),
    /// A batch is unreadable, and something behind it says that it was durable.
    Batch(Bad),
    /// A batch does not follow the one before it.
    Order,
    /// The payload of a record is not what was written.
    Payload,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Supers => f.write_str("neither of its two super blocks is intact"),
            Self::Segment(number) => write!(f, "its segment {number} is missing"),
            Self::Batch(bad) => write!(f, "the batch there was durable, and now {bad}"),
            Self::Order => f.write_str("what is there does not follow what is before it"),
            Self::Payload => f.write_str("the data there is not what was written"),
        }
    }
}

impl<E: fmt::Display> fmt::Display for Refusal<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { at, source } => {
                write!(f, "the log cannot be read at byte {at}: {source}")
            }
            Self::NotALog => f.write_str("this is not a log of weir: name another, or make one"),
            Self::Version { version } if *version < VERSION => write!(
                f,
                "the log has version {version} of the format, which an older program wrote: drain the volume with that program, and make a new log"
            ),
            Self::Version { version } => write!(
                f,
                "the log has version {version} of the format, which this program does not know: use the program that wrote it, or a newer one"
            ),
            Self::WrongVolume { found } => {
                f.write_str("this is the log of another volume, ")?;
                hex(f, found)?;
                f.write_str(": name the log of this one")
            }
            Self::Sizes { found, expected } => write!(
                f,
                "the log was made with blocks of {} bytes and {} segments of {} bytes, and the configuration asks for blocks of {} bytes and {} segments of {}: change the configuration, or drain the volume and make a new log",
                found.0, found.2, found.1, expected.0, expected.2, expected.1
            ),
            Self::Short { needed, size } => write!(
                f,
                "the log needs {needed} bytes and its device has {size}: part of it is missing"
            ),
            Self::Damaged { at, seq, why } => write!(
                f,
                "the log is damaged at byte {at}: {why}; records from {seq} on cannot be replayed. Nothing was changed: `weir log salvage` reads what is intact"
            ),
        }
    }
}

impl<E: core::error::Error + 'static> core::error::Error for Refusal<E> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Device { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// What is to be written to a device, at which places, to make it a new log named `log` whose first
/// record is `first`: one more than the last that the volume ever had, or 1. `incarnation` counts the logs
/// of the volume. The segments should be filled with zeroes, so that writing to them needs no allocation;
/// what an older log has left there does no harm.
pub fn format_new(
    settings: &Settings,
    log: [u8; 16],
    incarnation: u64,
    first: u64,
) -> [(u64, Vec<u8>); 2] {
    [1, 2].map(|generation| {
        let block = Super {
            log,
            volume: settings.volume,
            incarnation,
            generation,
            owner: 0,
            segment: settings.segment,
            segments: settings.segments(),
            block: settings.block,
            oldest: 1,
            applied: first - 1,
            durable: first - 1,
            clean: true,
            bypassed: true,
        };
        (block.place(), block.encode())
    })
}

/// Opens the log on a device of `size` bytes, for the volume and with the sizes of `expect`.
pub fn recover<E>(
    device: Device<'_, E>,
    size: u64,
    expect: &Settings,
) -> Result<Recovered, Refusal<E>> {
    let mut named =
        |at, bytes: &mut [u8]| device(at, bytes).map_err(|source| Refusal::Device { at, source });
    open(&mut named, size, expect)
}

fn open<E>(
    device: Device<'_, Refusal<E>>,
    size: u64,
    expect: &Settings,
) -> Result<Recovered, Refusal<E>> {
    if size < SUPERS {
        return Err(Refusal::NotALog);
    }
    let block = check(&supers(device)?, size, expect)?;
    let survey = survey(device, &block)?;
    let mut walk = Walk::new(&block, &survey.slots);
    for copy in survey.supers.iter().flatten() {
        walk.claims.add_super(copy);
    }
    let path = walk.path(&block, &survey.slots)?;
    let mut broken = None;
    for (i, &step) in path.iter().enumerate() {
        let sealed = path.get(i + 1).map(|(_, next, _)| next.sealed);
        broken = Some(walk.segment(device, &block, step, sealed)?);
    }
    // Who says that there was more?
    if let Some(end) = broken {
        scan(device, &block, end.at, end.limit, |located| walk.claims.add_batch(&located.batch))?;
    }
    let next = walk.next_place(&block);
    for slot in survey.slots.iter().filter(|slot| suspicious(slot) || Some(slot.at) == next) {
        let (from, to) = (slot.at + PAGE, slot.at + block.segment);
        scan(device, &block, from, to, |located| walk.claims.add_batch(&located.batch))?;
    }
    if walk.claims.durable >= walk.next {
        let end = broken.unwrap_or(End { at: SUPERS, limit: SUPERS, bad: Bad::Magic });
        let why = Damage::Batch(end.bad);
        return Err(Refusal::Damaged { at: end.at, seq: walk.next, why });
    }
    walk.cut_torn(device)?;
    Ok(walk.end(&block))
}

/// A place whose header may have been lost: something was written there that is not accounted for.
fn suspicious(slot: &Slot) -> bool {
    match slot.head {
        Ok((head, _)) => slot.first_batch.is_some_and(|number| number != head.number),
        Err(_) => !slot.blank || slot.first_batch.is_some(),
    }
}

/// The newest super block, unless one has another version.
pub(super) fn newest_known<E>(copies: &[Result<Super, Bad>; 2]) -> Result<Super, Refusal<E>> {
    for copy in copies {
        if let Err(Bad::Version(version)) = *copy {
            return Err(Refusal::Version { version });
        }
    }
    newest(copies).ok_or(match copies {
        [Err(Bad::Magic), Err(Bad::Magic)] => Refusal::NotALog,
        _ => Refusal::Damaged { at: 0, seq: 0, why: Damage::Supers },
    })
}

/// Whether this is the log that was expected.
fn check<E>(
    copies: &[Result<Super, Bad>; 2],
    size: u64,
    expect: &Settings,
) -> Result<Super, Refusal<E>> {
    let block = newest_known(copies)?;
    if block.volume != expect.volume {
        return Err(Refusal::WrongVolume { found: block.volume });
    }
    let found = (block.block, block.segment, block.segments);
    let expected = (expect.block, expect.segment, expect.segments());
    if found != expected {
        return Err(Refusal::Sizes { found, expected });
    }
    let needed = SUPERS + block.segment * block.segments;
    if size < needed {
        return Err(Refusal::Short { needed, size });
    }
    Ok(block)
}

/// The state of a walk along a log.
struct Walk {
    claims: Claims,
    applied_super: u64,
    /// The record that has to come next.
    next: u64,
    segment: u64,
    /// The first record of all that are there, and the epoch that was open then.
    first: u64,
    epoch: u64,
    live: Vec<Segment>,
    batches: Vec<Located>,
}

/// A segment on the path: where it is, its header, and the checksum of that.
type Step = (u64, SegmentHead, u32);

/// Where the batches of a segment end.
#[derive(Clone, Copy, Debug)]
struct End {
    at: u64,
    /// The end of the segment.
    limit: u64,
    /// What is there instead of a batch.
    bad: Bad,
}

impl Walk {
    fn new(block: &Super, slots: &[Slot]) -> Self {
        Self {
            claims: Claims::new(block, slots),
            applied_super: block.applied,
            next: block.durable + 1,
            segment: block.segment,
            first: 0,
            epoch: 0,
            live: Vec::new(),
            batches: Vec::new(),
        }
    }

    /// The segments that count, oldest first: from the newest back, each named by the one after it.
    /// Others were given up when writing to them failed.
    fn path<E>(&self, block: &Super, slots: &[Slot]) -> Result<Vec<Step>, Refusal<E>> {
        // Of two headers with one number, one is a copy that is where it does not belong: the batches are behind the other.
        let numbered = |wanted: Option<u64>| {
            let heads = slots.iter().filter_map(|slot| {
                let (head, sum) = slot.head.ok()?;
                Some((slot.first_batch == Some(head.number), (slot.at, head, sum)))
            });
            let fit = heads.filter(|(_, (_, head, _))| wanted.is_none_or(|it| it == head.number));
            fit.max_by_key(|&(begun, (_, head, _))| (head.number, begun)).map(|(_, step)| step)
        };
        let Some(mut last) = numbered(None) else {
            return if self.claims.oldest > 1 || self.claims.durable > self.claims.applied {
                Err(missing(self.claims.oldest, block.applied + 1))
            } else {
                Ok(Vec::new())
            };
        };
        if last.1.number < self.claims.oldest {
            return Err(missing(self.claims.oldest, block.applied + 1));
        }
        let mut path = alloc::vec![last];
        while last.1.previous >= self.claims.oldest.max(1) {
            let wanted = last.1.previous;
            match numbered(Some(wanted)) {
                Some(found) => last = found,
                None => return Err(missing(wanted, self.claims.applied + 1)),
            }
            path.push(last);
        }
        path.reverse();
        Ok(path)
    }

    /// Reads the batches of a segment.
    fn segment<E>(
        &mut self,
        device: Device<'_, Refusal<E>>,
        block: &Super,
        (start, head, sum): Step,
        sealed: Option<u64>,
    ) -> Result<End, Refusal<E>> {
        let first = self.live.is_empty();
        // Before the oldest segment that is needed, what is not upstream was superseded or has been copied. Later records may
        // be left out if they were upstream before: the log device had failed then.
        let follows = if first {
            head.number == self.claims.oldest || head.first <= self.claims.applied + 1
        } else {
            head.first == self.next || (head.first > self.next && head.applied + 1 >= head.first)
        };
        if !follows {
            let why = Damage::Order;
            return Err(Refusal::Damaged { at: start, seq: self.next, why });
        }
        if first {
            (self.first, self.epoch) = (head.first, head.epoch);
        }
        self.next = head.first;
        let limit = start + sealed.unwrap_or(block.segment).min(block.segment);
        let Self { claims, batches, .. } = self;
        let end = chain(device, block, (start, head, sum), limit, |located| {
            claims.add_batch(&located.batch);
            batches.push(located);
        })?;
        self.next = end.next;
        let (at, bad) = (end.at, end.bad.unwrap_or(Bad::Magic));
        if sealed.is_some() && at != limit {
            let why = Damage::Batch(bad);
            return Err(Refusal::Damaged { at, seq: self.next, why });
        }
        self.live.push(Segment {
            number: head.number,
            slot: (start - SUPERS) / block.segment,
            first: head.first,
            last: self.next - 1,
            length: at - start,
            sealed: at - start,
            position: 0,
            frozen: true,
        });
        Ok(End { at, limit: start + block.segment, bad })
    }

    /// Where the segment after the last one is begun. A crash may have lost its first batches and kept later ones, which
    /// say what was durable. That some places were bad before the crash is not known here: if the segment was begun
    /// behind such a place, and its header is lost, too, those batches are not read.
    fn next_place(&self, block: &Super) -> Option<u64> {
        let mut ring = Space::ring(self.live.last().map(|last| last.slot), block.segments);
        let free = ring.find(|&slot| self.live.iter().all(|live| live.slot != slot))?;
        Some(Space::at(free, block.segment))
    }

    /// Payload of what no header says was durable: a crash may have kept the header without it.
    fn cut_torn<E>(&mut self, device: Device<'_, Refusal<E>>) -> Result<(), Refusal<E>> {
        let doubtful =
            self.batches.partition_point(|located| located.batch.last() <= self.claims.durable);
        for i in doubtful..self.batches.len() {
            let located = &self.batches[i];
            if verify(device, located, crc32c)?.is_none() {
                continue;
            }
            let (at, seq) = (located.at, located.batch.first);
            let last = self.live.last_mut().expect("a batch is in a segment");
            if located.batch.segment != last.number || seq <= self.claims.durable {
                return Err(Refusal::Damaged { at, seq, why: Damage::Payload });
            }
            last.length = at - (SUPERS + last.slot * self.segment);
            last.sealed = last.length;
            last.last = seq - 1;
            self.next = seq;
            self.batches.truncate(i);
            break;
        }
        Ok(())
    }

    fn end(self, block: &Super) -> Recovered {
        let (size, applied) = (u64::from(block.block), self.claims.applied);
        let before = applied.max(self.first.saturating_sub(1));
        let (mut found, mut epochs) = (Vec::new(), EpochsOf::from(self.epoch));
        for located in &self.batches {
            for (seq, record) in located.numbered() {
                let epoch = epochs.of(seq, record);
                if seq <= before {
                    continue;
                }
                let data = record.kind.is_data();
                found.push(FoundRecord {
                    kind: record.kind,
                    copy: record.copied().is_some(),
                    epoch,
                    start: if data { record.lba * size } else { 0 },
                    length: if data { u64::from(record.blocks) * size } else { 0 },
                    at: located.at + u64::from(record.payload_at),
                    sums: located.at + u64::from(record.sums_at),
                });
            }
        }
        let next = self.next.max(before + 1);
        Recovered {
            log: block.log,
            incarnation: block.incarnation,
            generation: block.generation,
            owner: self.claims.owner,
            block: block.block,
            segment: block.segment,
            segments: block.segments,
            applied,
            before,
            applied_super: self.applied_super,
            bypassed: block.bypassed,
            witnessed: self.claims.durable.min(next - 1),
            next,
            oldest: block.oldest,
            next_segment: self.claims.number + 1,
            live: self.live,
            found,
        }
    }
}

/// A segment is missing that records from `seq` on may have been in.
fn missing<E>(number: u64, seq: u64) -> Refusal<E> {
    Refusal::Damaged { at: SUPERS, seq, why: Damage::Segment(number) }
}

impl RecordKind {
    /// Whether it begins an epoch.
    pub(super) const fn cuts(self) -> bool {
        matches!(self, Self::Epoch)
    }
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
