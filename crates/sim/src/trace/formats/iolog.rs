//! # Trace formats: fio iolog, versions 2 and 3
//!
//! | | |
//! |---|---|
//! | Header   | `fio version 2 iolog` or `fio version 3 iolog` |
//! | Version 2 | `file action`, or `file action offset length`; time passes by `wait` alone |
//! | Version 3 | as version 2 with a time before it; no `wait` |
//! | Time     | microseconds; files in nanoseconds are known, so the unit of version 3 is checked |
//! | `wait`   | microseconds after the line before by fio's manual, milliseconds since the start in its code: the operator says which |
//! | Actions  | `read`, `write`; `add`, `open`, `close` name files; `sync`, `datasync`, `trim` are skipped and counted |
//! | `offset`, `length` | bytes |
//! | Source   | fio, HOWTO, "Trace file format v2" and "v3" |

use super::super::define::{Definition, Item, LineParser, Loss, Parser, Settings, Writer};
use super::super::fields::{Fields, extent};
use super::super::names::Names;
use super::super::units::{AddressUnit, TimeUnit, Wait};
use super::super::{Problem, Record};
use std::fmt::Write as _;
use weir_flow::request::Op;

pub(in super::super) static V2: Definition = Definition {
    name: "iolog2",
    origin: "fio iolog, version 2",
    record: "file action offset length",
    time: TimeUnit::Microseconds,
    certain: false,
    time_column: 0,
    address: (AddressUnit::Bytes, AddressUnit::Bytes),
    canonical: false,
    timeless: true,
    completions: false,
    recognise: |head| head.first().trim_end() == "fio version 2 iolog",
    parser: |settings| Parser::Lines(Box::new(Log::new(settings, 2))),
    write: None,
};

pub(in super::super) static V3: Definition = Definition {
    name: "iolog3",
    origin: "fio iolog, version 3",
    record: "time file action offset length",
    time: TimeUnit::Microseconds,
    certain: false,
    time_column: 1,
    address: (AddressUnit::Bytes, AddressUnit::Bytes),
    canonical: false,
    timeless: false,
    completions: false,
    recognise: |head| head.first().trim_end() == "fio version 3 iolog",
    parser: |settings| Parser::Lines(Box::new(Log::new(settings, 3))),
    write: Some(Writer { header: "fio version 3 iolog\n", line: write, notices: false }),
};

struct Log {
    settings: Settings,
    version: u8,
    begun: bool,
    /// The time that waits have reached.
    waited: u64,
}

impl Log {
    const fn new(settings: Settings, version: u8) -> Self {
        Self { settings, version, begun: false, waited: 0 }
    }

    fn wait(&mut self, fields: &mut Fields<'_>) -> Result<Item, Problem> {
        let field = fields.next("offset")?;
        let (unit, since) = match self.settings.wait {
            Some(Wait::Relative) => (TimeUnit::Microseconds, self.waited),
            Some(Wait::Absolute) => (TimeUnit::Milliseconds, 0),
            None => {
                let problem = field.expected("that it is said what `wait` means");
                return Err(problem.remedy(
                    "--wait us-relative (fio's manual) or --wait ms-absolute (fio's code)",
                ));
            }
        };
        let time = since.checked_add(field.time(unit)?);
        let time = time.ok_or_else(|| field.expected("less than 584 years in all"))?;
        if time < self.waited {
            return Err(field.expected("no time before that of the `wait` above"));
        }
        self.waited = time;
        Ok(Item::Nothing)
    }
}

impl LineParser for Log {
    fn line(&mut self, line: &str, names: &mut Names) -> Result<Item, Problem> {
        if !std::mem::replace(&mut self.begun, true) {
            let header = format!("fio version {} iolog", self.version);
            if line.trim_end() == header {
                return Ok(Item::Nothing);
            }
            return Err(Problem::new(1, format!("the header must be `{header}`")));
        }
        let mut fields = Fields::blanks(line);
        let mut time = self.waited;
        if self.version == 3 {
            time = fields.next("time")?.time(self.settings.time)?;
        }
        let file = fields.next("file")?;
        let action = fields.next("action")?;
        let op = match action.text {
            "read" => Op::Read,
            "write" => Op::Write,
            "add" | "open" | "close" => return Ok(Item::Nothing),
            "sync" => return Ok(Item::Skipped("sync")),
            "datasync" => return Ok(Item::Skipped("datasync")),
            "trim" => return Ok(Item::Skipped("trim")),
            "wait" if self.version == 2 => return self.wait(&mut fields),
            _ => {
                return Err(action.expected(
                    "`read`, `write`, `sync`, `datasync`, `trim`, `add`, `open` or `close`",
                ));
            }
        };
        let device = file.device(names)?;
        let extent = extent(fields.next("offset")?, fields.next("length")?, self.settings.address)?;
        fields.end()?;
        Ok(Item::request(time, op, device, extent))
    }
}

fn write(record: &Record, device: &str, out: &mut String) -> Result<(), Loss> {
    if device.contains(char::is_whitespace) {
        return Err(Loss::Device);
    }
    let op = if record.op == Op::Read { "read" } else { "write" };
    let (time, extent) = (record.time.as_nanos(), record.extent);
    let _ = write!(out, "{} {device} {op} {} {}", time / 1_000, extent.offset, extent.length);
    if !time.is_multiple_of(1_000) {
        return Err(Loss::Time);
    }
    if record.response.is_some() { Err(Loss::Response) } else { Ok(()) }
}
