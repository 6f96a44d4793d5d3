//! Reads log bytes on its own, and forges them for the planted bugs of recovery.

use super::plan::Plan;
use weir_flow::cache::writeback::format::{
    Batch, Descriptor, PAGE, SUMMED, SUPERS, SegmentHead, Super, binding, crc32c, decode_batch,
    encode_batch, sums_of,
};

/// No super block says that writes have bypassed the log.
pub(super) fn forget_debt(bytes: &mut [u8]) {
    for at in [0, PAGE as usize] {
        if let Ok(block) = Super::decode(&bytes[at..]) {
            let page = Super { bypassed: false, ..block }.encode();
            bytes[at..at + page.len()].copy_from_slice(&page);
        }
    }
}

/// The last record that something on the device says was durable.
pub(super) fn witnessed(plan: &Plan, bytes: &[u8]) -> u64 {
    let supers = [0, PAGE as usize].map(|at| Super::decode(&bytes[at..]).map_or(0, |b| b.durable));
    let pages = (SUPERS as usize..bytes.len()).step_by(PAGE as usize);
    let batches = pages.filter_map(|at| batch(plan, bytes, at, bytes.len()));
    let batches = batches.map(|(found, ..)| found.durable);
    batches.chain(supers).max().unwrap_or(0)
}

/// Whether something on the device says that what has payload here was durable: else rot looks like the torn end of the log.
pub(super) fn is_confirmed(plan: &Plan, bytes: &[u8], payload: usize) -> bool {
    let witnessed = witnessed(plan, bytes);
    (SUPERS as usize..payload).step_by(PAGE as usize).any(|at| {
        let found = batch(plan, bytes, at, bytes.len());
        found.is_some_and(|(found, ..)| {
            payload < at + found.bytes as usize && found.last() <= witnessed
        })
    })
}

/// A damaged log ends where it is damaged, and nothing says that there was more.
pub(super) fn cut_off(plan: &Plan, bytes: &mut [u8], at: usize, seq: u64) {
    let segment = plan.settings.segment as usize;
    let start = SUPERS as usize + (at.max(SUPERS as usize) - SUPERS as usize) / segment * segment;
    let number =
        SegmentHead::decode(plan.name(), &bytes[start..]).map_or(0, |(head, _)| head.number);
    for other in (SUPERS as usize..bytes.len() + 1 - segment).step_by(segment) {
        let head = SegmentHead::decode(plan.name(), &bytes[other..]);
        if head.is_ok_and(|(head, _)| head.number > number) {
            bytes[other..other + segment].fill(0);
        }
    }
    bytes[at..start + segment].fill(0);
    for at in [0, PAGE as usize] {
        if let Ok(block) = Super::decode(&bytes[at..]) {
            let durable = block.durable.min(seq - 1);
            let page = Super { durable, ..block }.encode();
            bytes[at..at + page.len()].copy_from_slice(&page);
        }
    }
}

/// Every batch's payload gets the checksums that it should have.
pub(super) fn believe_payload(plan: &Plan, bytes: &mut [u8]) {
    for at in (SUPERS as usize..bytes.len()).step_by(PAGE as usize) {
        let Some((_, _, records)) = batch(plan, bytes, at, bytes.len()) else { continue };
        for record in records {
            let (from, length) = (at + record.payload_at as usize, record.payload as usize);
            let sums: Vec<u8> = bytes[from..from + length]
                .chunks(SUMMED as usize)
                .flat_map(|piece| crc32c(piece).to_le_bytes())
                .collect();
            let table = at + record.sums_at as usize;
            bytes[table..table + sums.len()].copy_from_slice(&sums);
        }
    }
    bind_tables(plan, bytes);
}

/// Every batch whose header is torn gets the checksum that it should have, if its fields make sense.
pub(super) fn believe_headers(plan: &Plan, bytes: &mut [u8]) {
    for at in (SUPERS as usize..bytes.len()).step_by(PAGE as usize) {
        let records = u32::from_le_bytes(*bytes[at + 12..].first_chunk().expect("in a page"));
        let end = at + 64 + 48 * records as usize;
        if !bytes[at..].starts_with(b"WBAT") || !(1..=64).contains(&records) || end > bytes.len() {
            continue;
        }
        let mut covered = plan.name().to_vec();
        covered.extend(&bytes[at..at + 60]);
        covered.extend(&bytes[at + 64..end]);
        bytes[at + 60..at + 64].copy_from_slice(&crc32c(&covered).to_le_bytes());
        if let Some((_, sum, records)) = batch(plan, bytes, at, bytes.len()) {
            bind(bytes, at, sum, &records);
        }
    }
}

/// Every table of checksums becomes that of the batch which it is in.
pub(super) fn bind_tables(plan: &Plan, bytes: &mut [u8]) {
    for at in (SUPERS as usize..bytes.len()).step_by(PAGE as usize) {
        let Some((_, sum, records)) = batch(plan, bytes, at, bytes.len()) else { continue };
        bind(bytes, at, sum, &records);
    }
}

pub(super) fn bind(bytes: &mut [u8], at: usize, sum: u32, records: &[Descriptor]) {
    let table = at + records[0].sums_at as usize;
    let sums: u64 = records.iter().map(|record| sums_of(record.payload.into())).sum();
    let end = table + 4 * sums as usize;
    let bound = binding(crc32c(&bytes[table..end]), sum);
    bytes[end..end + 4].copy_from_slice(&bound);
}

/// What earlier uses of a segment have left behind its last batch gets the numbers that would belong there.
pub(super) fn believe_old_batches(plan: &Plan, bytes: &mut [u8]) {
    let segment = plan.settings.segment as usize;
    for start in (SUPERS as usize..bytes.len() + 1 - segment).step_by(segment) {
        let Ok((head, mut chain)) = SegmentHead::decode(plan.name(), &bytes[start..]) else {
            continue;
        };
        let (mut at, mut next) = (start + PAGE as usize, head.first);
        let end = start + segment;
        while let Some((mut found, sum, mut records)) = batch(plan, bytes, at, end) {
            if (found.segment, found.chain) == (head.number, chain) {
                chain = sum;
            } else {
                (found.segment, found.first, found.chain) = (head.number, next, chain);
                (found.durable, found.applied) = (0, 0);
                let (forged, sum, table) = encode_batch(plan.name(), &mut found, &mut records);
                let table = table as usize;
                bytes[at..at + table].copy_from_slice(&forged[..table]);
                bind(bytes, at, sum, &records);
                chain = sum;
            }
            (at, next) = (at + found.bytes as usize, found.last() + 1);
        }
    }
}

/// The batch that begins here, if one does that is whole.
pub(super) fn batch(
    plan: &Plan,
    bytes: &[u8],
    at: usize,
    end: usize,
) -> Option<(Batch, u32, Vec<Descriptor>)> {
    let room = end.checked_sub(at).filter(|&room| room >= PAGE as usize)?;
    let found = decode_batch(plan.name(), plan.settings.block, room as u64, &bytes[at..end]);
    found.ok()
}
