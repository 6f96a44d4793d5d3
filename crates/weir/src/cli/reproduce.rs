//! `weir reproduce`: published experiments, with what was claimed and what is measured.

use super::progress::Progress;
use super::sim::trace_failure;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::{Path, PathBuf};
use weir_papers::{Chapter, Settings, control, dispatch, html, intermediate, path, text, transfer};
use weir_sim::trace;

/// Run published experiments and compare what was claimed with what is measured
///
/// `control` is the evaluation of the token-bucket paper: two sets of tenants in nine intervals, under
/// TA0 to TA3, their rivals and TA4, with constant and with Poisson arrivals, and twelve scenarios
/// that stress them.
///
/// `path` is the path selectors: the workloads of the paper that `roung` is from, in the arrival regimes
/// in which its claims hold and in those in which they do not; general workloads; paths of different speeds; paths
/// that become slow, stall or fail; and traces, if a folder of them is given.
///
/// `dispatch` is weighted shares over parallel flash chips: figures 3 to 6 of the paper that `fog` is from
/// under it and its rivals, and hot chips, small reads among writers, and garbage collection of real blocks.
///
/// `intermediate` is a target between a client and far storage, with a buffer, prefetch and early
/// acknowledgement: both figures of its paper by both readings of its parameters, the hit ratios as buffer
/// and prefetch produce them, and what the paper leaves out.
///
/// `transfer` is the order of replies on a busy link: the worked examples of the paper that `dqbs` is from, tick by
/// tick, and its policy, its rivals and `slack` on reads of two databases at the paper's operating point; and on
/// those of traces, if a folder of them is given.
///
/// Without a name every experiment is run. Equal seeds give equal figures.
///
/// Where a claim that must hold does not, the exit code is 4.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Reproduce {
    /// The experiments
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(NAMES))]
    names: Vec<String>,
    /// Runs per figure; without this 2 or 3, in `path` 10 or 100, in `intermediate` 20; with 1 chance has a say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: Option<u32>,
    /// The first seed; further runs take those that follow
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1 << 53))]
    seed: u64,
    /// `path`, `transfer`: the traces (`*.csv`, `*.csv.zst`) in this folder too
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Also write a page for a browser, with everything in one file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The experiments that there are.
const NAMES: [&str; 5] = ["control", "dispatch", "path", "intermediate", "transfer"];

impl Reproduce {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let wanted = |name: &&str| self.names.is_empty() || self.names.iter().any(|n| n == name);
        if self.traces.is_some() && !wanted(&"path") && !wanted(&"transfer") {
            let message = "`--traces` is for the experiments `path` and `transfer`, neither of which is among \
                           the names";
            let what = "add `path` or `transfer`, or leave out `--traces`";
            return Err(Failure::new(Exit::Usage, message, what));
        }
        let files = self.traces.as_deref().map_or_else(|| Ok(Vec::new()), files)?;
        // All of them are read before anything runs.
        let mut traces = Traces::default();
        if wanted(&"path") {
            traces.path = read(&files, path::Trace::read)?;
        }
        if wanted(&"transfer") {
            traces.transfer = read(&files, transfer::Trace::read)?;
        }
        let mut chapters = Vec::new();
        for name in NAMES.into_iter().filter(wanted) {
            let chapter = self.chapter(name, &traces);
            chapters.push(chapter.map_err(|error| Failure::unexpected(error.to_string()))?);
        }
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

    /// Runs an experiment.
    fn chapter(&self, name: &'static str, traces: &Traces) -> serde_json::Result<Chapter> {
        let bar = Progress::new();
        let settings = Settings { seed: self.seed, seeds: self.seeds };
        let progress = |share| bar.show(Some(share), name.to_owned());
        match name {
            "control" => control::page::chapter(name, control::study::run(settings, &progress)),
            "dispatch" => dispatch::page::chapter(name, dispatch::study::run(settings, &progress)),
            "path" => {
                path::page::chapter(name, path::study::run(settings, &traces.path, &progress))
            }
            "transfer" => {
                let study = transfer::study::run(settings, &traces.transfer, &progress);
                transfer::page::chapter(name, study)
            }
            _ => {
                let study = intermediate::study::run(settings, &progress);
                intermediate::page::chapter(name, study)
            }
        }
    }
}

/// The traces of a folder, as the experiments want them.
#[derive(Default)]
struct Traces {
    path: Vec<path::Trace>,
    transfer: Vec<transfer::Trace>,
}

/// Names and places of the traces of a folder, in the order of their names.
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

/// Reads all of them.
fn read<T>(
    files: &[(String, PathBuf)],
    read: fn(&str, &Path) -> Result<T, trace::Error>,
) -> Result<Vec<T>, Failure> {
    let traces: Result<_, _> = files.iter().map(|(name, path)| read(name, path)).collect();
    traces.map_err(|error| trace_failure(&error))
}
