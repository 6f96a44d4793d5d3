//! Statistics of a trace from one pass over it.

use super::{Error, Reader};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use weir_flow::request::Op;
use weir_flow::rng::mix;

/// A description of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Info {
    /// Its format.
    pub format: &'static str,
    /// The first of its notices, lines that begin with `#`, at most 64. They stay with the data.
    pub notices: Vec<String>,
    /// How many notices follow those.
    pub more_notices: u64,
    /// Number of requests.
    pub requests: u64,
    /// From the first request to the last.
    pub duration_ns: u64,
    /// Share of reads.
    pub reads_percent: f64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Median size in bytes. Size percentiles are by nearest rank; exact for multiples of 512 bytes
    /// below 4 MiB, otherwise at most 0.1 % too small.
    pub size_p50: u64,
    /// 90th percentile of the sizes.
    pub size_p90: u64,
    /// 99th percentile of the sizes.
    pub size_p99: u64,
    /// Largest size, exact.
    pub size_max: u64,
    /// Requests per second over the duration; 0 for an instant.
    pub mean_iops: f64,
    /// Requests in the busiest whole second, counted from the first request.
    pub peak_iops: u64,
    /// Share of requests that begin where the one before on their device ended.
    pub sequential_percent: f64,
    /// Requests with a measured response time.
    pub with_response: u64,
    /// Requests without one because their completion was not waited for to the end: too many others waited.
    pub responses_missed: u64,
    /// How the times were read, where other units would be usual too.
    pub remark: Option<String>,
    /// What is neither read nor write, and how often: it is skipped.
    pub skipped: BTreeMap<&'static str, u64>,
    /// A digest of the time since the first request, operation, device, offset and size of each request, as 16
    /// hexadecimal digits. Two files of the same requests have the same, whatever their formats.
    pub digest: String,
    /// Its devices, by number.
    pub devices: Vec<DeviceInfo>,
}

/// One device of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceInfo {
    /// Its number.
    pub device: u32,
    /// Its name, where the file has names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Requests to it.
    pub requests: u64,
    /// The largest end of a request: the capacity that a volume needs.
    pub capacity_bytes: u64,
}

impl Info {
    fn keep(&mut self, notices: Vec<String>) {
        let room = MAX_NOTICES - self.notices.len();
        self.more_notices += notices.len().saturating_sub(room) as u64;
        self.notices.extend(notices.into_iter().take(room));
    }
}

/// Most devices of one trace. A file with more is not a trace of block devices.
const MAX_DEVICES: usize = 65_536;

/// The largest size that percentiles tell apart from larger ones: 1 TiB.
const LARGEST: u64 = 1 << 40;

/// Keeps a digest of zeros from staying zero: 2^64 over the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Most notices that are listed.
const MAX_NOTICES: usize = 64;

/// How often `progress` is called, in requests.
const PROGRESS: u64 = 1 << 16;

#[derive(Default)]
struct Seen {
    requests: u64,
    capacity: u64,
    last_end: Option<u64>,
}

/// Reads a trace to its end. `progress` gets the number of requests from time to time.
pub fn info(mut reader: Reader, mut progress: impl FnMut(u64)) -> Result<Info, Error> {
    let mut info = Info { format: reader.format().as_str(), ..Info::default() };
    let mut sizes =
        Histogram::<u64>::new_with_bounds(1, LARGEST, 4).expect("the bounds are in order");
    let mut devices = BTreeMap::<u32, Seen>::new();
    let (mut reads, mut sequential, mut second, mut in_second) = (0, 0, 0, 0);
    let mut digest = 0;
    // Most formats have no time zero, so that what is the same in all counts from the first request.
    let mut zero = None;
    while let Some(record) = reader.read()? {
        let time = record.time - *zero.get_or_insert(record.time);
        info.keep(reader.take_notices());
        info.requests += 1;
        let extent = record.extent;
        for word in [
            time.as_nanos(),
            record.op.code().into(),
            record.device.into(),
            extent.offset,
            extent.length,
        ] {
            digest = mix(digest ^ word).wrapping_add(GOLDEN);
        }
        let end = extent.end().unwrap_or(u64::MAX);
        if record.op == Op::Read {
            reads += 1;
            info.bytes_read = info.bytes_read.saturating_add(extent.length);
        } else {
            info.bytes_written = info.bytes_written.saturating_add(extent.length);
        }
        sizes.saturating_record(extent.length);
        info.size_max = info.size_max.max(extent.length);
        info.with_response += u64::from(record.response.is_some());
        info.duration_ns = time.as_nanos();
        let now = time.as_nanos() / 1_000_000_000;
        if now != second {
            (second, in_second) = (now, 0);
        }
        in_second += 1;
        info.peak_iops = info.peak_iops.max(in_second);
        if devices.len() >= MAX_DEVICES && !devices.contains_key(&record.device) {
            return Err(reader.error(format!("the trace has more than {MAX_DEVICES} devices")));
        }
        let device = devices.entry(record.device).or_default();
        device.requests += 1;
        device.capacity = device.capacity.max(end);
        sequential += u64::from(device.last_end == Some(extent.offset));
        device.last_end = Some(end);
        if info.requests.is_multiple_of(PROGRESS) {
            progress(info.requests);
        }
    }
    progress(info.requests);
    let percent = |part: u64| part as f64 * 100.0 / info.requests.max(1) as f64;
    info.reads_percent = percent(reads);
    info.sequential_percent = percent(sequential);
    let size = |quantile| sizes.lowest_equivalent(sizes.value_at_quantile(quantile));
    (info.size_p50, info.size_p90, info.size_p99) = (size(0.5), size(0.9), size(0.99));
    if info.duration_ns > 0 {
        info.mean_iops = info.requests as f64 * 1e9 / info.duration_ns as f64;
    }
    info.keep(reader.take_notices());
    info.more_notices += reader.notices_dropped();
    info.responses_missed = reader.responses_missed();
    info.remark = reader.remark().map(str::to_owned);
    info.skipped = reader.skipped().clone();
    info.digest = format!("{digest:016x}");
    let device = |(device, seen): (u32, Seen)| DeviceInfo {
        device,
        name: reader.device_name(device).map(str::to_owned),
        requests: seen.requests,
        capacity_bytes: seen.capacity,
    };
    info.devices = devices.into_iter().map(device).collect();
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A small trace by hand: sizes by nearest rank, the busiest second, sequential per device.
    #[test]
    fn a_small_trace_by_hand() {
        let text = "# a notice\n\
            time_ns,op,dev,offset,size,resp_ns\n\
            0,R,0,0,4096,\n\
            5,W,1,4096,512,77\n\
            999999999,R,0,4096,4096,\n\
            1000000000,R,1,4096,8192,\n\
            2000000000,W,1,12288,126976,1\n";
        let source = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
        let reader = Reader::new(Path::new("t.csv"), source, None).unwrap();
        let info = info(reader, |_| ()).unwrap();
        let expected = Info {
            format: "weir",
            notices: vec!["# a notice".to_owned()],
            more_notices: 0,
            requests: 5,
            duration_ns: 2_000_000_000,
            reads_percent: 60.0,
            bytes_read: 16_384,
            bytes_written: 127_488,
            size_p50: 4_096,
            size_p90: 126_976,
            size_p99: 126_976,
            size_max: 126_976,
            mean_iops: 2.5,
            peak_iops: 3,
            sequential_percent: 40.0,
            with_response: 2,
            responses_missed: 0,
            remark: None,
            skipped: BTreeMap::new(),
            digest: info.digest.clone(),
            devices: vec![
                DeviceInfo { device: 0, name: None, requests: 2, capacity_bytes: 8_192 },
                DeviceInfo { device: 1, name: None, requests: 3, capacity_bytes: 139_264 },
            ],
        };
        assert_eq!(info, expected);
    }

    fn of(text: &str) -> Info {
        let source = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
        info(Reader::new(Path::new("t"), source, None).unwrap(), |_| ()).unwrap()
    }

    /// A trace whose first request is not at its time zero has the same description as the same requests in a
    /// format that has no time zero.
    #[test]
    fn time_zero_does_not_matter() {
        let weir = of("time_ns,op,dev,offset,size\n999000000,R,0,0,512\n1001000000,W,0,512,512\n");
        let spc = of("0,0,512,R,7.999000000\n0,1,512,W,8.001000000\n");
        assert_eq!(Info { format: "weir", ..spc }, weir);
        assert_eq!((weir.duration_ns, weir.peak_iops), (2_000_000, 2));
    }

    /// Notices that are not listed are counted, those that the reader had no space for, too.
    #[test]
    fn more_notices_are_counted() {
        let requests = "time_ns,op,dev,offset,size\n0,R,0,0,512\n# more\n";
        let info = of(&format!("{}{requests}", "# a notice\n".repeat(MAX_NOTICES)));
        assert_eq!((info.notices.len(), info.more_notices), (MAX_NOTICES, 1));
        let long = format!("# {}\n", "x".repeat(4_000)).repeat(300);
        let info = of(&format!("{requests}{long}1,R,0,0,512\n"));
        assert_eq!((info.notices.len(), info.more_notices), (MAX_NOTICES, 301 - 64));
    }
}
