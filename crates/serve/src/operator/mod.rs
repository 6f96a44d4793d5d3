//! Answers questions of operators, and turns their orders into inputs of the pipeline.
//!
//! A question comes by a signal, over the control socket or over HTTP. The event loop stops the run of the pipeline for
//! it and hands over a `View` of the gateway; `answer` reads that and the pipeline, and returns a
//! `Reaction` for the event loop. An order is an input of the pipeline like any other, so that a recording
//! has it.

pub(crate) mod answer;
pub(crate) mod backends;
pub(crate) mod changes;
pub(crate) mod event_log;
pub(crate) mod flight;
pub(crate) mod http;
pub(crate) mod metrics;
mod paths;
mod protocol;
mod registrations;
mod snapshot;
pub(crate) mod socket;
mod status;
pub(crate) mod summary;
pub(crate) mod view;

pub use http::openapi::document as openapi_document;
pub use metrics::families_page;
pub use protocol::{
    Answer, BackendStatus, Behind, Bucket, CauseStatus, DeviceStatus, EjectionStatus, FenceStatus,
    FileId, FlashStatus, GatewayStatus, IsnsStatus, LINE_MAX, LearnedSpeed, Leaving, Line, Load,
    LogStatus, LostStatus, MoveStatus, OverdueRequest, PathStatus, Problem, RecorderStatus,
    Request, RequestCounts, Sample, SessionStatus, ShareStatus, Slow, SlowRequest, Spread,
    StageStatus, Status, StreamStatus, TargetStatus, TenantStatus, TurnedAwayStatus, VERSION,
    Verdict, VolumeStatus, Wait,
};

pub(crate) use protocol::{MoveOrder, Refusal};

use crate::config::Given;
use http::Ticket;
use socket::{Asked, ClientId};
use weir_flow::clock::Instant;
use weir_flow::request::{BackendId, VolumeId};

/// How a configuration is put into force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Only check whether it can be.
    pub(crate) dry_run: bool,
    /// Take away volumes and exports that hosts use.
    pub(crate) force: bool,
}

/// An order to put a configuration into force.
pub(crate) struct ReloadOrder {
    /// Who gets the answer; `None` at SIGHUP.
    pub(crate) asker: Option<Asker>,
    pub(crate) manner: Manner,
    /// What is read instead of the file.
    pub(crate) given: Option<Given>,
}

/// Who gets an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A client of the control socket.
    Socket(ClientId),
    /// The thread of the HTTP interface, for its clients with this ticket.
    Http(Ticket),
}

impl Asker {
    /// How it asks, for the log.
    const fn way(self) -> &'static str {
        match self {
            Self::Socket(_) => "control socket",
            Self::Http(_) => "HTTP",
        }
    }
}

/// A question, for which the run of the pipeline ends.
#[derive(Debug)]
pub(crate) enum Question {
    /// Log the status.
    Summary,
    /// Save what control needs after a restart.
    Keep,
    /// Read the configuration again at SIGHUP.
    Reload,
    /// Carry out a reload whose logs have been opened.
    Prepared,
    /// Answer a request.
    Asked(Asker, Asked),
    /// Find out whether the log of a volume that is to be moved is drained.
    Drained(usize),
    /// Send the client the state of a backend after its order.
    Ordered(Asker, BackendId),
    /// Send the client the state of a volume when its order has been carried out, or at this time.
    Told(Asker, VolumeId, Instant),
}
