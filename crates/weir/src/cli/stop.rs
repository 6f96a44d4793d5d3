//! `weir stop`: stops a gateway.

use super::ask::Ask;
use super::volume;
use crate::exit::{Exit, Failure};
use clap::Args;
use weir_flow::units::ByteCount;
use weir_serve::operator::{Answer, Leaving, Request};

/// Stop a gateway, as SIGTERM does
///
/// Requests in flight are finished. Data that is only in write-back logs stays there and is written back
/// after the next start; `--drain` writes it back first.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Stop {
    /// Write back all write-back logs first
    #[arg(long)]
    drain: bool,
    #[command(flatten)]
    ask: Ask,
}

impl Stop {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Self { drain, ask } = self;
        if drain
            && let Answer::Volumes(volumes) = ask.question(Request::VolumeList { volume: None })?
        {
            let names: Vec<_> =
                volumes.into_iter().filter_map(|volume| volume.log.map(|_| volume.name)).collect();
            for volume in &names {
                ask.question(Request::VolumeDrain { volume: volume.clone() })?;
            }
            for volume in &names {
                volume::drained(&ask, volume)?;
            }
        }
        ask.ask(Request::Stop {}, |answer| match answer {
            Answer::Stopping(Leaving { dirty_bytes: 0 }) => {
                Some("the gateway stops when the requests in flight have ended; all logs are written back\n".to_owned())
            }
            Answer::Stopping(Leaving { dirty_bytes }) => Some(format!(
                "the gateway stops when the requests in flight have ended; {} are only in write-back logs and are \
                 written back after the next start\n",
                ByteCount(*dirty_bytes)
            )),
            _ => None,
        })
    }
}
