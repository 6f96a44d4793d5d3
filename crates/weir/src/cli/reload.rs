//! `weir reload`: has a gateway read its configuration again.

use super::ask::Ask;
use crate::exit::{Exit, Failure};
use clap::Args;
use weir_serve::operator::{Answer, Request, Verdict};

/// Reload the configuration of a gateway, as SIGHUP does, and print the result
///
/// A configuration is put into force as a whole or not at all. The exit code is 0 if it is in force, 3 if the file is
/// invalid, 8 if a change needs a restart, 7 if there is no gateway or a file cannot be had, and 1 if something is in
/// use that the file takes away, if a volume would shrink, or if the gateway is stopping.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Reload {
    /// Check only whether the configuration can be put into force
    #[arg(long)]
    dry_run: bool,
    /// Take away volumes and exports even if hosts use them
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    ask: Ask,
}

impl Reload {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Self { dry_run, force, ask } = self;
        ask.ask(Request::Reload { dry_run, force }, |answer| match answer {
            Answer::Reloaded(Verdict { dry_run: false }) => {
                Some("the configuration is in force\n".to_owned())
            }
            Answer::Reloaded(Verdict { dry_run: true }) => {
                Some("the configuration can be put into force; nothing was changed\n".to_owned())
            }
            _ => None,
        })
    }
}
