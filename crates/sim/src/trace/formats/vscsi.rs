//! # Trace formats: `vscsiStats` of `VMware`, versions 1 and 2
//!
//! | | |
//! |---|---|
//! | Version 1 | 32 bytes: u32 serial, u32 bytes, u32 segments, u16 command, u16 version, u64 block, u64 time |
//! | Version 2 | 40 bytes: u16 command, u16 version, u32 serial, u32 bytes, u32 segments, u64 block, u64 time, u64 response |
//! | Order    | little endian |
//! | Version  | the high byte is 1 or 2 |
//! | Command  | SCSI operation code; what is no READ or WRITE of 6 to 16 bytes is skipped and counted |
//! | Times    | microseconds |
//! | `block`, `bytes` | sectors of 512 bytes, and bytes |
//! | Source   | VMware, vscsiStats; Waldspurger et al., "SHARDS", FAST 2015 |

use super::super::define::{BinaryParser, Definition, Item, Parser, Settings};
use super::super::input::Input;
use super::super::units::{AddressUnit, TimeUnit};
use super::super::{Problem, Record};
use weir_flow::clock::Duration;
use weir_flow::request::Op;
use weir_flow::units::Extent;

pub(in super::super) static V1: Definition = Definition {
    name: "vscsi1",
    origin: "VMware vscsiStats, version 1",
    record: "32 bytes, little endian",
    time: TimeUnit::Microseconds,
    certain: true,
    time_column: 0,
    address: (AddressUnit::Sectors, AddressUnit::Bytes),
    canonical: false,
    timeless: false,
    completions: false,
    recognise: |head| version(head.bytes, 32, 15, 1),
    parser: |settings| Parser::Binary(Box::new(First { settings })),
    write: None,
};

pub(in super::super) static V2: Definition = Definition {
    name: "vscsi2",
    origin: "VMware vscsiStats, version 2",
    record: "40 bytes, little endian",
    recognise: |head| version(head.bytes, 40, 3, 2),
    parser: |settings| Parser::Binary(Box::new(Second { settings })),
    ..V1
};

/// Whether the first two records, or the only one, have this version at a byte.
fn version(bytes: &[u8], length: usize, at: usize, version: u8) -> bool {
    let is = |record: usize| bytes.get(record * length + at) == Some(&version);
    // A text has no zero bytes; the segments of a request are few.
    let binary = bytes.get(..length).is_some_and(|record| record.contains(&0));
    binary && is(0) && (bytes.len() < 2 * length || is(1))
}

struct First {
    settings: Settings,
}

struct Second {
    settings: Settings,
}

/// What both versions say of a request.
struct Fields {
    command: u16,
    bytes: u32,
    block: u64,
    time: u64,
    response: Option<u64>,
}

impl BinaryParser for First {
    fn next(&mut self, input: &mut Input) -> Result<Option<Item>, Problem> {
        let at = input.bytes();
        let Some(record) = input.take::<32>()? else { return Ok(None) };
        let u16_at = |at: usize| u16::from_le_bytes([record[at], record[at + 1]]);
        checked(u16_at(14), 1, at)?;
        let fields = Fields {
            command: u16_at(12),
            bytes: u32_at(&record, 4),
            block: u64_at(&record, 16),
            time: u64_at(&record, 24),
            response: None,
        };
        item(&fields, self.settings, at).map(Some)
    }
}

impl BinaryParser for Second {
    fn next(&mut self, input: &mut Input) -> Result<Option<Item>, Problem> {
        let at = input.bytes();
        let Some(record) = input.take::<40>()? else { return Ok(None) };
        let u16_at = |at: usize| u16::from_le_bytes([record[at], record[at + 1]]);
        checked(u16_at(2), 2, at)?;
        let fields = Fields {
            command: u16_at(0),
            bytes: u32_at(&record, 8),
            block: u64_at(&record, 16),
            time: u64_at(&record, 24),
            response: Some(u64_at(&record, 32)),
        };
        item(&fields, self.settings, at).map(Some)
    }
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    (0..4).rev().fold(0, |value, byte| value << 8 | u32::from(record[at + byte]))
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    (0..8).rev().fold(0, |value, byte| value << 8 | u64::from(record[at + byte]))
}

fn checked(version: u16, expected: u16, at: u64) -> Result<(), Problem> {
    if version >> 8 == expected {
        return Ok(());
    }
    let message = format!(
        "the record at byte {at} has version {version:#06x}; expected one whose high byte is \
         {expected}"
    );
    Err(Problem::new(0, message))
}

fn item(fields: &Fields, settings: Settings, at: u64) -> Result<Item, Problem> {
    let op = match fields.command {
        0x08 | 0x28 | 0x88 | 0xa8 => Op::Read,
        0x0a | 0x2a | 0x8a | 0xaa => Op::Write,
        0x35 | 0x91 => return Ok(Item::Skipped("flush")),
        0x42 => return Ok(Item::Skipped("unmap")),
        0x41 | 0x93 => return Ok(Item::Skipped("write same")),
        _ => return Ok(Item::Skipped("other command")),
    };
    if fields.bytes == 0 {
        return Ok(Item::Skipped("request of no bytes"));
    }
    let place = || {
        let offset = fields.block.checked_mul(settings.address.0.bytes())?;
        let length = u64::from(fields.bytes).checked_mul(settings.address.1.bytes())?;
        let extent = Extent::new(offset, length);
        extent.end().map(|_| extent)
    };
    let problem = |what: &str| Problem::new(0, format!("the record at byte {at} has {what}"));
    let extent = place().ok_or_else(|| problem("a range that ends beyond 2^64 bytes"))?;
    let nanos = |units: u64| {
        let nanos = units.checked_mul(settings.time.nanos()).map(Duration::from_nanos);
        nanos.ok_or_else(|| problem("a time of more than 584 years"))
    };
    let response = fields.response.map(nanos).transpose()?;
    Ok(Item::Request(Record { time: nanos(fields.time)?, op, device: 0, extent, response }))
}
