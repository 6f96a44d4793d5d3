//! The connections with bytes to handle, and which of them is next.
//!
//! Hosts that have not logged in are read once per round. For the others [`Intake`] decides by the weights of their
//! tenants, so that shares hold if the thread of the gateway is the bottleneck.
//!
//! Invariant: a tenant is ready in the intake if, and only if, its lane has a connection.

use std::collections::VecDeque;
use weir_flow::accept::intake::Intake;
use weir_flow::dispatch::Shares;
use weir_flow::request::TenantId;

/// The connections with bytes to handle, by index.
#[derive(Debug)]
pub(super) struct ReadQueue {
    /// Those of the next round.
    arrived: VecDeque<usize>,
    /// Those of this round, by tenant.
    lanes: Vec<VecDeque<usize>>,
    /// Connections in all lanes.
    queued: usize,
    intake: Intake,
}

impl ReadQueue {
    /// Empty.
    pub(super) fn new(shares: &Shares) -> Self {
        Self { arrived: VecDeque::new(), lanes: Vec::new(), queued: 0, intake: Intake::new(shares) }
    }

    /// Tenants have other weights from now on.
    pub(super) fn set_weights(&mut self, shares: &Shares) {
        self.intake.set_weights(shares);
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.arrived.is_empty() && self.queued == 0
    }

    /// Adds a connection for the next round.
    pub(super) fn push(&mut self, index: usize) {
        self.arrived.push_back(index);
    }

    /// Begins a round; the number of connections that have come since the last one.
    pub(super) fn begin_round(&mut self) -> usize {
        self.intake.begin_round();
        self.arrived.len()
    }

    /// A connection that has come since the last round.
    pub(super) fn take_arrived(&mut self) -> Option<usize> {
        self.arrived.pop_front()
    }

    /// Adds a connection of a tenant to this round.
    pub(super) fn enter(&mut self, tenant: TenantId, index: usize) {
        if self.lanes.len() <= tenant.index() {
            self.lanes.resize_with(tenant.index() + 1, VecDeque::new);
        }
        self.lanes[tenant.index()].push_back(index);
        self.queued += 1;
        self.intake.ready(tenant);
    }

    /// The next connection of this round, and its tenant; `None` if the round is over. To be followed by
    /// [`took`](Self::took).
    pub(super) fn next(&mut self) -> Option<(TenantId, usize)> {
        let tenant = self.intake.choose()?;
        let index =
            self.lanes[tenant.index()].pop_front().expect("a ready tenant has a connection");
        self.queued -= 1;
        Some((tenant, index))
    }

    /// Commands of this cost were taken in from the connection that [`next`](Self::next) has returned.
    /// `left_over`: it has more of them.
    pub(super) fn took(&mut self, tenant: TenantId, index: usize, cost: u64, left_over: bool) {
        let lane = &mut self.lanes[tenant.index()];
        if left_over {
            lane.push_back(index);
            self.queued += 1;
        }
        self.intake.took(tenant, cost, !lane.is_empty());
    }
}
