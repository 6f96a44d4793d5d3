//! Stage 2, cache: is it cached?
//!
//! A read whose bytes are cached is answered from here; a write of a volume with a log is answered when it is safe in
//! the log, and goes to shared storage later. Everything else is passed to the next stage.
//!
//! | part | what it decides |
//! |---|---|
//! | [`lines`] | which sectors are in which memory frame, and the fetches of them in flight |
//! | [`evict`] | which line leaves for another |
//! | [`prefetch`] | what to fetch before it is asked for |
//! | [`writeback`] | when a write is safe, and in which order it goes to shared storage |
//! | [`quarantine`] | which ranges are lost, and when they are not any more |
//! | [`stage`] | the stage: read cache, logs and prefetcher joined, and what they mean for a request |

pub mod evict;
pub mod lines;
pub mod prefetch;
pub mod quarantine;
pub mod stage;
pub mod writeback;

pub use stage::{Done, JobKey, Settings, Work};
