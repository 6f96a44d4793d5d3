//! When a path without a session connects again.
//!
//! While another path of the upstream works, the waits of a path double up to `reconnect_interval_max`. While none
//! works, each path is tried once a second, and a connection that is not established within a second is given up.
//! Random jitter spreads the attempts, and an upstream with many paths makes at most [`TRIES_A_SECOND`] attempts,
//! so that recovering storage is not overloaded.

use super::session::Loss;
use crate::config;
use crate::limits::Tally;
use std::net::SocketAddr;
use tracing::warn;
use weir_flow::clock::{Duration, Instant};
use weir_flow::rng::Rng;

/// How often the paths of an upstream connect, as things are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// A path of the upstream works.
    works: bool,
    /// The longest wait between two attempts of a path.
    interval_max: Duration,
    /// How long a connection may take to be established.
    pub(super) connect_timeout: Duration,
}

impl Pace {
    /// The pace of an upstream, of which a path works or not.
    pub(super) fn new(config: &config::Upstream, works: bool) -> Self {
        let (interval_max, login) = (config.reconnect_interval_max, config.login_timeout);
        if works {
            return Self { works, interval_max, connect_timeout: login };
        }
        // A wait is four fifths of its bound in the mean.
        let apart = Duration::from_nanos(EVERY_SECOND.as_nanos() * 5 / 4 / TRIES_A_SECOND);
        let apart = EVERY_SECOND.max(apart * config.portals.len() as u64);
        let interval_max = interval_max.min(apart);
        Self { works, interval_max, connect_timeout: login.min(EVERY_SECOND) }
    }
}

/// The attempts of one path to connect.
#[derive(Debug)]
pub(super) struct Attempts {
    /// When the last one started.
    pub(super) started: Instant,
    /// The portal that the target has named for the next one.
    redirect: Option<SocketAddr>,
    /// Attempts that have failed in a row.
    failed: u32,
    /// When the last session became usable.
    pub(super) ready_since: Instant,
    /// Why the path does not work.
    pub(super) failure: Option<String>,
    failures: Tally,
}

impl Attempts {
    /// No attempt yet.
    pub(super) fn new() -> Self {
        Self {
            started: Instant::ZERO,
            redirect: None,
            // Only a path that had a good session is connected again at once.
            failed: 1,
            ready_since: Instant::ZERO,
            failure: None,
            failures: Tally::default(),
        }
    }

    /// Starts an attempt; the address to connect to.
    pub(super) const fn start(&mut self, portal: SocketAddr, now: Instant) -> SocketAddr {
        self.started = now;
        match self.redirect.take() {
            Some(address) => address,
            None => portal,
        }
    }

    /// A session that operations were given to is over.
    pub(super) fn session_ended(&mut self, now: Instant) {
        if now.saturating_since(self.ready_since) >= GOOD_AFTER {
            self.failed = 0;
        }
    }

    /// Notes why the session is over, and logs it if that is news; the time of the next attempt.
    pub(super) fn failed(
        &mut self,
        loss: &Loss,
        who: &str,
        pace: Pace,
        when: &mut When<'_>,
    ) -> Instant {
        let text = loss.to_string();
        if !when.closing && (self.failures.speaks() || self.failure.as_ref() != Some(&text)) {
            let failures_total = self.failures.total();
            warn!(upstream = who, reason = text, failures_total, "path lost");
        }
        self.failure = Some(text);
        if let Loss::Redirected(address) = loss {
            self.redirect = address.parse().ok();
        }
        let wait = self.wait(pace, when.jitter);
        self.failed = self.failed.saturating_add(1);
        if pace.works {
            when.now + wait
        } else {
            // The time that the attempt took counts as a part of the wait.
            when.now.max(self.started + wait)
        }
    }

    /// The wait before the next attempt: zero after a session that worked for [`GOOD_AFTER`], then twice as long
    /// each time up to the bound of `pace`. Jitter keeps many gateways from connecting at the same time.
    pub(super) fn wait(&self, pace: Pace, jitter: &mut Rng) -> Duration {
        let Some(doublings) = self.failed.checked_sub(1) else { return Duration::ZERO };
        let at_most = pace.interval_max;
        let wait = RETRY_FIRST.as_nanos() << doublings.min(20);
        let wait = wait.min(at_most.as_nanos() / 5 * 4);
        Duration::from_nanos(wait - wait / 4 + jitter.below(wait / 2 + 1)).min(at_most)
    }
}

/// When an attempt has failed.
pub(super) struct When<'a> {
    pub(super) now: Instant,
    /// The gateway stops: the loss of a session is no news.
    pub(super) closing: bool,
    pub(super) jitter: &'a mut Rng,
}

/// After a session that worked for at least this long the path is connected again at once.
pub(super) const GOOD_AFTER: Duration = Duration::from_secs(2);

/// The wait before the second attempt.
const RETRY_FIRST: Duration = Duration::from_millis(50);

/// The interval between attempts of a path while no path of its upstream works.
const EVERY_SECOND: Duration = Duration::from_secs(1);

/// The most attempts of an upstream in a second, in the mean, while none of its paths works.
const TRIES_A_SECOND: u64 = 16;

#[cfg(test)]
mod tests;
