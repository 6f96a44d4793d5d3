//! The results of one experiment, ready to be printed.

use crate::claim::Claim;
use serde::Serialize;
use serde_json::{Value, json};
use weir_sim::table::Table;

/// The results of one experiment: claims with their verdicts, tables and pictures.
#[derive(Debug)]
pub struct Chapter {
    pub(crate) name: &'static str,
    pub(crate) seed: u64,
    pub(crate) claims: Vec<Claim>,
    pub(crate) parts: Vec<Part>,
    /// All figures, for scripts.
    value: Value,
}

/// A titled table, its pictures, or both.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) title: String,
    /// Figures of HTML. Only the page has them.
    pub(crate) pictures: Vec<String>,
    pub(crate) table: Option<Table>,
}

impl Part {
    /// A table.
    pub(crate) fn table(title: impl Into<String>, table: Table) -> Self {
        Self { title: title.into(), pictures: Vec::new(), table: Some(table) }
    }

    /// Pictures without a table.
    pub(crate) fn pictures(title: impl Into<String>, pictures: Vec<String>) -> Self {
        Self { title: title.into(), pictures, table: None }
    }
}

impl Chapter {
    /// The chapter of a study; `seed` is its first.
    pub(crate) fn new(
        name: &'static str,
        seed: u64,
        claims: Vec<Claim>,
        study: &impl Serialize,
        parts: Vec<Part>,
    ) -> Self {
        let mut value = serde_json::to_value(study).expect("a study has figures and names only");
        value["name"] = json!(name);
        value["claims"] = json!(claims);
        Self { name, seed, claims, parts, value }
    }
}

/// All chapters as one JSON object.
pub fn object(chapters: Vec<Chapter>) -> Value {
    let experiments: Vec<_> = chapters.into_iter().map(|chapter| chapter.value).collect();
    json!({ "version": 1, "experiments": experiments })
}

/// Whether every required claim holds.
pub fn met(chapters: &[Chapter]) -> bool {
    let mut claims = chapters.iter().flat_map(|chapter| &chapter.claims);
    claims.all(|claim| claim.holds || !claim.required)
}
