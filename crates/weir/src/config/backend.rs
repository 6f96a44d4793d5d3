//! `[[backend]]`: a device model, and in plans the paths to it. Otherwise plans and gateways have the same
//! table.

mod flash;

use super::names::{self, Names};
use super::only_with;
use super::schema::{Default, Key, Kind, Many, Section};
use super::tree::{Context, Document, Table};
use weir_flow::clock::Duration;
use weir_flow::units::Bandwidth;
use weir_model::{Model, array, fixed, mech, ssd};
use weir_sim::plan::MAX_PARTS;

/// The table of a plan, which has at least one.
pub(crate) static PLANNED: Section = Section {
    name: "backend",
    many: Many::Times(1, MAX_PARTS),
    effect: "a device, and the ways to it",
    keys: KEYS,
};

/// The table of a gateway.
pub(crate) static SERVED: Section = Section {
    name: "backend",
    many: Many::Times(0, MAX_PARTS),
    effect: "a modelled device: volumes on it take its time, in real time, on top of keeping their bytes",
    keys: SERVED_KEYS,
};

/// The keys of a plan's table; a gateway's has all but the last. There no path to a modelled device would
/// ever fail.
const KEYS: &[Key] = &[
    names::key("names the device in reports, and its random streams"),
    Key {
        name: "model",
        kind: Kind::Word(&["array-m1", "array-m2", "fixed", "ssd-paper", "ssd-nvme"]),
        default: Default::Is("array-m1"),
        effect: "the device: disks behind buses and links with random service times, or with seeks and \
                     rotation, or a constant service time, or flash: four slow chips, or an NVMe drive",
    },
    Key {
        name: "service",
        kind: Kind::Time(1, 3_600 * 1_000_000_000),
        default: Default::Else("100us"),
        effect: "fixed: time from the start of an I/O's service to its end",
    },
    Key {
        name: "servers",
        kind: Kind::Count(1, MAX_PARTS as u64),
        default: Default::Else("32"),
        effect: "fixed: I/Os in service at once",
    },
    Key {
        name: "disks",
        kind: Kind::Count(1, MAX_PARTS as u64),
        default: Default::Else("8"),
        effect: "array-*: number of disks, a multiple of `buses`",
    },
    Key {
        name: "mean_service",
        kind: Kind::Time(2, 3_600 * 1_000_000_000),
        default: Default::Else("1443us"),
        effect: "array-m1: mean service time of 4 KiB at a disk",
    },
    Key {
        name: "media",
        kind: Kind::Bandwidth(1, 1 << 50),
        default: Default::Else("36.2MB/s"),
        effect: "array-*: rate of a disk's medium, in array-m1 for bytes past the first 4096; there the \
                     default is what follows, in array-m2 60MB/s",
    },
    Key {
        name: "stroke_ppm",
        kind: Kind::Count(0, 1_000_000),
        default: Default::Else("20400"),
        effect: "array-m2: millionths of the stroke that the data occupy; more takes longer seeks",
    },
    Key {
        name: "window",
        kind: Kind::Count(1, 65_536),
        default: Default::Else("64"),
        effect: "array-m2: requests among which a disk chooses the nearest",
    },
    Key {
        name: "buses",
        kind: Kind::Count(1, MAX_PARTS as u64),
        default: Default::Else("4"),
        effect: "array-*: number of buses",
    },
    Key {
        name: "bus",
        kind: Kind::Bandwidth(1, 1 << 50),
        default: Default::Else("80MB/s"),
        effect: "array-*: rate of each bus",
    },
    Key {
        name: "links",
        kind: Kind::Count(1, MAX_PARTS as u64),
        default: Default::Else("2"),
        effect: "array-*: number of links to the array",
    },
    Key {
        name: "link",
        kind: Kind::Bandwidth(1, 1 << 50),
        default: Default::Else("100MB/s"),
        effect: "array-*: rate of each link to the array",
    },
    Key {
        name: "capacity",
        kind: Kind::Size(1 << 20, 1 << 50),
        default: Default::Else("what `blocks` makes"),
        effect: "ssd-*: bytes for the volumes on it, at least, instead of `blocks`; a page takes 8 bytes of memory",
    },
    Key {
        name: "chips",
        kind: Kind::Count(1, 4_096),
        default: Default::Else("4, ssd-nvme: 64"),
        effect: "ssd-*: chips that work at the same time, each with a channel of its own",
    },
    Key {
        name: "blocks",
        kind: Kind::Count(16, 1 << 24),
        default: Default::Else("4096, ssd-nvme: 1112"),
        effect: "ssd-*: blocks of a chip",
    },
    Key {
        name: "pages",
        kind: Kind::Count(1, 16_384),
        default: Default::Else("256"),
        effect: "ssd-*: pages of a block, which are programmed in order and erased together",
    },
    Key {
        name: "page",
        kind: Kind::Size(512, 1 << 20),
        default: Default::Else("4KiB"),
        effect: "ssd-*: bytes of a page; what is written of a part of one reads the rest first",
    },
    Key {
        name: "spare_permille",
        kind: Kind::Count(20, 900),
        default: Default::Else("200, ssd-nvme: 70"),
        effect: "ssd-*: of a thousand pages so many are no capacity; more make garbage collection cheaper",
    },
    Key {
        name: "filled_permille",
        kind: Kind::Count(0, 1_000),
        default: Default::Else("0"),
        effect: "ssd-*: of a thousand pages of the capacity so many have been written when it starts, whatever \
                     files hold: where pages were, and wear, is forgotten with each start",
    },
    Key {
        name: "register",
        kind: Kind::Time(0, 3_600 * 1_000_000_000),
        default: Default::Else("100us, ssd-nvme: 3400ns"),
        effect: "ssd-*: transfer of a page between the controller and a chip",
    },
    Key {
        name: "read",
        kind: Kind::Time(0, 3_600 * 1_000_000_000),
        default: Default::Else("50us"),
        effect: "ssd-*: from cells to a chip's register",
    },
    Key {
        name: "program",
        kind: Kind::Time(0, 3_600 * 1_000_000_000),
        default: Default::Else("900us, ssd-nvme: 37500ns"),
        effect: "ssd-*: from a chip's register to cells",
    },
    Key {
        name: "erase",
        kind: Kind::Time(0, 3_600 * 1_000_000_000),
        default: Default::Else("2ms, ssd-nvme: 3ms"),
        effect: "ssd-*: erasure of a block",
    },
    Key {
        name: "pipelined",
        kind: Kind::Flag,
        default: Default::Else("false, ssd-nvme: true"),
        effect: "ssd-*: a chip transfers one page while its cells are busy with another",
    },
    Key {
        name: "buffer",
        kind: Kind::Count(0, 1 << 20),
        default: Default::Else("0, ssd-nvme: 1024"),
        effect: "ssd-*: pages that are acknowledged before they are programmed, which a flush and FUA wait for",
    },
    Key {
        name: "command",
        kind: Kind::Time(0, 3_600 * 1_000_000_000),
        default: Default::Else("0ns, ssd-nvme: 8us"),
        effect: "ssd-*: what the controller takes for a command",
    },
    Key {
        name: "paths",
        kind: Kind::Count(1, MAX_PARTS as u64),
        default: Default::Is("1"),
        effect: "number of ways to the device",
    },
];

const SERVED_KEYS: &[Key] = match KEYS {
    [keys @ .., _paths] => keys,
    [] => &[],
};

/// The keys that only one model has.
const FIXED: &[&str] = &["service", "servers"];
const ARRAY: &[&str] = &["disks", "media", "buses", "bus", "links", "link"];
const M1: &[&str] = &["mean_service"];
const M2: &[&str] = &["stroke_ppm", "window"];
const SSD: &[&str] = &[
    "capacity",
    "chips",
    "blocks",
    "pages",
    "page",
    "spare_permille",
    "filled_permille",
    "register",
    "read",
    "program",
    "erase",
    "pipelined",
    "buffer",
    "command",
];

/// A device as it is described.
#[derive(Debug)]
pub(crate) struct Backend {
    /// Its name.
    pub(crate) name: String,
    /// How long it takes.
    pub(crate) model: Model,
    /// Number of ways to it; 1 in a gateway.
    pub(crate) paths: u32,
}

/// Reads the tables, in order.
pub(crate) fn read(
    context: &mut Context,
    document: &Document<'_>,
    names: &mut Names,
) -> Option<Vec<Backend>> {
    let tables = document.many(context, "backend");
    let backends: Vec<_> = tables.iter().map(|table| one(context, table, names)).collect();
    backends.into_iter().collect()
}

fn one(context: &mut Context, table: &Table<'_>, names: &mut Names) -> Option<Backend> {
    let name = table.text(context, "name");
    if let Some(name) = &name {
        names.define(context, name, table.index());
    }
    let model = table.text(context, "model");
    let paths = if table.knows("paths") {
        table.number(context, "paths").map(|paths| paths.value as u32)
    } else {
        Some(1)
    };
    let model = model?.value;
    let mut without = |keys| only_with(context, table, keys, "model", &model);
    let model = match &*model {
        "fixed" => {
            [ARRAY, M1, M2, SSD].into_iter().for_each(&mut without);
            fixed_model(context, table).map(Model::Fixed)
        }
        "array-m2" => {
            [FIXED, M1, SSD].into_iter().for_each(&mut without);
            mech_model(context, table).map(Model::Mech)
        }
        "ssd-paper" | "ssd-nvme" => {
            [FIXED, ARRAY, M1, M2].into_iter().for_each(&mut without);
            let preset =
                if model == "ssd-nvme" { ssd::Config::nvme(NVME) } else { ssd::Config::paper() };
            flash::read(context, table, preset).map(Model::Ssd)
        }
        _ => {
            [FIXED, M2, SSD].into_iter().for_each(&mut without);
            array_model(context, table).map(Model::Array)
        }
    };
    Some(Backend { name: name?.value, model: model?, paths: paths? })
}

fn fixed_model(context: &mut Context, table: &Table<'_>) -> Option<fixed::Config> {
    let default = fixed::Config::default();
    let service = or(context, table, "service", default.service.as_nanos());
    let servers = or(context, table, "servers", u64::from(default.servers));
    Some(fixed::Config { service: Duration::from_nanos(service?), servers: servers? as u32 })
}

fn array_model(context: &mut Context, table: &Table<'_>) -> Option<array::Config> {
    let default = array::Config::default();
    let rate = |bandwidth: Bandwidth| bandwidth.bytes_per_second();
    let disks = or(context, table, "disks", u64::from(default.disks));
    let mean_service = or(context, table, "mean_service", default.mean_service.as_nanos());
    let media = or(context, table, "media", rate(default.media));
    let buses = or(context, table, "buses", u64::from(default.buses));
    let bus = or(context, table, "bus", rate(default.bus));
    let links = or(context, table, "links", u64::from(default.links));
    let link = or(context, table, "link", rate(default.link));
    Some(array::Config {
        disks: disks? as u32,
        mean_service: Duration::from_nanos(mean_service?),
        media: Bandwidth::per_second(media?)?,
        buses: buses? as u32,
        bus: Bandwidth::per_second(bus?)?,
        links: links? as u32,
        link: Bandwidth::per_second(link?)?,
    })
}

fn mech_model(context: &mut Context, table: &Table<'_>) -> Option<mech::Config> {
    let default = mech::Config::default();
    let rate = |bandwidth: Bandwidth| bandwidth.bytes_per_second();
    let disks = or(context, table, "disks", u64::from(default.disks));
    let stroke_ppm = or(context, table, "stroke_ppm", u64::from(default.stroke_ppm));
    let window = or(context, table, "window", u64::from(default.window));
    let media = or(context, table, "media", rate(default.media));
    let buses = or(context, table, "buses", u64::from(default.buses));
    let bus = or(context, table, "bus", rate(default.bus));
    let links = or(context, table, "links", u64::from(default.links));
    let link = or(context, table, "link", rate(default.link));
    Some(mech::Config {
        disks: disks? as u32,
        stroke_ppm: stroke_ppm? as u32,
        window: window? as u32,
        media: Bandwidth::per_second(media?)?,
        buses: buses? as u32,
        bus: Bandwidth::per_second(bus?)?,
        links: links? as u32,
        link: Bandwidth::per_second(link?)?,
    })
}

/// The value of a key, or the model's own default.
fn or(context: &mut Context, table: &Table<'_>, key: &str, default: u64) -> Option<u64> {
    let read = table.number(context, key);
    let given = table.optional(key, read).ok()?;
    if given.is_none() {
        table.note_number(context, key, default);
    }
    Some(given.unwrap_or(default))
}

/// The capacity of a modelled `NVMe` drive, in bytes, if nothing else is asked for.
pub(crate) const NVME: u64 = 64 << 30;
