//! What the answers of a server change, and how long a client waits after a failure.

use super::{Client, Events, State, Step};
use crate::isns::attribute::{self, Attribute};
use crate::isns::codes::{Status, tag};
use crate::isns::fault::{Failure, Fault};
use crate::isns::message::Message;
use crate::isns::objects::Object;
use std::time::Duration;

impl Client {
    /// Takes in an answer.
    pub(super) fn message(&mut self, now: Duration, message: &Message) -> Result<(), Fault> {
        let unexpected = Err(Fault::Unexpected(message.function));
        let State::Asking { step, transaction, .. } = &self.state else { return unexpected };
        let function = step.function();
        if (message.function, message.transaction) != (function.answer(), *transaction) {
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
            Step::Register(objects) => {
                self.at_once = usize::MAX;
                self.has.extend(objects);
                self.shown = false;
            }
            Step::Deregister(objects) => self.deregistered(&objects),
            Step::Events => self.events = Events::Registered,
            Step::Check => {
                self.checked(now, &attribute::all(payload)?);
                return Ok(());
            }
        }
        self.proceed(now);
        Ok(())
    }

    fn deregistered(&mut self, objects: &[Object]) {
        let goes = |one: &Object| objects.iter().any(|object| one.belongs_to(object));
        self.has.retain(|object| !goes(object));
    }

    /// The server has answered a check.
    fn checked(&mut self, now: Duration, attributes: &[Attribute<'_>]) {
        let has = |tag, value: &str| {
            attributes.iter().any(|one| one.tag == tag && one.text().as_deref() == Some(value))
        };
        let number = |tag| attributes.iter().find(|one| one.tag == tag)?.number();
        // The key is repeated before the delimiter, also where there is no such portal.
        let shows = has(tag::ENTITY, &self.settings.entity)
            && attribute::portals(attributes).any(|one| Some(&one) == self.objects.portals.first())
            && number(tag::EVENT_PORT) == Some(self.objects.callback.into());
        if !shows {
            return self.lost(now, Failure::NotShown);
        }
        if let Some(period) = number(tag::PERIOD).filter(|period| *period > 0) {
            self.period = period.min(self.settings.period);
        }
        (self.shown, self.again, self.failures) = (true, false, 0);
        self.proceed(now);
    }

    /// The server does not have the registration: it is made again, at once for the first time.
    fn lost(&mut self, now: Duration, failure: Failure) {
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
        match status {
            Status::SOURCE_UNKNOWN | Status::SOURCE_ABSENT | Status::NO_SUCH_ENTRY => {
                return self.lost(now, failure);
            }
            Status::BUSY | Status::INTERNAL_ERROR => return self.fail(now, failure),
            _ => {}
        }
        match step {
            Step::Events => self.events = Events::Refused,
            Step::Register(_) if status == Status::INQUIRIES_UNAVAILABLE && self.inquiries => {
                self.inquiries = false;
                self.forget();
            }
            // Gone or not, it is not asked for again: that must not keep the rest from being refreshed.
            Step::Deregister(objects) => self.deregistered(&objects),
            Step::Register(objects) => {
                if let [object] = &objects[..] {
                    self.at_once = usize::MAX;
                    let name = object.to_string();
                    if matches!(object, Object::Entity) || Some(object) == self.first().as_ref() {
                        return self.fail(now, Failure::NotTaken(name, status));
                    }
                    self.refused.insert(object.clone(), now + WAIT_FOR_PEOPLE);
                    self.failure = Some((now, Failure::NotTaken(name, status)));
                    return self.proceed(now);
                }
                self.at_once = objects.len() / 2;
            }
            Step::Check => return self.fail(now, failure),
        }
        self.failure = Some((now, failure));
        self.proceed(now);
    }

    /// The portal that checks ask for.
    fn first(&self) -> Option<Object> {
        self.objects.portals.first().copied().map(Object::Portal)
    }

    /// Ends the connection, and waits: the longer, the more failures there were, and for long when only a person can
    /// put it right.
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
            Failure::Fault(_) | Failure::NotTaken(..) => true,
            Failure::Connect(_)
            | Failure::Closed(_)
            | Failure::Silent(_)
            | Failure::NotShown
            | Failure::NoPortal => false,
        };
        let wait = if for_people { WAIT_FOR_PEOPLE } else { self.backoff() };
        (self.failures, self.failure) = (self.failures.saturating_add(1), Some((now, failure)));
        self.output.clear();
        self.state =
            if self.leaving.is_some() { State::Left } else { State::Waiting { until: now + wait } };
        self.set_phase(now);
    }

    /// 1, 2, 4 to 60 s, each times 0.75 to 1.25.
    fn backoff(&mut self) -> Duration {
        let seconds = 1_u64.checked_shl(self.failures.min(6)).unwrap_or(WAIT_MAX).min(WAIT_MAX);
        // The generator of Knuth's MMIX: these numbers only have to differ between gateways.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis(seconds * (750 + (self.random >> 33) % 501))
    }
}

/// The longest wait after a failure, in seconds.
const WAIT_MAX: u64 = 60;

/// The wait after a failure that trying again does not cure.
const WAIT_FOR_PEOPLE: Duration = Duration::from_mins(10);
