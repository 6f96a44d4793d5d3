//! What a format of traces declares, and how its bytes become records.

use super::input::{HEAD, Input};
use super::names::Names;
use super::units::{AddressUnit, Event, TimeUnit, Wait};
use super::{Problem, Record};
use weir_flow::clock::Duration;
use weir_flow::request::Op;
use weir_flow::units::Extent;

/// What a format declares.
pub(super) struct Definition {
    /// Its name in configurations and messages.
    pub(super) name: &'static str,
    /// Where it comes from, for documents.
    pub(super) origin: &'static str,
    /// What a record looks like, for messages and documents.
    pub(super) record: &'static str,
    /// The unit of its times.
    pub(super) time: TimeUnit,
    /// Whether no files in other units are known.
    pub(super) certain: bool,
    /// Where the time is in a line, as a column for messages; 0 for elsewhere.
    pub(super) time_column: u64,
    /// The units of offsets and sizes.
    pub(super) address: (AddressUnit, AddressUnit),
    /// Weir's own: times begin at zero and are sorted, units are certain.
    pub(super) canonical: bool,
    /// The times of the file say nothing: no rate follows from them.
    pub(super) timeless: bool,
    /// Completions follow in lines or records of their own.
    pub(super) completions: bool,
    /// Whether a file that begins so is of this format.
    pub(super) recognise: fn(&Head<'_>) -> bool,
    /// A parser for these units.
    pub(super) parser: fn(Settings) -> Parser,
    /// How a record is written, for formats that `weir trace convert` writes.
    pub(super) write: Option<Writer>,
}

/// The units in force for a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) time: TimeUnit,
    pub(super) address: (AddressUnit, AddressUnit),
    /// The meaning of `wait` in a fio iolog of version 2.
    pub(super) wait: Option<Wait>,
    /// The event of the block layer that is an arrival.
    pub(super) event: Event,
}

/// Writes records of a format.
#[derive(Clone, Copy)]
pub(super) struct Writer {
    /// What comes before the first record, with the end of the line.
    pub(super) header: &'static str,
    /// Appends a record, without the end of the line; the name is the device's. What it cannot hold is
    /// a loss.
    pub(super) line: fn(&Record, &str, &mut String) -> Result<(), Loss>,
    /// Whether lines that begin with `#` may stand anywhere.
    pub(super) notices: bool,
}

/// What a format cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Times are rounded down.
    Time,
    /// The response time has no column.
    Response,
    /// The offset or size is no multiple of its unit: the record cannot be written.
    Address,
    /// The device's name or number has no place: the record cannot be written.
    Device,
}

/// How the bytes of a format become records.
pub(super) enum Parser {
    /// Line by line.
    Lines(Box<dyn LineParser>),
    /// From binary records.
    Binary(Box<dyn BinaryParser>),
}

impl Parser {
    /// For lines that say all of themselves; the first may be `header`.
    pub(super) fn lines(settings: Settings, header: Option<&'static str>, line: Line) -> Self {
        Self::Lines(Box::new(Stateless { settings, header, line }))
    }
}

/// Parses a line by itself.
pub(super) type Line = fn(&str, Settings, &mut Names) -> Result<Item, Problem>;

struct Stateless {
    settings: Settings,
    /// What the next line may be.
    header: Option<&'static str>,
    line: Line,
}

impl LineParser for Stateless {
    fn line(&mut self, line: &str, names: &mut Names) -> Result<Item, Problem> {
        if self.header.take().is_some_and(|header| line.trim_end() == header) {
            return Ok(Item::Nothing);
        }
        (self.line)(line, self.settings, names)
    }
}

/// Parses lines of text.
pub(super) trait LineParser {
    /// What the line, which is neither blank nor a notice, says.
    fn line(&mut self, line: &str, names: &mut Names) -> Result<Item, Problem>;
}

/// Parses binary records.
pub(super) trait BinaryParser {
    /// The next item, or `None` at the end of the file.
    fn next(&mut self, input: &mut Input) -> Result<Option<Item>, Problem>;

    /// What sorts a file by time.
    fn sort(&self) -> &'static str {
        "sort its records by time"
    }
}

/// What a line or a binary record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A request; its time is as in the file, in nanoseconds.
    Request(Record),
    /// The request that began at this byte ended.
    Done { device: u32, offset: u64, time: Duration },
    /// Text that stays with the data.
    Notice,
    /// A header, or what needs no mention.
    Nothing,
    /// An operation or event that is no read and no write; counted under this name.
    Skipped(&'static str),
}

impl Item {
    /// A request without a recorded response time.
    pub(super) fn request(time: u64, op: Op, device: u32, extent: Extent) -> Self {
        Self::Request(Record {
            time: Duration::from_nanos(time),
            op,
            device,
            extent,
            response: None,
        })
    }
}

/// The beginning of a file.
pub(super) struct Head<'a> {
    /// At most 64 KiB.
    pub(super) bytes: &'a [u8],
    /// It is text, of which a character may be cut at the end.
    pub(super) text: bool,
    /// Its whole lines that are neither blank nor notices, if it is text.
    pub(super) lines: Vec<&'a str>,
}

impl<'a> Head<'a> {
    /// Of these bytes.
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        let (mut text, valid) = match std::str::from_utf8(bytes) {
            Ok(text) => (text, true),
            Err(error) => {
                let text = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
                (text, error.error_len().is_none())
            }
        };
        if valid && bytes.len() >= HEAD {
            // The last line is cut.
            text = text.rfind('\n').map_or("", |end| &text[..end]);
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        Self { bytes, text: valid, lines: lines.collect() }
    }

    /// The first line.
    pub(super) fn first(&self) -> &'a str {
        self.lines.first().copied().unwrap_or_default()
    }
}
