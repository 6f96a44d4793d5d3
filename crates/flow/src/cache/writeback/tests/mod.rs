//! The machine against model devices and an oracle.

mod beside;
mod clean;
mod cleaning;
mod clocked;
mod debt;
mod disk;
mod flips;
mod life;
mod lost;
mod oracle;
mod orders;
mod rig;
mod steady;
mod storm;

use super::{Mode, Settings};
use crate::clock::Duration;

/// A log so small that everything that happens to a large one happens to it soon.
fn small() -> Settings {
    Settings {
        capacity: 8192 + 8 * 32768,
        segment: 32768,
        batch_bytes: 16384,
        batch_records: 16,
        epoch_bytes: 16384,
        epoch_age: Duration::from_millis(200),
        depth: 3,
        merge: 8192,
        earn: false,
        mode: Mode::Log,
        ..Settings::default()
    }
}
