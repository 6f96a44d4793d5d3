//! Batches: what one commit writes, and the records in it.

use super::bytes::{array, digest, put, u16_at, u32_at, u64_at};
use super::span::sums_of;
use super::{Bad, COUNTER_MAX, PAGE, RECORDS_MAX, SECTOR, VERSION};
use alloc::vec::Vec;

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The whole length on the device, in whole pages.
    pub bytes: u32,
    /// How many records it has.
    pub records: u32,
    /// Sequence number of the first record; the others follow without a gap.
    pub first: u64,
    /// Number of the segment that it was written to.
    pub segment: u64,
    /// Who wrote it.
    pub owner: u64,
    /// Checksum of the header before it in the segment: of the batch before, or of the segment.
    pub chain: u32,
    /// All records up to this one were durable when it was written.
    pub durable: u64,
    /// All records up to this one were upstream when it was written.
    pub applied: u64,
}

impl Batch {
    /// Sequence number of the last record.
    pub const fn last(&self) -> u64 {
        self.first + (self.records as u64 - 1)
    }
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Data was written.
    Write,
    /// Zeroes were written.
    Zero,
    /// Blocks were unmapped.
    Unmap,
    /// What follows comes upstream after everything before.
    Epoch,
    /// Another owner writes from here on.
    Owner,
    /// Nothing but what the header of its batch says.
    Note,
}

impl RecordKind {
    /// The number that stands for it.
    pub const fn code(self) -> u8 {
        match self {
            Self::Write => 1,
            Self::Zero => 2,
            Self::Unmap => 3,
            Self::Epoch => 4,
            Self::Owner => 5,
            Self::Note => 6,
        }
    }

    /// The kind with this number.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Write,
            2 => Self::Zero,
            3 => Self::Unmap,
            4 => Self::Epoch,
            5 => Self::Owner,
            6 => Self::Note,
            _ => return None,
        })
    }

    /// Its name for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Zero => "zero",
            Self::Unmap => "unmap",
            Self::Epoch => "epoch",
            Self::Owner => "owner",
            Self::Note => "note",
        }
    }

    /// Whether it changes what a read returns.
    pub const fn is_data(self) -> bool {
        matches!(self, Self::Write | Self::Zero | Self::Unmap)
    }
}

/// One record of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// What it is.
    pub kind: RecordKind,
    /// [`FLAG_FUA`](Self::FLAG_FUA), [`FLAG_MORE`](Self::FLAG_MORE) and [`FLAG_COPY`](Self::FLAG_COPY).
    pub flags: u8,
    /// Of which tenant.
    pub tenant: u32,
    /// First logical block; the number of the owner for `Owner`.
    pub lba: u64,
    /// How many blocks; the reason why the epoch was closed for `Epoch`.
    pub blocks: u32,
    /// Where the payload begins, in bytes from the start of the batch.
    pub payload_at: u32,
    /// Bytes of payload.
    pub payload: u32,
    /// Where the checksums of the payload begin, in bytes from the start of the batch.
    pub sums_at: u32,
    /// Who sent it; of a copy the epoch that it belongs to.
    pub initiator: u64,
    /// When, in nanoseconds since 1970; 0 if that is not known.
    pub time: u64,
}

impl Descriptor {
    /// The write had the FUA bit.
    pub const FLAG_FUA: u8 = 1;
    /// More pieces of the same write follow.
    pub const FLAG_MORE: u8 = 2;
    /// Data of an earlier record, written once more.
    pub const FLAG_COPY: u8 = 4;

    /// The epoch that it belongs to, if it is a copy; other records belong to the epoch that is open where they stand.
    pub const fn copied(&self) -> Option<u64> {
        if self.flags & Self::FLAG_COPY == 0 { None } else { Some(self.initiator) }
    }

    fn encode(&self, bytes: &mut [u8]) {
        bytes[0] = self.kind.code();
        bytes[1] = self.flags;
        put(bytes, 4, self.tenant.to_le_bytes());
        put(bytes, 8, self.lba.to_le_bytes());
        put(bytes, 16, self.blocks.to_le_bytes());
        put(bytes, 20, self.payload_at.to_le_bytes());
        put(bytes, 24, self.payload.to_le_bytes());
        put(bytes, 28, self.sums_at.to_le_bytes());
        put(bytes, 32, self.initiator.to_le_bytes());
        put(bytes, 40, self.time.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, Bad> {
        Ok(Self {
            kind: RecordKind::from_code(bytes[0]).ok_or(Bad::Field("kind"))?,
            flags: bytes[1],
            tenant: u32_at(bytes, 4),
            lba: u64_at(bytes, 8),
            blocks: u32_at(bytes, 16),
            payload_at: u32_at(bytes, 20),
            payload: u32_at(bytes, 24),
            sums_at: u32_at(bytes, 28),
            initiator: u64_at(bytes, 32),
            time: u64_at(bytes, 40),
        })
    }
}

/// How large a batch becomes, record by record.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cache::writeback) struct Size {
    pub(in crate::cache::writeback) records: u64,
    pub(in crate::cache::writeback) payload: u64,
    sums: u64,
}

impl Size {
    /// With one more record of so much payload.
    pub(in crate::cache::writeback) const fn with(self, payload: u64) -> Self {
        Self {
            records: self.records + 1,
            payload: self.payload + payload,
            sums: self.sums + sums_of(payload),
        }
    }

    const fn head(self) -> u64 {
        (HEAD + DESCRIPTOR * self.records + SUM * (self.sums + 1)).next_multiple_of(SECTOR)
    }

    /// The whole length on the device.
    pub(in crate::cache::writeback) const fn bytes(self) -> u64 {
        (self.head() + self.payload).next_multiple_of(PAGE)
    }
}

/// The most bytes that a batch of this payload in this number of records can have.
pub const fn batch_most(payload: u32, records: u32) -> u64 {
    let (payload, records) = (payload as u64, records as u64);
    Size { records, payload, sums: payload / super::SUMMED + records }.bytes()
}

/// The last entry of a table of checksums, which binds it to its batch: of the checksum of the entries before it and that
/// of the header. A crash may keep the header of a batch, and the table and payload that an earlier batch has left where
/// those of this one belong.
pub const fn binding(table: u32, header: u32) -> [u8; 4] {
    (table ^ header).to_le_bytes()
}

/// Gives each record its place, and encodes everything but payload and its checksums: the head of the
/// batch up to the payload with an empty table of checksums, its checksum, and where the table is.
/// `batch.bytes` and `batch.records` are filled in.
pub fn encode_batch(
    log: [u8; 16],
    batch: &mut Batch,
    descriptors: &mut [Descriptor],
) -> (Vec<u8>, u32, u32) {
    let size = descriptors.iter().fold(Size::default(), |size, d| size.with(d.payload.into()));
    batch.records = size.records as u32;
    batch.bytes = u32::try_from(size.bytes()).expect("a batch is below 4 GiB");
    let mut head = alloc::vec![0; size.head() as usize];
    put(&mut head, 0, *BATCH_MAGIC);
    put(&mut head, 4, (VERSION as u16).to_le_bytes());
    put(&mut head, 8, batch.bytes.to_le_bytes());
    put(&mut head, 12, batch.records.to_le_bytes());
    put(&mut head, 16, batch.first.to_le_bytes());
    put(&mut head, 24, batch.segment.to_le_bytes());
    put(&mut head, 32, batch.owner.to_le_bytes());
    put(&mut head, 40, batch.chain.to_le_bytes());
    put(&mut head, 44, batch.durable.to_le_bytes());
    put(&mut head, 52, batch.applied.to_le_bytes());
    let table = (HEAD + DESCRIPTOR * size.records) as u32;
    let (mut payload_at, mut sums_at) = (size.head() as u32, table);
    for (descriptor, bytes) in
        descriptors.iter_mut().zip(head[HEAD as usize..].chunks_exact_mut(DESCRIPTOR as usize))
    {
        (descriptor.payload_at, descriptor.sums_at) = (payload_at, sums_at);
        descriptor.encode(bytes);
        payload_at += descriptor.payload;
        sums_at += SUM as u32 * sums_of(descriptor.payload.into()) as u32;
    }
    let sum = checksum(log, &head, size.records as usize);
    put(&mut head, SUM_AT, sum.to_le_bytes());
    (head, sum, table)
}

/// How many bytes from the start of a page the descriptors of the batch that seems to begin there need;
/// `Err` if none begins there.
pub fn head_bytes(page: &[u8]) -> Result<usize, Bad> {
    if page.len() < HEAD as usize || array(page, 0) != *BATCH_MAGIC {
        return Err(Bad::Magic);
    }
    let records = u32_at(page, 12);
    if records == 0 || records > RECORDS_MAX {
        return Err(Bad::Field("records"));
    }
    Ok((HEAD + DESCRIPTOR * u64::from(records)) as usize)
}

/// Reads a batch of `log` whose logical blocks have `block` bytes from its first
/// [`head_bytes`]: its header with its checksum, and its records. `room` is what is left of the
/// segment.
pub fn decode_batch(
    log: [u8; 16],
    block: u32,
    room: u64,
    head: &[u8],
) -> Result<(Batch, u32, Vec<Descriptor>), Bad> {
    let needed = head_bytes(head)?;
    let head = head.get(..needed).ok_or(Bad::Field("records"))?;
    let records = u32_at(head, 12);
    let sum = u32_at(head, SUM_AT);
    if sum != checksum(log, head, records as usize) {
        return Err(Bad::Checksum);
    }
    if u16_at(head, 4) != VERSION as u16 {
        return Err(Bad::Version(u16_at(head, 4).into()));
    }
    let batch = Batch {
        bytes: u32_at(head, 8),
        records,
        first: u64_at(head, 16),
        segment: u64_at(head, 24),
        owner: u64_at(head, 32),
        chain: u32_at(head, 40),
        durable: u64_at(head, 44),
        applied: u64_at(head, 52),
    };
    if batch.first == 0 || batch.first > COUNTER_MAX {
        return Err(Bad::Field("first"));
    }
    let counters = [batch.segment, batch.owner, batch.durable, batch.applied];
    if counters.iter().any(|&counter| counter > COUNTER_MAX) {
        return Err(Bad::Field("counters"));
    }
    let descriptors = head[HEAD as usize..]
        .chunks_exact(DESCRIPTOR as usize)
        .map(Descriptor::decode)
        .collect::<Result<Vec<_>, _>>()?;
    let size = descriptors.iter().fold(Size::default(), |size, d| size.with(d.payload.into()));
    if size.bytes() != u64::from(batch.bytes) || size.bytes() > room {
        return Err(Bad::Field("bytes"));
    }
    let (mut payload_at, mut sums_at) = (size.head(), needed as u64);
    for (seq, d) in (batch.first..).zip(&descriptors) {
        let sound = |epoch: u64| d.kind.is_data() && 0 < epoch && epoch < seq;
        if d.copied().is_some_and(|epoch| !sound(epoch)) {
            return Err(Bad::Field("epoch"));
        }
        if u64::from(d.payload_at) != payload_at || u64::from(d.sums_at) != sums_at {
            return Err(Bad::Field("payload"));
        }
        payload_at += u64::from(d.payload);
        sums_at += SUM * sums_of(d.payload.into());
        let bytes = u64::from(d.blocks) * u64::from(block);
        let end = d.lba.checked_mul(block.into()).and_then(|at| at.checked_add(bytes));
        let payload = if d.kind == RecordKind::Write { bytes } else { 0 };
        if u64::from(d.payload) != payload || (d.kind.is_data() && (d.blocks == 0 || end.is_none()))
        {
            return Err(Bad::Field("blocks"));
        }
    }
    Ok((batch, sum, descriptors))
}

/// The data records that a page with an unreadable batch header seems to name. Nothing proves them: this is for
/// people who want to know where to look. At most what one page has room for.
pub fn presumed(block: u32, page: &[u8]) -> Vec<Descriptor> {
    let Ok(needed) = head_bytes(page) else { return Vec::new() };
    let within = needed.min(page.len());
    let plausible = |d: &Descriptor| {
        let bytes = u64::from(d.blocks) * u64::from(block);
        let payload = if d.kind == RecordKind::Write { bytes } else { 0 };
        let fits = d.lba.checked_mul(block.into()).and_then(|at| at.checked_add(bytes));
        d.kind.is_data() && d.blocks > 0 && u64::from(d.payload) == payload && fits.is_some()
    };
    page[HEAD as usize..within]
        .chunks_exact(DESCRIPTOR as usize)
        .filter_map(|bytes| Descriptor::decode(bytes).ok())
        .filter(plausible)
        .collect()
}

/// Of the name of the log, the header but for the checksum itself, and the descriptors.
fn checksum(log: [u8; 16], head: &[u8], records: usize) -> u32 {
    let mut digest = digest();
    digest.update(&log);
    digest.update(&head[..SUM_AT]);
    digest.update(&head[HEAD as usize..][..DESCRIPTOR as usize * records]);
    digest.finalize()
}

const BATCH_MAGIC: &[u8; 4] = b"WBAT";
const HEAD: u64 = 64;
const DESCRIPTOR: u64 = 48;
const SUM: u64 = 4;
const SUM_AT: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: [u8; 16] = [9; 16];

    fn record(kind: RecordKind, lba: u64, blocks: u32) -> Descriptor {
        let payload = if kind == RecordKind::Write { blocks * 512 } else { 0 };
        Descriptor {
            kind,
            flags: Descriptor::FLAG_FUA,
            tenant: 3,
            lba,
            blocks,
            payload_at: 0,
            payload,
            sums_at: 0,
            initiator: 4,
            time: 5,
        }
    }

    fn batch() -> (Batch, Vec<Descriptor>) {
        let batch = Batch {
            bytes: 0,
            records: 0,
            first: 1,
            segment: 2,
            owner: 3,
            chain: 4,
            durable: 5,
            applied: 6,
        };
        let records = [
            record(RecordKind::Owner, 7, 0),
            record(RecordKind::Epoch, 0, 2),
            record(RecordKind::Write, 100, 9),
            record(RecordKind::Zero, 8, 1 << 31),
            record(RecordKind::Unmap, 8, 1),
            record(RecordKind::Write, 100, 1),
            record(RecordKind::Note, 0, 0),
        ];
        (batch, records.to_vec())
    }

    /// A copy belongs to an epoch that began before it, perhaps in its batch, and has data.
    #[test]
    fn a_copy_names_an_older_epoch() {
        let decoded = |kind, initiator| {
            let (mut head, _) = batch();
            let flags = Descriptor::FLAG_COPY;
            let copy = Descriptor { flags, initiator, ..record(kind, 8, 1) };
            let mut records = [record(RecordKind::Epoch, 0, 2), copy];
            head.first = 7;
            let (bytes, ..) = encode_batch(LOG, &mut head, &mut records);
            decode_batch(LOG, 512, 8192, &bytes).map(|(_, _, records)| records[1].copied())
        };
        assert_eq!(decoded(RecordKind::Write, 6), Ok(Some(6)));
        assert_eq!(decoded(RecordKind::Unmap, 1), Ok(Some(1)));
        assert_eq!(decoded(RecordKind::Write, 7), Ok(Some(7)), "that of the record before it");
        for (kind, epoch) in [(RecordKind::Write, 8), (RecordKind::Write, 0), (RecordKind::Note, 6)]
        {
            assert_eq!(decoded(kind, epoch), Err(Bad::Field("epoch")));
        }
    }

    /// What was written is read again, and no flipped bit of what is covered passes.
    #[test]
    fn batches_survive_the_way_there_and_back() {
        let (mut head, mut records) = batch();
        let (mut bytes, sum, table) = encode_batch(LOG, &mut head, &mut records);
        assert_eq!((table, bytes.len(), head.bytes), (64 + 48 * 7, 512, 8192));
        assert_eq!((records[2].payload_at, records[5].payload_at), (512, 512 + 9 * 512));
        assert_eq!((records[2].sums_at, records[5].sums_at), (table, table + 8));
        assert_eq!(decode_batch(LOG, 512, 8192, &bytes), Ok((head, sum, records)));
        assert_eq!(decode_batch(LOG, 512, 8191, &bytes), Err(Bad::Field("bytes")));
        assert_eq!(decode_batch([8; 16], 512, 8192, &bytes), Err(Bad::Checksum));
        assert_eq!(decode_batch(LOG, 512, 8192, &bytes[..63]), Err(Bad::Magic));
        assert_eq!(decode_batch(LOG, 512, 8192, &bytes[..100]), Err(Bad::Field("records")));
        assert_eq!(decode_batch(LOG, 4096, 8192, &bytes), Err(Bad::Field("blocks")));
        for bit in 0..table as usize * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_batch(LOG, 512, 8192, &bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// The bound on a batch holds for the worst mix of records.
    #[test]
    fn the_largest_batch_is_known() {
        let mut size = Size::default();
        for _ in 0..255 {
            size = size.with(512);
        }
        size = size.with((1 << 20) - 255 * 512);
        assert!(size.bytes() <= batch_most(1 << 20, 256));
    }
}
