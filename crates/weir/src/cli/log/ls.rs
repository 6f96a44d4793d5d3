//! `weir log ls`: the records of a log, in order.

use super::{Inspect, extent, inspected, open};
use crate::exit::{Exit, Failure};
use crate::output::print;
use serde_json::json;
use std::fmt::Write as _;
use weir_flow::cache::writeback::format::Descriptor;
use weir_flow::cache::writeback::inspect::{Gap, Logged};

pub(super) fn run(args: &Inspect) -> Result<Exit, Failure> {
    let log = open(&args.file)?;
    let seen = inspected(&args.file, &log, &mut log.reader())?;
    let mut out = Out {
        json: args.json,
        block: seen.block.block,
        applied: seen.applied,
        text: String::new(),
    };
    if !args.json {
        let _ = writeln!(
            out.text,
            "{:>14} {:>12} {:>12} {:<6} {:>16} {:>10}  state",
            "batch at", "record", "epoch", "kind", "at byte", "bytes"
        );
    }
    let mut gaps = seen.gaps.iter().peekable();
    for logged in seen.records() {
        while let Some(gap) = gaps.next_if(|gap| gap.first < logged.seq) {
            out.gap(gap);
        }
        out.record(&logged, seen.is_dirty(logged.seq, logged.record));
        if out.text.len() > ENOUGH {
            print(&std::mem::take(&mut out.text))?;
        }
    }
    gaps.for_each(|gap| out.gap(gap));
    print(&out.text)?;
    Ok(if seen.gaps.is_empty() { Exit::Success } else { Exit::Damaged })
}

/// Lines that are still to be printed.
struct Out {
    json: bool,
    block: u32,
    applied: u64,
    text: String,
}

impl Out {
    fn record(&mut self, logged: &Logged<'_>, dirty: bool) {
        let Logged { seq, epoch, batch: located, record } = *logged;
        let data = record.kind.is_data();
        let copy = record.copied().is_some();
        let (start, length) = if data { extent(record, self.block) } else { (0, 0) };
        if self.json {
            let value = json!({
                "batch": located.at,
                "segment": located.batch.segment,
                "record": seq,
                "epoch": epoch,
                "kind": record.kind.as_str(),
                "offset": data.then_some(start),
                "length": data.then_some(length),
                "payload": (record.payload > 0).then(|| located.span(record).at),
                "fua": record.flags & Descriptor::FLAG_FUA != 0,
                "copy": copy,
                "more": record.flags & Descriptor::FLAG_MORE != 0,
                "tenant": record.tenant,
                "time_ns": record.time,
                "upstream": if data { !dirty } else { seq <= self.applied },
            });
            let _ = writeln!(self.text, "{value}");
            return;
        }
        let place = if data { start.to_string() } else { "-".to_owned() };
        let bytes = if data { length.to_string() } else { "-".to_owned() };
        let state = if dirty { "dirty" } else { "upstream" };
        let state = if data { state } else { "" };
        let copy = if copy { ", copy" } else { "" };
        let fua = if record.flags & Descriptor::FLAG_FUA != 0 { ", FUA" } else { "" };
        let line = format!(
            "{:>14} {seq:>12} {epoch:>12} {:<6} {place:>16} {bytes:>10}  {state}{fua}{copy}",
            located.at,
            record.kind.as_str()
        );
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn gap(&mut self, gap: &Gap) {
        let Gap { first, last, at, .. } = gap;
        let _ = if self.json {
            writeln!(self.text, "{}", json!({ "lost": { "first": first, "last": last, "at": at } }))
        } else {
            writeln!(self.text, "{at:>14} records {first} to {last} are lost")
        };
    }
}

/// Bytes that are printed at once.
const ENOUGH: usize = 1 << 16;
