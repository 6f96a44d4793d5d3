//! The record that describes a policy: name, properties, parameters, and how to build it.
//!
//! A policy is one file that ends in one [`Policy`] record, and one entry in its stage's list. The
//! configuration reader, the reference page, the recording format and the law tests
//! (`crates/flow/tests/laws/`) read the record, so nothing else changes when a policy is added.

use crate::clock::Duration;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// The name of a reason to hold a request, `stage/reason`. A thin reference, as each request in flight has one for each
/// stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule(pub &'static &'static str);

/// What a parameter's value is. A value is a `u64` whatever its unit: recordings and ranges need no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, written `64KiB`.
    Bytes,
    /// A whole number.
    Count,
    /// Up to this many whole numbers, written `[4, 1]`; those left out have the default.
    Counts(usize),
    /// `true` (1) or `false` (0).
    Flag,
    /// Nanoseconds, written `10ms`.
    Time,
    /// One of these words; the value is its index.
    Word(&'static [&'static str]),
}

/// One setting of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Name in the configuration.
    pub name: &'static str,
    /// What its value is.
    pub unit: Unit,
    /// Smallest allowed value.
    pub min: u64,
    /// Largest allowed value.
    pub max: u64,
    /// Value when nothing is given.
    pub default: u64,
    /// What a larger or smaller value does, or what each word does.
    pub effect: &'static str,
}

impl Parameter {
    /// A switch.
    pub const fn flag(name: &'static str, default: bool, effect: &'static str) -> Self {
        Self { name, unit: Unit::Flag, min: 0, max: 1, default: default as u64, effect }
    }

    /// A time of up to an hour, in nanoseconds.
    pub const fn time(name: &'static str, default: u64, effect: &'static str) -> Self {
        Self { name, unit: Unit::Time, min: 0, max: 3_600_000_000_000, default, effect }
    }

    /// A choice of words, of which the first is the default.
    pub const fn word(
        name: &'static str,
        words: &'static [&'static str],
        effect: &'static str,
    ) -> Self {
        let max = words.len() as u64 - 1;
        Self { name, unit: Unit::Word(words), min: 0, max, default: 0, effect }
    }

    /// How many values it has in [`Values`].
    const fn slots(&self) -> usize {
        match self.unit {
            Unit::Counts(most) => most,
            _ => 1,
        }
    }
}

/// What a policy claims beyond the laws of its trait. The law tests check each claim, and that a policy
/// without it does not behave so by default: a claim left out is as wrong as one too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Control: releases a tenant's requests in order of arrival (`laws/control.rs`).
    KeepsOrder,
    /// Control: as [`KeepsOrder`](Self::KeepsOrder), unless this parameter has this value.
    KeepsOrderUnless {
        /// The parameter, a [`Unit::Word`].
        parameter: &'static str,
        /// The word with which requests overtake each other.
        word: &'static str,
    },
    /// Control: holds nothing back from an idle device, if the tenant has no limit (`laws/control.rs`).
    WorkConserving,
    /// Dispatch: shares the backend's time by weight, whatever operations cost (`laws/dispatch.rs`).
    SharesTime,
    /// Path: every usable path gets work, and an idle one is never locked out (`laws/path.rs`).
    UsesEveryPath,
    /// Transfer: a long reply is sent however many short ones keep coming (`laws/transfer.rs`).
    StarvationFree,
}

/// A policy as its stage's list names it. `B` is the stage's way of building one from the [`Values`] of
/// its parameters.
#[derive(Debug)]
pub struct Policy<B: 'static> {
    /// Name in the configuration.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// What it claims beyond the laws of its trait.
    pub properties: &'static [Property],
    /// Its settings.
    pub parameters: &'static [Parameter],
    /// Makes one, with checked values.
    pub build: B,
}

impl<B> Policy<B> {
    /// Whether the policy claims this.
    pub fn has(&self, property: Property) -> bool {
        self.properties.contains(&property)
    }
}

/// Checked values of a policy's parameters, by name. Read when a policy is built, never for a request.
///
/// Every method panics if the policy has no such parameter: a policy knows its own names, and the laws
/// build each one.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    parameters: &'static [Parameter],
    values: &'a [u64],
}

impl<'a> Values<'a> {
    /// The number that a parameter has.
    pub fn get(&self, name: &str) -> u64 {
        self.slots(name).1[0]
    }

    /// The number of a parameter whose largest value fits.
    pub fn get_u32(&self, name: &str) -> u32 {
        u32::try_from(self.get(name)).expect("the largest value of the parameter fits")
    }

    /// The numbers of a [`Unit::Counts`], with defaults for those left out.
    pub fn list(&self, name: &str) -> &'a [u64] {
        self.slots(name).1
    }

    /// Whether a [`Unit::Flag`] is set.
    pub fn flag(&self, name: &str) -> bool {
        let (parameter, values) = self.slots(name);
        assert_eq!(parameter.unit, Unit::Flag, "`{name}` is no flag");
        values[0] == 1
    }

    /// The word of a [`Unit::Word`].
    pub fn word(&self, name: &str) -> &'static str {
        let (parameter, values) = self.slots(name);
        let Unit::Word(words) = parameter.unit else { panic!("`{name}` is no word") };
        words[values[0] as usize]
    }

    /// The time of a [`Unit::Time`].
    pub fn time(&self, name: &str) -> Duration {
        let (parameter, values) = self.slots(name);
        assert_eq!(parameter.unit, Unit::Time, "`{name}` is no time");
        Duration::from_nanos(values[0])
    }

    /// Every parameter with its values: one, or as many as a [`Unit::Counts`] may have.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Parameter, &'a [u64])> + use<'a> {
        let mut rest = self.values;
        self.parameters.iter().map(move |parameter| {
            let (values, others) = rest.split_at(parameter.slots());
            rest = others;
            (parameter, values)
        })
    }

    fn slots(&self, name: &str) -> (&'static Parameter, &'a [u64]) {
        let found = self.iter().find(|(parameter, _)| parameter.name == name);
        found.unwrap_or_else(|| panic!("the policy has no parameter `{name}`"))
    }
}

impl fmt::Debug for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(parameter, values)| (parameter.name, values)))
            .finish()
    }
}

/// A policy chosen from a stage's list, with checked values.
#[derive(Debug)]
pub struct Choice<B: 'static> {
    policy: &'static Policy<B>,
    values: Vec<u64>,
}

impl<B> Choice<B> {
    /// The default of a stage, which is the first policy of its list, with its defaults.
    pub fn default_of(list: &'static [Policy<B>]) -> Self {
        Self::of(&list[0])
    }

    /// The policy called `name` with its defaults.
    pub fn named(list: &'static [Policy<B>], name: &str) -> Result<Self, ChoiceError> {
        let policy = list.iter().find(|policy| policy.name == name).ok_or_else(|| {
            ChoiceError::UnknownPolicy {
                name: name.to_string(),
                known: list.iter().map(|policy| policy.name).collect(),
            }
        })?;
        Ok(Self::of(policy))
    }

    /// This policy with its defaults.
    pub(crate) fn of(policy: &'static Policy<B>) -> Self {
        let defaults = |one: &Parameter| core::iter::repeat_n(one.default, one.slots());
        Self { policy, values: policy.parameters.iter().flat_map(defaults).collect() }
    }

    /// Sets one parameter, checked against its range; of a [`Unit::Counts`] the first value.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), ChoiceError> {
        self.set_at(name, 0, value)
    }

    /// Sets the value at `place` of a [`Unit::Counts`], checked against its range and length.
    pub fn set_at(&mut self, name: &str, place: usize, value: u64) -> Result<(), ChoiceError> {
        let parameters = self.policy.parameters;
        let Some(index) = parameters.iter().position(|p| p.name == name) else {
            return Err(ChoiceError::UnknownParameter {
                policy: self.policy.name,
                name: name.to_string(),
                known: parameters.iter().map(|p| p.name).collect(),
            });
        };
        let parameter = &parameters[index];
        if value < parameter.min || value > parameter.max {
            return Err(ChoiceError::OutOfRange { policy: self.policy.name, parameter, value });
        }
        if place >= parameter.slots() {
            return Err(ChoiceError::TooMany { policy: self.policy.name, parameter });
        }
        let first: usize = parameters[..index].iter().map(Parameter::slots).sum();
        self.values[first + place] = value;
        Ok(())
    }

    /// Sets a [`Unit::Word`] or a [`Unit::Flag`] by its word, which is `true` or `false` for a flag.
    pub fn set_word(&mut self, name: &str, word: &str) -> Result<(), ChoiceError> {
        let found = self.policy.parameters.iter().find(|parameter| parameter.name == name);
        let words = match found.map(|parameter| parameter.unit) {
            Some(Unit::Word(words)) => words,
            Some(Unit::Flag) => &["false", "true"],
            // The error for an unknown name.
            None => return self.set(name, 0),
            Some(_) => &[],
        };
        let Some(value) = words.iter().position(|&one| one == word) else {
            let (policy, name) = (self.policy.name, name.to_string());
            return Err(ChoiceError::UnknownWord { policy, name, word: word.to_string(), words });
        };
        self.set(name, value as u64)
    }

    /// The chosen policy.
    pub const fn policy(&self) -> &'static Policy<B> {
        self.policy
    }

    /// The values of its parameters.
    pub fn values(&self) -> Values<'_> {
        Values { parameters: self.policy.parameters, values: &self.values }
    }
}

// Derived, it would ask for `B: Clone`, which a reference to the policy does not need.
impl<B> Clone for Choice<B> {
    fn clone(&self) -> Self {
        Self { policy: self.policy, values: self.values.clone() }
    }
}

impl<B> PartialEq for Choice<B> {
    fn eq(&self, other: &Self) -> bool {
        self.policy.name == other.policy.name && self.values == other.values
    }
}

/// Why a policy could not be chosen as asked.
#[derive(Clone, Debug)]
pub enum ChoiceError {
    /// The stage has no policy of this name.
    UnknownPolicy {
        /// The name that was given.
        name: String,
        /// Those that exist.
        known: Vec<&'static str>,
    },
    /// The policy has no parameter of this name.
    UnknownParameter {
        /// The policy.
        policy: &'static str,
        /// The name that was given.
        name: String,
        /// Those that exist.
        known: Vec<&'static str>,
    },
    /// The value is outside the parameter's range.
    OutOfRange {
        /// The policy.
        policy: &'static str,
        /// The parameter with its range.
        parameter: &'static Parameter,
        /// The value that was given.
        value: u64,
    },
    /// The list is longer than the parameter may be.
    TooMany {
        /// The policy.
        policy: &'static str,
        /// The parameter with its unit.
        parameter: &'static Parameter,
    },
    /// The parameter does not have this word.
    UnknownWord {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        name: String,
        /// The word that was given.
        word: String,
        /// Those that exist; none if the parameter is no choice of words.
        words: &'static [&'static str],
    },
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPolicy { name, known } => {
                write!(f, "no policy is called `{name}`; there is {}", known.join(", "))
            }
            Self::UnknownParameter { policy, name, known } if known.is_empty() => {
                write!(f, "policy `{policy}` has no parameter `{name}`, and takes none")
            }
            Self::UnknownParameter { policy, name, known } => {
                write!(
                    f,
                    "policy `{policy}` has no parameter `{name}`; it has {}",
                    known.join(", ")
                )
            }
            Self::OutOfRange { policy, parameter, value } => write!(
                f,
                "`{}` of policy `{policy}` must be from {} to {}, not {value}",
                parameter.name, parameter.min, parameter.max
            ),
            Self::TooMany { policy, parameter } => write!(
                f,
                "`{}` of policy `{policy}` has at most {} values",
                parameter.name,
                parameter.slots()
            ),
            Self::UnknownWord { policy, name, word, words: [] } => {
                write!(f, "`{name}` of policy `{policy}` is a number, not `{word}`")
            }
            Self::UnknownWord { policy, name, word, words } => write!(
                f,
                "`{name}` of policy `{policy}` is one of {}, not `{word}`",
                words.join(", ")
            ),
        }
    }
}

impl core::error::Error for ChoiceError {}
