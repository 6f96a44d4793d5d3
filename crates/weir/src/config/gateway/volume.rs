//! `[[volume]]`: an address space that hosts see, and where its bytes are.

use crate::config::fault::{Code, Fault, Span};
use crate::config::names::{Names, Tenants};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::source::Source;
use crate::config::tree::{Context, Document, Read, Table};
use crate::config::units::SIZE;
use crate::config::value::Value;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use weir_serve::config::{Initiators, IoMode, Volume};

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
    ],
};

/// Reads the tables, in order.
pub(super) fn read(
    context: &mut Context,
    document: &Document<'_>,
    source: &Source,
    names: &mut Names,
    tenants: &mut Tenants,
) -> Option<Vec<Volume>> {
    let mut files = BTreeMap::new();
    let tables = document.many(context, "volume");
    let volumes: Vec<_> = tables
        .iter()
        .map(|table| one(context, table, source, names, tenants, &mut files))
        .collect();
    volumes.into_iter().collect()
}

fn one(
    context: &mut Context,
    table: &Table<'_>,
    source: &Source,
    names: &mut Names,
    tenants: &mut Tenants,
    files: &mut BTreeMap<PathBuf, Option<Span>>,
) -> Option<Volume> {
    let name = table.text(context, "name");
    if let Some(name) = &name {
        names.define(context, name, table.index());
    }
    let file = table.text(context, "file");
    let path = file.as_ref().map(|file| source.resolve(&file.value));
    if let (Some(file), Some(path)) = (&file, &path) {
        once(context, file, path, files);
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
    let size = table.optional("size", size).ok()?;
    let identity = table.optional("identity", identity).ok()?;
    Some(Volume {
        name: name?.value,
        identity,
        tenant: tenant?,
        path: path?,
        size,
        block_size: block_size?.value as u32,
        read_only: read_only?.value,
        thin: thin?.value,
        io: io?,
        initiators: Initiators::default(),
        removable: false,
        sanitize: false,
        atomic: false,
        state: None,
    })
}

/// Notes a volume's file, or a fault if another volume has it: both would destroy each other's
/// data.
fn once(
    context: &mut Context,
    file: &Read<String>,
    path: &Path,
    files: &mut BTreeMap<PathBuf, Option<Span>>,
) {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    if let Some(first) = files.get(&plain) {
        let message = format!("two volumes keep their bytes in `{}`", plain.display());
        let fault = Fault::new(Code::Duplicate, message)
            .at_some(file.span.as_ref(), "the second")
            .see(first.as_ref(), "the first")
            .help("give each volume a file of its own; they would overwrite each other");
        context.faults.push(fault);
        return;
    }
    files.insert(plain, file.span.clone());
}
