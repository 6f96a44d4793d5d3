//! Why a request on the control socket was refused, and what to do.

use super::{Answer, LINE_MAX, NAME_MAX, Problem, VERSION, reload};
use crate::config::Rejected;
use serde_json::Value;
use thiserror::Error;

/// Why a request was refused.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    /// The line is no JSON.
    #[error("the request is not JSON: {0}")]
    NotJson(serde_json::Error),
    /// It has no version, or is no object.
    #[error("the request is not an object with a `version`")]
    NoVersion,
    /// It has another one.
    #[error("version {0} of the protocol is not known here")]
    Version(Value),
    /// An unknown verb, or a field that is missing, unknown or of another type.
    #[error("unknown request: {0}")]
    NotARequest(serde_json::Error),
    /// The line is longer than [`LINE_MAX`].
    #[error("the request has more than {LINE_MAX} bytes")]
    TooLong,
    /// The name of a configuration is longer than [`NAME_MAX`].
    #[error("the name of the configuration has {0} bytes, and may have {NAME_MAX}")]
    LongName(usize),
    /// The client closed its side before the end of the line.
    #[error("the request ends without an end of line")]
    Unfinished,
    /// No backend has this name.
    #[error("there is no backend `{name}`")]
    UnknownBackend {
        /// The name.
        name: String,
        /// The known names.
        known: Vec<String>,
    },
    /// The backend has no such path.
    #[error("backend `{backend}` has no path {path}")]
    UnknownPath {
        /// The backend.
        backend: String,
        /// The number.
        path: u32,
        /// How many it has.
        count: u32,
    },
    /// It would leave no usable path.
    #[error("path {path} is the last one to `{backend}` that can be used")]
    LastPath {
        /// The backend.
        backend: String,
        /// The number.
        path: u32,
    },
    /// No volume has this name.
    #[error("there is no volume `{name}`")]
    UnknownVolume {
        /// The name.
        name: String,
        /// The known names.
        known: Vec<String>,
    },
    /// The volume has no log.
    #[error("volume `{volume}` has no log")]
    NoLog {
        /// The volume.
        volume: String,
    },
    /// The volume cannot be moved.
    #[error("volume `{volume}` is not `movable`")]
    NotMovable {
        /// The volume.
        volume: String,
    },
    /// It is not in the state that the order is for.
    #[error("volume `{volume}` is in state {state} here")]
    Moving {
        /// The volume.
        volume: String,
        /// Its state.
        state: &'static str,
    },
    /// The other gateway has another disk, or another unit.
    #[error("volume `{volume}` is {here} here, and {there} at the other gateway")]
    OtherUnit {
        /// The volume.
        volume: String,
        /// What it is here.
        here: String,
        /// What it is there.
        there: String,
    },
    /// Hosts have registered with the volume.
    #[error(
        "hosts have registered with volume `{volume}` for persistent reservations, which do not move"
    )]
    HostReservation {
        /// The volume.
        volume: String,
    },
    /// It is not a reservation key.
    #[error("`{key}` is not a key")]
    NoKey {
        /// What it is.
        key: String,
    },
    /// There is nothing to give up.
    #[error("write-back of volume `{volume}` is not blocked by data that its log cannot give")]
    NothingLost {
        /// The volume.
        volume: String,
    },
    /// The recorder has no such request.
    #[error("no request has the id `{id}`")]
    UnknownRequest {
        /// The id.
        id: String,
    },
    /// The moment is later than the gateway's clock.
    #[error("that moment has not come by the clock of the gateway")]
    Future,
    /// There is no recorder.
    #[error("the flight recorder is switched off")]
    NoRecorder,
    /// The configuration was not put into force.
    #[error("{}", reload::message(.0))]
    Rejected(Rejected),
    /// Another configuration is being put into force.
    #[error("another configuration is being put into force: logs of its volumes are being opened")]
    Reloading,
    /// Pages of metrics are asked for faster than they are read.
    #[error("other clients wait for metrics")]
    Busy,
    /// The gateway is stopping.
    #[error("the gateway is stopping")]
    Stopping,
}

impl Refusal {
    /// For programs.
    const fn code(&self) -> &'static str {
        match self {
            Self::NotJson(_) => "not_json",
            Self::NoVersion | Self::Version(_) => "version",
            Self::NotARequest(_) => "not_a_request",
            Self::TooLong => "too_long",
            Self::LongName(_) => "long_name",
            Self::Unfinished => "unfinished",
            Self::UnknownBackend { .. } => "unknown_backend",
            Self::UnknownPath { .. } => "unknown_path",
            Self::LastPath { .. } => "last_path",
            Self::UnknownVolume { .. } => "unknown_volume",
            Self::NoLog { .. } => "no_log",
            Self::NotMovable { .. } => "not_movable",
            Self::Moving { .. } => "moving",
            Self::OtherUnit { .. } => "other_unit",
            Self::HostReservation { .. } => "host_reservation",
            Self::NoKey { .. } => "no_key",
            Self::NothingLost { .. } => "nothing_lost",
            Self::UnknownRequest { .. } => "unknown_request",
            Self::Future => "future",
            Self::NoRecorder => "no_recorder",
            Self::Rejected(rejected) => reload::code(rejected),
            Self::Busy | Self::Reloading => "busy",
            Self::Stopping => "stopping",
        }
    }

    /// What to do.
    fn help(&self) -> String {
        match self {
            Self::NotJson(_) | Self::Unfinished => {
                "write one object on one line, such as {\"version\":1,\"do\":\"status\"}".to_owned()
            }
            Self::NoVersion | Self::Version(_) => format!("write \"version\":{VERSION}"),
            Self::NotARequest(_) => {
                "docs/reference/control-socket.md lists what can be asked for".to_owned()
            }
            Self::TooLong => "ask for one thing at a time".to_owned(),
            Self::LongName(_) => "nothing was changed: give it a shorter name".to_owned(),
            Self::NoLog { .. } => {
                "all its data is on its own storage; `log` of its [[volume]] gives it one"
                    .to_owned()
            }
            Self::NotMovable { .. } => "write `movable = true` into its [[volume]], and restart".to_owned(),
            Self::Moving { .. } => "`volume.move_look` tells the state at each gateway".to_owned(),
            Self::OtherUnit { .. } => {
                "give the volume the same `identity`, sizes and upstream in both files".to_owned()
            }
            Self::HostReservation { .. } => {
                "have the hosts give their registrations up: `sg_persist --out --register --param-rk=KEY`".to_owned()
            }
            Self::NoKey { .. } => "write `0x` and 16 digits, as the other gateway shows it".to_owned(),
            Self::NothingLost { .. } => {
                "`weir volume status` says what it waits for; `weir volume retry` tries it again"
                    .to_owned()
            }
            Self::UnknownBackend { known, .. } | Self::UnknownVolume { known, .. } => {
                let names: Vec<_> =
                    known.iter().take(NAMES).map(|name| format!("`{name}`")).collect();
                let more = if known.len() > NAMES { ", …" } else { "" };
                format!("there is {}{more}", names.join(", "))
            }
            Self::UnknownRequest { .. } => {
                "the recorder keeps the latest requests and the slowest: `weir slow` lists them"
                    .to_owned()
            }
            Self::Future => "ask for an earlier moment, with the right offset from UTC".to_owned(),
            Self::NoRecorder => "give `memory` of [recorder] a size, and restart".to_owned(),
            Self::UnknownPath { count: 1, .. } => "it has one, number 0".to_owned(),
            Self::UnknownPath { count, .. } => format!("it has {count}, from 0 to {}", count - 1),
            Self::LastPath { .. } => {
                "requests would wait; --force, or \"force\":true, disables it anyway".to_owned()
            }
            Self::Rejected(rejected) => reload::help(rejected).to_owned(),
            Self::Reloading => "nothing was changed: ask again when that has ended".to_owned(),
            Self::Busy => "ask again in some seconds, and read each answer".to_owned(),
            Self::Stopping => "nothing can be changed any more".to_owned(),
        }
    }
}

impl From<&Refusal> for Answer {
    fn from(refusal: &Refusal) -> Self {
        let (code, message) = (refusal.code().to_owned(), refusal.to_string());
        Self::Error(Problem { code, message, help: refusal.help() })
    }
}

/// Names of backends or volumes in a help text.
const NAMES: usize = 10;
