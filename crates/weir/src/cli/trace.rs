//! `weir trace`: describes and converts traces of block I/O.

mod convert;
mod misses;

use super::progress::Progress;
use super::replay::is_recording;
use super::sim::trace_failure;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use crate::table::{Align, Table};
use clap::{Args, Subcommand};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use weir_flow::units::ByteCount;
use weir_sim::trace::{
    self, AddressUnit, Event, Format, Info, MOST_SORTED, Options, Reader, TimeUnit, Wait,
};

/// Describe and convert traces of block I/O, and predict their cache misses
#[derive(Debug, Args)]
pub(super) struct Trace {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read a whole trace and print its format and statistics
    ///
    /// The format is found from the content; docs/reference/traces.md describes each one. Files are plain or
    /// compressed with zstd or gzip. Every line is checked; a bad one is named with line and column. A unit that makes no
    /// usual rate or address is refused with those that do.
    #[command(verbatim_doc_comment)]
    Info {
        /// The trace; `-` is standard input
        file: PathBuf,
        #[command(flatten)]
        reading: Reading,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    Convert(convert::Convert),
    Misses(misses::Misses),
}

/// What is known about a file before it is read.
#[derive(Debug, Args)]
pub(super) struct Reading {
    /// Format of the trace; the default is to find it from the content
    #[arg(long, value_parser = format)]
    format: Option<Format>,
    /// Unit of its times: ns, us, ms or s; the default is that of the format, and is checked. Refused for weir and
    /// iolog2
    #[arg(long, value_name = "UNIT", value_parser = time_unit)]
    time_unit: Option<TimeUnit>,
    /// Unit of its offsets and sizes, `bytes` or `sectors` (of 512 bytes), or two such as `bytes,sectors`; the
    /// default is that of the format, and is checked. Refused for weir
    #[arg(long, value_name = "UNIT", value_parser = address)]
    address: Option<(AddressUnit, AddressUnit)>,
    /// What `wait` is in a fio iolog of version 2: `us-relative` (fio's manual) or `ms-absolute` (fio's code). Refused
    /// for all but iolog2
    #[arg(long, value_name = "MEANING", value_parser = wait)]
    wait: Option<Wait>,
    /// The event that is an arrival in blkparse and blktrace: `D` (issued, the default) or `Q` (queued). Refused for
    /// all others
    #[arg(long, value_parser = event)]
    event: Option<Event>,
}

impl Reading {
    fn options(&self) -> Options {
        let Self { format, time_unit, address, wait, event } = *self;
        Options { format, time_unit, address, wait, event }
    }
}

fn time_unit(name: &str) -> Result<TimeUnit, String> {
    TimeUnit::named(name).ok_or_else(|| "the units are ns, us, ms and s".to_owned())
}

fn address(names: &str) -> Result<(AddressUnit, AddressUnit), String> {
    let (offset, size) = names.split_once(',').unwrap_or((names, names));
    let units = AddressUnit::named(offset).zip(AddressUnit::named(size));
    units.ok_or_else(|| "write `bytes`, `sectors`, or two of them: offset,size".to_owned())
}

fn wait(name: &str) -> Result<Wait, String> {
    Wait::named(name).ok_or_else(|| "write `us-relative` or `ms-absolute`".to_owned())
}

fn event(name: &str) -> Result<Event, String> {
    Event::named(name).ok_or_else(|| "write `D` or `Q`".to_owned())
}

impl Trace {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let (file, reading, json) = match self.command {
            Command::Info { file, reading, json } => (file, reading, json),
            Command::Convert(command) => return command.run(),
            Command::Misses(command) => return command.run(),
        };
        let info = info(&file, reading.options())?;
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
    Format::named(name).ok_or_else(|| format!("the formats are {}", Format::NAMES.join(", ")))
}

/// Opens a trace; `-` is standard input.
fn open(file: &Path, options: impl Into<Options>) -> Result<Reader, Failure> {
    let reader = if file == Path::new(STDIN) {
        Reader::new(Path::new("standard input"), Box::new(io::stdin()), options)
    } else {
        refuse_recording(file)?;
        Reader::open(file, options)
    };
    reader.map_err(|error| trace_failure(&error))
}

/// The name of standard input and output.
pub(super) const STDIN: &str = "-";

/// Reads a whole trace with a progress line.
pub(super) fn info(file: &Path, options: impl Into<Options>) -> Result<Info, Failure> {
    let reader = open(file, options)?;
    let bar = Progress::new();
    let info = trace::info(reader, |requests| bar.show(None, format!("{requests} requests")));
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

/// Why requests have no response time that the file may have.
fn missed(requests: u64) -> String {
    if requests == 0 {
        return String::new();
    }
    let (noun, them) = if requests == 1 { ("request", "it") } else { ("requests", "them") };
    format!(
        "  {requests} {noun} had no completion within the {MOST_SORTED} requests after {them}; later ones \
         were not looked for\n"
    )
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
    text += &missed(info.responses_missed);
    if let Some(remark) = &info.remark {
        let _ = writeln!(text, "  {remark}");
    }
    for (what, count) in &info.skipped {
        let _ = writeln!(text, "  skipped: {count} {what}");
    }
    let _ = writeln!(text, "  digest {}", info.digest);
    for notice in &info.notices {
        let _ = writeln!(text, "  {}", notice.replace(char::is_control, " "));
    }
    if info.more_notices > 0 {
        let lines = if info.more_notices == 1 { "line" } else { "lines" };
        let _ = writeln!(text, "  and {} more {lines} of notices", info.more_notices);
    }
    let columns =
        [("device", Align::Right), ("requests", Align::Right), ("bytes up to", Align::Right)];
    let mut table = Table::new(&columns);
    for device in &info.devices {
        let end = device.capacity_bytes.to_string();
        let name = device.name.clone().unwrap_or_else(|| device.device.to_string());
        table.row(vec![name, device.requests.to_string(), end]);
    }
    text.push_str(&table.render("  "));
    text
}
