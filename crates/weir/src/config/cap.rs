//! The keys of a volume's hard cap.

use super::diagnostic::{Code, Diagnostic};
use super::schema::{Default, Key, Kind};
use super::tree::{Context, Table};
use std::num::NonZeroU32;
use weir_flow::accept::{BANDWIDTH_MAX, BURST_MAX, Cap};
use weir_flow::clock::Duration;
use weir_flow::units::Bandwidth;

/// The key of the cap on requests.
pub(crate) const IOPS: Key = Key {
    name: "cap_iops",
    kind: Kind::Count(1, u32::MAX as u64),
    default: Default::Else("no cap"),
    effect: "most requests per second, all hosts together, even if the storage is idle; more wait in \
                 order of arrival",
};

/// The key of the cap on bytes.
pub(crate) const BANDWIDTH: Key = Key {
    name: "cap_bandwidth",
    kind: Kind::Bandwidth(1, BANDWIDTH_MAX),
    default: Default::Else("no cap"),
    effect: "most payload per second, in the same manner",
};

/// The key of what either may save up.
pub(crate) const BURST: Key = Key {
    name: "cap_burst",
    kind: Kind::Time(0, BURST_MAX.as_nanos()),
    default: Default::Else("none"),
    effect: "the burst that an idle volume may send at once, as time at its caps; at least one request",
};

/// Reads the keys.
pub(crate) fn read(context: &mut Context, table: &Table<'_>) -> Option<Cap> {
    let iops = table.number(context, "cap_iops");
    let bandwidth = table.number(context, "cap_bandwidth");
    let burst = table.number(context, "cap_burst");
    if !table.has("cap_iops")
        && !table.has("cap_bandwidth")
        && let Some(span) = table.value_span("cap_burst")
    {
        let diagnostic = Diagnostic::new(Code::Conflict, "`cap_burst` means nothing without a cap");
        let help = "remove it, or add `cap_iops` or `cap_bandwidth`";
        context.report(diagnostic.at(span, "this value").help(help));
    }
    let iops = table.optional("cap_iops", iops).ok()?;
    let bandwidth = table.optional("cap_bandwidth", bandwidth).ok()?;
    let burst = table.optional("cap_burst", burst).ok()?;
    Some(Cap {
        iops: iops.and_then(|iops| NonZeroU32::new(iops as u32)),
        bandwidth: bandwidth.and_then(Bandwidth::per_second),
        burst: Duration::from_nanos(burst.unwrap_or(0)),
    })
}
