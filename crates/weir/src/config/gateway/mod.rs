//! The configuration of `weir serve`.

mod account;
pub(crate) mod control;
mod discovery;
mod event_log;
mod files;
mod guard;
mod http;
mod initiators;
mod iscsi;
mod isns;
mod link;
mod listen;
mod log;
mod movable;
mod nbd;
mod numbered;
mod nvme;
mod reach;
mod recorder;
mod savings;
mod stop;
mod store;
mod streams;
mod subsystem;
mod target;
mod tenant;
#[cfg(test)]
mod tests;
mod upstream;
pub(crate) mod users;
mod volume;

pub(crate) use event_log::format as log_format;
pub(crate) use listen::address;
pub(crate) use nbd::MAX_SOCKET_PATH;

use super::names::{Names, Tenants};
use super::schema::Schema;
use super::source::Source;
use super::tree::{Context, Document};
use super::{backend, cache, contract, limits, path, policy, shares};
use std::collections::BTreeMap;
use weir_serve::config::{Backend, Config, Tenant};

/// All keys of the file.
pub(crate) static SCHEMA: Schema = Schema {
    name: "gateway configuration",
    sections: &[
        &iscsi::ISCSI,
        &nbd::NBD,
        &nvme::NVME,
        &discovery::DISCOVERY,
        &limits::LIMITS,
        &path::PATH,
        &cache::CACHE,
        &policy::POLICY,
        &link::LINK,
        &contract::group::GROUP,
        &tenant::TENANT,
        &shares::BACKGROUND,
        &control::CONTROL,
        &http::HTTP,
        &isns::ISNS,
        &recorder::RECORDER,
        &event_log::EVENT_LOG,
        &stop::STOP,
        &savings::SAVINGS,
        &account::ACCOUNT,
        &backend::SERVED,
        &upstream::UPSTREAM,
        &store::STORE,
        &volume::VOLUME,
        &target::TARGET,
        &subsystem::SUBSYSTEM,
    ],
};

/// Reads the file.
pub(crate) fn read(
    context: &mut Context,
    document: &Document<'_>,
    source: &Source,
) -> Option<Config> {
    let mut listeners = Vec::new();
    let iscsi = iscsi::read(context, document, &mut listeners);
    let limits = limits::read(context, document);
    let paths = path::read(context, document);
    let cache = cache::read(context, document);
    let policies = policy::read(context, document);
    let recorder = document.once(context, "recorder").settings(context);
    let log_format = event_log::read(context, document);
    let stop = document.once(context, "stop").settings(context);
    let savings = savings::read(context, document, source);
    let mut accounts = account::read(context, document, source);
    let discovery = discovery::read(context, document, &mut accounts);
    let (mut tenants, mut weights) = (Tenants::default(), shares::Tenants::default());
    let kept = tenant::read(context, document, &mut tenants, &mut weights);
    let shares = weights.with_background(context, document, policies.as_ref());
    let (mut backend_names, mut names) = (Names::new("backend"), Names::new("volume"));
    let backends = backend::read(context, document, &mut backend_names);
    let mut upstream_names = Names::new("upstream");
    let upstreams = upstream::read(context, document, &mut upstream_names, &mut accounts);
    let known = store::Known {
        source,
        backends: &backend_names,
        upstreams: &upstream_names,
        files: files::Files::default(),
        taken: BTreeMap::new(),
    };
    let volumes = volume::read(context, document, known, &mut names, &mut tenants);
    let targets = target::read(context, document, &names, &mut accounts);
    let nbd = nbd::read(context, document, source, &names, &mut listeners);
    let nvme = nvme::read(context, document, &names, &mut listeners);
    let (targets, nbd, nvme) = (targets?, nbd?, nvme?);
    let control = control::read(context, document, source, &nbd);
    let socket = control.as_ref().ok().and_then(Option::as_deref);
    let http = http::read(context, document, source, (&listeners, &nbd, socket));
    let isns = isns::read(context, document, iscsi.as_ref());
    let links = link::read(context, document, &listeners);
    let offered = reach::Offered { targets: &targets, nbd: &nbd, nvme: &nvme };
    offered.something(context, document);
    let mut volumes = volumes?;
    if let Ok(Some(path)) = &savings {
        savings::apart(context, document, path, &volumes);
    }
    offered.volumes(context, document, &volumes);
    if let Some(backends) = &backends {
        reach::devices(context, document, backends, &volumes);
    }
    let upstreams = upstreams?;
    reach::upstreams(context, document, &upstreams, &volumes);
    movable::check(context, document, offered, (&volumes, &upstreams));
    let upstreams = upstream::in_use(upstreams, &mut volumes);
    if discovery.is_some() {
        accounts.unused(context, document);
    }
    let iscsi = iscsi?;
    offered.listeners(context, document, &iscsi.listen);
    let (policies, (promises, claims)) = (policies?, kept?);
    streams::check(context, document, &nvme, &policies);
    contract::unused(context, document, &tenants, &promises, &policies, |index| {
        claims.contains_key(&index)
    });
    offered.tenants(context, document, &claims, &volumes);
    let tenant = |(index, name)| Tenant { name, initiators: claims.get(&index).cloned() };
    let tenants: Vec<_> = tenants.names().into_iter().enumerate().map(tenant).collect();
    Some(Config {
        listen: iscsi.listen,
        advertise: iscsi.advertise,
        accounts: accounts.into_accounts()?,
        discovery: discovery?,
        nbd,
        nvme,
        promises: contract::for_all(promises, tenants.len()),
        shares: shares::for_all(shares?, tenants.len()),
        tenants,
        backends: backends?.into_iter().map(device).collect(),
        upstreams,
        volumes,
        targets,
        policies,
        limits: limits?,
        paths: paths?,
        cache: cache?,
        iscsi: iscsi.limits,
        links: links?,
        control: control.ok()?,
        http: http.ok()?,
        isns: isns.ok()?,
        savings: savings.ok()?,
        take_over: Vec::new(),
        record: None,
        recorder: recorder?,
        log_format: log_format?,
        stop: stop?,
    })
}

/// A backend as the gateway has it.
fn device(backend: backend::Backend) -> Backend {
    let backend::Backend { name, model, paths: _ } = backend;
    Backend { name, model }
}
