//! Keeps the registration at one server.
//!
//! | state | meaning | ends with |
//! |---|---|---|
//! | waiting | no connection | the time of the next attempt |
//! | connecting | the shell connects | `connected`, `disconnected`, 5 s |
//! | asking | a request is not answered | its answer, 5 s |
//! | idle | registered | the time of the next check, a change |
//! | left | deregistered | nothing |
//!
//! What is asked next depends only on what the server has acknowledged: objects that it lacks are registered, objects
//! that are no longer wanted are deregistered, events are registered for, and at the end the portals are asked for, and
//! the nodes in turn. So a server that has lost everything, a changed configuration and the first start are one case.

mod answers;
mod channel;
mod ledger;

use crate::isns::callback::{Notice, Own};
use crate::isns::codes::Function;
use crate::isns::fault::Failure;
use crate::isns::objects::{Object, Objects, Shared, is_entity};
use crate::isns::request;
use channel::Channel;
use ledger::{Ledger, Round};
use std::net::SocketAddr;
use std::time::Duration;

/// What a client says about itself, and asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The iSCSI name of the gateway, which all requests come from.
    pub source: String,
    /// Its name for people.
    pub alias: String,
    /// The entity. Its case does not matter: it is registered in lower case, like all names (RFC 4171, section 6.2.1).
    pub entity: String,
    /// Seconds after which the registration expires unless it is refreshed.
    pub period: u32,
    /// Seconds between two inquiries of the server (ESI); 0: none.
    pub inquiries: u32,
    /// What the waits after failures differ by, so that not all gateways come back at once.
    pub seed: u64,
}

/// How far a registration has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There is no connection; the next attempt is later.
    Waiting,
    /// A connection is being made.
    Connecting,
    /// Requests are being answered.
    Registering,
    /// The server shows what is wanted.
    Registered,
    /// The portals are being deregistered.
    Leaving,
    /// They have been.
    Left,
}

/// The state of a client, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// How far the registration has come.
    pub phase: Phase,
    /// Since when.
    pub since: Duration,
    /// When the server last answered.
    pub answered: Option<Duration>,
    /// The last failure, and when it was.
    pub failure: Option<(Duration, Failure)>,
    /// Failures since the server last showed the registration.
    pub failures: u32,
    /// The portals that the server has acknowledged.
    pub portals: Vec<SocketAddr>,
    /// Targets that the server has acknowledged.
    pub targets: usize,
    /// Objects that the server does not take, the last of them in `failure`.
    pub refused: usize,
    /// The next attempt or check.
    pub next: Option<Duration>,
}

#[derive(Debug)]
enum State {
    Waiting { until: Duration },
    Connecting { until: Duration },
    Asking { step: Step, transaction: u16, until: Duration },
    Idle { until: Duration },
    Left,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Register(Vec<Object>),
    Deregister(Vec<Object>),
    Events,
    Check(Object),
}

impl Step {
    const fn function(&self) -> Function {
        match self {
            Self::Register(_) => Function::REGISTER,
            Self::Deregister(_) => Function::DEREGISTER,
            Self::Events => Function::REGISTER_EVENTS,
            Self::Check(_) => Function::QUERY,
        }
    }
}

/// Whether the server notifies of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    NotAsked,
    Registered,
    Refused,
}

/// Keeps the registration at one server. See the module.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    ledger: Ledger,
    channel: Channel,
    state: State,
    events: Events,
    /// Whether ESI are still asked for.
    inquiries: bool,
    /// When the server last inquired.
    inquired: Option<Duration>,
    /// Whether since the last regular check everything was registered again at once: the next time it waits.
    again: bool,
    /// Whether since then a connection was made again at once.
    reopened: bool,
    /// Seconds; the server may give less than was asked for.
    period: u32,
    leaving: Option<Duration>,
    phase: (Phase, Duration),
    answered: Option<Duration>,
    failure: Option<(Duration, Failure)>,
    failures: u32,
    /// When the connection was made, if there is one.
    connected: Option<Duration>,
    /// Failures since a connection lasted: what the wait after one depends on.
    in_a_row: u32,
    random: u64,
}

impl Client {
    /// A client that connects at once.
    pub fn new(mut settings: Settings, now: Duration) -> Self {
        settings.entity = settings.entity.to_lowercase();
        Self {
            inquiries: settings.inquiries > 0,
            period: settings.period,
            random: settings.seed,
            settings,
            ledger: Ledger::default(),
            channel: Channel::default(),
            state: State::Waiting { until: now },
            events: Events::NotAsked,
            inquired: None,
            again: false,
            reopened: false,
            leaving: None,
            phase: (Phase::Waiting, now),
            answered: None,
            failure: None,
            failures: 0,
            connected: None,
            in_a_row: 0,
        }
    }

    /// Whether a connection shall be made now. The shell says then that it [is](Self::connecting).
    pub fn wants_connection(&self, now: Duration) -> bool {
        matches!(self.state, State::Waiting { until } if until <= now)
    }

    /// Whether it uses a connection. If not, the shell closes the one that it has.
    pub const fn uses_connection(&self) -> bool {
        !matches!(self.state, State::Waiting { .. } | State::Left)
    }

    /// A connection is being made.
    pub fn connecting(&mut self, now: Duration) {
        self.state = State::Connecting { until: now + ANSWER_LIMIT };
        self.set_phase(now);
    }

    /// The connection is made; these objects shall be registered.
    pub fn connected(&mut self, now: Duration, objects: Objects) {
        self.channel.reset();
        self.connected = Some(now);
        // The server may have been started again.
        self.events = Events::NotAsked;
        self.want(now, objects);
        self.ledger.connected();
        self.proceed(now);
    }

    /// The connection is lost, or could not be made.
    pub fn disconnected(&mut self, now: Duration, why: Option<String>) {
        let failure = match self.state {
            State::Waiting { .. } | State::Left => return,
            State::Connecting { .. } => why.map_or(Failure::Closed(None), Failure::Connect),
            // Servers end connections on which nothing comes.
            State::Idle { .. } if !self.reopened => {
                self.reopened = true;
                self.channel.reset();
                self.state = State::Waiting { until: now };
                return self.set_phase(now);
            }
            State::Asking { .. } | State::Idle { .. } => Failure::Closed(why),
        };
        self.fail(now, failure);
    }

    /// Other objects shall be registered from now on.
    pub fn change(&mut self, now: Duration, objects: Objects) {
        if !self.want(now, objects) {
            return;
        }
        match self.state {
            State::Idle { .. } => self.proceed(now),
            State::Waiting { .. } => self.retry(now),
            State::Connecting { .. } | State::Asking { .. } | State::Left => {}
        }
    }

    /// Ends a wait after a failure.
    pub fn retry(&mut self, now: Duration) {
        if let State::Waiting { until } = &mut self.state {
            *until = now;
        }
    }

    /// Takes received bytes: how many. The rest is to be passed again with more.
    pub fn receive(&mut self, now: Duration, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while self.uses_connection() {
            match self.channel.take(&bytes[taken..]) {
                Ok((0, _)) => return taken,
                Ok((length, message)) => {
                    taken += length;
                    let told = message.map_or(Ok(()), |message| self.message(now, &message));
                    if let Err(fault) = told {
                        self.fail(now, Failure::Fault(fault));
                    }
                }
                Err(fault) => self.fail(now, Failure::Fault(fault)),
            }
        }
        bytes.len()
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Duration) {
        if self.leaving.is_some_and(|until| until <= now) {
            self.left(now);
        }
        match &self.state {
            State::Connecting { until } if *until <= now => {
                self.fail(now, Failure::ConnectTimeout);
            }
            State::Asking { step, until, .. } if *until <= now => {
                let failure = Failure::Silent(step.function());
                self.fail(now, failure);
            }
            State::Idle { until } if self.due(*until) <= now => {
                self.inquired =
                    self.inquired.filter(|_| self.silent_at().is_none_or(|at| at > now));
                (self.again, self.reopened) = (false, false);
                self.ledger.check(Round::All);
                self.proceed(now);
            }
            _ => {}
        }
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<Duration> {
        let until = match self.state {
            State::Waiting { until }
            | State::Connecting { until }
            | State::Asking { until, .. } => until,
            State::Idle { until } => self.due(until),
            State::Left => return None,
        };
        Some(self.leaving.map_or(until, |leaving| leaving.min(until)))
    }

    /// The bytes that wait to be written.
    pub fn output(&self) -> &[u8] {
        self.channel.output()
    }

    /// The first `n` of them are written.
    pub fn wrote(&mut self, n: usize) {
        self.channel.wrote(n);
    }

    /// Takes in what the server has said by a callback.
    pub fn notice(&mut self, now: Duration, notice: Notice) {
        match (notice, &self.state) {
            (Notice::Inquired, _) => self.inquired = Some(now),
            (Notice::Changed, _) => {}
            (Notice::Removed, State::Idle { .. }) => self.lost(now, Failure::Removed),
            (Notice::Removed, State::Waiting { .. }) if !self.again => {
                self.again = true;
                self.forget();
                self.retry(now);
            }
            (Notice::Removed, _) => self.forget(),
        }
    }

    /// Deregisters the portals, if the server can be asked, within a short time. The node and the targets stay: other
    /// gateways may have them, and their membership of domains outlives them.
    pub fn leave(&mut self, now: Duration) {
        self.leaving.get_or_insert(now + LEAVE_LIMIT);
        let has_portals = self.ledger.portals_there().next().is_some();
        match self.state {
            State::Idle { .. } => self.proceed(now),
            State::Waiting { .. } if has_portals => self.retry(now),
            State::Connecting { .. } if has_portals => {}
            State::Waiting { .. } | State::Connecting { .. } => self.left(now),
            State::Asking { .. } | State::Left => {}
        }
        self.set_phase(now);
    }

    /// There is nothing more to do.
    fn left(&mut self, now: Duration) {
        self.channel.reset();
        self.state = State::Left;
        self.set_phase(now);
    }

    /// Whether there is nothing more to do after [`leave`](Self::leave).
    pub const fn has_left(&self) -> bool {
        matches!(self.state, State::Left)
    }

    /// The state, for operators.
    pub fn view(&self) -> View {
        let portal = |object: &Object| match object {
            Object::Portal(portal) => Some(*portal),
            _ => None,
        };
        let target = |object: &&Object| matches!(object, Object::Node { target: true, .. });
        View {
            phase: self.phase.0,
            since: self.phase.1,
            answered: self.answered,
            failure: self.failure.clone(),
            failures: self.failures,
            portals: self.ledger.has().iter().filter_map(portal).collect(),
            targets: self.ledger.has().iter().filter(target).count(),
            refused: self.ledger.refused(),
            next: self.deadline(),
        }
    }

    /// Takes what is wanted: whether it is something else.
    fn want(&mut self, now: Duration, objects: Objects) -> bool {
        let source = (&*self.settings.source, &*self.settings.alias);
        let (differs, unfit) = self.ledger.want(objects, source);
        if let Some(object) = unfit {
            self.failure = Some((now, Failure::BadText(object)));
        }
        differs
    }

    /// The server has lost the registration.
    fn forget(&mut self) {
        self.ledger.forget();
        if self.events == Events::Registered {
            self.events = Events::NotAsked;
        }
    }

    /// What the gateway is to the server.
    fn own(&self) -> Own {
        let (source, entity) = (self.settings.source.clone(), self.settings.entity.clone());
        Own { source, entity, portals: self.ledger.wanted_portals().collect() }
    }

    /// Why nothing can be registered.
    fn unusable(&self) -> Option<Failure> {
        let Settings { source, alias, entity, .. } = &self.settings;
        let (name, alias) = (source.clone(), Some(alias.clone()));
        let gateway = Object::Node { name, alias, target: false };
        if !gateway.fits() {
            return Some(Failure::BadText(gateway));
        }
        if !is_entity(entity) {
            return Some(Failure::BadEntity);
        }
        self.ledger.wanted_portals().next().is_none().then_some(Failure::NoPortal)
    }

    /// Asks for what is missing next.
    fn proceed(&mut self, now: Duration) {
        let source = &self.settings.source;
        if self.leaving.is_some() {
            let (payload, taken) = request::deregister(source, self.ledger.portals_there());
            if taken.is_empty() {
                return self.left(now);
            }
            return self.ask(now, Step::Deregister(taken), payload);
        }
        if let Some(failure) = self.unusable() {
            return self.fail(now, failure);
        }
        if self.ledger.is_checking() {
            return self.check_next(now);
        }
        self.ledger.try_again(now);
        let shared = Shared {
            entity: &self.settings.entity,
            period: self.settings.period,
            inquiries: self.inquiries.then_some(self.settings.inquiries),
            callback: self.ledger.callback,
        };
        let has_alias = |node: &str| self.ledger.has_alias(node);
        let (payload, taken) = request::register(source, shared, self.ledger.missing(), has_alias);
        if !taken.is_empty() {
            return self.ask(now, Step::Register(taken), payload);
        }
        let (payload, taken) = request::deregister(source, self.ledger.gone());
        if !taken.is_empty() {
            return self.ask(now, Step::Deregister(taken), payload);
        }
        if self.events == Events::NotAsked {
            return self.ask(now, Step::Events, request::events(source));
        }
        self.check_next(now);
    }

    /// Checks the next object; when all are checked the registration is believed.
    fn check_next(&mut self, now: Duration) {
        if let Some(object) = self.ledger.next_check() {
            let payload = request::query(&self.settings.source, &object);
            return self.ask(now, Step::Check(object), payload);
        }
        self.failures = 0;
        self.state = State::Idle { until: self.next_check(now) };
        self.set_phase(now);
    }

    /// When the registration is refreshed and checked.
    fn next_check(&self, now: Duration) -> Duration {
        let parts = if self.events == Events::Refused { 6 } else { 3 };
        now + Duration::from_secs((self.period / parts).max(REFRESH_MIN).into())
    }

    /// The same, or earlier if the server inquired and has ceased to, or if something that was refused is tried again.
    fn due(&self, check: Duration) -> Duration {
        let earlier = self.silent_at().into_iter().chain(self.ledger.next_try());
        earlier.min().map_or(check, |at| at.min(check))
    }

    /// When the server has not inquired for too long.
    fn silent_at(&self) -> Option<Duration> {
        let silence = Duration::from_secs(u64::from(self.settings.inquiries) * INQUIRIES_MISSED);
        self.inquired.filter(|_| self.inquiries).map(|at| at + silence)
    }

    fn ask(&mut self, now: Duration, step: Step, payload: Vec<u8>) {
        let transaction = self.channel.ask(step.function(), payload);
        self.state = State::Asking { step, transaction, until: now + ANSWER_LIMIT };
        self.set_phase(now);
    }

    fn set_phase(&mut self, now: Duration) {
        let was = self.phase.0;
        let phase = match self.state {
            State::Left => Phase::Left,
            _ if self.leaving.is_some() => Phase::Leaving,
            State::Waiting { .. } => Phase::Waiting,
            State::Connecting { .. } => Phase::Connecting,
            // A check is no doubt.
            State::Asking { step: Step::Check(_), .. } if was == Phase::Registered => was,
            State::Asking { .. } => Phase::Registering,
            State::Idle { .. } => Phase::Registered,
        };
        if phase != was {
            self.phase = (phase, now);
        }
    }
}

/// A connection must be made, and a request answered, within this time.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long leaving takes at most: a gateway that stops does not wait for a server.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// The least time between two checks in seconds, whatever period the server gives.
const REFRESH_MIN: u32 = 5;

/// A server that has not inquired for this many intervals is asked whether it has the registration: after as many
/// inquiries without an answer it removes a portal.
const INQUIRIES_MISSED: u64 = 3;
