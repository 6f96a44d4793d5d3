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
//! * [`whatif`]: what a recorded run would have done under another policy, contract, cache or device;
//! * [`explain`]: what held requests, in a recording or a plan;
//! * [`crash`]: crashes at every turn of generated workloads, and what must hold after them;
//! * [`trace`]: block traces, as sources of requests and to be described;
//! * [`misses`]: what buffers of several sizes would miss of them, under each eviction policy;
//! * [`cores`]: many runs, on all cores; [`table`]: tables of text.

mod account;
pub mod cores;
pub mod crash;
mod error;
pub mod explain;
mod measure;
pub mod misses;
pub mod plan;
mod progress;
pub mod replay;
pub mod results;
pub mod run;
mod slots;
mod source;
pub mod table;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod whatif;
mod workload;
mod world;

pub use error::RunError;
pub use progress::Progress;
pub use run::run;
