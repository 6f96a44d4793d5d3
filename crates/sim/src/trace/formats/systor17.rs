//! # Trace format: SYSTOR '17
//!
//! | | |
//! |---|---|
//! | Line     | `Timestamp,Response,IOType,LUN,Offset,Size`; that may be a header |
//! | `Timestamp`, `Response` | seconds, decimal |
//! | `IOType` | `R` or `W`; a blank one is skipped and counted |
//! | `Offset`, `Size` | bytes |
//! | Source   | Lee et al., "Understanding Storage Traffic Characteristics on Enterprise Virtual Desktop Infrastructure", SYSTOR 2017; SNIA IOTTA 4928 |

use super::super::define::{Definition, Item, Parser, Settings};
use super::super::fields::{Fields, decimal, extent};
use super::super::names::Names;
use super::super::units::{AddressUnit, TimeUnit};
use super::super::{Problem, Record};
use weir_flow::clock::Duration;

pub(in super::super) static DEFINITION: Definition = Definition {
    name: "systor17",
    origin: "SYSTOR '17, virtual desktops",
    record: "Timestamp,Response,IOType,LUN,Offset,Size",
    time: TimeUnit::Seconds,
    certain: true,
    time_column: 1,
    address: (AddressUnit::Bytes, AddressUnit::Bytes),
    canonical: false,
    timeless: false,
    completions: false,
    recognise: |head| {
        let fields = Fields::new(head.first()).all();
        head.first() == DEFINITION.record
            || fields.len() == 6 && decimal(fields[0]) && matches!(fields[2], "R" | "W" | "")
    },
    parser: |settings| Parser::lines(settings, Some(DEFINITION.record), line),
    write: None,
};

fn line(line: &str, settings: Settings, names: &mut Names) -> Result<Item, Problem> {
    let mut fields = Fields::new(line);
    let time = Duration::from_nanos(fields.next("Timestamp")?.time(settings.time)?);
    let response = fields.next("Response")?;
    let op = fields.next("IOType")?.trimmed();
    if op.text.is_empty() {
        return Ok(Item::Skipped("blank type"));
    }
    let op = op.op("R", "W")?;
    let device = fields.next("LUN")?.device(names)?;
    let extent = extent(fields.next("Offset")?, fields.next("Size")?, settings.address)?;
    fields.end()?;
    let response = match response.text {
        "" => None,
        _ => Some(Duration::from_nanos(response.time(settings.time)?)),
    };
    Ok(Item::Request(Record { time, op, device, extent, response }))
}
