//! Workloads in which a log is cleaned, and what recovery does wrong with copies on purpose.

use super::bug::Bug;
use super::forge::{batch, bind};
use super::plan::{Ask, Plan, What};
use weir_flow::cache::writeback::format::{
    PAGE, SUPERS, SegmentHead, Super, batch_most, encode_batch,
};
use weir_flow::cache::writeback::{Mode, Order};
use weir_flow::rng::Rng;

impl Plan {
    /// Hosts write a few blocks again and again while the upstream is away or slow, into a log of many small segments.
    pub(super) fn overwrites(&mut self) {
        let mut rng = Rng::stream(self.seed, "crash/overwrites");
        let mut one = |of: &[u64]| of[rng.below(of.len() as u64) as usize];
        let settings = &mut self.settings;
        let block = u64::from(settings.block);
        (settings.batch_bytes, settings.batch_records) = ((block * one(&[2, 4])) as u32, 3);
        settings.epoch_bytes = block * one(&[8, 1000]);
        let room = batch_most(settings.batch_bytes, settings.batch_records);
        settings.segment = PAGE + room * one(&[1, 2]);
        settings.capacity = SUPERS + settings.segment * one(&[7, 9, 12]);
        (settings.mode, settings.depth) =
            ([Mode::Log, Mode::Log, Mode::Ram][one(&[0, 1, 2]) as usize], 1);
        settings.order = [Order::Flush, Order::Auto][one(&[0, 0, 1]) as usize];
        (self.dies, self.silent) = (false, 0);
        (self.upstream_faults, self.outage, self.resets) = (one(&[10, 30]), one(&[20, 60]), 0);
        (self.depth, self.local_faults) = (one(&[2, 4]) as usize, one(&[0, 0, 1]));
        self.sectors = 64;
        let per_block = self.settings.block / 512;
        let blocks = u64::from(self.sectors / per_block);
        for life in &mut self.lives {
            let count = 20 + rng.below(30);
            let asks = (0..count).map(|i| {
                let hot = rng.below(6) > 0;
                let first = if hot { rng.below(3) } else { rng.below(blocks - 2) };
                let sectors =
                    first as u32 * per_block..(first + 1 + rng.below(2)) as u32 * per_block;
                let what = match rng.below(24) {
                    _ if i < 3 => What::Write { sectors, fua: false },
                    0 => What::Flush,
                    1 => What::Read(sectors),
                    2 => What::Zero(sectors),
                    3 => What::Unmap(sectors),
                    4 => What::Write { sectors, fua: true },
                    _ => What::Write { sectors, fua: false },
                };
                Ask { host: 0, what }
            });
            *life = asks.collect();
        }
        let mut rng = Rng::stream(self.seed, "crash/beside overwrites");
        self.tears = rng.below(3) == 0;
        self.changes = rng.below(4) == 0;
        match rng.below(4) {
            _ if self.decay > 0 => {}
            0 => {
                // Many writes are on their way when a gateway dies.
                (self.late, self.fence, self.rivals) = (true, true, 0);
                self.settings.depth = 4;
            }
            1 => (self.late, self.fence, self.rivals) = (true, true, 10),
            _ => {}
        }
        if self.settings.block == 512 && rng.below(6) == 0 {
            self.overwrites_in_large_batches(&mut rng);
        }
    }

    /// The same of single blocks, with many outstanding: batches have many records, and copies of them.
    fn overwrites_in_large_batches(&mut self, rng: &mut Rng) {
        let records = 20;
        let settings = &mut self.settings;
        let segments = settings.segments();
        (settings.batch_bytes, settings.batch_records) = (records * settings.block, records);
        settings.segment = PAGE + batch_most(settings.batch_bytes, records);
        settings.capacity = SUPERS + settings.segment * segments;
        (self.depth, self.sparse) = (2 * records as usize, records.into());
        // An epoch of many writes is written again after each of these.
        (self.upstream_faults, self.outage) = (3, 20);
        for life in &mut self.lives {
            let count = 200 + rng.below(100);
            let asks = (0..count).map(|i| {
                // What is written first is needed for long, in many records.
                let hot = i > 40 && rng.below(12) > 0;
                let first = rng.below(if hot { 12 } else { self.sectors.into() }) as u32;
                let flushes = rng.below(80) == 0;
                let write = What::Write { sectors: first..first + 1, fua: false };
                Ask { host: 0, what: if flushes { What::Flush } else { write } }
            });
            *life = asks.collect();
        }
        self.lives.truncate(2);
    }
}

/// Whether a write to the log device is a batch with copies.
pub(super) fn has_copies(plan: &Plan, bytes: &[u8]) -> bool {
    let batches =
        [0, PAGE as usize].into_iter().filter_map(|at| batch(plan, bytes, at, bytes.len()));
    batches.flat_map(|(.., records)| records).any(|record| record.copied().is_some())
}

/// Copies become something else than what they are.
pub(super) fn change_copies(plan: &Plan, bytes: &mut [u8], bug: Bug) {
    let pages = || (SUPERS as usize..bytes.len()).step_by(PAGE as usize);
    let found = || pages().filter_map(|at| batch(plan, bytes, at, bytes.len()));
    let supers =
        [0, PAGE as usize].map(|at| Super::decode(&bytes[at..]).map_or(0, |it| it.applied));
    let applied = found().map(|(batch, ..)| batch.applied).chain(supers).max().unwrap_or(0);
    let epochs = found().flat_map(|(.., records)| records).filter_map(|record| record.copied());
    let oldest = epochs.filter(|&epoch| epoch > applied).min();
    let segment = plan.settings.segment as usize;
    for start in (SUPERS as usize..bytes.len() + 1 - segment).step_by(segment) {
        let Ok((head, mut chain)) = SegmentHead::decode(plan.name(), &bytes[start..]) else {
            continue;
        };
        let (mut at, end) = (start + PAGE as usize, start + segment);
        let mut kept = chain;
        while let Some((mut found, sum, mut records)) = batch(plan, bytes, at, end) {
            if (found.segment, found.chain) != (head.number, kept) {
                break;
            }
            kept = sum;
            for record in &mut records {
                let Some(epoch) = record.copied() else { continue };
                match bug {
                    Bug::CopyTakenForWrite => (record.flags, record.initiator) = (0, 0),
                    Bug::OldestCopiesForgotten if oldest != Some(epoch) => {}
                    _ => record.lba += BEYOND,
                }
            }
            found.chain = chain;
            let (forged, sum, table) = encode_batch(plan.name(), &mut found, &mut records);
            bytes[at..at + table as usize].copy_from_slice(&forged[..table as usize]);
            bind(bytes, at, sum, &records);
            (chain, at) = (sum, at + found.bytes as usize);
        }
    }
}

/// Blocks behind the end of every volume.
const BEYOND: u64 = 1 << 40;
