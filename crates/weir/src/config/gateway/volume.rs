//! `[[volume]]`: an address space that hosts see, and where its bytes are.

use super::files::{Files, State, is_device};
use super::initiators;
use crate::config::cap;
use crate::config::fault::{Code, Fault};
use crate::config::names::{Names, Tenants};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::source::Source;
use crate::config::tree::{Context, Document, Noted, Read, Table};
use crate::config::units::SIZE;
use crate::config::value::Value;
use std::path::{Path, PathBuf};
use weir_serve::config::{IoMode, Volume};

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
            default: Default::Required,
            effect: "the file or block device with its bytes; a missing file is made, sparse",
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
            default: Default::Else("`file` with `.state` appended; none for a block device"),
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
    backends: &Names,
    names: &mut Names,
    tenants: &mut Tenants,
) -> Option<Vec<Volume>> {
    let mut files = Files::default();
    let tables = document.many(context, "volume");
    let volumes: Vec<_> = tables
        .iter()
        .map(|table| one(context, table, source, backends, names, tenants, &mut files))
        .collect();
    files.check(context);
    volumes.into_iter().collect()
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    source: &Source,
    backends: &Names,
    names: &mut Names,
    tenants: &mut Tenants,
    files: &mut Files,
) -> Option<Volume> {
    let name = table.text(context, "name");
    if let Some(name) = &name {
        names.define(context, name, table.index());
    }
    let file = table.text(context, "file");
    let path = file.as_ref().map(|file| source.resolve(&file.value));
    let first = match (&file, &path) {
        (Some(file), Some(path)) => files.volume(context, file, path),
        _ => false,
    };
    let backend = match table.text(context, "backend") {
        Some(name) => backends.find(context, &name).map(Some),
        None => (!table.has("backend")).then_some(None),
    };
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
    let io = table.text(context, "io").map(|io| match io.value.as_str() {
        "direct" => IoMode::Direct,
        "buffered" => IoMode::Buffered,
        _ => IoMode::Auto,
    });
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
    let promises = [("sanitize", sanitize.as_ref()), ("atomic", atomic.as_ref())];
    let kept = Kept { file: file.as_ref(), path: path.as_deref(), first };
    let state = state(context, table, source, &kept, promises, files);
    let cap = cap::read(context, table);
    let size = table.optional("size", size).ok()?;
    let identity = table.optional("identity", identity).ok()?;
    Some(Volume {
        name: name?.value,
        identity,
        tenant: tenant?,
        path: path?,
        backend: backend?,
        size,
        block_size: block_size?.value as u32,
        physical_block_size: physical?.value as u32,
        read_only: read_only?.value,
        thin: thin?.value,
        io: io?,
        initiators: initiators?,
        removable: removable?.value,
        sanitize: sanitize?.value,
        atomic: atomic?.value,
        state: state.ok()?,
        cap: cap?,
    })
}

/// Where a volume's bytes are.
struct Kept<'a> {
    file: Option<&'a Read<String>>,
    path: Option<&'a Path>,
    /// No volume before it has the same file.
    first: bool,
}

/// The state file that is written, or the one beside the volume's file. A device has none of its
/// own accord: what is beside it does not survive a restart of the machine. `promises` are the keys
/// that cannot be kept without one.
fn state(
    context: &mut Context,
    table: &Table<'_>,
    source: &Source,
    kept: &Kept<'_>,
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
    let (file, bytes) = (kept.file.ok_or(Noted)?, kept.path.ok_or(Noted)?);
    if !is_device(bytes) {
        let beside = format!("{}.state", file.value);
        let path = source.resolve(&beside);
        table.note(context, "state", Value::Text(beside), None);
        if kept.first {
            files.state(&path, State { span: file.span.clone(), written: false });
        }
        return Ok(Some(path));
    }
    for (key, flag) in promises {
        if let Some(flag) = flag.filter(|flag| flag.value) {
            let message = format!("`{key}` on a block device needs a `state`");
            let fault = Fault::new(Code::MissingKey, message)
                .at_some(flag.span.as_ref(), "must survive a restart")
                .see(file.span.as_ref(), "nothing can be kept beside a device");
            let help = "add `state = \"…\"`: a file that remembers what must survive a restart";
            context.faults.push(fault.help(help));
        }
    }
    Ok(None)
}
