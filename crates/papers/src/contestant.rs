//! A policy with the settings under which an experiment compares it.

use weir_flow::policy::{Choice, Policy};

/// A policy with settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contestant {
    /// Its name in tables.
    pub(super) label: &'static str,
    policy: &'static str,
    numbers: &'static [(&'static str, u64)],
    words: &'static [(&'static str, &'static str)],
}

impl Contestant {
    /// The policy of this name with these numbers; other parameters have their defaults.
    pub(super) const fn new(
        label: &'static str,
        policy: &'static str,
        numbers: &'static [(&'static str, u64)],
    ) -> Self {
        Self { label, policy, numbers, words: &[] }
    }

    /// Sets words and flags, by their names in a configuration.
    pub(super) const fn words(self, words: &'static [(&'static str, &'static str)]) -> Self {
        Self { words, ..self }
    }

    /// The policy of a stage's list, ready to be built.
    pub(super) fn choice<B>(self, list: &'static [Policy<B>]) -> Choice<B> {
        let mut choice = Choice::named(list, self.policy).expect("a policy of the list");
        for &(name, value) in self.numbers {
            choice.set(name, value).expect("a parameter of the policy, in range");
        }
        for &(name, word) in self.words {
            choice.set_word(name, word).expect("a word of the parameter");
        }
        choice
    }
}
