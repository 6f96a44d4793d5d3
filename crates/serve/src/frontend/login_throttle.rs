//! Limits logins: refuses sources that guess secrets for a while, and closes connections that never log in.
//!
//! **Failed logins.** The failures of a source are counted. A source is an IPv4 address, or the first
//! 64 bits of an IPv6 address, since one host has all addresses behind them. The first
//! [`FREE_FAILURES`] cost nothing: people mistype secrets, and many hosts may come through one
//! translated address. After failure number `n` beyond these, further connections of the source are
//! refused for `min(1 s * 2^(n - 1), 60 s)`, counted from the failure: one guess a minute in the long
//! run. Refused connections do not count. [`FORGIVEN_AFTER`] without a failure resets the count. A
//! login that succeeds changes nothing, or a user of one account could guess at the others for free.
//!
//! At most [`SOURCES_MAX`] sources are remembered; one more makes the one forgotten whose last failure
//! is the longest ago. A user of more networks than that is not slowed down by this table, only by
//! the number of connections. Guesses on connections that are open already are not refused: there are
//! never more of them than may wait to log in.
//!
//! **Waiting to log in.** At most `max_logins` connections may be open that have not logged in. One
//! more closes the one that has waited longest, so that hosts get in while one host opens connections
//! and stays silent.
//!
//! All of it costs O(log n) for each connection.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use weir_flow::clock::{Duration, Instant};

/// Failed logins by source, and connections that have not logged in. `Id` names a connection, never two at a
/// time.
#[derive(Debug)]
pub(crate) struct LoginThrottle<Id> {
    sources: BTreeMap<IpAddr, Failures>,
    /// The same sources, by their last failure.
    by_age: BTreeSet<(Instant, IpAddr)>,
    /// Connections that have not logged in, by the order in which they came.
    waiting: BTreeMap<u64, Id>,
    /// Their place in that order.
    places: BTreeMap<Id, u64>,
    next_place: u64,
    max_logins: usize,
}

/// The failures of a source.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Failures {
    /// How long after the last failure connections are refused.
    fn penalty(self) -> Duration {
        match self.count.checked_sub(FREE_FAILURES + 1) {
            None => Duration::ZERO,
            Some(doublings) => (SHORTEST * (1 << doublings.min(32))).min(LONGEST),
        }
    }
}

impl<Id: Copy + Ord> LoginThrottle<Id> {
    /// At most `max_logins` connections (at least 1) may be logging in.
    pub(crate) fn new(max_logins: u32) -> Self {
        Self {
            sources: BTreeMap::new(),
            by_age: BTreeSet::new(),
            waiting: BTreeMap::new(),
            places: BTreeMap::new(),
            next_place: 0,
            max_logins: max_logins.max(1) as usize,
        }
    }

    /// For how much longer connections from `address` are refused; `None` if they are accepted.
    pub(crate) fn refuses(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let failures = self.sources.get(&source_of(address))?;
        let passed = now.saturating_since(failures.last);
        (passed < failures.penalty()).then(|| failures.penalty() - passed)
    }

    /// Counts a failed login from `address`, and returns for how long its connections are refused now;
    /// zero if they are not.
    pub(crate) fn failed(&mut self, address: IpAddr, now: Instant) -> Duration {
        let source = source_of(address);
        let mut count = 0;
        if let Some(old) = self.sources.remove(&source) {
            self.by_age.remove(&(old.last, source));
            if now.saturating_since(old.last) < FORGIVEN_AFTER {
                count = old.count;
            }
        } else if self.sources.len() == SOURCES_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.sources.remove(&oldest);
        }
        let failures = Failures { count: count.saturating_add(1), last: now };
        self.sources.insert(source, failures);
        self.by_age.insert((now, source));
        failures.penalty()
    }

    /// Adds a connection that is logging in. Returns the one that must be closed to make room, which is
    /// removed.
    #[must_use]
    pub(crate) fn enter(&mut self, id: Id) -> Option<Id> {
        if self.places.contains_key(&id) {
            return None;
        }
        self.places.insert(id, self.next_place);
        self.waiting.insert(self.next_place, id);
        self.next_place += 1;
        if self.waiting.len() <= self.max_logins {
            return None;
        }
        let (_, longest) = self.waiting.pop_first()?;
        self.places.remove(&longest);
        Some(longest)
    }

    /// Removes and returns the connection that has waited longest of those that `matches`. O(waiting).
    pub(crate) fn longest(&mut self, matches: impl Fn(Id) -> bool) -> Option<Id> {
        let (&place, &id) = self.waiting.iter().find(|&(_, &id)| matches(id))?;
        self.waiting.remove(&place);
        self.places.remove(&id);
        Some(id)
    }

    /// Removes a connection that has logged in or was closed, if it is there.
    pub(crate) fn leave(&mut self, id: Id) {
        if let Some(place) = self.places.remove(&id) {
            self.waiting.remove(&place);
        }
    }
}

/// The address by which failures are counted.
fn source_of(address: IpAddr) -> IpAddr {
    // A listener for both kinds shows IPv4 hosts as IPv6 addresses that agree in their first 64 bits.
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK)),
        address @ IpAddr::V4(_) => address,
    }
}

/// The bits of an IPv6 address that name a network.
const NETWORK: u128 = !0 << 64;

/// Failed logins of a source that cost nothing.
const FREE_FAILURES: u32 = 5;

/// How long connections are refused after the first failure that counts.
const SHORTEST: Duration = Duration::from_secs(1);

/// How long they are refused at most.
const LONGEST: Duration = Duration::from_secs(60);

/// The count of a source whose last failure is this long ago starts again.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

/// How many sources are remembered.
const SOURCES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "192.0.2.7";

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Five failures are free; from then on the time doubles from one second to a minute.
    #[test]
    fn penalties_double() {
        let mut door = LoginThrottle::<u64>::new(1);
        let penalties: Vec<u64> =
            (0..80).map(|n| door.failed(address(HOST), at(n)).as_nanos() / 1_000_000_000).collect();
        assert_eq!(penalties[..12], [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60]);
        assert!(penalties[12..].iter().all(|&penalty| penalty == 60));
    }

    /// A source is refused until its time is over, and no other source is.
    #[test]
    fn a_source_is_refused_for_its_time() {
        let mut door = LoginThrottle::<u64>::new(1);
        let host = address(HOST);
        for _ in 0..5 {
            assert_eq!(door.refuses(host, at(10)), None);
            assert_eq!(door.failed(host, at(10)), secs(0));
        }
        assert_eq!(door.refuses(host, at(10)), None);
        assert_eq!((door.failed(host, at(10)), door.failed(host, at(10))), (secs(1), secs(2)));
        assert_eq!(door.refuses(host, at(11)), Some(secs(1)));
        assert_eq!(door.refuses(host, at(12)), None);
        assert_eq!(door.refuses(address("192.0.2.8"), at(11)), None);
    }

    /// Ten minutes without a failure reset the count of a source, and not a second less.
    #[test]
    fn failures_are_forgiven() {
        let mut door = LoginThrottle::<u64>::new(1);
        for _ in 0..10 {
            door.failed(address(HOST), at(0));
        }
        assert_eq!(door.failed(address(HOST), at(599)), secs(32));
        assert_eq!(door.failed(address(HOST), at(599 + 600)), secs(0));
    }

    /// An IPv6 network counts as one source, and an IPv4 host as itself in either spelling.
    #[test]
    fn sources_are_networks() {
        let mut door = LoginThrottle::<u64>::new(1);
        for n in 0..6 {
            door.failed(address(&format!("2001:db8:1:2::{n}")), at(0));
            door.failed(address(&format!("::ffff:192.0.2.{n}")), at(0));
        }
        assert_eq!(door.refuses(address("2001:db8:1:2:ffff:ffff::1"), at(0)), Some(secs(1)));
        assert_eq!(door.refuses(address("2001:db8:1:3::1"), at(0)), None);
        assert_eq!(door.refuses(address("::ffff:192.0.2.3"), at(0)), None);
        for _ in 0..5 {
            door.failed(address("192.0.2.3"), at(0));
        }
        assert_eq!(door.refuses(address("::ffff:192.0.2.3"), at(0)), Some(secs(1)));
    }

    /// The table does not grow; the source whose last failure is the oldest is forgotten first.
    #[test]
    fn the_table_is_bounded() {
        let mut door = LoginThrottle::<u64>::new(1);
        let host = |n: usize| IpAddr::from((n as u32).to_be_bytes());
        for n in 0..SOURCES_MAX {
            for _ in 0..12 {
                door.failed(host(n), at(1));
            }
        }
        // The first one is not the oldest any more.
        door.failed(host(0), at(2));
        door.failed(address("2001:db8::1"), at(3));
        assert_eq!((door.sources.len(), door.by_age.len()), (SOURCES_MAX, SOURCES_MAX));
        assert!(door.refuses(host(0), at(3)).is_some());
        assert!(door.refuses(host(1), at(3)).is_none());
        assert!(door.refuses(host(2), at(3)).is_some());
        // A known source replaces no other.
        door.failed(host(0), at(4));
        assert_eq!((door.sources.len(), door.by_age.len()), (SOURCES_MAX, SOURCES_MAX));
        assert!(door.refuses(host(2), at(4)).is_some());
    }

    /// One connection too many closes the one that has waited longest of those that still wait.
    #[test]
    fn the_longest_wait_makes_room() {
        let mut door = LoginThrottle::new(3);
        // Names are not in the order of coming.
        assert!([30, 10, 20].iter().all(|&id| door.enter(id).is_none()));
        assert_eq!(door.enter(5), Some(30));
        door.leave(20);
        assert_eq!((door.enter(40), door.waiting.len()), (None, 3));
        assert_eq!(door.enter(50), Some(10));
        assert_eq!((door.enter(60), door.waiting.len()), (Some(5), 3));
    }

    /// Removing a closed or unknown connection and adding one twice change nothing.
    #[test]
    fn leaving_is_safe() {
        let mut door = LoginThrottle::new(1);
        assert_eq!(door.enter(1), None);
        assert_eq!(door.enter(1), None);
        assert_eq!(door.enter(2), Some(1));
        door.leave(1);
        door.leave(9);
        assert_eq!(door.waiting.len(), 1);
        door.leave(2);
        assert_eq!((door.waiting.len(), door.enter(1)), (0, None));
    }
}
