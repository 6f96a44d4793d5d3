//! `weir path`: shows and changes the paths to upstream storage.

use super::ask::Ask;
use super::status::{age, time};
use crate::exit::{Exit, Failure};
use crate::table::{Column, Table, numbers, words};
use clap::{Args, Subcommand};
use weir_serve::operator::{Answer, EjectionStatus, PathStatus, Request};

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
    words("why", why),
    words("next try", next_try),
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

/// The paths that are out of use, for `weir status`.
pub(super) const PATHS_OUT: &[Column<PathStatus>] = &[
    words("backend", |path| path.backend.clone()),
    numbers("path", |path| path.path.to_string()),
    words("portal", |path| path.portal.clone()),
    words("state", |path| path.state.clone()),
    numbers("since", |path| age(path.since_ns)),
    words("why", why),
    words("next try", next_try),
];

/// The reason for a state, with the figures that judged an ejected path and what its probes say.
fn why(path: &PathStatus) -> String {
    let Some(ejection) = &path.ejection else { return path.why.clone() };
    let EjectionStatus { response_ns, best_path_ns, ios, over_ns, .. } = *ejection;
    let probe = match (ejection.last_probe_ns, ejection.good_probe_max_ns) {
        (Some(probe), Some(max)) => format!("last probe {}, good to {}", time(probe), time(max)),
        _ => "no probe answered yet".to_owned(),
    };
    format!(
        "{}: {} instead of {}, {ios} I/Os in {}; {probe}",
        path.why,
        time(response_ns),
        time(best_path_ns),
        time(over_ns)
    )
}

/// When a path that is out of use is tried next.
fn next_try(path: &PathStatus) -> String {
    let again = |nanos: u64| {
        if nanos == 0 { "now".to_owned() } else { format!("in {}", time(nanos)) }
    };
    match (path.next_try_ns, &path.ejection, &path.state[..]) {
        (Some(next), Some(EjectionStatus { probes_passed, probes_to_return, trial_ns, .. }), _) => {
            format!(
                "probe {}, {probes_passed} of {probes_to_return} good; used without one in {}",
                if next == 0 { "with the next small read".to_owned() } else { again(next) },
                time(*trial_ns)
            )
        }
        (_, _, "active" | "waiting" | "returning") => "-".to_owned(),
        (Some(next), None, _) => again(next),
        (None, _, "disabled") => "when an operator enables it".to_owned(),
        (None, _, "inaccessible") => "when the target allows it".to_owned(),
        (None, ..) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(state: &str, why: &str, next_try_ns: Option<u64>) -> PathStatus {
        PathStatus {
            backend: "array".to_owned(),
            path: 1,
            portal: "192.0.2.22:3260".to_owned(),
            state: state.to_owned(),
            since_ns: 1_500_000_000,
            why: why.to_owned(),
            group: 0,
            access: "optimized".to_owned(),
            in_flight: 0,
            bytes: 0,
            oldest_ns: 0,
            learned: None,
            changes: 1,
            next_try_ns,
            ejection: None,
        }
    }

    /// A path that is out of use says since when, why, with the figures that judged it, and when it is tried next.
    #[test]
    fn a_path_that_is_out_says_why() {
        let ejection = EjectionStatus {
            response_ns: 4_100_000,
            best_path_ns: 210_000,
            ios: 85,
            over_ns: 402_000_000,
            last_probe_ns: Some(3_900_000),
            good_probe_max_ns: Some(1_300_000),
            probes_passed: 0,
            probes_to_return: 4,
            trial_ns: 5_100_000_000,
        };
        let slow =
            PathStatus { ejection: Some(ejection), ..path("ejected", "slow", Some(120_000_000)) };
        assert_eq!(
            why(&slow),
            "slow: 4.100 ms instead of 210.000 us, 85 I/Os in 402.000 ms; last probe 3.900 ms, good to 1.300 ms"
        );
        assert_eq!(
            next_try(&slow),
            "probe in 120.000 ms, 0 of 4 good; used without one in 5.100 s"
        );
        let early = EjectionStatus { last_probe_ns: None, good_probe_max_ns: None, ..ejection };
        let due = PathStatus { ejection: Some(early), ..path("ejected", "slow", Some(0)) };
        assert!(why(&due).ends_with("; no probe answered yet"), "{}", why(&due));
        assert!(
            next_try(&due).starts_with("probe with the next small read, "),
            "{}",
            next_try(&due)
        );
        for (state, cause, next, told) in [
            ("failed", "no answer", Some(700_000_000), "in 700.000 ms"),
            ("failed", "link lost", Some(0), "now"),
            ("failed", "flapping", Some(41_000_000_000), "in 41.000 s"),
            ("disabled", "by operator", None, "when an operator enables it"),
            ("inaccessible", "by target", None, "when the target allows it"),
            ("active", "start", None, "-"),
        ] {
            let path = path(state, cause, next);
            assert_eq!((why(&path), next_try(&path)), (cause.to_owned(), told.to_owned()));
        }
        let text = Table::of(PATHS_OUT, &[slow]).render("  ");
        assert!(text.contains("array") && text.contains("1.500 s"), "{text}");
    }
}
