//! Reads of hosts beside write-back, in virtual time: a link of 20 MB/s and 20 ms to a target that requests the data of
//! writes behind its first 8 KiB (R2T).

use super::clocked::{Clocked, Costs};
use super::small;
use crate::cache::writeback::{Order, Settings, Upstream};
use crate::clock::{Duration, Instant};
use crate::error::IoError;
use crate::rng::Rng;
use alloc::vec::Vec;

const MS: Duration = Duration::from_millis(1);
const LINK: u64 = 20_000_000;
const MIB: u64 = 1 << 20;
/// Sectors of the volume.
const SECTORS: u64 = 128 * MIB / 512;

/// Writes that a log has when the upstream comes back.
struct Backlog {
    name: &'static str,
    bytes: u64,
    /// Writes between two flushes; 0: none.
    flush: u64,
    mib: u64,
}

const BACKLOGS: [Backlog; 4] = [
    Backlog { name: "4 KiB, no flush", bytes: 4 << 10, flush: 0, mib: 40 },
    Backlog { name: "4 KiB, flush each 32", bytes: 4 << 10, flush: 32, mib: 24 },
    Backlog { name: "64 KiB, no flush", bytes: 64 << 10, flush: 0, mib: 64 },
    Backlog { name: "64 KiB, flush each 32", bytes: 64 << 10, flush: 32, mib: 64 },
];

const NONE: Backlog = Backlog { name: "none", bytes: 4 << 10, flush: 0, mib: 0 };

/// A log that has these writes, and its upstream, which has just come back.
fn behind(backlog: &Backlog, unasked: u64, jitter: Duration) -> Clocked {
    let settings = Settings {
        capacity: 8192 + 192 * MIB,
        segment: 8 * MIB,
        batch_bytes: 1 << 20,
        batch_records: 256,
        epoch_bytes: 4 << 20,
        epoch_age: Duration::from_secs(1),
        merge: 1 << 20,
        depth: 128,
        order: Order::Flush,
        ..small()
    };
    let sector = Duration::from_nanos(512 * 1_000_000_000 / LINK);
    let costs = Costs { local: Duration::from_micros(100), upstream: MS * 20, sector };
    let mut clocked = Clocked::new(settings, SECTORS, costs);
    (clocked.unasked, clocked.jitter) = (unasked / 512, jitter);
    // What bypassed the log, a flush, is upstream.
    clocked.run_until(Instant::ZERO + MS * 500);
    clocked.rig.refusal = Some((None, IoError::PathFailed));
    let mut chance = Rng::stream(1, "backlog");
    let blocks = backlog.bytes / 512;
    for number in 1..=backlog.mib * MIB / backlog.bytes {
        let at = chance.below(SECTORS / blocks) * blocks;
        let last = clocked.write(at as usize, blocks as usize);
        if number % 8 == 0 {
            while !clocked.rig.asked[last as usize - 1].over {
                let until = clocked.rig.now + MS;
                clocked.next(until);
            }
        }
        if backlog.flush > 0 && number % backlog.flush == 0 {
            clocked.flush();
        }
    }
    clocked.rig.refusal = None;
    while clocked.rig.log.status(clocked.rig.now).upstream != Upstream::Up {
        let until = clocked.rig.now + MS;
        clocked.next(until);
    }
    clocked
}

/// The 99th percentile of four reads at once, in microseconds, and the bytes a second of write-back beside them: of three
/// seconds, after half a second.
fn beside(clocked: &mut Clocked) -> (u64, u64) {
    let written = |clocked: &Clocked| clocked.rig.log.status(clocked.rig.now).written;
    let reads = |clocked: &mut Clocked, end: Instant| {
        while clocked.rig.now < end {
            while clocked.reading() < 4 {
                clocked.read();
            }
            clocked.next(end);
        }
    };
    let begin = clocked.rig.now + MS * 500;
    reads(clocked, begin);
    clocked.took.clear();
    let before = written(clocked);
    reads(clocked, begin + MS * 3000);
    clocked.took.sort_unstable();
    let p99 = clocked.took[clocked.took.len() * 99 / 100];
    (p99.as_nanos() / 1000, (written(clocked) - before) / 3)
}

/// Reads of 4 KiB, four at once, take at most 1.5 times as long as without write-back (99th percentile), and write-back gets
/// a quarter of the link, or a fifth if answers come up to 3 ms late: whether the target requests the data of writes or not,
/// and whether epochs end with a short rest or not. An epoch of 128 KiB takes a round trip and 6.5 ms, which is less than a
/// quarter: there it gets seven tenths of that, as it learns in this time whether FUA or a flush is faster.
#[test]
fn reads_stay_fast_and_write_back_has_its_part() {
    let mut faults = Vec::new();
    for jitter in [0, 1, 3] {
        let quiet = beside(&mut behind(&NONE, 0, MS * jitter)).0;
        for backlog in &BACKLOGS {
            for unasked in [8 << 10, 64 << 10] {
                let (p99, rate) = beside(&mut behind(backlog, unasked, MS * jitter));
                let epoch = if backlog.flush > 0 { backlog.flush * backlog.bytes } else { 4 * MIB };
                let takes = 20_000 + 1000 * jitter + epoch * 1_000_000 / LINK;
                let part = LINK / if jitter < 3 { 4 } else { 5 };
                let wanted = part.min(epoch * 1_000_000 / takes * 7 / 10);
                if p99 * 2 > quiet * 3 || rate < wanted {
                    faults.push(std::format!(
                        "{}, {} KiB unasked, answers up to {jitter} ms late: p99 {quiet} to {p99} us, {} of {} kB/s",
                        backlog.name,
                        unasked >> 10,
                        rate / 1000,
                        wanted / 1000
                    ));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
