//! The quota of each tenant: commands and bytes in use, and the share of each of its sessions.
//!
//! The pipeline refuses requests beyond a tenant's bounds. A host that keeps to its command window never gets
//! there: the sessions of a tenant share its requests, and its bytes by the size of its commands. So the window
//! closes as commands are held, and a host that changes to larger commands gets a smaller window. A window that was
//! granted cannot be taken back, so one command may be refused then. NBD has no window: a connection is not read
//! while its tenant's quota is used up.
//!
//! Windows are computed again when a session starts or ends, or when a tenant's commands have become larger or
//! smaller; not for each command.
//!
//! Invariant: a tenant's count is the sum over its tasks ([`Charge::quota`](crate::tasks::table::Charge::quota)).

use crate::ids::ConnectionId;
use std::collections::{BTreeSet, VecDeque};
use weir_flow::pipeline::Limits;

/// The quotas of all tenants, by id.
#[derive(Debug)]
pub(crate) struct TenantQuotas {
    requests: u32,
    bytes: u64,
    tenants: Vec<Quota>,
}

/// What the hosts of one tenant use.
#[derive(Debug)]
struct Quota {
    /// Commands for the medium that have not ended, and their payload in bytes.
    requests: u32,
    bytes: u64,
    /// Sessions that may send commands.
    sessions: u32,
    /// The payload that a command is assumed to have, as a power of two: that of the largest recent one.
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
    pub(super) fn share(&self, tenant: usize, more: u32) -> u32 {
        let first = Quota::default();
        let quota = self.tenants.get(tenant).unwrap_or(&first);
        let sessions = quota.sessions.saturating_add(more).max(1);
        let by_bytes = (self.bytes >> quota.size_log2) / u64::from(sessions);
        let by_bytes = u32::try_from(by_bytes).unwrap_or(u32::MAX);
        (self.requests / sessions).min(by_bytes).max(1)
    }

    /// Whether the pipeline will take another command with this payload. It always takes one alone.
    fn holds(&mut self, tenant: usize, payload: u64) -> bool {
        let (requests, bytes) = (self.requests, self.bytes);
        let quota = self.quota(tenant);
        quota.requests == 0 || quota.requests < requests && quota.bytes + payload <= bytes
    }

    /// Counts the sessions of each tenant: one item for each session, its tenants, with repetitions.
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

    /// Whether there is room for a command of a connection that has no window. If not, the connection is read again
    /// when a command of the tenant has ended.
    pub(crate) fn has_room(&mut self, id: ConnectionId, tenant: usize, payload: u64) -> bool {
        let holds = self.holds(tenant, payload);
        if !holds {
            self.quota(tenant).waiting.push_back(id);
        }
        holds
    }

    /// Counts a command; true if windows are to be computed again because of its size.
    pub(super) fn enter(&mut self, tenant: usize, payload: u64) -> bool {
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

    /// Counts a command no longer; the connection that has waited longest for the quota.
    pub(super) fn leave(&mut self, tenant: usize, payload: u64) -> Option<ConnectionId> {
        let quota = self.quota(tenant);
        quota.requests = quota.requests.checked_sub(1).expect("a command leaves its quota once");
        quota.bytes =
            quota.bytes.checked_sub(payload).expect("a command leaves with what it entered");
        quota.waiting.pop_front()
    }
}

/// The assumed payload before the first command: 512 KiB, the most that many hosts send at once.
const FIRST_SIZE_LOG2: u32 = 19;

/// The least assumed payload, in bytes.
const SIZE_MIN: u64 = 4 << 10;

/// This number of smaller commands in a row shows that commands have become smaller.
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

    /// Beyond the bounds only a command that is alone has room, and a command that ends makes room.
    #[test]
    fn a_quota_is_full() {
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

    /// A command leaves its quota once: otherwise the tenant could have more commands than its bound.
    #[test]
    #[should_panic(expected = "leaves its quota once")]
    fn a_command_leaves_once() {
        let mut quotas = quotas(2, 8_192);
        quotas.enter(0, 512);
        quotas.leave(0, 512);
        quotas.leave(0, 0);
    }

    /// It leaves with the bytes that it entered with.
    #[test]
    #[should_panic(expected = "leaves with what it entered")]
    fn a_command_leaves_with_its_bytes() {
        let mut quotas = quotas(2, 8_192);
        quotas.enter(0, 512);
        quotas.leave(0, 4_096);
    }
}
