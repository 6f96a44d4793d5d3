//! `[[store]]`: a file, a device, an upstream or memory that keeps a part of a volume, and what is the same for
//! a volume that is on nothing else.

use super::files::Files;
use crate::config::diagnostic::{Code, Diagnostic, Span};
use crate::config::names::{self, Names};
use crate::config::schema::{Default, Key, Kind, Many, Section};
use crate::config::source::Source;
use crate::config::tree::{Context, Document, Noted, Read, Table};
use crate::config::units::shorten;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_flow::accept::PARTS_MAX;
use weir_serve::config::{FileStore, IoMode, Layout, MemoryStore, Where};

/// The table.
pub(super) static STORE: Section = Section {
    name: "store",
    many: Many::Times(0, 4_096),
    effect: "a file, a block device, an upstream or memory with a part of a volume, which names it in `stores`",
    keys: &[
        names::key("names the store"),
        Key {
            name: "file",
            kind: Kind::Text("a path; relative to this file"),
            default: Default::Else("none; then another place is required"),
            effect: "the file or block device; a missing file is made, sparse",
        },
        Key {
            name: "upstream",
            kind: Kind::Text("an upstream's name"),
            default: Default::Else("none; then another place is required"),
            effect: "the upstream that keeps its bytes",
        },
        MEMORY,
        NULL,
        Key {
            name: "backend",
            kind: Kind::Text("a backend's name"),
            default: Default::Else("none: what the file takes"),
            effect: "the modelled device whose time its I/Os take at least",
        },
        Key {
            name: "size",
            kind: Kind::Size(512, 1 << 60),
            default: Default::Else("the size of what is there"),
            effect: "how much of it is used, a multiple of the block size; needed if another store follows \
                     it in a `concat` volume",
        },
        super::volume::IO,
    ],
    settings: &[],
};

/// A size in memory.
pub(super) const MEMORY: Key = Key {
    name: "memory",
    kind: Kind::Size(512, 1 << 40),
    default: Default::Else("none; then another place is required"),
    effect: "bytes in memory of the gateway, for tests and benchmarks: all of it is gone when the gateway stops. A \
             page of 4 KiB takes memory when it is written, and gives it back when hosts unmap it",
};

/// A size of nothing.
pub(super) const NULL: Key = Key {
    name: "null",
    kind: Kind::Size(512, 1 << 60),
    default: Default::Else("none; then another place is required"),
    effect: "bytes that are nowhere, for benchmarks: writes are dropped, and reads give zeroes",
};

/// The keys that say where bytes are without a disk, and whether these places keep them.
const MEMORY_KEYS: [(&str, bool); 2] = [("memory", true), ("null", false)];

/// Whether a table says where bytes are.
pub(super) fn is_placed(table: &Table<'_>) -> bool {
    ["file", "upstream", "memory", "null"].into_iter().any(|key| table.has(key))
}

/// What is known when places are read.
pub(super) struct Known<'a> {
    pub(super) source: &'a Source,
    pub(super) backends: &'a Names,
    pub(super) upstreams: &'a Names,
    pub(super) files: Files,
    /// The upstreams that something is on, and where that is said.
    pub(super) taken: BTreeMap<usize, Span>,
}

/// Where bytes are; what has a diagnostic is not there.
pub(super) enum Place {
    File {
        file: Option<Read<String>>,
        path: Option<PathBuf>,
        /// Nothing before it has the same file.
        first: bool,
        /// No backend is meant, or this one.
        backend: Result<Option<usize>, Noted>,
        io: Option<IoMode>,
    },
    /// An upstream, and where it is named.
    Upstream(Option<usize>, Span),
    /// Memory, or nothing, and where that is said.
    Memory { size: Option<Read<u64>>, keeps: bool, span: Span },
}

impl Place {
    /// Reads it from a volume or a store. The keys of `with_file` mean nothing for an upstream.
    pub(super) fn read(
        context: &mut Context,
        table: &Table<'_>,
        what: &'static str,
        with_file: &[&str],
        known: &mut Known<'_>,
    ) -> Self {
        for (place, keeps) in MEMORY_KEYS {
            let size = table.number(context, place);
            let Some(span) = table.value_span(place) else { continue };
            for key in ["file", "upstream", "backend", "size", "io", "null"] {
                let Some(written) = table.value_span(key).filter(|_| key != place) else {
                    continue;
                };
                let message = format!("`{key}` is for a {what} that is not in `{place}`");
                let diagnostic = Diagnostic::new(Code::Conflict, message)
                    .at(written, "this value")
                    .see(Some(&span), "its size, and that it has no other place");
                context.report(diagnostic.help(format!("remove `{key}`, or `{place}`")));
            }
            return Self::Memory { size, keeps, span };
        }
        let file = table.text(context, "file");
        let upstream = table.text(context, "upstream");
        let backend = match table.text(context, "backend") {
            Some(name) => known.backends.find(context, &name).map(Some).ok_or(Noted),
            None if table.has("backend") => Err(Noted),
            None => Ok(None),
        };
        if let Some(span) = table.value_span("upstream") {
            for key in with_file {
                if let Some(written) = table.value_span(key) {
                    let message = format!("`{key}` is for a {what} in a file or on a device");
                    let diagnostic = Diagnostic::new(Code::Conflict, message)
                        .at(written, "this value")
                        .see(Some(&span), "its bytes are there");
                    context.report(diagnostic.help(format!("remove `{key}`, or `upstream`")));
                }
            }
            let index = upstream.and_then(|name| known.upstreams.find(context, &name));
            let first = index.and_then(|index| known.taken.insert(index, span.clone()));
            if let Some(first) = first {
                let diagnostic =
                    Diagnostic::new(Code::Duplicate, "one upstream would have two users")
                        .at(span.clone(), "the second")
                        .see(Some(&first), "the first");
                let help = "give each volume or store its own upstream; they would overwrite \
                            each other";
                context.report(diagnostic.help(help));
            }
            return Self::Upstream(index, span);
        }
        let path = file.as_ref().map(|file| known.source.resolve(&file.value));
        let first = match (&file, &path) {
            (Some(file), Some(path)) => known.files.volume(context, file, path, what),
            _ => false,
        };
        let io = table.text(context, "io").map(|io| match io.value.as_str() {
            "direct" => IoMode::Direct,
            "buffered" => IoMode::Buffered,
            _ => IoMode::Auto,
        });
        Self::File { file, path, first, backend, io }
    }

    /// The store that it is.
    pub(super) fn store(self, name: &str, size: Option<u64>) -> Option<Where> {
        match self {
            Self::Upstream(index, _) => Some(Where::Upstream { index: index?, size }),
            Self::Memory { size, keeps, .. } => {
                let (name, size) = (name.to_owned(), size?.value);
                Some(Where::Memory(MemoryStore { name, size, keeps }))
            }
            Self::File { path, backend, io, .. } => {
                let (name, backend) = (name.to_owned(), backend.ok()?);
                Some(Where::File(FileStore { name, path: path?, backend, size, io: io? }))
            }
        }
    }
}

/// The stores of a file.
pub(super) struct Stores {
    names: Names,
    tables: Vec<Defined>,
}

/// A store.
struct Defined {
    /// Where its table is.
    span: Span,
    name: Option<Read<String>>,
    /// Whether a size is written, right or not.
    sized: bool,
    size: Option<Read<u64>>,
    store: Option<Where>,
    /// Where a volume names it.
    named: Option<Span>,
}

/// The stores of a volume and their layout, unless something is wrong with one of them, and the sizes that
/// are written for them.
pub(super) struct Several {
    pub(super) laid: Option<(Vec<Where>, Layout)>,
    pub(super) sizes: Vec<Read<u64>>,
    /// Where they are named.
    pub(super) span: Span,
}

impl Stores {
    /// Reads the tables, in order.
    pub(super) fn read(
        context: &mut Context,
        document: &Document<'_>,
        known: &mut Known<'_>,
    ) -> Self {
        let mut names = Names::new("store");
        let mut tables = Vec::new();
        for table in document.many(context, "store") {
            let name = table.text(context, "name");
            if let Some(name) = &name {
                names.define(context, name, tables.len());
            }
            if !is_placed(&table) {
                let message = "`[[store]]` has none of `file`, `upstream`, `memory` and `null`";
                let diagnostic =
                    Diagnostic::new(Code::MissingKey, message).at(table.span(), "this table");
                let help = "add `file = \"…\"`: the file or block device with its bytes; or another of these";
                context.report(diagnostic.help(help));
            }
            let place = Place::read(context, &table, "store", &["file", "backend", "io"], known);
            let (size, sized) = match &place {
                Place::Memory { size, .. } => (size.clone(), true),
                _ => (table.number(context, "size"), table.has("size")),
            };
            let bytes = size.as_ref().map(|size| size.value);
            let store = name.as_ref().and_then(|name| place.store(&name.value, bytes));
            let store = store.filter(|_| size.is_some() == sized);
            tables.push(Defined { span: table.span(), name, sized, size, store, named: None });
        }
        Self { names, tables }
    }

    /// Those that a volume names, and how they are laid out.
    pub(super) fn of_volume(
        &mut self,
        context: &mut Context,
        table: &Table<'_>,
    ) -> Option<Several> {
        let names = table.texts(context, "stores");
        let span = table.value_span("stores");
        let layout = table.text(context, "layout");
        let chunk = table.number(context, "chunk");
        let Some(span) = span else {
            for key in ["layout", "chunk"] {
                if let Some(written) = table.value_span(key) {
                    let message = format!("`{key}` is for a volume on several stores");
                    let diagnostic =
                        Diagnostic::new(Code::Conflict, message).at(written, "this value");
                    context.report(diagnostic.help(format!("remove `{key}`, or name `stores`")));
                }
            }
            return None;
        };
        let diagnostics = context.diagnostics.len();
        for key in ["file", "upstream", "memory", "null", "backend", "size", "io"] {
            if let Some(written) = table.value_span(key) {
                let message = format!("`{key}` is for a volume that has no `stores`");
                let diagnostic = Diagnostic::new(Code::Conflict, message)
                    .at(written, "this value")
                    .see(Some(&span), "its bytes are there");
                let help = format!("write `{key}` in a `[[store]]`, or remove `stores`");
                context.report(diagnostic.help(help));
            }
        }
        let indices = names.map(|names| self.name(context, &names, &span)).unwrap_or_default();
        let layout =
            self.layout(context, table, (&indices, &span), layout.as_ref(), chunk.as_ref());
        let stores = indices.iter().map(|&index| self.tables[index].store.clone());
        let stores: Option<Vec<_>> = stores.collect();
        let sizes = indices.iter().filter_map(|&index| self.tables[index].size.clone());
        let sizes = sizes.collect();
        let whole = context.diagnostics.len() == diagnostics;
        Some(Several { laid: stores.zip(layout).filter(|_| whole), sizes, span })
    }

    /// The stores of these names, each of which is a volume's alone.
    fn name(&mut self, context: &mut Context, names: &[Read<String>], span: &Span) -> Vec<usize> {
        if names.is_empty() {
            let diagnostic =
                Diagnostic::new(Code::BadValue, "a volume without stores has no bytes");
            let diagnostic = diagnostic.at(span.clone(), "the value of `stores`");
            context.report(diagnostic.help("name a `[[store]]`, or more"));
        }
        if let Some(extra) = names.get(PARTS_MAX) {
            let message = format!("`stores` has {} entries", names.len());
            let diagnostic = Diagnostic::new(Code::OutOfRange, message);
            let diagnostic = diagnostic.at_some(extra.span.as_ref(), "the first one too many");
            context.report(diagnostic.help(format!("write at most {PARTS_MAX}")));
        }
        let mut indices = Vec::new();
        for name in names {
            let Some(index) = self.names.find(context, name) else { continue };
            let taken = &mut self.tables[index].named;
            if let Some(first) = taken {
                let message = format!("store `{}` is used twice", shorten(&name.value));
                let diagnostic = Diagnostic::new(Code::Duplicate, message)
                    .at_some(name.span.as_ref(), "the second time")
                    .see(Some(&*first), "the first");
                let help = "each store is in one volume, once; its bytes would be overwritten";
                context.report(diagnostic.help(help));
                continue;
            }
            taken.clone_from(&name.span);
            indices.push(index);
        }
        indices
    }

    /// How these stores are laid out.
    fn layout(
        &self,
        context: &mut Context,
        table: &Table<'_>,
        (indices, span): (&[usize], &Span),
        layout: Option<&Read<String>>,
        chunk: Option<&Read<u64>>,
    ) -> Option<Layout> {
        let striped = layout.is_some_and(|layout| layout.value == "stripe");
        if table.has("chunk") && !striped && (layout.is_some() || !table.has("layout")) {
            let diagnostic = Diagnostic::new(Code::Conflict, "`chunk` is for a stripe")
                .at_some(table.value_span("chunk").as_ref(), "this value")
                .see(table.value_span("layout").as_ref(), "this is none");
            context.report(diagnostic.help("remove `chunk`, or write `layout = \"stripe\"`"));
        }
        if table.has("layout") && layout.is_none() {
            return None;
        }
        if layout.is_none() && indices.len() > 1 {
            let diagnostic =
                Diagnostic::new(Code::MissingKey, "a volume on several stores has no `layout`");
            let diagnostic = diagnostic.at(span.clone(), "these stores");
            let help = "add `layout = \"concat\"`: one after the other; or `\"stripe\"`: in turns";
            context.report(diagnostic.help(help));
            return None;
        }
        if striped {
            if indices.len() == 1 {
                let diagnostic =
                    Diagnostic::new(Code::Conflict, "a stripe needs two stores or more")
                        .at_some(table.value_span("layout").as_ref(), "this layout")
                        .see(Some(span), "one store");
                let help = "name another store, or write `layout = \"concat\"`, to which stores can be \
                            added at the end";
                context.report(diagnostic.help(help));
            }
            return stripe(context, table, chunk);
        }
        let (_, followed) = indices.split_last()?;
        for store in followed.iter().map(|&index| &self.tables[index]) {
            if !store.sized {
                let diagnostic = Diagnostic::new(
                    Code::MissingKey,
                    "a store that another one follows has no `size`",
                )
                .at(store.span.clone(), "this store")
                .see(store.named.as_ref(), "others follow");
                let help =
                    "add `size`: where the next store begins must not change when this one grows";
                context.report(diagnostic.help(help));
            }
        }
        Some(Layout::Concat)
    }

    /// Warns of those that no volume names.
    pub(super) fn unused(&self, context: &mut Context) {
        for store in self.tables.iter().filter(|store| store.named.is_none()) {
            let Some(name) = &store.name else { continue };
            let message = format!("no volume is on store `{}`", shorten(&name.value));
            let diagnostic = Diagnostic::new(Code::Unused, message);
            let diagnostic = diagnostic.at_some(name.span.as_ref(), "this store");
            context.report(diagnostic.help("name it in `stores` of a volume, or remove it"));
        }
    }
}

/// A stripe with this chunk, or the usual one.
fn stripe(context: &mut Context, table: &Table<'_>, chunk: Option<&Read<u64>>) -> Option<Layout> {
    let Some(chunk) = chunk else {
        if table.has("chunk") {
            return None;
        }
        table.note_number(context, "chunk", CHUNK);
        return Some(Layout::Stripe { chunk: CHUNK });
    };
    if !chunk.value.is_power_of_two() {
        let diagnostic = Diagnostic::new(Code::BadValue, "a chunk is a power of two");
        let diagnostic = diagnostic.at_some(chunk.span.as_ref(), "the value of `chunk`");
        let below = crate::config::units::SIZE.show(1 << chunk.value.ilog2());
        context.report(diagnostic.help(format!("write `{below}`, or another power of two")));
        return None;
    }
    Some(Layout::Stripe { chunk: chunk.value })
}

/// The usual chunk, in bytes.
const CHUNK: u64 = 64 << 10;
