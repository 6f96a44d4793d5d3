//! Reads the configuration again while hosts are served, and puts it into force.
//!
//! A reload has four steps, of which only the last is seen: plan (what changes, and what keeps it from changing), open
//! (files of volumes that come), grow (files of volumes that grow) and commit, which cannot fail. A dry run is the first.

use super::hosts::{clients, hosts, users};
use super::kernel::Kernel;
use super::{Gateway, core_dumps};
use crate::ServeError;
use crate::clock::unix_nanos;
use crate::config::{self, Candidate, Change, Config, Given, Places, Rejected};
use crate::folder::file_id;
use crate::operator::backends::Backends;
use crate::operator::changes::complete;
use crate::operator::http::guard::Guard;
use crate::operator::{FileId, Manner, Verdict};
use crate::storage::file::atomic_journal;
use crate::storage::file::backing::remove_made;
use crate::storage::layout::{self, open_volume, unmake};
use crate::storage::state_file;
use crate::storage::store::Store;
use crate::volume::live::OpenedVolume;
use crate::volume::reload::{Planned, Uses};
use crate::volume::{PersistedState, Volume};
use std::cell::RefCell;
use std::rc::Rc;
use tracing::{error, info};
use weir_wire::scsi::reservation::Reservations;

/// A configuration that can be put into force.
struct Plan {
    planned: Planned,
    guard: Option<Guard>,
    changes: Vec<Change>,
    places: Places,
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

    /// Reads the configuration again, or what is given, and puts it into force, or, in a dry run, only checks whether it
    /// can be.
    pub(super) fn reload(
        &mut self,
        manner: Manner,
        given: Option<&Given>,
    ) -> Result<Verdict, Rejected> {
        if self.stop.is_requested() {
            return Ok(Verdict::default());
        }
        let Manner { dry_run, force } = manner;
        let name = given.map(|given| given.name.as_str());
        info!(dry_run, force, name, "reading a configuration");
        let result = if dry_run {
            self.plan(force, given).map(|plan| plan.changes)
        } else {
            self.service.reloading();
            let result = self.put_into_force(force, given);
            self.metrics.reloaded(result.is_ok(), unix_nanos());
            self.service.reloaded();
            result
        };
        let mut changes = result?;
        let changes_left_out = changes.len().saturating_sub(CHANGES) as u64;
        changes.truncate(CHANGES);
        let file = self.reader.file();
        let file_id = file.and_then(file_id).map(|(device, inode)| FileId { device, inode });
        let file = file.map(|file| file.display().to_string());
        Ok(Verdict { dry_run, changes, changes_left_out, file, file_id })
    }

    /// Reads a configuration and finds out what changes.
    fn plan(&mut self, force: bool, given: Option<&Given>) -> Result<Plan, Rejected> {
        let Candidate { config: new, mut changes, places } = self.reader.read(given)?;
        core_dumps::keep_secrets_out(&new);
        let guard = guard_of(&new)?;
        let (engine, connections) = (&self.engine, &self.connections);
        let uses = Uses {
            force,
            of_volume: &|volume| users(connections, engine, volume),
            of_export: &|export| clients(connections, export),
        };
        let planned = engine.plan_reload(&self.config, new, &uses, &places)?;
        let hosts = hosts(connections, engine);
        complete(&mut changes, (&self.config, planned.config()), &hosts);
        Ok(Plan { planned, guard, changes, places })
    }

    /// Reads a configuration and applies what can change live.
    fn put_into_force(
        &mut self,
        force: bool,
        given: Option<&Given>,
    ) -> Result<Vec<Change>, Rejected> {
        let Plan { planned, guard, changes, places } = self.plan(force, given)?;
        crate::raise_descriptors(planned.config());
        let opened = open(&planned, &places)?;
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
        self.reader.put_into_force();
        for change in changes.iter().take(CHANGES) {
            info!(%change, "configuration changed");
        }
        Ok(changes)
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
fn open(planned: &Planned, places: &Places) -> Result<Vec<OpenedVolume>, Rejected> {
    let (mut opened, mut faults) = (Vec::new(), Vec::new());
    for (index, _) in planned.added() {
        let volume = &planned.config().volumes[index];
        let stores = open_volume(volume, |_| unreachable!("volumes on upstreams need a restart"));
        let stores = match stores {
            Ok(stores) => stores,
            Err(problem) => {
                faults.push(layout::at(places, volume, &problem));
                continue;
            }
        };
        match persisted_state(volume, &stores) {
            Ok(kept) => opened.push(OpenedVolume { index, stores, kept }),
            Err(problem) => {
                let (name, told) = (&volume.name, problem.to_string());
                faults.push(places.at("volume", name, &["state", "file"], &told));
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

/// Who may do what over HTTP, by a configuration whose files can be read.
fn guard_of(config: &Config) -> Result<Option<Guard>, Rejected> {
    config.http.as_ref().map(Guard::new).transpose().map_err(|problem| {
        error!(%problem, "the configuration stays as it was");
        Rejected::Invalid(vec![format!("[http]: {problem}")])
    })
}

/// Changes in an answer, and in the log.
const CHANGES: usize = 1_000;
