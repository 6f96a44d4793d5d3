//! Gives the unit of an upstream to another gateway, and takes it, as `weir_flow::site` decides.

use super::super::context::Context;
use super::super::network::Network;
use super::super::ownership::Turn;
use super::super::path::Link;
use super::super::session::Loss;
use super::Upstream;

impl<N: Network> Upstream<N> {
    /// Ends the sessions of all paths. No operation is in flight, or the target has ended it.
    pub(super) fn end_sessions(&mut self, context: &mut Context<N>, why: &Loss) {
        for index in 0..self.paths.len() {
            self.paths.confirm(context, index);
            self.lose(context, index, why);
        }
    }

    /// Connects all paths now, so that they claim the unit.
    fn connect_now(&mut self, context: &mut Context<N>) {
        for index in 0..self.paths.len() {
            if let Link::Down(_) = self.paths[index].link {
                self.begin(context, index);
            }
        }
    }

    /// Claims the unit from exactly this key (T30).
    pub(in super::super) fn claim_from(&mut self, context: &mut Context<N>, key: u64) {
        if let Some(owner) = &mut self.unit.owner {
            owner.grant(key);
        }
        self.connect_now(context);
    }

    /// Claims the unit with another key than the present one (T28).
    pub(in super::super) fn claim_again(&mut self, context: &mut Context<N>) {
        if let Some(owner) = &mut self.unit.owner {
            owner.revoke();
        }
        self.end_sessions(context, &Loss::Renewed);
        self.connect_now(context);
    }

    /// Another gateway may take the unit over, from now on until it is claimed again. The key that holds it; `None` if
    /// it is not this gateway's.
    pub(in super::super) fn give(&mut self) -> Option<u64> {
        let owner = self.unit.owner.as_mut().filter(|owner| owner.owns())?;
        owner.turn = Turn::Given;
        owner.key
    }

    /// Makes durable what was written, before the unit is given over; true when that is done.
    pub(in super::super) fn flush_to_give(
        &mut self,
        context: &mut Context<N>,
        again: bool,
    ) -> bool {
        if again {
            self.prepare_shutdown();
        }
        !self.flush(context) && self.flushed().is_ok()
    }

    /// Whether another gateway owns the unit, and this one waits for a move.
    pub(in super::super) fn is_away(&self) -> bool {
        self.unit.owner.as_ref().is_some_and(super::Owner::is_away)
    }
}
