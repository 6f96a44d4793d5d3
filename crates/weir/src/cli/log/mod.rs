//! `weir log`: the logs of volumes, without a gateway.

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

/// Look at the log of a volume that no gateway serves, and get out of it what is intact
///
/// The log is opened read-only, and locked against a gateway. Nothing is ever written to it.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Log {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say whose log it is, what is in it, and what a gateway would do with it
    Stat(Look),
    /// List its records in order; with `--json` one object a line
    Ls(Look),
    /// Read all of it, check every checksum, and say what is wrong where
    ///
    /// Ends with 0 if nothing is lost, with 6 if something is.
    #[command(verbatim_doc_comment)]
    Verify(Look),
    Salvage(salvage::Salvage),
}

/// The log that is looked at.
#[derive(Debug, Args)]
struct Look {
    /// The log: a file or block device
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Log {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self.command {
            Command::Stat(look) => stat::run(&look),
            Command::Ls(look) => ls::run(&look),
            Command::Verify(look) => verify::run(&look),
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
            "a gateway that serves it tells what is in it: `weir volume status`; `weir stop` ends it"
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

/// A log as a reader without faults: what cannot be read is remembered there.
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

/// Where a record is on its volume, in bytes: start and length.
fn extent(record: &Descriptor, block: u32) -> (u64, u64) {
    (record.lba * u64::from(block), u64::from(record.blocks) * u64::from(block))
}

fn hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}
