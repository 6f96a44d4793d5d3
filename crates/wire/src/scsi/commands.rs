//! The supported commands: the valid bits of each CDB, and the state of the unit that a command needs.
//!
//! One table serves all. A CDB with a bit that the table does not list is refused, and the sense data points at the
//! bit: this excludes protection information, NACA and all other unsupported features. [`opcodes`](super::opcodes)
//! reports the same table.

use super::nexus::Access;
use super::sense::Sense;

/// Optional features of a disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub(crate) thin: bool,
    pub(crate) removable: bool,
    pub(crate) sanitize: bool,
    pub(crate) compare_and_write: bool,
    pub(crate) atomic: bool,
}

/// The disks that support a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    All,
    Thin,
    Removable,
    Sanitize,
    /// A block erase deallocates, so the disk must be thin too.
    BlockErase,
    CompareAndWrite,
    Atomic,
}

/// The state of its unit that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// None: it runs even without a medium, and while it is sanitized (SBC-4 section 4.11.2).
    Nothing,
    /// A medium, even one that is just sanitized.
    Presence,
    /// No sanitize operation, neither one in progress nor one that failed.
    Unit,
    /// A medium too.
    Medium,
    /// A medium, but a failed sanitize operation is no obstacle.
    Sanitizable,
}

/// One command: its CDB with every bit set that may be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supported {
    /// Usage map (SPC-4 section 6.35.3); the first byte is the opcode itself, and the low bits of
    /// the second are the service action of a command that has one.
    usage: [u8; 16],
    length: u8,
    action: Option<u8>,
    /// The access that it needs under another nexus's reservation, by the tables of SPC-4 and SBC-3 that say which
    /// commands are allowed in the presence of reservations.
    pub(crate) access: Access,
    /// The state of the unit that it needs.
    pub(crate) needs: Needs,
    on: On,
}

impl Supported {
    pub(crate) const fn opcode(&self) -> u8 {
        self.usage[0]
    }

    /// The service action of a command that has one.
    pub(crate) const fn action(&self) -> Option<u8> {
        self.action
    }

    /// The CDB with every bit set that may be set.
    pub(crate) fn usage(&self) -> &[u8] {
        &self.usage[..usize::from(self.length)]
    }

    const fn is_on(&self, features: Features) -> bool {
        match self.on {
            On::All => true,
            On::Thin => features.thin,
            On::Removable => features.removable,
            On::Sanitize => features.sanitize,
            On::BlockErase => features.sanitize && features.thin,
            On::CompareAndWrite => features.compare_and_write,
            On::Atomic => features.atomic,
        }
    }

    const fn with(self, action: u8) -> Self {
        Self { action: Some(action), ..self }
    }

    const fn on(self, on: On) -> Self {
        Self { on, ..self }
    }
}

const fn command<const N: usize>(access: Access, needs: Needs, map: [u8; N]) -> Supported {
    let mut usage = [0; 16];
    let mut index = 0;
    while index < N {
        usage[index] = map[index];
        index += 1;
    }
    Supported { usage, length: N as u8, action: None, access, needs, on: On::All }
}

/// The command runs in every state of the unit.
const fn always<const N: usize>(map: [u8; N]) -> Supported {
    command(Access::Free, Needs::Nothing, map)
}

/// It asks about the unit or changes it, and can do without the medium.
const fn unit<const N: usize>(access: Access, map: [u8; N]) -> Supported {
    command(access, Needs::Unit, map)
}

/// It reads the medium, or asks what only a reader needs.
const fn reads<const N: usize>(map: [u8; N]) -> Supported {
    command(Access::Read, Needs::Medium, map)
}

/// It changes the medium, or counts as if it did.
const fn writes<const N: usize>(map: [u8; N]) -> Supported {
    command(Access::Write, Needs::Medium, map)
}

const fn sanitize<const N: usize>(action: u8, on: On, map: [u8; N]) -> Supported {
    command(Access::Write, Needs::Sanitizable, map).with(action).on(on)
}

// `Reservations` decides all other conflicts of PERSISTENT RESERVE OUT, RESERVE(6) and RELEASE(6).
const fn persistent_in(action: u8) -> Supported {
    unit(Access::Query, [0x5e, 0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]).with(action)
}

const fn persistent_out(action: u8) -> Supported {
    unit(Access::Query, [0x5f, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]).with(action)
}

const fn copy_results(action: u8) -> Supported {
    let map = [0x84, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
    unit(Access::Write, map).with(action)
}

/// Address and length of four bytes each behind the flags, and the group number: 12 bytes.
const fn long(opcode: u8, flags: u8) -> [u8; 12] {
    [opcode, flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0]
}

/// An address of eight bytes behind the flags, a length of up to four and the group number: 16
/// bytes.
const fn huge(opcode: u8, flags: u8, length: u32) -> [u8; 16] {
    let length = length.to_be_bytes();
    let mut map = [0xff; 16];
    (map[0], map[1], map[14], map[15]) = (opcode, flags, 0x3f, 0);
    (map[10], map[11], map[12], map[13]) = (length[0], length[1], length[2], length[3]);
    map
}

/// In the order of opcodes and service actions. A group number is allowed and means nothing.
#[rustfmt::skip]
const COMMANDS: &[Supported] = &[
    command(Access::Query, Needs::Medium, [0x00, 0, 0, 0, 0, 0]),           // TEST UNIT READY
    always([0x03, 0x01, 0, 0, 0xff, 0]),                                    // REQUEST SENSE
    reads([0x08, 0x1f, 0xff, 0xff, 0xff, 0]),                               // READ(6)
    writes([0x0a, 0x1f, 0xff, 0xff, 0xff, 0]),                              // WRITE(6)
    always([0x12, 0x01, 0xff, 0xff, 0xff, 0]),                              // INQUIRY
    unit(Access::Write, [0x15, 0x10, 0, 0, 0xff, 0]),                       // MODE SELECT(6)
    unit(Access::Free, [0x16, 0, 0, 0, 0, 0]),                              // RESERVE(6)
    unit(Access::Free, [0x17, 0, 0, 0, 0, 0]),                              // RELEASE(6)
    command(Access::Read, Needs::Nothing,
            [0x1a, 0x08, 0xff, 0xff, 0xff, 0]),                             // MODE SENSE(6)
    unit(Access::Write, [0x1b, 0x01, 0, 0x0f, 0xf7, 0]),                    // START STOP UNIT
    unit(Access::Write, [0x1e, 0, 0, 0, 0x01, 0]).on(On::Removable),        // PREVENT ALLOW MEDIUM REMOVAL
    command(Access::Free, Needs::Presence,
            [0x25, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x01, 0]),              // READ CAPACITY(10)
    reads([0x28, 0x18, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),       // READ(10)
    writes([0x2a, 0x18, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),      // WRITE(10)
    writes([0x2e, 0x12, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),      // WRITE AND VERIFY(10)
    reads([0x2f, 0x16, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),       // VERIFY(10)
    reads([0x34, 0x02, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),       // PRE-FETCH(10)
    writes([0x35, 0x06, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),      // SYNCHRONIZE CACHE(10)
    writes([0x37, 0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0]),                     // READ DEFECT DATA(10)
    writes([0x41, 0x08, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),      // WRITE SAME(10)
    writes([0x42, 0, 0, 0, 0, 0, 0x3f, 0xff, 0xff, 0]).on(On::Thin),        // UNMAP
    sanitize(0x01, On::Sanitize, [0x48, 0xbf, 0, 0, 0, 0, 0, 0xff, 0xff, 0]), // SANITIZE: OVERWRITE
    sanitize(0x02, On::BlockErase, [0x48, 0xbf, 0, 0, 0, 0, 0, 0, 0, 0]),   // SANITIZE: BLOCK ERASE
    sanitize(0x1f, On::Sanitize, [0x48, 0xbf, 0, 0, 0, 0, 0, 0, 0, 0]),     // SANITIZE: EXIT FAILURE MODE
    always([0x4d, 0, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0]),            // LOG SENSE
    unit(Access::Write, [0x55, 0x10, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),        // MODE SELECT(10)
    command(Access::Read, Needs::Nothing,
            [0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0]),              // MODE SENSE(10)
    persistent_in(0x00),                                                    // READ KEYS
    persistent_in(0x01),                                                    // READ RESERVATION
    persistent_in(0x02),                                                    // REPORT CAPABILITIES
    persistent_in(0x03),                                                    // READ FULL STATUS
    persistent_out(0x00),                                                   // REGISTER
    persistent_out(0x01),                                                   // RESERVE
    persistent_out(0x02),                                                   // RELEASE
    persistent_out(0x03),                                                   // CLEAR
    persistent_out(0x04),                                                   // PREEMPT
    persistent_out(0x05),                                                   // PREEMPT AND ABORT
    persistent_out(0x06),                                                   // REGISTER AND IGNORE EXISTING KEY
    persistent_out(0x07),                                                   // REGISTER AND MOVE
    // The copy manager's own; what it reads and writes is checked at the units that it concerns.
    unit(Access::Write, [0x83, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0])
        .with(0x00),                                                        // EXTENDED COPY(LID1)
    copy_results(0x00),                                                     // COPY STATUS
    copy_results(0x01),                                                     // RECEIVE DATA
    copy_results(0x03),                                                     // OPERATING PARAMETERS
    copy_results(0x04),                                                     // FAILED SEGMENT DETAILS
    reads(huge(0x88, 0x18, 0xffff_ffff)),                                   // READ(16)
    writes(huge(0x89, 0x18, 0x00ff)).on(On::CompareAndWrite),               // COMPARE AND WRITE
    writes(huge(0x8a, 0x18, 0xffff_ffff)),                                  // WRITE(16)
    writes(huge(0x8b, 0x18, 0xffff_ffff)),                                  // ORWRITE(16)
    writes(huge(0x8e, 0x12, 0xffff_ffff)),                                  // WRITE AND VERIFY(16)
    reads(huge(0x8f, 0x16, 0xffff_ffff)),                                   // VERIFY(16)
    reads(huge(0x90, 0x02, 0xffff_ffff)),                                   // PRE-FETCH(16)
    writes(huge(0x91, 0x06, 0xffff_ffff)),                                  // SYNCHRONIZE CACHE(16)
    writes(huge(0x93, 0x09, 0xffff_ffff)),                                  // WRITE SAME(16)
    // No atomic boundary, so its field must be zero.
    writes(huge(0x9c, 0x18, 0xffff)).on(On::Atomic),                        // WRITE ATOMIC(16)
    command(Access::Free, Needs::Presence,
            [0x9e, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
             0xff, 0xff, 0xff, 0xff, 0x01, 0]).with(0x10),                  // READ CAPACITY(16)
    reads([0x9e, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
           0xff, 0xff, 0xff, 0xff, 0, 0]).with(0x12),                       // GET LBA STATUS
    always([0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),         // REPORT LUNS
    unit(Access::Free, [0xa3, 0x3f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0])
        .with(0x0a),                                                        // REPORT TARGET PORT GROUPS
    command(Access::Read, Needs::Nothing,
            [0xa3, 0x1f, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0])
        .with(0x0c),                                             // REPORT SUPPORTED OPERATION CODES
    command(Access::Read, Needs::Nothing,
            [0xa3, 0x1f, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0])
        .with(0x0d),                                  // REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS
    reads(long(0xa8, 0x18)),                                                // READ(12)
    writes(long(0xaa, 0x18)),                                               // WRITE(12)
    writes(long(0xae, 0x12)),                                               // WRITE AND VERIFY(12)
    reads(long(0xaf, 0x16)),                                                // VERIFY(12)
    writes([0xb7, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]), // READ DEFECT DATA(12)
];

/// The commands of a disk, in the order of opcodes and service actions.
pub(crate) fn of(features: Features) -> impl Iterator<Item = &'static Supported> {
    COMMANDS.iter().filter(move |one| one.is_on(features))
}

/// Where the entries of each opcode begin in the table, and where those of the last end.
static BEGINS: [u8; 257] = {
    let mut begins = [0; 257];
    let mut at = 0;
    let mut opcode = 0;
    while opcode < 256 {
        begins[opcode] = at as u8;
        while at < COMMANDS.len() && COMMANDS[at].opcode() as usize == opcode {
            at += 1;
        }
        opcode += 1;
    }
    assert!(
        at == COMMANDS.len() && at < 256,
        "the table is in the order of opcodes, and an index has 8 bits"
    );
    begins[256] = at as u8;
    begins
};

/// All entries of an opcode, also those that a disk's features exclude.
fn of_opcode(opcode: u8) -> &'static [Supported] {
    let opcode = usize::from(opcode);
    &COMMANDS[usize::from(BEGINS[opcode])..usize::from(BEGINS[opcode + 1])]
}

/// The table's entry for a CDB, after a check for bits that mean nothing to it.
pub(crate) fn find(cdb: &[u8; 16], features: Features) -> Result<&'static Supported, Sense> {
    let mut of_opcode = of_opcode(cdb[0]).iter().filter(|one| one.is_on(features)).peekable();
    if of_opcode.peek().is_none() {
        return Err(Sense::INVALID_OPCODE);
    }
    // SPC-4 section 4.3.5.5: an unknown service action is a wrong field, not a wrong opcode.
    let action = cdb[1] & 0x1f;
    let found = of_opcode
        .find(|one| one.action.is_none_or(|own| own == action))
        .ok_or(Sense::invalid_cdb_field(1, Some(4)))?;
    for (index, (&byte, &usage)) in cdb.iter().zip(found.usage()).enumerate().skip(1) {
        // SAM-5 section 5.2: in CONTROL only NACA is defined, and Weir does not support ACA.
        let is_control = index + 1 == found.usage().len();
        let wrong = if is_control { byte & 0x04 } else { byte & !usage };
        if wrong != 0 {
            return Err(Sense::invalid_cdb_field(index as u16, Some(wrong.ilog2() as u8)));
        }
    }
    Ok(found)
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

    fn cdb(bytes: &[u8]) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        cdb
    }

    /// The lengths follow from the opcodes' groups, and the table is in order, without doubles.
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
            assert!(one.action.is_none() || one.usage[1] & 0x1f == 0x1f, "{:#04x}", one.opcode());
        }
        assert!(COMMANDS.is_sorted_by(|a, b| (a.opcode(), a.action) < (b.opcode(), b.action)));
    }

    /// The index finds the entries that a search of the whole table finds.
    #[test]
    fn the_index_of_opcodes_is_complete() {
        for opcode in 0..=255 {
            let found = of_opcode(opcode).iter().map(Supported::usage);
            let searched =
                COMMANDS.iter().filter(|one| one.opcode() == opcode).map(Supported::usage);
            assert!(found.eq(searched), "{opcode:#04x}");
        }
    }

    /// Bits without a meaning are refused and pointed at.
    #[test]
    fn stray_bits_are_refused() {
        let find = |bytes: &[u8]| find(&cdb(bytes), ALL);
        assert_eq!(find(&[0xff]).unwrap_err(), Sense::INVALID_OPCODE);
        let protect = find(&[0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0]).unwrap_err();
        assert_eq!(protect, Sense::invalid_cdb_field(1, Some(5)));
        let naca = find(&[0x00, 0, 0, 0, 0, 0x04]).unwrap_err();
        assert_eq!(naca, Sense::invalid_cdb_field(5, Some(2)));
        let action = find(&[0x9e, 0x11]).unwrap_err();
        assert_eq!((action.asc, action.ascq), (0x24, 0));
        assert!(find(&[0x9e, 0x10]).is_ok());
        for opcode in [0x2e, 0x8e, 0xae, 0x89, 0x8b, 0x9c] {
            for protect in 1..8 {
                let sense = find(&[opcode, protect << 5]).unwrap_err();
                assert_eq!(sense.asc, 0x24, "{opcode:#04x}");
            }
        }
        for byte in 2..7 {
            let mut reserved = cdb(&[0x48, 0x02]);
            reserved[byte] = 1;
            assert_eq!(super::find(&reserved, ALL).unwrap_err().asc, 0x24);
        }
        assert_eq!(find(&[0x48, 0x42]).unwrap_err(), Sense::invalid_cdb_field(1, Some(6)));
        assert_eq!(find(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap_err().asc, 0x24);
    }

    /// Commands that a disk does not support are unknown: by opcode, or by service action if the opcode is known.
    #[test]
    fn features_decide() {
        for opcode in [0x1e, 0x42, 0x48, 0x89, 0x9c] {
            let bytes = cdb(&[opcode, u8::from(opcode == 0x48)]);
            assert_eq!(find(&bytes, Features::default()).unwrap_err(), Sense::INVALID_OPCODE);
            assert!(find(&bytes, ALL).is_ok(), "{opcode:#04x}");
        }
        let thick = Features { thin: false, ..ALL };
        assert_eq!(find(&cdb(&[0x48, 2]), thick).unwrap_err().asc, 0x24);
        assert!(find(&cdb(&[0x48, 1]), thick).is_ok());
    }
}
