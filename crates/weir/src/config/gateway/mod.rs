//! The configuration of `weir serve`.

mod iscsi;
mod stop;
mod target;
mod volume;

pub(crate) use iscsi::address;

use super::fault::{Code, Fault};
use super::names::{Names, Tenants};
use super::schema::Schema;
use super::source::Source;
use super::tree::{Context, Document};
use super::{limits, policy};
use std::collections::BTreeSet;
use weir_serve::config::{Authentication, Config, Nbd, Target, Volume};

/// All keys of the file.
pub(crate) static SCHEMA: Schema = Schema {
    name: "gateway configuration",
    sections: &[
        &iscsi::ISCSI,
        &limits::LIMITS,
        &policy::POLICY,
        &stop::STOP,
        &volume::VOLUME,
        &target::TARGET,
    ],
};

/// Reads the file.
pub(crate) fn read(
    context: &mut Context,
    document: &Document<'_>,
    source: &Source,
) -> Option<Config> {
    let iscsi = iscsi::read(context, document);
    let limits = limits::read(context, document);
    let policies = policy::read(context, document);
    let stop_within = stop::read(context, document);
    let mut tenants = Tenants::default();
    let mut names = Names::new("volume");
    let volumes = volume::read(context, document, source, &mut names, &mut tenants);
    let targets = target::read(context, document, &names);
    let (volumes, targets) = (volumes?, targets?);
    unused(context, document, &volumes, &targets);
    let iscsi = iscsi?;
    Some(Config {
        listen: iscsi.listen,
        advertise: iscsi.advertise,
        accounts: Vec::new(),
        discovery: Authentication::default(),
        nbd: Nbd::default(),
        tenants: tenants.into_names(),
        volumes,
        targets,
        policies: policies?,
        limits: limits?,
        iscsi: iscsi.limits,
        record: None,
        stop_within: stop_within?,
    })
}

/// Warns of volumes that no host can find.
fn unused(context: &mut Context, document: &Document<'_>, volumes: &[Volume], targets: &[Target]) {
    let luns = targets.iter().flat_map(|target| &target.luns);
    let used: BTreeSet<usize> = luns.map(|&(_, volume)| volume).collect();
    for (index, volume) in volumes.iter().enumerate() {
        if !used.contains(&index) {
            let message = format!("no target offers volume `{}`", volume.name);
            let span = document.locate("volume", index, &["name"]);
            let fault = Fault::new(Code::Unused, message).at(span, "this volume");
            context.faults.push(fault.help("add it to the `luns` of a target, or remove it"));
        }
    }
}
