//! # Trace format: SPC
//!
//! | | |
//! |---|---|
//! | Line     | `ASU,LBA,Size,Opcode,Timestamp`, then fields that are not read |
//! | `ASU`    | application storage unit: the device |
//! | `LBA`    | blocks of 512 bytes; the standard leaves their size to the trace's description |
//! | `Size`   | bytes |
//! | `Opcode` | `R` or `W`, in either case |
//! | `Timestamp` | seconds, decimal |
//! | Source   | Storage Performance Council, "SPC Trace File Format Specification", 1.0.1; UMass Financial, WebSearch |

use super::super::define::{Definition, Item, LineParser, Loss, Parser, Settings, Writer};
use super::super::fields::{Fields, decimal, extent, whole};
use super::super::names::Names;
use super::super::units::{AddressUnit, TimeUnit};
use super::super::{Problem, Record};
use std::fmt::Write as _;
use weir_flow::request::Op;

pub(in super::super) static DEFINITION: Definition = Definition {
    name: "spc",
    origin: "SPC, UMass Financial and WebSearch",
    record: "ASU,LBA,Size,Opcode,Timestamp",
    time: TimeUnit::Seconds,
    certain: true,
    time_column: 0,
    address: (AddressUnit::Sectors, AddressUnit::Bytes),
    canonical: false,
    timeless: false,
    completions: false,
    recognise: |head| {
        let fields = Fields::new(head.first()).all();
        fields.len() >= 5
            && fields[..3].iter().all(|field| whole(field))
            && matches!(fields[3], "R" | "W" | "r" | "w")
            && (whole(fields[4]) || decimal(fields[4]))
    },
    parser: |settings| Parser::Lines(Box::new(Csv { settings })),
    write: Some(Writer { header: "", line: write, notices: false }),
};

struct Csv {
    settings: Settings,
}

impl LineParser for Csv {
    fn line(&mut self, line: &str, names: &mut Names) -> Result<Item, Problem> {
        let mut fields = Fields::new(line);
        let device = fields.next("ASU")?.device(names)?;
        let extent = extent(fields.next("LBA")?, fields.next("Size")?, self.settings.address)?;
        let op = fields.next("Opcode")?;
        let op = match op.text {
            "R" | "r" => Op::Read,
            "W" | "w" => Op::Write,
            _ => return Err(op.expected("`R` or `W`")),
        };
        let time = fields.next("Timestamp")?.time(self.settings.time)?;
        Ok(Item::request(time, op, device, extent))
    }
}

fn write(record: &Record, device: &str, out: &mut String) -> Result<(), Loss> {
    let (offset, size) = (record.extent.offset, record.extent.length);
    if !offset.is_multiple_of(AddressUnit::Sectors.bytes()) {
        return Err(Loss::Address);
    }
    if !whole(device) {
        return Err(Loss::Device);
    }
    let op = if record.op == Op::Read { 'R' } else { 'W' };
    let (seconds, nanos) =
        (record.time.as_nanos() / 1_000_000_000, record.time.as_nanos() % 1_000_000_000);
    let _ = write!(out, "{device},{},{size},{op},{seconds}.{nanos:09}", offset / 512);
    if record.response.is_some() { Err(Loss::Response) } else { Ok(()) }
}
