//! `weir stop`: have a gateway leave.

use super::ask::Ask;
use super::volume;
use crate::exit::{Exit, Failure};
use clap::Args;
use weir_flow::units::ByteCount;
use weir_serve::operator::{Answer, Leaving, Request};

/// Have a gateway leave, as SIGTERM does
///
/// What is in flight is finished. What is only in the logs of volumes stays there and is written to their own
/// storage after the next start; `--drain` has that done first.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Stop {
    /// First write everything in the logs of volumes to their own storage
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
                Some("it leaves when what is in flight has ended; nothing is only in a log\n".to_owned())
            }
            Answer::Stopping(Leaving { dirty_bytes }) => Some(format!(
                "it leaves when what is in flight has ended; {} are only in logs, and go to the volumes' own \
                 storage after the next start\n",
                ByteCount(*dirty_bytes)
            )),
            _ => None,
        })
    }
}
