//! # Trace format: blktrace, binary
//!
//! | | |
//! |---|---|
//! | File     | what blktrace writes for one CPU, or a tar (ustar) of such files, merged by time |
//! | Version 7 | 48 bytes: u32 magic, u32 sequence, u64 time, u64 sector, u32 bytes, u32 action, u32 pid, u32 device, u32 cpu, u16 error, u16 length of what follows |
//! | Version 8 | 64 bytes: …u32 bytes, u32 pid, u64 action, u32 device, u32 cpu, u16 error, u16 length, 12 bytes |
//! | Magic    | `0x65617407` or `0x65617408`, in either byte order |
//! | Arrival  | the event `D`, or `Q` where that is asked for; all others are skipped and counted |
//! | Response | from `C` of the same device and sector, within a minute |
//! | Times    | nanoseconds |
//! | `sector`, `bytes` | sectors of 512 bytes, and bytes |
//! | Source   | Linux, `include/uapi/linux/blktrace_api.h` |

use super::super::define::{BinaryParser, Definition, Item, Parser, Settings};
use super::super::input::Input;
use super::super::units::{AddressUnit, Event, TimeUnit};
use super::super::{Problem, Record};
use std::collections::VecDeque;
use weir_flow::clock::Duration;
use weir_flow::request::Op;
use weir_flow::units::Extent;

pub(in super::super) static DEFINITION: Definition = Definition {
    name: "blktrace",
    origin: "blktrace, binary",
    record: "48 or 64 bytes in either byte order, or a tar of such files",
    time: TimeUnit::Nanoseconds,
    certain: true,
    time_column: 0,
    address: (AddressUnit::Sectors, AddressUnit::Bytes),
    canonical: false,
    timeless: false,
    completions: true,
    recognise: |head| magic(head.bytes).is_some() || tar(head.bytes),
    parser: |settings| Parser::Binary(Box::new(Records { settings, tar: None })),
    write: None,
};

const MAGIC: u32 = 0x6561_7407;

/// A block of a tar.
const BLOCK: usize = 512;

/// The largest tar, in bytes of its files: they are held in memory until they are merged.
const MOST: usize = 1 << 28;

/// Version and order of bytes of a record that begins so.
#[derive(Clone, Copy)]
struct Shape {
    big: bool,
    version: u8,
}

fn magic(bytes: &[u8]) -> Option<Shape> {
    let start: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    [false, true].into_iter().find_map(|big| {
        let word = if big { u32::from_be_bytes(start) } else { u32::from_le_bytes(start) };
        let version = (word & 0xff) as u8;
        let known = word & !0xff == MAGIC & !0xff && matches!(version, 7 | 8);
        known.then_some(Shape { big, version })
    })
}

/// Whether this is a tar whose first file with content is of blktrace.
fn tar(bytes: &[u8]) -> bool {
    if bytes.get(257..262) != Some(b"ustar") {
        return false;
    }
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + BLOCK) {
        let Some(size) = size(header) else { return false };
        at += BLOCK;
        if file(header) && size > 0 {
            return bytes.get(at..).is_some_and(|content| magic(content).is_some());
        }
        let Some(next) = size.div_ceil(BLOCK).checked_mul(BLOCK).and_then(|s| s.checked_add(at))
        else {
            return false;
        };
        at = next;
    }
    false
}

/// Whether the header is one of a regular file.
fn file(header: &[u8]) -> bool {
    matches!(header[156], b'0' | 0)
}

/// The size of a tar's member: octal digits.
fn size(header: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(&header[124..136]).ok()?;
    let text = text.trim_matches(|c| c == '\0' || c == ' ');
    if text.is_empty() { Some(0) } else { usize::from_str_radix(text, 8).ok() }
}

impl Shape {
    /// Bytes of a record.
    const fn length(self) -> usize {
        if self.version == 7 { 48 } else { 64 }
    }

    fn number(self, record: &[u8], at: usize, bytes: usize) -> u64 {
        let byte = |index: usize| u64::from(record[at + index]);
        if self.big {
            (0..bytes).fold(0, |value, index| value << 8 | byte(index))
        } else {
            (0..bytes).rev().fold(0, |value, index| value << 8 | byte(index))
        }
    }

    /// How many bytes follow the record.
    fn follows(self, record: &[u8]) -> usize {
        self.number(record, if self.version == 7 { 46 } else { 50 }, 2) as usize
    }

    /// What the record says; `what` names it in messages.
    fn item(self, record: &[u8], settings: Settings, what: &str) -> Result<Item, Problem> {
        let (action, device) = match self.version {
            7 => (self.number(record, 28, 4), self.number(record, 36, 4)),
            _ => (self.number(record, 32, 8), self.number(record, 40, 4)),
        };
        let event = match settings.event {
            Event::Queued => QUEUE,
            Event::Issued => ISSUE,
        };
        let category = action >> 16;
        let kind = action & 0xffff;
        let done = kind == COMPLETE;
        if category & NOTIFY != 0 || !done && kind != event {
            return Ok(Item::Skipped(match kind {
                _ if category & NOTIFY != 0 => "message",
                QUEUE => "event Q",
                ISSUE => "event D",
                _ => "other event",
            }));
        }
        let bytes = self.number(record, 24, 4);
        let op = match category {
            _ if category & PACKET != 0 => return Ok(Item::Skipped("packet command")),
            _ if category & DISCARD != 0 => return Ok(Item::Skipped("discard")),
            _ if bytes == 0 => return Ok(Item::Skipped("flush")),
            _ if category & WRITE != 0 => Op::Write,
            _ if category & READ != 0 => Op::Read,
            _ => return Ok(Item::Skipped("event without data")),
        };
        let problem = |kind: &str| Problem::new(0, format!("{what} has {kind}"));
        let place = || {
            let offset = self.number(record, 16, 8).checked_mul(settings.address.0.bytes())?;
            let extent = Extent::new(offset, bytes.checked_mul(settings.address.1.bytes())?);
            extent.end().map(|_| extent)
        };
        let extent = place().ok_or_else(|| problem("a range that ends beyond 2^64 bytes"))?;
        let time = self.number(record, 8, 8).checked_mul(settings.time.nanos());
        let time = time.ok_or_else(|| problem("a time of more than 584 years"))?;
        let time = Duration::from_nanos(time);
        let device = device as u32;
        if done {
            return Ok(Item::Done { device, offset: extent.offset, time });
        }
        Ok(Item::Request(Record { time, op, device, extent, response: None }))
    }
}

struct Records {
    settings: Settings,
    /// The items of a tar, by time, once the first record was asked for.
    tar: Option<VecDeque<Item>>,
}

impl BinaryParser for Records {
    fn next(&mut self, input: &mut Input) -> Result<Option<Item>, Problem> {
        if self.tar.is_none() && input.bytes() == 0 && magic(input.head()).is_none() {
            self.tar = Some(merged(input, self.settings)?);
        }
        if let Some(items) = &mut self.tar {
            return Ok(items.pop_front());
        }
        let at = input.bytes();
        let Some(start) = input.take::<48>()? else { return Ok(None) };
        let what = format!("the record at byte {at}");
        let shape = magic(&start).ok_or_else(|| no_magic(&what))?;
        let mut record = [0; 64];
        record[..48].copy_from_slice(&start);
        if shape.version == 8 {
            let rest = input.take::<16>()?.ok_or_else(|| cut(&what))?;
            record[48..].copy_from_slice(&rest);
        }
        if !input.skip(shape.follows(&record))? {
            return Err(cut(&what));
        }
        shape.item(&record, self.settings, &what).map(Some)
    }

    fn sort(&self) -> &'static str {
        "sort it with blkparse, and read its text"
    }
}

fn no_magic(what: &str) -> Problem {
    let message =
        format!("{what} does not begin with {MAGIC:#x} or {:#x} in either byte order", MAGIC + 1);
    Problem::new(0, message)
}

fn cut(what: &str) -> Problem {
    Problem::new(0, format!("the file ends within {what}; it was cut"))
}

/// The items of all files of a tar, by time.
fn merged(input: &mut Input, settings: Settings) -> Result<VecDeque<Item>, Problem> {
    let mut items: Vec<(Duration, Item)> = Vec::new();
    let mut total = 0_usize;
    while let Some(header) = input.take::<BLOCK>()? {
        if header.iter().all(|&byte| byte == 0) {
            break;
        }
        let size = size(&header).filter(|_| &header[257..262] == b"ustar").ok_or_else(|| {
            let message = format!("no header of a tar (ustar) at byte {}", input.bytes() - 512);
            Problem::new(0, message)
        })?;
        total = total.saturating_add(size);
        if total > MOST {
            let message =
                format!("the tar holds more than {} MiB, which are merged in memory", MOST >> 20);
            let remedy = "extract it, merge it with blkparse, and read its text";
            return Err(Problem::new(0, message).remedy(remedy));
        }
        let mut content = Vec::new();
        while content.len() < size {
            let block = input.take::<BLOCK>()?.ok_or_else(|| cut("a file of the tar"))?;
            content.extend_from_slice(&block[..BLOCK.min(size - content.len())]);
        }
        if file(&header) {
            let end = header[..100].iter().position(|&byte| byte == 0).unwrap_or(100);
            let name = String::from_utf8_lossy(&header[..end]).escape_debug().to_string();
            member(&content, &name, settings, &mut items)?;
        }
    }
    // Stable: what is of the same time stays in the order of the files.
    items.sort_by_key(|(time, _)| *time);
    Ok(items.into_iter().map(|(_, item)| item).collect())
}

/// Appends the items of one file.
fn member(
    content: &[u8],
    name: &str,
    settings: Settings,
    items: &mut Vec<(Duration, Item)>,
) -> Result<(), Problem> {
    let mut at = 0;
    while at < content.len() {
        let what = format!("the record at byte {at} of `{name}`");
        let shape = magic(&content[at..]).ok_or_else(|| no_magic(&what))?;
        let record = content.get(at..at + shape.length()).ok_or_else(|| cut(&what))?;
        let item = shape.item(record, settings, &what)?;
        let time = match &item {
            Item::Request(record) => record.time,
            Item::Done { time, .. } => *time,
            _ => Duration::ZERO,
        };
        items.push((time, item));
        at += shape.length() + shape.follows(record);
    }
    Ok(())
}

/// Events and categories of `blktrace_api.h`.
const QUEUE: u64 = 1;
const ISSUE: u64 = 7;
const COMPLETE: u64 = 8;
const READ: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const PACKET: u64 = 1 << 9;
const NOTIFY: u64 = 1 << 10;
const DISCARD: u64 = 1 << 13;
