//! Reads a log: for recovery, and for commands that inspect logs without the gateway.
//!
//! [`survey`] reads super blocks and segment headers, and [`Claims`] is what they say; [`chain`] walks the batches of
//! a segment, [`batch_at`] and [`scan`] find batches anywhere; [`verify`] checks their payload. None of them decides
//! what that means: [`recover`](super::recover) and [`inspect`](super::inspect) do.

use super::format::{
    Bad, Batch, Descriptor, PAGE, RecordKind, SECTOR, SUPERS, SegmentHead, Span, Super, binding,
    decode_batch, head_bytes, sums_of,
};
use alloc::vec::Vec;

/// Reads from the log device, at a byte offset, exactly as many bytes as there is room for.
pub type Device<'a, E> = &'a mut dyn FnMut(u64, &mut [u8]) -> Result<(), E>;

/// What super blocks and segment headers say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Super blocks A and B.
    pub supers: [Result<Super, Bad>; 2],
    /// The places for segments, in order.
    pub slots: Vec<Slot>,
}

/// A place for a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Where it begins on the device.
    pub at: u64,
    /// The header there, with its checksum.
    pub head: Result<(SegmentHead, u32), Bad>,
    /// The first page is all zeroes: it was never used.
    pub blank: bool,
    /// The number of the segment that the first batch there belongs to, if a batch is there.
    pub first_batch: Option<u64>,
}

/// A batch, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Where it begins on the device.
    pub at: u64,
    /// Its header.
    pub batch: Batch,
    /// The checksum of the header, which the next batch is chained to.
    pub sum: u32,
    /// Its records.
    pub records: Vec<Descriptor>,
}

impl Located {
    /// Where the payload of a record is on the device.
    pub fn span(&self, record: &Descriptor) -> Span {
        Span {
            at: self.at + u64::from(record.payload_at),
            length: record.payload.into(),
            record: self.at + u64::from(record.payload_at),
            bytes: record.payload.into(),
            sums: self.at + u64::from(record.sums_at),
        }
    }

    /// The records with their sequence numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u64, &Descriptor)> {
        (self.batch.first..).zip(&self.records)
    }
}

/// The epochs of records, in the order of the log, each named after its first record.
#[derive(Clone, Copy, Debug)]
pub struct EpochsOf(u64);

impl EpochsOf {
    /// From a segment on whose header names this epoch.
    pub const fn from(open: u64) -> Self {
        Self(open)
    }

    /// The epoch of the next record.
    pub fn of(&mut self, seq: u64, record: &Descriptor) -> u64 {
        if let Some(epoch) = record.copied() {
            return epoch;
        }
        if record.kind.cuts() || (record.kind.is_data() && self.0 == 0) {
            self.0 = seq;
        }
        self.0
    }
}

/// The super blocks of a device, and the newest of them.
pub fn supers<E>(device: Device<'_, E>) -> Result<[Result<Super, Bad>; 2], E> {
    let mut copies = [Err(Bad::Magic); 2];
    for (copy, at) in copies.iter_mut().zip([0, PAGE]) {
        let mut page = [0; SECTOR as usize];
        device(at, &mut page)?;
        *copy = Super::decode(&page);
    }
    Ok(copies)
}

/// The newer of two super blocks.
pub fn newest(copies: &[Result<Super, Bad>; 2]) -> Option<Super> {
    copies.iter().flatten().max_by_key(|copy| copy.generation).copied()
}

/// Looks at everything that `of` says is there, which is the [`newest`] of the [`supers`].
pub fn survey<E>(device: Device<'_, E>, of: &Super) -> Result<Survey, E> {
    let supers = supers(device)?;
    let mut slots = Vec::new();
    let mut pages = alloc::vec![0; 2 * PAGE as usize];
    for slot in 0..of.segments {
        let at = SUPERS + slot * of.segment;
        device(at, &mut pages)?;
        let (page, first) = pages.split_at(PAGE as usize);
        let (head, blank) = (SegmentHead::decode(of.log, page), page.iter().all(|&byte| byte == 0));
        let first = first.to_vec();
        let batch = head_and(device, of, at + PAGE, of.segment - PAGE, &first)?;
        let first_batch = batch.ok().map(|found| found.batch.segment);
        slots.push(Slot { at, head, blank, first_batch });
    }
    Ok(Survey { supers, slots })
}

/// The batch that begins at `at`, in a segment with `room` bytes from there on. Its payload is not
/// checked.
pub fn batch_at<E>(
    device: Device<'_, E>,
    of: &Super,
    at: u64,
    room: u64,
) -> Result<Result<Located, Bad>, E> {
    if room < PAGE {
        return Ok(Err(Bad::Magic));
    }
    let mut page = alloc::vec![0; PAGE as usize];
    device(at, &mut page)?;
    head_and(device, of, at, room, &page)
}

/// The same, if the first page has been read.
fn head_and<E>(
    device: Device<'_, E>,
    of: &Super,
    at: u64,
    room: u64,
    page: &[u8],
) -> Result<Result<Located, Bad>, E> {
    let needed = match head_bytes(page) {
        Ok(needed) if needed as u64 <= room => needed,
        Ok(_) => return Ok(Err(Bad::Field("records"))),
        Err(bad) => return Ok(Err(bad)),
    };
    let mut head = page.to_vec();
    if needed > head.len() {
        let have = head.len();
        head.resize(needed.next_multiple_of(SECTOR as usize), 0);
        device(at + have as u64, &mut head[have..])?;
    }
    Ok(decode_batch(of.log, of.block, room, &head).map(|(batch, sum, records)| Located {
        at,
        batch,
        sum,
        records,
    }))
}

/// What the intact headers of a log say was true when they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The highest record that was durable.
    pub durable: u64,
    /// The highest record that was upstream.
    pub applied: u64,
    /// The highest owner that has written.
    pub owner: u64,
    /// The highest segment number that was used.
    pub number: u64,
    /// Number of the oldest segment that is needed: older ones do not count.
    pub oldest: u64,
}

impl Claims {
    /// Those of the newest super block and of all segment headers.
    pub fn new(block: &Super, slots: &[Slot]) -> Self {
        let Super { durable, applied, owner, oldest, .. } = *block;
        let mut claims = Self { durable, applied, owner, number: 0, oldest };
        for slot in slots {
            claims.number = claims.number.max(slot.first_batch.unwrap_or(0));
            if let Ok((head, _)) = slot.head {
                claims.add(head.durable, head.applied, head.owner);
                claims.number = claims.number.max(head.number);
                claims.oldest = claims.oldest.max(head.oldest);
            }
        }
        claims
    }

    /// Adds the claims of any super block, whether it is the newest or not.
    pub fn add_super(&mut self, copy: &Super) {
        self.add(copy.durable, copy.applied, copy.owner);
    }

    /// Adds the claims of a batch, wherever it is.
    pub fn add_batch(&mut self, batch: &Batch) {
        self.add(batch.durable, batch.applied, batch.owner);
        self.number = self.number.max(batch.segment);
    }

    fn add(&mut self, durable: u64, applied: u64, owner: u64) {
        self.durable = self.durable.max(durable);
        self.applied = self.applied.max(applied);
        self.owner = self.owner.max(owner);
    }
}

/// Where the batches of a segment stop following each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainEnd {
    /// Where on the device.
    pub at: u64,
    /// The record that would come next.
    pub next: u64,
    /// What is there instead of the next batch; `None` at the limit.
    pub bad: Option<Bad>,
}

/// Walks the batches of the segment at `start` up to `limit`, each of which follows the one before: `found` gets each.
pub fn chain<E>(
    device: Device<'_, E>,
    of: &Super,
    (start, head, sum): (u64, SegmentHead, u32),
    limit: u64,
    mut found: impl FnMut(Located),
) -> Result<ChainEnd, E> {
    let (mut at, mut chain, mut next) = (start + PAGE, sum, head.first);
    while at < limit {
        let located = match batch_at(device, of, at, limit - at)? {
            Ok(located) => located,
            Err(bad) => return Ok(ChainEnd { at, next, bad: Some(bad) }),
        };
        let batch = &located.batch;
        if batch.segment != head.number || batch.first != next || batch.chain != chain {
            return Ok(ChainEnd { at, next, bad: Some(Bad::Foreign) });
        }
        (chain, next) = (located.sum, batch.last() + 1);
        at += u64::from(batch.bytes);
        found(located);
    }
    Ok(ChainEnd { at, next, bad: None })
}

/// Every intact batch header between `from` and the end of a segment, whatever is between them:
/// `found` learns of each.
pub fn scan<E>(
    device: Device<'_, E>,
    of: &Super,
    from: u64,
    end: u64,
    mut found: impl FnMut(Located),
) -> Result<(), E> {
    let mut at = from;
    let mut chunk = alloc::vec![0; CHUNK.min(end.saturating_sub(from)) as usize];
    while at < end {
        let length = CHUNK.min(end - at);
        let chunk = &mut chunk[..length as usize];
        device(at, chunk)?;
        for (i, page) in chunk.chunks(PAGE as usize).enumerate() {
            let place = at + i as u64 * PAGE;
            if page.len() == PAGE as usize
                && let Ok(located) = head_and(device, of, place, end - place, page)?
            {
                found(located);
            }
        }
        at += length;
    }
    Ok(())
}

/// The first record of a batch whose payload is not what was written, by its place in the batch. If the checksums are not
/// those of this batch, none of its records is.
pub fn verify<E>(
    device: Device<'_, E>,
    located: &Located,
    crc32c: impl Fn(&[u8]) -> u32,
) -> Result<Option<usize>, E> {
    let count: u64 = located.records.iter().map(|record| sums_of(record.payload.into())).sum();
    let mut table = alloc::vec![0; 4 * (count as usize + 1)];
    let first = located.records.first().expect("a batch has a record").sums_at;
    device(located.at + u64::from(first), &mut table)?;
    let (sums, bound) = table.split_at(4 * count as usize);
    if bound != binding(crc32c(sums), located.sum) {
        return Ok(Some(0));
    }
    for (i, record) in located.records.iter().enumerate() {
        if payload(device, located, record, &crc32c)?.is_err() {
            return Ok(Some(i));
        }
    }
    Ok(None)
}

/// The payload of a record of a batch if it is what was written, else where on the device it is not. Nothing for a
/// record without payload.
pub fn payload<E>(
    device: Device<'_, E>,
    located: &Located,
    record: &Descriptor,
    crc32c: impl Fn(&[u8]) -> u32,
) -> Result<Result<Vec<u8>, u64>, E> {
    let span = located.span(record);
    let mut sums = alloc::vec![0; 4 * sums_of(span.bytes) as usize];
    let mut payload = alloc::vec![0; span.bytes as usize];
    if record.kind == RecordKind::Write {
        device(span.sums, &mut sums)?;
        device(span.at, &mut payload)?;
        if let Err(at) = span.check(&sums, &payload, &crc32c) {
            return Ok(Err(at));
        }
    }
    Ok(Ok(payload))
}

/// How much is read at once when looking for batches.
const CHUNK: u64 = 1 << 20;
