//! Stored reservations, whole or damaged.
//!
//! The first byte of an input says what is made whole before it is read: the beginning and the
//! length. The rest is what was stored.

use weir_wire::scsi::disk::DiskInfo;
use weir_wire::scsi::reservation::Reservations;
use weir_wire::scsi::unit::Unit;

use super::scsi_model::{Registered, restarted};

/// Looks at one input.
pub(crate) fn run(input: &[u8]) {
    let Some((&options, stored)) = input.split_first() else { return };
    let mut stored = stored.to_vec();
    if options & 1 != 0 {
        stored.splice(..0, *b"weir-pr\x01\0\0\0\0");
    }
    if options & 2 != 0 && stored.len() >= 12 {
        let length = (stored.len() as u32).to_be_bytes();
        stored[8..12].copy_from_slice(&length);
    }
    match Reservations::decode(&stored) {
        Ok(reservations) => {
            assert_eq!(reservations.encode(), stored, "one state has one form");
            assert_eq!(restarted(&reservations), reservations);
            let mut unit = Unit::new(DiskInfo::default());
            unit.install(reservations);
            Registered::of(&unit, None);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
