//! Guards against wrong units: what no storage does is refused, with the units that would explain it.
//!
//! The first 100,000 requests are looked at, fewer than 100 tell nothing. Whatever an operator has
//! named is not looked at.

use super::define::Definition;
use super::format::Options;
use super::units::{AddressUnit, TimeUnit};
use super::{Problem, Record};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// How many requests are looked at.
pub(super) const MOST: usize = 100_000;

/// Fewer requests tell nothing.
const FEWEST: usize = 100;

/// Requests per second and device that are possible, and those that are usual.
const POSSIBLE: (f64, f64) = (0.001, 2e6);
const USUAL: (f64, f64) = (0.1, 5e4);

/// The longest trace in seconds: 10 years.
const LONGEST: f64 = 10.0 * 365.25 * 86_400.0;

/// The largest device in bytes: 1 PiB.
const LARGEST: u64 = 1 << 50;

/// Share of values of a column in bytes that may be no multiples of 512.
const UNALIGNED: f64 = 0.01;

/// Judges the first requests of a file. Returns what is worth knowing, though no refusal.
pub(super) fn judge(
    definition: &Definition,
    options: &Options,
    records: &[Record],
) -> Result<Option<String>, Problem> {
    if definition.canonical || records.len() < FEWEST {
        return Ok(None);
    }
    let mut notice = None;
    if options.time_unit.is_none() && !definition.timeless {
        notice = times(definition, records)?;
    }
    if options.address.is_none() {
        addresses(definition, records)?;
    }
    Ok(notice)
}

/// Rate and length if the times were in `unit`.
struct Reading {
    unit: TimeUnit,
    seconds: f64,
    /// Requests per second, of all devices and of one.
    rate: f64,
    each: f64,
}

impl Reading {
    const fn within(&self, (least, most): (f64, f64)) -> bool {
        self.each >= least && self.each <= most && self.seconds <= LONGEST
    }

    fn text(&self) -> String {
        format!("as {}: {:.3} s, {:.1} requests/s", self.unit, self.seconds, self.rate)
    }
}

fn times(definition: &Definition, records: &[Record]) -> Result<Option<String>, Problem> {
    let devices: BTreeSet<u32> = records.iter().map(|record| record.device).collect();
    let last = records.last().map_or(0, |record| record.time.as_nanos());
    let own = definition.time;
    // In units of the file: whole units at least, a time of zero is shorter than one.
    let span = last as f64 / own.nanos() as f64;
    let reading = |unit: TimeUnit| {
        let seconds = span.max(1.0) * unit.nanos() as f64 / 1e9;
        let rate = records.len() as f64 / seconds;
        Reading { unit, seconds, rate, each: rate / devices.len() as f64 }
    };
    let usual: Vec<Reading> = TimeUnit::NAMED
        .into_iter()
        .filter(|unit| *unit != own)
        .map(reading)
        .filter(|reading| reading.within(USUAL))
        .collect();
    let mine = reading(own);
    let range = if definition.certain { POSSIBLE } else { USUAL };
    if mine.within(range) {
        if definition.certain || usual.is_empty() {
            return Ok(None);
        }
        let others: Vec<_> = usual.iter().map(Reading::text).collect();
        return Ok(Some(format!("times read {}; also usual {}", mine.text(), others.join("; "))));
    }
    let mut message = format!(
        "the times of the first {} requests would be unusual {}",
        records.len(),
        mine.text()
    );
    for reading in &usual {
        let _ = write!(message, "; {}", reading.text());
    }
    let first = usual.first().map_or(own, |reading| reading.unit);
    let problem = Problem::new(definition.time_column, message);
    Err(problem.remedy(format!("say which: --time-unit {first}")))
}

fn addresses(definition: &Definition, records: &[Record]) -> Result<(), Problem> {
    let end = records.iter().filter_map(|record| record.extent.end()).max().unwrap_or(0);
    let units =
        [(definition.address.0, "offsets", "offset"), (definition.address.1, "sizes", "size")];
    let value = |record: &Record, column: usize| {
        if column == 0 { record.extent.offset } else { record.extent.length }
    };
    let mut named = [definition.address.0, definition.address.1];
    let mut what = Vec::new();
    for (column, (unit, plural, _)) in units.into_iter().enumerate() {
        let odd = |record: &&Record| !(value(record, column) / unit.bytes()).is_multiple_of(512);
        let unaligned = records.iter().filter(odd).count();
        let wrong = match unit {
            AddressUnit::Sectors => unaligned == 0,
            AddressUnit::Bytes => unaligned as f64 > records.len() as f64 * UNALIGNED,
        };
        if wrong {
            named[column] = unit.other();
            what.push(match unit {
                AddressUnit::Sectors => {
                    format!("all {plural} are multiples of 512 and would be sectors")
                }
                AddressUnit::Bytes => {
                    format!("{unaligned} {plural} are no multiples of 512 and would be bytes")
                }
            });
        }
    }
    if what.is_empty() && end > LARGEST {
        what.push(format!("a request ends at byte {end}, beyond 1 PiB"));
        named[0] = AddressUnit::Bytes;
    }
    if what.is_empty() {
        return Ok(());
    }
    let message = format!("of the first {} requests, {}", records.len(), what.join(", and "));
    let remedy = format!(
        "say which they are: --address {},{} (offset, size), or {},{} as the format has it",
        named[0].as_str(),
        named[1].as_str(),
        definition.address.0.as_str(),
        definition.address.1.as_str(),
    );
    Err(Problem::new(0, message).remedy(remedy))
}
