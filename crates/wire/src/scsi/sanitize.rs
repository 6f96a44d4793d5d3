//! SANITIZE: makes all data that a disk holds or has held unreadable (SBC-4 sections 4.11 and 5.30).
//!
//! [`decode`] reads the CDB. A sanitize by overwriting has parameter data, which [`overwrite`] reads;
//! the other one has none. The shell then does [`Method::passes`] passes over all blocks, each of which
//! leaves what [`Method::pass`] says.
//!
//! During the operation, even after resets and on every path, only commands that need nothing of the
//! medium (see the commands table) are answered, everything else with SANITIZE IN PROGRESS. If it fails,
//! the unit is in failure mode: all but the same commands and SANITIZE end with SANITIZE COMMAND FAILED, until a sanitize succeeds or, had
//! the failed one allowed it by [`Plan::ause`], [`Step::ExitFailureMode`] is asked for. If it had not,
//! that step and every plan with `ause` are refused with INVALID FIELD IN CDB.

use super::Sense;

/// The request of a CDB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Begin.
    Start(Plan),
    /// Get the parameter data first, and read it with [`overwrite`].
    Parameters {
        /// Length of the parameter data, in bytes.
        length: u32,
        /// See [`Plan::immediate`].
        immediate: bool,
        /// See [`Plan::ause`].
        ause: bool,
    },
    /// Take a sanitize that failed for one that succeeded. If none failed, there is nothing to do.
    ExitFailureMode,
}

/// A sanitize to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The method.
    pub method: Method,
    /// The response comes before it is done.
    pub immediate: bool,
    /// Allow unrestricted sanitize exit: after a failure the initiator may take the unit back as it is.
    pub ause: bool,
}

/// The sanitize method. There is no cryptographic erase, because data is not encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// Deallocate all blocks, so that they read as zeros. For thin disks only.
    BlockErase,
    /// Write all blocks.
    Overwrite {
        /// The number of passes, 1 to 31.
        passes: u8,
        /// Write the inverted pattern in every second pass.
        invert: bool,
        /// The pattern, from one byte to one block long; repeated in each block from its start.
        pattern: Vec<u8>,
    },
}

/// The contents of every block after a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Deallocated.
    Unmap,
    /// These bytes, one block long.
    Block(Vec<u8>),
}

impl Method {
    /// Number of passes over the disk.
    pub const fn passes(&self) -> u8 {
        match self {
            Self::BlockErase => 1,
            Self::Overwrite { passes, .. } => *passes,
        }
    }

    /// The contents of blocks of `block_size` bytes after a pass, numbered from 0.
    pub fn pass(&self, pass: u8, block_size: u32) -> Fill {
        let Self::Overwrite { passes, invert, pattern } = self else {
            return Fill::Unmap;
        };
        // SBC-4 section 5.30.2.2: an even number of passes begins with the inverted pattern. So the
        // last pass, whatever their number, leaves the pattern as it is.
        let flip = if *invert && (passes - pass).is_multiple_of(2) { 0xff } else { 0x00 };
        let bytes = pattern.iter().cycle().map(|byte| byte ^ flip);
        Fill::Block(bytes.take(block_size as usize).collect())
    }
}

/// Reads the CDB. Bits without a meaning are refused; ZNR, which means something to zoned disks, is one
/// of them.
pub fn decode(cdb: &[u8; 16]) -> Result<Step, Sense> {
    // SBC-4 table 109.
    let reserved = [(1, 0x40), (2, 0xff), (3, 0xff), (4, 0xff), (5, 0xff), (6, 0xff)];
    for (byte, mask) in reserved {
        if let Some(bit) = (cdb[byte] & mask).checked_ilog2() {
            return Err(Sense::invalid_cdb_field(byte as u16, Some(bit as u8)));
        }
    }
    let immediate = cdb[1] & 0x80 != 0;
    let ause = cdb[1] & 0x20 != 0;
    let length = u32::from(u16::from_be_bytes([cdb[7], cdb[8]]));
    // SBC-4 table 110: each service action has its own requirement for the parameter list length.
    let wrong_length = Sense::invalid_cdb_field(7, None);
    match cdb[1] & 0x1f {
        OVERWRITE if length as usize > HEADER_LENGTH => {
            Ok(Step::Parameters { length, immediate, ause })
        }
        BLOCK_ERASE if length == 0 => {
            Ok(Step::Start(Plan { method: Method::BlockErase, immediate, ause }))
        }
        EXIT_FAILURE_MODE if length == 0 => Ok(Step::ExitFailureMode),
        OVERWRITE | BLOCK_ERASE | EXIT_FAILURE_MODE => Err(wrong_length),
        _ => Err(Sense::invalid_cdb_field(1, Some(4))),
    }
}

/// Reads the parameter data of a sanitize by overwriting, which is exactly as long as the CDB says.
pub fn overwrite(list: &[u8], immediate: bool, ause: bool, block_size: u32) -> Result<Plan, Sense> {
    let Some((header, pattern)) = list.split_first_chunk::<HEADER_LENGTH>() else {
        return Err(Sense::invalid_cdb_field(7, None));
    };
    // SBC-4 table 110: a list with more than a block of pattern is a wrong CDB.
    if pattern.is_empty() || pattern.len() > block_size as usize {
        return Err(Sense::invalid_cdb_field(7, None));
    }
    let passes = header[0] & 0x1f;
    // TEST asks for something that only a vendor knows; there is no such thing here.
    if header[0] & 0x60 != 0 || passes == 0 {
        return Err(Sense::invalid_parameter_field(0));
    }
    if header[1] != 0 {
        return Err(Sense::invalid_parameter_field(1));
    }
    if usize::from(u16::from_be_bytes([header[2], header[3]])) != pattern.len() {
        return Err(Sense::invalid_parameter_field(2));
    }
    let invert = header[0] & 0x80 != 0;
    let method = Method::Overwrite { passes, invert, pattern: pattern.to_vec() };
    Ok(Plan { method, immediate, ause })
}

/// Length of the parameter data without the pattern, in bytes.
const HEADER_LENGTH: usize = 4;

const OVERWRITE: u8 = 0x01;
const BLOCK_ERASE: u8 = 0x02;
const EXIT_FAILURE_MODE: u8 = 0x1f;

#[cfg(test)]
mod tests {
    use super::*;

    fn cdb(action: u8, length: u16) -> [u8; 16] {
        let [high, low] = length.to_be_bytes();
        let mut cdb = [0; 16];
        cdb[..9].copy_from_slice(&[0x48, action, 0, 0, 0, 0, 0, high, low]);
        cdb
    }

    fn list(flags: u8, pattern: &[u8]) -> Vec<u8> {
        let [high, low] = (pattern.len() as u16).to_be_bytes();
        [&[flags, 0, high, low], pattern].concat()
    }

    /// The three service actions, with and without their bits.
    #[test]
    fn steps_are_read() {
        let erase =
            |immediate, ause| Ok(Step::Start(Plan { method: Method::BlockErase, immediate, ause }));
        assert_eq!(decode(&cdb(0x02, 0)), erase(false, false));
        assert_eq!(decode(&cdb(0x82, 0)), erase(true, false));
        assert_eq!(decode(&cdb(0x22, 0)), erase(false, true));
        for (action, immediate, ause) in
            [(0x01, false, false), (0x81, true, false), (0x21, false, true)]
        {
            let step = Step::Parameters { length: 516, immediate, ause };
            assert_eq!(decode(&cdb(action, 516)), Ok(step));
        }
        assert_eq!(decode(&cdb(0x1f, 0)), Ok(Step::ExitFailureMode));
    }

    /// Every other service action is refused and pointed at, cryptographic erase among them.
    #[test]
    fn unknown_actions_are_refused() {
        for action in (0..0x20).filter(|action| !matches!(action, 0x01 | 0x02 | 0x1f)) {
            assert_eq!(decode(&cdb(action, 0)), Err(Sense::invalid_cdb_field(1, Some(4))));
        }
    }

    /// Reserved bits are refused and pointed at, whatever the service action.
    #[test]
    fn reserved_bits_are_refused() {
        for action in [0x01, 0x02, 0x03, 0x1f] {
            let mut znr = cdb(action, 0);
            znr[1] |= 0x40;
            assert_eq!(decode(&znr), Err(Sense::invalid_cdb_field(1, Some(6))));
            for byte in 2..7_u8 {
                let mut wrong = cdb(action, 0);
                wrong[usize::from(byte)] = byte;
                let bit = byte.ilog2() as u8;
                assert_eq!(decode(&wrong), Err(Sense::invalid_cdb_field(byte.into(), Some(bit))));
            }
        }
    }

    /// A length that does not belong to the service action is a wrong CDB.
    #[test]
    fn lengths_belong_to_actions() {
        let wrong = Err(Sense::invalid_cdb_field(7, None));
        for length in 0..=4 {
            assert_eq!(decode(&cdb(0x01, length)), wrong);
        }
        for action in [0x02, 0x1f] {
            assert_eq!(decode(&cdb(action, 8)), wrong);
        }
        let read = |list: &[u8]| overwrite(list, false, false, 512).map(drop);
        for length in [0, 3, 4, 517, 520] {
            assert_eq!(read(&vec![1; length]), Err(Sense::invalid_cdb_field(7, None)), "{length}");
        }
    }

    /// A pattern of one byte, of a part of a block and of a whole block.
    #[test]
    fn good_lists_pass() {
        for (flags, length, passes, invert) in
            [(0x01, 512, 1, false), (0x9f, 256, 31, true), (0x02, 4, 2, false), (0x81, 1, 1, true)]
        {
            let pattern = vec![0xaa; length];
            let plan = overwrite(&list(flags, &pattern), true, false, 512);
            let method = Method::Overwrite { passes, invert, pattern };
            assert_eq!(plan, Ok(Plan { method, immediate: true, ause: false }));
        }
    }

    /// Each wrong field of the list is pointed at.
    #[test]
    fn wrong_lists_are_refused() {
        let good = list(0x01, &[0xaa; 512]);
        for (at, value, byte) in [
            (0, 0x00, 0),
            (0, 0x80, 0),
            (0, 0x21, 0),
            (0, 0x41, 0),
            (1, 0x01, 1),
            (2, 0x00, 2),
            (2, 0x01, 2),
            (2, 0x03, 2),
            (3, 0x04, 2),
        ] {
            let mut wrong = good.clone();
            wrong[at] = value;
            let sense = overwrite(&wrong, false, false, 512);
            assert_eq!(sense, Err(Sense::invalid_parameter_field(byte)), "{at} {value:#x}");
        }
    }

    /// The pattern is repeated from the start of each block, and cut at its end.
    #[test]
    fn a_block_is_filled() {
        let method = Method::Overwrite { passes: 1, invert: false, pattern: vec![1, 2, 3] };
        assert_eq!(method.pass(0, 8), Fill::Block(vec![1, 2, 3, 1, 2, 3, 1, 2]));
        assert_eq!((Method::BlockErase.passes(), Method::BlockErase.pass(0, 8)), (1, Fill::Unmap));
    }

    /// With INVERT the passes take turns, and the last one leaves the pattern itself.
    #[test]
    fn passes_take_turns() {
        for passes in [1, 2, 3, 30, 31] {
            for invert in [false, true] {
                let method = Method::Overwrite { passes, invert, pattern: vec![0x0f] };
                assert_eq!(method.passes(), passes);
                let fills: Vec<_> = (0..passes).map(|pass| method.pass(pass, 1)).collect();
                assert_eq!(fills.last(), Some(&Fill::Block(vec![0x0f])));
                for pair in fills.windows(2) {
                    assert_eq!(pair[0] != pair[1], invert);
                }
            }
        }
    }
}
