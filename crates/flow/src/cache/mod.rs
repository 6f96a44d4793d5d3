//! Stage 2, cache: is it near?
//!
//! A read that is near is answered from here; a write of a volume with a log is answered when it is safe in
//! the log, and goes to shared storage later. Everything else goes on.
//!
//! | part | what it decides |
//! |---|---|
//! | [`lines`] | which sectors are in which memory frame, and who waits for a fetch of them |
//! | [`evict`] | which line leaves for another |
//! | [`prefetch`] | what to fetch before it is asked for |
//! | [`writeback`] | when a write is safe, and in which order it goes to shared storage |
//! | [`near`] | what all of this means for a request |

pub mod evict;
pub mod lines;
pub mod near;
pub mod prefetch;
pub mod writeback;

pub use near::{Done, JobKey, Settings, Work};
