//! Sends a request to a running gateway over its control socket, and prints the answer.

use super::builtin;
use crate::config::gateway::control::SOCKET;
use crate::exit::{Exit, Failure};
use crate::output::print;
use clap::Args;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_serve::operator::{Answer, Line, Problem, Request, VERSION};

/// The gateway that gets the request, and the format of the answer.
#[derive(Debug, Args)]
pub(super) struct Ask {
    /// The control socket [default: `WEIR_SOCKET`, that of `weir serve` without CONFIG, /run/weir/control.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print the gateway's answer, one JSON object
    #[arg(long)]
    json: bool,
}

/// An answer of the gateway, and its line.
pub(super) struct Reply {
    line: String,
    pub(super) answer: Answer,
}

impl Ask {
    /// The gateway at this socket.
    pub(super) const fn at(socket: PathBuf) -> Self {
        Self { socket: Some(socket), json: false }
    }

    /// Sends a request and prints the answer: as JSON, or as `text` formats it.
    pub(super) fn ask(
        &self,
        request: Request,
        text: impl FnOnce(&Answer) -> Option<String>,
    ) -> Result<Exit, Failure> {
        self.show(self.reply(request)?, text)
    }

    /// Prints an answer.
    pub(super) fn show(
        &self,
        reply: Reply,
        text: impl FnOnce(&Answer) -> Option<String>,
    ) -> Result<Exit, Failure> {
        let printed = if self.json { print(&reply.line) } else { Ok(()) };
        if let Answer::Error(problem) = reply.answer {
            return Err(refused(problem));
        }
        printed?;
        if !self.json {
            let Some(text) = text(&reply.answer) else {
                return Err(Failure::unexpected(
                    "the gateway answered a different request".to_owned(),
                ));
            };
            print(&text)?;
        }
        Ok(Exit::Success)
    }

    /// Whether the answer is printed as JSON.
    pub(super) const fn is_json(&self) -> bool {
        self.json
    }

    /// Sends a request and prints nothing.
    pub(super) fn question(&self, request: Request) -> Result<Answer, Failure> {
        match self.reply(request)?.answer {
            Answer::Error(problem) => Err(refused(problem)),
            answer => Ok(answer),
        }
    }

    /// Sends a request, and prints nothing, not even a refusal.
    pub(super) fn reply(&self, request: Request) -> Result<Reply, Failure> {
        let (stream, socket) = self.connect()?;
        let changes = matches!(
            request,
            Request::Reload { dry_run: false, .. } | Request::Apply { dry_run: false, .. }
        );
        let line = exchange(stream, request).map_err(|error| silent(&socket, &error, changes))?;
        let answer = read(&line).map_err(|problem| {
            let message = format!(
                "{} gave an answer that this program does not understand: {problem}",
                socket.display()
            );
            Failure::new(
                Exit::Unexpected,
                message,
                "use the release of `weir` that the gateway runs",
            )
        })?;
        Ok(Reply { line, answer })
    }

    /// Connects to the first socket on which a process listens.
    fn connect(&self) -> Result<(UnixStream, PathBuf), Failure> {
        let mut failures: Vec<(PathBuf, io::Error)> = Vec::new();
        for socket in self.sockets() {
            match UnixStream::connect(&socket) {
                Ok(stream) => return Ok((stream, socket)),
                Err(error) => failures.push((socket, error)),
            }
        }
        let told = failures.iter().map(|(socket, error)| match error.kind() {
            ErrorKind::NotFound => format!("there is no socket {}", socket.display()),
            ErrorKind::ConnectionRefused => format!("no process listens on {}", socket.display()),
            _ => format!("cannot connect to {}: {error}", socket.display()),
        });
        let message = told.collect::<Vec<_>>().join(", and ");
        let denied = |(_, error): &(_, io::Error)| error.kind() == ErrorKind::PermissionDenied;
        let help = if failures.iter().any(denied) {
            "only root and the user that `weir serve` runs as may connect"
        } else {
            "start `weir serve` with a `[control]` table, or name its socket with `--socket`"
        };
        Err(Failure::new(Exit::Unavailable, message, help))
    }

    /// The sockets to try, in order.
    fn sockets(&self) -> Vec<PathBuf> {
        let named = std::env::var_os("WEIR_SOCKET").filter(|name| !name.is_empty());
        match self.socket.clone().or(named.map(PathBuf::from)) {
            Some(socket) => vec![socket],
            None => builtin::socket()
                .into_iter()
                .chain([SOCKET.to_owned()])
                .map(PathBuf::from)
                .collect(),
        }
    }
}

/// Sends the request and waits for the line with the answer.
fn exchange(mut stream: UnixStream, request: Request) -> io::Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(Line::of(request).as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.ends_with('\n') { Ok(line) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

/// A request that the gateway has refused.
fn refused(problem: Problem) -> Failure {
    let exit = match problem.code.as_str() {
        "invalid" => Exit::Invalid,
        "needs_restart" => Exit::NeedsRestart,
        "unavailable" => Exit::Unavailable,
        _ => Exit::Unexpected,
    };
    Failure::new(exit, problem.message, problem.help)
}

/// Decodes the answer; its version must be ours.
fn read(line: &str) -> Result<Answer, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    if value["version"] != VERSION {
        return Err(format!("version {} instead of {VERSION}", value["version"]));
    }
    let line: Line<Answer> = serde_json::from_value(value).map_err(|error| error.to_string())?;
    Ok(line.said)
}

/// There is no answer to a request, which may be one that changes what is in force.
fn silent(socket: &Path, error: &io::Error, changes: bool) -> Failure {
    let socket = socket.display();
    let message = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("{socket} does not answer within {} s", TIMEOUT.as_secs())
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            format!("{socket} closed the connection without an answer")
        }
        _ => format!("cannot exchange data with {socket}: {error}"),
    };
    if changes {
        let message = format!("{message}: the configuration may be in force, or come into force");
        let help =
            "`weir reload --dry-run` shows how what is in force differs from the gateway's file";
        return Failure::new(Exit::Unavailable, message, help);
    }
    let help = "the log of the gateway says whether it is busy or stopping; try again";
    Failure::new(Exit::Unavailable, message, help)
}

/// Time-out of an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
