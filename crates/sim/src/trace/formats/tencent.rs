//! # Trace format: Tencent block storage
//!
//! | | |
//! |---|---|
//! | Line     | `Timestamp,Offset,Size,IOType,VolumeID`; that may be a header |
//! | `Timestamp` | seconds since 1970; requests of a second stay at its beginning |
//! | `Offset`, `Size` | sectors of 512 bytes |
//! | `IOType` | 0 read, 1 write |
//! | Source   | Zhang et al., "OSCA: An Online-Model Based Cache Allocation Scheme", USENIX ATC 2020; SNIA IOTTA 27917 |

use super::super::Problem;
use super::super::define::{Definition, Item, Parser, Settings};
use super::super::fields::{Fields, extent, whole};
use super::super::names::Names;
use super::super::units::{AddressUnit, TimeUnit};

pub(in super::super) static DEFINITION: Definition = Definition {
    name: "tencent",
    origin: "Tencent block storage",
    record: "Timestamp,Offset,Size,IOType,VolumeID",
    time: TimeUnit::Seconds,
    certain: true,
    time_column: 1,
    address: (AddressUnit::Sectors, AddressUnit::Sectors),
    canonical: false,
    timeless: false,
    completions: false,
    recognise: |head| {
        let fields = Fields::new(head.first()).all();
        head.first() == DEFINITION.record
            || fields.len() == 5
                && fields.iter().all(|field| whole(field))
                && fields[0].len() == 10
                && matches!(fields[3], "0" | "1")
    },
    parser: |settings| Parser::lines(settings, Some(DEFINITION.record), line),
    write: None,
};

fn line(line: &str, settings: Settings, names: &mut Names) -> Result<Item, Problem> {
    let mut fields = Fields::new(line);
    let time = fields.next("Timestamp")?.time(settings.time)?;
    let extent = extent(fields.next("Offset")?, fields.next("Size")?, settings.address)?;
    let op = fields.next("IOType")?.op("0", "1")?;
    let device = fields.next("VolumeID")?.device(names)?;
    fields.end()?;
    Ok(Item::request(time, op, device, extent))
}
