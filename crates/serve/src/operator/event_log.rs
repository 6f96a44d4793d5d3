//! Turns events of the pipeline into log lines and counters for operators.

use crate::operator::backends::Backends;
use crate::operator::metrics::Metrics;
use crate::operator::{TenantStatus, summary};
use crate::peer_log::PeerLog;
use crate::volume::tenants::TenantNames;
use std::rc::Rc;
use std::sync::Arc;
use tracing::{debug, error, info, warn};
use weir_flow::account::Accounts;
use weir_flow::cache::writeback::{Blocked, Cause, Notice as LogNotice};
use weir_flow::clock::Instant;
use weir_flow::control::{Notice, Promises};
use weir_flow::event::{Event, Observer};
use weir_flow::path::{Change, Grounds};
use weir_flow::request::{Request, TenantId, VolumeId};
use weir_flow::units::Extent;

/// Counts ordinary events and logs the others.
#[derive(Debug)]
pub(crate) struct Watch {
    volumes: Vec<String>,
    backends: Rc<Backends>,
    tenants: TenantNames,
    log: PeerLog,
    accounts: Accounts,
    metrics: Arc<Metrics>,
    /// Requests that have ended.
    pub(crate) completed: u64,
    /// Requests that ended with an error.
    pub(crate) failed: u64,
    /// Requests that were refused because a limit was reached.
    pub(crate) refused: u64,
}

impl Watch {
    /// Observes volumes with these names, their backends, and tenants with these contracts; counts in `metrics`.
    pub(crate) fn new(
        volumes: Vec<String>,
        backends: Rc<Backends>,
        tenants: TenantNames,
        log: PeerLog,
        (promises, metrics): (&Promises, Arc<Metrics>),
    ) -> Self {
        let accounts = Accounts::new(promises);
        let (completed, failed, refused) = (0, 0, 0);
        for (id, name) in (0..).map(VolumeId::new).zip(&volumes) {
            metrics.volume(id, || name.clone());
        }
        Self { volumes, backends, tenants, log, accounts, metrics, completed, failed, refused }
    }

    /// The state of the tenants with a contract: see [`summary::tenants`].
    pub(crate) fn tenants(&mut self, now: Instant) -> (Vec<TenantStatus>, u64) {
        summary::tenants(&mut self.accounts, &self.tenants.borrow(), now)
    }

    /// A tenant's name; empty for the queue behind those of all tenants that a policy may have.
    fn tenant(&self, id: TenantId) -> String {
        self.tenants.borrow().get(id.index()).cloned().unwrap_or_default()
    }

    /// The names of the volume and of the tenant of a request.
    fn names(&self, request: &Request) -> (impl FnOnce() -> String, impl FnOnce() -> String) {
        let (volume, tenant) = (request.volume, request.tenant);
        (move || self.volumes[volume.index()].clone(), move || self.tenant(tenant))
    }
}

impl Observer for Watch {
    fn event(&mut self, now: Instant, event: Event<'_>) {
        let scored = self.accounts.take(now, event);
        match event {
            Event::Arrived(_) | Event::ControlSet(_) => {}
            Event::Cache(volume, notice) => log_notice(&self.volumes[volume.index()], notice),
            Event::Completed(completed) => {
                self.completed += 1;
                self.metrics.completed(&completed, scored, self.names(completed.request));
                if let Err(error) = completed.outcome {
                    self.failed += 1;
                    let request = completed.request;
                    let volume = &self.volumes[request.volume.index()];
                    let Extent { offset, length } = request.extent;
                    let origin = format_args!("volume {volume}");
                    self.log.line(now, origin, "request failed", |text| {
                        warn!(%volume, op = ?request.op, offset, length, %error, "{text}");
                    });
                }
            }
            Event::Refused(request, _) => {
                self.refused += 1;
                self.metrics.refused(request, scored, self.names(request));
                let volume = &self.volumes[request.volume.index()];
                let tenant = self.tenant(request.tenant);
                self.log.line(now, format_args!("tenant {tenant}"), TASK_SET_FULL, |text| {
                    warn!(%volume, tenant, "{text}");
                });
            }
            Event::Path(change) => {
                let Change { backend, path, from, lasted, state, why, grounds } = change;
                let named = self.backends.get(backend);
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
                let volume = &self.volumes[request.volume.index()];
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
                let volume = &self.volumes[volume.index()];
                error!(
                    %volume,
                    "acknowledged data may be lost: no flush of this volume succeeds from here on; \
                     check the storage behind it, then restart"
                );
            }
            Event::Stray => warn!("a completion came for nothing that is outstanding"),
        }
    }
}

impl Watch {
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
