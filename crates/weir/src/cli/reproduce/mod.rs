//! `weir reproduce`: published experiments, with what was claimed and what is measured.

mod page;
mod text;

use super::progress::Progress;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};
use std::path::PathBuf;
use weir_sim::experiment::study::{self, Settings, Study};

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

impl Reproduce {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let wanted = |name: &&str| self.names.is_empty() || self.names.iter().any(|n| n == name);
        let mut found = Vec::new();
        for name in NAMES.into_iter().filter(wanted) {
            let bar = Progress::new();
            let settings = Settings { seed: self.seed, seeds: self.seeds };
            let study = study::control(settings, &|share| bar.show(Some(share), name.to_owned()));
            drop(bar);
            found.push((name, study));
        }
        if let Some(path) = &self.report {
            std::fs::write(path, page::page(&found)).map_err(|error| {
                let message = format!("cannot write `{}`: {error}", path.display());
                Failure::new(Exit::Unexpected, message, "name a file that can be written")
            })?;
        }
        if self.json {
            print_json(&object(&found).map_err(|error| Failure::unexpected(error.to_string()))?)?;
        } else {
            print(&text::text(&found))?;
        }
        Ok(exit(&found))
    }
}

/// Everything as one JSON object.
fn object(found: &[(&str, Study)]) -> serde_json::Result<Value> {
    let experiments: serde_json::Result<Vec<_>> = found.iter().map(experiment).collect();
    Ok(json!({ "version": 1, "experiments": experiments? }))
}

/// An experiment as JSON: its name, and all of its figures.
fn experiment((name, study): &(&str, Study)) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(study)?;
    value["name"] = json!(name);
    // Thousands of samples that only the page shows.
    if let Some(object) = value.as_object_mut() {
        object.remove("courses");
    }
    Ok(value)
}

/// Whether every claim holds that must.
fn exit(found: &[(&str, Study)]) -> Exit {
    let mut claims = found.iter().flat_map(|(_, study)| &study.claims);
    let met = claims.all(|claim| claim.holds || !claim.required);
    if met { Exit::Success } else { Exit::Expectation }
}

#[cfg(test)]
mod tests;
