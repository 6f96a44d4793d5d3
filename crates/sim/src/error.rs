//! The error of a run.

use crate::plan::PlanError;
use crate::trace;
use std::io;

/// Why a run has no results.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The plan contradicts itself.
    #[error("the plan cannot be run: {0}")]
    Plan(#[from] PlanError),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] trace::Error),
    /// The recording cannot be written.
    #[error("the recording cannot be written: {0}")]
    Recording(#[from] io::Error),
}
