//! # Trace format: SYSTOR '17
//!
//! | | |
//! |---|---|
//! | Line     | `Timestamp,Response,IOType,LUN,Offset,Size`; that may be a header |
//! | `Timestamp`, `Response` | seconds, decimal |
//! | `IOType` | `R` or `W`; a blank one is skipped and counted |
//! | `Offset`, `Size` | bytes |
//! | Source   | Lee et al., "Understanding Storage Traffic Characteristics on Enterprise Virtual Desktop Infrastructure", SYSTOR 2017; SNIA IOTTA 4928 |

use super::super::define::{Definition, Item, LineParser, Parser, Settings};
use super::super::fields::{Fields, decimal, extent};
use super::super::names::Names;
use super::super::units::{AddressUnit, TimeUnit};
use super::super::{Problem, Record};
use weir_flow::clock::Duration;
use weir_flow::request::Op;

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
    parser: |settings| Parser::Lines(Box::new(Csv { settings, begun: false })),
    write: None,
};

struct Csv {
    settings: Settings,
    begun: bool,
}

impl LineParser for Csv {
    fn line(&mut self, line: &str, names: &mut Names) -> Result<Item, Problem> {
        if !std::mem::replace(&mut self.begun, true) && line.trim_end() == DEFINITION.record {
            return Ok(Item::Nothing);
        }
        let mut fields = Fields::new(line);
        let time = Duration::from_nanos(fields.next("Timestamp")?.time(self.settings.time)?);
        let response = fields.next("Response")?;
        let op = fields.next("IOType")?;
        let op = match op.text.trim() {
            "R" => Op::Read,
            "W" => Op::Write,
            "" => return Ok(Item::Skipped("blank type")),
            _ => return Err(op.expected("`R` or `W`")),
        };
        let device = fields.next("LUN")?.device(names)?;
        let extent = extent(fields.next("Offset")?, fields.next("Size")?, self.settings.address)?;
        fields.end()?;
        let response = match response.text {
            "" => None,
            _ => Some(Duration::from_nanos(response.time(self.settings.time)?)),
        };
        Ok(Item::Request(Record { time, op, device, extent, response }))
    }
}
