//! Logs as they may be found on a device.
//!
//! An input is a list of things that are put on an empty device: super blocks, segment headers and batches with
//! checksums that are right and fields that need not be, and bytes anywhere. What is read of it must be bounded, and
//! what is found in it in order.

use std::convert::Infallible;
use weir_flow::cache::writeback::format::{
    Batch, Descriptor, PAGE, RecordKind, SUPERS, SegmentHead, Super, binding, crc32c, encode_batch,
};
use weir_flow::cache::writeback::inspect::{Inspection, as_found, inspect};
use weir_flow::cache::writeback::reader::payload;
use weir_flow::cache::writeback::{Log, Recovered, Settings, recover};
use weir_flow::settings::Settings as _;

const LOG: [u8; 16] = [7; 16];
const SEGMENT: u64 = 32 << 10;
const SEGMENTS: u64 = 4;
const SIZE: usize = (SUPERS + SEGMENT * SEGMENTS) as usize;

/// More bytes than any look at the device has to read: each place a few times, and the descriptors of what may begin
/// at each page.
const READ_MOST: usize = 64 * SIZE;

/// Looks at one input.
pub(crate) fn run(input: &[u8]) {
    let mut bytes = vec![0; SIZE];
    let mut input = Input(input);
    let mut sum = 0;
    while let Some(what) = input.next() {
        put(what, &mut input, &mut bytes, &mut sum);
    }
    // A device may be shorter than its log.
    look(&bytes);
    look(&bytes[..SIZE / 2 + 100]);
}

/// Puts one thing on the device. `sum` is the checksum of the header before, which the next batch is chained to.
fn put(what: u8, input: &mut Input<'_>, bytes: &mut [u8], sum: &mut u32) {
    match what % 5 {
        0 => {
            let block = Super {
                log: LOG,
                volume: [1; 16],
                incarnation: input.number(),
                generation: input.number(),
                owner: input.number(),
                segment: if what < 240 { SEGMENT } else { input.number().wrapping_mul(PAGE) },
                segments: if what < 240 { SEGMENTS } else { input.number() },
                block: if what < 240 { 512 } else { input.number() as u32 },
                oldest: input.number(),
                applied: input.number(),
                durable: input.number(),
                clean: what & 8 > 0,
                bypassed: what & 16 > 0,
            };
            write(bytes, block.place(), &block.encode());
        }
        1 => {
            let head = SegmentHead {
                log: LOG,
                number: input.number(),
                first: input.number(),
                owner: input.number(),
                previous: input.number(),
                sealed: input.number().wrapping_mul(PAGE),
                oldest: input.number(),
                durable: input.number(),
                applied: input.number(),
                epoch: input.number(),
            };
            let (page, of) = head.encode();
            *sum = of;
            write(bytes, SUPERS + u64::from(what / 5) % SEGMENTS * SEGMENT, &page);
        }
        2 | 3 => batch(what, input, bytes, sum),
        _ => {
            let at = u64::from(input.next().unwrap_or(0)) * 512
                + u64::from(input.next().unwrap_or(0)) * 2;
            let some: Vec<u8> = (0..=what / 16).filter_map(|_| input.next()).collect();
            write(bytes, at, &some);
        }
    }
}

fn batch(what: u8, input: &mut Input<'_>, bytes: &mut [u8], sum: &mut u32) {
    let at = SUPERS + u64::from(input.next().unwrap_or(0)) % (SEGMENTS * SEGMENT / PAGE) * PAGE;
    let mut batch = Batch {
        bytes: 0,
        records: 0,
        first: input.number(),
        segment: input.number(),
        owner: input.number(),
        chain: if what < 200 { *sum } else { 5 },
        durable: input.number(),
        applied: input.number(),
    };
    let mut records: Vec<Descriptor> = (0..=what / 5 % 4).map(|_| record(input)).collect();
    let (mut head, of, table) = encode_batch(LOG, &mut batch, &mut records);
    *sum = of;
    // Payload is zeroes, and its checksums are right but for some.
    let mut place = table as usize;
    for piece in records.iter().flat_map(|one| pieces(one.payload)) {
        let right = crc32c(&vec![0; piece]);
        head[place..place + 4].copy_from_slice(&(right ^ u32::from(what > 250)).to_le_bytes());
        place += 4;
    }
    let bound = binding(crc32c(&head[table as usize..place]), of);
    head[place..place + 4].copy_from_slice(&bound);
    head.resize(batch.bytes as usize, 0);
    write(bytes, at, &head);
}

/// The lengths of the parts that have a checksum.
fn pieces(payload: u32) -> impl Iterator<Item = usize> {
    (0..payload as usize).step_by(4096).map(move |at| (payload as usize - at).min(4096))
}

fn record(input: &mut Input<'_>) -> Descriptor {
    let kind = RecordKind::from_code(1 + input.next().unwrap_or(0) % 6).expect("there are six");
    let lba = input.number();
    let blocks = if kind == RecordKind::Write { 1 + lba as u32 % 8 } else { input.number() as u32 };
    let payload = if kind == RecordKind::Write { blocks * 512 } else { 0 };
    Descriptor {
        kind,
        flags: input.next().unwrap_or(0) & Descriptor::FLAG_COPY,
        tenant: 0,
        lba,
        blocks,
        payload_at: 0,
        payload,
        sums_at: 0,
        initiator: input.number(),
        time: 0,
    }
}

fn write(bytes: &mut [u8], at: u64, what: &[u8]) {
    let Some(room) = bytes.get_mut(at as usize..) else { return };
    let length = what.len().min(room.len());
    room[..length].copy_from_slice(&what[..length]);
}

/// Everybody who reads logs reads this one.
fn look(bytes: &[u8]) {
    let mut read = 0;
    let mut device = |at: u64, into: &mut [u8]| {
        read += into.len();
        assert!(read < READ_MOST, "it reads without an end");
        into.fill(0);
        if let Some(there) = bytes.get(at as usize..) {
            let length = there.len().min(into.len());
            into[..length].copy_from_slice(&there[..length]);
        }
        Ok::<_, Infallible>(())
    };
    let seen = match inspect(&mut device, bytes.len() as u64) {
        Ok(seen) => seen,
        Err(refusal) => {
            assert!(!refusal.to_string().is_empty());
            return;
        }
    };
    consistent(&seen);
    for located in &seen.batches {
        for (_, record) in located.numbered() {
            let Ok(_) = payload(&mut device, located, record, crc32c);
        }
    }
    let settings = Settings { batch_bytes: 4096, batch_records: 4, ..as_found(&seen.block) };
    match recover(&mut device, bytes.len() as u64, &settings) {
        Ok(recovered) => opened(&settings, &recovered, &seen),
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
}

/// What counts is in order and once, within what there is, and nothing that is there is said to be lost.
fn consistent(seen: &Inspection) {
    let mut next = 0;
    for located in &seen.batches {
        assert!(located.batch.first >= next, "records are in order");
        next = located.batch.last() + 1;
    }
    for gap in &seen.gaps {
        assert!(gap.first <= gap.last && gap.first > seen.applied);
        let lost = |batch: &Batch| batch.first <= gap.last && batch.last() >= gap.first;
        assert!(
            !seen.batches.iter().any(|located| lost(&located.batch)),
            "what is there is not lost"
        );
    }
    assert!(seen.flaws.iter().all(|flaw| !flaw.kind.to_string().is_empty()));
}

/// What a gateway opens can be recorded, and served. (That both readers find the same in logs that were
/// written by a gateway is another test, with real logs: `writeback/tests/flips.rs`.)
fn opened(settings: &Settings, recovered: &Recovered, seen: &Inspection) {
    assert!(recovered.applied() <= seen.applied);
    assert_eq!(Recovered::decode(&recovered.encode()).as_ref(), Ok(recovered));
    if settings.validate().is_ok() {
        let _ = Log::new(*settings, recovered);
    }
}

/// What is left of an input.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Small numbers, and some at which an addition or a product overflows.
    fn number(&mut self) -> u64 {
        match self.next().unwrap_or(0) {
            byte @ ..240 => u64::from(byte % 48),
            byte @ 240..248 => (u64::MAX >> 1) - u64::from(byte - 240),
            byte => u64::MAX - u64::from(byte - 248),
        }
    }
}
