//! One path: a portal, the session there, and what becomes of it when it is lost.

use super::flight::Flight;
use super::network::Stream;
use super::session::Session;
use crate::limits::Tally;
use std::net::SocketAddr;
use weir_flow::clock::{Duration, Instant};
use weir_flow::path::Access;
use weir_flow::request::PathId;
use weir_flow::rng::Rng;
use weir_wire::iscsi::initiator::Isid;

/// A path to an upstream.
pub(super) struct Path<S> {
    /// Index of the upstream.
    pub(super) upstream: usize,
    pub(super) id: PathId,
    pub(super) portal: SocketAddr,
    /// What the log calls it.
    pub(super) who: String,
    /// The initiator's part of the session's name: the same for every session on this path, so that a
    /// new one ends the one before at the target (RFC 7143, 6.3.5).
    pub(super) isid: Isid,
    pub(super) link: Link<S>,
    /// When the last try began.
    pub(super) began: Instant,
    /// Where the target has sent it for the next try.
    pub(super) redirect: Option<SocketAddr>,
    /// Tries that have failed in a row.
    pub(super) tries: u32,
    /// Since when operations are taken.
    pub(super) ready_since: Instant,
    /// The data path has been told that it works.
    pub(super) told_up: bool,
    /// How it may be used, and when the target is asked again if that is not at all.
    pub(super) access: Access,
    pub(super) look_at: Instant,
    /// It is left as soon as nothing is under way on it.
    pub(super) leaves: bool,
    /// The portal group that answers there, once that is known.
    pub(super) group: Option<u16>,
    pub(super) fence: Fence<S>,
    /// Why it does not work.
    pub(super) failure: Option<String>,
    pub(super) failures: Tally,
}

/// What there is of a session.
pub(super) enum Link<S> {
    /// None; when the next is tried.
    Down(Instant),
    /// One, and when it must be of use.
    Up(Box<Session<S>>, Instant),
}

/// Operations that the target may still be doing, although their session is gone.
///
/// They are answered when the target has confirmed that the session is dead to it: by letting in another
/// one of the same name, here or on a portal of the same group, or by resetting the unit.
pub(super) struct Fence<S> {
    pub(super) held: Vec<Flight>,
    pub(super) since: Instant,
    /// A session of the path's name on another portal, and when it must be let in.
    pub(super) helper: Option<(Box<Session<S>>, Instant)>,
    /// How often another portal was tried, and when it may be again.
    pub(super) tries: u32,
    pub(super) next: Instant,
    /// When the unit may be reset.
    pub(super) reset_at: Instant,
}

impl<S> Fence<S> {
    const fn new() -> Self {
        let at = Instant::ZERO;
        Self { held: Vec::new(), since: at, helper: None, tries: 0, next: at, reset_at: at }
    }

    /// Holds operations whose end is unknown.
    pub(super) fn hold(&mut self, flights: Vec<Flight>, now: Instant) {
        if flights.is_empty() {
            return;
        }
        if self.held.is_empty() {
            (self.since, self.tries) = (now, 0);
            (self.next, self.reset_at) = (now + HELP_AFTER, now + RESET_AFTER);
        }
        self.held.extend(flights);
    }
}

impl<S: Stream> Path<S> {
    pub(super) fn new(
        upstream: usize,
        id: PathId,
        portal: SocketAddr,
        who: String,
        isid: Isid,
    ) -> Self {
        Self {
            upstream,
            id,
            portal,
            who,
            isid,
            link: Link::Down(Instant::ZERO),
            began: Instant::ZERO,
            redirect: None,
            // Only who had a good session is tried again at once.
            tries: 1,
            ready_since: Instant::ZERO,
            told_up: false,
            access: Access::Optimized,
            look_at: Instant::ZERO,
            leaves: false,
            group: None,
            fence: Fence::new(),
            failure: None,
            failures: Tally::default(),
        }
    }

    /// The session, if there is one.
    pub(super) fn session(&mut self) -> Option<&mut Session<S>> {
        match &mut self.link {
            Link::Up(session, _) => Some(session),
            Link::Down(_) => None,
        }
    }

    /// Whether operations are taken.
    pub(super) fn is_ready(&self) -> bool {
        matches!(&self.link, Link::Up(session, _) if session.is_ready()) && !self.leaves
    }

    /// Whether it is being connected.
    pub(super) fn is_on_its_way(&self) -> bool {
        matches!(&self.link, Link::Up(session, _) if !session.is_ready())
    }

    /// When something is to be done about it without being told.
    pub(super) fn next(&self) -> Option<Instant> {
        let link = match &self.link {
            Link::Down(at) => Some(*at),
            Link::Up(session, by) => {
                let by = (!session.is_ready() || self.leaves).then_some(*by);
                let look =
                    (session.is_ready() && !self.access.is_accessible()).then_some(self.look_at);
                [session.next(), by, look].into_iter().flatten().min()
            }
        };
        let fence = match &self.fence.helper {
            _ if self.fence.held.is_empty() => None,
            Some((_, by)) => Some((*by).min(self.fence.reset_at)),
            None => Some(self.fence.next.min(self.fence.reset_at)),
        };
        [link, fence].into_iter().flatten().min()
    }

    /// How long to wait before the next try: not at all after a session that was good for a while, then
    /// twice as long each time up to a bound, with chance, so that many gateways do not come at once.
    pub(super) fn wait(&self, at_most: Duration, chance: &mut Rng) -> Duration {
        let Some(doublings) = self.tries.checked_sub(1) else { return Duration::ZERO };
        let wait = RETRY_FIRST.as_nanos() << doublings.min(20);
        let wait = wait.min(at_most.as_nanos() / 5 * 4);
        Duration::from_nanos(wait - wait / 4 + chance.below(wait / 2 + 1)).min(at_most)
    }
}

/// A session that was good for so long has its successor tried at once.
pub(super) const GOOD_AFTER: Duration = Duration::from_secs(2);

/// The wait before the second try.
const RETRY_FIRST: Duration = Duration::from_millis(50);

/// Another portal is asked to confirm the end of a session when its own has not for so long.
const HELP_AFTER: Duration = Duration::from_millis(100);

/// The unit is reset, where no other portal can confirm, when its own has not for so long.
const RESET_AFTER: Duration = Duration::from_millis(500);

/// How often a path that the target takes nothing on is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often another portal is asked, and how often the unit is reset, while nobody confirms.
pub(super) const HELP_EVERY: Duration = Duration::from_millis(500);
pub(super) const RESET_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    /// The wait doubles up to its bound, is never longer, and is spread by chance.
    #[test]
    fn tries_are_spread() {
        let portal = "192.0.2.1:3260".parse().unwrap();
        let mut path: Path<mio::net::TcpStream> =
            Path::new(0, PathId::new(0), portal, String::new(), Isid([0; 6]));
        let mut chance = Rng::stream(1, "tries");
        let most = Duration::from_secs(2);
        path.tries = 0;
        assert_eq!(path.wait(most, &mut chance), Duration::ZERO);
        path.tries = 3;
        let waits: Vec<_> = (0..100).map(|_| path.wait(most, &mut chance).as_nanos()).collect();
        let (least, longest) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!((150_000_000..170_000_000).contains(least), "{least}");
        assert!((230_000_000..=250_000_000).contains(longest), "{longest}");
        path.tries = u32::MAX;
        let waits: Vec<_> = (0..100).map(|_| path.wait(most, &mut chance)).collect();
        assert!(waits.iter().all(|&wait| wait * 2 > most && wait <= most));
        assert!(waits.iter().filter(|&&wait| wait * 10 > most * 9).count() < 50, "no crowd");
    }
}
