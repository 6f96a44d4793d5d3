//! Reads the configuration again while hosts are served, and puts it into force.
//!
//! A reload has five steps, of which only the last is seen: plan (what changes, and what keeps it from changing), prepare
//! (another thread opens the logs of volumes that come; then the plan is made again), open (files of volumes that come), grow
//! (files of volumes that grow) and commit, which cannot fail. A dry run is the first.

use super::hosts::{clients, hosts, users};
use super::kernel::Kernel;
use super::{Gateway, core_dumps};
use crate::ServeError;
use crate::clock::unix_nanos;
use crate::config::{self, Candidate, Change, Config, Given, Places, Rejected};
use crate::folder::file_id;
use crate::operator::backends::Backends;
use crate::operator::changes::{Changes, complete};
use crate::operator::http::guard::Guard;
use crate::operator::{Answer, Asker, FileId, Manner, Question, Refusal, ReloadOrder, Verdict};
use crate::storage::file::atomic_journal;
use crate::storage::file::backing::remove_made;
use crate::storage::layout::{self, open_volume, unmake};
use crate::storage::log_device;
use crate::storage::log_device::opener::{self, Logs, Opener};
use crate::storage::random::KernelRandom;
use crate::storage::state_file;
use crate::storage::store::Store;
use crate::volume::live::OpenedVolume;
use crate::volume::reload::{InLog, InLogs, Planned, Uses};
use crate::volume::{PersistedState, Volume};
use std::cell::RefCell;
use std::rc::Rc;
use tracing::{error, info};
use weir_flow::request::VolumeId;
use weir_wire::scsi::reservation::Reservations;

/// A configuration that is to be put into force.
struct Wanted {
    candidate: Candidate,
    guard: Option<Guard>,
    manner: Manner,
}

/// A configuration that is put into force when the logs of volumes that come have been opened.
pub(super) struct Preparing {
    asker: Option<Asker>,
    wanted: Wanted,
    opener: Opener,
    /// What that has opened.
    opened: Option<opener::Result>,
    /// SIGHUP has asked for another reload meanwhile.
    again: bool,
}

/// How it can be.
struct Plan {
    planned: Planned,
    changes: Changes,
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
    /// can be. Logs of volumes that come are opened by another thread first; the order is carried out when it has.
    pub(super) fn reload(&mut self, order: ReloadOrder, in_logs: &InLogs) {
        let ReloadOrder { asker, manner, given } = order;
        if self.stop.is_requested() {
            return self.tell(asker, Err(&Refusal::Stopping));
        }
        if let Some(preparing) = &mut self.preparing {
            preparing.again |= asker.is_none();
            return self.tell(asker, Err(&Refusal::Reloading));
        }
        let name = given.as_ref().map(|given| given.name.as_str());
        let Manner { dry_run, force } = manner;
        info!(dry_run, force, name, "reading a configuration");
        if dry_run {
            let wanted = self.read(manner, given.as_ref());
            let plan = wanted.and_then(|wanted| self.plan(&wanted, &Logs::default(), in_logs));
            let verdict = plan.map(|plan| self.verdict(true, plan.changes));
            return self.tell(asker, verdict.map_err(Refusal::Rejected).as_ref());
        }
        self.service.reloading();
        let wanted = self.read(manner, given.as_ref());
        let planned = wanted.and_then(|wanted| {
            let plan = self.plan(&wanted, &Logs::default(), in_logs)?;
            Ok((wanted, plan))
        });
        let (wanted, plan) = match planned {
            Ok(planned) => planned,
            Err(rejected) => return self.end_reload(asker, Err(rejected)),
        };
        let volumes = &plan.planned.config().volumes;
        let logged = plan.planned.added().filter(|(index, _)| volumes[*index].log.is_some());
        let logged: Vec<_> = logged.map(|(index, _)| (index, volumes[index].clone())).collect();
        if logged.is_empty() {
            let result = self.put_into_force(wanted, plan, Logs::default());
            return self.end_reload(asker, result);
        }
        match Opener::begin(logged, wanted.candidate.places.clone()) {
            Ok(opener) => {
                self.preparing =
                    Some(Preparing { asker, wanted, opener, opened: None, again: false });
            }
            Err(error) => {
                let told = format!("cannot start a thread that opens logs: {error}");
                self.end_reload(asker, Err(Rejected::Unavailable(vec![told])));
            }
        }
    }

    /// Whether the logs have been opened that a reload waits for.
    pub(super) fn has_prepared(&mut self) -> bool {
        let Some(preparing) = self.preparing.as_mut().filter(|one| one.opened.is_none()) else {
            return false;
        };
        preparing.opened = preparing.opener.look();
        let has_opened = preparing.opened.is_some();
        if has_opened {
            self.operators.ask(Question::Prepared);
        }
        has_opened
    }

    /// Carries out a reload whose logs have been opened. What it needs is looked at again: hosts may have come.
    pub(super) fn resume_reload(&mut self, in_logs: &InLogs) {
        let Some(Preparing { asker, wanted, opened: Some(opened), again, .. }) =
            self.preparing.take()
        else {
            return;
        };
        let result = opened.map_err(Rejected::Unavailable).and_then(|logs| {
            match self.plan(&wanted, &logs, in_logs) {
                Ok(plan) => self.put_into_force(wanted, plan, logs),
                Err(rejected) => {
                    logs.unmake();
                    Err(rejected)
                }
            }
        });
        self.end_reload(asker, result);
        if again {
            self.operators.ask(Question::Reload);
        }
    }

    /// The gateway stops: a reload that waits for logs is not carried out.
    pub(super) fn drop_reload(&mut self) {
        let Some(Preparing { asker, opened, .. }) = self.preparing.take() else { return };
        if let Some(Ok(logs)) = opened {
            logs.unmake();
        }
        self.tell(asker, Err(&Refusal::Stopping));
    }

    /// Tells who has asked for a reload what came of it.
    fn end_reload(&mut self, asker: Option<Asker>, result: Result<Changes, Rejected>) {
        self.metrics.reloaded(result.is_ok(), unix_nanos());
        self.service.reloaded();
        let verdict = result.map(|changes| self.verdict(false, changes));
        self.tell(asker, verdict.map_err(Refusal::Rejected).as_ref());
    }

    /// Answers who has asked. At SIGHUP the log has the answer.
    fn tell(&mut self, asker: Option<Asker>, verdict: Result<&Verdict, &Refusal>) {
        let Some(asker) = asker else { return };
        let answer = match verdict {
            Ok(verdict) => Answer::Reloaded(verdict.clone()),
            Err(refusal) => refusal.into(),
        };
        self.operators.answer(self.now, asker, answer);
    }

    fn verdict(&self, dry_run: bool, changes: Changes) -> Verdict {
        let Changes { shown: changes, left_out: changes_left_out } = changes;
        let file = self.reader.file();
        let file_id = file.and_then(file_id).map(|(device, inode)| FileId { device, inode });
        let file = file.map(|file| file.display().to_string());
        Verdict { dry_run, changes, changes_left_out, file, file_id }
    }

    /// Reads a configuration.
    fn read(&mut self, manner: Manner, given: Option<&Given>) -> Result<Wanted, Rejected> {
        let candidate = self.reader.read(given)?;
        core_dumps::keep_secrets_out(&candidate.config);
        let guard = guard_of(&candidate.config)?;
        Ok(Wanted { candidate, guard, manner })
    }

    /// Finds out what changes, with these logs of volumes that come.
    fn plan(&self, wanted: &Wanted, logs: &Logs, in_logs: &InLogs) -> Result<Plan, Rejected> {
        let Candidate { config: new, changes, places } = wanted.candidate.clone();
        let (engine, connections) = (&self.engine, &self.connections);
        let uses = Uses {
            force: wanted.manner.force,
            of_volume: &|volume| users(connections, engine, volume),
            of_export: &|export| clients(connections, export),
            in_log: in_logs,
            opened: &|volume| logs.has(volume),
        };
        let planned = engine.plan_reload(&self.config, new, &uses, &places)?;
        let growth = planned.growth(&engine.catalog);
        let hosts = hosts(connections, engine);
        let mut changes = complete(changes, (&self.config, planned.config()), &growth, &hosts);
        for volume in planned.removed() {
            if let Some(in_log) = in_logs.get(&volume) {
                stays_in_log(&mut changes.shown, &self.config.volumes[volume], in_log);
            }
        }
        Ok(Plan { planned, changes })
    }

    /// Applies what can change live.
    fn put_into_force(
        &mut self,
        wanted: Wanted,
        plan: Plan,
        logs: Logs,
    ) -> Result<Changes, Rejected> {
        let Wanted { candidate, guard, .. } = wanted;
        let Plan { planned, changes } = plan;
        crate::raise_descriptors(planned.config());
        let opened = open(&planned, &candidate.places, logs)?;
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
        self.place_targets();
        self.operators.guard_http(guard);
        self.acceptor.register(&self.config);
        self.connections.set_weights(&self.config.shares);
        self.connections.refresh(&mut self.engine);
        self.connections.run_actions(&mut self.engine, self.now);
        self.reader.put_into_force();
        for change in &changes.shown {
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

/// Says of a volume that goes what is only in its log.
fn stays_in_log(changes: &mut [Change], volume: &config::Volume, in_log: &InLog) {
    let is_its = |one: &&mut Change| one.kind == "volume" && one.name == volume.name;
    if let (Some(change), Some(log)) = (changes.iter_mut().find(is_its), &volume.log) {
        let told = format!("; up to {in_log} stays in its log {}", log.path.display());
        change.told.push_str(&told);
    }
}

/// Opens the volumes that come. After an error none of them is open, and no file is there that was not there before.
fn open(planned: &Planned, places: &Places, mut logs: Logs) -> Result<Vec<OpenedVolume>, Rejected> {
    let (mut opened, mut faults) = (Vec::new(), Vec::new());
    for (index, _) in planned.added() {
        let volume = &planned.config().volumes[index];
        let name = &volume.name;
        let stores = open_volume(volume, |_| unreachable!("volumes on upstreams need a restart"));
        let stores = match stores {
            Ok(stores) => stores,
            Err(problem) => {
                faults.push(layout::at(places, volume, &problem));
                continue;
            }
        };
        let log = match logs.take(index) {
            Some(log) => Ok(log),
            None => {
                log_device::open_one(VolumeId::new(index as u32), volume, None, &mut KernelRandom)
            }
        };
        let kept =
            log.map_err(ServeError::Log).and_then(|log| match persisted_state(volume, &stores) {
                Ok(kept) => Ok((kept, log)),
                Err(problem) => {
                    log.unmake(name);
                    Err(problem)
                }
            });
        match kept {
            Ok((kept, log)) => opened.push(OpenedVolume { index, stores, kept, log }),
            Err(problem) => {
                faults.push(places.at("volume", name, &["state", "file"], &problem.to_string()));
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
    logs.unmake();
    undo(planned, opened);
    Err(Rejected::Unavailable(faults))
}

/// Closes volumes that were opened in vain.
fn undo(planned: &Planned, opened: Vec<OpenedVolume>) {
    for OpenedVolume { index, stores, kept, log } in opened {
        let volume = &planned.config().volumes[index];
        log.unmake(&volume.name);
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
