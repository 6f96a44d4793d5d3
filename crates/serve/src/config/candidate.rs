//! A configuration that is read while a gateway serves, and what reads it.

use super::{Change, Config, Rejected};
use std::collections::BTreeMap;
use std::path::Path;

/// A configuration that a client has sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Given {
    /// What messages call it.
    pub name: String,
    /// Its text, which may have secrets.
    pub text: String,
}

/// A configuration that is valid, and may be put into force.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What it says.
    pub config: Config,
    /// How its keys differ from those that are in force; what only the gateway knows is empty in them.
    pub changes: Vec<Change>,
    /// Where it names files.
    pub places: Places,
}

/// Where a text names the files of volumes, as `file:line:column`.
#[derive(Clone, Debug, Default)]
pub struct Places(BTreeMap<(String, String, &'static str), String>);

impl Places {
    /// Notes where a key of a table is: the table is `volume` or `store`, and has this name.
    pub fn note(&mut self, table: &str, name: &str, key: &'static str, place: String) {
        self.0.insert((table.to_owned(), name.to_owned(), key), place);
    }

    /// Whether a key is there.
    pub(crate) fn has(&self, table: &str, name: &str, key: &'static str) -> bool {
        self.0.contains_key(&(table.to_owned(), name.to_owned(), key))
    }

    /// `told` behind the place of the first of these keys that is there.
    pub(crate) fn at(&self, table: &str, name: &str, keys: &[&'static str], told: &str) -> String {
        let place = |key: &&'static str| self.0.get(&(table.to_owned(), name.to_owned(), *key));
        match keys.iter().find_map(place) {
            Some(place) => format!("{place}: {told}"),
            None => told.to_owned(),
        }
    }
}

/// Reads the configuration of a gateway that serves.
pub trait Reader {
    /// Reads the file again that the gateway was started with, or what is given in its place. An error has been logged.
    fn read(&mut self, given: Option<&Given>) -> Result<Candidate, Rejected>;

    /// What was read last is in force.
    fn put_into_force(&mut self);

    /// The file that the gateway was started with; `None` for the built-in configuration.
    fn file(&self) -> Option<&Path>;
}
