//! The plan of an experiment, for `weir sim`.

mod expect;
mod fault;
mod link;
mod run;
mod tenant;
mod trace;
mod volume;
mod workload;

pub(crate) use expect::{Expectation, Verdict};

use super::diagnostic::{Code, Diagnostic};
use super::names::{Names, Tenants};
use super::schema::{Default, Key, Kind, Many, Schema, Section};
use super::source::Source;
use super::tree::{Context, Document, Table};
use super::value::Value;
use super::{backend, cache, contract, limits, only_with, path, policy, shares};
use weir_flow::request::{LinkId, VolumeId};
use weir_sim::plan::{Backend, Plan, PlanError};

/// All keys of the file.
pub(crate) static SCHEMA: Schema = Schema {
    name: "plan",
    sections: &[
        &TOP,
        &run::RUN,
        &backend::PLANNED,
        &volume::VOLUME,
        &link::LINK,
        &workload::WORKLOAD,
        &trace::TRACE,
        &fault::FAULT,
        &expect::EXPECT,
        &policy::POLICY,
        &contract::group::GROUP,
        &tenant::TENANT,
        &shares::BACKGROUND,
        &limits::LIMITS,
        &path::PATH,
        &cache::CACHE,
    ],
};

static TOP: Section = Section {
    name: "",
    many: Many::Once,
    effect: "the experiment as a whole",
    keys: &[Key {
        name: "seed",
        kind: Kind::Count(0, u64::MAX),
        default: Default::Is("1"),
        effect: "seed of every random stream; equal seeds give equal runs",
    }],
    settings: &[],
};

/// The longest time in a plan, in nanoseconds: ten years, so that no sum of times overflows.
const MAX_TIME: u64 = 10 * 365 * 86_400 * 1_000_000_000;

/// The volumes and links that sources of requests name.
#[derive(Debug)]
struct Parts {
    volumes: Names,
    /// Sizes in bytes by volume id; empty if the volumes have diagnostics.
    sizes: Vec<u64>,
    links: Names,
}

/// A plan, and what is expected of it.
#[derive(Debug)]
pub(crate) struct Experiment {
    /// What is run.
    pub(crate) plan: Plan,
    /// What must hold of its results.
    pub(crate) expectations: Vec<Expectation>,
}

/// Reads the file.
pub(crate) fn read(
    context: &mut Context,
    document: &Document<'_>,
    source: &Source,
) -> Option<Experiment> {
    let seed = document.top().number(context, "seed");
    let end = run::read(context, document);
    let mut backend_names = Names::new("backend");
    let backends = backend::read(context, document, &mut backend_names);
    let (mut volume_names, mut link_names) = (Names::new("volume"), Names::new("link"));
    let volumes = volume::read(context, document, &backend_names, &mut volume_names);
    let links = link::read(context, document, &mut link_names);
    let sizes = volumes.iter().flatten().map(|volume| volume.size).collect();
    let parts = Parts { volumes: volume_names, sizes, links: link_names };
    let (mut tenants, mut weights) = (Tenants::default(), shares::Tenants::default());
    let promises = contract::read(context, document, &mut tenants, |context, table, index| {
        weights.read(context, table, index);
    });
    let workloads = workload::read(context, document, &parts, &mut tenants);
    let traces = trace::read(context, document, source, &parts, &mut tenants);
    if !document.has("workload") && !document.has("trace") {
        let diagnostic =
            Diagnostic::new(Code::MissingKey, "there is no `[[workload]]` and no `[[trace]]`");
        let span = document.locate("workload", 0, &[]);
        let diagnostic = diagnostic.at(span, "the file ends here");
        context.report(diagnostic.help("add at least one, so that there is something to do"));
    }
    let path_faults = fault::read(context, document, &backend_names);
    let names = tenants.names();
    let expectations = expect::read(context, document, &names);
    let policies = policy::read(context, document);
    let shares = weights.with_background(context, document, policies.as_ref());
    if let (Some(promises), Some(policies)) = (&promises, &policies) {
        contract::unused(context, document, &tenants, promises, policies, |_| false);
    }
    let limits = limits::read(context, document);
    let paths = path::read(context, document);
    let cache = cache::read(context, document);
    if context.diagnostics.iter().any(|diagnostic| !diagnostic.code.is_warning()) {
        return None;
    }
    let plan = Plan {
        seed: seed?.value,
        end: end?,
        promises: contract::for_all(promises?, names.len()),
        shares: shares::for_all(shares?, names.len()),
        tenants: names,
        volumes: volumes?,
        backends: backends?.into_iter().map(device).collect(),
        links: links?,
        workloads: workloads?,
        traces: traces?,
        path_faults: path_faults?,
        policies: policies?,
        limits: limits?,
        paths: paths?,
        cache: cache?,
    };
    if let Err(error) = plan.check() {
        context.report(unfit(document, &error));
        return None;
    }
    Some(Experiment { plan, expectations: expectations? })
}

/// A backend as the simulator has it.
fn device(backend: backend::Backend) -> Backend {
    let backend::Backend { name, model, paths } = backend;
    Backend { name, model, paths }
}

/// What the simulator's own check found, at its place in the file. The check names the fields of
/// the plan, `workloads[2].region`; the file's tables and keys are mostly called the same.
fn unfit(document: &Document<'_>, error: &PlanError) -> Diagnostic {
    let (part, field) = error.field.split_once('.').unwrap_or((&error.field, ""));
    let (part, index) = part.split_once('[').unwrap_or((part, ""));
    let index = index.trim_end_matches(']').parse().unwrap_or(0);
    let table = match part {
        "end" => "run",
        "path_faults" => "fault",
        "limits" => "limits",
        part => part.strip_suffix('s').unwrap_or(part),
    };
    let keys = match field {
        "sizes" => &["size"][..],
        "region" => &["length", "offset", "size"],
        "cap" => &["cap_bandwidth", "cap_burst"],
        field => &[field],
    };
    let message = match field {
        "" => format!("{part}: {}", error.message),
        "region" => format!("the region {}", error.message),
        _ => format!("`{}`: {}", keys[0], error.message),
    };
    let span = document.locate(table, index, keys);
    let diagnostic = Diagnostic::new(Code::Conflict, message).at(span, "here");
    diagnostic.help("`weir config show --defaults --plan` says what each key does")
}

/// The volume that a table names, or the only one there is.
fn volume_of(context: &mut Context, table: &Table<'_>, parts: &Parts) -> Option<VolumeId> {
    let index = part_of(context, table, "volume", &parts.volumes)?;
    Some(VolumeId::new(index as u32))
}

/// The link that a table names, or the only one there is, or the one without limits that a plan
/// without links has.
fn link_of(context: &mut Context, table: &Table<'_>, parts: &Parts) -> Option<LinkId> {
    if !table.has("link") && parts.links.is_empty() {
        return Some(LinkId::new(0));
    }
    let index = part_of(context, table, "link", &parts.links)?;
    Some(LinkId::new(index as u32))
}

/// The part that a table names under `key`, or the only one there is.
fn part_of(context: &mut Context, table: &Table<'_>, key: &str, names: &Names) -> Option<usize> {
    if let Some(name) = table.text(context, key) {
        return names.find(context, &name);
    }
    if table.has(key) {
        return None;
    }
    if let Some((name, index)) = names.only() {
        table.note(context, key, Value::Text(name.to_owned()), None);
        return Some(index);
    }
    if !names.is_empty() {
        let message = format!("a `{key}` must be named, as there are several");
        let diagnostic = Diagnostic::new(Code::MissingKey, message).at(table.span(), "this table");
        context.report(diagnostic.help(format!("add `{key} = \"…\"`")));
    }
    None
}
