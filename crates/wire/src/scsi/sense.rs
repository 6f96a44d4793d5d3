//! Sense data: why a command failed, in fixed or descriptor format (SPC-4 section 4.5).

/// Length of the longest sense data built here, in bytes.
pub const SENSE_LENGTH_MAX: usize = 28;

/// Sense keys (SPC-4 table 55).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SenseKey {
    /// Nothing to report.
    NoSense = 0x0,
    /// Not ready.
    NotReady = 0x2,
    /// The medium failed.
    MediumError = 0x3,
    /// The device failed.
    HardwareError = 0x4,
    /// The command or its parameters are wrong.
    IllegalRequest = 0x5,
    /// Something changed that the initiator must know.
    UnitAttention = 0x6,
    /// Writing is forbidden.
    DataProtect = 0x7,
    /// The target gave the command up; trying again may help.
    AbortedCommand = 0xb,
    /// Source and medium differ.
    Miscompare = 0xe,
}

/// What the four bytes after the additional codes point at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// The fault lies in the CDB, not in the parameter data.
    pub in_cdb: bool,
    /// Byte at fault.
    pub byte: u16,
    /// Highest bit at fault, if one bit is to blame.
    pub bit: Option<u8>,
}

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// Class of the fault.
    pub key: SenseKey,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// Usually the first logical block at fault.
    pub information: Option<u64>,
    /// Which field is at fault.
    pub field: Option<FieldPointer>,
}

/// Names the constants below: key, additional code, qualifier.
macro_rules! sense {
    ($($(#[$doc:meta])* $name:ident = $key:ident $asc:literal $ascq:literal;)*) => {
        impl Sense {
            $($(#[$doc])* pub const $name: Self = Self::new(SenseKey::$key, $asc, $ascq);)*
        }
    };
}

sense! {
    /// Nothing is wrong.
    NO_SENSE = NoSense 0x00 0x00;
    /// An unrecovered read error.
    UNRECOVERED_READ_ERROR = MediumError 0x11 0x00;
    /// A write failed.
    WRITE_ERROR = MediumError 0x0c 0x00;
    /// Storage behind the logical unit failed.
    INTERNAL_TARGET_FAILURE = HardwareError 0x44 0x00;
    /// The logical unit cannot be reached now.
    LOGICAL_UNIT_NOT_READY = NotReady 0x04 0x00;
    /// The logical unit is becoming ready.
    BECOMING_READY = NotReady 0x04 0x01;
    /// The opcode is unknown.
    INVALID_OPCODE = IllegalRequest 0x20 0x00;
    /// A block past the end was named.
    LBA_OUT_OF_RANGE = IllegalRequest 0x21 0x00;
    /// A field of the CDB is wrong.
    INVALID_FIELD_IN_CDB = IllegalRequest 0x24 0x00;
    /// A field of the parameter data is wrong.
    INVALID_FIELD_IN_PARAMETER_LIST = IllegalRequest 0x26 0x00;
    /// The parameter data has the wrong length.
    PARAMETER_LIST_LENGTH_ERROR = IllegalRequest 0x1a 0x00;
    /// The transport's expected length does not fit the command.
    INVALID_FIELD_IN_INFORMATION_UNIT = IllegalRequest 0x0e 0x03;
    /// No such logical unit.
    LOGICAL_UNIT_NOT_SUPPORTED = IllegalRequest 0x25 0x00;
    /// Saved mode pages do not exist.
    SAVING_PARAMETERS_NOT_SUPPORTED = IllegalRequest 0x39 0x00;
    /// Power was applied or the unit was reset.
    POWER_ON_OR_RESET = UnitAttention 0x29 0x00;
    /// The nexus was lost.
    NEXUS_LOSS = UnitAttention 0x29 0x07;
    /// A reset of the logical unit function occurred.
    BUS_DEVICE_RESET = UnitAttention 0x29 0x03;
    /// Commands cleared by another initiator.
    COMMANDS_CLEARED = UnitAttention 0x2f 0x00;
    /// Mode parameters changed.
    MODE_PARAMETERS_CHANGED = UnitAttention 0x2a 0x01;
    /// Capacity changed.
    CAPACITY_CHANGED = UnitAttention 0x2a 0x09;
    /// The list of logical units changed.
    REPORTED_LUNS_CHANGED = UnitAttention 0x3f 0x0e;
    /// The logical unit is write protected.
    WRITE_PROTECTED = DataProtect 0x27 0x00;
    /// Thin provisioning ran out of space.
    SPACE_ALLOCATION_FAILED = DataProtect 0x27 0x07;
    /// Data came that nobody asked for.
    UNEXPECTED_UNSOLICITED_DATA = AbortedCommand 0x0c 0x0c;
    /// Less or more data came than announced.
    INCORRECT_AMOUNT_OF_DATA = AbortedCommand 0x0c 0x0d;
    /// A data PDU was lost or came out of order.
    PROTOCOL_SERVICE_CRC_ERROR = AbortedCommand 0x47 0x05;
    /// Verification found a difference.
    MISCOMPARE = Miscompare 0x1d 0x00;
}

impl Sense {
    /// Sense data with nothing but codes.
    pub const fn new(key: SenseKey, asc: u8, ascq: u8) -> Self {
        Self { key, asc, ascq, information: None, field: None }
    }

    /// The same with a logical block address, or whatever else the code asks for.
    #[must_use]
    pub const fn with_information(mut self, information: u64) -> Self {
        self.information = Some(information);
        self
    }

    /// INVALID FIELD IN CDB that points at `byte`, and at `bit` if one bit is to blame.
    pub const fn invalid_cdb_field(byte: u16, bit: Option<u8>) -> Self {
        let mut sense = Self::INVALID_FIELD_IN_CDB;
        sense.field = Some(FieldPointer { in_cdb: true, byte, bit });
        sense
    }

    /// INVALID FIELD IN PARAMETER LIST that points at `byte`.
    pub const fn invalid_parameter_field(byte: u16) -> Self {
        let mut sense = Self::INVALID_FIELD_IN_PARAMETER_LIST;
        sense.field = Some(FieldPointer { in_cdb: false, byte, bit: None });
        sense
    }

    /// Fixed format, 18 bytes (SPC-4 section 4.5.3). Information that does not fit 32 bits is left
    /// out, as the standard asks.
    pub fn fixed(&self) -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[0] = 0x70;
        bytes[2] = self.key as u8;
        if let Some(information) = self.information.and_then(|wide| u32::try_from(wide).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[7] = 10;
        bytes[12] = self.asc;
        bytes[13] = self.ascq;
        if let Some(field) = self.field {
            bytes[15..18].copy_from_slice(&field.encoded());
        }
        bytes
    }

    /// Descriptor format (SPC-4 section 4.5.2): the bytes and how many of them count.
    pub fn descriptor(&self) -> ([u8; SENSE_LENGTH_MAX], usize) {
        let mut bytes = [0; SENSE_LENGTH_MAX];
        let mut length = 8;
        bytes[0] = 0x72;
        bytes[1] = self.key as u8;
        bytes[2] = self.asc;
        bytes[3] = self.ascq;
        if let Some(information) = self.information {
            bytes[length..length + 3].copy_from_slice(&[0x00, 10, 0x80]);
            bytes[length + 4..length + 12].copy_from_slice(&information.to_be_bytes());
            length += 12;
        }
        if let Some(field) = self.field {
            bytes[length..length + 2].copy_from_slice(&[0x02, 6]);
            bytes[length + 4..length + 7].copy_from_slice(&field.encoded());
            length += 8;
        }
        bytes[7] = (length - 8) as u8;
        (bytes, length)
    }
}

impl FieldPointer {
    /// The three sense-key specific bytes (SPC-4 section 4.5.2.4.2).
    fn encoded(self) -> [u8; 3] {
        let [high, low] = self.byte.to_be_bytes();
        let in_cdb = u8::from(self.in_cdb) << 6;
        [0x80 | in_cdb | self.bit.map_or(0, |bit| 0x08 | (bit & 7)), high, low]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The field pointer of a wrong bit, in both formats.
    #[test]
    fn a_wrong_bit_is_pointed_at() {
        let sense = Sense::invalid_cdb_field(1, Some(7));
        let fixed = sense.fixed();
        assert_eq!(fixed, [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xcf, 0, 1]);
        let (bytes, length) = sense.descriptor();
        assert_eq!(bytes[..length], [0x72, 5, 0x24, 0, 0, 0, 0, 8, 0x02, 6, 0, 0, 0xcf, 0, 1, 0]);
    }

    /// Information is valid in fixed format only if it fits.
    #[test]
    fn wide_information_needs_descriptors() {
        let near = Sense::LBA_OUT_OF_RANGE.with_information(0x0102_0304);
        assert_eq!(near.fixed()[..7], [0xf0, 0, 5, 1, 2, 3, 4]);
        let far = Sense::LBA_OUT_OF_RANGE.with_information(1 << 40);
        assert_eq!(far.fixed()[0], 0x70);
        let (bytes, length) = far.descriptor();
        assert_eq!(length, 20);
        assert_eq!(bytes[8..20], [0, 10, 0x80, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    }
}
