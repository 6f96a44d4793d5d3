//! `weir trace`: describes traces of block I/O.

mod misses;

use super::progress::Progress;
use super::replay::is_recording;
use super::sim::trace_failure;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use crate::table::{Align, Table};
use clap::{Args, Subcommand};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use weir_flow::units::ByteCount;
use weir_sim::trace::{self, Format, Info};

/// Describe traces of block I/O, and predict their cache misses
#[derive(Debug, Args)]
pub(super) struct Trace {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read a whole trace and print its statistics
    ///
    /// Reads Weir's own CSV (`time_ns,op,dev,offset,size[,resp_ns]`) and MSR Cambridge, plain or
    /// compressed with zstd. Every line is checked; a bad one is named with line and column.
    #[command(verbatim_doc_comment)]
    Info {
        /// The trace
        file: PathBuf,
        /// Format of the trace, `weir` or `msr`; the default is to detect it
        #[arg(long, value_parser = format)]
        format: Option<Format>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    Misses(misses::Misses),
}

impl Trace {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let (file, format, json) = match self.command {
            Command::Info { file, format, json } => (file, format, json),
            Command::Misses(command) => return command.run(),
        };
        let info = info(&file, format)?;
        if json {
            let mut value = serde_json::to_value(&info)
                .map_err(|error| Failure::unexpected(error.to_string()))?;
            value["version"] = 1.into();
            value["file"] = file.display().to_string().into();
            print_json(&value)?;
        } else {
            print(&text(&file, &info))?;
        }
        Ok(Exit::Success)
    }
}

/// A format by its name.
pub(super) fn format(name: &str) -> Result<Format, String> {
    Format::named(name).ok_or_else(|| {
        let known: Vec<_> = Format::ALL.iter().map(|format| format.as_str()).collect();
        format!("the formats are {}", known.join(", "))
    })
}

/// Reads a whole trace with a progress line.
pub(super) fn info(file: &Path, format: Option<Format>) -> Result<Info, Failure> {
    refuse_recording(file)?;
    let bar = Progress::new();
    let info = trace::info(file, format, |requests| bar.show(None, format!("{requests} requests")));
    drop(bar);
    info.map_err(|error| trace_failure(&error))
}

/// A file of `weir serve --record` is not a trace.
fn refuse_recording(file: &Path) -> Result<(), Failure> {
    if is_recording(file)? {
        let message = format!("`{}` is a recording of `weir serve`, not a trace", file.display());
        return Err(Failure::new(Exit::Invalid, message, "replay it: weir replay FILE"));
    }
    Ok(())
}

fn text(file: &Path, info: &Info) -> String {
    let mut text = format!("{}: {} trace\n", file.display(), info.format);
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let seconds = info.duration_ns as f64 / 1e9;
    let _ = writeln!(text, "  {} requests in {seconds:.3} s", info.requests);
    let _ = writeln!(
        text,
        "  {:.1} requests/s on average, {:.1} in the busiest second",
        info.mean_iops, info.peak_iops as f64
    );
    let _ = writeln!(
        text,
        "  {:.1} % reads; {:.1} MB read, {:.1} MB written",
        info.reads_percent,
        megabytes(info.bytes_read),
        megabytes(info.bytes_written)
    );
    let _ = writeln!(text, "  {:.1} % sequential", info.sequential_percent);
    let size = |bytes: u64| ByteCount(bytes).to_string();
    let _ = writeln!(
        text,
        "  sizes: p50 {}, p90 {}, p99 {}, largest {}",
        size(info.size_p50),
        size(info.size_p90),
        size(info.size_p99),
        size(info.size_max)
    );
    let _ = writeln!(text, "  {} requests with a recorded response time", info.with_response);
    for notice in &info.notices {
        let _ = writeln!(text, "  {}", notice.replace(char::is_control, " "));
    }
    let columns =
        [("device", Align::Right), ("requests", Align::Right), ("bytes up to", Align::Right)];
    let mut table = Table::new(&columns);
    for device in &info.devices {
        let end = device.capacity_bytes.to_string();
        table.row(vec![device.device.to_string(), device.requests.to_string(), end]);
    }
    text.push_str(&table.render("  "));
    text
}
