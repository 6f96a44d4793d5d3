//! Writes whose session was lost: they are held until the target confirms that the session is dead.
//!
//! The next session of the path confirms it as soon as it is logged in, since it has the same name. While the
//! portal cannot be reached, a short session of that name on another portal of the same group, the helper, does it
//! (RFC 7143, 6.3.5). Where no other portal is of the same group, the unit is reset over another path. A reset ends
//! the commands of every session, so all of them are started again.

use super::context::Context;
use super::network::{Network, Readiness, Stream};
use super::operation::Operation;
use super::session::{Loss, PATH_FAILED, Session, SessionEvent, UnitState, ended};
use crate::config;
use std::net::SocketAddr;
use tracing::{info, warn};
use weir_flow::clock::{Duration, Instant};
use weir_wire::iscsi::initiator::Isid;

/// Operations that the target may still execute, although their session is over.
pub(super) struct HeldWrites<S> {
    held: Vec<Operation>,
    since: Instant,
    /// A session of the path's name on another portal, and when it must be logged in.
    helper: Option<(Box<Session<S>>, Instant)>,
    /// Number of helpers that were started, and when the next may be.
    tries: u32,
    next: Instant,
    /// When the unit may be reset.
    reset_at: Instant,
}

/// What a helper needs to know of its path.
pub(super) struct Helped<'a> {
    pub(super) config: &'a config::Upstream,
    pub(super) isid: Isid,
    pub(super) number: usize,
    pub(super) who: &'a str,
}

impl<S: Stream> HeldWrites<S> {
    pub(super) const fn new() -> Self {
        let at = Instant::ZERO;
        Self { held: Vec::new(), since: at, helper: None, tries: 0, next: at, reset_at: at }
    }

    /// Holds operations whose end is unknown.
    pub(super) fn hold(&mut self, operations: Vec<Operation>, now: Instant) {
        if operations.is_empty() {
            return;
        }
        if self.held.is_empty() {
            (self.since, self.tries) = (now, 0);
            (self.next, self.reset_at) = (now + HELP_AFTER, now + RESET_AFTER);
        }
        assert!(operations.iter().all(Operation::changes), "only writes are held");
        self.held.extend(operations);
    }

    /// When something is due.
    pub(super) fn next(&self) -> Option<Instant> {
        match &self.helper {
            _ if self.held.is_empty() => None,
            Some((_, by)) => Some((*by).min(self.reset_at)),
            None => Some(self.next.min(self.reset_at)),
        }
    }

    /// The target has confirmed that the old session is dead: its writes may be done on another path.
    pub(super) fn confirm<N: Network<Stream = S>>(&mut self, context: &mut Context<N>, who: &str) {
        self.drop_helper(context);
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return;
        }
        let (writes, waited) = (held.len(), context.now.saturating_since(self.since));
        info!(upstream = who, writes, %waited, "the old session is dead to the target");
        for operation in held {
            context.end(ended(operation, PATH_FAILED));
        }
    }

    fn drop_helper<N: Network<Stream = S>>(&mut self, context: &mut Context<N>) {
        if let Some((mut session, _)) = self.helper.take() {
            context.network.forget(session.stream());
        }
    }

    /// Whether writes are held; a helper that is late is dropped.
    pub(super) fn tick<N: Network<Stream = S>>(&mut self, context: &mut Context<N>) -> bool {
        let late = self.helper.as_ref().is_some_and(|&(_, by)| by <= context.now);
        if !self.held.is_empty() && late {
            self.drop_helper(context);
            self.next = context.now;
        }
        !self.held.is_empty()
    }

    /// Starts a helper on one of these portals, one after the other, if that is due.
    pub(super) fn ask_another_portal<N: Network<Stream = S>>(
        &mut self,
        context: &mut Context<N>,
        portals: &[SocketAddr],
        path: &Helped<'_>,
    ) {
        let now = context.now;
        if self.helper.is_some() || self.next > now {
            return;
        }
        self.next = now + HELP_INTERVAL;
        if portals.is_empty() {
            return;
        }
        let portal = portals[self.tries as usize % portals.len()];
        self.tries += 1;
        match context.open(path.config, path.isid, portal, 2 * path.number + 1) {
            Ok(session) => self.helper = Some((session, now + path.config.login_timeout)),
            Err(error) => {
                warn!(upstream = path.who, %portal, %error, "cannot connect to another portal");
            }
        }
    }

    /// Whether the unit is to be reset now; `alone`: no other portal could confirm.
    pub(super) fn takes_reset(&mut self, now: Instant, alone: bool) -> bool {
        if self.reset_at > now {
            return false;
        }
        self.reset_at = now + RESET_INTERVAL;
        alone || self.tries >= HELPERS_MAX
    }

    /// An event of the helper's socket; true if the target has confirmed that the old session is dead.
    pub(super) fn helper_event<N: Network<Stream = S>>(
        &mut self,
        context: &mut Context<N>,
        unit: &mut UnitState<'_>,
        event: Readiness,
    ) -> bool {
        let Some((session, _)) = &mut self.helper else { return false };
        session.note_end(event.ended);
        let result = advance(session, unit, event);
        if unit.events.iter().any(|one| matches!(one, SessionEvent::LoggedIn(_))) {
            session.log_out();
            // The session has done its work; an error no longer matters.
            drop(session.write(unit));
            return true;
        }
        if let Err(loss) = result {
            warn!(upstream = unit.who, reason = %loss, "another portal does not confirm the end of the session");
            self.drop_helper(context);
        }
        false
    }
}

fn advance<S: Stream>(
    session: &mut Session<S>,
    unit: &mut UnitState<'_>,
    event: Readiness,
) -> Result<(), Loss> {
    if event.writable {
        session.writable(unit)?;
    }
    while event.readable && session.read(unit)? {}
    session.write(unit)
}

/// A helper is started when the path's own portal has not confirmed the end of the session for this long.
const HELP_AFTER: Duration = Duration::from_millis(100);

/// The unit is reset, where no other portal can confirm, after this long.
const RESET_AFTER: Duration = Duration::from_millis(500);

/// The interval between helpers, and between resets of the unit, until one confirms.
pub(super) const HELP_INTERVAL: Duration = Duration::from_millis(500);
pub(super) const RESET_INTERVAL: Duration = Duration::from_secs(5);

/// Number of helpers that are started before the unit is reset in spite of other portals.
const HELPERS_MAX: u32 = 3;

#[cfg(test)]
mod tests;
