//! Counters since the start as plain numbers, for clients that draw rates from them.

use super::counter::Counter;
use super::histogram::{Bounds, Counts};
use super::{Metrics, OpClass};
use schemars::JsonSchema;
use serde::Serialize;
use weir_flow::event::StageName;

/// Counters since the gateway started.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Totals {
    /// Volumes that have had requests, in the order of their number; those beyond 1000 together as `_other`.
    volumes: Vec<VolumeTotals>,
    /// The time that requests spent in each stage, by the rule that held them.
    rules: Vec<RuleTotals>,
    /// Response times of reads and writes that ended well, ascending.
    response_times: Vec<Bucket>,
    /// The number of them, also of those that are longer than all bounds.
    response_count: u64,
}

impl Totals {
    /// Requests that ended well.
    pub(super) fn requests(&self) -> u64 {
        self.volumes.iter().map(|one| one.reads + one.writes + one.others).sum()
    }

    /// Bytes read and written.
    pub(super) fn bytes(&self) -> u64 {
        self.volumes.iter().map(|one| one.read_bytes + one.written_bytes).sum()
    }

    /// The time in each stage.
    pub(super) fn stages_ns(&self) -> [u64; StageName::ALL.len()] {
        StageName::ALL.map(|stage| {
            let here = self.rules.iter().filter(|rule| rule.stage == stage.as_str());
            here.map(|rule| rule.time_ns).sum()
        })
    }

    /// The bound that this share of the reads and writes since `before` was not above; `None` if there were none.
    pub(super) fn quantile_since(&self, before: &Self, share: f64) -> Option<u64> {
        let all = self.response_count.saturating_sub(before.response_count);
        if all == 0 {
            return None;
        }
        let both = self.response_times.iter().zip(&before.response_times);
        let mut enough = both.filter(|(now, old)| {
            now.requests.saturating_sub(old.requests) as f64 >= all as f64 * share
        });
        // What is above all bounds is said to be at the last one.
        enough.next().map(|(now, _)| now).or(self.response_times.last()).map(|one| one.up_to_ns)
    }
}

/// What hosts have asked of a volume.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeTotals {
    /// The volume.
    name: String,
    /// Reads that ended well.
    reads: u64,
    /// Writes that ended well.
    writes: u64,
    /// Other requests that ended well.
    others: u64,
    /// Requests that failed.
    errors: u64,
    /// Requests that were refused.
    refused: u64,
    /// Bytes read.
    read_bytes: u64,
    /// Bytes written.
    written_bytes: u64,
    /// Sum of the response times of reads and writes that ended well.
    time_ns: u64,
}

/// The time that a rule held requests.
#[derive(Debug, Serialize, JsonSchema)]
struct RuleTotals {
    /// The stage.
    stage: String,
    /// The rule.
    rule: String,
    /// Requests that ended well.
    requests: u64,
    /// Their time there.
    time_ns: u64,
}

/// Requests up to a response time.
#[derive(Debug, Serialize, JsonSchema)]
struct Bucket {
    /// The bound, inclusive.
    up_to_ns: u64,
    /// Requests that took no longer.
    requests: u64,
}

impl Metrics {
    /// The counters now. O(volumes), and needs no event loop.
    pub(crate) fn totals(&self) -> Totals {
        let mut responses = Counts::default();
        let volumes = self.volumes.all().map(|block| {
            let counts = [0, 1, 2, 3].map(|op| block.durations[op].read());
            let [read, write] = [OpClass::Read, OpClass::Write].map(|op| &counts[op as usize]);
            responses.merge(read);
            responses.merge(write);
            let [flush, other] = [OpClass::Flush, OpClass::Other].map(|op| &counts[op as usize]);
            VolumeTotals {
                name: block.name.clone(),
                reads: read.count(),
                writes: write.count(),
                others: flush.count() + other.count(),
                errors: block.errors.iter().map(Counter::get).sum(),
                refused: block.refused.iter().map(Counter::get).sum(),
                read_bytes: block.bytes[0].get(),
                written_bytes: block.bytes[1].get(),
                time_ns: read.sum_ns.wrapping_add(write.sum_ns),
            }
        });
        let volumes = volumes.collect();
        let rules = StageName::ALL.into_iter().flat_map(|stage| {
            self.stages[stage.index()].rules().map(move |(rule, counts)| RuleTotals {
                stage: stage.as_str().to_owned(),
                rule: (*rule.0).to_owned(),
                requests: counts.count(),
                time_ns: counts.sum_ns,
            })
        });
        let bucket = |(up_to_ns, requests)| Bucket { up_to_ns, requests };
        Totals {
            volumes,
            rules: rules.collect(),
            response_times: responses.up_to(Bounds::Fine).map(bucket).collect(),
            response_count: responses.count(),
        }
    }
}
