//! `[[volume]]`: an address space that hosts see, and where its bytes are.

use super::files::{Files, State, is_device};
use super::initiators;
use crate::config::cap;
use crate::config::fault::{Code, Fault, Span};
use crate::config::names::{Names, Tenants};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::source::Source;
use crate::config::tree::{Context, Document, Noted, Read, Table};
use crate::config::units::SIZE;
use crate::config::value::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_serve::config::{FileStore, IoMode, Volume, Where};

/// The table.
pub(super) static VOLUME: Section = Section {
    name: "volume",
    many: Many::Times(1, 1_024),
    effect: "a disk that hosts see, kept in a file or a block device",
    keys: &[
        Key {
            name: "name",
            kind: Kind::Text("a name: letters, digits, `-`, `_`, `.`"),
            default: Default::Required,
            effect: "names the volume",
        },
        Key {
            name: "file",
            kind: Kind::Text("a path; relative to this file"),
            default: Default::Else("none; then `upstream` is required"),
            effect: "the file or block device with its bytes; a missing file is made, sparse",
        },
        Key {
            name: "upstream",
            kind: Kind::Text("an upstream's name"),
            default: Default::Else("none; then `file` is required"),
            effect: "the storage with its bytes, which somebody else runs; its size is the volume's",
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
            effect: "whose requests these are, for promises and reports",
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
        Key {
            name: "io",
            kind: Kind::Word(&["auto", "direct", "buffered"]),
            default: Default::Is("auto"),
            effect: "past the page cache (direct), through it (buffered), or direct where the file \
                     system can (auto)",
        },
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
                "`file` with `.state` appended; none for a block device or an upstream",
            ),
            effect: "the file that remembers reservations and what else must survive a restart",
        },
        cap::IOPS,
        cap::BANDWIDTH,
        cap::BURST,
    ],
};

/// Reads the tables, in order.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    source: &Source,
    stores: (&Names, &Names),
    names: &mut Names,
    tenants: &mut Tenants,
) -> Option<Vec<Volume>> {
    let mut files = Files::default();
    let mut upstreams = BTreeMap::new();
    let tables = document.many(context, "volume");
    let volumes: Vec<_> = tables
        .iter()
        .map(|table| {
            let store = store(context, table, source, stores, (&mut files, &mut upstreams));
            one(context, table, source, store, names, tenants, &mut files)
        })
        .collect();
    files.check(context);
    volumes.into_iter().collect()
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    source: &Source,
    store: Stored,
    names: &mut Names,
    tenants: &mut Tenants,
    files: &mut Files,
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
        let fault = Fault::new(Code::Conflict, message)
            .at_some(physical.span.as_ref(), "this size")
            .see(block.span.as_ref(), "this block size")
            .help(format!("write `{}`, or leave it out", block.value));
        context.faults.push(fault);
    }
    let read_only = table.flag(context, "read_only");
    let thin = table.flag(context, "thin");
    let io = match store {
        Stored::File { .. } => table.text(context, "io").map(|io| match io.value.as_str() {
            "direct" => IoMode::Direct,
            "buffered" => IoMode::Buffered,
            _ => IoMode::Auto,
        }),
        // It is said to be out of place there, and there is none to show.
        Stored::Upstream(..) => Some(IoMode::Auto),
    };
    if let (Some(size), Some(block)) = (&size, &block_size)
        && !size.value.is_multiple_of(block.value)
    {
        let message = format!("the size is not a multiple of the block size, {}", block.value);
        let below = size.value - size.value % block.value;
        let fault = Fault::new(Code::Conflict, message)
            .at_some(size.span.as_ref(), "this size")
            .see(block.span.as_ref(), "this block size")
            .help(format!("write `{}`, or another size", SIZE.show(below.max(block.value))));
        context.faults.push(fault);
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
            let fault = Fault::new(Code::Conflict, message)
                .at_some(flag.span.as_ref(), "this promises writes")
                .see(read_only.span.as_ref(), "this refuses them");
            context.faults.push(fault.help(format!("remove `{key}` or `read_only`")));
        }
    }
    if let (Stored::Upstream(_, span), Some(atomic)) = (&store, &atomic)
        && atomic.value
    {
        let message = "`atomic` is for a volume in a file or on a device";
        let fault = Fault::new(Code::Conflict, message)
            .at_some(atomic.span.as_ref(), "needs a journal here")
            .see(span.as_ref(), "its bytes are there, without the journal");
        context.faults.push(fault.help("remove `atomic`"));
    }
    let promises = [("sanitize", sanitize.as_ref()), ("atomic", atomic.as_ref())];
    let state = state(context, table, source, &store, promises, files);
    let cap = cap::read(context, table);
    let size = table.optional("size", size).ok()?;
    let io = io?;
    let store = match store {
        Stored::Upstream(index, _) => Where::Upstream(index?),
        Stored::File { file: _, path, backend, .. } => {
            Where::File(FileStore { path: path?, backend: backend.ok()?, size, io })
        }
    };
    let identity = table.optional("identity", identity).ok()?;
    Some(Volume {
        name: name?.value,
        identity,
        tenant: tenant?,
        store,
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

/// Where a volume's bytes are; what has a fault is not there.
enum Stored {
    File {
        file: Option<Read<String>>,
        path: Option<PathBuf>,
        /// No volume before it has the same file.
        first: bool,
        /// No backend is meant, or this one.
        backend: Result<Option<usize>, Noted>,
    },
    /// An upstream, and where it is named.
    Upstream(Option<usize>, Option<Span>),
}

fn store(
    context: &mut Context,
    table: &Table<'_>,
    source: &Source,
    (backends, upstreams): (&Names, &Names),
    (files, taken): (&mut Files, &mut BTreeMap<usize, Option<Span>>),
) -> Stored {
    let file = table.text(context, "file");
    let upstream = table.text(context, "upstream");
    let backend = match table.text(context, "backend") {
        Some(name) => backends.find(context, &name).map(Some).ok_or(Noted),
        None if table.has("backend") => Err(Noted),
        None => Ok(None),
    };
    if let Some(span) = table.value_span("upstream") {
        for key in FILE_KEYS {
            if let Some(written) = table.value_span(key) {
                let message = format!("`{key}` is for a volume in a file or on a device");
                let fault = Fault::new(Code::Conflict, message)
                    .at(written, "this value")
                    .see(Some(&span), "its bytes are there");
                context.faults.push(fault.help(format!("remove `{key}`, or `upstream`")));
            }
        }
        let index = upstream.and_then(|name| upstreams.find(context, &name));
        let first = index.and_then(|index| taken.insert(index, Some(span.clone())));
        if let Some(first) = first {
            let fault = Fault::new(Code::Duplicate, "two volumes are on one upstream")
                .at(span.clone(), "the second")
                .see(first.as_ref(), "the first");
            let help = "give each volume an upstream of its own; they would overwrite each other";
            context.faults.push(fault.help(help));
        }
        return Stored::Upstream(index, Some(span));
    }
    if !table.has("file") {
        let message = "`[[volume]]` has neither `file` nor `upstream`";
        let fault = Fault::new(Code::MissingKey, message).at(table.span(), "this table");
        let help = "add `file = \"…\"`: the file or block device with its bytes; or `upstream`";
        context.faults.push(fault.help(help));
    }
    let path = file.as_ref().map(|file| source.resolve(&file.value));
    let first = match (&file, &path) {
        (Some(file), Some(path)) => files.volume(context, file, path),
        _ => false,
    };
    Stored::File { file, path, first, backend }
}

/// The keys that only a volume in a file or on a device has.
const FILE_KEYS: [&str; 4] = ["file", "backend", "size", "io"];

/// The state file that is written, or the one beside the volume's file. A device has none of its
/// own accord: what is beside it does not survive a restart of the machine. `promises` are the keys
/// that cannot be kept without one.
fn state(
    context: &mut Context,
    table: &Table<'_>,
    source: &Source,
    store: &Stored,
    promises: [(&str, Option<&Read<bool>>); 2],
    files: &mut Files,
) -> Result<Option<PathBuf>, Noted> {
    if let Some(state) = table.text(context, "state") {
        let path = source.resolve(&state.value);
        files.state(&path, State { span: state.span, written: true });
        return Ok(Some(path));
    }
    if table.has("state") {
        return Err(Noted);
    }
    let (place, beside) = match store {
        Stored::File { file, path, first, .. } => {
            let (file, path) = (file.as_ref().ok_or(Noted)?, path.as_ref().ok_or(Noted)?);
            (&file.span, (!is_device(path)).then_some((file, *first)))
        }
        Stored::Upstream(_, span) => (span, None),
    };
    if let Some((file, first)) = beside {
        let beside = format!("{}.state", file.value);
        let path = source.resolve(&beside);
        table.note(context, "state", Value::Text(beside), None);
        if first {
            files.state(&path, State { span: file.span.clone(), written: false });
        }
        return Ok(Some(path));
    }
    for (key, flag) in promises {
        if let Some(flag) = flag.filter(|flag| flag.value) {
            let on = match store {
                Stored::File { .. } => "a block device",
                Stored::Upstream(..) => "an upstream",
            };
            let message = format!("`{key}` on {on} needs a `state`");
            let fault = Fault::new(Code::MissingKey, message)
                .at_some(flag.span.as_ref(), "must survive a restart")
                .see(place.as_ref(), "nothing can be kept beside it");
            let help = "add `state = \"…\"`: a file that remembers what must survive a restart";
            context.faults.push(fault.help(help));
        }
    }
    Ok(None)
}
