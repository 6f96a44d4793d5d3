//! iSCSI sessions by the configuration in force: who may stay, what a session sees, its command window.

use crate::buffer::Payload;
use crate::frontend::connection::{Connection, Speech, Wire};
use crate::frontend::session_view::SessionView;
use crate::tasks::set::TaskSet;
use crate::tasks::{CommandEngine, ConnectionAction};
use crate::volume::catalog::Catalog;
use std::collections::BTreeSet;
use tracing::warn;
use weir_flow::clock::Duration;
use weir_wire::iscsi::target_role::{Connection as TargetConnection, Limits};
use weir_wire::scsi::Sense;
use weir_wire::scsi::nexus::Nexus;

/// The state machine of a new iSCSI connection, which reaches the gateway at `portals`. The challenge is
/// random.
pub(crate) fn new_wire(
    catalog: &Catalog,
    limits: &Limits,
    portals: Vec<String>,
    challenge: [u8; 32],
) -> Wire {
    // The window opens when the session is known.
    let limits = Limits { command_window: 1, ..*limits };
    TargetConnection::<Payload>::new(catalog.node.clone(), limits, portals, challenge)
}

/// The tenants that a session may send commands for; one may come more than once.
pub(crate) fn tenants_of<'a>(
    catalog: &'a Catalog,
    view: Option<&'a SessionView>,
) -> impl Iterator<Item = usize> + 'a {
    let units = view.map_or(&[][..], |view| &view.units).iter();
    let claim = view.and_then(|view| view.claim);
    units.map(move |seen| catalog.tenant(claim, seen.volume).index())
}

/// The command window of a session, if `more` sessions than are counted were there.
pub(crate) fn window_of(engine: &CommandEngine, view: Option<&SessionView>, more: u32) -> u32 {
    engine.set.window_of(tenants_of(&engine.catalog, view), more)
}

/// Warns of contracts that are out of reach: a host with a window of W commands completes at most W commands
/// per response time (Little's law).
pub(crate) fn warn_of_depth(engine: &CommandEngine, view: &SessionView) {
    let catalog = &engine.catalog;
    let window = window_of(engine, Some(view), 0);
    let tenants = view.units.iter().map(|seen| catalog.tenant(view.claim, seen.volume));
    for tenant in tenants.collect::<BTreeSet<_>>() {
        let needed = catalog.claims.depth(tenant);
        if needed > window.into() {
            let tenant = &catalog.tenant_names.borrow()[tenant.index()];
            let initiator = &view.nexus.initiator.name;
            let TaskSet { log, now, .. } = &engine.set;
            log.line(*now, format_args!("tenant {tenant}"), SMALL_WINDOW, |text| {
                warn!(initiator, tenant, window, needed, "{text}");
            });
        }
    }
}

/// Whether a session has anything to do at its target, by the configuration in force.
pub(crate) fn may_stay(catalog: &Catalog, view: &SessionView) -> bool {
    let entry = &catalog.node.targets[view.target];
    !entry.removed
        && !is_elsewhere(catalog, view)
        && entry.is_for(&view.nexus.initiator.name)
        && !view.units.is_empty()
}

/// Whether its target is served elsewhere, or nowhere for now, since its login began.
pub(crate) fn is_elsewhere(catalog: &Catalog, view: &SessionView) -> bool {
    let entry = &catalog.node.targets[view.target];
    entry.redirect.is_some() || entry.unavailable
}

/// Whether an account, or none, is enough for a new session by the configuration in force. What the
/// login asked for was in force when its connection came.
pub(crate) fn is_proof(catalog: &Catalog, view: &SessionView, account: Option<&str>) -> bool {
    let wanted = &catalog.node.targets[view.target].authentication.accounts;
    let name = |&index: &usize| Some(catalog.node.accounts[index].name.as_str());
    wanted.is_empty() || account.is_some() && wanted.iter().map(name).any(|one| one == account)
}

/// Shows a session what has changed for it by a reload, or asks it to log out.
pub(crate) fn refresh(engine: &mut CommandEngine, connection: &mut Connection) {
    let Connection { speech: Speech::Iscsi(wire), view: Some(view), id, .. } = connection else {
        // A discovery session, which knows the old targets, or a login that has not ended.
        if connection.speech.is_established() {
            let close = ConnectionAction::Close(connection.id, "the targets have changed");
            engine.set.actions.push_back(close);
        }
        return;
    };
    let catalog = &mut engine.catalog;
    let before: Vec<usize> = view.units.iter().map(|seen| seen.volume).collect();
    let changed = view.refresh(&catalog.targets[view.target], &catalog.volumes, &catalog.claims);
    for volume in before {
        if view.units.iter().all(|seen| seen.volume != volume) {
            catalog.volumes[volume].unit.nexus_lost(&view.nexus);
        }
    }
    if may_stay(catalog, view) {
        if changed {
            for seen in &mut view.units {
                seen.attention.raise(Sense::REPORTED_LUNS_CHANGED);
            }
        }
        warn_of_depth(engine, view);
    } else {
        let Nexus { initiator, target } = &*view.nexus;
        warn!(peer = %connection.peer, initiator = initiator.name, target,
            "initiator no longer authorised; logout requested");
        wire.request_logout(LEAVE_WITHIN_SECONDS);
        let within = Duration::from_secs(LEAVE_WITHIN_SECONDS.into());
        connection.leave_by = Some(engine.set.now + within);
    }
    engine.set.actions.push_back(ConnectionAction::Write(*id));
}

/// Tells a session that the gateway leaves. `kept`: its listeners stay, and connections wait there for its successor.
pub(crate) fn take_leave(engine: &mut CommandEngine, connection: &mut Connection, kept: bool) {
    let id = connection.id;
    if connection.view.is_some()
        && let Some(wire) = connection.iscsi()
    {
        wire.announce_drop(if kept { 0 } else { COME_BACK_AFTER_SECONDS }, 0);
        engine.set.actions.push_back(ConnectionAction::Write(id));
    }
}

const SMALL_WINDOW: &str = "the command window is smaller than rate times response time of the contract: this session \
                            alone does not reach it";

/// How long a session that may not stay has for logging out.
const LEAVE_WITHIN_SECONDS: u16 = 10;

/// When hosts try again after the gateway has left, and its listeners with it.
const COME_BACK_AFTER_SECONDS: u16 = 2;
