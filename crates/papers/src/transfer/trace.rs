//! Reads of a trace, and the link rate at which FIFO delays them as in the paper.

use super::engine::Job;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use weir_flow::clock::Duration;
use weir_flow::request::Op;
use weir_sim::trace::{Error, Reader};

/// What hosts read, and when.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(super) name: String,
    /// Nanoseconds and bytes.
    pub(super) reads: Arc<[(u64, u64)]>,
}

impl Trace {
    /// Reads a trace of 2 million requests at most. `None` if it has no two reads at different times: nothing waits
    /// for a link then.
    pub fn read(name: &str, path: &Path) -> Result<Option<Self>, Error> {
        Self::of(name, Reader::open(path, None)?)
    }

    /// The traces that come with the program: an hour of a database under Linux and one under Windows at a
    /// hosting company (Thomas Schoebel-Theuer / 1&1 Internet AG; the terms are in the files).
    pub(super) fn own() -> [Self; 2] {
        let files: [(&str, &[u8]); 2] = [
            ("linux-mysql", include_bytes!("data/linux-mysql-reads.csv.zst")),
            ("windows-mssql", include_bytes!("data/windows-mssql-reads.csv.zst")),
        ];
        files.map(|(name, bytes)| {
            let reader = Reader::new(Path::new(name), Box::new(Cursor::new(bytes)), None);
            let trace = reader.and_then(|reader| Self::of(name, reader));
            trace.expect("it was read in the tests").expect("it has reads")
        })
    }

    fn of(name: &str, mut reader: Reader) -> Result<Option<Self>, Error> {
        let (mut reads, mut requests) = (Vec::new(), 0);
        while let Some(record) = reader.read()? {
            requests += 1;
            if requests > REQUESTS_MAX {
                let message =
                    format!("a trace may have {REQUESTS_MAX} requests here; give less of it");
                return Err(reader.error(message));
            }
            if record.time > LENGTH_MAX || record.extent.length > BYTES_MAX {
                let message = "a request may come a year after the first and have 1 GiB at most";
                return Err(reader.error(message));
            }
            if record.op == Op::Read {
                reads.push((record.time.as_nanos(), record.extent.length));
            }
        }
        let usable = reads.first().map(|read| read.0) != reads.last().map(|read| read.0);
        Ok(usable.then(|| Self { name: name.to_owned(), reads: reads.into() }))
    }

    /// Mean bytes of a read.
    pub(super) fn mean(&self) -> f64 {
        self.reads.iter().map(|&(_, bytes)| bytes as f64).sum::<f64>() / self.reads.len() as f64
    }

    /// The reads on a link of this many bytes per second; the time unit is one byte.
    pub(super) fn jobs(&self, rate: u64) -> Vec<Job> {
        let at = |nanos: u64| (u128::from(nanos) * u128::from(rate) / 1_000_000_000) as u64;
        self.reads.iter().map(|&(nanos, bytes)| Job { at: at(nanos), bytes }).collect()
    }

    /// The bytes per second at which the mean delay of first in, first out comes nearest to `delay` mean
    /// transfers, found by bisection: the delay falls as the rate grows.
    pub(super) fn rate(&self, delay: f64) -> u64 {
        let (mut slow, mut fast) = (1, RATE_MAX);
        while fast - slow > 1 {
            let middle = slow + (fast - slow) / 2;
            *(if self.delay(middle) > delay { &mut slow } else { &mut fast }) = middle;
        }
        if (self.delay(slow) - delay).abs() < (self.delay(fast) - delay).abs() {
            slow
        } else {
            fast
        }
    }

    /// Mean delay over mean transfer of first in, first out.
    fn delay(&self, rate: u64) -> f64 {
        let (mut free, mut delays) = (0_u64, 0_u128);
        for Job { at, bytes } in self.jobs(rate) {
            let start = free.max(at);
            delays += u128::from(start - at);
            free = start + bytes;
        }
        delays as f64 / self.reads.len() as f64 / self.mean()
    }
}

/// The fastest link that is tried: 100 GB/s.
const RATE_MAX: u64 = 100_000_000_000;

/// Most requests of a trace.
const REQUESTS_MAX: usize = 2_000_000;

/// The longest trace, and its largest request, such that all times fit 64 bits at any rate.
const LENGTH_MAX: Duration = Duration::from_secs(366 * 86_400);
const BYTES_MAX: u64 = 1 << 30;
