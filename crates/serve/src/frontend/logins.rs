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

    /// The credentials were wrong. Returns for how long such logins are turned away now.
    pub(crate) fn guessed(&mut self, login: Login, now: Instant) -> Duration {
        self.throttle.guessed(login, now)
    }

    /// The credentials were right.
    pub(crate) fn proved(&mut self, login: Login, now: Instant) {
        self.throttle.proved(login, now);
    }

    /// A login was refused.
    pub(crate) fn refused(
        &mut self,
        now: Instant,
        source: Source,
        initiator: &str,
        status: LoginStatus,
    ) {
        // These were noted when the connection was turned away, before the host said its name.
        let why = match status {
            LoginStatus::OutOfResources => return self.turned_away.name(source, FULL, initiator),
            // It is to use another portal.
            LoginStatus::TargetMovedTemporarily | LoginStatus::TargetMovedPermanently => return,
            LoginStatus::ServiceUnavailable => STOPPING,
            other => other.name(),
        };
        self.turned_away.note(now, (source, why), Duration::ZERO, Some(initiator));
    }
}

/// Why hosts are turned away, apart from the statuses of logins.
pub(crate) const FULL: &str = "the limit of connections is reached";
const THROTTLED: &str = "too many failed logins";
const STOPPING: &str = "the gateway is stopping";
