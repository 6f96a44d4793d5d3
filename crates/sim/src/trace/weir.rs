//! # Trace format: weir
//!
//! | | |
//! |---|---|
//! | Header   | `time_ns,op,dev,offset,size`, optionally followed by `,resp_ns` |
//! | `time_ns`| nanoseconds since the first request |
//! | `op`     | `R` or `W` |
//! | `dev`    | device number, 32 bits; `major:minor` means `major * 2^20 + minor`, as in Linux |
//! | `offset`, `size` | bytes; at least one byte |
//! | `resp_ns`| measured response time in nanoseconds, empty where unknown |
//! | Notices  | lines that begin with `#` |

use super::fields::{Fields, extent};
use super::{Problem, Record};
use weir_flow::clock::Duration;
use weir_flow::request::Op;

/// The header's fields, and the one that may follow.
const HEADER: &str = "time_ns,op,dev,offset,size";
const RESPONSE: &str = ",resp_ns";

pub(super) struct Parser {
    responses: bool,
}

impl Parser {
    /// From the header line.
    pub(super) fn new(header: &str) -> Result<Self, Problem> {
        match header.strip_prefix(HEADER) {
            Some("") => Ok(Self { responses: false }),
            Some(RESPONSE) => Ok(Self { responses: true }),
            _ => {
                let same = header.bytes().zip(HEADER.bytes()).take_while(|(a, b)| a == b).count();
                let message = format!("the header must be `{HEADER}` or `{HEADER}{RESPONSE}`");
                Err(Problem::new(same as u64 + 1, message))
            }
        }
    }

    pub(super) fn parse(&self, line: &str) -> Result<Record, Problem> {
        let mut fields = Fields::new(line);
        let time = Duration::from_nanos(fields.next("time_ns")?.number()?);
        let op = fields.next("op")?;
        let op = match op.text {
            "R" => Op::Read,
            "W" => Op::Write,
            _ => return Err(op.expected("`R` or `W`")),
        };
        let device = fields.next("dev")?.linux_device()?;
        let extent = extent(fields.next("offset")?, fields.next("size")?)?;
        let mut response = None;
        if self.responses {
            let field = fields.next("resp_ns")?;
            if !field.text.is_empty() {
                response = Some(Duration::from_nanos(field.number()?));
            }
        }
        fields.end()?;
        Ok(Record { time, op, device, extent, response })
    }
}
