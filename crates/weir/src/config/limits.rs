//! `[limits]`: the named limits of the pipeline.

use super::schema::{Default, Key, Kind, Many, Section};
use super::tree::{Context, Document};
use weir_flow::clock::Duration;
use weir_flow::pipeline::Limits;
use weir_flow::pipeline::REQUESTS_MAX;

/// Largest single transfer of a host, in bytes: what one request may carry.
const LARGEST_TRANSFER: u64 = 8 << 20;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// The table.
pub(crate) static LIMITS: Section = Section {
    name: "limits",
    many: Many::Once,
    effect: "the limits of the pipeline, and what happens there",
    keys: &[
        Key {
            name: "requests",
            kind: Kind::Count(1, REQUESTS_MAX as u64),
            default: Default::Is("4096"),
            effect: "requests outstanding at once; one more is refused as TASK SET FULL",
        },
        Key {
            name: "bytes",
            kind: Kind::Size(LARGEST_TRANSFER, 1 << 50),
            default: Default::Is("256MiB"),
            effect: "payload of all outstanding requests; one that would go past it is refused",
        },
        Key {
            name: "tenant_requests",
            kind: Kind::Count(1, REQUESTS_MAX as u64),
            default: Default::Is("4096"),
            effect: "requests of one tenant outstanding at once; hosts' command windows shrink so that \
                     they stay below, one more is refused as TASK SET FULL",
        },
        Key {
            name: "tenant_bytes",
            kind: Kind::Size(LARGEST_TRANSFER, 1 << 50),
            default: Default::Is("64MiB"),
            effect: "payload of one tenant's outstanding requests; the same happens there",
        },
        Key {
            name: "link_window",
            kind: Kind::Size(1, 1 << 50),
            default: Default::Is("4MiB"),
            effect: "most reply bytes on their way on one link; there are fewer where they would take more \
                     than 2 ms; 1 sends one reply, or one part of it, at a time",
        },
        Key {
            name: "no_path",
            kind: Kind::Time(SECOND / 1_000, 86_400 * SECOND),
            default: Default::Is("10min"),
            effect: "how long a request waits for a path before it fails; hosts have timers of their own, \
                     and may give up sooner",
        },
        Key {
            name: "overdue",
            kind: Kind::Time(SECOND / 1_000, 86_400 * SECOND),
            default: Default::Is("10s"),
            effect: "how long a request may be in one stage before it is reported",
        },
    ],
};

/// Reads the table.
pub(crate) fn read(context: &mut Context, document: &Document<'_>) -> Option<Limits> {
    let table = document.once(context, "limits");
    let requests = table.number(context, "requests");
    let bytes = table.number(context, "bytes");
    let tenant_requests = table.number(context, "tenant_requests");
    let tenant_bytes = table.number(context, "tenant_bytes");
    let link_window = table.number(context, "link_window");
    let no_path = table.number(context, "no_path");
    let overdue = table.number(context, "overdue");
    Some(Limits {
        max_requests: requests?.value as u32,
        max_bytes: bytes?.value,
        tenant_requests: tenant_requests?.value as u32,
        tenant_bytes: tenant_bytes?.value,
        link_window: link_window?.value,
        no_path: Duration::from_nanos(no_path?.value),
        overdue: Duration::from_nanos(overdue?.value),
    })
}
