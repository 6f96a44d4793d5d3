//! What the answers of a server change, and how long a client waits after a failure.

use super::{Client, Events, State, Step};
use crate::isns::attribute::{self, Attribute};
use crate::isns::codes::{Function, Status, tag};
use crate::isns::fault::{Failure, Fault};
use crate::isns::message::Message;
use crate::isns::objects::Object;
use std::net::SocketAddr;
use std::time::Duration;

impl Client {
    /// Takes in a message: an answer, or a request of the server on this connection (RFC 4171, section 2.9.1).
    pub(super) fn message(&mut self, now: Duration, message: &Message) -> Result<(), Fault> {
        if !message.function.is_answer() {
            let own = self.own();
            if let Some(notice) = self.channel.answer(message, &own)? {
                self.notice(now, notice);
            }
            return Ok(());
        }
        let unexpected = Err(Fault::Unexpected(message.function));
        let State::Asking { step, transaction, .. } = &self.state else { return unexpected };
        let function = step.function();
        if (message.function, message.transaction) != (function.answer(), *transaction)
            || !self.channel.has_asked()
        {
            return unexpected;
        }
        let step = step.clone();
        let (status, payload) = message.status()?;
        self.answered = Some(now);
        if status != Status::SUCCESS {
            self.refused(now, step, status);
            return Ok(());
        }
        match step {
            Step::Register(objects) => self.ledger.registered(objects),
            Step::Deregister(objects) => self.ledger.deregistered(&objects),
            Step::Events => self.events = Events::Registered,
            Step::Check(object) => {
                self.checked(now, &object, &attribute::all(payload)?);
                return Ok(());
            }
        }
        self.proceed(now);
        Ok(())
    }

    /// The server has answered a check.
    fn checked(&mut self, now: Duration, object: &Object, attributes: &[Attribute<'_>]) {
        if !self.ledger.has().contains(object) {
            // Something else was wanted since it was asked for.
            return self.proceed(now);
        }
        // Before the delimiter the key is repeated, also where there is no such object.
        let shown = attribute::operating(attributes);
        match object {
            Object::Portal(portal) if self.shows(*portal, shown) => {
                let period = shown.iter().find(|one| one.tag == tag::PERIOD);
                if let Some(period) = period.and_then(|one| one.number()).filter(|one| *one > 0) {
                    self.period = period.min(self.settings.period);
                }
            }
            Object::Node { name, .. } if names(shown, name) => {}
            // Or it is there, and the gateway does not see it: then this is all that can be done.
            Object::Node { target: true, .. } => self.ledger.lost(object),
            _ => return self.lost(now, Failure::NotShown),
        }
        self.proceed(now);
    }

    /// Whether attributes show a portal of the entity, with the port for callbacks.
    fn shows(&self, portal: SocketAddr, shown: &[Attribute<'_>]) -> bool {
        let entity = |one: &Attribute<'_>| {
            let text = one.text().filter(|_| one.tag == tag::ENTITY);
            text.is_some_and(|text| text.to_lowercase() == self.settings.entity)
        };
        // An attribute belongs to the portal before it.
        let mut starts = shown.windows(2).enumerate();
        let start = starts.find(|(_, pair)| attribute::portals(pair).next() == Some(portal));
        let own = start.map_or(&[][..], |(at, _)| &shown[at + 2..]);
        let own = own.iter().take_while(|one| one.tag != tag::PORTAL_ADDRESS);
        let callback = own.filter(|one| one.tag == tag::EVENT_PORT).find_map(|one| one.number());
        shown.iter().any(entity) && callback == Some(self.ledger.callback.into())
    }

    /// The server does not have the registration: it is made again, at once for the first time.
    pub(super) fn lost(&mut self, now: Duration, failure: Failure) {
        self.forget();
        if self.again || self.leaving.is_some() {
            return self.fail(now, failure);
        }
        self.again = true;
        self.failure = Some((now, failure));
        self.proceed(now);
    }

    /// The server has refused a request.
    fn refused(&mut self, now: Duration, step: Step, status: Status) {
        let failure = Failure::Refused(step.function(), status);
        match (status, &step) {
            (Status::BUSY | Status::INTERNAL_ERROR, _) => return self.fail(now, failure),
            (
                Status::NO_SUCH_ENTRY,
                Step::Deregister(_) | Step::Check(Object::Node { target: true, .. }),
            ) => {}
            (Status::SOURCE_UNKNOWN | Status::SOURCE_ABSENT | Status::NO_SUCH_ENTRY, _) => {
                return self.lost(now, failure);
            }
            _ => {}
        }
        match step {
            Step::Events => self.events = Events::Refused,
            Step::Register(_) if status == Status::INQUIRIES_UNAVAILABLE && self.inquiries => {
                self.inquiries = false;
                self.forget();
            }
            // Gone or not, it is not asked for again: that must not keep the rest from being refreshed.
            Step::Deregister(objects) => self.ledger.deregistered(&objects),
            Step::Check(target @ Object::Node { target: true, .. }) => {
                self.ledger.lost(&target);
                return self.proceed(now);
            }
            Step::Check(_) => return self.fail(now, failure),
            Step::Register(objects) => return self.not_taken(now, objects, status),
        }
        self.failure = Some((now, failure));
        self.proceed(now);
    }

    /// The server has refused a registration: the object that it does not take is looked for by halves.
    fn not_taken(&mut self, now: Duration, mut objects: Vec<Object>, status: Status) {
        let has_groups = objects.iter().any(|one| matches!(one, Object::Group(..)));
        if status == Status::FEATURE_NOT_SUPPORTED && has_groups && self.ledger.takes_groups {
            // It makes its own.
            self.ledger.takes_groups = false;
        } else if objects.len() > 1 {
            self.ledger.at_once = objects.len() / 2;
        } else if let Some(object) = objects.pop() {
            let failure = Failure::NotTaken(object.clone(), status);
            let until = now + self.jittered(WAIT_FOR_PEOPLE);
            if !self.ledger.refuse(object, until) {
                return self.fail(now, failure);
            }
            self.failure = Some((now, failure));
            return self.proceed(now);
        }
        self.failure = Some((now, Failure::Refused(Function::REGISTER, status)));
        self.proceed(now);
    }

    /// Ends the connection, and waits: the longer, the more failures there were, and for long when only a person can
    /// put it right. A registration that the server still has is back before it expires.
    pub(super) fn fail(&mut self, now: Duration, failure: Failure) {
        let for_people = match &failure {
            Failure::Refused(_, status) => !matches!(
                *status,
                Status::BUSY
                    | Status::INTERNAL_ERROR
                    | Status::SOURCE_UNKNOWN
                    | Status::SOURCE_ABSENT
                    | Status::NO_SUCH_ENTRY
            ),
            Failure::Fault(_)
            | Failure::NotTaken(..)
            | Failure::BadText(_)
            | Failure::BadEntity => true,
            Failure::Connect(_)
            | Failure::ConnectTimeout
            | Failure::Closed(_)
            | Failure::Silent(_)
            | Failure::NotShown
            | Failure::Removed
            | Failure::NoPortal => false,
        };
        // A server that ends each connection when it has all is not asked all the time.
        if self.connected.take().is_some_and(|at| at + STEADY <= now) {
            self.in_a_row = 0;
        }
        let wait = if for_people { WAIT_FOR_PEOPLE } else { self.backoff() };
        let held = !self.ledger.has().is_empty();
        // With what chance adds it is a third of the period at most.
        let most = Duration::from_secs(self.period.into()) / 3 * 4 / 5;
        let wait = self.jittered(if held { wait.min(most) } else { wait });
        (self.failures, self.failure) = (self.failures.saturating_add(1), Some((now, failure)));
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.channel.reset();
        self.state =
            if self.leaving.is_some() { State::Left } else { State::Waiting { until: now + wait } };
        self.set_phase(now);
    }

    /// 1, 2, 4 to 60 s.
    fn backoff(&self) -> Duration {
        let seconds = 1_u64.checked_shl(self.in_a_row.min(6)).unwrap_or(WAIT_MAX).min(WAIT_MAX);
        Duration::from_secs(seconds)
    }

    /// A time times 0.75 to 1.25.
    fn jittered(&mut self, time: Duration) -> Duration {
        // The generator of Knuth's MMIX: these numbers only have to differ between gateways.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        time * (750 + ((self.random >> 33) % 501) as u32) / 1_000
    }
}

/// Whether attributes show a node.
fn names(shown: &[Attribute<'_>], name: &str) -> bool {
    shown.iter().any(|one| one.tag == tag::NODE_NAME && one.text().as_deref() == Some(name))
}

/// The longest wait after a failure that trying again may cure, in seconds.
const WAIT_MAX: u64 = 60;

/// After a connection that lasted for this time the waits are short again.
const STEADY: Duration = Duration::from_mins(1);

/// The wait after a failure that trying again does not cure.
const WAIT_FOR_PEOPLE: Duration = Duration::from_mins(10);
