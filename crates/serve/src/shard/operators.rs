//! Questions and orders of operators that the event loop has yet to handle.

use crate::operator::metrics::scraper::{Scrape, Scraper};
use crate::operator::socket::{ClientId, Socket as ControlSocket};
use crate::operator::{Answer, Line, Question};
use std::collections::VecDeque;
use tracing::warn;
use weir_flow::clock::Instant;
use weir_flow::pipeline::Input;

/// The control socket, if there is one, and what is queued.
pub(crate) struct Operators {
    control: Option<ControlSocket>,
    /// Encodes metrics; started when they are first asked for.
    scraper: Option<Scraper>,
    /// To be answered at once.
    questions: VecDeque<Question>,
    /// To be given to the pipeline.
    orders: VecDeque<Input>,
}

impl Operators {
    pub(crate) fn new(control: Option<ControlSocket>) -> Self {
        let (questions, orders) = (VecDeque::new(), VecDeque::new());
        Self { control, scraper: None, questions, orders }
    }

    /// Queues a question of the gateway's own.
    pub(crate) fn ask(&mut self, question: Question) {
        self.questions.push_back(question);
    }

    /// Queues an order for the pipeline, and a question for when it has been done.
    pub(crate) fn order(&mut self, order: Input, after: Question) {
        self.orders.push_back(order);
        self.questions.push_back(after);
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
            Some(Question::Asked(client, asked))
        };
        self.questions.pop_front().or_else(asked)
    }

    /// Sends a client of the control socket its answer.
    pub(crate) fn answer(&mut self, now: Instant, client: ClientId, answer: Answer) {
        if let Some(control) = &mut self.control {
            control.answer(now, client, Line::of(answer));
        }
    }

    /// Has metrics encoded and sent to a client of the control socket.
    pub(crate) fn scrape(&mut self, now: Instant, client: ClientId, scrape: Scrape) {
        if self.scraper.is_none() {
            match Scraper::start() {
                Ok(scraper) => self.scraper = Some(scraper),
                Err(error) => warn!(%error, "cannot start the thread that encodes metrics"),
            }
        }
        match self.scraper.as_ref().filter(|scraper| scraper.has_room()) {
            None => self.answer(now, client, Answer::busy()),
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

    /// Accepts clients of the control socket, and closes idle ones.
    pub(crate) fn tick(&mut self, now: Instant) {
        if let Some(control) = &mut self.control {
            control.tick(now);
        }
    }

    /// When the control socket has something to do if no event comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.control.as_ref().and_then(ControlSocket::deadline)
    }
}
