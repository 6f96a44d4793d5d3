//! How fast the dispatch experiment is: figure 5 of the flash operation group paper, with hosts, translation
//! layer, the gateway's policy, chips and all that is measured of them, on one core.
//!
//! ```text
//! cargo run --release -p weir-papers --example dispatch_speed -- [RUNS]
//! ```
//!
//! 20 runs by default. Prints page operations per second of wall-clock time.

use std::process::ExitCode;
use weir_papers::dispatch::study::figure_5;

#[expect(clippy::disallowed_methods, reason = "what is measured is the wall-clock time of a run")]
#[expect(clippy::print_stdout, reason = "the figures are this program's output")]
fn main() -> ExitCode {
    let runs = std::env::args().nth(1).map_or(Ok(20), |text| text.parse());
    let Ok(runs @ 1..) = runs else {
        println!("usage: dispatch_speed [RUNS]");
        return ExitCode::from(2);
    };
    let start = std::time::Instant::now();
    let operations: u64 = (1..=runs).map(figure_5).sum();
    let seconds = start.elapsed().as_secs_f64();
    println!("{operations} operations in {seconds:.2} s");
    println!("{:.2} million operations/s of chips", operations as f64 / seconds / 1e6);
    ExitCode::SUCCESS
}
