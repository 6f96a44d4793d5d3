//! # Trace format: weir
//!
//! | | |
//! |---|---|
//! | Header   | `time_ns,op,dev,offset,size`, then any of `resp_ns`, `tenant`, `session`, `flags` |
//! | `time_ns`| nanoseconds since time zero |
//! | `op`     | `R` or `W`; `F`, `D` and `Z` (flush, discard, zeroes) are skipped and counted |
//! | `dev`    | device number, 32 bits; `major:minor` means `major * 2^20 + minor`, as in Linux; or a name |
//! | `offset`, `size` | bytes; at least one byte |
//! | `resp_ns`| measured response time in nanoseconds, empty where unknown |
//! | Notices  | lines that begin with `#` |

use super::super::define::{Definition, Item, LineParser, Loss, Parser, Writer};
use super::super::fields::{Fields, extent};
use super::super::names::Names;
use super::super::units::{AddressUnit, TimeUnit};
use super::super::{Problem, Record};
use std::fmt::Write as _;
use weir_flow::clock::Duration;
use weir_flow::request::Op;

pub(in super::super) static DEFINITION: Definition = Definition {
    name: "weir",
    origin: "Weir's own",
    record: "time_ns,op,dev,offset,size[,resp_ns]",
    time: TimeUnit::Nanoseconds,
    certain: true,
    time_column: 1,
    address: UNITS,
    canonical: true,
    timeless: false,
    completions: false,
    recognise: |head| head.first().starts_with("time_ns,"),
    parser: |_| Parser::Lines(Box::new(Csv { columns: None })),
    write: Some(Writer {
        header: "time_ns,op,dev,offset,size,resp_ns\n",
        line: write,
        notices: true,
    }),
};

/// The header's fields.
pub(in super::super) const HEADER: &str = "time_ns,op,dev,offset,size";

/// The fields that may follow, in any order; all but the first are read and not used.
const OPTIONAL: [&str; 4] = ["resp_ns", "tenant", "session", "flags"];

const UNITS: (AddressUnit, AddressUnit) = (AddressUnit::Bytes, AddressUnit::Bytes);

struct Csv {
    /// The optional columns, once the header was read.
    columns: Option<Vec<&'static str>>,
}

fn header(line: &str) -> Result<Vec<&'static str>, Problem> {
    let wrong = |column: usize| {
        let message = format!("the header must be `{HEADER}` or `{HEADER},resp_ns`");
        Problem::new(column as u64 + 1, message)
    };
    // Documents write the optional column in brackets, and it is copied from there.
    let line = line.trim_end();
    let plain = if line == DEFINITION.record { "time_ns,op,dev,offset,size,resp_ns" } else { line };
    let Some(rest) = plain.strip_prefix(HEADER) else {
        return Err(wrong(line.bytes().zip(HEADER.bytes()).take_while(|(a, b)| a == b).count()));
    };
    let mut columns: Vec<&'static str> = Vec::new();
    for name in rest.split(',').skip(1) {
        let known = OPTIONAL.into_iter().find(|known| *known == name && !columns.contains(known));
        columns.push(known.ok_or_else(|| wrong(HEADER.len()))?);
    }
    if rest.starts_with(',') || rest.is_empty() { Ok(columns) } else { Err(wrong(HEADER.len())) }
}

impl LineParser for Csv {
    fn line(&mut self, line: &str, names: &mut Names) -> Result<Item, Problem> {
        let Some(columns) = &self.columns else {
            self.columns = Some(header(line)?);
            return Ok(Item::Nothing);
        };
        let mut fields = Fields::new(line);
        let time = Duration::from_nanos(fields.next("time_ns")?.number()?);
        let op = fields.next("op")?;
        let op = match op.text {
            "F" => return Ok(Item::Skipped("flush")),
            "D" => return Ok(Item::Skipped("discard")),
            "Z" => return Ok(Item::Skipped("zeroes")),
            _ => op.op("R", "W")?,
        };
        let device = fields.next("dev")?.device(names)?;
        let extent = extent(fields.next("offset")?, fields.next("size")?, UNITS)?;
        let mut response = None;
        for &column in columns {
            let field = fields.next(column)?;
            if column == "resp_ns" && !field.text.is_empty() {
                response = Some(Duration::from_nanos(field.number()?));
            }
        }
        fields.end()?;
        Ok(Item::Request(Record { time, op, device, extent, response }))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the writers of other formats lose something")]
fn write(record: &Record, device: &str, out: &mut String) -> Result<(), Loss> {
    let op = if record.op == Op::Read { 'R' } else { 'W' };
    let (time, extent) = (record.time.as_nanos(), record.extent);
    let _ = write!(out, "{time},{op},{device},{},{},", extent.offset, extent.length);
    if let Some(response) = record.response {
        let _ = write!(out, "{}", response.as_nanos());
    }
    Ok(())
}
