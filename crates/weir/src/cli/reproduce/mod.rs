//! `weir reproduce`: published experiments, with what was claimed and what is measured.

mod control;
mod page;
mod text;

use super::progress::Progress;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use crate::table::Table;
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};
use std::path::PathBuf;
use weir_sim::experiment::claim::Claim;
use weir_sim::experiment::{self, Settings};

/// Run published experiments and compare what was claimed with what is measured
///
/// `control` is the evaluation of the token-bucket paper: two sets of tenants in nine intervals, under
/// TA0 to TA3, their rivals and TA4, with constant and with Poisson arrivals, and twelve scenarios
/// that stress them. Without a name every experiment is run. Equal seeds give equal figures.
///
/// Where a claim that must hold does not, the exit code is 4.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Reproduce {
    /// The experiments
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(NAMES))]
    names: Vec<String>,
    /// Runs per figure, of which the mean is taken; 2 or 3 without this, and with 1 chance has a say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: Option<u32>,
    /// The first seed; further runs take those that follow
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1 << 53))]
    seed: u64,
    /// Also write a page for a browser, with everything in one file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The experiments that there are.
const NAMES: [&str; 1] = ["control"];

/// What an experiment found, ready to be shown.
struct Chapter {
    name: &'static str,
    seed: u64,
    claims: Vec<Claim>,
    parts: Vec<Part>,
    /// All of its figures, for scripts.
    value: Value,
}

/// A part of a chapter.
struct Part {
    title: String,
    /// Pictures for the page, as figures of HTML.
    pictures: Vec<String>,
    table: Option<Table>,
}

impl Reproduce {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let wanted = |name: &&str| self.names.is_empty() || self.names.iter().any(|n| n == name);
        let mut chapters = Vec::new();
        for name in NAMES.into_iter().filter(wanted) {
            let chapter = self.chapter(name).map_err(|e| Failure::unexpected(e.to_string()))?;
            chapters.push(chapter);
        }
        if let Some(path) = &self.report {
            std::fs::write(path, page::page(&chapters)).map_err(|error| {
                let message = format!("cannot write `{}`: {error}", path.display());
                Failure::new(Exit::Unexpected, message, "name a file that can be written")
            })?;
        }
        let exit = exit(&chapters);
        if self.json {
            print_json(&object(chapters))?;
        } else {
            print(&text::text(&chapters))?;
        }
        Ok(exit)
    }

    /// Runs an experiment.
    fn chapter(&self, name: &'static str) -> serde_json::Result<Chapter> {
        let bar = Progress::new();
        let settings = Settings { seed: self.seed, seeds: self.seeds };
        let progress = |share| bar.show(Some(share), name.to_owned());
        control::chapter(name, experiment::control::study::run(settings, &progress))
    }
}

/// Everything as one JSON object.
fn object(chapters: Vec<Chapter>) -> Value {
    let experiment = |Chapter { name, mut value, .. }| {
        value["name"] = json!(name);
        value
    };
    let experiments: Vec<_> = chapters.into_iter().map(experiment).collect();
    json!({ "version": 1, "experiments": experiments })
}

/// Whether every claim holds that must.
fn exit(chapters: &[Chapter]) -> Exit {
    let mut claims = chapters.iter().flat_map(|chapter| &chapter.claims);
    let met = claims.all(|claim| claim.holds || !claim.required);
    if met { Exit::Success } else { Exit::Expectation }
}

#[cfg(test)]
mod tests;
