//! `[[backend]]`: a device model, and in plans the paths to it. Otherwise plans and gateways have the same
//! table.

mod flash;

use super::names::{self, Names};
use super::only_with;
use super::schema::{Default, Key, Kind, Many, Part, Section};
use super::tree::{Context, Document, Table};
use weir_flow::settings::Settings as _;
use weir_model::{Model, array, fixed, mech, ssd};
use weir_sim::plan::MAX_PARTS;

/// The table of a plan, which has at least one.
pub(crate) static PLANNED: Section = Section {
    name: "backend",
    many: Many::Times(1, MAX_PARTS),
    effect: "a device, and the paths to it",
    keys: KEYS,
    settings: MODELS,
};

/// The table of a gateway.
pub(crate) static SERVED: Section = Section {
    name: "backend",
    many: Many::Times(0, MAX_PARTS),
    effect: "a modelled device: volumes on it take its time, in real time, on top of keeping their bytes",
    keys: SERVED_KEYS,
    settings: MODELS,
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
        name: "capacity",
        kind: Kind::Size(1 << 20, 1 << 50),
        default: Default::Else("what `blocks` makes"),
        effect: "ssd-*: bytes for the volumes on it, at least, instead of `blocks`; a page takes 8 bytes of memory",
    },
    Key {
        name: "paths",
        kind: Kind::Count(1, MAX_PARTS as u64),
        default: Default::Is("1"),
        effect: "number of paths to the device",
    },
];

const SERVED_KEYS: &[Key] = match KEYS {
    [keys @ .., _paths] => keys,
    [] => &[],
};

/// The keys of the models.
const MODELS: &[Part] = &[
    Part {
        models: &[("fixed", |key| fixed::Config::default().number(key))],
        keys: fixed::Config::TABLE,
    },
    Part {
        models: &[("array-m1", |key| array::Config::default().number(key))],
        keys: array::Config::TABLE,
    },
    Part {
        models: &[("array-m2", |key| mech::Config::default().number(key))],
        keys: mech::Config::TABLE,
    },
    Part {
        models: &[
            ("ssd-paper", |key| ssd::Config::paper().number(key)),
            ("ssd-nvme", |key| ssd::Config::nvme(NVME).number(key)),
        ],
        keys: ssd::Config::TABLE,
    },
];

/// A device as it is described.
#[derive(Debug)]
pub(crate) struct Backend {
    /// Its name.
    pub(crate) name: String,
    /// How long it takes.
    pub(crate) model: Model,
    /// Number of paths to it; 1 in a gateway.
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
    let own: Vec<_> = MODELS.iter().filter(|part| part.is_of(&model)).collect();
    let is_own = |key: &str| own.iter().any(|part| part.keys.iter().any(|own| own.name == key));
    let mut others: Vec<_> = MODELS.iter().flat_map(|part| part.keys).map(|key| key.name).collect();
    others.push("capacity");
    others.retain(|&key| !is_own(key) && (key != "capacity" || !is_own("blocks")));
    others.sort_unstable();
    others.dedup();
    only_with(context, table, &others, "model", &model);
    let model = match &*model {
        "fixed" => table.settings(context).map(Model::Fixed),
        "array-m2" => table.settings(context).map(Model::Mech),
        "ssd-paper" => flash::read(context, table, ssd::Config::paper()).map(Model::Ssd),
        "ssd-nvme" => flash::read(context, table, ssd::Config::nvme(NVME)).map(Model::Ssd),
        _ => table.settings(context).map(Model::Array),
    };
    Some(Backend { name: name?.value, model: model?, paths: paths? })
}

/// The capacity of a modelled `NVMe` drive, in bytes, if nothing else is asked for.
pub(crate) const NVME: u64 = 64 << 30;
