//! How much room each tenant has left, and what its hosts are told of it.
//!
//! The pipeline refuses what goes past a tenant's bounds. That a host which keeps to its command window
//! never gets there is seen to here: the sessions of a tenant share its requests, and its bytes by the
//! size that its commands have. So the window closes as commands are held, and a host that goes over to
//! larger commands is given fewer of them at a time; what it was told before cannot be taken back, so it
//! may be refused once. NBD has no window: a connection is not read from while its tenant has no quota.
//!
//! Windows are shared out anew when a session comes or goes, or when a tenant's commands become larger
//! or have all been smaller for a while; not for each command.

use crate::ids::ConnectionId;
use crate::tasks::ConnectionAction;
use crate::tasks::set::TaskSet;
use crate::tasks::table::Task;
use std::collections::{BTreeSet, VecDeque};
use weir_flow::pipeline::Limits;

/// The rooms of all tenants, by id.
#[derive(Debug)]
pub(crate) struct TenantQuotas {
    requests: u32,
    bytes: u64,
    tenants: Vec<Quota>,
}

/// What one tenant's hosts use.
#[derive(Debug)]
struct Quota {
    /// Commands for the medium that were taken in and have not ended, and their payload.
    requests: u32,
    bytes: u64,
    /// Sessions that may send more.
    sessions: u32,
    /// The payload that a command is taken to have, as a power of two: that of the largest one lately.
    size_log2: u32,
    /// Commands in a row that were smaller than half of that, and the largest of them.
    smaller: u32,
    largest: u64,
    /// NBD connections that wait for room, in order.
    waiting: VecDeque<ConnectionId>,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            requests: 0,
            bytes: 0,
            sessions: 0,
            size_log2: FIRST_SIZE_LOG2,
            smaller: 0,
            largest: 0,
            waiting: VecDeque::new(),
        }
    }
}

impl TenantQuotas {
    /// Nothing is in use.
    pub(crate) const fn new(limits: &Limits) -> Self {
        Self {
            requests: limits.max_tenant_requests,
            bytes: limits.max_tenant_bytes,
            tenants: Vec::new(),
        }
    }

    /// Tenants may come while the gateway runs.
    fn quota(&mut self, tenant: usize) -> &mut Quota {
        if self.tenants.len() <= tenant {
            self.tenants.resize_with(tenant + 1, Quota::default);
        }
        &mut self.tenants[tenant]
    }

    /// Commands that each session of a tenant may have outstanding, for `more` sessions than are counted.
    fn share(&self, tenant: usize, more: u32) -> u32 {
        let first = Quota::default();
        let quota = self.tenants.get(tenant).unwrap_or(&first);
        let sessions = quota.sessions.saturating_add(more).max(1);
        let by_bytes = (self.bytes >> quota.size_log2) / u64::from(sessions);
        let by_bytes = u32::try_from(by_bytes).unwrap_or(u32::MAX);
        (self.requests / sessions).min(by_bytes).max(1)
    }

    /// Whether another command with this payload is sure of its place. One alone always is.
    fn holds(&mut self, tenant: usize, payload: u64) -> bool {
        let (requests, bytes) = (self.requests, self.bytes);
        let quota = self.quota(tenant);
        quota.requests == 0 || quota.requests < requests && quota.bytes + payload <= bytes
    }

    /// Counts the sessions of each tenant anew: one item for each session, its tenants, which may come
    /// more than once.
    pub(crate) fn count_sessions<T: Iterator<Item = usize>>(
        &mut self,
        sessions: impl Iterator<Item = T>,
    ) {
        for quota in &mut self.tenants {
            quota.sessions = 0;
        }
        for tenants in sessions {
            for tenant in tenants.collect::<BTreeSet<usize>>() {
                self.quota(tenant).sessions += 1;
            }
        }
    }

    /// Whether there is room for a command of a connection that has no window; the connection is fed when
    /// there may be, if not.
    pub(crate) fn has_room(&mut self, id: ConnectionId, tenant: usize, payload: u64) -> bool {
        let holds = self.holds(tenant, payload);
        if !holds {
            self.quota(tenant).waiting.push_back(id);
        }
        holds
    }

    /// Counts a command; true if windows are to be shared out anew because of its size.
    fn enter(&mut self, tenant: usize, payload: u64) -> bool {
        let quota = self.quota(tenant);
        quota.requests += 1;
        quota.bytes += payload;
        let log2 = |bytes: u64| bytes.max(SIZE_MIN).next_power_of_two().ilog2();
        let before = quota.size_log2;
        if payload > 1 << before {
            quota.size_log2 = log2(payload);
        }
        if payload > 1 << (before - 1) {
            (quota.smaller, quota.largest) = (0, 0);
        } else {
            (quota.smaller, quota.largest) = (quota.smaller + 1, quota.largest.max(payload));
            if quota.smaller >= LATELY {
                quota.size_log2 = log2(quota.largest);
                (quota.smaller, quota.largest) = (0, 0);
            }
        }
        quota.size_log2 != before
    }

    /// A connection is gone.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        for quota in &mut self.tenants {
            quota.waiting.retain(|&waiting| waiting != id);
        }
    }

    /// Takes a command out of the count, and names a connection that waits for the quota.
    fn leave(&mut self, tenant: usize, payload: u64) -> Option<ConnectionId> {
        let quota = self.quota(tenant);
        quota.requests -= 1;
        quota.bytes -= payload;
        quota.waiting.pop_front()
    }
}

impl TaskSet {
    /// What the pipeline takes, shared equally by all sessions: no command window is larger.
    fn window(&self) -> u32 {
        let share = self.max_requests / self.sessions.count().max(1);
        self.window_max.min(share.max(1) as u32)
    }

    /// The command window of a session that sends commands for these tenants, if `more` sessions than are
    /// counted were there: its share of the requests that the pipeline takes, and of the quota of each of
    /// its tenants, so that a host meets its window before it meets a full task set.
    pub(crate) fn window_of(&self, tenants: impl Iterator<Item = usize>, more: u32) -> u32 {
        let share = tenants.map(|tenant| self.quotas.share(tenant, more)).min();
        self.window().min(share.unwrap_or(u32::MAX))
    }

    /// Counts a command for the medium that is taken in.
    pub(super) fn enter_quota(&mut self, tenant: usize, task: &mut Task) {
        task.quota = Some((tenant, task.held));
        if self.quotas.enter(tenant, task.held) {
            self.actions.push_back(ConnectionAction::Share);
        }
    }

    /// A command that was counted has ended.
    pub(super) fn leave_quota(&mut self, task: &Task) {
        let Some((tenant, payload)) = task.quota else { return };
        if let Some(id) = self.quotas.leave(tenant, payload) {
            self.actions.push_back(ConnectionAction::Feed(id));
        }
    }
}

/// What commands are taken to carry before any has come: 512 KiB, the most that many hosts send at once.
const FIRST_SIZE_LOG2: u32 = 19;

/// Commands that carry less are taken to carry so much, in bytes.
const SIZE_MIN: u64 = 4 << 10;

/// So many smaller commands in a row show that commands have become smaller.
const LATELY: u32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas(requests: u32, bytes: u64) -> TenantQuotas {
        TenantQuotas::new(&Limits {
            max_tenant_requests: requests,
            max_tenant_bytes: bytes,
            ..Limits::default()
        })
    }

    /// The sessions of a tenant share its requests, so that all windows together stay within them; one
    /// command is always possible.
    #[test]
    fn sessions_share_the_requests() {
        let mut quotas = quotas(64, 64 << 20);
        for (sessions, share) in [(1, 64), (2, 32), (3, 21), (64, 1), (100, 1)] {
            quotas.quota(3).sessions = sessions;
            assert_eq!(quotas.share(3, 0), share, "{sessions}");
        }
        quotas.quota(3).sessions = 1;
        assert_eq!((quotas.share(3, 1), quotas.share(9, 0)), (32, 64));
    }

    /// A large command narrows the share at once, many small ones widen it again, and a few do not.
    #[test]
    fn commands_are_counted_by_their_size() {
        let mut quotas = quotas(4_096, 64 << 20);
        assert_eq!(quotas.share(0, 0), 128);
        assert!(quotas.enter(0, 3 << 20));
        assert_eq!(quotas.share(0, 0), 16);
        for _ in 1..LATELY {
            assert!(!quotas.enter(0, 4_096));
        }
        assert!(!quotas.enter(0, 3 << 20), "the large ones are still there");
        for _ in 1..LATELY {
            assert!(!quotas.enter(0, 4_096));
        }
        assert!(quotas.enter(0, 512));
        assert_eq!(quotas.share(0, 0), 4_096);
    }

    /// Beyond the bounds there is no room but for a command that is alone, and what ends makes room.
    #[test]
    fn a_room_is_full() {
        let mut quotas = quotas(2, 8_192);
        assert!(quotas.holds(0, 1 << 20));
        quotas.enter(0, 4_096);
        assert!(quotas.holds(0, 4_096) && !quotas.holds(0, 4_097));
        quotas.enter(0, 512);
        assert!(!quotas.holds(0, 0));
        assert!(quotas.holds(1, 8_192));
        assert_eq!(quotas.leave(0, 512), None);
        let id = ConnectionId { index: 7, serial: 9 };
        quotas.quota(0).waiting.push_back(id);
        assert!(quotas.holds(0, 4_096));
        assert_eq!(quotas.leave(0, 4_096), Some(id));
    }
}
