//! The keys of `[[volume]]` that say when a write is answered, and where it is safe until then.

use super::files::{State, is_device};
use super::store::Known;
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::schema::{Default, Key, Kind};
use crate::config::tree::{Context, Noted, Read, Table};
use crate::config::value::Value;
use weir_serve::config::{Ack, IoMode, Log, Order, Sync};

/// The log.
pub(super) const LOG: Key = Key {
    name: "log",
    kind: Kind::Text("a path; relative to this file"),
    default: Default::Else("none: a write is answered when the volume's own storage has it"),
    effect: "a file or block device of this machine where writes are safe until the volume's own storage \
             has them; a missing file is made",
};

/// When a write is answered.
pub(super) const ACK: Key = Key {
    name: "ack",
    kind: Kind::Word(&["log", "through", "ram"]),
    default: Default::Else("`log` for a volume with a `log`, `through` for others"),
    effect: "when a write is answered: when it is durable in the log (log), when the volume's own storage has \
             it, and what is in the log goes there first (through), or when it is in memory, lost with the \
             gateway unless flushed (ram)",
};

/// How large the log is.
pub(super) const LOG_SIZE: Key = Key {
    name: "log_size",
    kind: Kind::Size(16 << 20, 1 << 50),
    default: Default::Else("the size of the existing file or device; 1GiB for a new file"),
    effect: "size of the log: what hosts may be ahead of the volume's own storage; writes slow down from \
             three quarters of it on",
};

/// How the log is written.
pub(super) const LOG_IO: Key = Key {
    name: "log_io",
    kind: Kind::Word(&["auto", "direct", "buffered"]),
    default: Default::Else("`auto`, with a `log`"),
    effect: "as `io`, for the log",
};

/// What a flush waits for.
pub(super) const SYNC: Key = Key {
    name: "sync",
    kind: Kind::Word(&["local", "upstream"]),
    default: Default::Else("`local`, with a `log`"),
    effect: "what a flush or a write with FUA waits for: the log (local), or the volume's own storage, so \
             that nothing flushed is lost with this machine (upstream)",
};

/// What orders write-back.
pub(super) const ORDER: Key = Key {
    name: "order",
    kind: Kind::Word(&["auto", "flush", "strict"]),
    default: Default::Else("`auto`, with a `log`"),
    effect: "what orders write-back, so that the volume's own storage is crash-consistent at every instant: \
             flushes and writes with FUA alone, as on a disk with a volatile cache (flush), every answer, at \
             the cost of a round trip to the storage for each (strict), or every answer until all hosts that \
             write have flushed (auto)",
};

/// Reads them.
pub(super) fn read(
    context: &mut Context,
    table: &Table<'_>,
    [read_only, sanitize]: [Option<&Read<bool>>; 2],
    known: &mut Known<'_>,
) -> Result<Option<Log>, Noted> {
    let path = table.text(context, "log");
    let ack = table.text(context, "ack");
    let span = table.value_span("log");
    let Some(path) = table.optional("log", path)? else {
        return without(context, table, ack);
    };
    if let Some(flag) = read_only.filter(|flag| flag.value) {
        let diagnostic =
            Diagnostic::new(Code::Conflict, "`log` is for a volume that hosts may write")
                .at_some(span.as_ref(), "this keeps writes")
                .see(flag.span.as_ref(), "this refuses them");
        context.report(diagnostic.help("remove `log` or `read_only`"));
        return Err(Noted);
    }
    if let Some(flag) = sanitize.filter(|flag| flag.value) {
        let diagnostic =
            Diagnostic::new(Code::Conflict, "`sanitize` is for a volume without a `log`")
                .at_some(flag.span.as_ref(), "this promises to destroy all data")
                .see(span.as_ref(), "this keeps copies of the data");
        context.report(diagnostic.help("remove `log` or `sanitize`"));
        return Err(Noted);
    }
    let place = known.source.resolve(&path);
    known.files.state(&place, State { span, written: true });
    let size = table.number(context, "log_size");
    let size = table.optional("log_size", size)?.map(|size| size / 4_096 * 4_096);
    if size.is_none() && !is_device(&place) && !place.exists() {
        table.note(
            context,
            "log_size",
            Value::Number(1 << 30, Some(&crate::config::units::SIZE)),
            None,
        );
    }
    let io = word(context, table, "log_io", "auto")?;
    let sync = word(context, table, "sync", "local")?;
    let order = word(context, table, "order", "auto")?;
    let ack = table.optional("ack", ack)?;
    if ack.is_none() {
        table.note(context, "ack", Value::Text("log".to_owned()), None);
    }
    Ok(Some(Log {
        path: place,
        size,
        io: match &io[..] {
            "direct" => IoMode::Direct,
            "buffered" => IoMode::Buffered,
            _ => IoMode::Auto,
        },
        ack: match ack.as_deref() {
            Some("through") => Ack::Through,
            Some("ram") => Ack::Ram,
            _ => Ack::Log,
        },
        sync: if sync == "upstream" { Sync::Upstream } else { Sync::Local },
        order: match &order[..] {
            "flush" => Order::Flush,
            "strict" => Order::Strict,
            _ => Order::Auto,
        },
    }))
}

/// A volume without a log answers when its own storage has a write.
fn without(
    context: &mut Context,
    table: &Table<'_>,
    ack: Option<Read<String>>,
) -> Result<Option<Log>, Noted> {
    if let Some(ack) = ack.filter(|ack| ack.value != "through") {
        let message = format!("`ack = \"{}\"` needs a `log`", ack.value);
        let diagnostic = Diagnostic::new(Code::MissingKey, message)
            .at_some(ack.span.as_ref(), "answers before the volume's own storage has a write");
        let help = "add `log = \"…\"`: a file of this machine where writes are safe until then";
        context.report(diagnostic.help(help));
        return Err(Noted);
    }
    for key in ["log_size", "log_io", "sync", "order"] {
        if let Some(span) = table.value_span(key) {
            let message = format!("`{key}` is for a volume with a `log`");
            let diagnostic =
                Diagnostic::new(Code::Conflict, message).at(span, "of no use without one");
            context.report(diagnostic.help(format!("add `log`, or remove `{key}`")));
            return Err(Noted);
        }
    }
    Ok(None)
}

/// One of some words, or what it is without the key.
fn word(
    context: &mut Context,
    table: &Table<'_>,
    key: &'static str,
    default: &str,
) -> Result<String, Noted> {
    let read = table.text(context, key);
    let written = table.optional(key, read)?;
    if written.is_none() {
        table.note(context, key, Value::Text(default.to_owned()), None);
    }
    Ok(written.unwrap_or_else(|| default.to_owned()))
}
