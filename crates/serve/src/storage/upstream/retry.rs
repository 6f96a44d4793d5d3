//! When a path that does not work is tried again.
//!
//! While another path works, waits double up to `reconnect_interval_max`: nobody is held up. While none does, somebody
//! is, so that every path is tried each second, and one whose portal takes no connection is not waited for
//! longer than that. Chance spreads the tries, and an upstream with many paths has no more than
//! [`TRIES_A_SECOND`], so that storage that comes back is not met by a storm.

use super::network::Network;
use super::path::Link;
use super::session::Loss;
use super::{Upstream, Upstreams};
use std::ops::Range;
use tracing::warn;
use weir_flow::clock::Duration;

impl<N: Network> Upstreams<N> {
    /// Notes why a path does not work, and when it is tried again.
    pub(super) fn failed(&mut self, index: usize, loss: &Loss) {
        let at_most = self.reconnect_interval_max(self.paths[index].upstream);
        let path = &mut self.paths[index];
        let text = loss.to_string();
        if !self.closing && (path.failures.speaks() || path.failure.as_ref() != Some(&text)) {
            let failures_total = path.failures.total();
            warn!(upstream = path.who, reason = text, failures_total, "path lost");
        }
        path.failure = Some(text);
        if let Loss::Redirected(address) = loss {
            path.redirect = address.parse().ok();
        }
        let wait = path.wait(at_most, &mut self.chance);
        path.tries = path.tries.saturating_add(1);
        let at = if self.works(self.paths[index].upstream) {
            self.now + wait
        } else {
            // A try that took its time was one all the same.
            self.now.max(self.paths[index].began + wait)
        };
        self.paths[index].link = Link::Down(at);
    }

    /// The connection of a path is made: all of its login has the time that it has.
    pub(super) fn connected(&mut self, index: usize) {
        let path = &mut self.paths[index];
        let within = self.all[path.upstream].config.login_timeout;
        if let Link::Up(_, by) = &mut path.link {
            *by = path.began + within;
        }
    }

    /// The last path of an upstream may have been lost: those that wait for their next try wait no longer
    /// than is right then.
    pub(super) fn hurry(&mut self, upstream: usize) {
        if self.works(upstream) {
            return;
        }
        let (now, at_most) = (self.now, self.reconnect_interval_max(upstream));
        let connect = self.connection_within(upstream);
        for index in self.paths_of(upstream) {
            let wait = self.paths[index].wait(at_most, &mut self.chance);
            match &mut self.paths[index].link {
                Link::Down(at) => *at = (*at).min(now + wait),
                Link::Up(session, by) if session.is_connecting() => *by = (*by).min(now + connect),
                Link::Up(..) => {}
            }
        }
    }

    /// How long a connection of an upstream may take to be made.
    pub(super) fn connection_within(&self, upstream: usize) -> Duration {
        let within = self.all[upstream].config.login_timeout;
        if self.works(upstream) { within } else { within.min(EVERY_SECOND) }
    }

    /// The longest wait between two tries of a path, as things are.
    fn reconnect_interval_max(&self, upstream: usize) -> Duration {
        let at_most = self.all[upstream].config.reconnect_interval_max;
        if self.works(upstream) {
            return at_most;
        }
        let paths = self.paths_of(upstream).len() as u64;
        // A wait is four fifths of its bound in the mean.
        let apart = Duration::from_nanos(EVERY_SECOND.as_nanos() * 5 / 4 / TRIES_A_SECOND);
        at_most.min(EVERY_SECOND.max(apart * paths))
    }

    /// Whether a path of an upstream works.
    fn works(&self, upstream: usize) -> bool {
        self.paths_of(upstream).any(|index| self.paths[index].told_up)
    }

    fn paths_of(&self, upstream: usize) -> Range<usize> {
        let Upstream { first, config, .. } = &self.all[upstream];
        *first..first + config.portals.len()
    }
}

/// A path is tried so often while no path of its upstream works.
const EVERY_SECOND: Duration = Duration::from_secs(1);

/// Most tries of an upstream in a second, in the mean, while none of its paths works.
const TRIES_A_SECOND: u64 = 16;

#[cfg(test)]
mod tests {
    use super::super::network::Tcp;
    use super::super::session::SessionEvent;
    use super::super::testing::remotes;
    use super::*;
    use weir_flow::clock::Instant;

    const SECOND: Duration = Duration::from_secs(1);

    /// When the next try of a path is, or when a session must be of use.
    fn due(remotes: &Upstreams<Tcp>, index: usize) -> Instant {
        match remotes.paths[index].link {
            Link::Down(at) => at,
            Link::Up(_, by) => by,
        }
    }

    /// Has a path fail so often that its waits grow no more; the time until its next try.
    fn worn(remotes: &mut Upstreams<Tcp>, index: usize) -> Duration {
        for _ in 0..20 {
            remotes.paths[index].began = remotes.now;
            remotes.failed(index, &Loss::LoggedOut);
        }
        due(remotes, index).since(remotes.now)
    }

    /// While no path of an upstream works each is tried every second, and not all at once; while one
    /// works, the others are left alone for longer; when it is lost as well, they wait no longer.
    #[test]
    fn without_a_path_each_is_tried_every_second() {
        let (_portal, mut remotes) = remotes(2);
        let waits: Vec<_> = (0..100).map(|_| worn(&mut remotes, 0)).collect();
        assert!(waits.iter().all(|&wait| wait <= SECOND && wait * 2 > SECOND), "{waits:?}");
        assert!(waits.iter().max() > waits.iter().min(), "chance spreads them");
        remotes.paths[1].told_up = true;
        let wait = worn(&mut remotes, 0);
        assert!(wait > SECOND * 2, "{wait}");
        remotes.tell_down(1);
        let wait = due(&remotes, 0).since(remotes.now);
        assert!(wait <= SECOND, "{wait}");
    }

    /// An upstream with many paths is not tried more often for that.
    #[test]
    fn many_paths_are_no_storm() {
        let (_portal, mut remotes) = remotes(64);
        let waits: Vec<_> = (0..64).map(|index| worn(&mut remotes, index)).collect();
        let second = |wait: &Duration| wait.as_nanos() as f64 / 1e9;
        let tries: f64 = waits.iter().map(|wait| 1.0 / second(wait)).sum();
        assert!(tries < 18.0, "{tries} tries a second");
    }

    /// A connection that nobody takes is given up after a second while no path works, and the next try
    /// follows at once; one that is made has all the time of a login.
    #[test]
    fn an_untaken_connection_is_one_try() {
        let (_portal, mut remotes) = remotes(2);
        worn(&mut remotes, 0);
        let began = due(&remotes, 0);
        remotes.now = began;
        remotes.begin(0);
        assert_eq!(due(&remotes, 0), began + SECOND);
        remotes.now = began + SECOND;
        remotes.tick_path(0);
        assert!(matches!(remotes.paths[0].link, Link::Down(at) if at == remotes.now));
        remotes.begin(0);
        remotes.take(0, SessionEvent::Connected).expect("it goes on");
        assert_eq!(due(&remotes, 0), remotes.now + SECOND * 3);
        remotes.paths[1].told_up = true;
        remotes.begin(0);
        assert_eq!(due(&remotes, 0), remotes.now + SECOND * 3);
        remotes.tell_down(1);
        assert_eq!(due(&remotes, 0), remotes.now + SECOND);
    }
}
