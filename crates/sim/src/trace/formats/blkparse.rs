//! # Trace format: blkparse, default text
//!
//! | | |
//! |---|---|
//! | Line     | `major,minor cpu sequence time pid action RWBS sector + count [command]` |
//! | Arrival  | the event `D`, or `Q` where that is asked for; all others are skipped and counted |
//! | Response | from `C` of the same device and sector, within a minute |
//! | `RWBS`   | `R`, `W`, `D` (discard), `N` (none), with `F` before for a flush, and flags |
//! | `time`   | seconds, decimal |
//! | `sector`, `count` | sectors of 512 bytes |
//! | Summary  | what follows the first line `CPU…` or `Total…` is not read |
//! | Source   | blkparse(1) |

use super::super::Problem;
use super::super::define::{Definition, Item, LineParser, Parser, Settings};
use super::super::fields::{Field, Fields, decimal, extent, whole};
use super::super::names::Names;
use super::super::units::{AddressUnit, TimeUnit};
use weir_flow::clock::Duration;
use weir_flow::request::Op;

pub(in super::super) static DEFINITION: Definition = Definition {
    name: "blkparse",
    origin: "blkparse, default text",
    record: "major,minor cpu sequence time pid action RWBS sector + count [command]",
    time: TimeUnit::Seconds,
    certain: true,
    time_column: 0,
    address: (AddressUnit::Sectors, AddressUnit::Sectors),
    canonical: false,
    timeless: false,
    completions: true,
    recognise: |head| {
        let fields = Fields::blanks(head.first()).all();
        fields.len() >= 6
            && device(fields[0])
            && fields[1..3].iter().all(|field| whole(field))
            && decimal(fields[3])
    },
    parser: |settings| Parser::Lines(Box::new(Text { settings, summary: false })),
    write: None,
};

fn device(text: &str) -> bool {
    text.split_once(',').is_some_and(|(major, minor)| whole(major) && whole(minor))
}

struct Text {
    settings: Settings,
    summary: bool,
}

/// What the letters of RWBS say.
fn direction(field: Field<'_>) -> Result<Result<Op, &'static str>, Problem> {
    let text = field.text.strip_prefix('F').unwrap_or(field.text);
    match text.bytes().next() {
        Some(b'R') => Ok(Ok(Op::Read)),
        Some(b'W') => Ok(Ok(Op::Write)),
        Some(b'D') => Ok(Err("discard")),
        Some(b'N') | None if field.text.starts_with('F') => Ok(Err("flush")),
        Some(b'N') => Ok(Err("event without data")),
        _ => Err(field.expected("letters that begin with `R`, `W`, `D`, `N` or `F`")),
    }
}

impl LineParser for Text {
    fn line(&mut self, line: &str, _: &mut Names) -> Result<Item, Problem> {
        let summary = ["CPU", "Total"].iter().any(|start| line.starts_with(start));
        self.summary |= summary;
        if self.summary {
            return Ok(Item::Nothing);
        }
        let mut fields = Fields::blanks(line);
        let device = fields.next("major,minor")?.linux_device(',')?;
        fields.next("cpu")?.number()?;
        fields.next("sequence")?.number()?;
        let time = fields.next("time")?.time(self.settings.time)?;
        fields.next("pid")?.number()?;
        let action = fields.next("action")?;
        let event = self.settings.event;
        let done = action.text == "C";
        if !done && action.text != event.as_str() {
            return Ok(Item::Skipped(match action.text {
                "Q" => "event Q",
                "D" => "event D",
                _ => "other event",
            }));
        }
        let op = match direction(fields.next("RWBS")?)? {
            Ok(op) => op,
            Err(skipped) => return Ok(Item::Skipped(skipped)),
        };
        let sector = fields.next("sector")?;
        if sector.text.starts_with('[') {
            return Ok(Item::Skipped("flush"));
        }
        if fields.next("+")?.text != "+" {
            return Ok(Item::Skipped("packet command"));
        }
        let count = fields.next("count")?;
        if count.text == "0" {
            return Ok(Item::Skipped("flush"));
        }
        let extent = extent(sector, count, self.settings.address)?;
        if done {
            return Ok(Item::Done {
                device,
                offset: extent.offset,
                time: Duration::from_nanos(time),
            });
        }
        Ok(Item::request(time, op, device, extent))
    }
}
