//! Answers questions of operators, and turns their orders into inputs of the pipeline.
//!
//! A question comes by a signal or over the control socket. The event loop stops the run of the pipeline for
//! it and hands over a `View` of the gateway; `answer` reads that and the pipeline, and returns a
//! `Reaction` for the event loop. An order is an input of the pipeline like any other, so that a recording
//! has it.

pub(crate) mod answer;
pub(crate) mod backends;
pub(crate) mod event_log;
pub(crate) mod metrics;
mod paths;
mod protocol;
mod snapshot;
pub(crate) mod socket;
mod status;
pub(crate) mod summary;
pub(crate) mod view;

pub use metrics::families_page;
pub use protocol::{
    Answer, BackendStatus, CauseStatus, DeviceStatus, EjectionStatus, FenceStatus, FlashStatus,
    GatewayStatus, LINE_MAX, LearnedSpeed, Leaving, Line, LogStatus, LostStatus, OverdueRequest,
    PathStatus, Problem, Request, RequestCounts, SessionStatus, ShareStatus, Spread, StageStatus,
    Status, TargetStatus, TenantStatus, TurnedAwayStatus, VERSION, Verdict, VolumeStatus,
};

pub(crate) use protocol::Refusal;

use socket::{Asked, ClientId};
use weir_flow::request::{BackendId, VolumeId};

/// A question, for which the run of the pipeline ends.
#[derive(Debug)]
pub(crate) enum Question {
    /// Log the status.
    Summary,
    /// Save what control needs after a restart.
    Keep,
    /// Answer a request of a client of the control socket.
    Asked(ClientId, Asked),
    /// Send the client the state of a backend after its order.
    Ordered(ClientId, BackendId),
    /// Send the client the state of a volume after its order.
    Told(ClientId, VolumeId),
}
