//! What all policies have in common: a name, parameters with units and ranges, and a way to be
//! built from checked values.
//!
//! A policy's file ends in one [`Policy`] record; its stage's list names that record. The
//! configuration reader, the reference page and the recording format all work from the record, so
//! nothing else has to change when a policy is added.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// The name of a reason to hold a request, `stage/reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule(pub &'static str);

/// What a parameter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, written `64KiB`.
    Bytes,
    /// Things.
    Count,
    /// Nanoseconds, written `10ms`.
    Time,
}

/// One setting of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Name in the configuration.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// Smallest allowed value.
    pub min: u64,
    /// Largest allowed value.
    pub max: u64,
    /// Value when nothing is given.
    pub default: u64,
    /// What a larger or smaller value does.
    pub effect: &'static str,
}

/// A policy as its stage's list names it. `B` is the stage's way of building one from the values
/// of [`parameters`](Self::parameters), in that order.
#[derive(Debug)]
pub struct Policy<B: 'static> {
    /// Name in the configuration.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Its settings.
    pub parameters: &'static [Parameter],
    /// Makes one, with checked values.
    pub build: B,
}

/// A policy chosen from a stage's list, with checked values.
#[derive(Debug)]
pub struct Choice<B: 'static> {
    policy: &'static Policy<B>,
    values: Vec<u64>,
}

impl<B> Choice<B> {
    /// The first policy of the list with its defaults.
    pub fn default_of(list: &'static [Policy<B>]) -> Self {
        let policy = &list[0];
        Self { policy, values: policy.parameters.iter().map(|p| p.default).collect() }
    }

    /// The policy called `name` with its defaults.
    pub fn named(list: &'static [Policy<B>], name: &str) -> Result<Self, ChoiceError> {
        let policy = list.iter().find(|policy| policy.name == name).ok_or_else(|| {
            ChoiceError::UnknownPolicy {
                name: name.to_string(),
                known: list.iter().map(|policy| policy.name).collect(),
            }
        })?;
        Ok(Self { policy, values: policy.parameters.iter().map(|p| p.default).collect() })
    }

    /// Sets one parameter, checked against its range.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), ChoiceError> {
        let Some(index) = self.policy.parameters.iter().position(|p| p.name == name) else {
            return Err(ChoiceError::UnknownParameter {
                policy: self.policy.name,
                name: name.to_string(),
                known: self.policy.parameters.iter().map(|p| p.name).collect(),
            });
        };
        let parameter = &self.policy.parameters[index];
        if value < parameter.min || value > parameter.max {
            return Err(ChoiceError::OutOfRange { policy: self.policy.name, parameter, value });
        }
        self.values[index] = value;
        Ok(())
    }

    /// The chosen policy.
    pub const fn policy(&self) -> &'static Policy<B> {
        self.policy
    }

    /// The values, in the order of the policy's parameters.
    pub fn values(&self) -> &[u64] {
        &self.values
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
        }
    }
}

impl core::error::Error for ChoiceError {}
