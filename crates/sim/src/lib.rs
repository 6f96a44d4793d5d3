//! The virtual-clock world: the same pipeline as `weir serve`, under a clock that jumps from event
//! to event.
//!
//! A [`Plan`](plan::Plan) says everything about an experiment; [`run()`](run::run) gives
//! [`Results`](results::Results). Nothing here reads a clock, and what happens depends on the plan
//! and its seed alone. Memory depends on the plan's limits, not on how long the run is.
//!
//! * [`plan`]: what an experiment is made from; [`results`]: what it measured;
//! * [`mod@run`]: a plan through the pipeline;
//! * [`replay`]: a recording of `weir serve` through the pipeline, compared by digest;
//! * [`explain`]: what held requests, in a recording or a plan;
//! * [`experiment`]: what was published about control policies and path selectors, run again;
//! * [`trace`]: block traces, as sources of requests and to be described.

mod account;
pub mod experiment;
pub mod explain;
mod measure;
pub mod plan;
pub mod replay;
pub mod results;
pub mod run;
mod slots;
mod source;
#[cfg(test)]
mod testing;
pub mod trace;
mod workload;
mod world;

pub use run::{Progress, RunError, run};
