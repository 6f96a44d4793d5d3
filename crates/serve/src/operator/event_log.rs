//! Turns events of the pipeline into log lines and counters for operators.

use crate::config::Recorder;
use crate::link_hosts::LinkHosts;
use crate::operator::backends::Backends;
use crate::operator::flight::{Asked, Flight, Names, SlowLine};
use crate::operator::metrics::Metrics;
use crate::operator::metrics::loads::Moment;
use crate::operator::view::View;
use crate::operator::{RecorderStatus, Refusal, Slow, TenantStatus, summary};
use crate::peer_log::PeerLog;
use crate::volume::tenants::TenantNames;
use crate::volume::{VolumeNames, VolumesGone};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tracing::{debug, error, info, warn};
use weir_flow::account::Accounts;
use weir_flow::cache::writeback::{Blocked, Cause, Notice as LogNotice};
use weir_flow::clock::{Duration, Instant};
use weir_flow::control::{Contract, Notice, Promises, Row};
use weir_flow::event::{Completed, Event, Observer, Service};
use weir_flow::path::{Change, Grounds};
use weir_flow::request::{Request, TenantId, VolumeId};
use weir_flow::units::Extent;

/// Counts ordinary events and logs the others.
#[derive(Debug)]
pub(crate) struct Watch {
    volumes: VolumeNames,
    gone: VolumesGone,
    backends: Rc<RefCell<Backends>>,
    tenants: TenantNames,
    log: PeerLog,
    hosts: LinkHosts,
    accounts: Accounts,
    /// By tenant: the first objective of its contract.
    objectives: Arc<[Option<Duration>]>,
    metrics: Arc<Metrics>,
    flight: Option<Flight>,
    /// Requests that have ended.
    pub(crate) completed: u64,
    /// Requests that ended with an error.
    pub(crate) failed: u64,
    /// Requests that were refused because a limit was reached.
    pub(crate) refused: u64,
}

impl Watch {
    /// Observes volumes with these names, their backends, and tenants with these contracts; counts in `metrics`, and notes
    /// which volumes have `gone`.
    pub(crate) fn new(
        (volumes, gone): (VolumeNames, VolumesGone),
        backends: Rc<RefCell<Backends>>,
        tenants: TenantNames,
        (log, hosts): (PeerLog, LinkHosts),
        (promises, metrics): (&Promises, Arc<Metrics>),
        (recorder, start): (Recorder, u16),
    ) -> Self {
        let accounts = Accounts::new(promises);
        let (completed, failed, refused) = (0, 0, 0);
        for (id, name) in (0..).map(VolumeId::new).zip(&*volumes.borrow()) {
            metrics.volume(id, || name.clone());
        }
        let flight = Flight::new(recorder, start);
        Self {
            volumes,
            gone,
            backends,
            tenants,
            log,
            hosts,
            accounts,
            objectives: objectives(promises),
            metrics,
            flight,
            completed,
            failed,
            refused,
        }
    }

    /// The state of the tenants with a contract: see [`summary::tenants`].
    pub(crate) fn tenants(&mut self, now: Instant) -> (Vec<TenantStatus>, u64) {
        summary::tenants(&mut self.accounts, &self.tenants.borrow(), now)
    }

    /// The slowest requests of late, or one of them.
    pub(crate) fn slow(&mut self, now: Instant, asked: &Asked) -> Result<Slow, Refusal> {
        let Self { flight, tenants, volumes, backends, hosts, .. } = self;
        let flight = flight.as_mut().ok_or(Refusal::NoRecorder)?;
        let (tenants, volumes) = (tenants.borrow(), volumes.borrow());
        let backends = backends.borrow();
        let names = Names {
            tenant: &|id| tenants.get(id.index()).cloned().unwrap_or_default(),
            volume: &|id| volumes[id.index()].clone(),
            backend: &|id| backends.get(id).name.clone(),
            hosts,
        };
        flight.slow(now, asked, &names)
    }

    /// What a sample of the counters needs of the event loop: O(1), however many volumes and tenants there are.
    pub(crate) fn moment(&self, view: &View<'_>, outstanding: u64) -> Moment {
        Moment {
            up_ns: view.now.as_nanos(),
            busy: f64::from(view.busy) / 1e3,
            outstanding,
            objectives: self.objectives.clone(),
            latest: self.flight.as_ref().map(|flight| flight.recent(view.now)).unwrap_or_default(),
        }
    }

    /// What the flight recorder keeps.
    pub(crate) fn recorder(&self, now: Instant) -> Option<RecorderStatus> {
        self.flight.as_ref().map(|flight| flight.status(now))
    }

    /// A volume's name.
    fn volume(&self, id: VolumeId) -> String {
        self.volumes.borrow()[id.index()].clone()
    }

    /// A tenant's name; empty for the queue behind those of all tenants that a policy may have.
    fn tenant(&self, id: TenantId) -> String {
        self.tenants.borrow().get(id.index()).cloned().unwrap_or_default()
    }

    /// The names of the volume and of the tenant of a request.
    fn names(&self, request: &Request) -> (impl FnOnce() -> String, impl FnOnce() -> String) {
        let (volume, tenant) = (request.volume, request.tenant);
        (move || self.volume(volume), move || self.tenant(tenant))
    }
}

impl Observer for Watch {
    fn service(&mut self, now: Instant, service: Service) {
        if let Some(flight) = &mut self.flight {
            flight.serve(now, service);
        }
    }

    #[inline]
    fn event(&mut self, now: Instant, event: Event<'_>) {
        match &event {
            Event::Arrived(_) => {}
            Event::Completed(completed) => self.completed(now, completed, &event),
            _ => self.other(now, event),
        }
    }
}

impl Watch {
    /// A request has ended, as the event says.
    fn completed(&mut self, now: Instant, completed: &Completed<'_>, event: &Event<'_>) {
        let scored = self.accounts.take(now, event);
        self.completed += 1;
        self.metrics.completed(completed, scored, self.names(completed.request));
        let flight = self.flight.as_mut();
        let line = flight.and_then(|flight| flight.completed(now, completed, scored));
        if let Some(line) = line {
            self.log_slow(completed, line);
        }
        if let Err(error) = completed.outcome {
            self.failed += 1;
            let request = completed.request;
            let volume = self.volume(request.volume);
            let Extent { offset, length } = request.extent;
            let origin = format_args!("volume {volume}");
            self.log.line(now, origin, "request failed", |text| {
                warn!(%volume, op = ?request.op, offset, length, %error, "{text}");
            });
        }
    }

    /// Anything else has happened.
    fn other(&mut self, now: Instant, event: Event<'_>) {
        let scored = self.accounts.take(now, &event);
        match event {
            Event::Arrived(_) | Event::Completed(_) => {}
            Event::ControlSet(promises) => self.objectives = objectives(promises),
            Event::VolumeAdded(id, ..) => self.metrics.volume_came(id, || self.volume(id)),
            Event::VolumeRemoved(id) => {
                self.metrics.volume_went(id);
                self.gone.borrow_mut().push(id);
            }
            Event::Cache(volume, notice) => {
                self.attribute(now, event);
                log_notice(&self.volume(volume), notice);
            }
            Event::Refused(request, _) => {
                self.refused += 1;
                self.metrics.refused(request, scored, self.names(request));
                if let Some(flight) = &mut self.flight {
                    flight.refused(now, request, scored);
                }
                let volume = self.volume(request.volume);
                let tenant = self.tenant(request.tenant);
                self.log.line(now, format_args!("tenant {tenant}"), TASK_SET_FULL, |text| {
                    warn!(%volume, tenant, "{text}");
                });
            }
            Event::Path(change) => {
                self.attribute(now, event);
                let Change { backend, path, from, lasted, state, why, grounds } = change;
                let backends = self.backends.borrow();
                let named = backends.get(backend);
                let (backend, path) = (&named.name, path.index());
                let portal = &named.portals[path];
                if state.is_usable() {
                    info!(backend, path, portal, %state, %why, %from, %lasted, "path");
                } else if let Some(Grounds { response, expected, events, over }) = grounds {
                    warn!(
                        backend, path, portal, %state, %why, %from, %lasted, %response,
                        best_path = %expected, ios = events, %over, "path"
                    );
                } else {
                    warn!(backend, path, portal, %state, %why, %from, %lasted, "path");
                }
            }
            Event::Overdue { request, stage, age } => {
                let volume = self.volume(request.volume);
                let offset = request.extent.offset;
                self.log.line(now, format_args!("volume {volume}"), "request is overdue", |text| {
                    warn!(%volume, op = ?request.op, offset, %stage, %age, "{text}");
                });
            }
            Event::Control(notice) => {
                self.metrics.control(notice, |tenant| self.tenant(tenant));
                self.log_control(notice);
            }
            Event::Lost(volume) => {
                let volume = self.volume(volume);
                error!(
                    %volume,
                    "acknowledged data may be lost: no flush of this volume succeeds from here on; \
                     check the storage behind it, then restart"
                );
            }
            Event::Stray => warn!("a completion came for nothing that is outstanding"),
        }
    }

    /// Gives the recorder what explains waits.
    fn attribute(&mut self, now: Instant, event: Event<'_>) {
        if let Some(flight) = &mut self.flight {
            flight.event(now, event);
        }
    }

    /// Logs a slow request.
    fn log_slow(&self, completed: &Completed<'_>, line: SlowLine) {
        let SlowLine { id, reason, rule, held, mostly } = line;
        let &Completed { request, times, arrived, .. } = completed;
        let response = times.total();
        let host = (!request.job).then(|| self.hosts.of(request.link, arrived)).flatten();
        let peer = host.as_ref().map_or("", |host| &host.peer);
        let (volume, tenant) = (self.volume(request.volume), self.tenant(request.tenant));
        let Extent { offset, length } = request.extent;
        let behind = mostly.map(|(contributor, _)| contributor.text(|id| self.tenant(id)));
        info!(
            request_id = id, %peer, reason = reason.as_str(), tenant, %volume, op = request.op.as_str(), offset, length,
            %response, rule, %held, behind = behind.as_deref().unwrap_or("unknown"), "slow request"
        );
    }

    /// Logs what the control policy tells.
    fn log_control(&self, notice: Notice) {
        match notice {
            Notice::Gate(tenant, on) => {
                debug!(tenant = self.tenant(tenant), on, "token bucket switched");
            }
            Notice::Infeasible(tenant, true) => warn!(
                tenant = self.tenant(tenant),
                alarm = "slo_infeasible",
                "no window meets the objective: others are held back less for a while"
            ),
            Notice::Scaled(tier, ppm) => warn!(
                ?tier,
                per_cent = ppm / 10_000,
                "the guarantees of a tier are scaled down: the devices carry less than the contracts"
            ),
            Notice::Infeasible(tenant, false) => {
                info!(tenant = self.tenant(tenant), "the objective is enforced again");
            }
        }
    }
}

/// By tenant: the first objective of its contract.
fn objectives(promises: &Promises) -> Arc<[Option<Duration>]> {
    let first = |contract: &Contract| contract.rows.first().map(Row::response);
    promises.contracts.iter().map(|contract| contract.as_ref().and_then(first)).collect()
}

/// Logs an event of a volume's log.
fn log_notice(volume: &str, notice: LogNotice) {
    match notice {
        LogNotice::LogFault(error) => {
            warn!(volume, %error, "a write to the log failed: its data goes to another part of the log");
        }
        LogNotice::LogFailed(error) => error!(
            volume,
            %error,
            "the log has failed: its data and new writes go to the volume's own storage"
        ),
        LogNotice::Away(error) => {
            warn!(volume, %error, "write-back waits: the volume's own storage does not answer");
        }
        LogNotice::Back(away) => info!(volume, %away, "write-back continues"),
        LogNotice::Blocked(Blocked { seq, extent, cause: cause @ Cause::Log(_) }) => error!(
            volume,
            record = seq,
            offset = extent.offset,
            length = extent.length,
            %cause,
            "write-back is blocked by data that the log cannot give: `weir volume retry` tries again; \
             `weir volume quarantine` gives this range up and continues"
        ),
        LogNotice::Blocked(Blocked { seq, extent, cause }) => error!(
            volume,
            seq,
            offset = extent.offset,
            length = extent.length,
            %cause,
            "write-back is blocked, and no data is dropped: repair the storage, then `weir volume retry`"
        ),
        LogNotice::Unblocked => info!(volume, "write-back is tried again"),
        LogNotice::Full(true) => {
            warn!(
                volume,
                "the log is full: writes wait until the volume's own storage has taken data"
            );
        }
        LogNotice::Full(false) => info!(volume, "the log has room again"),
        LogNotice::Relaxed(true) => {
            info!(volume, "every host that writes flushes: epochs order write-back");
        }
        LogNotice::Relaxed(false) => {
            info!(volume, "a host that writes has not flushed yet: write-back is in strict order");
        }
        LogNotice::Through(why) => warn!(volume, %why, "the volume is write-through from here on"),
        LogNotice::Resumed => info!(volume, "writes go to the log"),
    }
}

const TASK_SET_FULL: &str = "task set full: a limit of outstanding requests or bytes is reached";
