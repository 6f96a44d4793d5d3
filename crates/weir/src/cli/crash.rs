//! `weir crash`: crashes small workloads at every I/O boundary and checks the data after recovery.

use super::progress::Progress;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use crate::table::{Align, Table};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};
use std::fmt::Write as _;
use weir_sim::crash::{Bug, Report, Settings, Violation, run};

/// Crash the write-back log at every I/O boundary, and check the data after recovery
///
/// Seeds generate small workloads, which run through the pipeline of `weir serve` with a write-back log and a read
/// cache; write-back is switched off and on, paths to the upstream break, writes of lost sessions and dead gateways are
/// executed late, another gateway takes over, settings change, and the gateway is stopped at times. Each time
/// an I/O of the log device or the upstream begins or ends, and each time a host gets a reply, both devices are
/// crashed in many ways: every 512-byte sector that was not flushed is kept or lost. Each crash is followed by a
/// recovery, which must satisfy these laws: all data that was acknowledged as durable, or that a host has read, is
/// present; the volume equals a prefix of all writes; the upstream alone, and the volume while writes bypass the log,
/// equal what a disk with a volatile cache may hold after a power cut; a unit that another gateway has taken over is
/// not written to; a rotten sector of the log is never taken for data, nor for the end of the log. Restarted gateways
/// crash again.
///
/// A violation is printed with its seed and the shortest workload that shows it, and the exit code is 4. `--bug`
/// plants one bug, `--bugs` each bug in turn: then the exit code is 4 if one is not found.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Crash {
    /// The first seed; further workloads use the seeds that follow
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1 << 53))]
    seed: u64,
    /// Stop after this many different states of both devices: by default 100000, with a planted bug 1000000
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=100_000_000)
    )]
    states: Option<u64>,
    /// Plant this bug; `--bugs` lists them
    #[arg(long, value_name = "NAME", hide_possible_values = true, value_parser = PossibleValuesParser::new(Bug::ALL.map(Bug::name)))]
    bug: Option<String>,
    /// Plant every bug in turn, and print the law that found it
    #[arg(long, conflicts_with = "bug")]
    bugs: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// States without, and with a planted bug.
const STATES: u64 = 100_000;
const WITH_BUG: u64 = 1_000_000;

const KINDS: &[(&str, Align)] =
    &[("lost", Align::Left), ("log device", Align::Right), ("upstream", Align::Right)];

const EVENTS: &[(&str, Align)] = &[("event", Align::Left), ("count", Align::Right)];

const BUGS: &[(&str, Align)] = &[
    ("bug", Align::Left),
    ("planted", Align::Left),
    ("found by", Align::Left),
    ("seed", Align::Right),
    ("states", Align::Right),
];

impl Crash {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        if self.bugs {
            return self.all_bugs();
        }
        let bar = Progress::new();
        let bug = self.bug.as_deref().and_then(Bug::named);
        let states = self.states.unwrap_or(if bug.is_some() { WITH_BUG } else { STATES });
        let settings = Settings { seed: self.seed, states, bug, told: true };
        let report = run(settings, &|share| bar.show(Some(share), "crashes".to_owned()));
        drop(bar);
        if self.json {
            print_json(&object(&report)?)?;
        } else {
            print(&text(&report))?;
        }
        Ok(exit([report.violation.is_some() == bug.is_some()]))
    }

    fn all_bugs(&self) -> Result<Exit, Failure> {
        let bar = Progress::new();
        let mut reports = Vec::new();
        for (index, bug) in Bug::ALL.into_iter().enumerate() {
            let share = index as f64 / Bug::ALL.len() as f64;
            bar.show(Some(share), bug.name().to_owned());
            let states = self.states.unwrap_or(WITH_BUG);
            let settings = Settings { seed: self.seed, states, bug: Some(bug), told: false };
            reports.push((bug, run(settings, &|_| ())));
        }
        drop(bar);
        if self.json {
            print_json(&bugs_object(self.seed, &reports))?;
        } else {
            print(&bugs_text(&reports))?;
        }
        Ok(exit(reports.iter().map(|(_, report)| report.violation.is_some())))
    }
}

/// Success if all are good.
fn exit(good: impl IntoIterator<Item = bool>) -> Exit {
    if good.into_iter().all(|good| good) { Exit::Success } else { Exit::Expectation }
}

fn object(report: &Report) -> Result<Value, Failure> {
    let value = serde_json::to_value(report);
    let mut value = value.map_err(|error| Failure::unexpected(error.to_string()))?;
    value["version"] = json!(1);
    Ok(value)
}

fn bugs_object(seed: u64, reports: &[(Bug, Report)]) -> Value {
    let bug = |(bug, report): &(Bug, Report)| {
        let Report { violation, states, .. } = report;
        let law = violation.as_ref().map(|violation| violation.law);
        let found = violation.as_ref().map(|violation| violation.seed);
        json!({ "name": bug.name(), "noticed_by": law, "seed": found, "states": states })
    };
    json!({ "version": 1, "seed": seed, "bugs": reports.iter().map(bug).collect::<Vec<_>>() })
}

fn text(report: &Report) -> String {
    let &Report { seed, workloads, lives, points, states, checked, dirty, rotten, .. } = report;
    let mut table = Table::new(KINDS);
    for kind in &report.kinds {
        table.row(vec![kind.loss.to_owned(), kind.log.to_string(), kind.upstream.to_string()]);
    }
    let mut events = Table::new(EVENTS);
    for event in &report.events {
        events.row(vec![event.event.to_owned(), event.count.to_string()]);
    }
    let mut text = format!(
        "Different states of both devices after a crash, by the loss, from seed {seed}\n{}\n\
         Events in all workloads together\n{}\n\
         {workloads} workloads, {lives} gateway starts, {points} crash points: {states} different states; \
         {checked} recoveries\nchecked against the replies until then, {dirty} of them with data only in the log; {rotten} logs opened with a \
         rotten sector; ",
        table.render("  "),
        events.render("  ")
    );
    match &report.violation {
        None => text.push_str("no law is broken\n"),
        Some(violation) => describe(&mut text, violation),
    }
    text
}

fn describe(text: &mut String, violation: &Violation) {
    let Violation { seed, law, what, crash, settings, requests, story } = violation;
    let _ = writeln!(
        text,
        "a law is broken\n\nLaw `{law}`, workload of seed {seed}: {what}\n\n{settings}\n\
         Events, with {} of its {} requests",
        requests.1, requests.0
    );
    for line in story {
        let _ = writeln!(text, "  {line}");
    }
    if let Some(crash) = crash {
        let _ = writeln!(text, "  crash here: {crash}");
    }
}

fn bugs_text(reports: &[(Bug, Report)]) -> String {
    let mut table = Table::new(BUGS);
    for (bug, report) in reports {
        let (law, seed) = report.violation.as_ref().map_or_else(
            || ("NOTHING".to_owned(), "-".to_owned()),
            |violation| (violation.law.to_owned(), violation.seed.to_string()),
        );
        let what = bug.summary().to_owned();
        table.row(vec![bug.name().to_owned(), what, law, seed, report.states.to_string()]);
    }
    let noticed = reports.iter().filter(|(_, report)| report.violation.is_some()).count();
    format!("{}\n{noticed} of {} planted bugs are found\n", table.render("  "), reports.len())
}
