//! Write-back: early acknowledgement from a durable local log, and an upstream that is crash-consistent
//! at every instant.
//!
//! [`Log`] is the log of one volume, a state machine without clock and I/O. Hosts' writes enter it
//! ([`write`](Log::write)), are committed in groups to the log device, and are acknowledged when they are
//! durable there. In the background they are written upstream, epoch by epoch ([`Order`]). The design and
//! its reasons: `docs/decisions/0011-write-back.md`; the format: `docs/reference/log-format.md`.
//!
//! | file | |
//! |---|---|
//! | `format/` | bytes of super blocks, segments, batches |
//! | `log` | the machine: its state, what enters, what it asks for |
//! | `gate` | who waits for room, pacing |
//! | `append`, `commit` | batches, group commit, errors of the log device |
//! | `space`, `index`, `epoch` | segments; the newest data of each byte; what may go upstream together |
//! | `drain`, `share`, `upstream` | write-back, how much of it beside reads, its errors |
//! | `switch` | `log`, drain, `through`, and back |
//! | `recover`, `recovered`, `reader` | opening a log, and reading one |
//! | `inspect` | looking at one that may be damaged |

mod append;
mod commit;
mod drain;
mod earn;
mod effect;
mod epoch;
pub mod format;
mod gate;
mod index;
pub mod inspect;
mod log;
pub mod reader;
mod recover;
mod recovered;
mod settings;
mod share;
mod space;
mod status;
mod switch;
#[cfg(test)]
mod tests;
mod upstream;

pub use effect::{
    Blocked, COMMIT, Cause, DRAIN, Dirty, Effect, FULL, Found, JobId, Kind, LocalId, Memory,
    Notice, Origin, PACE, Part, Piece, Source, Why, Write,
};
pub use epoch::Reason;
pub use log::Log;
pub use recover::{Damage, Refusal, format_new, recover};
pub use recovered::{DecodeError, Recovered};
pub use settings::{
    BATCH_MOST, CAPACITY_MOST, DEPTH_MOST, Mode, Order, RECORDS_MOST, SEGMENT_MOST, SEGMENTS_MOST,
    Settings, Sync, TIME_LEAST, TIME_MOST,
};
pub use space::Pin;
pub use status::{Phase, Status, Upstream, Waiters};
