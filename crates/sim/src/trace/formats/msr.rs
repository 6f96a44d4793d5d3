//! # Trace format: MSR Cambridge
//!
//! | | |
//! |---|---|
//! | Line     | `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`; that may be a header |
//! | `Timestamp` | Windows file time: units of 100 ns; the first one becomes time zero |
//! | `Hostname` | the same on every line: one file is one host |
//! | `Type`   | `Read` or `Write` |
//! | `Offset`, `Size` | bytes; at least one byte |
//! | `ResponseTime` | the unit of `Timestamp` |
//! | Source   | Narayanan, Donnelly and Rowstron, "Write Off-Loading", FAST 2008; SNIA IOTTA 388 |

use super::super::define::{Definition, Item, LineParser, Parser, Settings};
use super::super::fields::{Fields, extent, whole};
use super::super::names::Names;
use super::super::units::{AddressUnit, TimeUnit};
use super::super::{Problem, Record};
use weir_flow::clock::Duration;

pub(in super::super) static DEFINITION: Definition = Definition {
    name: "msr",
    origin: "MSR Cambridge",
    record: "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
    time: TimeUnit::FileTime,
    certain: true,
    time_column: 1,
    address: (AddressUnit::Bytes, AddressUnit::Bytes),
    canonical: false,
    timeless: false,
    completions: false,
    recognise: |head| {
        let line = if head.first() == DEFINITION.record {
            head.lines.get(1).copied().unwrap_or_default()
        } else {
            head.first()
        };
        let fields = Fields::new(line).all();
        fields.len() == 7 && whole(fields[0]) && matches!(fields[3], "Read" | "Write")
            || head.lines == [DEFINITION.record]
    },
    parser: |settings| Parser::Lines(Box::new(Csv { settings, host: None })),
    write: None,
};

struct Csv {
    settings: Settings,
    host: Option<String>,
}

impl LineParser for Csv {
    fn line(&mut self, line: &str, names: &mut Names) -> Result<Item, Problem> {
        if self.host.is_none() && line.trim_end() == DEFINITION.record {
            return Ok(Item::Nothing);
        }
        let mut fields = Fields::new(line);
        let time = fields.next("Timestamp")?.time(self.settings.time)?;
        let host = fields.next("Hostname")?;
        let first = self.host.get_or_insert_with(|| host.text.to_owned());
        if host.text != first {
            return Err(host.expected(&format!("`{first}`, as above: one file is one host")));
        }
        let device = fields.next("DiskNumber")?.device(names)?;
        let op = fields.next("Type")?.op("Read", "Write")?;
        let offset = fields.next("Offset")?;
        let extent = extent(offset, fields.next("Size")?, self.settings.address)?;
        let response = fields.next("ResponseTime")?.time(self.settings.time)?;
        fields.end()?;
        let response = Some(Duration::from_nanos(response));
        Ok(Item::Request(Record { time: Duration::from_nanos(time), op, device, extent, response }))
    }
}
