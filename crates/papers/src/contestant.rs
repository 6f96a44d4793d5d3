//! A policy with the settings under which an experiment compares it.

use weir_flow::policy::{Choice, Policy};

/// A policy with settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contestant {
    /// Its name in tables.
    pub(super) label: &'static str,
    policy: &'static str,
    settings: &'static [(&'static str, u64)],
}

impl Contestant {
    /// The policy of this name with these settings; what is not named has its default.
    pub(super) const fn new(
        label: &'static str,
        policy: &'static str,
        settings: &'static [(&'static str, u64)],
    ) -> Self {
        Self { label, policy, settings }
    }

    /// The policy of a stage's list, ready to be built.
    pub(super) fn choice<B>(self, list: &'static [Policy<B>]) -> Choice<B> {
        let mut choice = Choice::named(list, self.policy).expect("a policy of the list");
        for &(name, value) in self.settings {
            choice.set(name, value).expect("a parameter of the policy, in range");
        }
        choice
    }
}
