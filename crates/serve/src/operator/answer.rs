//! Answers questions: of the control socket, of the HTTP interface, of signals and of the event loop.

use super::backends::Backends;
use super::flight::{Asked, Within};
use super::metrics::page::Format;
use super::metrics::scraper::Wanted;
use super::protocol::{Answer, Leaving, MoveOrder, NAME_MAX, Refusal, Request};
use super::view::View;
use super::{Asker, Manner, Question, ReloadOrder, paths, snapshot, status};
use crate::clock::unix_nanos;
use crate::config::Given;
use crate::operator::event_log::Watch;
use crate::volume::reload::{InLog, InLogs};
use crate::volume::{Life, Volume};
use tracing::info;
use weir_flow::cache::Done;
use weir_flow::cache::writeback::Phase;
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::PolicyHandover;
use weir_flow::path::{PathOrder, View as PathView};
use weir_flow::pipeline::{Input, Pipeline};
use weir_flow::request::{BackendId, PathId, VolumeId};
use weir_flow::units::ByteCount;

/// What the event loop does about a question.
pub(crate) enum Reaction {
    /// Nothing: the log has the answer.
    Nothing,
    /// Sends a client this answer.
    Answer(Asker, Answer),
    /// Has another thread read the counters and send the client what it wants.
    Count(Asker, Wanted),
    /// Gives the pipeline this order, and asks the question when that has been done.
    Order(Input, Question),
    /// Asks the question again soon.
    Later(Question),
    /// Reads the configuration again, or another one, and sends the client the result.
    Reload(ReloadOrder, InLogs),
    /// Carries out a reload whose logs have been opened.
    Resume(InLogs),
    /// Carries out an order about a move, and sends the client the result. Whether new writes pass the log of the volume.
    Move(Asker, MoveOrder, bool),
    /// The log of a volume that is to be moved is drained.
    Drained(usize),
    /// Stops gracefully, and sends the client this answer.
    Stop(Asker, Leaving),
    /// Saves the state of control.
    Save(Box<PolicyHandover>),
}

/// Answers a question.
pub(crate) fn answer(
    pipeline: &mut Pipeline<Watch>,
    view: &View<'_>,
    backends: &Backends,
    question: Question,
) -> Reaction {
    let now = view.now;
    match question {
        Question::Keep => Reaction::Save(Box::new(pipeline.handover(now))),
        Question::Summary => {
            status::log(&status::status(pipeline, view, backends));
            Reaction::Nothing
        }
        Question::Reload => {
            let order = ReloadOrder { asker: None, manner: Manner::default(), given: None };
            Reaction::Reload(order, in_logs(pipeline, view))
        }
        Question::Prepared => Reaction::Resume(in_logs(pipeline, view)),
        Question::Asked(client, asked) => {
            let mut handler = ControlHandler { pipeline, view, backends, client };
            let reaction = asked.and_then(|request| handler.handle(request));
            reaction.unwrap_or_else(|refusal| Reaction::Answer(client, (&refusal).into()))
        }
        Question::Drained(volume) => {
            if passes_log(pipeline, VolumeId::new(volume as u32), now) {
                return Reaction::Drained(volume);
            }
            Reaction::Nothing
        }
        Question::Ordered(client, backend) => {
            let paths = paths::paths(pipeline, view, backends, |path| path.backend == backend);
            Reaction::Answer(client, Answer::Paths(paths))
        }
        Question::Told(_, volume, until) if pipeline.cache().gives_up(volume) && now < until => {
            Reaction::Later(question)
        }
        Question::Told(client, volume, _) => {
            let name = &view.engine.catalog.volumes[volume.index()].name;
            let mut volumes = status::volumes(pipeline, view, backends);
            volumes.retain(|one| one.name == *name);
            Reaction::Answer(client, Answer::Volumes(volumes))
        }
    }
}

/// What is only in the logs of volumes.
fn in_logs(pipeline: &Pipeline<Watch>, view: &View<'_>) -> InLogs {
    let volumes = &view.engine.catalog.volumes;
    let there = volumes.iter().enumerate().filter(|(_, volume)| volume.life != Life::Gone);
    let in_log = there.filter_map(|(index, _)| {
        let status = pipeline.cache().log(VolumeId::new(index as u32))?.status(view.now);
        let in_log = InLog { bytes: ByteCount(status.dirty_bytes), records: status.dirty_records };
        (in_log.records > 0).then_some((index, in_log))
    });
    in_log.collect()
}

/// Handles the requests of one client.
struct ControlHandler<'a> {
    pipeline: &'a mut Pipeline<Watch>,
    view: &'a View<'a>,
    backends: &'a Backends,
    client: Asker,
}

impl ControlHandler<'_> {
    fn handle(&mut self, request: Request) -> Result<Reaction, Refusal> {
        let Self { ref mut pipeline, view, backends, client } = *self;
        let answer = match request {
            Request::Status {} => {
                Answer::Status(Box::new(status::status(pipeline, view, backends)))
            }
            Request::PathList { backend } => {
                let backend = backend.map(|name| backends.find(&name)).transpose()?;
                Answer::Paths(paths::paths(pipeline, view, backends, |path| {
                    backend.is_none_or(|only| only == path.backend)
                }))
            }
            Request::PathDisable { backend, path, force } => {
                let (backend, path) = self.path(&backend, path)?;
                if !force {
                    self.leaves_another(backend, path)?;
                }
                return self.order_path(backend, PathOrder::Disable(path));
            }
            Request::PathEnable { backend, path } => {
                let (backend, path) = self.path(&backend, path)?;
                return self.order_path(backend, PathOrder::Enable(path));
            }
            Request::PathFailback { backend } => {
                return self.order_path(backends.find(&backend)?, PathOrder::Failback);
            }
            Request::VolumeList { volume } => {
                let mut volumes = status::volumes(pipeline, view, backends);
                if let Some(name) = volume {
                    self.volume(name.clone())?;
                    volumes.retain(|volume| volume.name == name);
                }
                Answer::Volumes(volumes)
            }
            Request::VolumeDrain { volume } => {
                return self.order_log(volume, |volume| Done::Drain(volume, true));
            }
            Request::VolumeResume { volume } => {
                return self.order_log(volume, |volume| Done::Drain(volume, false));
            }
            Request::VolumeRetry { volume } => return self.order_log(volume, Done::Retry),
            Request::VolumeQuarantine { volume } => {
                let log = self.pipeline.cache().log(self.volume(volume.clone())?);
                if log.is_some_and(|log| log.unreadable().is_none()) {
                    return Err(Refusal::NothingLost { volume });
                }
                return self.order_log(volume, |volume| Done::Quarantine(volume, unix_nanos()));
            }
            Request::VolumeMoveLook { volume } => {
                let volume = self.volume(volume)?.index();
                return Ok(self.order_move(MoveOrder::Look { volume }));
            }
            Request::VolumeMoveOut { volume, number, to, identity, drain_within_ns } => {
                if view.stopping {
                    return Err(Refusal::Stopping);
                }
                let (volume, within) =
                    (self.volume(volume)?.index(), Duration::from_nanos(drain_within_ns));
                let order = MoveOrder::Out { volume, number, to, identity, within };
                return Ok(self.order_move(order));
            }
            Request::VolumeMoveIn { volume, number, key } => {
                if view.stopping {
                    return Err(Refusal::Stopping);
                }
                let digits =
                    key.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
                let key = digits.ok_or(Refusal::NoKey { key })?;
                let volume = self.volume(volume)?.index();
                return Ok(self.order_move(MoveOrder::In { volume, number, key }));
            }
            Request::VolumeMoveCancel { volume, number } => {
                let volume = self.volume(volume)?.index();
                return Ok(self.order_move(MoveOrder::Cancel { volume, number }));
            }
            Request::Sample {} => {
                let outstanding = pipeline.outstanding().into();
                let moment = Box::new(pipeline.observer().moment(view, outstanding));
                return Ok(Reaction::Count(client, Wanted::Sample(moment)));
            }
            Request::Slow { id, last_ns, at_unix_ns, tenant, volume, rule, after, limit } => {
                let within = match at_unix_ns {
                    None => Within::last(Duration::from_nanos(last_ns)),
                    Some(at) => {
                        let age = unix_nanos().checked_sub(at).ok_or(Refusal::Future)?;
                        Within::around(Duration::from_nanos(age))
                    }
                };
                let limit = limit.clamp(1, SLOW_MAX) as usize;
                let asked = Asked { id, within, tenant, volume, rule, after, limit };
                Answer::Slow(Box::new(pipeline.observer_mut().slow(view.now, &asked)?))
            }
            Request::Reload { dry_run, force } => {
                if view.stopping {
                    return Err(Refusal::Stopping);
                }
                info!(dry_run, force, over = client.way(), "order: reload");
                return Ok(self.reload(Manner { dry_run, force }, None));
            }
            Request::Apply { name, text, dry_run, force } => {
                if name.len() > NAME_MAX {
                    return Err(Refusal::LongName(name.len()));
                }
                if view.stopping {
                    return Err(Refusal::Stopping);
                }
                info!(name, dry_run, force, over = client.way(), "order: apply");
                let given = Given { name, text };
                return Ok(self.reload(Manner { dry_run, force }, Some(given)));
            }
            Request::Metrics { openmetrics } => {
                let snapshot = Box::new(snapshot::take(pipeline, view, backends));
                let format = if openmetrics { Format::OpenMetrics } else { Format::Text };
                return Ok(Reaction::Count(client, Wanted::Page(snapshot, format)));
            }
            Request::Stop {} => {
                let volumes = status::volumes(pipeline, view, backends);
                let dirty =
                    volumes.iter().filter_map(|volume| Some(volume.log.as_ref()?.dirty_bytes));
                let dirty_bytes = dirty.sum();
                info!(over = client.way(), "order: stop");
                return Ok(Reaction::Stop(client, Leaving { dirty_bytes }));
            }
        };
        Ok(Reaction::Answer(client, answer))
    }

    fn reload(&self, manner: Manner, given: Option<Given>) -> Reaction {
        let order = ReloadOrder { asker: Some(self.client), manner, given };
        Reaction::Reload(order, in_logs(self.pipeline, self.view))
    }

    fn volume(&self, name: String) -> Result<VolumeId, Refusal> {
        let volumes = &self.view.engine.catalog.volumes;
        let served = |volume: &&Volume| volume.life == Life::Served;
        let wanted = |volume: &Volume| volume.life == Life::Served && volume.name == name;
        if let Some(index) = volumes.iter().position(wanted) {
            return Ok(VolumeId::new(index as u32));
        }
        let known = volumes.iter().filter(served).map(|volume| volume.name.clone()).collect();
        Err(Refusal::UnknownVolume { name, known })
    }

    /// Gives an order about a volume's log. The answer comes when the log has done it.
    fn order_log(
        &self,
        name: String,
        order: impl FnOnce(VolumeId) -> Done,
    ) -> Result<Reaction, Refusal> {
        let volume = self.volume(name.clone())?;
        if self.pipeline.cache().log(volume).is_none() {
            return Err(Refusal::NoLog { volume: name });
        }
        if self.view.stopping {
            return Err(Refusal::Stopping);
        }
        let order = order(volume);
        info!(volume = name, ?order, over = self.client.way(), "order to a log");
        let until = self.view.now + ORDER_WAIT_MAX;
        Ok(Reaction::Order(Input::Cache(order), Question::Told(self.client, volume, until)))
    }

    fn order_move(&self, order: MoveOrder) -> Reaction {
        let volume = VolumeId::new(order.volume() as u32);
        Reaction::Move(self.client, order, passes_log(self.pipeline, volume, self.view.now))
    }

    fn path(&self, backend: &str, path: u32) -> Result<(BackendId, PathId), Refusal> {
        let backend = self.backends.find(backend)?;
        Ok((backend, self.backends.path(backend, path)?))
    }

    /// Refuses to disable the last path that is usable.
    fn leaves_another(&self, backend: BackendId, path: PathId) -> Result<(), Refusal> {
        let usable = |view: &PathView| view.backend == backend && view.state.is_usable();
        let mut usable: Vec<_> = self.pipeline.paths(self.view.now).filter(usable).collect();
        let before = usable.len();
        usable.retain(|view| view.path != path);
        if usable.is_empty() && before > 0 {
            let backend = self.backends.get(backend).name.clone();
            return Err(Refusal::LastPath { backend, path: path.index() as u32 });
        }
        Ok(())
    }

    /// Gives an order about paths. The answer comes when it has been done.
    fn order_path(&self, backend: BackendId, order: PathOrder) -> Result<Reaction, Refusal> {
        if self.view.stopping {
            return Err(Refusal::Stopping);
        }
        let name = &self.backends.get(backend).name;
        info!(backend = name, ?order, over = self.client.way(), "order to paths");
        let order = Input::PathOrder(backend, order);
        Ok(Reaction::Order(order, Question::Ordered(self.client, backend)))
    }
}

/// Whether new writes pass the log of a volume, and everything in it is upstream.
fn passes_log(pipeline: &Pipeline<Watch>, volume: VolumeId, now: Instant) -> bool {
    let log = pipeline.cache().log(volume);
    log.is_some_and(|log| matches!(log.status(now).phase, Phase::Through(_)))
}

/// Requests in an answer.
const SLOW_MAX: u32 = 32;

/// How long the answer to an order waits until that has been carried out: lost ranges have to be kept on a disk.
const ORDER_WAIT_MAX: Duration = Duration::from_secs(5);
