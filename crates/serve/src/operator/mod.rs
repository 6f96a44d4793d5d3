//! Answers questions of operators, and turns their orders into inputs of the pipeline.
//!
//! A question comes by a signal or over the control socket. The event loop stops the run of the pipeline for
//! it and hands over a `View` of the gateway; `answer` reads that and the pipeline, and returns a
//! `Reaction` for the event loop. An order is an input of the pipeline like any other, so that a recording
//! has it.

pub(crate) mod answer;
pub(crate) mod backends;
pub(crate) mod event_log;
mod protocol;
pub(crate) mod socket;
mod status;
pub(crate) mod summary;
pub(crate) mod view;

pub use protocol::{
    Answer, BackendStatus, CauseStatus, DeviceStatus, FenceStatus, FlashStatus, GatewayStatus,
    LINE_MAX, LearnedSpeed, Leaving, Line, LogStatus, OverdueRequest, PathStatus, Problem, Request,
    RequestCounts, SessionStatus, ShareStatus, Spread, StageStatus, Status, TargetStatus,
    TenantStatus, VERSION, VolumeStatus,
};

use socket::{Asked, ClientId};
use weir_flow::request::{BackendId, VolumeId};

/// What the run of the pipeline has ended for.
#[derive(Debug)]
pub(crate) enum Question {
    /// The log is to tell how things are.
    Summary,
    /// What control would need after a restart is to be kept.
    Keep,
    /// A client of the control socket has asked for something.
    Asked(ClientId, Asked),
    /// A client of the control socket waits to hear what its order has made of a backend.
    Ordered(ClientId, BackendId),
    /// A client of the control socket waits to hear what its order has made of a volume.
    Told(ClientId, VolumeId),
}
