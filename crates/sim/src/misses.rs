//! Counts cache misses of a trace by cache size and eviction policy.
//!
//! Every line that a request touches is one access, reads and writes alike: what comes in by either stays,
//! as in the gateway. Requests take no time, so the answer is about the policies and nothing else.

use crate::trace::{Error, Format, Reader, Record};
use std::collections::BTreeMap;
use std::path::Path;
use weir_flow::cache::evict::Build;
use weir_flow::cache::lines::{Cover, Lines};
use weir_flow::policy::Choice;
use weir_flow::request::{Op, VolumeId};
use weir_flow::units::Extent;

/// The largest request that is taken for one of a host: 1 GiB.
const LARGEST: u64 = 1 << 30;

/// Most lines of a buffer, or of a trace that is smaller: some 16 GiB of memory for each buffer.
pub const MOST_LINES: u64 = 1 << 28;

/// How often `progress` is called, in requests.
const PROGRESS: u64 = 1 << 12;

/// What a trace asks for, in lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Requests.
    pub requests: u64,
    /// Lines that they touch, each as often as it is touched.
    pub accesses: u64,
    /// Those of them by reads.
    pub reads: u64,
    /// Different lines: what even a buffer without end misses.
    pub lines: u64,
}

/// One buffer and what it missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The policy.
    pub policy: &'static str,
    /// Lines of the buffer.
    pub size: u64,
    /// Accesses to lines that were not here.
    pub misses: u64,
    /// Those of them by reads.
    pub read_misses: u64,
}

/// The lines of a request.
fn lines_of(record: &Record, line: u32) -> std::ops::Range<u64> {
    let line = u64::from(line);
    let end = record.extent.offset.saturating_add(record.extent.length);
    record.extent.offset / line..end.div_ceil(line)
}

/// Opens a trace and gives each of its requests to `visit`.
fn each(
    path: &Path,
    format: Option<Format>,
    mut progress: impl FnMut(u64),
    mut visit: impl FnMut(&Record),
) -> Result<u64, Error> {
    let mut reader = Reader::open(path, format)?;
    let mut requests = 0;
    while let Some(record) = reader.read()? {
        if record.extent.length > LARGEST {
            let length = record.extent.length;
            let message = format!("a request of {length} bytes; no host sends more than {LARGEST}");
            return Err(reader.error(message));
        }
        visit(&record);
        requests += 1;
        if requests % PROGRESS == 0 {
            progress(requests);
        }
    }
    Ok(requests)
}

/// Reads a trace to its end and says what it asks for, in lines of `line` bytes.
pub fn demand(
    path: &Path,
    format: Option<Format>,
    line: u32,
    progress: impl FnMut(u64),
) -> Result<Demand, Error> {
    let mut demand = Demand::default();
    // Runs of lines of a device, by their first: as many as there are gaps, not as lines.
    let mut touched = BTreeMap::<(u32, u64), u64>::new();
    demand.requests = each(path, format, progress, |record| {
        let lines = lines_of(record, line);
        let count = lines.end - lines.start;
        demand.accesses += count;
        demand.reads += if record.op == Op::Read { count } else { 0 };
        let (mut first, mut end) = (lines.start, lines.end);
        let reaching = touched.range((record.device, 0)..=(record.device, end));
        let merged: Vec<_> = reaching
            .rev()
            .take_while(|&(_, &end)| end >= first)
            .map(|(&key, &end)| (key, end))
            .collect();
        for (key, run_end) in merged {
            touched.remove(&key);
            first = first.min(key.1);
            end = end.max(run_end);
        }
        touched.insert((record.device, first), end);
    })?;
    demand.lines = touched.iter().map(|(&(_, first), &end)| end - first).sum();
    Ok(demand)
}

/// A buffer under one policy.
struct Buffer {
    outcome: Outcome,
    lines: Lines,
}

impl Buffer {
    fn access(&mut self, volume: VolumeId, index: u64, line: u32, op: Op) {
        let extent = Extent::new(index * u64::from(line), u64::from(line));
        let mut copies = Vec::new();
        let hit = if op == Op::Read {
            let hit = self.lines.read(volume, extent, &mut copies) == Cover::All;
            if !hit {
                let fill = self.lines.begin(volume, extent, false);
                self.lines.end(fill, true, &mut copies);
            }
            hit
        } else {
            let hit = self.lines.look(volume, extent, &mut copies) == Cover::All;
            self.lines.put(volume, extent, &mut copies);
            hit
        };
        self.outcome.misses += u64::from(!hit);
        self.outcome.read_misses += u64::from(!hit && op == Op::Read);
    }
}

/// Sends a trace through a buffer of each of `sizes`, in lines, under each of `policies`. `demand` is that of
/// the trace in lines of `line` bytes. Outcomes are by size and then by policy, as given. Panics if both a
/// size and the trace have more than [`MOST_LINES`].
pub fn misses(
    path: &Path,
    format: Option<Format>,
    line: u32,
    demand: &Demand,
    sizes: &[u64],
    policies: &[Choice<Build>],
    progress: impl FnMut(u64),
) -> Result<Vec<Outcome>, Error> {
    let mut buffers = Vec::new();
    for &size in sizes {
        // With room for all there is nothing to evict, so more room changes nothing.
        let frames = size.min(demand.lines);
        assert!(frames <= MOST_LINES, "a buffer of {frames} lines is too large");
        for policy in policies {
            let outcome = Outcome { policy: policy.policy().name, size, misses: 0, read_misses: 0 };
            buffers.push(Buffer { outcome, lines: Lines::new(frames as u32, line, policy) });
        }
    }
    each(path, format, progress, |record| {
        let volume = VolumeId::new(record.device);
        for buffer in &mut buffers {
            for index in lines_of(record, line) {
                buffer.access(volume, index, line, record.op);
            }
        }
    })?;
    Ok(buffers.into_iter().map(|buffer| buffer.outcome).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::cache::evict::POLICIES;

    fn trace(name: &str, text: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("weir-misses-{name}-{}", std::process::id()));
        std::fs::write(&path, format!("time_ns,op,dev,offset,size\n{text}")).unwrap();
        path
    }

    /// A trace by hand: lines are counted as often as they are touched and once each, whichever way runs
    /// meet; a buffer of two lines misses what the policy says; one with room for all misses each line once.
    #[test]
    fn a_small_trace_by_hand() {
        let path = trace(
            "hand",
            "0,R,0,0,4096\n1,R,0,4096,8192\n2,W,0,100,100\n3,R,0,0,4096\n4,R,1,0,512\n5,R,0,20480,4096\n\
             6,W,0,8192,12289\n",
        );
        let demand = demand(&path, None, 4_096, |_| ()).unwrap();
        assert_eq!(demand, Demand { requests: 7, accesses: 11, reads: 6, lines: 7 });
        let policies = ["fifo", "lru"].map(|name| Choice::named(POLICIES, name).unwrap());
        let outcomes = misses(&path, None, 4_096, &demand, &[2, 100], &policies, |_| ()).unwrap();
        std::fs::remove_file(path).unwrap();
        let found: Vec<_> = outcomes
            .iter()
            .map(|outcome| (outcome.policy, outcome.size, outcome.misses, outcome.read_misses))
            .collect();
        // Of 0, 1, 2, 0, 0, other 0, 5, 2, 3, 4, 5 a buffer of two has only the second of two zeroes.
        let expected =
            [("fifo", 2, 10, 5), ("lru", 2, 10, 5), ("fifo", 100, 7, 5), ("lru", 100, 7, 5)];
        assert_eq!(found, expected);
    }

    /// A request that no host would send is refused, with its place, rather than counted for ever.
    #[test]
    fn absurd_requests_are_refused() {
        let path = trace("absurd", "0,R,0,0,4096\n1,R,0,0,1073741825\n");
        let error = demand(&path, None, 512, |_| ()).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.line, 3);
        assert!(error.message.contains("1073741825"), "{error}");
    }
}
