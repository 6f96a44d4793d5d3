//! Questions and orders of operators that the event loop has yet to handle.

use crate::config::HttpListen;
use crate::operator::http::Told;
use crate::operator::http::guard::Guard;
use crate::operator::http::server::Http;
use crate::operator::metrics::scraper::{Scrape, Scraper};
use crate::operator::socket::Socket as ControlSocket;
use crate::operator::{Answer, Asker, Line, Question};
use std::collections::VecDeque;
use tracing::warn;
use weir_flow::clock::{Duration, Instant};
use weir_flow::pipeline::Input;

/// The control socket and the HTTP interface, if they exist, and what is queued.
pub(crate) struct Operators {
    control: Option<ControlSocket>,
    http: Option<Http>,
    /// Encodes metrics for the control socket; started when they are first asked for.
    scraper: Option<Scraper>,
    /// To be answered at once.
    questions: VecDeque<Question>,
    /// To be given to the pipeline before any question is answered.
    orders: VecDeque<Input>,
    /// To be asked again at these times, in order.
    later: VecDeque<(Instant, Question)>,
}

impl Operators {
    pub(crate) fn new(control: Option<ControlSocket>, http: Option<Http>) -> Self {
        let (questions, orders) = (VecDeque::new(), VecDeque::new());
        Self { control, http, scraper: None, questions, orders, later: VecDeque::new() }
    }

    /// Where the HTTP interface listens.
    pub(crate) fn http(&self) -> Option<&HttpListen> {
        self.http.as_ref().map(Http::place)
    }

    /// Puts into force who may do what over HTTP.
    pub(crate) fn guard_http(&self, guard: Option<Guard>) {
        if let (Some(http), Some(guard)) = (&self.http, guard) {
            http.guard(guard);
        }
    }

    /// Queues a question of the gateway's own.
    pub(crate) fn ask(&mut self, question: Question) {
        self.questions.push_back(question);
    }

    /// Queues a question that is asked again soon. Each is the answer to one client, of which there are few.
    pub(crate) fn ask_later(&mut self, now: Instant, question: Question) {
        self.later.push_back((now + LATER, question));
    }

    /// Queues an order for the pipeline, and a question for when it has been done.
    pub(crate) fn order(&mut self, order: Input, after: Question) {
        self.orders.push_back(order);
        self.questions.push_back(after);
    }

    /// Queues an input that the pipeline must have before it is asked anything.
    pub(crate) fn hand_first(&mut self, input: Input) {
        self.orders.push_back(input);
    }

    /// The next order.
    pub(crate) fn take_order(&mut self) -> Option<Input> {
        self.orders.pop_front()
    }

    /// Whether a question is to be answered now.
    pub(crate) fn has_question(&self, now: Instant) -> bool {
        let asked = |control: &ControlSocket| control.has_question(now);
        !self.questions.is_empty() || self.control.as_ref().is_some_and(asked)
    }

    /// The next question.
    pub(crate) fn take_question(&mut self, now: Instant) -> Option<Question> {
        let asked = || {
            let (client, asked) = self.control.as_mut()?.question(now)?;
            Some(Question::Asked(Asker::Socket(client), asked))
        };
        self.questions.pop_front().or_else(asked)
    }

    /// Sends a client its answer.
    pub(crate) fn answer(&mut self, now: Instant, asker: Asker, answer: Answer) {
        match asker {
            Asker::Socket(client) => {
                if let Some(control) = &mut self.control {
                    control.answer(now, client, Line::of(answer));
                }
            }
            Asker::Http(ticket) => {
                if let Some(http) = &self.http {
                    http.answer(ticket, Told::Answer(answer));
                }
            }
        }
    }

    /// Has counters read and sent to a client.
    pub(crate) fn scrape(&mut self, now: Instant, asker: Asker, scrape: Scrape) {
        let client = match asker {
            Asker::Socket(client) => client,
            Asker::Http(ticket) => {
                if let Some(http) = &self.http {
                    http.answer(ticket, Told::Scrape(scrape));
                }
                return;
            }
        };
        if self.scraper.is_none() {
            match Scraper::start() {
                Ok(scraper) => self.scraper = Some(scraper),
                Err(error) => warn!(%error, "cannot start the thread that encodes metrics"),
            }
        }
        match self.scraper.as_ref().filter(|scraper| scraper.has_room()) {
            None => self.answer(now, asker, Answer::busy()),
            Some(scraper) => {
                let taken = self.control.as_mut().and_then(|control| control.take(now, client));
                if let Some(stream) = taken {
                    scraper.send(stream, scrape);
                }
            }
        }
    }

    /// Handles an event of the control socket.
    pub(crate) fn event(&mut self, now: Instant, token: usize) {
        if let Some(control) = &mut self.control {
            control.event(now, token);
        }
    }

    /// Accepts clients of the control socket, closes idle ones, and takes a question of the HTTP interface.
    pub(crate) fn tick(&mut self, now: Instant) {
        while let Some((_, question)) = self.later.pop_front_if(|(at, _)| *at <= now) {
            self.questions.push_back(question);
        }
        if let Some(control) = &mut self.control {
            control.tick(now);
        }
        if let Some((ticket, request)) = self.http.as_mut().and_then(|http| http.tick(now)) {
            self.ask(Question::Asked(Asker::Http(ticket), Ok(request)));
        }
    }

    /// When there is something to do if no event comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let control = self.control.as_ref().and_then(ControlSocket::deadline);
        let later = self.later.front().map(|&(at, _)| at);
        control.into_iter().chain(self.http.as_ref().map(Http::deadline)).chain(later).min()
    }
}

/// After which time a question is asked again.
const LATER: Duration = Duration::from_millis(5);
