//! Writes metrics in the text format 0.0.4 of Prometheus, or as `OpenMetrics` 1.0.

use super::Metrics;
use super::families::FAMILIES;
use super::page::{Format, Page, Source};
use super::process::Process;
use super::snapshot::Snapshot;
use crate::clock::unix_nanos;

/// Encodes a page. Needs no event loop; O(series).
pub(crate) fn encode(metrics: &Metrics, snapshot: &Snapshot, format: Format) -> Vec<u8> {
    let source = Source { metrics, snapshot, process: Process::read(), now: unix_nanos() };
    let mut page = Page::new(format);
    for family in FAMILIES {
        let header = (family.name, family.suffix(), family.kind_name(), family.help);
        page.family(header, |page| (family.emit)(&source, page));
    }
    page.finish()
}
