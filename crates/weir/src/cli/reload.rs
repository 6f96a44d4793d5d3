//! `weir reload`: has a gateway read its configuration again.

use super::ask::Ask;
use crate::exit::{Exit, Failure};
use clap::Args;
use std::fmt::Write as _;
use weir_serve::operator::{Answer, Request, Verdict};

/// Reload the configuration of a gateway, as SIGHUP does, and print what changes
///
/// A configuration is put into force as a whole or not at all. The exit code is 0 if it is in force, 3 if the file is
/// invalid, 8 if a change needs a restart, 7 if a file cannot be had or no gateway answers, and 1 if something is in
/// use that the file takes away, if a volume would shrink, or if the gateway is stopping. A gateway that does not answer
/// in time may still put it into force, and the message says so.
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
            Answer::Reloaded(verdict) => Some(text(verdict)),
            _ => None,
        })
    }
}

/// One line for each change, and one with the result.
pub(super) fn text(verdict: &Verdict) -> String {
    let mut text = String::new();
    for change in &verdict.changes {
        let _ = writeln!(text, "{change}");
    }
    if verdict.changes_left_out > 0 {
        let _ = writeln!(text, "and {} more changes", verdict.changes_left_out);
    }
    text.push_str(match (verdict.dry_run, verdict.changes.is_empty()) {
        (true, _) => "the configuration can be put into force; nothing was changed\n",
        (false, false) => "the configuration is in force\n",
        (false, true) => "the configuration is in force; no key differs from before\n",
    });
    text
}
