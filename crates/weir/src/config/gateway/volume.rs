//! `[[volume]]`: an address space that hosts see, and where its bytes are.

use super::files::{State, is_device};
use super::initiators;
use super::log;
use super::movable;
use super::store::{self, Known, Place, Several, Stores};
use crate::config::cap;
use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::names::{self, Names, Tenants};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::tree::{Context, Document, Noted, Read, Table};
use crate::config::units::SIZE;
use crate::config::value::Value;
use std::path::PathBuf;
use weir_flow::accept::{CHUNK_MAX, CHUNK_MIN};
use weir_serve::config::{Layout, Volume, Where};

/// The table.
pub(super) static VOLUME: Section = Section {
    name: "volume",
    many: Many::Times(1, 1_024),
    effect: "a disk that hosts see, kept in a file, on a block device, on an upstream, in memory, or on several of \
             them",
    keys: &[
        names::key("names the volume"),
        Key {
            name: "file",
            kind: Kind::Text("a path; relative to this file"),
            default: Default::Else("none; then another place is required"),
            effect: "the file or block device with its bytes; a missing file is made, sparse",
        },
        Key {
            name: "upstream",
            kind: Kind::Text("an upstream's name"),
            default: Default::Else("none; then another place is required"),
            effect: "the upstream that keeps its bytes; its size is the volume's",
        },
        store::MEMORY,
        store::NULL,
        Key {
            name: "stores",
            kind: Kind::Texts("names of `[[store]]` tables, in order"),
            default: Default::Else("none; then another place is required"),
            effect: "the stores that its bytes are on. Stores can be added at the end of a `concat` volume, \
                     whose last one has a size; else they and their order stay as long as there is data",
        },
        Key {
            name: "layout",
            kind: Kind::Word(&["concat", "stripe"]),
            default: Default::Else("`concat` for one of `stores`; needed for several"),
            effect: "one store after the other (concat), or chunks of all in turns (stripe), of which as \
                     many are used as the smallest store has. An ORWRITE or WRITE AND VERIFY that would \
                     be on two stores is refused; COMPARE AND WRITE takes one block",
        },
        Key {
            name: "chunk",
            kind: Kind::Size(CHUNK_MIN, CHUNK_MAX),
            default: Default::Else("64KiB for a stripe"),
            effect: "bytes in one turn of a stripe, a power of two; stays as long as there is data",
        },
        Key {
            name: "backend",
            kind: Kind::Text("a backend's name"),
            default: Default::Else("none: what the file takes"),
            effect: "the modelled device whose time its I/Os take at least; volumes may share one",
        },
        Key {
            name: "identity",
            kind: Kind::Text("any text"),
            default: Default::Else("this machine's identity and the volume's name"),
            effect: "what the serial number and worldwide name that hosts see are made of; set it to \
                     keep them when the volume moves",
        },
        Key {
            name: "size",
            kind: Kind::Size(512, 1 << 60),
            default: Default::Else("the size of the existing file or device"),
            effect: "size of the volume, a multiple of the block size",
        },
        Key {
            name: "tenant",
            kind: Kind::Text("a name"),
            default: Default::Else("the volume's name"),
            effect: "the tenant of its requests, for contracts and reports",
        },
        Key {
            name: "block_size",
            kind: Kind::OneOf(&[512, 4_096]),
            default: Default::Is("512"),
            effect: "logical block size in bytes that hosts see",
        },
        Key {
            name: "physical_block_size",
            kind: Kind::OneOf(&[512, 4_096]),
            default: Default::Is("4096"),
            effect: "what hosts align to; not less than the block size",
        },
        Key {
            name: "read_only",
            kind: Kind::Flag,
            default: Default::Is("false"),
            effect: "refuse writes",
        },
        Key {
            name: "thin",
            kind: Kind::Flag,
            default: Default::Is("true"),
            effect: "let hosts give blocks back (UNMAP)",
        },
        IO,
        initiators::key("who sees it over iSCSI, in every target that offers it"),
        Key {
            name: "removable",
            kind: Kind::Flag,
            default: Default::Is("false"),
            effect: "let hosts lock and eject it",
        },
        Key {
            name: "sanitize",
            kind: Kind::Flag,
            default: Default::Is("false"),
            effect: "let hosts have all of its data destroyed (SANITIZE)",
        },
        Key {
            name: "atomic",
            kind: Kind::Flag,
            default: Default::Is("false"),
            effect: "offer WRITE ATOMIC, by writing such data twice: first to a journal beside the \
                     state file",
        },
        Key {
            name: "state",
            kind: Kind::Text("a path; relative to this file"),
            default: Default::Else(
                "`file` with `.state` appended; none for a block device, an upstream, memory or several stores",
            ),
            effect: "the file that remembers reservations and what else must survive a restart",
        },
        log::LOG,
        log::ACK,
        log::LOG_SIZE,
        log::LOG_IO,
        log::SYNC,
        log::ORDER,
        movable::MOVABLE,
        cap::IOPS,
        cap::BANDWIDTH,
        cap::BURST,
    ],
    settings: &[],
};

/// How a file is read and written.
pub(super) const IO: Key = Key {
    name: "io",
    kind: Kind::Word(&["auto", "direct", "buffered"]),
    default: Default::Is("auto"),
    effect: "past the page cache (direct), through it (buffered), or direct where the file system can \
             (auto)",
};

/// Reads the tables, in order.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    mut known: Known<'_>,
    names: &mut Names,
    tenants: &mut Tenants,
) -> Option<Vec<Volume>> {
    let mut stores = Stores::read(context, document, &mut known);
    let tables = document.many(context, "volume");
    let volumes: Vec<_> = tables
        .iter()
        .map(|table| {
            let kept = kept(context, table, &mut stores, &mut known);
            one(context, table, kept, names, tenants, &mut known)
        })
        .collect();
    stores.unused(context);
    known.files.check(context);
    volumes.into_iter().collect()
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    kept: Stored,
    names: &mut Names,
    tenants: &mut Tenants,
    known: &mut Known<'_>,
) -> Option<Volume> {
    let name = table.text(context, "name");
    if let Some(name) = &name {
        names.define(context, name, table.index());
    }
    let identity = table.text(context, "identity");
    let size = table.number(context, "size");
    let tenant = match (&name, table.has("tenant")) {
        (_, true) => table.text(context, "tenant"),
        (Some(name), false) => {
            table.note(context, "tenant", Value::Text(name.value.clone()), None);
            Some(Read { value: name.value.clone(), span: None })
        }
        (None, false) => None,
    };
    let tenant = tenant.map(|tenant| tenants.index(context, &tenant));
    let block_size = table.number(context, "block_size");
    let physical = table.number(context, "physical_block_size");
    if let (Some(physical), Some(block)) = (&physical, &block_size)
        && physical.value < block.value
    {
        let message =
            format!("physical blocks of {} are smaller than logical ones", physical.value);
        let diagnostic = Diagnostic::new(Code::Conflict, message)
            .at_some(physical.span.as_ref(), "this size")
            .see(block.span.as_ref(), "this block size")
            .help(format!("write `{}`, or leave it out", block.value));
        context.report(diagnostic);
    }
    let read_only = table.flag(context, "read_only");
    let thin = table.flag(context, "thin");
    let sizes = match &kept {
        Stored::Several(several) => &several.sizes[..],
        Stored::One(Place::Memory { size, .. }) => size.as_slice(),
        Stored::One(_) => size.as_slice(),
    };
    for size in sizes {
        if let Some(block) = &block_size
            && !size.value.is_multiple_of(block.value)
        {
            let message = format!("the size is not a multiple of the block size, {}", block.value);
            let below = size.value - size.value % block.value;
            let diagnostic = Diagnostic::new(Code::Conflict, message)
                .at_some(size.span.as_ref(), "this size")
                .see(block.span.as_ref(), "this block size")
                .help(format!("write `{}`, or another size", SIZE.show(below.max(block.value))));
            context.report(diagnostic);
        }
    }
    let initiators = initiators::read(context, table);
    let removable = table.flag(context, "removable");
    let sanitize = table.flag(context, "sanitize");
    let atomic = table.flag(context, "atomic");
    for (key, flag) in [("sanitize", &sanitize), ("atomic", &atomic)] {
        if let (Some(flag), Some(read_only)) = (flag, &read_only)
            && flag.value
            && read_only.value
        {
            let message = format!("`{key}` is for a volume that hosts may write");
            let diagnostic = Diagnostic::new(Code::Conflict, message)
                .at_some(flag.span.as_ref(), "this promises writes")
                .see(read_only.span.as_ref(), "this refuses them");
            context.report(diagnostic.help(format!("remove `{key}` or `read_only`")));
        }
    }
    let lost = kept.lost().cloned();
    if let Some(lost) = &lost {
        let is_on = |flag: &Option<Read<bool>>| flag.as_ref().is_some_and(|flag| flag.value);
        let promises = [
            ("state", table.has("state")),
            ("log", table.has("log")),
            ("sanitize", is_on(&sanitize)),
            ("atomic", is_on(&atomic)),
        ];
        for (key, _) in promises.into_iter().filter(|&(_, promised)| promised) {
            let message = format!("`{key}` is for a volume whose data outlives the gateway");
            let diagnostic = Diagnostic::new(Code::Conflict, message)
                .at_some(table.value_span(key).as_ref(), "this promises to keep something")
                .see(Some(lost), "what is here is gone when the gateway stops");
            context
                .report(diagnostic.help(format!("remove `{key}`, or keep the volume in a file")));
        }
    }
    let elsewhere = match &kept {
        Stored::One(Place::Upstream(_, span)) | Stored::Several(Several { span, .. }) => Some(span),
        Stored::One(_) => None,
    };
    if let (Some(span), Some(atomic), None) = (elsewhere, &atomic, &lost)
        && atomic.value
    {
        let message = "`atomic` is for a volume in one file or on one device";
        let diagnostic = Diagnostic::new(Code::Conflict, message)
            .at_some(atomic.span.as_ref(), "needs a journal here")
            .see(Some(span), "its bytes are there, without the journal");
        context.report(diagnostic.help("remove `atomic`"));
    }
    let promises = [("sanitize", sanitize.as_ref()), ("atomic", atomic.as_ref())];
    let (state, log) = if lost.is_some() {
        let log =
            if table.has("log") { Err(Noted) } else { log::read(context, table, [None; 2], known) };
        (Ok(None), log)
    } else {
        let state = state(context, table, &kept, promises, known);
        (state, log::read(context, table, [read_only.as_ref(), sanitize.as_ref()], known))
    };
    let movable = table.flag(context, "movable");
    let cap = cap::read(context, table);
    let size = table.optional("size", size).ok()?;
    let (stores, layout) = match kept {
        Stored::One(place) => (vec![place.store(&name.as_ref()?.value, size)?], Layout::Concat),
        Stored::Several(several) => several.laid?,
    };
    let identity = table.optional("identity", identity).ok()?;
    Some(Volume {
        name: name?.value,
        identity,
        tenant: tenant?,
        stores,
        layout,
        log: log.ok()?,
        movable: movable?.value,
        block_size: block_size?.value as u32,
        physical_block_size: physical?.value as u32,
        read_only: read_only?.value,
        thin: thin?.value,
        initiators: initiators?,
        removable: removable?.value,
        sanitize: sanitize?.value,
        atomic: atomic?.value,
        state: state.ok()?,
        cap: cap?,
    })
}

/// Where a volume's bytes are.
enum Stored {
    /// In one place.
    One(Place),
    /// On what `stores` names.
    Several(Several),
}

impl Stored {
    /// Where it is said that data, or a part of it, is gone when the gateway stops, if that is so.
    fn lost(&self) -> Option<&Span> {
        match self {
            Self::One(Place::Memory { span, .. }) => Some(span),
            Self::Several(Several { laid: Some((stores, _)), span, .. }) => {
                stores.iter().any(|store| matches!(store, Where::Memory(_))).then_some(span)
            }
            _ => None,
        }
    }
}

fn kept(
    context: &mut Context,
    table: &Table<'_>,
    stores: &mut Stores,
    known: &mut Known<'_>,
) -> Stored {
    if let Some(several) = stores.of_volume(context, table) {
        return Stored::Several(several);
    }
    if !store::is_placed(table) {
        let message = "`[[volume]]` has none of `file`, `upstream`, `memory`, `null` and `stores`";
        let diagnostic = Diagnostic::new(Code::MissingKey, message).at(table.span(), "this table");
        let help =
            "add `file = \"…\"`: the file or block device with its bytes; or another of these";
        context.report(diagnostic.help(help));
    }
    Stored::One(Place::read(context, table, "volume", &FILE_KEYS, known))
}

/// The keys that only a volume in a file or on a device has.
const FILE_KEYS: [&str; 4] = ["file", "backend", "size", "io"];

/// The state file that is written, or the one beside the volume's file. A device has none of its
/// own accord: what is beside it does not survive a restart of the machine. `promises` are the keys
/// that cannot be kept without one.
fn state(
    context: &mut Context,
    table: &Table<'_>,
    kept: &Stored,
    promises: [(&str, Option<&Read<bool>>); 2],
    known: &mut Known<'_>,
) -> Result<Option<PathBuf>, Noted> {
    if let Some(state) = table.text(context, "state") {
        let path = known.source.resolve(&state.value);
        known.files.state(&path, State { span: state.span, written: true });
        return Ok(Some(path));
    }
    if table.has("state") {
        return Err(Noted);
    }
    let (on, place, beside) = match kept {
        Stored::One(Place::File { file, path, first, .. }) => {
            let (file, path) = (file.as_ref().ok_or(Noted)?, path.as_ref().ok_or(Noted)?);
            let beside = (!is_device(path)).then_some((file, *first));
            ("a block device", file.span.as_ref(), beside)
        }
        Stored::One(Place::Upstream(_, span)) => ("an upstream", Some(span), None),
        Stored::One(Place::Memory { .. }) => return Ok(None),
        Stored::Several(Several { span, .. }) => {
            ("a volume that names its `stores`", Some(span), None)
        }
    };
    if let Some((file, first)) = beside {
        let beside = format!("{}.state", file.value);
        let path = known.source.resolve(&beside);
        table.note(context, "state", Value::Text(beside), None);
        if first {
            known.files.state(&path, State { span: file.span.clone(), written: false });
        }
        return Ok(Some(path));
    }
    for (key, flag) in promises {
        if let Some(flag) = flag.filter(|flag| flag.value) {
            let message = format!("`{key}` on {on} needs a `state`");
            let diagnostic = Diagnostic::new(Code::MissingKey, message)
                .at_some(flag.span.as_ref(), "must survive a restart")
                .see(place, "nothing can be kept beside it");
            let help = "add `state = \"…\"`: a file that remembers what must survive a restart";
            context.report(diagnostic.help(help));
        }
    }
    Ok(None)
}
