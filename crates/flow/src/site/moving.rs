//! The planned move of a volume at one gateway: what it does next, and what may happen to it meanwhile.
//!
//! One machine for both sides. The reservation of the volume's unit at the home is the arbiter: a gateway owns the
//! volume while its key holds the reservation, and the next owner preempts exactly the key that it was given. So this
//! machine needs no message that arrives for sure, and none in order: an order or a grant that is late, or comes twice,
//! meets a state that ignores it, or a key that does not hold the unit any more.
//!
//! | from | event | do | to | specified in |
//! |---|---|---|---|---|
//! | `Owner` | `Offer` | drain the log | `Draining` | T25, M1 and M2 |
//! | `Draining` | `Drained` | freeze: nothing new starts | `Freezing` | T25, M3 |
//! | `Draining` | `Cancel`, time | use the log again | `Owner` | T26 |
//! | `Freezing` | `Quiet` | show the key; read the reservation often | `Granted` | M4 to M6 |
//! | `Freezing` | `Cancel`, time | thaw, use the log again | `Owner` | T26 |
//! | `Granted` | `Other` | send the hosts to the next owner | `Standby` | T27, M7 |
//! | `Granted` | time | claim with the next epoch: the grant is void | `Revoking` | T28 |
//! | `Revoking` | `Held` | thaw, use the log again | `Owner` | T22, T28 |
//! | `Revoking` | `Other` | send the hosts to the next owner | `Standby` | T27, T28 |
//! | `Standby` | `Grant` | claim from exactly this key | `Claiming` | T29, T30 |
//! | `Claiming` | `Held` | serve | `Owner` | T14 |
//! | `Claiming` | `Other` | end the claim | `Standby` | T15 |
//! | `Owner`, `Draining`, `Freezing` | `Other` | answer nothing more | `Fenced` | T19, T23 |
//!
//! Every other event leaves the state as it is. `Granted` is the decisive state: before it this gateway is the owner
//! and thaws on any doubt; from it on only the reservation tells who is, so that neither `Cancel` nor time thaws it.
//! Only the reservation ends a claim that gets no answer (T15).

use crate::clock::{Duration, Instant};

/// A move that was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its number, which the one who orders it chooses: orders that are repeated are the same move.
    pub number: u64,
    /// How long the log may take to drain.
    pub drain_within: Duration,
}

/// How long hosts may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long requests are held until those in flight have ended; then the move is given up.
    pub freeze: Duration,
    /// How long the next owner has to take the unit; then the grant is made void.
    pub grant: Duration,
}

impl Default for Limits {
    /// Two seconds (M3: `pause_most`), and one (T28).
    fn default() -> Self {
        Self { freeze: Duration::from_secs(2), grant: Duration::from_secs(1) }
    }
}

/// What a gateway is for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It owns the volume and serves it.
    Owner,
    /// It serves the volume, and its log is drained for a move.
    Draining {
        /// The move.
        number: u64,
        /// When the move is given up.
        until: Instant,
    },
    /// It owns the volume and starts no request; those in flight end.
    Freezing {
        /// The move.
        number: u64,
        /// When the move is given up.
        until: Instant,
    },
    /// Nothing is in flight or only in the log. The gateway that preempts this key is the next owner.
    Granted {
        /// The move.
        number: u64,
        /// The key that holds the unit.
        key: u64,
        /// When the grant is made void.
        until: Instant,
    },
    /// The grant is being made void by a claim with another key.
    Revoking {
        /// The move.
        number: u64,
    },
    /// Another gateway owns the volume, or may.
    Standby,
    /// It claims the volume.
    Claiming {
        /// The move.
        number: u64,
        /// The key that holds the unit, if the grant is still good.
        from: u64,
    },
    /// The unit was taken without a move. Only a new start ends this.
    Fenced,
}

/// What happens to a volume at one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The volume is to be given to another gateway, which was asked and is ready.
    Offer(Order),
    /// The move of this number is not wanted any more.
    Cancel(u64),
    /// Everything in the log is upstream, the log says so durably, and new writes go upstream.
    Drained,
    /// No request has begun that has not been answered, the unit has been flushed, and this key holds it.
    Quiet(u64),
    /// This gateway may take the volume over from the owner with this key.
    Grant {
        /// The move.
        number: u64,
        /// The key.
        key: u64,
    },
    /// A claim has ended well: the unit is this gateway's, under a key that no other gateway was shown.
    Held,
    /// The unit is not this gateway's: another one's key holds it, or a claim was refused.
    Other,
    /// Time has passed.
    Time,
}

/// What the gateway is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the log back, and let new writes pass it.
    Drain,
    /// Use the log again.
    Resume,
    /// Start no request. Those in flight end and are answered.
    Freeze,
    /// Start requests again.
    Thaw,
    /// Flush nothing and change nothing at the unit: read its reservation again and again.
    Watch,
    /// Claim the unit with the next epoch, so that the key of the grant holds it no more.
    Revoke,
    /// Claim the unit from exactly the key of the grant, see [`State::Claiming`].
    Claim,
    /// Serve hosts, without what was cached before: the unit was another gateway's.
    Serve,
    /// Send hosts to the next owner, forget what is cached, and touch the unit no more.
    Leave,
    /// End the claim: the unit is another gateway's.
    Withdraw,
    /// Refuse the volume to hosts: it was taken without a move.
    Fence,
}

/// A volume at one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mover {
    state: State,
    limits: Limits,
}

impl Mover {
    /// A volume after the start of its gateway: `owns` if the claim of the start has ended well (T3, T4), otherwise
    /// another gateway's key holds the unit and the own log has nothing that is not there (T5).
    pub const fn new(owns: bool, limits: Limits) -> Self {
        Self { state: if owns { State::Owner } else { State::Standby }, limits }
    }

    /// What the gateway is for the volume.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether requests of hosts may start.
    pub const fn starts(&self) -> bool {
        matches!(self.state, State::Owner | State::Draining { .. })
    }

    /// When [`Event::Time`] is due.
    pub const fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Draining { until, .. }
            | State::Freezing { until, .. }
            | State::Granted { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Takes an event; what is to be done, in order.
    pub fn step(&mut self, now: Instant, event: Event) -> &'static [Action] {
        let (next, actions) = self.next(now, event);
        self.state = next;
        actions
    }

    fn next(&self, now: Instant, event: Event) -> (State, &'static [Action]) {
        let state = self.state;
        match (state, event) {
            (State::Owner, Event::Offer(Order { number, drain_within })) => {
                (State::Draining { number, until: now + drain_within }, &[Action::Drain])
            }
            (State::Draining { number, .. }, Event::Drained) => {
                (State::Freezing { number, until: now + self.limits.freeze }, &[Action::Freeze])
            }
            (State::Draining { number, .. }, Event::Cancel(of)) if of == number => {
                (State::Owner, &[Action::Resume])
            }
            (State::Draining { until, .. }, Event::Time) if until <= now => {
                (State::Owner, &[Action::Resume])
            }
            (State::Freezing { number, .. }, Event::Quiet(key)) => {
                let until = now + self.limits.grant;
                (State::Granted { number, key, until }, &[Action::Watch])
            }
            (State::Freezing { number, .. }, Event::Cancel(of)) if of == number => {
                (State::Owner, &[Action::Thaw, Action::Resume])
            }
            (State::Freezing { until, .. }, Event::Time) if until <= now => {
                (State::Owner, &[Action::Thaw, Action::Resume])
            }
            (State::Granted { number, until, .. }, Event::Time) if until <= now => {
                (State::Revoking { number }, &[Action::Revoke])
            }
            (State::Revoking { .. }, Event::Held) => {
                (State::Owner, &[Action::Thaw, Action::Resume])
            }
            (State::Granted { .. } | State::Revoking { .. }, Event::Other) => {
                (State::Standby, &[Action::Leave])
            }
            (State::Standby, Event::Grant { number, key }) => {
                (State::Claiming { number, from: key }, &[Action::Claim])
            }
            (State::Claiming { .. }, Event::Held) => (State::Owner, &[Action::Serve]),
            (State::Claiming { .. }, Event::Other) => (State::Standby, &[Action::Withdraw]),
            (State::Owner | State::Draining { .. } | State::Freezing { .. }, Event::Other) => {
                (State::Fenced, &[Action::Fence])
            }
            _ => (state, &[]),
        }
    }
}

#[cfg(test)]
mod tests;
