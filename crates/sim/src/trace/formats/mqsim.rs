//! # Trace format: `MQSim` and `SSDSim`
//!
//! | | |
//! |---|---|
//! | Line     | `time device sector count type`, with blanks between them |
//! | `time`   | nanoseconds by both manuals; files in other units are known, so the unit is checked |
//! | `sector`, `count` | sectors of 512 bytes |
//! | `type`   | 1 read, 0 write |
//! | Source   | Tavakkol et al., "MQSim", FAST 2018; Hu et al., "SSDsim", ICS 2011 |

use super::super::define::{Definition, Item, Loss, Parser, Settings, Writer};
use super::super::fields::{Fields, extent, whole};
use super::super::names::Names;
use super::super::units::{AddressUnit, TimeUnit};
use super::super::{Problem, Record};
use std::fmt::Write as _;
use weir_flow::request::Op;

pub(in super::super) static DEFINITION: Definition = Definition {
    name: "mqsim",
    origin: "MQSim, SSDSim",
    record: "time device sector count type",
    time: TimeUnit::Nanoseconds,
    certain: false,
    time_column: 1,
    address: (AddressUnit::Sectors, AddressUnit::Sectors),
    canonical: false,
    timeless: false,
    completions: false,
    recognise: |head| {
        let fields = Fields::blanks(head.first()).all();
        fields.len() == 5
            && fields.iter().all(|field| whole(field))
            && matches!(fields[4], "0" | "1")
    },
    parser: |settings| Parser::lines(settings, None, line),
    write: Some(Writer { header: "", line: write, notices: false }),
};

fn line(line: &str, settings: Settings, names: &mut Names) -> Result<Item, Problem> {
    let mut fields = Fields::blanks(line);
    let time = fields.next("time")?.time(settings.time)?;
    let device = fields.next("device")?.device(names)?;
    let extent = extent(fields.next("sector")?, fields.next("count")?, settings.address)?;
    let op = fields.next("type")?.op("1", "0")?;
    fields.end()?;
    Ok(Item::request(time, op, device, extent))
}

fn write(record: &Record, device: &str, out: &mut String) -> Result<(), Loss> {
    let (offset, size) = (record.extent.offset, record.extent.length);
    if !offset.is_multiple_of(512) || !size.is_multiple_of(512) {
        return Err(Loss::Address);
    }
    if !whole(device) {
        return Err(Loss::Device);
    }
    let (time, read) = (record.time.as_nanos(), u8::from(record.op == Op::Read));
    let _ = write!(out, "{time} {device} {} {} {read}", offset / 512, size / 512);
    if record.response.is_some() { Err(Loss::Response) } else { Ok(()) }
}
