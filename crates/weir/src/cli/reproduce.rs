//! `weir reproduce`: repeats the experiments of published papers and checks their claims.

use super::progress::Progress;
use super::sim::trace_failure;
use crate::exit::{Exit, Failure};
use crate::output::{complain, print, print_json};
use crate::table::{Column, Table, words};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};
use weir_papers::dispatch::live::{self, Live};
use weir_papers::{EXPERIMENTS, Experiment, Settings, Traces, html, path, text, transfer};
use weir_sim::trace;

/// Repeat the experiments of published papers and check their claims
///
/// `control`: the evaluation of the token-bucket paper, two sets of tenants in nine intervals, under TA0 to
/// TA3, rival policies and TA4, with constant and Poisson arrivals; and twelve stress scenarios.
///
/// `dispatch`: weighted shares over parallel flash chips, figures 3 to 6 of the paper of `fog`, under `fog`
/// and rival policies; and hot chips, small reads among writes, and garbage collection of real blocks. With `--live`
/// also figures 3 and 5 of gateways.
///
/// `path`: the path selectors on the workloads of the paper of `roung`, with the arrivals for which its claims
/// hold and with others; general workloads; paths of different speeds; slow, stalled and failed paths; traces.
///
/// `intermediate`: a target between a client and remote storage, with a buffer, prefetch and write-back: both
/// figures of its paper under both readings of its parameters, measured hit ratios, and what the paper omits.
///
/// `transfer`: the order of replies on a busy link, the examples of the paper of `dqbs` tick by tick, and its
/// policy, rivals and `slack` on the reads of two databases at the paper's operating point; and traces.
///
/// Without NAME all experiments run. Equal seeds give equal results.
///
/// The exit code is 4 if a required claim does not hold.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Reproduce {
    /// The experiments
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(EXPERIMENTS.map(|one| one.name)))]
    names: Vec<String>,
    /// List the experiments with their papers and durations, and run none
    #[arg(long, conflicts_with_all = ["names", "seeds", "traces", "live", "report"])]
    list: bool,
    /// Runs per figure; the default is 2, 3 or 10, for `path` 10 or 100, for `intermediate` 20
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: Option<u32>,
    /// The first seed; further runs use the seeds that follow
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1 << 53))]
    seed: u64,
    /// `path`, `transfer`: also use the traces (`*.csv`, `*.csv.zst`) in this folder; unsuitable ones are skipped
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// `dispatch`: also show figures 3 and 5 of this recording of a gateway, beside the simulated and the published
    ///
    /// The hosts of the gateway did what the figures ask for. May come several times.
    #[arg(long, value_name = "RECORDING")]
    live: Vec<PathBuf>,
    /// Also write the results as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const LIST: &[Column<Experiment>] = &[
    words("name", |one| one.name.to_owned()),
    words("takes", |one| one.takes.to_owned()),
    words("paper", |one| one.paper.to_owned()),
];

impl Reproduce {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        if self.list {
            self.print_list()?;
            return Ok(Exit::Success);
        }
        let wanted = |name: &str| self.names.is_empty() || self.names.iter().any(|n| n == name);
        if self.traces.is_some() && !wanted("path") && !wanted("transfer") {
            let message = "`--traces` is for the experiments `path` and `transfer`, neither of which is among \
                           the names";
            let what = "add `path` or `transfer`, or leave out `--traces`";
            return Err(Failure::new(Exit::Usage, message, what));
        }
        let files = self.traces.as_deref().map_or_else(|| Ok(Vec::new()), files)?;
        // A trace that cannot be read ends the command before anything runs.
        let mut traces = Traces::default();
        if wanted("path") {
            traces.path = read(&files, "requests", path::Trace::read)?;
        }
        if wanted("transfer") {
            traces.transfer = read(&files, "reads", transfer::Trace::read)?;
        }
        if !self.live.is_empty() && !wanted("dispatch") {
            let message = "`--live` is for the experiment `dispatch`, which is not among the names";
            let what = "add `dispatch`, or leave out `--live`";
            return Err(Failure::new(Exit::Usage, message, what));
        }
        traces.live = self.live.iter().map(|path| figure(path)).collect::<Result<_, _>>()?;
        let settings = Settings { seed: self.seed, seeds: self.seeds };
        let chapters: Vec<_> = EXPERIMENTS
            .iter()
            .filter(|experiment| wanted(experiment.name))
            .map(|experiment| {
                let bar = Progress::new();
                let progress = |share| bar.show(Some(share), experiment.name.to_owned());
                experiment.run(settings, &traces, &progress)
            })
            .collect();
        if let Some(path) = &self.report {
            std::fs::write(path, html::page(&chapters)).map_err(|error| {
                let message = format!("cannot write `{}`: {error}", path.display());
                Failure::new(Exit::Unexpected, message, "name a file that can be written")
            })?;
        }
        let exit = if weir_papers::met(&chapters) { Exit::Success } else { Exit::Expectation };
        if self.json {
            print_json(&weir_papers::object(chapters))?;
        } else {
            print(&text::text(&chapters))?;
        }
        Ok(exit)
    }

    fn print_list(&self) -> Result<(), Failure> {
        if !self.json {
            return print(&Table::of(LIST, &EXPERIMENTS).render(""));
        }
        let entry =
            |one: &Experiment| json!({ "name": one.name, "paper": one.paper, "takes": one.takes });
        let entries: Vec<_> = EXPERIMENTS.iter().map(entry).collect();
        print_json(&json!({ "version": 1, "experiments": entries }))
    }
}

/// The figure that a recording shows.
fn figure(path: &Path) -> Result<Live, Failure> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| {
        let message = format!("cannot read `{shown}`: {error}");
        Failure::new(Exit::Invalid, message, "name a recording of `weir serve --record`")
    })?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    live::read(&name, file).map_err(|error| {
        let help = "docs/research/dispatch.md, section 9, says what gateway and hosts have to do";
        Failure::new(Exit::Invalid, format!("`{shown}`: {error}"), help)
    })
}

/// The traces of a folder with their names, sorted by name.
fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let failure = |error: std::io::Error| {
        let message = format!("cannot read the folder `{}`: {error}", folder.display());
        Failure::new(Exit::Invalid, message, "name a folder of traces")
    };
    let mut files = Vec::new();
    for entry in folder.read_dir().map_err(failure)? {
        let path = entry.map_err(failure)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stem = name.strip_suffix(".zst").unwrap_or(&name).strip_suffix(".csv");
        if let Some(stem) = stem {
            files.push((stem.to_owned(), path));
        }
    }
    if files.is_empty() {
        let message = format!("`{}` has no file `*.csv` or `*.csv.zst`", folder.display());
        return Err(Failure::new(Exit::Invalid, message, "name a folder of traces"));
    }
    files.sort();
    Ok(files)
}

/// Reads all of them. Those that lack what is needed are skipped, with a notice; one of them must remain.
fn read<T>(
    files: &[(String, PathBuf)],
    needed: &str,
    read: fn(&str, &Path) -> Result<Option<T>, trace::Error>,
) -> Result<Vec<T>, Failure> {
    let mut traces = Vec::new();
    for (name, path) in files {
        match read(name, path).map_err(|error| trace_failure(&error))? {
            Some(trace) => traces.push(trace),
            None => complain(&format!(
                "note: `{}` is skipped: it has no two {needed} at different times\n",
                path.display()
            )),
        }
    }
    if traces.is_empty() && !files.is_empty() {
        let message = format!("no trace of the folder has two {needed} at different times");
        return Err(Failure::new(Exit::Invalid, message, "name a folder with such a trace"));
    }
    Ok(traces)
}
