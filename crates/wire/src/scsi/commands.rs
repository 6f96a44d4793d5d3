//! The supported commands: which bits of each CDB mean something, and REPORT SUPPORTED OPERATION
//! CODES (SPC-4 section 6.35).
//!
//! One table serves both. A CDB with a bit that the table does not list is refused, and the answer
//! points at the bit: protection information, NACA and the rest of what Weir does not do cannot
//! slip through.

use super::sense::Sense;

/// One command: its CDB with every bit set that may be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supported {
    /// Usage map (SPC-4 section 6.35.3); the first byte is the opcode itself, and the low bits of
    /// the second are the service action of a command that has one.
    usage: [u8; 16],
    length: u8,
    action: Option<u8>,
    /// Only on thinly provisioned disks.
    pub(crate) thin_only: bool,
}

impl Supported {
    pub(crate) const fn opcode(&self) -> u8 {
        self.usage[0]
    }

    fn usage(&self) -> &[u8] {
        &self.usage[..usize::from(self.length)]
    }
}

const fn command<const N: usize>(map: [u8; N]) -> Supported {
    let mut usage = [0; 16];
    let mut index = 0;
    while index < N {
        usage[index] = map[index];
        index += 1;
    }
    Supported { usage, length: N as u8, action: None, thin_only: false }
}

const fn action<const N: usize>(map: [u8; N], action: u8) -> Supported {
    Supported { action: Some(action), ..command(map) }
}

const fn thin<const N: usize>(map: [u8; N]) -> Supported {
    Supported { thin_only: true, ..command(map) }
}

/// In the order of opcodes. A group number is allowed and means nothing.
#[rustfmt::skip]
const COMMANDS: &[Supported] = &[
    command([0x00, 0, 0, 0, 0, 0]),                                         // TEST UNIT READY
    command([0x03, 0x01, 0, 0, 0xff, 0]),                                   // REQUEST SENSE
    command([0x08, 0x1f, 0xff, 0xff, 0xff, 0]),                             // READ(6)
    command([0x0a, 0x1f, 0xff, 0xff, 0xff, 0]),                             // WRITE(6)
    command([0x12, 0x01, 0xff, 0xff, 0xff, 0]),                             // INQUIRY
    command([0x1a, 0x08, 0xff, 0xff, 0xff, 0]),                             // MODE SENSE(6)
    command([0x1b, 0x01, 0, 0x0f, 0xf7, 0]),                                // START STOP UNIT
    command([0x25, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x01, 0]),              // READ CAPACITY(10)
    command([0x28, 0x18, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),     // READ(10)
    command([0x2a, 0x18, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),     // WRITE(10)
    command([0x2f, 0x16, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),     // VERIFY(10)
    command([0x35, 0x06, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),     // SYNCHRONIZE CACHE(10)
    command([0x41, 0x08, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),     // WRITE SAME(10)
    thin([0x42, 0, 0, 0, 0, 0, 0x3f, 0xff, 0xff, 0]),                       // UNMAP
    command([0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0]),              // MODE SENSE(10)
    command([0x88, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
             0xff, 0xff, 0xff, 0xff, 0x3f, 0]),                             // READ(16)
    command([0x8a, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
             0xff, 0xff, 0xff, 0xff, 0x3f, 0]),                             // WRITE(16)
    command([0x8f, 0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
             0xff, 0xff, 0xff, 0xff, 0x3f, 0]),                             // VERIFY(16)
    command([0x91, 0x06, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
             0xff, 0xff, 0xff, 0xff, 0x3f, 0]),                             // SYNCHRONIZE CACHE(16)
    command([0x93, 0x09, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
             0xff, 0xff, 0xff, 0xff, 0x3f, 0]),                             // WRITE SAME(16)
    action([0x9e, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0xff, 0xff, 0xff, 0xff, 0x01, 0], 0x10),                        // READ CAPACITY(16)
    command([0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),        // REPORT LUNS
    action([0xa3, 0x1f, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0, 0], 0x0c),                                        // REPORT SUPPORTED OPERATION CODES
    command([0xa8, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0]), // READ(12)
    command([0xaa, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0]), // WRITE(12)
    command([0xaf, 0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0]), // VERIFY(12)
];

/// The table's entry for a CDB, after a check for bits that mean nothing to it.
pub(crate) fn find(cdb: &[u8; 16]) -> Result<&'static Supported, Sense> {
    let mut of_opcode = COMMANDS.iter().filter(|one| one.opcode() == cdb[0]).peekable();
    if of_opcode.peek().is_none() {
        return Err(Sense::INVALID_OPCODE);
    }
    // SPC-4 section 4.3.5.5: an unknown service action is a wrong field, not a wrong opcode.
    let action = cdb[1] & 0x1f;
    let found = of_opcode
        .find(|one| one.action.is_none_or(|own| own == action))
        .ok_or(Sense::invalid_cdb_field(1, Some(4)))?;
    for (index, (&byte, &usage)) in cdb.iter().zip(found.usage()).enumerate().skip(1) {
        // SAM-5 section 5.2: in CONTROL only NACA still means something, and Weir has no ACA.
        let is_control = index + 1 == found.usage().len();
        let wrong = if is_control { byte & 0x04 } else { byte & !usage };
        if wrong != 0 {
            return Err(Sense::invalid_cdb_field(index as u16, Some(wrong.ilog2() as u8)));
        }
    }
    Ok(found)
}

/// The parameter data of REPORT SUPPORTED OPERATION CODES. `options` is the reporting options field.
pub(crate) fn report(
    options: u8,
    opcode: u8,
    action: u16,
    with_timeouts: bool,
    thin: bool,
) -> Result<Vec<u8>, Sense> {
    let supported = || COMMANDS.iter().filter(move |one| thin || !one.thin_only);
    if options == 0 {
        return Ok(report_all(supported(), with_timeouts));
    }
    let has_actions = supported().any(|one| one.opcode() == opcode && one.action.is_some());
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
    let found = supported().find(|one| one.opcode() == opcode && same_action(one.action));
    Ok(report_one(found, with_timeouts))
}

/// A timeouts descriptor that promises nothing (SPC-4 section 6.35.4).
const TIMEOUTS: [u8; 12] = [0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn report_all(supported: impl Iterator<Item = &'static Supported>, with_timeouts: bool) -> Vec<u8> {
    let mut data = vec![0; 4];
    for one in supported {
        let flags = u8::from(with_timeouts) << 1 | u8::from(one.action.is_some());
        let action = one.action.unwrap_or(0);
        data.extend_from_slice(&[one.opcode(), 0, 0, action, 0, flags, 0, one.length]);
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
    let mut data = vec![0, u8::from(with_timeouts) << 7 | 0x03, 0, found.length];
    data.extend_from_slice(found.usage());
    if let Some(action) = found.action {
        data[5] = action;
    }
    if with_timeouts {
        data.extend_from_slice(&TIMEOUTS);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cdb(bytes: &[u8]) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        cdb
    }

    /// The lengths follow from the opcodes' groups, and the table is in order.
    #[test]
    fn the_table_is_consistent() {
        for one in COMMANDS {
            let length = match one.opcode() >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                _ => 12,
            };
            assert_eq!(one.length, length, "{:#04x}", one.opcode());
        }
        assert!(COMMANDS.is_sorted_by_key(Supported::opcode));
    }

    /// Bits without a meaning are refused and pointed at.
    #[test]
    fn stray_bits_are_refused() {
        assert_eq!(find(&cdb(&[0xff])).unwrap_err(), Sense::INVALID_OPCODE);
        let protect = find(&cdb(&[0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0])).unwrap_err();
        assert_eq!(protect, Sense::invalid_cdb_field(1, Some(5)));
        let naca = find(&cdb(&[0x00, 0, 0, 0, 0, 0x04])).unwrap_err();
        assert_eq!(naca, Sense::invalid_cdb_field(5, Some(2)));
        let action = find(&cdb(&[0x9e, 0x11])).unwrap_err();
        assert_eq!((action.asc, action.ascq), (0x24, 0));
        assert!(find(&cdb(&[0x9e, 0x10])).is_ok());
    }

    /// Every reported command can be asked about on its own, in the one way that fits it.
    #[test]
    fn reported_commands_are_consistent() {
        for with_timeouts in [false, true] {
            let all = report(0, 0, 0, with_timeouts, true).unwrap();
            let size = if with_timeouts { 20 } else { 8 };
            assert_eq!(all.len(), 4 + COMMANDS.len() * size);
            for entry in all[4..].chunks(size) {
                let (opcode, action) = (entry[0], u16::from(entry[3]));
                let has_action = entry[5] & 1 == 1;
                let right = if has_action { 2 } else { 1 };
                assert!(report(3 - right, opcode, action, with_timeouts, true).is_err());
                let one = report(right, opcode, action, with_timeouts, true).unwrap();
                assert_eq!((one[1] & 7, one[4]), (3, opcode));
                assert_eq!(report(3, opcode, action, with_timeouts, true).unwrap(), one);
            }
        }
        assert_eq!(report(1, 0x42, 0, false, false).unwrap(), [0, 1, 0, 0]);
        assert!(report(4, 0, 0, false, true).is_err());
    }
}
