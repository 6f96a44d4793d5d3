//! What each question is answered with.

use super::backends::Backends;
use super::protocol::{Answer, LearnedSpeed, Leaving, PathStatus, Refusal, Request};
use super::socket::ClientId;
use super::{Question, status};
use crate::operator::event_log::Watch;
use crate::shard::Gateway;
use tracing::info;
use weir_flow::cache::Done;
use weir_flow::clock::Instant;
use weir_flow::path::{PathOrder, View};
use weir_flow::pipeline::{Input, Pipeline};
use weir_flow::request::{BackendId, PathId, VolumeId};

/// Answers a question.
pub(crate) fn answer(
    pipeline: &mut Pipeline<Watch>,
    gateway: &mut Gateway<'_>,
    backends: &Backends,
    question: Question,
) {
    let now = gateway.now();
    match question {
        Question::Keep => gateway.keep(&pipeline.legacy(now)),
        Question::Summary => status::log(&status::status(pipeline, gateway, backends, now)),
        Question::Asked(client, asked) => {
            let mut handler = ControlHandler { pipeline, gateway, backends, now };
            match asked.and_then(|request| handler.deal(client, request)) {
                Ok(Some(answer)) => gateway.tell(client, answer),
                // It is answered when it has been done.
                Ok(None) => {}
                Err(refusal) => gateway.tell(client, (&refusal).into()),
            }
        }
        Question::Ordered(client, backend) => {
            let paths = paths(pipeline, backends, Some(backend), now);
            gateway.tell(client, Answer::Paths(paths));
        }
        Question::Told(client, volume) => {
            let volumes = status::volumes(pipeline, gateway, backends, now);
            let volume = volumes.into_iter().nth(volume.index());
            gateway.tell(client, Answer::Volumes(volume.into_iter().collect()));
        }
    }
}

/// Where requests are dealt with.
struct ControlHandler<'a, 'b> {
    pipeline: &'a mut Pipeline<Watch>,
    gateway: &'a mut Gateway<'b>,
    backends: &'a Backends,
    now: Instant,
}

impl ControlHandler<'_, '_> {
    /// What a request is answered with; `None` if that is to come.
    fn deal(&mut self, client: ClientId, request: Request) -> Result<Option<Answer>, Refusal> {
        let Self { ref mut pipeline, ref gateway, backends, now } = *self;
        match request {
            Request::Status {} => {
                let status = status::status(pipeline, gateway, backends, now);
                return Ok(Some(Answer::Status(Box::new(status))));
            }
            Request::PathList { backend } => {
                let backend = backend.map(|name| backends.find(&name)).transpose()?;
                return Ok(Some(Answer::Paths(paths(pipeline, backends, backend, now))));
            }
            Request::PathDisable { backend, path, force } => {
                let (backend, path) = self.place(&backend, path)?;
                if !force {
                    self.leaves_another(backend, path)?;
                }
                self.order(client, backend, PathOrder::Disable(path))?;
            }
            Request::PathEnable { backend, path } => {
                let (backend, path) = self.place(&backend, path)?;
                self.order(client, backend, PathOrder::Enable(path))?;
            }
            Request::PathFailback { backend } => {
                self.order(client, backends.find(&backend)?, PathOrder::Failback)?;
            }
            Request::VolumeList { volume } => {
                let mut volumes = status::volumes(pipeline, gateway, backends, now);
                if let Some(name) = volume {
                    let index = self.volume(name)?.index();
                    volumes = volumes.into_iter().skip(index).take(1).collect();
                }
                return Ok(Some(Answer::Volumes(volumes)));
            }
            Request::VolumeDrain { volume } => {
                self.tell_log(client, volume, |volume| Done::Drain(volume, true))?;
            }
            Request::VolumeResume { volume } => {
                self.tell_log(client, volume, |volume| Done::Drain(volume, false))?;
            }
            Request::VolumeRetry { volume } => self.tell_log(client, volume, Done::Retry)?,
            Request::Stop {} => {
                let volumes = status::volumes(pipeline, gateway, backends, now);
                let dirty =
                    volumes.iter().filter_map(|volume| Some(volume.log.as_ref()?.dirty_bytes));
                let dirty_bytes = dirty.sum();
                info!("order from the control socket: stop");
                self.gateway.leave();
                return Ok(Some(Answer::Stopping(Leaving { dirty_bytes })));
            }
        }
        Ok(None)
    }

    fn volume(&self, name: String) -> Result<VolumeId, Refusal> {
        let volumes = &self.gateway.engine().catalog.volumes;
        if let Some(index) = volumes.iter().position(|volume| volume.name == name) {
            return Ok(VolumeId::new(index as u32));
        }
        let known = volumes.iter().map(|volume| volume.name.clone()).collect();
        Err(Refusal::UnknownVolume { name, known })
    }

    /// Hands an order about a volume's log over, which is answered when the log has heard of it.
    fn tell_log(
        &mut self,
        client: ClientId,
        name: String,
        order: impl FnOnce(VolumeId) -> Done,
    ) -> Result<(), Refusal> {
        let volume = self.volume(name.clone())?;
        if self.pipeline.cache().log(volume).is_none() {
            return Err(Refusal::NoLog { volume: name });
        }
        if self.gateway.is_stopping() {
            return Err(Refusal::Stopping);
        }
        let order = order(volume);
        info!(volume = name, ?order, "order from the control socket");
        self.gateway.order(Input::Cache(order), Question::Told(client, volume));
        Ok(())
    }

    fn place(&self, backend: &str, path: u32) -> Result<(BackendId, PathId), Refusal> {
        let backend = self.backends.find(backend)?;
        Ok((backend, self.backends.path(backend, path)?))
    }

    /// Refuses to take away the last path that carries anything.
    fn leaves_another(&self, backend: BackendId, path: PathId) -> Result<(), Refusal> {
        let usable = |view: &View| view.backend == backend && view.state.is_usable();
        let mut usable: Vec<_> = self.pipeline.paths(self.now).filter(usable).collect();
        let before = usable.len();
        usable.retain(|view| view.path != path);
        if usable.is_empty() && before > 0 {
            let backend = self.backends.get(backend).name.clone();
            return Err(Refusal::LastPath { backend, path: path.index() as u32 });
        }
        Ok(())
    }

    /// Hands an order over, which is answered when it has been done.
    fn order(
        &mut self,
        client: ClientId,
        backend: BackendId,
        order: PathOrder,
    ) -> Result<(), Refusal> {
        if self.gateway.is_stopping() {
            return Err(Refusal::Stopping);
        }
        info!(backend = self.backends.get(backend).name, ?order, "order from the control socket");
        self.gateway.order(Input::PathOrder(backend, order), Question::Ordered(client, backend));
        Ok(())
    }
}

/// The paths to a backend, or to all.
fn paths(
    pipeline: &Pipeline<Watch>,
    backends: &Backends,
    only: Option<BackendId>,
    now: Instant,
) -> Vec<PathStatus> {
    let views = pipeline.paths(now).filter(|view| only.is_none_or(|only| only == view.backend));
    let told = views.map(|view| {
        let named = backends.get(view.backend);
        PathStatus {
            backend: named.name.clone(),
            path: view.path.index() as u32,
            portal: named.portals[view.path.index()].clone(),
            state: view.state.to_string(),
            since_ns: now.saturating_since(view.since).as_nanos(),
            why: view.why.to_string(),
            group: view.group,
            access: view.access.to_string(),
            in_flight: view.in_flight.into(),
            bytes: view.bytes,
            oldest_ns: view.oldest.as_nanos(),
            learned: view.learned.map(|speed| LearnedSpeed {
                fixed_ns: speed.fixed.as_nanos(),
                per_mib_ns: speed.per_mib.as_nanos(),
            }),
            changes: view.changes,
        }
    });
    told.collect()
}
