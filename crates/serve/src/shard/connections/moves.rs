//! The sessions of a target whose volume is moved: held, let go, or sent to another gateway.

use super::{Connected, Connections};
use crate::frontend::iscsi::session::take_leave;
use crate::frontend::socket::Stream;
use crate::tasks::CommandEngine;
use weir_flow::clock::Instant;

impl<S: Stream> Connections<S> {
    /// Starts no command of the sessions of a target.
    pub(in super::super) fn freeze(&mut self, target: usize) {
        if !self.frozen.contains(&target) {
            self.frozen.push(target);
        }
    }

    /// Starts commands of its sessions again.
    pub(in super::super) fn thaw(&mut self, target: usize) {
        self.frozen.retain(|&one| one != target);
        for index in self.of_target(target) {
            self.resume(index);
        }
    }

    /// Announces to the sessions of a target that their connections end, and ends them. The hosts log in again at once.
    pub(in super::super) fn send_away(
        &mut self,
        engine: &mut CommandEngine,
        now: Instant,
        target: usize,
    ) {
        for index in self.of_target(target) {
            self.leave(engine, now, index);
        }
        self.frozen.retain(|&one| one != target);
    }

    /// The connections of the sessions of a target.
    fn of_target(&self, target: usize) -> Vec<usize> {
        let of = |one: &Connected<S>| {
            one.connection.view.as_ref().is_some_and(|view| view.target == target)
        };
        let places = self.places.iter().enumerate();
        places
            .filter(|(_, place)| place.as_deref().is_some_and(of))
            .map(|(index, _)| index)
            .collect()
    }

    /// Whether everything that was put into the outboxes of the sessions of a target has left.
    pub(in super::super) fn have_answered(&mut self, target: usize) -> bool {
        self.of_target(target).into_iter().all(|index| {
            let place = self.places[index].as_deref_mut();
            place.is_none_or(|one| one.channel.has_sent_all(&mut one.connection))
        })
    }

    /// Announces to a session that its connection ends, and ends it. Its host may come back at once.
    fn leave(&mut self, engine: &mut CommandEngine, now: Instant, index: usize) {
        let Some(one) = self.places[index].as_deref_mut() else { return };
        let id = one.connection.id;
        take_leave(engine, &mut one.connection, true);
        self.write(engine, now, index);
        self.close_id(engine, id, "the volume is served by another gateway");
    }
}
