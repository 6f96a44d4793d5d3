//! `weir path`: the ways to what is behind a gateway.

use super::ask::Ask;
use super::status::{age, time};
use crate::exit::{Exit, Failure};
use crate::table::{Align, Table};
use clap::{Args, Subcommand};
use weir_serve::operator::{Answer, PathStatus, Request};

/// Look at the paths to upstream storage, and give orders about them
///
/// Each order is answered with the paths of its backend, as they are when it has been done.
#[derive(Debug, Args)]
pub(super) struct Path {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List paths: their states, since when and why, and what is on them
    List {
        /// Those to this backend only
        backend: Option<String>,
        #[command(flatten)]
        ask: Ask,
    },
    /// Send nothing more on a path; what is on it ends there
    Disable {
        /// The backend, as `weir path list` names it
        backend: String,
        /// The path's number
        path: u32,
        /// Even if no other path to the backend can be used: requests wait then
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Use a path again that was disabled
    Enable {
        /// The backend, as `weir path list` names it
        backend: String,
        /// The path's number
        path: u32,
        #[command(flatten)]
        ask: Ask,
    },
    /// Go back to the best priority group with a path that can be used
    Failback {
        /// The backend, as `weir path list` names it
        backend: String,
        #[command(flatten)]
        ask: Ask,
    },
}

impl Path {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let (ask, request) = match self.command {
            Command::List { backend, ask } => (ask, Request::PathList { backend }),
            Command::Disable { backend, path, force, ask } => {
                (ask, Request::PathDisable { backend, path, force })
            }
            Command::Enable { backend, path, ask } => (ask, Request::PathEnable { backend, path }),
            Command::Failback { backend, ask } => (ask, Request::PathFailback { backend }),
        };
        ask.ask(request, |answer| match answer {
            Answer::Paths(paths) => Some(table(paths).render("")),
            _ => None,
        })
    }
}

fn table(paths: &[PathStatus]) -> Table {
    let mut table = Table::new(&[
        ("backend", Align::Left),
        ("path", Align::Right),
        ("portal", Align::Left),
        ("state", Align::Left),
        ("since", Align::Right),
        ("why", Align::Left),
        ("group", Align::Right),
        ("access", Align::Left),
        ("in flight", Align::Right),
        ("oldest", Align::Right),
        ("learned speed", Align::Left),
        ("changes", Align::Right),
    ]);
    for path in paths {
        let learned = path
            .learned
            .map(|speed| format!("{} + {} per MiB", time(speed.fixed_ns), time(speed.per_mib_ns)));
        table.row(vec![
            path.backend.clone(),
            path.path.to_string(),
            path.portal.clone(),
            path.state.clone(),
            age(path.since_ns),
            path.why.clone(),
            path.group.to_string(),
            path.access.clone(),
            path.in_flight.to_string(),
            if path.in_flight > 0 { time(path.oldest_ns) } else { "-".to_owned() },
            learned.unwrap_or_else(|| "-".to_owned()),
            path.changes.to_string(),
        ]);
    }
    table
}
