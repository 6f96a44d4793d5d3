//! The contract of a state machine, and the one loop that both worlds run.

use crate::clock::Instant;

/// A state machine that performs no I/O and owns no clock.
///
/// After any `handle` or `handle_deadline`, call [`poll`](Self::poll) until it returns `None`; only
/// then ask for the next deadline. [`run`] keeps this rule. A deadline that is handled early is
/// harmless; handled late it is merely late.
pub trait Stage {
    /// Arrivals from upstream and completions from downstream.
    type Input;
    /// Work for downstream and replies for upstream.
    type Output;

    /// Takes one input. `now` never runs backwards between calls.
    fn handle(&mut self, now: Instant, input: Self::Input);

    /// The next effect to perform, or `None` when there is nothing more to do at `now`.
    fn poll(&mut self, now: Instant) -> Option<Self::Output>;

    /// When the machine wants [`handle_deadline`](Self::handle_deadline), if nothing else happens.
    fn next_deadline(&self) -> Option<Instant>;

    /// Does what is due at `now`.
    fn handle_deadline(&mut self, now: Instant);
}

/// All there is of the outside: virtual in `weir sim`, sockets and disks in `weir serve`.
pub trait World<S: Stage> {
    /// Waits for the next input, or for `deadline`, whichever is first.
    fn wait(&mut self, deadline: Option<Instant>) -> Wake<S::Input>;

    /// Performs one effect.
    fn perform(&mut self, now: Instant, effect: S::Output);
}

/// Why [`World::wait`] returned.
#[derive(Debug)]
pub enum Wake<I> {
    /// Something happened.
    Input(Instant, I),
    /// The deadline came first.
    Deadline(Instant),
    /// The run is over.
    End,
}

/// Joins a machine to a world until the world ends the run.
pub fn run<S: Stage>(stage: &mut S, world: &mut impl World<S>) {
    loop {
        let now = match world.wait(stage.next_deadline()) {
            Wake::Input(now, input) => {
                stage.handle(now, input);
                now
            }
            Wake::Deadline(now) => {
                stage.handle_deadline(now);
                now
            }
            Wake::End => return,
        };
        while let Some(effect) = stage.poll(now) {
            world.perform(now, effect);
        }
    }
}
