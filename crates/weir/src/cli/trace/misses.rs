//! `weir trace misses`: cache misses of a trace by cache size and eviction policy.

use super::{format, refuse_recording};
use crate::cli::progress::Progress;
use crate::cli::sim::trace_failure;
use crate::config::units::SIZE;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use crate::table::{Align, Table};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use std::path::PathBuf;
use weir_flow::cache::evict::{Build, POLICIES};
use weir_flow::cache::lines::LARGEST_LINE;
use weir_flow::policy::Choice;
use weir_flow::units::ByteCount;
use weir_sim::misses::{Demand, MOST_LINES, Outcome, demand, misses};
use weir_sim::trace::Format;

/// Predict cache misses for several cache sizes and eviction policies
///
/// Each line that a request touches counts once; reads and writes both bring it into the cache. Requests take no
/// time, and there is no prefetch: the result compares policies and cache sizes. Without `--size` the cache holds 1,
/// 5, 20 and 50 percent of the distinct lines of the trace.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Misses {
    /// The trace
    file: PathBuf,
    /// A cache size, such as 64MiB; may be given several times
    #[arg(long = "size", value_name = "BYTES", value_parser = size)]
    sizes: Vec<u64>,
    /// Bytes of a line: a power of two from 512B to 32KiB
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = line)]
    line: u32,
    /// An eviction policy; may be given several times; the default is all of them
    #[arg(
        long = "policy",
        value_name = "NAME",
        value_parser = PossibleValuesParser::new(POLICIES.iter().map(|policy| policy.name))
    )]
    policies: Vec<String>,
    /// Format of the trace; the default is to find it from the content
    #[arg(long, value_parser = format)]
    format: Option<Format>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Shares of a trace's lines that are tried when no size is given, in percent.
const SHARES: [u64; 4] = [1, 5, 20, 50];

fn size(text: &str) -> Result<u64, String> {
    SIZE.parse(text).map_err(|bad| format!("{}; {}", bad.message, bad.help))
}

fn line(text: &str) -> Result<u32, String> {
    let line = size(text)?;
    match u32::try_from(line) {
        Ok(line) if line.is_power_of_two() && (512..=LARGEST_LINE).contains(&line) => Ok(line),
        _ => Err(format!("a line is a power of two from 512B to 32KiB, not {line} bytes")),
    }
}

impl Misses {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        refuse_recording(&self.file)?;
        let bar = Progress::new();
        let read = |requests| bar.show(None, format!("{requests} requests"));
        let demand = demand(&self.file, self.format, self.line, read);
        let demand = demand.map_err(|error| trace_failure(&error))?;
        let sizes = self.lines_of_buffers(&demand)?;
        let named = |policy: &&str| Choice::named(POLICIES, policy).expect("it is in the list");
        let policies: Vec<Choice<Build>> = POLICIES
            .iter()
            .map(|policy| policy.name)
            .filter(|name| self.policies.is_empty() || self.policies.iter().any(|p| p == name))
            .map(|name| named(&name))
            .collect();
        let sent = |requests| {
            let share = requests as f64 / demand.requests.max(1) as f64;
            bar.show(Some(share), format!("{requests} of {} requests", demand.requests));
        };
        let outcomes = misses(&self.file, self.format, self.line, &demand, &sizes, &policies, sent);
        drop(bar);
        let outcomes = outcomes.map_err(|error| trace_failure(&error))?;
        if self.json {
            print_json(&self.to_json(&demand, &outcomes))?;
        } else {
            print(&self.text(&demand, &outcomes, policies.len()))?;
        }
        Ok(Exit::Success)
    }

    /// The sizes in lines, at least one each, in the order of the command line.
    fn lines_of_buffers(&self, demand: &Demand) -> Result<Vec<u64>, Failure> {
        let line = u64::from(self.line);
        let mut sizes: Vec<u64> = self.sizes.iter().map(|size| size / line).collect();
        if sizes.is_empty() {
            sizes = SHARES.iter().map(|share| (demand.lines * share / 100).max(1)).collect();
        }
        if let Some(small) = sizes.iter().position(|&lines| lines == 0) {
            let message = format!("a cache of {} bytes holds no line of {line}", self.sizes[small]);
            return Err(Failure::new(
                Exit::Usage,
                message,
                "give a larger --size or a smaller --line",
            ));
        }
        if let Some(large) = sizes.iter().find(|&&lines| lines.min(demand.lines) > MOST_LINES) {
            let message = format!("a cache of {large} lines is more than {MOST_LINES}");
            return Err(Failure::new(
                Exit::Usage,
                message,
                "give a smaller --size or a larger --line",
            ));
        }
        Ok(sizes)
    }

    fn text(&self, demand: &Demand, outcomes: &[Outcome], policies: usize) -> String {
        let line = u64::from(self.line);
        let mut columns = vec![("cache", Align::Right), ("lines", Align::Right)];
        columns
            .extend(outcomes.iter().take(policies).map(|outcome| (outcome.policy, Align::Right)));
        let mut table = Table::new(&columns);
        for row in outcomes.chunks(policies) {
            let size = row[0].size;
            let mut cells = vec![ByteCount(size * line).to_string(), size.to_string()];
            cells.extend(
                row.iter()
                    .map(|outcome| format!("{:.2}", percent(outcome.misses, demand.accesses))),
            );
            table.row(cells);
        }
        format!(
            "{}: {} requests, {} accesses to lines of {}, {} different lines: {:.1} MB\n\
             misses in percent of accesses; {:.2} with room for all\n{}",
            self.file.display(),
            demand.requests,
            demand.accesses,
            ByteCount(line),
            demand.lines,
            (demand.lines * line) as f64 / 1e6,
            percent(demand.lines, demand.accesses),
            table.render("  ")
        )
    }

    fn to_json(&self, demand: &Demand, outcomes: &[Outcome]) -> serde_json::Value {
        let line = u64::from(self.line);
        let results: Vec<_> = outcomes
            .iter()
            .map(|outcome| {
                json!({
                    "policy": outcome.policy,
                    "size_bytes": outcome.size * line,
                    "size_lines": outcome.size,
                    "misses": outcome.misses,
                    "read_misses": outcome.read_misses,
                    "miss_percent": percent(outcome.misses, demand.accesses),
                })
            })
            .collect();
        json!({
            "version": 1,
            "file": self.file.display().to_string(),
            "line_bytes": line,
            "requests": demand.requests,
            "accesses": demand.accesses,
            "read_accesses": demand.reads,
            "lines": demand.lines,
            "results": results,
        })
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}
