//! The results of one experiment, ready to be printed.

use crate::claim::Claim;
use serde_json::{Value, json};
use weir_sim::table::Table;

/// The results of one experiment.
#[derive(Debug)]
pub struct Chapter {
    pub(crate) name: &'static str,
    pub(crate) seed: u64,
    pub(crate) claims: Vec<Claim>,
    pub(crate) parts: Vec<Part>,
    /// All of its figures, for scripts.
    pub(crate) value: Value,
}

/// A titled table, its pictures, or both.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) title: String,
    /// Pictures for the page, as figures of HTML.
    pub(crate) pictures: Vec<String>,
    pub(crate) table: Option<Table>,
}

/// Everything as one JSON object.
pub fn object(chapters: Vec<Chapter>) -> Value {
    let experiment = |Chapter { name, mut value, .. }| {
        value["name"] = json!(name);
        value
    };
    let experiments: Vec<_> = chapters.into_iter().map(experiment).collect();
    json!({ "version": 1, "experiments": experiments })
}

/// Whether every required claim holds.
pub fn met(chapters: &[Chapter]) -> bool {
    let mut claims = chapters.iter().flat_map(|chapter| &chapter.claims);
    claims.all(|claim| claim.holds || !claim.required)
}
