//! # Trace format: MSR Cambridge
//!
//! | | |
//! |---|---|
//! | Line     | `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, no header |
//! | `Timestamp` | Windows file time: units of 100 ns; the first one becomes time zero |
//! | `Hostname` | the same on every line: one file is one host |
//! | `Type`   | `Read` or `Write` |
//! | `Offset`, `Size` | bytes; at least one byte |
//! | `ResponseTime` | units of 100 ns |
//! | Source   | Narayanan, Donnelly and Rowstron, "Write Off-Loading", FAST 2008; SNIA IOTTA 388 |

use super::fields::{Field, Fields, extent};
use super::{Problem, Record};
use weir_flow::clock::Duration;
use weir_flow::request::Op;

/// Nanoseconds in a unit of file time.
const UNIT: u64 = 100;

pub(super) struct Parser {
    host: String,
    zero: u64,
}

impl Parser {
    /// From the first line, which is a request.
    pub(super) fn new(line: &str) -> Result<Self, Problem> {
        let mut fields = Fields::new(line);
        let zero = fields.next("Timestamp")?.number()?;
        let host = fields.next("Hostname")?.text.to_owned();
        Ok(Self { host, zero })
    }

    pub(super) fn parse(&self, line: &str) -> Result<Record, Problem> {
        let mut fields = Fields::new(line);
        let stamp = fields.next("Timestamp")?;
        let time = stamp.number()?.checked_sub(self.zero).ok_or_else(|| {
            stamp.expected(&format!("no time before that of the first request, {}", self.zero))
        })?;
        let host = fields.next("Hostname")?;
        if host.text != self.host {
            return Err(host.expected(&format!("`{}`, as above: one file is one host", self.host)));
        }
        let device = fields.next("DiskNumber")?.device()?;
        let op = fields.next("Type")?;
        let op = match op.text {
            "Read" => Op::Read,
            "Write" => Op::Write,
            _ => return Err(op.expected("`Read` or `Write`")),
        };
        let extent = extent(fields.next("Offset")?, fields.next("Size")?)?;
        let response = fields.next("ResponseTime")?;
        let response = Some(nanos(response, response.number()?)?);
        fields.end()?;
        Ok(Record { time: nanos(stamp, time)?, op, device, extent, response })
    }
}

fn nanos(field: Field<'_>, units: u64) -> Result<Duration, Problem> {
    let nanos = units.checked_mul(UNIT).ok_or_else(|| field.expected("less than 584 years"))?;
    Ok(Duration::from_nanos(nanos))
}
