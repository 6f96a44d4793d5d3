//! What of a configuration differs from the one before.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A table of the configuration, or an entry of one, that differs from what was in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// `added`, `changed` or `removed`.
    pub change: String,
    /// Its table, such as `volume`; `export` for an entry of `exports` of `[nbd]`.
    pub kind: String,
    /// Its name; empty for a table that is there once.
    pub name: String,
    /// The keys that differ.
    pub keys: Vec<KeyChange>,
    /// How hosts learn of it; empty if it is new, or concerns none.
    pub told: String,
    /// The hosts that find it now, each with its address; the first 20.
    pub hosts: Vec<String>,
    /// How many there are that `hosts` does not have.
    pub hosts_left_out: u64,
}

/// A key that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyChange {
    /// The key; `luns.1` is the entry 1 of `luns`.
    pub key: String,
    /// What was in force, a default as well; `None` if nothing was, and of a secret.
    pub from: Option<String>,
    /// What is in force now; `None` if nothing is, and of a secret.
    pub to: Option<String>,
}

/// A change on one line: `~ volume db: size 100GiB → 120GiB; CAPACITY DATA HAS CHANGED; for HOST at ADDRESS`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.change.as_str() {
            "added" => '+',
            "removed" => '-',
            _ => '~',
        };
        write!(f, "{sign} {}", self.kind)?;
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        for (index, KeyChange { key, from, to }) in self.keys.iter().enumerate() {
            f.write_str(if index == 0 { ": " } else { ", " })?;
            match (from.as_deref(), to.as_deref()) {
                (None, Some(to)) if sign == '+' => write!(f, "{key} {to}")?,
                (Some(from), None) if sign == '-' => write!(f, "{key} {from}")?,
                (None, None) => write!(f, "{key} changes")?,
                (from, to) => {
                    write!(f, "{key} {} → {}", from.unwrap_or("none"), to.unwrap_or("none"))?;
                }
            }
        }
        if !self.told.is_empty() {
            write!(f, "; {}", self.told)?;
        }
        if !self.hosts.is_empty() {
            write!(f, "; for {}", self.hosts.join(", "))?;
        }
        if self.hosts_left_out > 0 {
            write!(f, " and {} more", self.hosts_left_out)?;
        }
        Ok(())
    }
}
