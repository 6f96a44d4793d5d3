//! TEST UNIT READY in a session that is ready: it brings what the unit has to report, and says when there is no more.

use super::super::network::Stream;
use super::channel::Channel;
use super::queue::deferral;
use weir_flow::clock::Instant;

/// The question whether a session has something to report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadyQuestion {
    state: State,
    deferrals: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Not asked, or sent.
    #[default]
    Idle,
    /// It waits for the command window.
    Waiting,
    /// The target has deferred it until then.
    Deferred(Instant),
}

impl ReadyQuestion {
    /// Asks as soon as there is room.
    pub(super) fn ask<S: Stream>(&mut self, channel: &mut Channel<S>, now: Instant) {
        *self = Self { state: State::Waiting, deferrals: 0 };
        self.send(channel, now);
    }

    /// Sends the command if it is due and there is room.
    pub(super) fn send<S: Stream>(&mut self, channel: &mut Channel<S>, now: Instant) {
        self.state = match self.state {
            State::Deferred(at) if at <= now => State::Waiting,
            state => state,
        };
        if self.state == State::Waiting && channel.room() > 0 {
            self.state = State::Idle;
            channel.test_unit_ready();
        }
    }

    /// The target has reported something else instead of executing it.
    pub(super) fn again<S: Stream>(&mut self, channel: &mut Channel<S>, now: Instant) {
        self.state = State::Waiting;
        self.send(channel, now);
    }

    /// The target defers it.
    pub(super) fn later(&mut self, now: Instant) {
        self.deferrals += 1;
        self.state = State::Deferred(now + deferral(self.deferrals));
    }

    /// When it is due without an event.
    pub(super) const fn next(&self) -> Option<Instant> {
        match self.state {
            State::Deferred(at) => Some(at),
            State::Idle | State::Waiting => None,
        }
    }
}
