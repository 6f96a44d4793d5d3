//! `weir log stat`: the volume, contents and state of a log, and whether a gateway would accept it.

use super::{Inspect, device, hex, looked_at, open};
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::fmt::Write as _;
use weir_flow::cache::writeback::format::{RecordKind, SUPERS, VERSION};
use weir_flow::cache::writeback::inspect::{Inspection, as_found};
use weir_flow::cache::writeback::reader::Located;
use weir_flow::cache::writeback::{Recovered, Refusal, recover};
use weir_flow::units::ByteCount;
use weir_serve::ClosedLog;

pub(super) fn run(args: &Inspect) -> Result<Exit, Failure> {
    let log = open(&args.file)?;
    let seen = looked_at(&log, &mut log.reader());
    let verdict = match &seen {
        Ok(seen) => recovery(&log, seen),
        Err(refusal) => Err(*refusal),
    };
    let exit = if verdict.is_ok() { Exit::Success } else { Exit::Damaged };
    let value = value(args, &log, seen.as_ref().ok(), &verdict);
    if args.json {
        print_json(&value)?;
    } else {
        print(&text(&value))?;
    }
    Ok(exit)
}

/// The result of a recovery by a gateway.
pub(super) fn recovery(
    log: &ClosedLog,
    seen: &Inspection,
) -> Result<Recovered, Refusal<Infallible>> {
    recover(&mut device(&mut log.reader()), log.size, &as_found(&seen.block))
}

/// The same as text.
pub(super) fn verdict(verdict: &Result<Recovered, Refusal<Infallible>>) -> String {
    match verdict {
        Ok(found) => {
            let (bytes, records) = found.dirty();
            format!(
                "a gateway accepts it and will write back {records} records of {}",
                ByteCount(bytes)
            )
        }
        Err(refusal) => format!("a gateway refuses it: {refusal}"),
    }
}

fn value(
    args: &Inspect,
    log: &ClosedLog,
    seen: Option<&Inspection>,
    recovered: &Result<Recovered, Refusal<Infallible>>,
) -> Value {
    let mut value = json!({
        "version": 1,
        "file": args.file.display().to_string(),
        "bytes": log.size,
        "failed": log.void.as_ref().map(|void| void.display().to_string()),
        "opens": recovered.is_ok() && log.void.is_none(),
        "verdict": verdict(recovered),
    });
    let Some(seen) = seen else { return value };
    let block = &seen.block;
    let supers = seen.supers.iter().zip(["A", "B"]).map(|(copy, name)| match copy {
        Ok(copy) => json!({
            "copy": name,
            "generation": copy.generation,
            "applied": copy.applied,
            "durable": copy.durable,
            "clean": copy.clean,
            "bypassed": copy.bypassed,
        }),
        Err(bad) => json!({ "copy": name, "fault": bad.to_string() }),
    });
    let records = || seen.batches.iter().flat_map(Located::numbered);
    let dirty = || records().filter(|(seq, record)| seen.is_dirty(*seq, record));
    let times = || records().map(|(_, record)| record.time).filter(|&time| time > 0);
    let more = json!({
        "format": VERSION,
        "log": hex(block.log),
        "volume": hex(block.volume),
        "incarnation": block.incarnation,
        "owner": block.owner,
        "block_size": block.block,
        "supers": supers.collect::<Vec<_>>(),
        "segment_bytes": block.segment,
        "segments": block.segments,
        "segments_used": seen.segments.len(),
        "used_bytes": seen.segments.iter().map(|one| one.used).sum::<u64>(),
        "capacity_bytes": SUPERS + block.segment * block.segments,
        "batches": seen.batches.len(),
        "records": records().count(),
        "copies": records().filter(|(_, record)| record.copied().is_some()).count(),
        "epochs": records().filter(|(_, record)| record.kind == RecordKind::Epoch).count(),
        "first": records().next().map(|(seq, _)| seq),
        "last": records().last().map(|(seq, _)| seq),
        "oldest_time_ns": times().min(),
        "newest_time_ns": times().max(),
        "applied": seen.applied,
        "durable": seen.durable,
        "dirty_records": dirty().count(),
        "dirty_bytes": dirty().map(|(_, record)| u64::from(record.payload)).sum::<u64>(),
        "lost_records": seen.gaps.iter().map(|gap| gap.last - gap.first + 1).sum::<u64>(),
    });
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}

fn text(value: &Value) -> String {
    let bytes = |key: &str| ByteCount(value[key].as_u64().unwrap_or_default()).to_string();
    let word = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let mut text = format!("{}: {}\n", word("file"), bytes("bytes"));
    if value.get("log").is_some() {
        let _ = writeln!(
            text,
            "log {} of volume {}, its log number {}, format {}, blocks of {} bytes",
            word("log"),
            word("volume"),
            value["incarnation"],
            value["format"],
            value["block_size"]
        );
        for copy in value["supers"].as_array().into_iter().flatten() {
            let name = copy["copy"].as_str().unwrap_or_default();
            if let Some(fault) = copy["fault"].as_str() {
                let _ = writeln!(text, "super block {name}: {fault}");
                continue;
            }
            let clean = if copy["clean"] == true { "; no dirty data" } else { "" };
            let bypassed =
                if copy["bypassed"] == true { "; writes may have bypassed the log" } else { "" };
            let _ = writeln!(
                text,
                "super block {name}: generation {}, upstream up to record {}, durable up to {}{clean}{bypassed}",
                copy["generation"], copy["applied"], copy["durable"]
            );
        }
        let _ = writeln!(
            text,
            "{} of {} in use, in {} of {} segments of {}",
            bytes("used_bytes"),
            bytes("capacity_bytes"),
            value["segments_used"],
            value["segments"],
            bytes("segment_bytes")
        );
        if value["first"].is_null() {
            text.push_str("no records\n");
        } else {
            let _ = writeln!(
                text,
                "records {} to {} in {} batches, {} epochs; upstream up to record {}",
                value["first"], value["last"], value["batches"], value["epochs"], value["applied"]
            );
        }
        let _ = writeln!(
            text,
            "dirty: {} records of {}; lost: {} records",
            value["dirty_records"],
            bytes("dirty_bytes"),
            value["lost_records"]
        );
    }
    if let Some(void) = value["failed"].as_str() {
        let _ = writeln!(
            text,
            "it has failed, according to {void}: all of its data is on the volume's own storage"
        );
    }
    let _ = writeln!(text, "{}", word("verdict"));
    text
}
