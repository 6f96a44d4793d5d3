//! `weir volume`: shows volumes and controls their write-back logs.

use super::ask::Ask;
use super::progress::Progress;
use super::status::{age, fence, time};
use crate::exit::{Exit, Failure};
use crate::table::{Align, Table};
use clap::{Args, Subcommand};
use std::fmt::Write as _;
use std::thread;
use std::time::Duration;
use weir_flow::units::ByteCount;
use weir_serve::operator::{Answer, LogStatus, Request, VolumeStatus};

/// Show volumes and control their write-back logs
#[derive(Debug, Args)]
pub(super) struct Volume {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show volume and write-back status
    Status {
        /// Show only this volume
        volume: Option<String>,
        #[command(flatten)]
        ask: Ask,
    },
    /// Write back the log of a volume, and write through from then on
    Drain {
        /// The volume
        volume: String,
        #[command(flatten)]
        ask: Ask,
    },
    /// Use the log of a drained volume again
    Resume {
        /// The volume
        volume: String,
        #[command(flatten)]
        ask: Ask,
    },
    /// Retry the writes that the storage of a volume refused
    Retry {
        /// The volume
        volume: String,
        #[command(flatten)]
        ask: Ask,
    },
    /// Give a volume to another gateway, without an interruption of its hosts
    ///
    /// The volume needs `movable = true` in the files of both gateways. The log of the volume is drained, its requests are
    /// held for a moment, and its hosts are sent to the other gateway. The command passes messages between the gateways:
    /// if it is interrupted, the volume stays where it is, or has moved, and the same command continues.
    Move(super::volume_move::Move),
    /// Give up data that the log of a volume cannot read any more
    ///
    /// Write-back of the volume is blocked by it. The data is lost: reads of its range fail with a medium error until
    /// hosts have overwritten it. Write-back of everything else continues.
    Quarantine {
        /// The volume
        volume: String,
        #[command(flatten)]
        ask: Ask,
    },
}

impl Volume {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self.command {
            Command::Status { volume, ask } => show(&ask, Request::VolumeList { volume }),
            Command::Resume { volume, ask } => show(&ask, Request::VolumeResume { volume }),
            Command::Move(order) => order.run(),
            Command::Retry { volume, ask } => show(&ask, Request::VolumeRetry { volume }),
            Command::Quarantine { volume, ask } => show(&ask, Request::VolumeQuarantine { volume }),
            Command::Drain { volume, ask } => {
                ask.question(Request::VolumeDrain { volume: volume.clone() })?;
                drained(&ask, &volume)?;
                show(&ask, Request::VolumeList { volume: Some(volume) })
            }
        }
    }
}

fn show(ask: &Ask, request: Request) -> Result<Exit, Failure> {
    ask.ask(request, |answer| match answer {
        Answer::Volumes(volumes) => Some(text(volumes)),
        _ => None,
    })
}

/// Waits until a volume is drained, with a progress bar. Fails if the storage refuses a write.
#[expect(clippy::disallowed_methods, reason = "the command does nothing but wait")]
pub(super) fn drained(ask: &Ask, volume: &str) -> Result<(), Failure> {
    let (progress, mut first) = (Progress::new(), 0);
    loop {
        let answer = ask.question(Request::VolumeList { volume: Some(volume.to_owned()) })?;
        let Answer::Volumes(volumes) = answer else {
            return Err(Failure::unexpected("the gateway answered a different request".to_owned()));
        };
        let Some(VolumeStatus { log: Some(log), .. }) = volumes.first() else { return Ok(()) };
        match (&log.phase[..], &log.storage[..]) {
            ("through", _) => return Ok(()),
            (_, "blocked") => {
                let left = ByteCount(log.dirty_bytes);
                let message = format!(
                    "volume `{volume}` is not drained: its storage refused {}; {left} are only in its log",
                    log.storage_why
                );
                let help = format!(
                    "repair the storage, then run `weir volume retry {volume}`; data that the log cannot give is given up by \
                     `weir volume quarantine {volume}`"
                );
                return Err(Failure::new(Exit::Unexpected, message, help));
            }
            _ => {}
        }
        first = first.max(log.dirty_bytes);
        let away = if log.storage == "away" { "; the storage does not answer" } else { "" };
        let left = ByteCount(log.dirty_bytes);
        let done = 1.0 - log.dirty_bytes as f64 / first.max(1) as f64;
        progress.show(Some(done), format!("{volume}: {left} to write back{away}"));
        thread::sleep(POLL_INTERVAL);
    }
}

fn text(volumes: &[VolumeStatus]) -> String {
    let mut text = String::new();
    let mut table = Table::new(&[
        ("volume", Align::Left),
        ("size", Align::Right),
        ("writes", Align::Left),
        ("dirty", Align::Right),
        ("oldest", Align::Right),
        ("log full", Align::Right),
        ("storage", Align::Left),
        ("drained in", Align::Right),
    ]);
    for volume in volumes {
        let size = ByteCount(volume.bytes).to_string();
        let Some(log) = &volume.log else {
            let mut row = vec![volume.name.clone(), size, "through".to_owned()];
            row.resize(8, "-".to_owned());
            table.row(row);
            continue;
        };
        let storage = match &log.storage[..] {
            "up" => "up".to_owned(),
            other => format!("{other} for {}", age(log.storage_ns)),
        };
        let phase = if log.strict { format!("{}, strict", log.phase) } else { log.phase.clone() };
        table.row(vec![
            volume.name.clone(),
            size,
            phase,
            ByteCount(log.dirty_bytes).to_string(),
            if log.dirty_bytes > 0 { age(log.oldest_dirty_ns) } else { "-".to_owned() },
            format!("{:.1} %", log.fill * 1e2),
            storage,
            log.eta_ns.map_or_else(|| "-".to_owned(), age),
        ]);
    }
    text.push_str(&table.render(""));
    for volume in volumes {
        let notes = volume.fences.iter().map(fence).chain(volume.log.iter().flat_map(notes));
        let notes = notes.chain(quarantine(volume));
        for note in notes {
            let _ = writeln!(text, "{}: {note}", volume.name);
        }
    }
    text
}

/// Lines about lost ranges.
fn quarantine(volume: &VolumeStatus) -> impl Iterator<Item = String> {
    let lost = volume.quarantine.iter().map(|lost| {
        let (offset, length, record) = (lost.offset, ByteCount(lost.length), lost.record);
        let since = age(lost.age_ns);
        format!(
            "quarantine: {length} at byte {offset}, record {record} of the log, given up {since} ago: reads fail until hosts \
             have overwritten them"
        )
    });
    let more = Some(volume.quarantine_left_out).filter(|&more| more > 0);
    lost.chain(more.map(|more| format!("quarantine: {more} more ranges are lost")))
}

/// Lines about failures and waiting writes.
fn notes(log: &LogStatus) -> Vec<String> {
    let mut notes = Vec::new();
    if log.epochs > 0 {
        notes.push(match (log.volatile_storage, log.fua_epochs) {
            (false, _) => format!(
                "{} epochs written back, one at a time; storage has no volatile cache to flush",
                log.epochs
            ),
            (true, fua) => format!(
                "{} epochs written back, one at a time: {fua} by FUA, {} by a flush",
                log.epochs,
                log.epochs - fua
            ),
        });
    }
    if !log.why.is_empty() {
        notes.push(format!("{}: {}", log.phase, log.why));
    }
    if !log.storage_why.is_empty() {
        notes.push(format!("storage: {}", log.storage_why));
    }
    if log.waiting > 0 {
        let oldest = time(log.oldest_waiting_ns);
        notes.push(format!("{} writes wait ({}), the oldest for {oldest}", log.waiting, log.rule));
    }
    if let Some(debt) = log.debt_ns {
        let (flushes, age) = (log.waiting_flushes, time(debt));
        notes.push(format!("writes that bypassed the log wait to be flushed for {age}, {flushes} flushes of hosts with them"));
    }
    if log.copied_bytes > 0 {
        let (held, copied) = (ByteCount(log.held_bytes), ByteCount(log.copied_bytes));
        notes.push(format!(
            "the log holds {held} with superseded data, {copied} were copied in it to drop such data"
        ));
    }
    if log.faults > 0 {
        notes.push(format!("{} writes or flushes of the log failed", log.faults));
    }
    if log.busy > 0 {
        notes.push(format!("{} writes were answered BUSY", log.busy));
    }
    notes
}

/// Interval of the progress bar.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
