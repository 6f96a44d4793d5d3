//! `weir log verify`: reads a whole log, checks every checksum, and prints each defect with its offset.

use super::stat::{recovery, verdict};
use super::{Inspect, always, device, extent, inspected, open};
use crate::cli::progress::Progress;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use serde_json::{Value, json};
use std::fmt::Write as _;
use weir_flow::cache::writeback::format::crc32c;
use weir_flow::cache::writeback::inspect::{FlawKind, Gap};
use weir_flow::cache::writeback::reader::payload;
use weir_flow::units::ByteCount;

pub(super) fn run(args: &Inspect) -> Result<Exit, Failure> {
    let log = open(&args.file)?;
    let mut reader = log.reader();
    let seen = inspected(&args.file, &log, &mut reader)?;
    let block = seen.block.block;
    let mut faults: Vec<Value> = seen
        .flaws
        .iter()
        .map(|flaw| {
            fault(flaw.at, flaw.kind.as_str(), flaw.kind.is_damage(), &flaw.kind.to_string())
        })
        .collect();
    let (progress, mut records, mut checked) = (Progress::new(), 0_u64, 0_u64);
    for (done, located) in seen.batches.iter().enumerate() {
        progress
            .show(Some(done as f64 / seen.batches.len() as f64), ByteCount(checked).to_string());
        for (seq, record) in located.numbered() {
            records += 1;
            checked += u64::from(record.payload);
            let Err(at) = always(payload(&mut device(&mut reader), located, record, crc32c)) else {
                continue;
            };
            let (start, length) = extent(record, block);
            let upstream = !seen.is_dirty(seq, record);
            let home =
                if upstream { "the upstream has a copy" } else { "and no other copy exists" };
            let what = format!(
                "{}: bytes {start} to {} of the volume, {home}",
                FlawKind::Payload(seq),
                start + length - 1
            );
            let mut one = fault(at, "payload", true, &what);
            one["offset"] = start.into();
            one["length"] = length.into();
            one["record"] = seq.into();
            one["upstream"] = upstream.into();
            faults.push(one);
        }
    }
    drop(progress);
    for (at, problem) in &reader.unreadable {
        faults.push(fault(*at, "unreadable", true, &format!("read error: {problem}")));
    }
    faults.sort_by_key(|fault| fault["at"].as_u64());
    let recovered = recovery(&log, &seen);
    let damaged = recovered.is_err()
        || !seen.gaps.is_empty()
        || faults.iter().any(|fault| fault["damage"] == true);
    let lost: Vec<_> = seen.gaps.iter().map(|gap| lost(gap, block)).collect();
    if args.json {
        print_json(&json!({
            "version": 1,
            "file": args.file.display().to_string(),
            "damaged": damaged,
            "records": records,
            "checked_bytes": checked,
            "faults": faults,
            "lost": lost,
            "verdict": verdict(&recovered),
        }))?;
    } else {
        let mut text = String::new();
        for fault in &faults {
            let grade = if fault["damage"] == true { "damage" } else { "no damage" };
            let _ = writeln!(
                text,
                "byte {}: {grade}: {}",
                fault["at"],
                fault["what"].as_str().unwrap_or_default()
            );
        }
        for gap in &seen.gaps {
            let _ = writeln!(text, "{}", lost_text(gap, block));
        }
        let _ = writeln!(
            text,
            "{records} records with {} read; {}",
            ByteCount(checked),
            verdict(&recovered)
        );
        let _ = writeln!(
            text,
            "{}: {}",
            args.file.display(),
            if damaged { "damaged" } else { "intact" }
        );
        print(&text)?;
    }
    Ok(if damaged { Exit::Damaged } else { Exit::Success })
}

fn fault(at: u64, kind: &str, damage: bool, what: &str) -> Value {
    json!({ "at": at, "kind": kind, "damage": damage, "what": what })
}

/// Lost records, as an object.
pub(super) fn lost(gap: &Gap, block: u32) -> Value {
    let presumed = gap.presumed.iter().map(|record| {
        let (start, length) = extent(record, block);
        json!({ "kind": record.kind.as_str(), "offset": start, "length": length })
    });
    json!({ "first": gap.first, "last": gap.last, "at": gap.at, "presumed": presumed.collect::<Vec<_>>() })
}

/// Lost records, as text.
pub(super) fn lost_text(gap: &Gap, block: u32) -> String {
    let mut text = format!("records {} to {} are lost", gap.first, gap.last);
    let mut sep = ": the readable part of their header names, unverified, bytes ";
    for record in &gap.presumed {
        let (start, length) = extent(record, block);
        let _ = write!(text, "{sep}{start} to {}", start + length - 1);
        sep = ", ";
    }
    if gap.presumed.is_empty() {
        text.push_str(", and their ranges are unknown");
    }
    text
}
