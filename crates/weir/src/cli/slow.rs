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
    /// Print late, failed and slow requests as they end, up to 32 of each second, until Ctrl-C or the end of the gateway; with
    /// --json one object on each line
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
        let after = None;
        let request = Request::Slow { id, last_ns, at_unix_ns, tenant, volume, rule, after, limit };
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
        loop {
            let Answer::Slow(slow) = ask.question(request.clone())? else {
                return Err(Failure::unexpected(
                    "the gateway answered a different request".to_owned(),
                ));
            };
            let Request::Slow { after, .. } = &mut request else { unreachable!("it was made so") };
            for one in next(slow.told, after) {
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

/// The slow ones of some requests, in the order in which they ended; the next question is for those `after` the last one. Ids of
/// one start of the gateway have the same length and grow. All are of one start, and the gateway ignores an id of another.
fn next(told: Vec<SlowRequest>, after: &mut Option<String>) -> Vec<SlowRequest> {
    let mut slow: Vec<_> = told.into_iter().filter(|one| !one.reason.is_empty()).collect();
    slow.sort_by(|one, other| one.id.cmp(&other.id));
    if let Some(last) = slow.last() {
        *after = Some(last.id.clone());
    }
    slow
}

fn time(text: &str) -> Result<Duration, String> {
    let nanos = units::TIME.parse(text).map_err(|bad| format!("{}: {}", bad.message, bad.help))?;
    Ok(Duration::from_nanos(nanos))
}

fn text(slow: &Slow) -> String {
    let Slow { requests, late, failed, slow: long, slow_ns, within_ns, until_ns, told } = slow;
    let when = match until_ns {
        0 => format!("in the last {}", seconds(*within_ns)),
        until => format!("that ended {} to {} ago", seconds(*within_ns), seconds(*until)),
    };
    let mut text = format!(
        "{} slowest of {requests} requests {when}; {} were slow: {late} late, {failed} failed, {long} of {} or more\n",
        told.len(),
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

    fn one(start: &str, number: u64, reason: &str) -> SlowRequest {
        let id = format!("{start}-{number:012x}");
        SlowRequest { id, reason: reason.to_owned(), ..SlowRequest::default() }
    }

    /// Slow requests are printed in the order in which they ended, those that are not slow never, and the next question begins
    /// after the last one: also after a restart of the gateway, whatever the digits of the new start.
    #[test]
    fn slow_requests_are_followed() {
        let mut after = None;
        let mut numbers = |told: Vec<SlowRequest>| -> (Vec<String>, Option<String>) {
            let ids = next(told, &mut after).into_iter().map(|one| one.id);
            (ids.collect(), after.clone())
        };
        let first = vec![one("71e0", 2, "late"), one("71e0", 1, "slow"), one("71e0", 3, "")];
        let id = |start: &str, number: u64| format!("{start}-{number:012x}");
        let ids = vec![id("71e0", 1), id("71e0", 2)];
        assert_eq!(numbers(first), (ids, Some(id("71e0", 2))));
        assert_eq!(numbers(Vec::new()), (Vec::new(), Some(id("71e0", 2))));
        let restarted = vec![one("0003", 1, "failed"), one("0003", 0, "late")];
        let ids = vec![id("0003", 0), id("0003", 1)];
        assert_eq!(numbers(restarted), (ids, Some(id("0003", 1))));
    }

    /// The counts are of the time that the words say: up to now, or around a moment.
    #[test]
    fn counts_say_of_when_they_are() {
        let slow = Slow { requests: 7, within_ns: 60_400_000_000, ..Slow::default() };
        let text_of = |slow: &Slow| text(slow).split(';').next().unwrap().to_owned();
        assert_eq!(text_of(&slow), "0 slowest of 7 requests in the last 60.4 s");
        let around = Slow { within_ns: 7_300_000_000_000, until_ns: 3_600_500_000_000, ..slow };
        let words = "0 slowest of 7 requests that ended 7300.0 s to 3600.5 s ago";
        assert_eq!(text_of(&around), words);
    }
}
