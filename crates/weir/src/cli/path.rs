//! `weir path`: shows and changes the paths to upstream storage.

use super::ask::Ask;
use super::status::{age, time};
use crate::exit::{Exit, Failure};
use crate::table::{Column, Table, numbers, words};
use clap::{Args, Subcommand};
use weir_serve::operator::{Answer, PathStatus, Request};

/// Show and change the paths to upstream storage
///
/// After a change the paths of the backend are printed.
#[derive(Debug, Args)]
pub(super) struct Path {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List paths with state, reason, age of the state and I/Os in flight
    List {
        /// List only the paths to this backend
        backend: Option<String>,
        #[command(flatten)]
        ask: Ask,
    },
    /// Send no more I/O on a path; I/Os in flight end there
    Disable {
        /// The backend, as `weir path list` names it
        backend: String,
        /// The path's number
        path: u32,
        /// Disable the last usable path too; requests then wait
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// Use a disabled path again
    Enable {
        /// The backend, as `weir path list` names it
        backend: String,
        /// The path's number
        path: u32,
        #[command(flatten)]
        ask: Ask,
    },
    /// Return to the best priority group that has a usable path
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
            Answer::Paths(paths) => Some(Table::of(PATHS, paths).render("")),
            _ => None,
        })
    }
}

const PATHS: &[Column<PathStatus>] = &[
    words("backend", |path| path.backend.clone()),
    numbers("path", |path| path.path.to_string()),
    words("portal", |path| path.portal.clone()),
    words("state", |path| path.state.clone()),
    numbers("since", |path| age(path.since_ns)),
    words("why", |path| path.why.clone()),
    numbers("group", |path| path.group.to_string()),
    words("access", |path| path.access.clone()),
    numbers("in flight", |path| path.in_flight.to_string()),
    numbers(
        "oldest",
        |path| if path.in_flight > 0 { time(path.oldest_ns) } else { "-".to_owned() },
    ),
    words("learned speed", |path| {
        path.learned.map_or_else(
            || "-".to_owned(),
            |speed| format!("{} + {} per MiB", time(speed.fixed_ns), time(speed.per_mib_ns)),
        )
    }),
    numbers("changes", |path| path.changes.to_string()),
];
