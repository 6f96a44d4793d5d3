//! Speed of the dispatch experiment on one core: figure 5 of the flash operation group paper, with hosts, translation
//! layer, the gateway's policy, chips and statistics.
//!
//! Prints page operations per second of wall-clock time.

use weir_papers::dispatch::study::figure_5;

#[expect(clippy::disallowed_methods, reason = "what is measured is the wall-clock time of a run")]
#[expect(clippy::print_stdout, reason = "the figures are this program's output")]
pub(crate) fn run(runs: u64) {
    let start = std::time::Instant::now();
    let operations: u64 = (1..=runs).map(figure_5).sum();
    let seconds = start.elapsed().as_secs_f64();
    println!("{operations} operations in {seconds:.2} s");
    println!("{:.2} million operations/s of chips", operations as f64 / seconds / 1e6);
}
