//! Write-back: acknowledgement from a durable local log, and an upstream that is crash-consistent
//! at every instant.
//!
//! [`Log`] is the log of one volume, a state machine without clock and I/O. Hosts' writes enter it
//! ([`write`](Log::write)), are committed in groups to the log device, and are acknowledged when they are
//! durable there. In the background they are written upstream, epoch by epoch ([`Order`]). The design and
//! its reasons: `docs/decisions/0011-write-back.md`, its parts: `docs/decisions/0016-write-back-parts.md`; the
//! format: `docs/reference/log-format.md`.
//!
//! | file | |
//! |---|---|
//! | `format/` | bytes of super blocks, segments, batches |
//! | `log`, `log/` | the interface; joins the parts below, none of which knows another but as this table says |
//! | `admission`, `width`, `acks` | writes that wait for room, or for others so that epochs are wide; requests that wait for durability or the upstream |
//! | `wal/` | the log on its device: watermarks, records, group commit, segments |
//! | `destage/` | epochs and their way upstream, its share beside reads, outages; reads `wal` |
//! | `clean` | what is copied so that superseded data need not be kept |
//! | `debt` | what bypassed the log and is not durable upstream |
//! | `mode`, `commit_latency`, `load` | `log`, drain, `through`, and back; whether commits, or a full log, are slower than the upstream |
//! | `effect`, `assemble`, `settings`, `status` | the interface to the shell |
//! | `recover`, `recovered`, `reader` | opening a log, and reading one |
//! | `inspect` | inspecting a log that may be damaged |

mod acks;
mod admission;
mod assemble;
mod clean;
mod commit_latency;
mod debt;
mod destage;
mod effect;
pub mod format;
pub mod inspect;
mod load;
mod log;
mod mode;
mod ranges;
pub mod reader;
mod recover;
mod recovered;
mod settings;
mod status;
#[cfg(test)]
mod tests;
mod wal;
mod width;

pub use assemble::assemble;
pub use destage::Reason;
pub use effect::{
    Blocked, COMMIT, Cause, DEBT, DRAIN, Dirty, Effect, FULL, Found, Fua, JobId, Kind, LocalId,
    Memory, Notice, Origin, PACE, Part, Piece, Source, Why, Write,
};
pub use format::{RECORDS_MAX, SEGMENT_MAX, SEGMENTS_MAX};
pub use log::Log;
pub use recover::{Damage, Refusal, format_new, recover};
pub use recovered::{DecodeError, Recovered};
pub use settings::{BATCH_MAX, CAPACITY_MAX, DEPTH_MAX, Mode, Order, Settings, Sync};
pub use status::{Phase, Status, Upstream, Waiters};
pub use wal::Pin;
