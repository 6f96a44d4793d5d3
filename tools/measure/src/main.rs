//! Drives one part of Weir and nothing else, to count the instructions of an event or to measure speed and memory.

mod control;
mod dispatch;
mod flash;
mod path;
mod pipeline;
mod simulator;

use clap::builder::RangedU64ValueParser as Range;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

/// Drives one part of Weir and nothing else.
///
/// Instruction counts are the difference of two runs of different lengths under cachegrind, as in `bench/`.
#[derive(Parser)]
enum Measure {
    /// Requests through a whole pipeline.
    Pipeline {
        /// A control policy, `contract`, `fair-time`, `two-paths` or `cache-hit`.
        case: String,
        requests: u64,
        /// A transfer policy.
        transfer: Option<String>,
    },
    /// Requests through a control policy.
    Control {
        policy: String,
        #[arg(value_parser = Range::<u32>::new().range(1..=u64::from(control::SOLD)))]
        tenants: u32,
        requests: u64,
    },
    /// I/Os through a path selector.
    Path {
        /// A selector, or `driver`, which costs next to nothing.
        policy: String,
        #[arg(value_parser = Range::<u32>::new().range(1..=1_024))]
        paths: u32,
        ios: u64,
    },
    /// Requests per second of the simulator.
    Simulator {
        #[arg(default_value_t = 1_000_000, value_parser = Range::<u64>::new().range(1..))]
        requests: u64,
        #[arg(default_value_t = 5, value_parser = Range::<u64>::new().range(1..))]
        repeats: u64,
    },
    /// Page operations per second of the flash model.
    Flash {
        /// `writes` or `figure-5`.
        #[arg(default_value = "writes")]
        workload: String,
        #[arg(default_value_t = 64, value_parser = Range::<u64>::new().range(1..=8_192))]
        gib: u64,
        /// Page operations of hosts, in millions.
        #[arg(default_value_t = 20, value_parser = Range::<u64>::new().range(1..))]
        millions: u64,
    },
    /// Page operations per second of the dispatch experiment.
    Dispatch {
        #[arg(default_value_t = 20, value_parser = Range::<u64>::new().range(1..))]
        runs: u64,
    },
}

fn main() {
    let outcome = match Measure::parse() {
        Measure::Pipeline { case, requests, transfer } => {
            pipeline::run(&case, requests, transfer.as_deref())
        }
        Measure::Control { policy, tenants, requests } => control::run(&policy, tenants, requests),
        Measure::Path { policy, paths, ios } => path::run(&policy, paths, ios),
        Measure::Simulator { requests, repeats } => simulator::run(requests, repeats),
        Measure::Flash { workload, gib, millions } => flash::run(&workload, gib, millions),
        Measure::Dispatch { runs } => {
            dispatch::run(runs);
            Ok(())
        }
    };
    if let Err(error) = outcome {
        Measure::command().error(ErrorKind::InvalidValue, error).exit();
    }
}

/// The peak resident memory of this process, as Linux reports it.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM:"));
    peak.unwrap_or("VmHWM: unknown on this system").to_owned()
}
