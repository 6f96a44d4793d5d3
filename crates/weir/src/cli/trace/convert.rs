//! `weir trace convert`: writes a trace in another format.

use super::{Reading, STDIN, format, missed, open};
use crate::cli::progress::Progress;
use crate::cli::sim::trace_failure;
use crate::exit::{Exit, Failure};
use crate::output::{complain, print};
use clap::Args;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use weir_sim::trace::{Conversion, Format, convert};

/// Write a trace in Weir's CSV or another format
///
/// Times are sorted and begin at zero, where a trace in Weir's CSV does not say otherwise. Without OUT the trace is
/// written to standard output, where it can be compressed: `weir trace convert IN | zstd > OUT.csv.zst`. What the
/// new format cannot hold is refused, with the line; --lossy drops response times and rounds times down, and the
/// loss is counted, on standard error if the trace goes to standard output.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Convert {
    /// The trace; `-` is standard input
    #[arg(value_name = "IN")]
    file: PathBuf,
    /// The new file; the default, or `-`, is standard output
    out: Option<PathBuf>,
    /// Format to write: weir, spc, alibaba, iolog3 or mqsim
    #[arg(long, default_value = "weir", value_parser = writable)]
    to: Format,
    /// Drop response times and round times down where the new format needs it
    #[arg(long)]
    lossy: bool,
    #[command(flatten)]
    reading: Reading,
}

/// Standard output that remembers that its reader has had enough.
struct Pipe {
    out: io::StdoutLock<'static>,
    closed: bool,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.closed |= written.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::BrokenPipe);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn writable(name: &str) -> Result<Format, String> {
    let format = format(name)?;
    if format.writable() {
        return Ok(format);
    }
    let known: Vec<_> =
        Format::all().filter(|format| format.writable()).map(Format::as_str).collect();
    Err(format!("formats that are written are {}", known.join(", ")))
}

impl Convert {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let reader = open(&self.file, self.reading.options())?;
        let Some(out) = self.out.as_ref().filter(|out| *out != Path::new(STDIN)) else {
            let mut out = Pipe { out: io::stdout().lock(), closed: false };
            let done = convert(reader, self.to, self.lossy, &mut out, |_| ());
            let closed = out.closed;
            return match done {
                Ok(done) => {
                    if done.loses() {
                        complain(&summary(&done, self.to));
                    }
                    Ok(Exit::Success)
                }
                Err(_) if closed => Err(Failure::closed_pipe()),
                Err(error) => Err(trace_failure(&error)),
            };
        };
        let mut file = File::create_new(out).map_err(|error| {
            let message = format!("`{}` cannot be created: {error}", out.display());
            Failure::new(Exit::Invalid, message, "name a file that does not exist yet")
        })?;
        let bar = Progress::new();
        let done = convert(reader, self.to, self.lossy, &mut file, |requests| {
            bar.show(None, format!("{requests} requests"));
        });
        drop(bar);
        match done {
            Ok(done) => print(&summary(&done, self.to))?,
            Err(error) => {
                // Half a trace would be read as a whole one; where it stays, the error is still what counts.
                let _ = fs::remove_file(out);
                return Err(trace_failure(&error));
            }
        }
        Ok(Exit::Success)
    }
}

fn summary(done: &Conversion, to: Format) -> String {
    let mut text = format!("{} requests written as {to}\n", done.requests);
    if done.responses_lost > 0 {
        let _ = writeln!(text, "  lost: {} response times", done.responses_lost);
    }
    if done.times_rounded > 0 {
        let _ = writeln!(text, "  rounded down: {} times", done.times_rounded);
    }
    if done.notices_lost > 0 {
        let lines = if done.notices_lost == 1 { "line" } else { "lines" };
        let count = done.notices_lost;
        let _ =
            writeln!(text, "  lost: {count} {lines} of notices, which may be the trace's licence");
    }
    text += &missed(done.responses_missed);
    text
}
