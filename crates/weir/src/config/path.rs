//! `[path]`: how paths to storage are judged.

use super::fault::{Code, Fault};
use super::schema::{Default, Key, Kind, Many, Section};
use super::tree::{Context, Document, Table};
use weir_flow::clock::Duration;
use weir_flow::path::settings::{
    CHANGES_MOST, FACTOR_MOST, RETRIES_MOST, SLOW_MOST, TIME_LEAST, TIME_MOST,
};
use weir_flow::path::{Failback, Settings};

/// Any time of the paths.
const TIME: Kind = Kind::Time(TIME_LEAST.as_nanos(), TIME_MOST.as_nanos());

/// The table.
pub(crate) static PATH: Section = Section {
    name: "path",
    many: Many::Once,
    effect: "when a path is checked, given up, left for being slow, and used again",
    keys: &[
        Key {
            name: "failback",
            kind: Kind::Word(&["immediate", "after", "manual"]),
            default: Default::Is("immediate"),
            effect: "when to go back to a better group of paths while the one in use works: at once, after \
                     `failback_after`, or when an operator asks for it",
        },
        Key {
            name: "failback_after",
            kind: TIME,
            default: Default::Else("needed for `after`"),
            effect: "after: how long the better group must have had a path that works",
        },
        Key {
            name: "check_every",
            kind: TIME,
            default: Default::Is("2s"),
            effect: "how long a path may be idle before it is checked, if there are others",
        },
        Key {
            name: "overdue_factor",
            kind: Kind::Count(1, FACTOR_MOST as u64),
            default: Default::Is("8"),
            effect: "a path is doubted and checked when it is silent for so many times its usual response \
                     time",
        },
        Key {
            name: "overdue_least",
            kind: TIME,
            default: Default::Is("100ms"),
            effect: "but not sooner than this",
        },
        Key {
            name: "overdue_most",
            kind: TIME,
            default: Default::Is("400ms"),
            effect: "and not later than this",
        },
        Key {
            name: "dead",
            kind: TIME,
            default: Default::Is("300ms"),
            effect: "a check that is unanswered for so long gives the path up, if another could take over",
        },
        Key {
            name: "dead_last",
            kind: TIME,
            default: Default::Is("5s"),
            effect: "the same where no other path is left",
        },
        Key {
            name: "io_timeout",
            kind: TIME,
            default: Default::Is("30s"),
            effect: "an I/O that takes so long gives its path up, even if checks are answered, if another \
                     could take over",
        },
        Key {
            name: "read_retries",
            kind: Kind::Count(0, RETRIES_MOST as u64),
            default: Default::Is("2"),
            effect: "how often an overdue read is sent another way; nothing else ever is",
        },
        Key {
            name: "slow_factor",
            kind: Kind::Count(2, SLOW_MOST as u64),
            default: Default::Is("6"),
            effect: "a path that is so many times slower than the best of its group is ejected",
        },
        Key {
            name: "probe_every",
            kind: TIME,
            default: Default::Is("200ms"),
            effect: "an ejected path gets a small read so often while it does well",
        },
        Key {
            name: "probe_most",
            kind: TIME,
            default: Default::Is("3200ms"),
            effect: "the longest time between probes of a path that does badly",
        },
        Key {
            name: "good_probes",
            kind: Kind::Count(1, FACTOR_MOST as u64),
            default: Default::Is("4"),
            effect: "so many good probes in a row bring an ejected path back",
        },
        Key {
            name: "return_step",
            kind: TIME,
            default: Default::Is("25ms"),
            effect: "a path that returns has one I/O at first, and after each such time twice as many; after \
                     eight, any number",
        },
        Key {
            name: "changes_per_minute",
            kind: Kind::Count(2, CHANGES_MOST as u64),
            default: Default::Is("6"),
            effect: "most changes of a path between usable and not in any minute; then it stays out, unless \
                     it is the last",
        },
    ],
};

/// Reads the table.
pub(crate) fn read(context: &mut Context, document: &Document<'_>) -> Option<Settings> {
    let table = document.once(context, "path");
    let failback = failback(context, &table);
    let mut number = |key| table.number(context, key).map(|read| read.value);
    let mut time = |key| number(key).map(Duration::from_nanos);
    let check_every = time("check_every");
    let (overdue_least, overdue_most) = (time("overdue_least"), time("overdue_most"));
    let (dead, dead_last) = (time("dead"), time("dead_last"));
    let io_timeout = time("io_timeout");
    let (probe_every, probe_most) = (time("probe_every"), time("probe_most"));
    let return_step = time("return_step");
    let mut count = |key| number(key).map(|number| number as u32);
    let overdue_factor = count("overdue_factor");
    let read_retries = count("read_retries");
    let slow_factor = count("slow_factor");
    let good_probes = count("good_probes");
    let changes_per_minute = count("changes_per_minute");
    let settings = Settings {
        failback: failback?,
        check_every: check_every?,
        overdue_least: overdue_least?,
        overdue_most: overdue_most?,
        overdue_factor: overdue_factor?,
        dead: dead?,
        dead_last: dead_last?,
        io_timeout: io_timeout?,
        read_retries: read_retries?,
        slow_factor: slow_factor?,
        probe_every: probe_every?,
        probe_most: probe_most?,
        good_probes: good_probes?,
        return_step: return_step?,
        changes_per_minute: changes_per_minute?,
    };
    if let Some(message) = settings.fault() {
        let fault = Fault::new(Code::Conflict, message).at(table.span(), "this table");
        let help = "the smaller of two times must not be above the larger: `overdue_least` and \
                    `overdue_most`, `dead` and `dead_last`, `probe_every` and `probe_most`";
        context.faults.push(fault.help(help));
        return None;
    }
    Some(settings)
}

fn failback(context: &mut Context, table: &Table<'_>) -> Option<Failback> {
    let word = table.text(context, "failback");
    let after = table.number(context, "failback_after");
    let after = table.optional("failback_after", after).ok()?;
    let word = word?.value;
    if word != "after" {
        super::only_with(context, table, &["failback_after"], "failback", &word);
    }
    match (&*word, after) {
        ("immediate", _) => Some(Failback::Immediate),
        ("manual", _) => Some(Failback::Manual),
        (_, Some(after)) => Some(Failback::After(Duration::from_nanos(after))),
        (_, None) => {
            let fault = Fault::new(Code::MissingKey, "`failback = \"after\"` needs a time");
            let fault = fault.at(table.span(), "this table");
            context.faults.push(fault.help("add `failback_after = \"10s\"`"));
            None
        }
    }
}
