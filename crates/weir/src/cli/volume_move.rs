//! `weir volume move`: gives a volume to another gateway, by orders to both.
//!
//! Each gateway decides for itself what it may do, and the reservation of the volume's unit decides between them: the
//! command only carries what one has to know of the other. An order that is lost, late or repeated harms nothing.

use super::ask::Ask;
use super::progress::Progress;
use crate::exit::{Exit, Failure};
use crate::output::print;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_serve::operator::{Answer, MoveStatus, Request};

#[derive(Debug, Args)]
pub(super) struct Move {
    /// The volume
    volume: String,
    /// The control socket of the gateway that gets it
    #[arg(long, value_name = "SOCKET")]
    to: PathBuf,
    /// Where hosts find the volume then [default: the first portal of that gateway]
    #[arg(long, value_name = "ADDRESS:PORT")]
    portal: Option<String>,
    /// How long its log may take to drain, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    within: u64,
    #[command(flatten)]
    ask: Ask,
}

impl Move {
    /// Moves the volume, and waits until the other gateway serves it or the move is given up.
    #[expect(clippy::disallowed_methods, reason = "the command does nothing but wait")]
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Self { volume, to, portal, within, ask } = self;
        let there = Ask::at(to);
        let began = Instant::now();
        let (mut from, mut next) = (look(&ask, &volume)?, look(&there, &volume)?);
        if from.state == "standby" && next.state == "owner" {
            return told(&ask, &volume, "is there already", None);
        }
        let interrupted =
            matches!(&from.state[..], "draining" | "freezing" | "granted" | "revoking");
        let number = if interrupted {
            from.number
        } else {
            let portal = portal.map_or_else(|| portal_of(&next), Ok)?;
            if next.state != "standby" {
                return Err(wrong(&volume, "the other gateway", &next, "standby"));
            }
            let number = number();
            let (identity, drain_within_ns) = (next.identity.clone(), within * 1_000_000_000);
            let order = Request::VolumeMoveOut {
                volume: volume.clone(),
                number,
                to: portal,
                identity,
                drain_within_ns,
            };
            from = moved(&ask, order)?;
            number
        };
        let progress = Progress::new();
        let mut stopped = None;
        loop {
            progress.show(None, format!("{volume}: {} here, {} there", from.state, next.state));
            match (&from.state[..], &next.state[..]) {
                (_, "owner") if from.state != "owner" => {
                    let stall = stopped.map(|since: Instant| since.elapsed());
                    if from.state == "standby" {
                        return told(&ask, &volume, "moved", stall);
                    }
                }
                ("granted", "standby") => {
                    let Some(key) = from.key.clone() else {
                        return Err(Failure::unexpected("the gateway shows no key".to_owned()));
                    };
                    let order = Request::VolumeMoveIn { volume: volume.clone(), number, key };
                    next = moved(&there, order)?;
                    stopped.get_or_insert_with(Instant::now);
                    continue;
                }
                ("owner", _) => {
                    let message = format!("volume `{volume}` was not moved: {}", from.ended);
                    let help = "it is served where it was; `weir volume status` says what its log waits for";
                    return Err(Failure::new(Exit::Unexpected, message, help));
                }
                ("fenced", _) => return Err(wrong(&volume, "this gateway", &from, "owner")),
                ("standby", "standby")
                    if began.elapsed() > Duration::from_secs(within) + SETTLED =>
                {
                    let message = format!("no gateway owns volume `{volume}`: {}", next.ended);
                    let help = "the reservation of its unit is lost: start the gateway again that owned it last";
                    return Err(Failure::new(Exit::Unexpected, message, help));
                }
                _ => {}
            }
            thread::sleep(POLL_INTERVAL);
            (from, next) = (look(&ask, &volume)?, look(&there, &volume)?);
        }
    }
}

fn look(ask: &Ask, volume: &str) -> Result<MoveStatus, Failure> {
    moved(ask, Request::VolumeMoveLook { volume: volume.to_owned() })
}

fn moved(ask: &Ask, request: Request) -> Result<MoveStatus, Failure> {
    match ask.question(request)? {
        Answer::Move(status) => Ok(*status),
        _ => Err(Failure::unexpected("the gateway answered a different request".to_owned())),
    }
}

/// The portal that hosts are sent to: one that they can reach.
fn portal_of(next: &MoveStatus) -> Result<String, Failure> {
    let reachable =
        |portal: &&String| !portal.starts_with("0.0.0.0:") && !portal.starts_with("[::]:");
    next.portals.iter().find(reachable).cloned().ok_or_else(|| {
        let message = "the other gateway names no address that hosts can be sent to".to_owned();
        Failure::new(Exit::Usage, message, "name it with `--portal ADDRESS:PORT`")
    })
}

fn wrong(volume: &str, who: &str, status: &MoveStatus, wanted: &str) -> Failure {
    let MoveStatus { state, ended, .. } = status;
    let message = format!("volume `{volume}` is in state {state} at {who}, not {wanted}");
    let help = if ended.is_empty() {
        String::from("`weir volume status` at both gateways tells more")
    } else {
        ended.clone()
    };
    Failure::new(Exit::Unexpected, message, help)
}

/// A number that no other move has.
#[expect(clippy::disallowed_methods, reason = "two orders of an operator are apart in time")]
fn number() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64).max(1)
}

fn told(ask: &Ask, volume: &str, what: &str, stall: Option<Duration>) -> Result<Exit, Failure> {
    if ask.is_json() {
        let held_ns = stall.map(|stall| stall.as_nanos() as u64);
        print(&format!("{}\n", json!({ "volume": volume, "result": what, "held_ns": held_ns })))?;
    } else {
        let held = stall.map_or_else(String::new, |stall| {
            format!(": its requests were held for {} ms", stall.as_millis())
        });
        print(&format!("volume `{volume}` {what}{held}\n"))?;
    }
    Ok(Exit::Success)
}

/// How often both gateways are asked.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// When the grant is void or used, at the latest, unless the home does not answer.
const SETTLED: Duration = Duration::from_secs(10);
