//! # Trace format: Alibaba block traces
//!
//! | | |
//! |---|---|
//! | Line     | `device_id,opcode,offset,length,timestamp`; that may be a header |
//! | `opcode` | `R` or `W` |
//! | `offset`, `length` | bytes |
//! | `timestamp` | microseconds since 1970 |
//! | Source   | Li et al., "An In-Depth Analysis of Cloud Block Storage Workloads", IISWC 2020 |

use super::super::define::{Definition, Item, Loss, Parser, Settings, Writer};
use super::super::fields::{Fields, extent, whole};
use super::super::names::Names;
use super::super::units::{AddressUnit, TimeUnit};
use super::super::{Problem, Record};
use std::fmt::Write as _;
use weir_flow::request::Op;

pub(in super::super) static DEFINITION: Definition = Definition {
    name: "alibaba",
    origin: "Alibaba Cloud block traces",
    record: "device_id,opcode,offset,length,timestamp",
    time: TimeUnit::Microseconds,
    certain: true,
    time_column: 0,
    address: (AddressUnit::Bytes, AddressUnit::Bytes),
    canonical: false,
    timeless: false,
    completions: false,
    recognise: |head| {
        let fields = Fields::new(head.first()).all();
        head.first() == DEFINITION.record
            || fields.len() == 5
                && matches!(fields[1], "R" | "W")
                && [0, 2, 3, 4].into_iter().all(|at| whole(fields[at]))
    },
    parser: |settings| Parser::lines(settings, Some(DEFINITION.record), line),
    write: Some(Writer { header: "", line: write, notices: false }),
};

fn line(line: &str, settings: Settings, names: &mut Names) -> Result<Item, Problem> {
    let mut fields = Fields::new(line);
    let device = fields.next("device_id")?.device(names)?;
    let op = fields.next("opcode")?.op("R", "W")?;
    let extent = extent(fields.next("offset")?, fields.next("length")?, settings.address)?;
    let time = fields.next("timestamp")?.time(settings.time)?;
    fields.end()?;
    Ok(Item::request(time, op, device, extent))
}

fn write(record: &Record, device: &str, out: &mut String) -> Result<(), Loss> {
    if !whole(device) {
        return Err(Loss::Device);
    }
    let op = if record.op == Op::Read { 'R' } else { 'W' };
    let (time, extent) = (record.time.as_nanos(), record.extent);
    let _ = write!(out, "{device},{op},{},{},{}", extent.offset, extent.length, time / 1_000);
    if !time.is_multiple_of(1_000) {
        return Err(Loss::Time);
    }
    if record.response.is_some() { Err(Loss::Response) } else { Ok(()) }
}
