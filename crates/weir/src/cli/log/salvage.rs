//! `weir log salvage`: writes the intact records of a log to an image of its volume.

use super::verify::{lost, lost_text};
use super::{always, device, extent, inspected, open, unavailable};
use crate::cli::progress::Progress;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use weir_flow::cache::writeback::format::crc32c;
use weir_flow::cache::writeback::inspect::{Gap, Inspection, Logged};
use weir_flow::cache::writeback::reader::payload;
use weir_flow::units::ByteCount;
use weir_serve::{Image, LogReader, LookError};

/// Write the intact records of a log to an image of its volume
///
/// Applies, in order, the records that are not known to be upstream, and stops before the first lost record: the
/// image then equals the volume at some instant. `--beyond` continues after lost records. That saves more data, but
/// the image may never have existed in this form: check its file system.
///
/// Without `--in-place` the image is a new file that holds only these records. For a whole volume, use `--in-place`
/// with a copy of its storage, or with the storage itself.
///
/// The log is not changed. If data was lost, the exit code is 6 and the lost ranges of the volume are printed.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Salvage {
    /// The log: a file or block device
    log: PathBuf,
    /// The image: a file or block device
    #[arg(long, value_name = "IMAGE")]
    to: PathBuf,
    /// Change an existing image
    #[arg(long)]
    in_place: bool,
    /// Also apply intact records after lost ones
    #[arg(long)]
    beyond: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The result for the records.
#[derive(Default)]
struct Done {
    /// Records that were applied, and bytes of the volume that they changed.
    applied: (u64, u64),
    /// The last of them.
    last: Option<u64>,
    /// Intact records that were not applied, and their payload.
    left: (u64, u64),
    /// Lost ranges of the volume: bytes, from start to end.
    lost: Ranges,
    /// Records with a damaged payload.
    rotten: Vec<u64>,
}

impl Salvage {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let log = open(&self.log)?;
        if let Some(void) = &log.void {
            let message =
                format!("{} has failed, according to {}", self.log.display(), void.display());
            let help =
                "all of its data is upstream, and newer; salvaging it would overwrite newer data";
            return Err(Failure::new(Exit::Damaged, message, help));
        }
        let mut reader = log.reader();
        let seen = inspected(&self.log, &log, &mut reader)?;
        let mut image = self.image(&seen)?;
        let done =
            self.apply(&seen, &mut reader, &mut image).map_err(|error| unavailable(&error))?;
        image.sync().map_err(|error| unavailable(&error))?;
        let whole = seen.gaps.is_empty() && done.rotten.is_empty();
        self.tell(&seen, &done, whole)?;
        Ok(if whole { Exit::Success } else { Exit::Damaged })
    }

    /// The image, if all records are within it. Nothing has been written to it.
    fn image(&self, seen: &Inspection) -> Result<Image, Failure> {
        if !self.in_place && self.to.exists() {
            let message = format!("{} exists", self.to.display());
            let help = "name a new file, or have this one changed with `--in-place`";
            return Err(Failure::new(Exit::Usage, message, help));
        }
        let opened = if self.in_place { Image::open(&self.to) } else { Image::create(&self.to) };
        let image = opened.map_err(|error| unavailable(&error))?;
        let records = seen.replay().into_iter().map(|logged| logged.record);
        let ends = records.map(|record| extent(record, seen.block.block));
        let end = ends.map(|(start, length)| start + length);
        match (end.max(), image.size()) {
            (Some(end), Some(size)) if end > size => {
                let message = format!(
                    "{} has {size} bytes, and the volume of this log has {end} or more",
                    self.to.display()
                );
                Err(Failure::new(
                    Exit::Invalid,
                    message,
                    "name the image of the volume that the log is of",
                ))
            }
            _ => Ok(image),
        }
    }

    fn apply(
        &self,
        seen: &Inspection,
        reader: &mut LogReader<'_>,
        image: &mut Image,
    ) -> Result<Done, LookError> {
        let block = seen.block.block;
        let (progress, mut done) = (Progress::new(), Done::default());
        let mut gaps: Vec<_> = seen.gaps.iter().map(|gap| (seen.missing_from(gap), gap)).collect();
        gaps.sort_by_key(|&(from, _)| from);
        let mut gaps = gaps.into_iter().peekable();
        let (records, mut stopped) = (seen.replay(), false);
        for (number, logged) in records.iter().enumerate() {
            progress.show(
                Some(number as f64 / records.len() as f64),
                format!("{} applied", ByteCount(done.applied.1)),
            );
            let Logged { seq, epoch, batch: located, record } = *logged;
            while let Some((_, gap)) = gaps.next_if(|&(from, _)| from < (epoch, seq)) {
                done.gap(gap, block);
                stopped = !self.beyond;
            }
            let (start, length) = extent(record, block);
            let intact = always(payload(&mut device(reader), located, record, crc32c));
            match intact {
                Err(_) => {
                    done.rotten.push(seq);
                    done.lost.add(start, start + length);
                    stopped |= !self.beyond;
                }
                Ok(_) if stopped => {
                    done.left.0 += 1;
                    done.left.1 += u64::from(record.payload);
                    done.lost.add(start, start + length);
                }
                Ok(bytes) => {
                    if record.payload > 0 {
                        image.write(start, &bytes)?;
                    } else {
                        image.zero(start, length)?;
                    }
                    done.applied.0 += 1;
                    done.applied.1 += length;
                    done.last = Some(seq);
                    done.lost.take(start, start + length);
                }
            }
        }
        gaps.for_each(|(_, gap)| done.gap(gap, block));
        Ok(done)
    }

    fn tell(&self, seen: &Inspection, done: &Done, whole: bool) -> Result<(), Failure> {
        let block = seen.block.block;
        let ranges = || done.lost.0.iter().map(|(&start, &end)| (start, end));
        if self.json {
            let gaps: Vec<_> = seen.gaps.iter().map(|gap| lost(gap, block)).collect();
            let ranges = ranges().map(|(start, end)| {
                json!({
                    "offset": start,
                    "length": end - start,
                    "lba": start / u64::from(block),
                    "blocks": (end - start) / u64::from(block),
                })
            });
            return print_json(&json!({
                "version": 1,
                "log": self.log.display().to_string(),
                "image": self.to.display().to_string(),
                "whole": whole,
                "applied_records": done.applied.0,
                "applied_bytes": done.applied.1,
                "last": done.last,
                "left_records": done.left.0,
                "left_bytes": done.left.1,
                "rotten": done.rotten,
                "lost": gaps,
                "ranges": ranges.collect::<Vec<_>>(),
            }));
        }
        print(&self.text(seen, done, whole))
    }

    fn text(&self, seen: &Inspection, done: &Done, whole: bool) -> String {
        let block = u64::from(seen.block.block);
        let to = self.to.display();
        let mut text = format!(
            "{} records with {} applied to {to}",
            done.applied.0,
            ByteCount(done.applied.1)
        );
        if let Some(last) = done.last {
            let _ = write!(text, ", up to record {last}");
        }
        text.push('\n');
        if whole {
            text.push_str("nothing is lost\n");
            return text;
        }
        for gap in &seen.gaps {
            let _ = writeln!(text, "{}", lost_text(gap, seen.block.block));
        }
        for seq in &done.rotten {
            let _ = writeln!(text, "record {seq} is lost: its payload is damaged");
        }
        if done.left.0 > 0 {
            let (records, bytes) = (done.left.0, ByteCount(done.left.1));
            let _ = writeln!(
                text,
                "{records} intact records with {bytes} behind lost ones were not applied; `--beyond` applies them"
            );
        }
        text.push_str("lost ranges of the volume, as far as known:\n");
        for (&start, &end) in &done.lost.0 {
            let (first, last) = (start / block, end / block - 1);
            let _ = writeln!(
                text,
                "  blocks {first} to {last} ({} at byte {start})",
                ByteCount(end - start)
            );
        }
        if done.lost.0.is_empty() {
            text.push_str("  the blocks are unknown\n");
        }
        text
    }
}

impl Done {
    /// Records are lost; which bytes they wrote is unknown.
    fn gap(&mut self, gap: &Gap, block: u32) {
        for record in &gap.presumed {
            let (start, length) = extent(record, block);
            self.lost.add(start, start + length);
        }
    }
}

/// Disjoint ranges of bytes, each with its end.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds the range from `start` to `end`, merged with ranges that it touches.
    fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((&from, &to)) =
            self.0.range(..=end).next_back().filter(|&(_, &to)| to >= start)
        {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    /// Removes the range from `start` to `end`.
    fn take(&mut self, start: u64, end: u64) {
        while let Some((&from, &to)) =
            self.0.range(..end).next_back().filter(|&(_, &to)| to > start)
        {
            self.0.remove(&from);
            if from < start {
                self.0.insert(from, start);
            }
            if to > end {
                self.0.insert(end, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranges that touch become one, and one that is cut in the middle becomes two.
    #[test]
    fn ranges_join_and_part() {
        let mut ranges = Ranges::default();
        ranges.add(10, 20);
        ranges.add(30, 40);
        ranges.add(20, 25);
        assert_eq!(ranges.0, BTreeMap::from([(10, 25), (30, 40)]));
        ranges.take(12, 14);
        ranges.take(38, 50);
        assert_eq!(ranges.0, BTreeMap::from([(10, 12), (14, 25), (30, 38)]));
        ranges.add(0, 100);
        assert_eq!(ranges.0, BTreeMap::from([(0, 100)]));
        ranges.take(0, 100);
        assert!(ranges.0.is_empty());
    }
}
