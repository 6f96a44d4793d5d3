//! How fast the flash model is, and how much memory it takes: random writes of 4 KiB to a filled device,
//! at depth 64, with garbage collection.
//!
//! ```text
//! cargo run --release -p weir-model --example flash_speed -- [GIB [MILLIONS]]
//! ```
//!
//! 64 GiB and 20 million writes by default. Prints page operations and erasures per second of wall-clock
//! time, what garbage collection did, and the peak resident memory of the process.

use std::process::ExitCode;
use weir_flow::clock::Instant;
use weir_flow::request::Op;
use weir_flow::rng::Rng;
use weir_flow::units::Extent;
use weir_model::device::{Device, DeviceIo};
use weir_model::ssd::{Config, Ssd};

#[expect(clippy::disallowed_methods, reason = "what is measured is the wall-clock time of a run")]
#[expect(clippy::print_stdout, reason = "the figures are this program's output")]
fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (Ok(gib @ 1..=8_192), Ok(millions @ 1..)) = (number(64), number(20)) else {
        println!("usage: flash_speed [GIB [MILLIONS]], at least 1 and at most 8192 GiB");
        return ExitCode::from(2);
    };
    let config = Config { filled_permille: 1_000, ..Config::nvme(gib << 30) };
    let mut device = Ssd::new(config);
    let mut rng = Rng::stream(1, "writes");
    let pages = config.capacity_pages();
    let start = std::time::Instant::now();
    let mut now = Instant::ZERO;
    for id in 0..millions * 1_000_000 {
        if id >= 64 {
            now = device.next().expect("something is outstanding");
            device.finished(now).expect("it was due").1.expect("no page fails");
        }
        let extent = Extent::new(rng.below(pages) * 4_096, 4_096);
        device.start(now, DeviceIo { id, op: Op::Write, extent, fua: false });
    }
    let seconds = start.elapsed().as_secs_f64();
    let (wear, operations) = (device.wear().expect("it is flash"), device.operations());
    println!("{:.2} million operations/s of chips", operations as f64 / seconds / 1e6);
    println!("{:.0} s of the device's time in {seconds:.1} s", now.as_nanos() as f64 / 1e9);
    println!("{wear:?}");
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM:"));
    println!("{}", peak.unwrap_or("VmHWM: unknown on this system"));
    ExitCode::SUCCESS
}
