//! Block traces: readers of recorded requests with their times.
//!
//! A [`Reader`] gives one [`Record`] after the other and never holds more than a line, so a trace
//! may be larger than memory. Files may be compressed with zstd. Whatever is wrong with a file is
//! an [`Error`] that says where and what was expected.

mod fields;
mod info;
mod lines;
mod msr;
mod weir;

pub use info::{DeviceInfo, Info, info};

use lines::Lines;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use weir_flow::clock::Duration;
use weir_flow::request::Op;
use weir_flow::units::Extent;

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it came, counted from the trace's time zero. Never less than that of the record before.
    pub time: Duration,
    /// [`Op::Read`] or [`Op::Write`].
    pub op: Op,
    /// The device's number in the file.
    pub device: u32,
    /// Bytes of the device; never empty, its end fits 64 bits.
    pub extent: Extent,
    /// How long it took when it was recorded, where the file says so.
    pub response: Option<Duration>,
}

/// The format of a trace file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Weir's own: a header line `time_ns,op,dev,offset,size`, optionally `,resp_ns`.
    Weir,
    /// MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, no header.
    Msr,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 2] = [Self::Weir, Self::Msr];

    /// Its name in configurations and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::Msr => "msr",
        }
    }

    /// The format of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// The format of a file whose first line that is no notice is `line`.
    fn of(line: &str) -> Option<Self> {
        if line.starts_with("time_ns,") {
            return Some(Self::Weir);
        }
        let timestamp = line.split(',').next().unwrap_or_default();
        let digits = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
        (digits && line.split(',').count() == 7).then_some(Self::Msr)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is wrong with a trace, and where. Shown as `FILE:LINE:COLUMN: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// Line, counted from 1; 0 for the file as a whole.
    pub line: u64,
    /// Byte within the line, counted from 1; 0 for the line as a whole.
    pub column: u64,
    /// What is wrong and what was expected.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for Error {}

/// What is wrong with a line; the reader knows which one.
#[derive(Debug)]
struct Problem {
    /// Byte within the line, counted from 1; 0 for the whole line.
    column: u64,
    message: String,
}

impl Problem {
    fn new(column: u64, message: impl Into<String>) -> Self {
        Self { column, message: message.into() }
    }
}

/// Reads a trace, request by request.
pub struct Reader {
    path: PathBuf,
    lines: Lines,
    parser: Parser,
    last: Duration,
    notices: Vec<String>,
    /// A line that was read to find the format and that is a request.
    first: bool,
}

/// What a format has to remember between lines.
enum Parser {
    Weir(weir::Parser),
    Msr(msr::Parser),
}

/// Most notices that are kept; later ones are skipped.
const MAX_NOTICES: usize = 64;

impl Reader {
    /// Opens a file and reads as far as its header. Without a format, its first line that is no
    /// notice tells it.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, Error> {
        let file = std::fs::File::open(path).map_err(|error| Error {
            path: path.to_owned(),
            line: 0,
            column: 0,
            message: format!("cannot be opened: {error}"),
        })?;
        Self::new(path, Box::new(file), format)
    }

    /// Reads from `source`; `path` is its name in errors.
    pub fn new(path: &Path, source: Box<dyn Read>, format: Option<Format>) -> Result<Self, Error> {
        let mut lines = Lines::new(source).map_err(|problem| problem.at(path, 0))?;
        let mut notices = Vec::new();
        let found = Self::begin(&mut lines, &mut notices, format);
        let (parser, first) = found.map_err(|problem| problem.at(path, lines.number()))?;
        let path = path.to_owned();
        Ok(Self { path, lines, parser, last: Duration::ZERO, notices, first })
    }

    /// The format of the file.
    pub const fn format(&self) -> Format {
        match self.parser {
            Parser::Weir(_) => Format::Weir,
            Parser::Msr(_) => Format::Msr,
        }
    }

    /// The notices, lines that begin with `#`, that have been met so far, at most 64.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The number of the line that was read last.
    pub const fn line(&self) -> u64 {
        self.lines.number()
    }

    /// An error about the line that was read last.
    pub fn error(&self, message: impl Into<String>) -> Error {
        Problem::new(0, message).at(&self.path, self.lines.number())
    }

    /// The next request, or `None` at the end of the file.
    pub fn read(&mut self) -> Result<Option<Record>, Error> {
        self.advance().map_err(|problem| problem.at(&self.path, self.lines.number()))
    }

    fn begin(
        lines: &mut Lines,
        notices: &mut Vec<String>,
        format: Option<Format>,
    ) -> Result<(Parser, bool), Problem> {
        while lines.advance()? {
            let line = lines.text()?;
            if keep_notice(line, notices) {
                continue;
            }
            let unknown = || {
                Problem::new(
                    1,
                    "this is no known trace; expected the header \
                     `time_ns,op,dev,offset,size[,resp_ns]` or an MSR Cambridge line \
                     `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`",
                )
            };
            return match format.or_else(|| Format::of(line)).ok_or_else(unknown)? {
                Format::Weir => Ok((Parser::Weir(weir::Parser::new(line)?), false)),
                Format::Msr => Ok((Parser::Msr(msr::Parser::new(line)?), true)),
            };
        }
        Err(Problem::new(0, "the file has no requests and no header"))
    }

    fn advance(&mut self) -> Result<Option<Record>, Problem> {
        loop {
            if !std::mem::take(&mut self.first) && !self.lines.advance()? {
                return Ok(None);
            }
            let line = self.lines.text()?;
            if keep_notice(line, &mut self.notices) {
                continue;
            }
            let record = match &self.parser {
                Parser::Weir(parser) => parser.parse(line)?,
                Parser::Msr(parser) => parser.parse(line)?,
            };
            if record.time < self.last {
                let back = self.last - record.time;
                return Err(Problem::new(
                    1,
                    format!(
                        "the time is {back} before that of the request above; requests must be \
                         sorted by time"
                    ),
                ));
            }
            self.last = record.time;
            return Ok(Some(record));
        }
    }
}

/// Keeps a notice and says whether the line is one.
fn keep_notice(line: &str, notices: &mut Vec<String>) -> bool {
    let notice = line.starts_with('#');
    if notice && notices.len() < MAX_NOTICES {
        notices.push(line.to_owned());
    }
    notice
}

impl Problem {
    fn at(self, path: &Path, line: u64) -> Error {
        Error { path: path.to_owned(), line, column: self.column, message: self.message }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({}:{}, {})", self.path.display(), self.lines.number(), self.format())
    }
}

#[cfg(test)]
mod tests;
