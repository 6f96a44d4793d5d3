//! How much room each tenant has left, and what its hosts are told of it.
//!
//! The pipeline refuses what goes past a tenant's bounds. That a host which keeps to its command window
//! never gets there is seen to here: the sessions of a tenant share its requests, and its bytes by the
//! size that its commands have. So the window closes as commands are held, and a host that goes over to
//! larger commands is given fewer of them at a time; what it was told before cannot be taken back, so it
//! may be refused once. NBD has no window: a connection is not read from while its tenant has no room.
//!
//! Windows are shared out anew when a session comes or goes, or when a tenant's commands become larger
//! or have all been smaller for a while; not for each command.

use crate::frontend::session_view::Seat;
use crate::ids::ConnectionId;
use crate::tasks::table::Task;
use crate::tasks::{Desk, Errand, Held};
use std::collections::{BTreeSet, VecDeque};
use weir_flow::pipeline::Limits;

/// The rooms of all tenants, by id.
#[derive(Debug)]
pub(crate) struct Rooms {
    requests: u32,
    bytes: u64,
    tenants: Vec<Room>,
}

/// What one tenant's hosts use.
#[derive(Debug)]
struct Room {
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

impl Default for Room {
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

impl Rooms {
    /// Nobody uses anything.
    pub(crate) const fn new(limits: &Limits) -> Self {
        Self {
            requests: limits.max_tenant_requests,
            bytes: limits.max_tenant_bytes,
            tenants: Vec::new(),
        }
    }

    /// Tenants may come while the gateway runs.
    fn room(&mut self, tenant: usize) -> &mut Room {
        if self.tenants.len() <= tenant {
            self.tenants.resize_with(tenant + 1, Room::default);
        }
        &mut self.tenants[tenant]
    }

    /// Commands that each session of a tenant may have outstanding, for `more` sessions than are counted.
    fn share(&self, tenant: usize, more: u32) -> u32 {
        let first = Room::default();
        let room = self.tenants.get(tenant).unwrap_or(&first);
        let sessions = room.sessions.saturating_add(more).max(1);
        let by_bytes = (self.bytes >> room.size_log2) / u64::from(sessions);
        let by_bytes = u32::try_from(by_bytes).unwrap_or(u32::MAX);
        (self.requests / sessions).min(by_bytes).max(1)
    }

    /// Whether another command with this payload is sure of its place. One alone always is.
    fn holds(&mut self, tenant: usize, payload: u64) -> bool {
        let (requests, bytes) = (self.requests, self.bytes);
        let room = self.room(tenant);
        room.requests == 0 || room.requests < requests && room.bytes + payload <= bytes
    }

    /// Counts a command; true if windows are to be shared out anew because of its size.
    fn enter(&mut self, tenant: usize, payload: u64) -> bool {
        let room = self.room(tenant);
        room.requests += 1;
        room.bytes += payload;
        let log2 = |bytes: u64| bytes.max(SIZE_MIN).next_power_of_two().ilog2();
        let before = room.size_log2;
        if payload > 1 << before {
            room.size_log2 = log2(payload);
        }
        if payload > 1 << (before - 1) {
            (room.smaller, room.largest) = (0, 0);
        } else {
            (room.smaller, room.largest) = (room.smaller + 1, room.largest.max(payload));
            if room.smaller >= LATELY {
                room.size_log2 = log2(room.largest);
                (room.smaller, room.largest) = (0, 0);
            }
        }
        room.size_log2 != before
    }

    /// A connection is gone.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        for room in &mut self.tenants {
            room.waiting.retain(|&waiting| waiting != id);
        }
    }

    /// Takes a command out of the count, and names a connection that waits for the room.
    fn leave(&mut self, tenant: usize, payload: u64) -> Option<ConnectionId> {
        let room = self.room(tenant);
        room.requests -= 1;
        room.bytes -= payload;
        room.waiting.pop_front()
    }
}

impl Desk {
    /// The tenants that a session may send commands for; one may come more than once.
    fn tenants_of(&self, seat: Option<&Seat>) -> impl Iterator<Item = usize> {
        let units = seat.map_or(&[][..], |seat| &seat.units).iter();
        let claim = seat.and_then(|seat| seat.claim);
        units.map(move |seen| self.tenant(claim, seen.volume).index())
    }

    /// The command window of a session, for `more` sessions than are counted: its share of what the
    /// pipeline takes, and of the room that each of its tenants has, so that a host meets its window before
    /// it meets a full task set.
    pub(crate) fn window_of(&self, seat: Option<&Seat>, more: u32) -> u32 {
        let share = self.tenants_of(seat).map(|tenant| self.rooms.share(tenant, more)).min();
        self.window().min(share.unwrap_or(u32::MAX))
    }

    /// Counts the sessions of each tenant anew.
    pub(crate) fn count_sessions<'a>(&mut self, all: impl Iterator<Item = &'a Seat>) {
        for room in &mut self.rooms.tenants {
            room.sessions = 0;
        }
        for seat in all {
            let tenants: BTreeSet<usize> = self.tenants_of(Some(seat)).collect();
            for tenant in tenants {
                self.rooms.room(tenant).sessions += 1;
            }
        }
    }

    /// Whether there is room for a request of an NBD client, whom no tenant claims by name; it is told when there may be, if not.
    pub(crate) fn has_room(&mut self, id: ConnectionId, volume: usize, held: Held) -> bool {
        let tenant = self.tenant(None, volume).index();
        let holds = self.rooms.holds(tenant, held.payload());
        if !holds {
            self.rooms.room(tenant).waiting.push_back(id);
        }
        holds
    }

    /// Counts a command for the medium that is taken in.
    pub(crate) fn enter_room(&mut self, task: &mut Task) {
        let tenant = self.tenant(task.claim, task.volume).index();
        task.room = Some((tenant, task.held));
        if self.rooms.enter(tenant, task.held) {
            self.errands.push_back(Errand::Share);
        }
    }

    /// A command that was counted has ended.
    pub(crate) fn leave_room(&mut self, task: &Task) {
        let Some((tenant, payload)) = task.room else { return };
        if let Some(id) = self.rooms.leave(tenant, payload) {
            self.errands.push_back(Errand::Feed(id));
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

    fn rooms(requests: u32, bytes: u64) -> Rooms {
        Rooms::new(&Limits {
            max_tenant_requests: requests,
            max_tenant_bytes: bytes,
            ..Limits::default()
        })
    }

    /// The sessions of a tenant share its requests, so that all windows together stay within them; one
    /// command is always possible.
    #[test]
    fn sessions_share_the_requests() {
        let mut rooms = rooms(64, 64 << 20);
        for (sessions, share) in [(1, 64), (2, 32), (3, 21), (64, 1), (100, 1)] {
            rooms.room(3).sessions = sessions;
            assert_eq!(rooms.share(3, 0), share, "{sessions}");
        }
        rooms.room(3).sessions = 1;
        assert_eq!((rooms.share(3, 1), rooms.share(9, 0)), (32, 64));
    }

    /// A large command narrows the share at once, many small ones widen it again, and a few do not.
    #[test]
    fn commands_are_counted_by_their_size() {
        let mut rooms = rooms(4_096, 64 << 20);
        assert_eq!(rooms.share(0, 0), 128);
        assert!(rooms.enter(0, 3 << 20));
        assert_eq!(rooms.share(0, 0), 16);
        for _ in 1..LATELY {
            assert!(!rooms.enter(0, 4_096));
        }
        assert!(!rooms.enter(0, 3 << 20), "the large ones are still there");
        for _ in 1..LATELY {
            assert!(!rooms.enter(0, 4_096));
        }
        assert!(rooms.enter(0, 512));
        assert_eq!(rooms.share(0, 0), 4_096);
    }

    /// Beyond the bounds there is no room but for a command that is alone, and what ends makes room.
    #[test]
    fn a_room_is_full() {
        let mut rooms = rooms(2, 8_192);
        assert!(rooms.holds(0, 1 << 20));
        rooms.enter(0, 4_096);
        assert!(rooms.holds(0, 4_096) && !rooms.holds(0, 4_097));
        rooms.enter(0, 512);
        assert!(!rooms.holds(0, 0));
        assert!(rooms.holds(1, 8_192));
        assert_eq!(rooms.leave(0, 512), None);
        let id = ConnectionId { index: 7, serial: 9 };
        rooms.room(0).waiting.push_back(id);
        assert!(rooms.holds(0, 4_096));
        assert_eq!(rooms.leave(0, 4_096), Some(id));
    }
}
