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
//! that are no longer wanted are deregistered, events are registered for, and at the end the portal is asked for. So a
//! server that has lost everything, a changed configuration and the first start are one case.

mod answers;

use crate::isns::callback::Notice;
use crate::isns::codes::Function;
use crate::isns::fault::Failure;
use crate::isns::message::{Assembler, Message};
use crate::isns::objects::{Object, Objects, Shared};
use crate::isns::request;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// What a client says about itself, and asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The iSCSI name of the gateway, which all requests come from.
    pub source: String,
    /// Its name for people.
    pub alias: String,
    /// The entity; at most 255 bytes.
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
    Check,
}

impl Step {
    const fn function(&self) -> Function {
        match self {
            Self::Register(_) => Function::REGISTER,
            Self::Deregister(_) => Function::DEREGISTER,
            Self::Events => Function::REGISTER_EVENTS,
            Self::Check => Function::QUERY,
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
    objects: Objects,
    wanted: BTreeSet<Object>,
    /// What the server has acknowledged.
    has: BTreeSet<Object>,
    state: State,
    events: Events,
    /// Whether ESI are still asked for.
    inquiries: bool,
    /// When the server last inquired.
    inquired: Option<Duration>,
    /// What the server does not take, and until when it is not tried again.
    refused: BTreeMap<Object, Duration>,
    /// Objects in one registration: fewer while the one is looked for that the server does not take.
    at_once: usize,
    /// Whether the server has shown the portal since it acknowledged it.
    shown: bool,
    /// Whether the registration was made again since the portal was last shown: the next failure waits.
    again: bool,
    /// Seconds; the server may give less than was asked for.
    period: u32,
    leaving: Option<Duration>,
    phase: (Phase, Duration),
    answered: Option<Duration>,
    failure: Option<(Duration, Failure)>,
    failures: u32,
    transaction: u16,
    random: u64,
    assembler: Assembler,
    output: Vec<u8>,
}

impl Client {
    /// A client that connects at once.
    pub fn new(settings: Settings, now: Duration) -> Self {
        Self {
            inquiries: settings.inquiries > 0,
            period: settings.period,
            random: settings.seed,
            settings,
            objects: Objects::default(),
            wanted: BTreeSet::new(),
            has: BTreeSet::new(),
            state: State::Waiting { until: now },
            events: Events::NotAsked,
            inquired: None,
            refused: BTreeMap::new(),
            at_once: usize::MAX,
            shown: false,
            again: false,
            leaving: None,
            phase: (Phase::Waiting, now),
            answered: None,
            failure: None,
            failures: 0,
            transaction: 0,
            assembler: Assembler::new(ANSWER_MAX),
            output: Vec::new(),
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
        (self.assembler, self.shown) = (Assembler::new(ANSWER_MAX), false);
        // The server may have been started again.
        self.events = Events::NotAsked;
        self.want(objects);
        self.proceed(now);
    }

    /// The connection is lost, or could not be made.
    pub fn disconnected(&mut self, now: Duration, why: Option<String>) {
        let failure = match self.state {
            State::Waiting { .. } | State::Left => return,
            State::Connecting { .. } => Failure::Connect(why.unwrap_or_default()),
            State::Asking { .. } | State::Idle { .. } => Failure::Closed(why),
        };
        self.fail(now, failure);
    }

    /// Other objects shall be registered from now on.
    pub fn change(&mut self, now: Duration, objects: Objects) {
        self.want(objects);
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
            match self.assembler.take(&bytes[taken..]) {
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
            self.state = State::Left;
            self.set_phase(now);
        }
        match &self.state {
            State::Connecting { until } if *until <= now => {
                let why = format!("no answer in {} s", ANSWER_LIMIT.as_secs());
                self.fail(now, Failure::Connect(why));
            }
            State::Asking { step, until, .. } if *until <= now => {
                let failure = Failure::Silent(step.function());
                self.fail(now, failure);
            }
            State::Idle { until } if self.due(*until) <= now => {
                self.inquired =
                    self.inquired.filter(|_| self.silent_at().is_none_or(|at| at > now));
                self.shown = false;
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
        &self.output
    }

    /// The first `n` of them are written.
    pub fn wrote(&mut self, n: usize) {
        self.output.drain(..n);
    }

    /// Takes in what the server has said by a callback.
    pub fn notice(&mut self, now: Duration, notice: Notice) {
        match notice {
            Notice::Inquired => self.inquired = Some(now),
            Notice::Changed => {}
            Notice::Removed => {
                self.forget();
                match self.state {
                    State::Idle { .. } => self.proceed(now),
                    _ => self.retry(now),
                }
            }
        }
    }

    /// Deregisters the portals, if the server can be asked, within a short time. The node and the targets stay: other
    /// gateways may have them, and their membership of domains outlives them.
    pub fn leave(&mut self, now: Duration) {
        self.leaving.get_or_insert(now + LEAVE_LIMIT);
        match self.state {
            State::Idle { .. } => self.proceed(now),
            State::Waiting { .. } | State::Connecting { .. } => self.state = State::Left,
            State::Asking { .. } | State::Left => {}
        }
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
            portals: self.has.iter().filter_map(portal).collect(),
            targets: self.has.iter().filter(target).count(),
            refused: self.refused.len(),
            next: self.deadline(),
        }
    }

    fn want(&mut self, objects: Objects) {
        self.refused.clear();
        if self.objects.callback != objects.callback {
            self.has.retain(|object| !matches!(object, Object::Portal(_)));
        }
        let source = (&*self.settings.source, &*self.settings.alias);
        self.wanted = Object::all(&objects, source);
        self.objects = objects;
    }

    /// The server has lost the registration.
    fn forget(&mut self) {
        self.has.clear();
        self.shown = false;
        if self.events == Events::Registered {
            self.events = Events::NotAsked;
        }
        self.refused.clear();
    }

    /// Asks for what is missing next.
    fn proceed(&mut self, now: Duration) {
        let source = &self.settings.source;
        if self.leaving.is_some() {
            let portals = self.has.iter().filter(|object| matches!(object, Object::Portal(_)));
            let (payload, taken) = request::deregister(source, portals);
            if taken.is_empty() {
                self.state = State::Left;
                return self.set_phase(now);
            }
            return self.ask(now, Step::Deregister(taken), payload);
        }
        let Some(&first) = self.objects.portals.first() else {
            return self.fail(now, Failure::NoPortal);
        };
        let shared = Shared {
            entity: &self.settings.entity,
            period: self.settings.period,
            inquiries: self.inquiries.then_some(self.settings.inquiries),
            callback: self.objects.callback,
        };
        self.refused.retain(|_, until| *until > now);
        let refused = &self.refused;
        let missing = self.wanted.difference(&self.has).filter(|one| !refused.contains_key(one));
        let (payload, taken) = request::register(source, shared, missing.take(self.at_once));
        if !taken.is_empty() {
            return self.ask(now, Step::Register(taken), payload);
        }
        // What was registered again with other attributes is not removed, and groups go with their node or portal.
        let wanted = &self.wanted;
        self.has.retain(|object| {
            wanted.contains(object) || !wanted.iter().any(|other| other.has_key_of(object))
        });
        let gone = self.has.difference(&self.wanted);
        let gone = gone.filter(|object| matches!(object, Object::Portal(_) | Object::Node { .. }));
        let (payload, taken) = request::deregister(source, gone);
        if !taken.is_empty() {
            return self.ask(now, Step::Deregister(taken), payload);
        }
        if self.events == Events::NotAsked {
            return self.ask(now, Step::Events, request::events(source));
        }
        if !self.shown {
            return self.ask(now, Step::Check, request::query(source, first));
        }
        self.state = State::Idle { until: self.next_check(now) };
        self.set_phase(now);
    }

    /// When the registration is refreshed and checked.
    fn next_check(&self, now: Duration) -> Duration {
        let parts = if self.events == Events::Refused { 6 } else { 3 };
        now + Duration::from_secs((self.period / parts).max(REFRESH_MIN).into())
    }

    /// The same, or earlier if the server inquired and has ceased to.
    fn due(&self, check: Duration) -> Duration {
        self.silent_at().map_or(check, |at| at.min(check))
    }

    /// When the server has not inquired for too long.
    fn silent_at(&self) -> Option<Duration> {
        let silence = Duration::from_secs(u64::from(self.settings.inquiries) * INQUIRIES_MISSED);
        self.inquired.filter(|_| self.inquiries).map(|at| at + silence)
    }

    fn ask(&mut self, now: Duration, step: Step, payload: Vec<u8>) {
        self.transaction = self.transaction.wrapping_add(1);
        let (function, transaction) = (step.function(), self.transaction);
        Message { function, transaction, payload }.write(&mut self.output);
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
            State::Asking { step: Step::Check, .. } if was == Phase::Registered => was,
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

/// The longest answer in bytes. That to a registration repeats it, and that to a check is short.
const ANSWER_MAX: usize = 64 << 10;

/// The least time between two checks in seconds, whatever period the server gives.
const REFRESH_MIN: u32 = 5;

/// A server that has not inquired for this many intervals is asked whether it has the registration: after as many
/// inquiries without an answer it removes a portal.
const INQUIRIES_MISSED: u64 = 3;
