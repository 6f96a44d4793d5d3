//! Reads the configuration again while hosts are served, and puts it into force.
//!
//! A reload has four steps, of which only the last is seen: plan (what changes, and what keeps it from changing), open
//! (files of volumes that come), grow (files of volumes that grow) and commit, which cannot fail. A dry run is the first.

use super::kernel::Kernel;
use super::{Connections, Gateway};
use crate::ServeError;
use crate::clock::unix_nanos;
use crate::config::{self, Config, Rejected};
use crate::frontend::connection::{Connection, Speech};
use crate::operator::backends::Backends;
use crate::operator::http::guard::Guard;
use crate::storage::file::atomic_journal;
use crate::storage::file::backing::remove_made;
use crate::storage::layout::{open_volume, unmake};
use crate::storage::state_file;
use crate::storage::store::Store;
use crate::tasks::CommandEngine;
use crate::volume::live::OpenedVolume;
use crate::volume::reload::{Planned, Uses};
use crate::volume::{PersistedState, Volume};
use std::cell::RefCell;
use std::rc::Rc;
use tracing::{error, info};
use weir_wire::scsi::reservation::Reservations;

/// How a configuration is read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Only check whether it can be put into force.
    pub(crate) dry_run: bool,
    /// Take away volumes and exports that hosts use.
    pub(crate) force: bool,
}

impl<K: Kernel> Gateway<'_, K> {
    /// The configuration that is in force.
    pub(crate) const fn config(&self) -> &Config {
        &self.config
    }

    /// Keeps the names of backends as volumes come and go.
    pub(crate) fn name_backends(&mut self, backends: Rc<RefCell<Backends>>) {
        self.backends = backends;
    }

    /// The volumes and their stores, at the end.
    pub(crate) fn take_volumes(&mut self) -> (Vec<Volume>, Vec<Store>) {
        let catalog = &mut self.engine.catalog;
        (std::mem::take(&mut catalog.volumes), std::mem::take(&mut catalog.stores))
    }

    /// Reads the configuration again and puts it into force, or, in a dry run, only checks whether it can be.
    pub(super) fn reload(&mut self, manner: Manner) -> Result<(), Rejected> {
        if self.stop.is_requested() {
            return Ok(());
        }
        let Manner { dry_run, force } = manner;
        info!(dry_run, force, "reading the configuration again");
        if dry_run {
            return self.plan(force).map(drop);
        }
        self.service.reloading();
        let result = self.put_into_force(force);
        self.metrics.reloaded(result.is_ok(), unix_nanos());
        self.service.reloaded();
        result
    }

    /// Reads the configuration again and finds out what changes.
    fn plan(&mut self, force: bool) -> Result<(Planned, Option<Guard>), Rejected> {
        let new = (self.reload)()?;
        let guard = guard_of(&new)?;
        let (engine, connections) = (&self.engine, &self.connections);
        let uses = Uses {
            force,
            of_volume: &|volume| users(connections, engine, volume),
            of_export: &|export| clients(connections, export),
        };
        Ok((engine.plan_reload(&self.config, new, &uses)?, guard))
    }

    /// Reads the configuration again and applies what can change live.
    fn put_into_force(&mut self, force: bool) -> Result<(), Rejected> {
        let (planned, guard) = self.plan(force)?;
        crate::raise_descriptors(planned.config());
        let opened = open(&planned)?;
        let regions = match self.engine.grow(&planned, &opened) {
            Ok(regions) => regions,
            Err(rejected) => {
                undo(&planned, opened);
                return Err(rejected);
            }
        };
        self.engine.set.now = self.now;
        let added: Vec<usize> = opened.iter().map(|one| one.index).collect();
        let (config, first) = self.engine.reload(&self.config, planned, (opened, regions));
        self.config = config;
        for input in first {
            self.operators.hand_first(input);
        }
        for index in added {
            let places = self.engine.catalog.backends.of(index);
            self.backends.borrow_mut().put(index, &self.config.volumes[index], places);
        }
        self.operators.guard_http(guard);
        self.acceptor.register(&self.config);
        self.connections.set_weights(&self.config.shares);
        self.connections.refresh(&mut self.engine);
        self.connections.run_actions(&mut self.engine, self.now);
        Ok(())
    }

    /// Closes volumes that have left; true if there is more to do now.
    pub(super) fn let_go(&mut self) -> bool {
        let gone = self.engine.let_go(self.now, &mut self.storage);
        for &volume in &gone {
            self.backends.borrow_mut().remove(self.engine.catalog.backends.own(volume));
        }
        !gone.is_empty() || self.engine.set.submitted
    }
}

/// Opens the volumes that come. After an error none of them is open, and no file is there that was not there before.
fn open(planned: &Planned) -> Result<Vec<OpenedVolume>, Rejected> {
    let (mut opened, mut faults) = (Vec::new(), Vec::new());
    for (index, _) in planned.added() {
        let volume = &planned.config().volumes[index];
        let stores = open_volume(volume, |_| unreachable!("volumes on upstreams need a restart"));
        let stores = match stores {
            Ok(stores) => stores,
            Err(problem) => {
                faults.push(problem.to_string());
                continue;
            }
        };
        match persisted_state(volume, &stores) {
            Ok(kept) => opened.push(OpenedVolume { index, stores, kept }),
            Err(problem) => {
                faults.push(problem.to_string());
                unmake(volume, stores);
            }
        }
    }
    if faults.is_empty() {
        return Ok(opened);
    }
    for problem in &faults {
        error!(reason = problem, "this cannot be had; the configuration stays as it was");
    }
    undo(planned, opened);
    Err(Rejected::Unavailable(faults))
}

/// Closes volumes that were opened in vain.
fn undo(planned: &Planned, opened: Vec<OpenedVolume>) {
    for OpenedVolume { index, stores, kept } in opened {
        let volume = &planned.config().volumes[index];
        unmake(volume, stores);
        if kept.journal_made
            && let Some(state) = &volume.state
        {
            remove_made(&volume.name, &atomic_journal::path(state));
        }
    }
}

/// The state of a volume from before it was closed.
pub(crate) fn persisted_state(
    volume: &config::Volume,
    stores: &[Store],
) -> Result<PersistedState, ServeError> {
    let Some(path) = &volume.state else { return Ok(PersistedState::default()) };
    let name = || volume.name.clone();
    let state =
        state_file::load(path).map_err(|source| ServeError::State { volume: name(), source })?;
    let state = state.unwrap_or_default();
    let reservations = match &state.reservations[..] {
        [] => Reservations::default(),
        bytes => Reservations::decode(bytes).map_err(|problem| ServeError::Reservations {
            volume: name(),
            path: path.clone(),
            problem: problem.to_string(),
        })?,
    };
    let (mut journal, mut journal_made) = (None, false);
    let path = atomic_journal::path(path);
    // A journal that atomic writes have left is finished even if there shall be no more of them: later
    // it would undo what was written since.
    let there = path.try_exists().unwrap_or(true);
    let exists = !volume.read_only && there;
    if let Some(kept) = volume.file().filter(|_| volume.atomic || exists) {
        let failed = |source| ServeError::Journal { volume: name(), path: path.clone(), source };
        let (file, finished) =
            atomic_journal::open(&path, &kept.path, stores[0].capacity()).map_err(failed)?;
        journal_made = !there;
        if finished {
            info!(volume = volume.name, "finished an atomic write that was interrupted");
        }
        journal = volume.atomic.then_some(file);
    }
    Ok(PersistedState { reservations, sanitize: state.sanitize, journal, journal_made })
}

/// The hosts that find a volume, each in words.
fn users<S: crate::frontend::socket::Stream>(
    connections: &Connections<S>,
    engine: &CommandEngine,
    volume: usize,
) -> Vec<String> {
    let used = |connection: &Connection| {
        let peer = &connection.peer;
        match &connection.speech {
            Speech::Iscsi(wire) => {
                let view = connection.view.as_ref()?;
                let lun = view.lun_of(volume)?;
                let (initiator, target) = (&view.nexus.initiator.name, &view.nexus.target);
                let session = wire.tsih();
                Some(format!(
                    "{initiator} at {peer} (iSCSI session {session}, LUN {lun} of {target})"
                ))
            }
            Speech::Nbd(wire) => {
                let export = wire.export()?;
                let catalog = &engine.catalog;
                let name = &catalog.exports.as_slice()[export].name;
                let here = catalog.export_volumes[export] == Some(volume);
                here.then(|| format!("{peer} (NBD export `{name}`)"))
            }
            Speech::Nvme(queue) => {
                let controller = queue.controller.filter(|_| queue.wire.queue() == Some(0))?;
                let nsid = queue.nsid_of(volume)?;
                let (host, subsystem) = (queue.host.escape_debug(), &queue.subsystem);
                Some(format!(
                    "{host} at {peer} (NVMe controller {controller}, namespace {nsid} of {subsystem})"
                ))
            }
        }
    };
    connections.all().filter_map(used).collect()
}

/// The clients of an NBD export, each in words.
fn clients<S: crate::frontend::socket::Stream>(
    connections: &Connections<S>,
    export: usize,
) -> Vec<String> {
    let of = |connection: &&Connection| matches!(&connection.speech, Speech::Nbd(wire) if wire.export() == Some(export));
    connections.all().filter(of).map(|connection| format!("{} (NBD)", connection.peer)).collect()
}

/// Who may do what over HTTP, by a configuration whose files can be read.
fn guard_of(config: &Config) -> Result<Option<Guard>, Rejected> {
    config.http.as_ref().map(Guard::new).transpose().map_err(|problem| {
        error!(%problem, "the configuration stays as it was");
        Rejected::Invalid(vec![format!("[http]: {problem}")])
    })
}
