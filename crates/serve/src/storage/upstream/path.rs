//! One path: a portal, its session, and the writes of sessions that are over.

use super::context::Context;
use super::held_writes::HeldWrites;
use super::network::{Network, Stream};
use super::retry::{Attempts, GOOD_AFTER, Pace, When};
use super::session::{Loss, PATH_FAILED, Session, ended};
use crate::config;
use std::net::SocketAddr;
use tracing::info;
use weir_flow::clock::{Duration, Instant};
use weir_flow::path::Access;
use weir_flow::request::PathId;
use weir_wire::iscsi::initiator::Isid;

/// A path to an upstream.
pub(super) struct Path<S> {
    pub(super) id: PathId,
    /// Its number among the paths of all upstreams. Its socket has twice that number, the helper's the next one.
    pub(super) number: usize,
    pub(super) portal: SocketAddr,
    /// Its name in the log.
    pub(super) who: String,
    /// The initiator's part of the session name: the same for every session on this path, so that a new one ends
    /// the one before at the target (RFC 7143, 6.3.5).
    pub(super) isid: Isid,
    pub(super) link: Link<S>,
    pub(super) attempts: Attempts,
    /// The pipeline takes the path for usable.
    pub(super) reported_up: bool,
    /// The ALUA state, and when the target is asked for it again while the path is not accessible.
    pub(super) access: Access,
    pub(super) access_check_at: Instant,
    /// The target has requested a logout: the session ends when it is idle.
    pub(super) logout_requested: bool,
    /// The portal group that answers there, once it is known.
    pub(super) group: Option<u16>,
    pub(super) held: HeldWrites<S>,
    /// It is in the list of paths that have output to write.
    pub(super) listed: bool,
}

/// The session of a path.
pub(super) enum Link<S> {
    /// None; the time of the next attempt.
    Down(Instant),
    /// One, and the time by which it must be usable, or over.
    Up(Box<Session<S>>, Instant),
}

impl<S: Stream> Path<S> {
    /// A path without a session.
    pub(super) fn new(
        id: PathId,
        number: usize,
        portal: SocketAddr,
        who: String,
        isid: Isid,
    ) -> Self {
        Self {
            id,
            number,
            portal,
            who,
            isid,
            link: Link::Down(Instant::ZERO),
            attempts: Attempts::new(),
            reported_up: false,
            access: Access::Optimized,
            access_check_at: Instant::ZERO,
            logout_requested: false,
            group: None,
            held: HeldWrites::new(),
            listed: false,
        }
    }

    /// The session, if there is one.
    pub(super) fn session(&mut self) -> Option<&mut Session<S>> {
        match &mut self.link {
            Link::Up(session, _) => Some(session),
            Link::Down(_) => None,
        }
    }

    /// Whether it takes operations.
    pub(super) fn is_ready(&self) -> bool {
        matches!(&self.link, Link::Up(session, _) if session.is_ready()) && !self.logout_requested
    }

    /// Whether a session is being made.
    pub(super) fn is_starting(&self) -> bool {
        matches!(&self.link, Link::Up(session, _) if !session.is_ready())
    }

    /// When a session is started next; the past while one is, `None` while there is one.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        match &self.link {
            Link::Down(at) => Some(*at),
            Link::Up(session, _) => (!session.is_ready()).then_some(Instant::ZERO),
        }
    }

    /// When something is due without an event.
    pub(super) fn next(&self) -> Option<Instant> {
        let link = match &self.link {
            Link::Down(at) => Some(*at),
            Link::Up(session, by) => {
                let by = (!session.is_ready() || self.logout_requested).then_some(*by);
                let check = session.is_ready() && !self.access.is_accessible();
                let check = check.then_some(self.access_check_at);
                [session.next(), by, check].into_iter().flatten().min()
            }
        };
        [link, self.held.next()].into_iter().flatten().min()
    }

    /// Connects; the reason why that cannot even be tried.
    pub(super) fn connect<N: Network<Stream = S>>(
        &mut self,
        context: &mut Context<N>,
        config: &config::Upstream,
        pace: Pace,
    ) -> Result<(), Loss> {
        let now = context.now;
        let address = self.attempts.start(self.portal, now);
        let session =
            context.open(config, self.isid, address, 2 * self.number).map_err(Loss::Broken)?;
        self.link = Link::Up(session, now + pace.connect_timeout);
        self.logout_requested = false;
        Ok(())
    }

    /// Stays without a session for now, since none may be started.
    pub(super) fn postpone(&mut self, now: Instant) {
        self.link = Link::Down(now + GOOD_AFTER);
    }

    /// Takes the session, which is over.
    pub(super) fn take_session(&mut self, now: Instant) -> Option<Box<Session<S>>> {
        match std::mem::replace(&mut self.link, Link::Down(now)) {
            Link::Up(session, _) => Some(session),
            down @ Link::Down(_) => {
                self.link = down;
                None
            }
        }
    }

    /// Closes a session that was taken, and ends its operations. Writes that the target may still execute are held.
    pub(super) fn bury<N: Network<Stream = S>>(
        &mut self,
        context: &mut Context<N>,
        mut session: Session<S>,
        loss: &Loss,
    ) {
        context.network.forget(session.stream());
        if session.is_ready() {
            self.attempts.session_ended(context.now);
        }
        let remains = session.bury(matches!(loss, Loss::GivenUp | Loss::Late(_)));
        for ended in remains.ended {
            context.end(ended);
        }
        for operation in remains.dead {
            context.end(ended(operation, PATH_FAILED));
        }
        let unknown = remains.unknown.len();
        if unknown > 0 {
            info!(
                upstream = self.who,
                unknown, "writes wait until the old session is known to be dead"
            );
        }
        self.held.hold(remains.unknown, context.now);
    }

    /// Schedules the next attempt after this loss.
    pub(super) fn connect_later<N: Network>(
        &mut self,
        context: &mut Context<N>,
        loss: &Loss,
        pace: Pace,
    ) {
        let Context { now, closing, jitter, .. } = context;
        let mut when = When { now: *now, closing: *closing, jitter };
        let at = self.attempts.failed(loss, &self.who, pace, &mut when);
        self.link = Link::Down(at);
    }

    /// Brings a scheduled attempt forward to the pace of now, and the deadline of a connection too.
    pub(super) fn hurry<N: Network>(&mut self, context: &mut Context<N>, pace: Pace) {
        let now = context.now;
        let wait = self.attempts.wait(pace, &mut context.jitter);
        match &mut self.link {
            Link::Down(at) => *at = (*at).min(now + wait),
            Link::Up(session, by) if session.is_connecting() => {
                *by = (*by).min(now + pace.connect_timeout);
            }
            Link::Up(..) => {}
        }
    }

    /// The connection is established: the login must be over this long after the start of the attempt.
    pub(super) fn connected(&mut self, login_timeout: Duration) {
        let started = self.attempts.started;
        self.set_deadline(|_| started + login_timeout);
    }

    /// Changes when the session must be usable, or over.
    pub(super) fn set_deadline(&mut self, change: impl FnOnce(Instant) -> Instant) {
        if let Link::Up(_, by) = &mut self.link {
            *by = change(*by);
        }
    }

    /// Whether the target is to be asked for the ALUA state now; if so it is asked again a while later.
    pub(super) fn takes_access_check(&mut self, now: Instant) -> bool {
        let due = !self.access.is_accessible() && self.access_check_at <= now;
        if due {
            self.access_check_at = now + ACCESS_CHECK_INTERVAL;
        }
        due
    }

    /// Notes the ALUA state that the target reports; whether the path works, which is news for the pipeline.
    pub(super) fn set_access(&mut self, access: Access, now: Instant) -> bool {
        if self.access != access {
            info!(upstream = self.who, %access, "the target reports the ALUA state of the path");
        }
        (self.access, self.access_check_at) = (access, now + ACCESS_CHECK_INTERVAL);
        access.is_accessible() && self.is_ready() && !std::mem::replace(&mut self.reported_up, true)
    }

    /// Logs out if the target has requested it and nothing is in flight; whether there is something to write.
    pub(super) fn log_out_if_idle(&mut self) -> bool {
        match &mut self.link {
            Link::Up(session, _)
                if self.logout_requested && session.is_ready() && session.is_idle() =>
            {
                session.log_out();
                true
            }
            _ => false,
        }
    }
}

/// How often the target is asked for the ALUA state of a path that is not accessible.
const ACCESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);
