//! `weir sim`: runs one experiment under a virtual clock.

use super::config::warn;
use super::progress::Progress;
use super::report;
use crate::config::source::Source;
use crate::config::{self, plan};
use crate::exit::{Exit, Failure};
use crate::output::{Color, print, print_json};
use clap::Args;
use serde_json::json;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::PathBuf;
use weir_sim::plan::Plan;
use weir_sim::results::Results;
use weir_sim::{RunError, run};

/// Run one experiment under a virtual clock
///
/// The plan describes tenants, workloads, policies and modelled devices; `weir config show --defaults
/// --plan` lists all of its keys. Equal plans and seeds give equal runs; the digest at the end covers
/// every action of the data path with its time.
///
/// The exit code is 4 if an expectation of the plan is not met.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Sim {
    /// The plan, a TOML file
    plan: PathBuf,
    /// Seed of all random streams, instead of the plan's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Sim {
    pub(super) fn run(self, color: Color) -> Result<Exit, Failure> {
        let source = Source::read(&self.plan).map_err(Failure::unreadable)?;
        let loaded = config::plan(&source)
            .map_err(|diagnostics| Failure::invalid(diagnostics, source.clone()))?;
        warn(&loaded.warnings, &source, color);
        let plan::Experiment { mut plan, expectations } = loaded.checked;
        plan.seed = self.seed.unwrap_or(plan.seed);
        let results = simulate(&plan)?;
        let verdicts: Vec<_> =
            expectations.iter().map(|expectation| expectation.verdict(&results)).collect();
        let met = verdicts.iter().all(|verdict| verdict.met);
        let name = self.plan.display().to_string();
        if self.json {
            let expectations: Vec<_> = verdicts.iter().map(plan::Verdict::to_json).collect();
            let results = serde_json::to_value(&results);
            let results = results.map_err(|error| Failure::unexpected(error.to_string()))?;
            print_json(&json!({
                "version": 1, "plan": name, "results": results, "expectations": expectations,
            }))?;
        } else {
            let mut text = report::text(&results);
            for verdict in &verdicts {
                text.push_str(&verdict.text());
            }
            let (digest, seed) = (&results.digest, results.seed);
            let _ = writeln!(
                text,
                "digest {digest}, seed {seed}; again: weir sim {name} --seed {seed}"
            );
            print(&text)?;
        }
        Ok(if met { Exit::Success } else { Exit::Expectation })
    }
}

/// Runs a plan with a progress bar.
pub(super) fn simulate(plan: &Plan) -> Result<Results, Failure> {
    let bar = Progress::new();
    let results = run(plan, |progress| {
        bar.show(progress.fraction(), format!("{} requests", progress.arrived));
    });
    drop(bar);
    results.map_err(|error| failure(&error))
}

/// A plan that cannot be run.
pub(super) fn failure(error: &RunError) -> Failure {
    match error {
        RunError::Plan(error) => {
            Failure::new(Exit::Invalid, error.to_string(), "change this part of the plan")
        }
        RunError::Trace(error) => trace_failure(error),
        RunError::Recording(error) => {
            Failure::unexpected(format!("cannot write the recording: {error}"))
        }
    }
}

/// A trace that cannot be read: its message names file, line and column.
pub(super) fn trace_failure(error: &weir_sim::trace::Error) -> Failure {
    let help = match (&error.remedy, error.line) {
        (Some(remedy), _) => Cow::Owned(remedy.clone()),
        (None, 0) => Cow::Borrowed(
            "name a readable trace, plain or compressed with zstd or gzip: `weir trace info --help`",
        ),
        _ => Cow::Borrowed("correct this line; `weir trace info FILE` checks the whole file"),
    };
    Failure::new(Exit::Invalid, error.problem(), help)
}
