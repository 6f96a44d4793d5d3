//! What the sessions of an upstream report of resets, and the questions that follow from it.

use super::super::context::Context;
use super::super::network::Network;
use super::super::resets::Next;
use super::super::session::{Loss, PATH_FAILED};
use super::Upstream;
use crate::storage::io::Ended;
use weir_flow::clock::Instant;
use weir_flow::pipeline::Input;

impl<N: Network> Upstream<N> {
    /// A session reports that the unit was reset, and may have lost its cache.
    pub(super) fn was_reset(&mut self, context: &mut Context<N>, index: usize) {
        if !self.unit.has_cache() {
            return;
        }
        let (new, next) = self.resets.reported(index, &self.paths.ready(), context.now);
        if new {
            context.input(Input::UnitReset(self.paths.backend));
        }
        self.go_on(context, next);
    }

    /// A path takes commands from now on.
    pub(super) fn ask_for_resets(&mut self, context: &mut Context<N>, index: usize) {
        if self.unit.has_cache() {
            let next = self.resets.ready(index, &self.paths.ready(), context.now);
            self.go_on(context, next);
        }
    }

    /// A path has answered TEST UNIT READY.
    pub(super) fn has_no_reset(&mut self, context: &mut Context<N>, index: usize) {
        let next = self.resets.answered(index, &self.paths.ready(), context.now);
        self.go_on(context, next);
    }

    /// The session of a path is over.
    pub(super) fn forget_reports(&mut self, context: &mut Context<N>, index: usize) {
        let next = self.resets.lost(index, &self.paths.ready(), context.now);
        self.go_on(context, next);
    }

    /// A flush has ended well on a path.
    pub(super) fn flush_ended(&mut self, context: &mut Context<N>, ended: Ended) {
        if let Some(ended) = self.resets.hold(ended) {
            context.end(ended);
        }
    }

    /// When a path is given up since it does not answer TEST UNIT READY.
    pub(super) fn answer_due(&self, index: usize) -> Option<Instant> {
        self.resets.asked_at(index).map(|at| at + self.paths.config.login_timeout)
    }

    fn go_on(&mut self, context: &mut Context<N>, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Ask(paths) => {
                for index in paths {
                    self.with(context, index, |session, unit| {
                        session.ask_ready(unit.now);
                        Ok(())
                    });
                }
            }
            Next::Release(well) => {
                for ended in self.resets.take_held() {
                    let outcome = if well { ended.outcome } else { PATH_FAILED };
                    context.end(Ended { outcome, ..ended });
                }
            }
        }
    }
}

/// A path that does not answer the question after a reset.
pub(super) const NO_ANSWER: Loss =
    Loss::Late("TEST UNIT READY, which asks for resets of the unit, has not ended");
