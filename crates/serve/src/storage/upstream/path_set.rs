//! The paths of one upstream: which of them work, and what the pipeline knows of them.

use super::context::{Context, isid};
use super::held_writes::Helped;
use super::network::Network;
use super::path::{Link, Path};
use super::retry::Pace;
use super::session::Loss;
use super::start::UnreachablePath;
use crate::config;
use std::net::SocketAddr;
use std::ops::{Index, IndexMut};
use tracing::info;
use weir_flow::clock::Instant;
use weir_flow::path::Access;
use weir_flow::pipeline::Input;
use weir_flow::request::{BackendId, PathId};

/// The paths of an upstream, in the order of its portals.
pub(super) struct PathSet<N: Network> {
    pub(super) config: config::Upstream,
    /// The backend that the upstream is to the pipeline.
    pub(super) backend: BackendId,
    all: Vec<Path<N::Stream>>,
}

impl<N: Network> Index<usize> for PathSet<N> {
    type Output = Path<N::Stream>;

    fn index(&self, index: usize) -> &Self::Output {
        &self.all[index]
    }
}

impl<N: Network> IndexMut<usize> for PathSet<N> {
    fn index_mut(&mut self, index: usize) -> &mut Self::Output {
        &mut self.all[index]
    }
}

impl<N: Network> PathSet<N> {
    /// Paths without a session. `first`: the number of the first among those of all upstreams.
    pub(super) fn new(
        config: &config::Upstream,
        backend: BackendId,
        first: usize,
        node: &str,
    ) -> Self {
        let path = |(number, portal): (usize, &config::Portal)| {
            let who = format!("{} path {number} ({})", config.name, portal.address);
            let isid = isid(&[node, &config.name, &config.target], number);
            Path::new(PathId::new(number as u32), first + number, portal.address, who, isid)
        };
        let all = config.portals.iter().enumerate().map(path).collect();
        Self { config: config.clone(), backend, all }
    }

    /// Number of paths.
    pub(super) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Path<N::Stream>> {
        self.all.iter()
    }

    /// A path that takes operations.
    pub(super) fn first_ready(&self) -> Option<usize> {
        self.all.iter().position(Path::is_ready)
    }

    /// The paths that take operations.
    pub(super) fn ready(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|&index| self.all[index].is_ready()).collect()
    }

    /// A path other than this one that takes operations.
    pub(super) fn other_ready(&self, index: usize) -> Option<usize> {
        (0..self.all.len()).find(|&other| other != index && self.all[other].is_ready())
    }

    /// The portals of other paths that take operations and are of the same group.
    fn portals_of_group(&self, index: usize) -> Vec<SocketAddr> {
        let group = self.all[index].group;
        let same = |(other, path): &(usize, &Path<N::Stream>)| {
            *other != index && path.is_ready() && path.group.is_some() && path.group == group
        };
        self.all.iter().enumerate().filter(same).map(|(_, path)| path.portal).collect()
    }

    /// Why each path does not work.
    pub(super) fn reasons(&self) -> Vec<UnreachablePath> {
        let path = |path: &Path<N::Stream>| {
            let waits = match &path.link {
                Link::Up(session, _) => Some(session.waits_for()),
                Link::Down(_) => None,
            };
            let reason = path.attempts.failure.clone().or(waits.map(str::to_owned));
            let reason = reason.unwrap_or_else(|| String::from("it was not tried yet"));
            UnreachablePath { portal: path.portal, reason }
        };
        self.all.iter().map(path).collect()
    }

    /// How often paths connect now.
    fn pace(&self) -> Pace {
        Pace::new(&self.config, self.all.iter().any(|path| path.reported_up))
    }

    /// Starts a session on a path. `fenced`: another gateway owns the unit.
    pub(super) fn begin(&mut self, context: &mut Context<N>, index: usize, fenced: bool) {
        if context.closing || fenced {
            self.all[index].postpone(context.now);
            return;
        }
        let pace = self.pace();
        if let Err(loss) = self.all[index].connect(context, &self.config, pace) {
            self.connect_later(context, index, &loss);
        }
    }

    /// Schedules the next session of a path after this loss.
    pub(super) fn connect_later(&mut self, context: &mut Context<N>, index: usize, loss: &Loss) {
        let pace = self.pace();
        self.all[index].connect_later(context, loss, pace);
    }

    /// The target reports the ALUA state of a path.
    pub(super) fn report_access(&mut self, context: &mut Context<N>, index: usize, access: Access) {
        let up = self.all[index].set_access(access, context.now);
        if !access.is_accessible() {
            // An operation that was refused there ends as a failure of the path, which needs a repair later.
            self.report_down(context, index);
        }
        let id = self.all[index].id;
        // Before the repair: otherwise a path that is repaired and not accessible would change twice.
        context.input(Input::PathAccess(self.backend, id, access));
        if up {
            context.input(Input::PathUp(self.backend, id));
        }
    }

    /// Reports that a path does not work, unless the pipeline knows.
    pub(super) fn report_down(&mut self, context: &mut Context<N>, index: usize) {
        let path = &mut self.all[index];
        if !std::mem::replace(&mut path.reported_up, false) {
            return;
        }
        context.input(Input::PathDown(self.backend, path.id));
        if self.all.iter().any(|path| path.reported_up) {
            return;
        }
        // The last path is lost: scheduled attempts are made earlier.
        let pace = self.pace();
        for path in &mut self.all {
            path.hurry(context, pace);
        }
    }

    /// Reports each path that has not worked yet as down.
    pub(super) fn report_missing(&self, context: &mut Context<N>) {
        for path in self.all.iter().filter(|path| !path.reported_up) {
            context.input(Input::PathDown(self.backend, path.id));
        }
    }

    /// Reports that operations on a path end at once, since the upstream is fenced.
    pub(super) fn report_fenced(&self, context: &mut Context<N>, index: usize) {
        let id = self.all[index].id;
        context.input(Input::PathAccess(self.backend, id, Access::Optimized));
        context.input(Input::PathUp(self.backend, id));
    }

    /// The target requests a logout: no operation is started on the path, and those in flight end.
    pub(super) fn logout_requested(&mut self, context: &mut Context<N>, index: usize) {
        let path = &mut self.all[index];
        info!(upstream = path.who, "the target requests a logout");
        path.logout_requested = true;
        let by = context.now + self.config.login_timeout;
        path.set_deadline(|_| by);
        self.report_down(context, index);
    }

    /// The target has confirmed that the old session of a path is dead.
    pub(super) fn confirm(&mut self, context: &mut Context<N>, index: usize) {
        let Path { held, who, .. } = &mut self.all[index];
        held.confirm(context, who);
    }

    /// Does what is due for the writes of a path's lost session; whether the unit is to be reset.
    pub(super) fn tick_held(&mut self, context: &mut Context<N>, index: usize) -> bool {
        if !self.all[index].held.tick(context) {
            return false;
        }
        let portals = self.portals_of_group(index);
        let Path { held, who, number, isid, .. } = &mut self.all[index];
        let helped = Helped { config: &self.config, isid: *isid, number: *number, who };
        held.ask_another_portal(context, &portals, &helped);
        held.takes_reset(context.now, portals.is_empty())
    }

    /// When something is due on a path without an event.
    pub(super) fn next(&self) -> Option<Instant> {
        self.all.iter().filter_map(Path::next).min()
    }
}
