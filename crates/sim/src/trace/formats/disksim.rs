//! # Trace format: `DiskSim`, ASCII
//!
//! | | |
//! |---|---|
//! | Line     | `time device block count flags`, with blanks between them |
//! | `time`   | milliseconds, decimal |
//! | `block`, `count` | sectors of 512 bytes |
//! | `flags`  | a number, decimal or hexadecimal; bit 0 is set for a read |
//! | Source   | Bucy et al., "The DiskSim Simulation Environment", 4.0, CMU-PDL-08-101 |

use super::super::Problem;
use super::super::define::{Definition, Item, Parser, Settings};
use super::super::fields::{Fields, decimal, extent, whole};
use super::super::names::Names;
use super::super::units::{AddressUnit, TimeUnit};
use weir_flow::request::Op;

pub(in super::super) static DEFINITION: Definition = Definition {
    name: "disksim",
    origin: "DiskSim",
    record: "time device block count flags",
    time: TimeUnit::Milliseconds,
    certain: false,
    time_column: 1,
    address: (AddressUnit::Sectors, AddressUnit::Sectors),
    canonical: false,
    timeless: false,
    completions: false,
    recognise: |head| {
        let fields = Fields::blanks(head.first()).all();
        fields.len() == 5
            && decimal(fields[0])
            && fields[1..4].iter().all(|field| whole(field))
            && flags(fields[4]).is_some()
    },
    parser: |settings| Parser::lines(settings, None, line),
    write: None,
};

fn flags(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok().filter(|_| text.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn line(line: &str, settings: Settings, names: &mut Names) -> Result<Item, Problem> {
    let mut fields = Fields::blanks(line);
    let time = fields.next("time")?.time(settings.time)?;
    let device = fields.next("device")?.device(names)?;
    let extent = extent(fields.next("block")?, fields.next("count")?, settings.address)?;
    let field = fields.next("flags")?;
    // The lowest bit is the same whether the digits are decimal or hexadecimal.
    let flags = flags(field.text).ok_or_else(|| field.expected("digits of flags"))?;
    fields.end()?;
    let op = if flags & 1 == 1 { Op::Read } else { Op::Write };
    Ok(Item::request(time, op, device, extent))
}
