//! Speed and memory of the flash model.
//!
//! | workload | device | what hosts ask for |
//! |---|---|---|
//! | `writes` | an `NVMe` drive of GIB, filled | 4 KiB at random, written, 64 outstanding: garbage collection all the time |
//! | `figure-5` | the paper's chips, as many blocks as GIB takes | 16 KiB at random, in eight regions with 32 outstanding each: three are read, three written, two both |
//!
//! Prints page operations and erasures per
//! second of wall-clock time, what garbage collection did, and the peak resident memory of the process.

use weir_flow::clock::Instant;
use weir_flow::request::Op;
use weir_flow::rng::Rng;
use weir_flow::units::Extent;
use weir_model::device::{Device, DeviceIo};
use weir_model::ssd::{Config, Ssd};

/// Streams of requests to one device.
struct Load {
    config: Config,
    /// Pages of a request, and requests outstanding of each stream.
    pages: u64,
    window: u64,
    /// How many of a hundred requests of each stream write.
    writes: &'static [u64],
}

impl Load {
    fn named(name: &str, bytes: u64) -> Option<Self> {
        match name {
            "writes" => {
                let config = Config { filled_permille: 1_000, ..Config::nvme(bytes) };
                Some(Self { config, pages: 1, window: 64, writes: &[100] })
            }
            "figure-5" => {
                let config = Config::paper().with_capacity(bytes);
                let writes = &[0, 0, 0, 50, 50, 100, 100, 100];
                Some(Self { config, pages: 4, window: 32, writes })
            }
            _ => None,
        }
    }

    /// The next request of a stream.
    fn request(&self, stream: u64, rng: &mut Rng) -> DeviceIo {
        let unit = self.pages * u64::from(self.config.page);
        let region = self.config.capacity() / unit / self.writes.len() as u64;
        let place = stream * region + rng.below(region);
        let writes = rng.below(100) < self.writes[stream as usize];
        let op = if writes { Op::Write } else { Op::Read };
        DeviceIo { id: stream, op, extent: Extent::new(place * unit, unit), fua: false }
    }
}

#[expect(clippy::disallowed_methods, reason = "what is measured is the wall-clock time of a run")]
#[expect(clippy::print_stdout, reason = "the figures are this program's output")]
/// `millions` of page operations of hosts. Fails if there is no such workload.
pub(crate) fn run(workload: &str, gib: u64, millions: u64) -> Result<(), String> {
    let load = Load::named(workload, gib << 30)
        .ok_or_else(|| format!("the workloads are `writes` and `figure-5`, not `{workload}`"))?;
    let mut device = Ssd::new(load.config);
    let mut rng = Rng::stream(1, "requests");
    let start = std::time::Instant::now();
    let mut now = Instant::ZERO;
    for stream in 0..load.writes.len() as u64 {
        for _ in 0..load.window {
            device.start(now, load.request(stream, &mut rng));
        }
    }
    for _ in 0..millions * 1_000_000 / load.pages {
        now = device.next().expect("something is outstanding");
        let (stream, outcome) = device.finished(now).expect("it was due");
        outcome.expect("no page fails");
        device.start(now, load.request(stream, &mut rng));
    }
    let seconds = start.elapsed().as_secs_f64();
    let (wear, operations) = (device.wear().expect("it is flash"), device.operations());
    println!("{:.2} million operations/s of chips", operations as f64 / seconds / 1e6);
    println!("{:.0} s of the device's time in {seconds:.1} s", now.as_nanos() as f64 / 1e9);
    println!("{wear:?}");
    println!("{}", crate::peak_memory());
    Ok(())
}
