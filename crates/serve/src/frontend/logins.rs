//! Who may log in now, and who was turned away.

use super::login_throttle::{Login, LoginThrottle};
use super::turned_away::TurnedAway;
use crate::source::Source;
use weir_flow::clock::{Duration, Instant};
use weir_wire::iscsi::target_role::LoginStatus;

/// The guesses and the refusals of all connections.
#[derive(Debug)]
pub(crate) struct Logins {
    throttle: LoginThrottle,
    pub(crate) turned_away: TurnedAway,
}

impl Logins {
    pub(crate) fn new() -> Self {
        Self { throttle: LoginThrottle::new(), turned_away: TurnedAway::new() }
    }

    /// For how long these credentials are not checked; zero if they may be checked now. A login that has to wait is
    /// turned away.
    pub(crate) fn wait(
        &mut self,
        login: Login,
        source: Source,
        initiator: &str,
        now: Instant,
    ) -> Duration {
        let wait = self.throttle.wait(login, now);
        if wait > Duration::ZERO {
            self.turned_away.note(now, (source, THROTTLED), wait, Some(initiator));
        }
        wait
    }

    /// The credentials were right.
    pub(crate) fn proved(&mut self, login: Login, now: Instant) {
        self.throttle.proved(login, now);
    }

    /// A login was refused, with `guess` because its credentials were wrong. Returns for how long such logins are turned
    /// away now.
    pub(crate) fn refused(
        &mut self,
        now: Instant,
        (source, initiator): (Source, &str),
        status: LoginStatus,
        guess: Option<Login>,
    ) -> Duration {
        let wait = guess.map_or(Duration::ZERO, |login| self.throttle.guessed(login, now));
        // These were noted when the connection was turned away, before the host said its name.
        let why = match status {
            LoginStatus::OutOfResources => {
                self.turned_away.name(source, FULL, initiator);
                return wait;
            }
            // It is to use another portal.
            LoginStatus::TargetMovedTemporarily | LoginStatus::TargetMovedPermanently => {
                return wait;
            }
            LoginStatus::ServiceUnavailable => STOPPING,
            other => other.name(),
        };
        self.turned_away.note(now, (source, why), wait, Some(initiator));
        wait
    }
}

/// Why hosts are turned away, apart from the statuses of logins.
pub(crate) const FULL: &str = "the limit of connections is reached";
const THROTTLED: &str = "too many failed logins";
const STOPPING: &str = "the gateway is stopping";

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    /// A guess after which logins have to wait says so at once, not when the next one is turned away.
    #[test]
    fn the_guess_that_begins_a_wait_shows_it() {
        let (mut logins, source) = (Logins::new(), Source::of(IpAddr::from([192, 0, 2, 7])));
        let guess = Login::new(source, "alice", "host");
        let mut waits = Vec::new();
        for second in 10..17 {
            let now = Instant::ZERO + Duration::from_secs(second);
            assert_eq!(logins.wait(guess, source, "host", now), Duration::ZERO);
            let status = LoginStatus::AuthenticationFailure;
            let wait = logins.refused(now, (source, "host"), status, Some(guess));
            let shown = &logins.turned_away.hosts(now)[0];
            assert_eq!((shown.why, shown.retry_after), (status.name(), wait));
            waits.push(wait.as_nanos() / 1_000_000_000);
        }
        assert_eq!(waits, [0, 0, 0, 0, 0, 1, 2]);
    }
}
