//! `weir log`: inspects and salvages write-back logs that no gateway has open.

mod ls;
mod salvage;
mod stat;
mod verify;

use crate::exit::{Exit, Failure};
use clap::{Args, Subcommand};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use weir_flow::cache::writeback::Refusal;
use weir_flow::cache::writeback::format::Descriptor;
use weir_flow::cache::writeback::inspect::{Inspection, inspect};
use weir_serve::{ClosedLog, LogReader, LookError};

/// Inspect the write-back log of a volume while no gateway serves it, and salvage its intact records
///
/// The log is opened read-only and locked against gateways. Nothing is ever written to it.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Log {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the volume, contents and state of a log, and whether a gateway would accept it
    Stat(Inspect),
    /// List the records in order; with `--json` one object per line
    Ls(Inspect),
    /// Read the whole log, check every checksum, and print each defect with its offset
    ///
    /// The exit code is 0 if no data is lost, 6 if some is.
    #[command(verbatim_doc_comment)]
    Verify(Inspect),
    Salvage(salvage::Salvage),
}

/// The log to inspect.
#[derive(Debug, Args)]
struct Inspect {
    /// The log: a file or block device
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Log {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self.command {
            Command::Stat(log) => stat::run(&log),
            Command::Ls(log) => ls::run(&log),
            Command::Verify(log) => verify::run(&log),
            Command::Salvage(command) => command.run(),
        }
    }
}

fn open(path: &Path) -> Result<ClosedLog, Failure> {
    ClosedLog::open(path).map_err(|error| unavailable(&error))
}

fn unavailable(error: &LookError) -> Failure {
    let help = match error {
        LookError::InUse { .. } => {
            "`weir volume status` shows the log of a running gateway; `weir stop` stops the gateway"
        }
        LookError::Os { .. } => "name a file or block device that can be used",
    };
    Failure::new(Exit::Unavailable, error.to_string(), help)
}

fn inspected(
    path: &Path,
    log: &ClosedLog,
    reader: &mut LogReader<'_>,
) -> Result<Inspection, Failure> {
    looked_at(log, reader).map_err(|refusal| refused(path, &refusal))
}

fn looked_at(
    log: &ClosedLog,
    reader: &mut LogReader<'_>,
) -> Result<Inspection, Refusal<Infallible>> {
    inspect(&mut device(reader), log.size)
}

fn refused(path: &Path, refusal: &Refusal<Infallible>) -> Failure {
    let message = format!("{}: {refusal}", path.display());
    Failure::new(Exit::Damaged, message, "nothing was changed")
}

/// A reader that never fails: it remembers the ranges that cannot be read.
fn device<'a>(
    reader: &'a mut LogReader<'_>,
) -> impl FnMut(u64, &mut [u8]) -> Result<(), Infallible> + 'a {
    |at, bytes| {
        reader.read(at, bytes);
        Ok(())
    }
}

/// The value of something that cannot fail.
fn always<T>(result: Result<T, Infallible>) -> T {
    let Ok(value) = result;
    value
}

/// The range of a record on its volume, in bytes: start and length.
fn extent(record: &Descriptor, block: u32) -> (u64, u64) {
    (record.lba * u64::from(block), u64::from(record.blocks) * u64::from(block))
}

fn hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}
