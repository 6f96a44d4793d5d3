//! Block traces: readers of recorded requests with their times.
//!
//! A [`Reader`] gives one [`Record`] after the other. It holds at most the first 100,000 of them, by which units
//! are checked, 65,536 of the last second, which are sorted (of the last minute, where completions follow), the places of
//! 262,144 requests that wait for their completion or left without one, and 64 MiB of notices: a trace may be larger than
//! memory.
//! Files may be compressed with zstd or gzip. Whatever is wrong with a file is an [`Error`] that says where
//! and what was expected.

mod convert;
mod define;
mod fields;
mod format;
mod formats;
mod guard;
mod info;
mod input;
mod names;
mod notices;
mod order;
mod units;

pub use convert::{Conversion, convert};
pub use format::{Format, Options};
pub use info::{DeviceInfo, Info, info};
pub use order::MOST as MOST_SORTED;
pub use units::{AddressUnit, Event, TimeUnit, Wait};

use define::{Definition, Head, Item, Parser, Settings};
use input::Input;
use names::Names;
use notices::Notices;
use order::{After, Late, Order, Placed};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};
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
    /// The device's number in the file, or in order of the first requests by time where the file has names.
    pub device: u32,
    /// Bytes of the device; never empty, its end fits 64 bits.
    pub extent: Extent,
    /// How long it took when it was recorded, where the file says so.
    pub response: Option<Duration>,
}

/// What is wrong with a trace, and where. Shown as `FILE:LINE:COLUMN: message; remedy`.
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
    /// What to do, where that is not to correct the line or to name another file.
    pub remedy: Option<String>,
}

impl Error {
    /// Where and what the problem is, without the remedy.
    pub fn problem(&self) -> String {
        let place = |number| if number > 0 { format!(":{number}") } else { String::new() };
        let (line, column) = (place(self.line), place(self.column));
        format!("{}{line}{column}: {}", self.path.display(), self.message)
    }

    /// With what to do.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem())?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl std::error::Error for Error {}

/// What is wrong with a line; the reader knows which one.
#[derive(Debug)]
struct Problem {
    /// Byte within the line, counted from 1; 0 for the whole line.
    column: u64,
    message: String,
    /// What to do, where that is not to correct the line.
    remedy: Option<String>,
}

impl Problem {
    fn new(column: u64, message: impl Into<String>) -> Self {
        Self { column, message: message.into(), remedy: None }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    fn at(self, path: &Path, line: u64) -> Error {
        let Self { column, message, remedy } = self;
        Error { path: path.to_owned(), line, column, message, remedy }
    }
}

/// Reads a trace, request by request.
pub struct Reader {
    path: PathBuf,
    format: Format,
    input: Input,
    parser: Parser,
    names: Names,
    order: Order,
    /// Requests that were read ahead to check units.
    ahead: VecDeque<Placed>,
    /// The time of the file that is time zero.
    zero: Option<Duration>,
    /// The file has been read to its end.
    ended: bool,
    /// The line of the request that was given last.
    line: u64,
    /// Where the last item of a binary file begins, in bytes.
    start: u64,
    notices: Notices,
    /// Notices of the lines before this one are due.
    due: u64,
    /// What the check of units found worth knowing.
    remark: Option<String>,
    skipped: BTreeMap<&'static str, u64>,
}

impl Reader {
    /// Opens a file and reads as many requests as it takes to find its format and check its units.
    /// `options` may be a [`Format`], or `None` to find it.
    pub fn open(path: &Path, options: impl Into<Options>) -> Result<Self, Error> {
        let file = std::fs::File::open(path)
            .map_err(|error| Problem::new(0, format!("cannot be opened: {error}")).at(path, 0))?;
        Self::new(path, Box::new(file), options)
    }

    /// Reads from `source`; `path` is its name in errors.
    pub fn new(
        path: &Path,
        source: Box<dyn Read>,
        options: impl Into<Options>,
    ) -> Result<Self, Error> {
        let options = options.into();
        let input = Input::new(source).map_err(|problem| problem.at(path, 0))?;
        let format = match options.format {
            Some(format) => format,
            None => Self::find(&input).map_err(|(problem, line)| problem.at(path, line))?,
        };
        let definition = format.definition();
        options.used_by(definition).map_err(|problem| problem.at(path, 0))?;
        let settings = Settings {
            time: options.time_unit.unwrap_or(definition.time),
            address: options.address.unwrap_or(definition.address),
            wait: options.wait,
            event: options.event.unwrap_or_default(),
        };
        let mut reader = Self {
            path: path.to_owned(),
            format,
            input,
            parser: (definition.parser)(settings),
            names: Names::default(),
            order: Order::new(definition.completions),
            ahead: VecDeque::new(),
            zero: definition.canonical.then_some(Duration::ZERO),
            ended: false,
            line: 0,
            start: 0,
            notices: Notices::default(),
            due: 0,
            remark: None,
            skipped: BTreeMap::new(),
        };
        reader.check(definition, &options)?;
        Ok(reader)
    }

    /// The format of the file.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The notices, lines that begin with `#` and texts before the data, that stand before the request that was
    /// given last and have not been taken; at the end of the file, all others.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.notices.take(self.due)
    }

    /// How many notices were dropped: more than 1 MiB stood between two requests, or more than 64 MiB waited
    /// for their requests.
    pub const fn notices_dropped(&self) -> u64 {
        self.notices.dropped()
    }

    /// Requests whose completion was not waited for to the end, because too many others waited.
    pub const fn responses_missed(&self) -> u64 {
        self.order.missed()
    }

    /// What was met so far that is neither read nor write, and how often.
    pub const fn skipped(&self) -> &BTreeMap<&'static str, u64> {
        &self.skipped
    }

    /// How the times were read, where other units would be usual too.
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// The name of a device, where the file has names.
    pub fn device_name(&self, device: u32) -> Option<&str> {
        self.names.name(device)
    }

    /// The number of the line of the request that was given last; 0 in a binary file.
    pub const fn line(&self) -> u64 {
        self.line
    }

    /// An error about the request that was given last.
    pub fn error(&self, message: impl Into<String>) -> Error {
        Problem::new(0, message).at(&self.path, self.line)
    }

    /// The next request, or `None` at the end of the file.
    pub fn read(&mut self) -> Result<Option<Record>, Error> {
        let placed = match self.ahead.pop_front() {
            Some(placed) => Some(placed),
            None => self.advance().map_err(|problem| self.at(problem))?,
        };
        let Some(Placed { record, at }) = placed else {
            self.due = u64::MAX;
            return Ok(None);
        };
        self.due = self.due.max(at);
        self.line = if self.binary() { 0 } else { at };
        Ok(Some(record))
    }

    const fn binary(&self) -> bool {
        matches!(self.parser, Parser::Binary(_))
    }

    fn at(&self, problem: Problem) -> Error {
        problem.at(&self.path, self.input.number())
    }

    fn find(input: &Input) -> Result<Format, (Problem, u64)> {
        let head = Head::of(input.head());
        Format::of(&head).map_err(|problem| {
            if head.lines.is_empty() && head.text {
                let lines = lines_of(head.bytes);
                if head.bytes.len() < input::HEAD {
                    return (Problem::new(0, "the file has no requests and no header"), lines);
                }
                let problem = Problem::new(0, "the first 64 KiB have no request and no header");
                return (problem.remedy("name the format with --format"), lines);
            }
            let start = head.first().as_ptr().addr().saturating_sub(head.bytes.as_ptr().addr());
            let before = head.bytes.get(..start).unwrap_or_default();
            (problem, lines_of(before) + 1)
        })
    }

    /// Reads ahead and checks the units.
    fn check(&mut self, definition: &Definition, options: &Options) -> Result<(), Error> {
        if definition.canonical {
            // The header is read, so that its faults are found here.
            let first = self.advance().map_err(|problem| self.at(problem))?;
            self.ahead.extend(first);
            return Ok(());
        }
        while self.ahead.len() < guard::MOST {
            let Some(placed) = self.advance().map_err(|problem| self.at(problem))? else { break };
            self.ahead.push_back(placed);
        }
        if self.ahead.is_empty() && !self.skipped.is_empty() {
            let skipped: Vec<_> =
                self.skipped.iter().map(|(what, count)| format!("{count} {what}")).collect();
            let message = format!(
                "the file has no read and no write of its format {}; skipped: {}",
                self.format,
                skipped.join(", ")
            );
            let mut problem = Problem::new(0, message);
            if definition.completions {
                problem = problem.remedy("--event Q or D says what an arrival is");
            }
            return Err(problem.at(&self.path, 0));
        }
        let records: Vec<Record> = self.ahead.iter().map(|placed| placed.record).collect();
        let line = self.ahead.front().filter(|_| !self.binary()).map_or(0, |placed| placed.at);
        let found = guard::judge(definition, options, &records);
        if let Some(notice) = found.map_err(|problem| problem.at(&self.path, line))? {
            self.remark = Some(notice);
        }
        Ok(())
    }

    /// The next request in order of time.
    fn advance(&mut self) -> Result<Option<Placed>, Problem> {
        loop {
            let at_once = self.ended || self.format.definition().canonical;
            if let Some(mut placed) = self.order.pop(at_once) {
                let zero = *self.zero.get_or_insert(placed.record.time);
                placed.record.time -= zero;
                placed.record.device = self.names.leaves(placed.record.device);
                return Ok(Some(placed));
            }
            if self.ended {
                return Ok(None);
            }
            match self.item()? {
                None => self.ended = true,
                Some(Item::Request(record)) => self.take(record)?,
                Some(Item::Done { device, offset, time }) => {
                    self.order.complete((device, offset), time);
                }
                Some(Item::Skipped(what)) => *self.skipped.entry(what).or_default() += 1,
                Some(Item::Notice) => {
                    let mut rest = self.input.text()?.trim_end();
                    while !rest.is_empty() {
                        // With its mark, a line must not become too long to be read again.
                        let end = rest.floor_char_boundary(input::MAX_LINE - MARK.len());
                        self.notices.keep(self.input.number(), format!("{MARK}{}", &rest[..end]));
                        rest = &rest[end..];
                    }
                }
                Some(Item::Nothing) => {}
            }
        }
    }

    fn take(&mut self, record: Record) -> Result<(), Problem> {
        let at = if self.binary() { self.start } else { self.input.number() };
        self.notices.request();
        self.order.push(Placed { record, at }).map_err(|late| self.late(late, at))
    }

    /// A request that is too late to be sorted.
    fn late(&self, late: Late, at: u64) -> Problem {
        let definition = self.format.definition();
        let (what, this, sort) = match &self.parser {
            Parser::Binary(parser) => {
                ("the record at byte", format!(" of the record at byte {at}"), parser.sort())
            }
            Parser::Lines(_) => ("line", String::new(), "sort the file by time"),
        };
        let After { by, at } = late.newest;
        let mut message = format!("the time{this} is {by} before that of {what} {at}");
        if let Some(After { by, at }) = late.left.filter(|_| !definition.canonical) {
            let _ = write!(
                message,
                ", and {by} before that of {what} {at}, which left because more than {} requests \
                 waited to be sorted",
                order::MOST
            );
        } else if !definition.canonical {
            let _ = write!(message, "; at most {} is sorted", order::SLACK);
        }
        Problem::new(definition.time_column, message).remedy(sort)
    }

    /// The next line or binary record.
    fn item(&mut self) -> Result<Option<Item>, Problem> {
        match &mut self.parser {
            Parser::Binary(parser) => {
                self.start = self.input.bytes();
                parser.next(&mut self.input)
            }
            Parser::Lines(parser) => {
                if !self.input.advance()? {
                    return Ok(None);
                }
                let line = self.input.text()?;
                if line.trim().is_empty() {
                    return Ok(Some(Item::Nothing));
                }
                if line.starts_with('#') {
                    let notice = line.to_owned();
                    self.notices.keep(self.input.number(), notice);
                    return Ok(Some(Item::Nothing));
                }
                parser.line(line, &mut self.names).map(Some)
            }
        }
    }
}

/// What stands before a notice that is a text.
const MARK: &str = "# ";

/// How many lines end in these bytes.
fn lines_of(bytes: &[u8]) -> u64 {
    bytes.split(|&byte| byte == b'\n').count() as u64 - 1
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({}:{}, {})", self.path.display(), self.line, self.format())
    }
}

#[cfg(test)]
mod tests;
