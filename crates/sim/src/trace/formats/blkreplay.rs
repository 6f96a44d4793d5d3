//! # Trace format: blkreplay
//!
//! | | |
//! |---|---|
//! | Line     | `start ; sector ; length ; op ; replay_delay ; replay_duration`; the last two are not read |
//! | Before it | any text, which is kept as notices |
//! | `start`  | seconds, decimal |
//! | `sector`, `length` | sectors of 512 bytes |
//! | `op`     | `R` or `W`; with letters behind, such as `RA` (read ahead), it is skipped and counted |
//! | Source   | Schöbel-Theuer, "blkreplay" |

use super::super::Problem;
use super::super::define::{Definition, Item, LineParser, Parser, Settings};
use super::super::fields::{Fields, decimal, extent, whole};
use super::super::names::Names;
use super::super::units::{AddressUnit, TimeUnit};
use weir_flow::request::Op;

pub(in super::super) static DEFINITION: Definition = Definition {
    name: "blkreplay",
    origin: "blkreplay",
    record: "start ; sector ; length ; op ; replay_delay ; replay_duration",
    time: TimeUnit::Seconds,
    certain: true,
    time_column: 1,
    address: (AddressUnit::Sectors, AddressUnit::Sectors),
    canonical: false,
    timeless: false,
    completions: false,
    recognise: |head| head.lines.iter().any(|line| record(line)),
    parser: |settings| Parser::Lines(Box::new(Text { settings, begun: false })),
    write: None,
};

/// Letters that may follow the operation, as in RWBS of blkparse.
const FLAGS: &[u8] = b"ASMF";

/// Whether a line looks like a record.
fn record(line: &str) -> bool {
    let fields = Fields::semicolons(line).all();
    fields.len() >= 4
        && (decimal(fields[0]) || whole(fields[0]))
        && whole(fields[1])
        && whole(fields[2])
}

struct Text {
    settings: Settings,
    begun: bool,
}

impl LineParser for Text {
    fn line(&mut self, line: &str, _: &mut Names) -> Result<Item, Problem> {
        if !self.begun && !record(line) {
            return Ok(Item::Notice);
        }
        self.begun = true;
        let mut fields = Fields::semicolons(line);
        let time = fields.next("start")?.time(self.settings.time)?;
        let extent = extent(fields.next("sector")?, fields.next("length")?, self.settings.address)?;
        let op = fields.next("op")?;
        let flagged = op.text.len() > 1 && op.text.bytes().skip(1).all(|b| FLAGS.contains(&b));
        let op = match op.text {
            "R" => Op::Read,
            "W" => Op::Write,
            text if flagged && text.starts_with(['R', 'W']) => {
                return Ok(Item::Skipped("operation with flags"));
            }
            _ => return Err(op.expected("`R` or `W`")),
        };
        Ok(Item::request(time, op, 0, extent))
    }
}
