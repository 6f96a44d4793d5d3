//! REPORT SUPPORTED OPERATION CODES (SPC-4 section 6.35).

use super::commands::{self, Features, Supported};
use super::sense::Sense;

/// A timeouts descriptor that promises nothing (SPC-4 section 6.35.4).
const TIMEOUTS: [u8; 12] = [0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The parameter data. `options` is the reporting options field.
pub(crate) fn report(
    options: u8,
    opcode: u8,
    action: u16,
    with_timeouts: bool,
    features: Features,
) -> Result<Vec<u8>, Sense> {
    let supported = || commands::of(features);
    if options == 0 {
        return Ok(report_all(supported(), with_timeouts));
    }
    let has_actions = supported().any(|one| one.opcode() == opcode && one.action().is_some());
    // SPC-4 table 246: option 1 is for commands without service actions, option 2 for those with,
    // option 3 for either.
    let wrong = match options {
        1 => has_actions,
        2 => !has_actions && supported().any(|one| one.opcode() == opcode),
        3 => false,
        _ => return Err(Sense::invalid_cdb_field(2, Some(2))),
    };
    if wrong {
        return Err(Sense::invalid_cdb_field(2, Some(2)));
    }
    let same_action = |own: Option<u8>| match own {
        None => options == 1 || action == 0,
        Some(own) => u16::from(own) == action,
    };
    let found = supported().find(|one| one.opcode() == opcode && same_action(one.action()));
    Ok(report_one(found, with_timeouts))
}

// CDLP is zero throughout: no command has a duration limit page.
fn report_all(supported: impl Iterator<Item = &'static Supported>, with_timeouts: bool) -> Vec<u8> {
    let mut data = vec![0; 4];
    for one in supported {
        let flags = u8::from(with_timeouts) << 1 | u8::from(one.action().is_some());
        let action = one.action().unwrap_or(0);
        let length = one.usage().len() as u8;
        data.extend_from_slice(&[one.opcode(), 0, 0, action, 0, flags, 0, length]);
        if with_timeouts {
            data.extend_from_slice(&TIMEOUTS);
        }
    }
    let length = data.len() as u32 - 4;
    data[..4].copy_from_slice(&length.to_be_bytes());
    data
}

fn report_one(found: Option<&Supported>, with_timeouts: bool) -> Vec<u8> {
    let Some(found) = found else {
        // SPC-4 table 250: 1 is "not supported".
        return vec![0, 0x01, 0, 0];
    };
    // SPC-4 table 250: 3 is "supported in conformance with a standard".
    let length = found.usage().len() as u8;
    let mut data = vec![0, u8::from(with_timeouts) << 7 | 0x03, 0, length];
    data.extend_from_slice(found.usage());
    if let Some(action) = found.action() {
        // SPC-4 section 6.35.3: the service action itself, and a map of the bits beside it.
        data[5] = data[5] & 0xe0 | action;
    }
    if with_timeouts {
        data.extend_from_slice(&TIMEOUTS);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Features = Features {
        thin: true,
        removable: true,
        sanitize: true,
        compare_and_write: true,
        atomic: true,
    };

    /// Every reported command can be asked about on its own, in the one way that fits it.
    #[test]
    fn reported_commands_are_consistent() {
        for with_timeouts in [false, true] {
            let all = report(0, 0, 0, with_timeouts, ALL).unwrap();
            let size = if with_timeouts { 20 } else { 8 };
            assert_eq!(all.len(), 4 + commands::of(ALL).count() * size);
            for entry in all[4..].chunks(size) {
                let (opcode, action) = (entry[0], u16::from(entry[3]));
                let has_action = entry[5] & 1 == 1;
                let right = if has_action { 2 } else { 1 };
                assert!(report(3 - right, opcode, action, with_timeouts, ALL).is_err());
                let one = report(right, opcode, action, with_timeouts, ALL).unwrap();
                assert_eq!((one[1] & 7, one[4]), (3, opcode));
                assert!(!has_action || u16::from(one[5] & 0x1f) == action);
                assert_eq!(report(3, opcode, action, with_timeouts, ALL).unwrap(), one);
            }
        }
        assert_eq!(report(1, 0x42, 0, false, Features::default()).unwrap(), [0, 1, 0, 0]);
        assert!(report(4, 0, 0, false, ALL).is_err());
    }

    /// The map of a command with a service action keeps the bits beside it.
    #[test]
    fn maps_name_their_action() {
        let erase = report(2, 0x48, 2, false, ALL).unwrap();
        assert_eq!(erase[4..], [0x48, 0xa2, 0, 0, 0, 0, 0, 0, 0, 0]);
        let groups = report(2, 0xa3, 0x0a, false, ALL).unwrap();
        assert_eq!(groups[4..6], [0xa3, 0x2a]);
    }
}
