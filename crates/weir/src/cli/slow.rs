//! `weir slow`: shows the slowest requests of a gateway, and who stood in front of them.

use super::ask::Ask;
use super::moment;
use crate::config::units;
use crate::exit::{Exit, Failure};
use crate::output::print;
use clap::Args;
use std::fmt::Write as _;
use std::thread::sleep;
use weir_flow::clock::Duration;
use weir_flow::units::ByteCount;
use weir_serve::operator::{Answer, Request, Slow, SlowRequest};

/// Show the slowest requests of a running gateway, and who stood in front of them
///
/// Requests that missed an objective and requests that failed come first, then those that took longest. Of each stage the
/// rule is printed that held the request, and who was served meanwhile. This does not say that the request would have been
/// faster without them. The gateway keeps the slowest requests of each of the last 60 seconds, 60 minutes and 24 hours;
/// no tenant takes the places of the others.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct SlowRequests {
    /// Only the request with this id, as the log and this command print it
    #[arg(value_name = "ID", conflicts_with_all = ["last", "at", "follow", "tenant", "volume", "rule"])]
    id: Option<String>,
    /// Requests that ended in this time before now, at most 24h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    last: Duration,
    /// Requests that ended around this moment, written as in the log: `2026-11-28T03:00:00Z`, or with an offset such as `+01:00`.
    /// In its minute, or in its hour if that is more than an hour ago
    #[arg(long, value_name = "TIME", conflicts_with = "last", value_parser = moment::parse)]
    at: Option<u64>,
    /// Print late, failed and slow requests as they end, up to 32 of each second, until Ctrl-C; with --json one object on each
    /// line
    #[arg(long, conflicts_with_all = ["last", "at"])]
    follow: bool,
    /// Only this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only this volume
    #[arg(long)]
    volume: Option<String>,
    /// Only requests that this rule held, such as `control/window`
    #[arg(long)]
    rule: Option<String>,
    /// Print at most this many requests
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=32))]
    limit: u32,
    #[command(flatten)]
    ask: Ask,
}

impl SlowRequests {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Self { id, last, at: at_unix_ns, follow, tenant, volume, rule, limit, ask } = self;
        let last_ns = last.as_nanos();
        let request = Request::Slow { id, last_ns, at_unix_ns, tenant, volume, rule, limit };
        if follow {
            return Self::follow(&ask, request);
        }
        ask.ask(request, |answer| match answer {
            Answer::Slow(slow) => Some(text(slow)),
            _ => None,
        })
    }

    /// Prints slow requests as they end.
    #[expect(clippy::disallowed_methods, reason = "the command does nothing but wait")]
    fn follow(ask: &Ask, mut request: Request) -> Result<Exit, Failure> {
        if let Request::Slow { last_ns, limit, .. } = &mut request {
            // A request that ends while an answer is made comes with the next one.
            (*last_ns, *limit) = (FOLLOWED.as_nanos(), 32);
        }
        let mut printed = String::new();
        loop {
            let Answer::Slow(slow) = ask.question(request.clone())? else {
                return Err(Failure::unexpected(
                    "the gateway answered a different request".to_owned(),
                ));
            };
            for one in fresh(slow.told, &mut printed) {
                let mut text = String::new();
                if ask.is_json() {
                    text = serde_json::to_string(&one).expect("a request is plain data");
                    text.push('\n');
                } else {
                    story(&mut text, &one);
                }
                print(&text)?;
            }
            sleep(PAUSE);
        }
    }
}

/// Slow requests that were not printed, in the order in which they ended. Ids of one start have the same length and grow.
fn fresh(told: Vec<SlowRequest>, printed: &mut String) -> Vec<SlowRequest> {
    let is_new = |one: &SlowRequest| !one.reason.is_empty() && one.id > *printed;
    let mut fresh: Vec<_> = told.into_iter().filter(is_new).collect();
    fresh.sort_by(|one, other| one.id.cmp(&other.id));
    if let Some(last) = fresh.last() {
        printed.clone_from(&last.id);
    }
    fresh
}

fn time(text: &str) -> Result<Duration, String> {
    let nanos = units::TIME.parse(text).map_err(|bad| format!("{}: {}", bad.message, bad.help))?;
    Ok(Duration::from_nanos(nanos))
}

fn text(slow: &Slow) -> String {
    let Slow { requests, late, failed, slow: long, slow_ns, within_ns, told, .. } = slow;
    let mut text = format!(
        "{} slowest of {requests} requests in the last {}; {} were slow: {late} late, {failed} failed, {long} of {} or \
         more\n",
        told.len(),
        seconds(*within_ns),
        late + failed + long,
        Duration::from_nanos(*slow_ns),
    );
    for request in told {
        text.push('\n');
        story(&mut text, request);
    }
    text
}

fn story(text: &mut String, request: &SlowRequest) {
    let SlowRequest { id, age_ns, response_ns, op, length, offset, volume, tenant, .. } = request;
    let _ = write!(
        text,
        "{id}  {} ago  {}  {op} {} at {} of {volume}, tenant {tenant}",
        seconds(*age_ns),
        millis(*response_ns),
        ByteCount(*length),
        ByteCount(*offset),
    );
    if let Some(host) = &request.host {
        // A host names itself, perhaps with what a terminal takes for orders.
        let _ = write!(text, ", {}", host.escape_debug());
    }
    text.push('\n');
    if let Some(target) = request.target_ns {
        let _ = write!(text, "  objective {}", millis(target));
        if *response_ns > target {
            let _ = write!(text, ": late by {}", millis(response_ns - target));
        }
        text.push('\n');
    }
    if let Some(error) = &request.error {
        let _ = writeln!(text, "  failed: {error}");
    }
    for wait in &request.waits {
        let _ = write!(text, "  {:<16}  {:>12}", wait.rule, millis(wait.time_ns));
        if let (true, Some(backend)) = (wait.stage == "storage", &request.backend) {
            let _ = write!(text, "  {backend}");
            if let Some(path) = request.path {
                let _ = write!(text, ", path {path}");
            }
        }
        let parts: Vec<_> =
            wait.behind.iter().map(|behind| (behind.who.clone(), behind.time_ns)).collect();
        text.push_str(&behind(&parts));
        text.push('\n');
    }
    match &request.mostly {
        Some(most) => {
            let _ = writeln!(
                text,
                "  mostly {}: {} of {}",
                most.who,
                millis(most.time_ns),
                millis(*response_ns)
            );
        }
        None => text.push_str("  not attributed\n"),
    }
}

/// Who or what stood in front, with their parts in per cent, the largest first.
pub(super) fn behind(parts: &[(String, u64)]) -> String {
    let sum: u128 = parts.iter().map(|&(_, time)| u128::from(time)).sum();
    let mut text = String::new();
    for (who, time) in parts {
        let percent = (u128::from(*time) * 100 + sum / 2) / sum.max(1);
        if percent > 0 {
            let sign = if text.is_empty() { "; behind:" } else { "," };
            let _ = write!(text, "{sign} {who} {percent} %");
        }
    }
    text
}

fn millis(nanos: u64) -> String {
    let micros = (nanos + 500) / 1_000;
    format!("{}.{:03} ms", micros / 1_000, micros % 1_000)
}

fn seconds(nanos: u64) -> String {
    format!("{}.{} s", nanos / 1_000_000_000, nanos / 100_000_000 % 10)
}

/// How far back an answer reaches while requests are followed, and the time between two.
const FOLLOWED: Duration = Duration::from_secs(5);
const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Each slow request is printed once, in order, and one that is not slow never.
    #[test]
    fn each_slow_request_is_followed_once() {
        let one = |number: u64, reason: &str| SlowRequest {
            id: format!("71e0-{number:012x}"),
            reason: reason.to_owned(),
            ..SlowRequest::default()
        };
        let mut printed = String::new();
        let mut numbers = |told: Vec<SlowRequest>| -> Vec<String> {
            fresh(told, &mut printed).into_iter().map(|one| one.id[16..].to_owned()).collect()
        };
        let none: [&str; 0] = [];
        assert_eq!(numbers(vec![one(2, "late"), one(1, "slow"), one(3, "")]), ["1", "2"]);
        assert_eq!(numbers(vec![one(2, "late"), one(1, "slow"), one(3, "")]), none);
        assert_eq!(numbers(vec![one(9, "failed"), one(2, "late"), one(4, "late")]), ["4", "9"]);
    }
}
