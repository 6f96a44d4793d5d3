//! `weir explain`: shows which stage and rule held each request, and for how long.

use super::config::warn;
use super::progress::Progress;
use super::report::{self, divided, millis, tenths};
use super::{replay, sim, slow};
use crate::config;
use crate::config::source::Source;
use crate::exit::{Exit, Failure};
use crate::output::{Color, print, print_json};
use crate::table::{Align, Table};
use clap::Args;
use serde_json::json;
use std::cmp::Reverse;
use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use weir_flow::clock::Duration;
use weir_flow::request::{Tag, TenantId};
use weir_sim::explain::{
    self, Behind, Explanation, Question, REQUESTS_MAX, Story, TenantExplanation,
};
use weir_sim::plan::Plan;

/// Show which rules held requests, and for how long
///
/// FILE is a recording of `weir serve --record` or a plan of `weir sim`. The slowest requests are
/// printed, each with its stages, the time in each, and the rule that held it there; then, for each
/// tenant, how well its objectives were met and which rules took its time. Of a plan, the part after
/// the warm-up counts.
///
/// A recording numbers tenants and volumes in the order of the configuration. It is replayed: the exit
/// code is 5 if its actions differ from the recorded ones, and 6 if it is damaged or ends before its
/// digest.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Explain {
    /// The recording, or the plan (a TOML file)
    file: PathBuf,
    /// Only this tenant: its name, or its number from 0
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Print the requests with this tag, earliest first, instead of the slowest; tags are reused
    #[arg(long, value_name = "TAG")]
    request: Option<u64>,
    /// Print at most this many requests
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(0..=REQUESTS_MAX as i64)
    )]
    slowest: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(super) fn run(self, color: Color) -> Result<Exit, Failure> {
        if replay::is_recording(&self.file)? { self.recording() } else { self.plan(color) }
    }

    fn recording(&self) -> Result<Exit, Failure> {
        let question = self.question(&[])?;
        let bar = Progress::new();
        let answer = File::open(&self.file).map_err(Into::into).and_then(|file| {
            explain::recording(file, question, |entries| {
                bar.show(None, format!("{entries} entries"));
            })
        });
        drop(bar);
        let (result, explanation) = answer.map_err(|error| replay::failure(&self.file, error))?;
        let (verdict, told, exit) = replay::verdict(&result);
        let name = self.file.display().to_string();
        if self.json {
            print_json(&json!({
                "version": 1, "recording": name, "verdict": verdict,
                "replay": result, "explanation": explanation,
            }))?;
        } else {
            let seconds = result.virtual_ns as f64 / 1e9;
            let names = Names { tenants: &[], volumes: &[] };
            let mut text = format!("{name}: {} entries, {seconds:.3} s; {told}\n", result.entries);
            text.push_str(&names.text(&explanation, self.request));
            print(&text)?;
        }
        Ok(exit)
    }

    fn plan(&self, color: Color) -> Result<Exit, Failure> {
        let source = Source::read(&self.file).map_err(Failure::unreadable)?;
        let loaded = config::plan(&source)
            .map_err(|diagnostics| Failure::invalid(diagnostics, source.clone()))?;
        warn(&loaded.warnings, &source, color);
        let plan: Plan = loaded.checked.plan;
        let question = self.question(&plan.tenants)?;
        let bar = Progress::new();
        let answer = explain::plan(&plan, question, |progress| {
            bar.show(progress.fraction(), format!("{} requests", progress.arrived));
        });
        drop(bar);
        let (results, explanation) = answer.map_err(|error| sim::failure(&error))?;
        let name = self.file.display().to_string();
        let volumes: Vec<_> = plan.volumes.into_iter().map(|volume| volume.name).collect();
        if self.json {
            print_json(&json!({
                "version": 1, "plan": name, "seed": results.seed, "digest": results.digest,
                "tenants": plan.tenants, "volumes": volumes, "explanation": explanation,
            }))?;
        } else {
            let names = Names { tenants: &plan.tenants, volumes: &volumes };
            print(&names.text(&explanation, self.request))?;
        }
        Ok(Exit::Success)
    }

    /// The question of the command line; `names` are those of the tenants, none in a recording.
    fn question(&self, names: &[String]) -> Result<Question, Failure> {
        let tenant = match &self.tenant {
            None => None,
            Some(wanted) => {
                let number = || {
                    let number: u32 = wanted.parse().ok()?;
                    (names.is_empty() || (number as usize) < names.len()).then_some(number)
                };
                let id = names
                    .iter()
                    .position(|name| name == wanted)
                    .map(|index| index as u32)
                    .or_else(number)
                    .ok_or_else(|| {
                        let (message, help) = if names.is_empty() {
                            let message = format!("`{wanted}` is not the number of a tenant");
                            (
                                message,
                                "a recording has no names: count from 0, as the configuration does",
                            )
                        } else {
                            let message = format!("there is no tenant `{wanted}`");
                            (message, "`weir config show --plan PLAN` lists the tenants")
                        };
                        Failure::new(Exit::Usage, message, help)
                    })?;
                Some(TenantId::new(id))
            }
        };
        Ok(Question { tenant, tag: self.request.map(Tag), requests: self.slowest as usize })
    }
}

/// The names of tenants and volumes; without a name the number is printed.
#[derive(Clone, Copy, Debug)]
struct Names<'a> {
    tenants: &'a [String],
    volumes: &'a [String],
}

impl Names<'_> {
    fn tenant(self, index: usize) -> String {
        self.tenants.get(index).cloned().unwrap_or_else(|| format!("tenant {index}"))
    }

    fn volume(self, index: usize) -> String {
        self.volumes.get(index).cloned().unwrap_or_else(|| format!("volume {index}"))
    }

    fn text(self, explanation: &Explanation, tag: Option<u64>) -> String {
        let (told, ended) = (explanation.requests.len(), explanation.ended);
        let mut text = match tag {
            Some(tag) => format!("The first {told} of {ended} requests with tag {tag}\n"),
            None => format!("The slowest {told} of {ended} requests\n"),
        };
        for story in &explanation.requests {
            text.push('\n');
            text.push_str(&self.story(story));
        }
        for tenant in &explanation.tenants {
            text.push('\n');
            text.push_str(&self.account(tenant));
        }
        if !explanation.outstanding.is_empty() {
            text.push_str("\nOutstanding at the end\n");
            for place in &explanation.outstanding {
                let oldest = Duration::from_nanos(place.oldest_ns);
                let _ = writeln!(
                    text,
                    "  {:<8}  {}, the oldest for {oldest}",
                    place.stage, place.count
                );
            }
        }
        text
    }

    /// One request: what it was, and where it was held.
    fn story(self, story: &Story) -> String {
        let micros = |nanos: u64| (nanos + 500) / 1_000;
        let told = |micros: u64| format!("{}.{:03} ms", micros / 1_000, micros % 1_000);
        let mut text = format!(
            "{}: {} of {} bytes at {} of {}, tag {}\n  arrived at {:.6} s, took {}",
            self.tenant(story.tenant),
            story.op,
            story.length,
            story.offset,
            self.volume(story.volume),
            story.tag,
            story.arrived_ns as f64 / 1e9,
            told(micros(story.response_ns)),
        );
        if let Some(target) = story.target_ns {
            let _ = write!(text, ", objective {} ms", millis(target));
        }
        if let Some(error) = &story.error {
            let _ = write!(text, "; failed: {error}");
        }
        text.push('\n');
        let times = story.held.iter().map(|held| held.time_ns);
        let times = divided(times, micros(story.response_ns)).into_iter().map(told);
        let times: Vec<_> = times.collect();
        let width = times.iter().map(String::len).max().unwrap_or(0);
        for (held, time) in story.held.iter().zip(times) {
            let _ = write!(text, "    {:<8}  {time:>width$}  {}", held.stage, held.rule);
            let behind: Vec<_> = held.behind.iter().map(|behind| self.behind(behind)).collect();
            text.push_str(&slow::behind(&behind));
            text.push('\n');
        }
        text
    }

    /// Who was served meanwhile, and for how long.
    fn behind(self, behind: &Behind) -> (String, u64) {
        let who = behind.tenant.map_or_else(|| behind.who.clone(), |tenant| self.tenant(tenant));
        (who, behind.time_ns)
    }

    /// One tenant: how well its objectives were met, and its ledger.
    fn account(self, tenant: &TenantExplanation) -> String {
        let (name, ledger) = (self.tenant(tenant.tenant), &tenant.ledger);
        let mut text = format!(
            "{name}: {} requests, {:.3} s in total, {} refused",
            ledger.requests,
            ledger.time_ns as f64 / 1e9,
            tenant.refused
        );
        if ledger.late_requests > 0 {
            let _ = write!(
                text,
                "; {} late, by {:.3} s in total",
                ledger.late_requests,
                ledger.beyond_ns as f64 / 1e9
            );
        }
        text.push('\n');
        if let Some(targets) = report::targets([(&*name, &*tenant.attainment)].into_iter()) {
            text.push_str(&targets);
        }
        let mut causes: Vec<_> = ledger.causes.iter().collect();
        causes.sort_by_key(|cause| Reverse(cause.time_ns));
        let shares = divided(causes.iter().map(|cause| cause.time_ns), 1_000);
        let late = divided(causes.iter().map(|cause| cause.late_ns), 1_000);
        let mut table = Table::new(LEDGER);
        for ((cause, share), late) in causes.iter().zip(shares).zip(late) {
            table.row(vec![
                cause.stage.to_owned(),
                cause.rule.to_owned(),
                tenths(share),
                if ledger.late_ns > 0 { tenths(late) } else { "-".to_owned() },
                cause.requests.to_string(),
                format!("{:.3}", cause.time_ns as f64 / 1e6 / cause.requests.max(1) as f64),
            ]);
        }
        text.push_str(&table.render("  "));
        text
    }
}

const LEDGER: &[(&str, Align)] = &[
    ("stage", Align::Left),
    ("rule", Align::Left),
    ("% of time", Align::Right),
    ("% of late", Align::Right),
    ("requests", Align::Right),
    ("mean ms", Align::Right),
];
