//! Sense data: why a command failed, in fixed or descriptor format (SPC-4 section 4.5).

/// Length of the longest sense data built here, in bytes.
pub const SENSE_LENGTH_MAX: usize = 40;

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
    /// A copy stopped at one of its segments.
    CopyAborted = 0xa,
    /// The target aborted the command; a retry may succeed.
    AbortedCommand = 0xb,
    /// Source and medium differ.
    Miscompare = 0xe,
}

/// The field pointer of sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// The invalid field is in the CDB, not in the parameter data.
    pub in_cdb: bool,
    /// The invalid byte.
    pub byte: u16,
    /// The highest invalid bit, if the error is in single bits.
    pub bit: Option<u8>,
}

/// The sense data of a failed command. Equality ignores the format.
#[derive(Clone, Copy, Debug)]
pub struct Sense {
    /// The sense key.
    pub key: SenseKey,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// Usually the first logical block at fault.
    pub information: Option<u64>,
    /// The invalid field.
    pub field: Option<FieldPointer>,
    /// Segment of a copy that was being processed, from 0 on.
    pub segment: Option<u16>,
    /// How far an operation has come that the command must wait for, in 65536ths. Not together with
    /// a field: both have the same place.
    pub progress: Option<u16>,
    /// [`encoded`](Self::encoded) gives descriptor format.
    descriptor: bool,
}

impl PartialEq for Sense {
    fn eq(&self, other: &Self) -> bool {
        let said = |one: &Self| {
            let codes = (one.key, one.asc, one.ascq);
            (codes, one.information, one.field, one.segment, one.progress)
        };
        said(self) == said(other)
    }
}

impl Eq for Sense {}

/// Names the constants below: key, additional code, qualifier.
macro_rules! sense {
    ($($(#[$doc:meta])* $name:ident = $key:ident $asc:literal $ascq:literal;)*) => {
        impl Sense {
            $($(#[$doc])* pub const $name: Self = Self::new(SenseKey::$key, $asc, $ascq);)*
        }
    };
}

sense! {
    /// No error.
    NO_SENSE = NoSense 0x00 0x00;
    /// An unrecovered read error.
    UNRECOVERED_READ_ERROR = MediumError 0x11 0x00;
    /// A write failed.
    WRITE_ERROR = MediumError 0x0c 0x00;
    /// A sanitize operation failed, and what the medium holds is undefined.
    SANITIZE_COMMAND_FAILED = MediumError 0x31 0x03;
    /// Storage behind the logical unit failed.
    INTERNAL_TARGET_FAILURE = HardwareError 0x44 0x00;
    /// The logical unit cannot be reached now.
    LOGICAL_UNIT_NOT_READY = NotReady 0x04 0x00;
    /// The logical unit is becoming ready.
    BECOMING_READY = NotReady 0x04 0x01;
    /// The logical unit is unavailable through this target port; another port may work.
    UNAVAILABLE = NotReady 0x04 0x0c;
    /// A sanitize operation is in progress.
    SANITIZE_IN_PROGRESS = NotReady 0x04 0x1b;
    /// The medium was ejected.
    MEDIUM_NOT_PRESENT = NotReady 0x3a 0x00;
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
    /// RELEASE named another type than the persistent reservation has.
    INVALID_RELEASE_OF_PERSISTENT_RESERVATION = IllegalRequest 0x26 0x04;
    /// There is no room for another registration.
    INSUFFICIENT_REGISTRATION_RESOURCES = IllegalRequest 0x55 0x04;
    /// The transport's expected length does not fit the command.
    INVALID_FIELD_IN_INFORMATION_UNIT = IllegalRequest 0x0e 0x03;
    /// No such logical unit.
    LOGICAL_UNIT_NOT_SUPPORTED = IllegalRequest 0x25 0x00;
    /// Saved mode pages do not exist.
    SAVING_PARAMETERS_NOT_SUPPORTED = IllegalRequest 0x39 0x00;
    /// An initiator prevents the removal of the medium.
    MEDIUM_REMOVAL_PREVENTED = IllegalRequest 0x53 0x02;
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
    /// All registrations and the persistent reservation were cleared.
    RESERVATIONS_PREEMPTED = UnitAttention 0x2a 0x03;
    /// The initiator's persistent reservation was released or replaced.
    RESERVATIONS_RELEASED = UnitAttention 0x2a 0x04;
    /// The initiator's registration was removed.
    REGISTRATIONS_PREEMPTED = UnitAttention 0x2a 0x05;
    /// Capacity changed.
    CAPACITY_CHANGED = UnitAttention 0x2a 0x09;
    /// The list of logical units changed.
    REPORTED_LUNS_CHANGED = UnitAttention 0x3f 0x0e;
    /// The medium may have changed.
    MEDIUM_MAY_HAVE_CHANGED = UnitAttention 0x28 0x00;
    /// The logical unit is write protected.
    WRITE_PROTECTED = DataProtect 0x27 0x00;
    /// An initiator has write protected the logical unit, by SWP of the control mode page.
    SOFTWARE_WRITE_PROTECTED = DataProtect 0x27 0x02;
    /// Thin provisioning ran out of space.
    SPACE_ALLOCATION_FAILED = DataProtect 0x27 0x07;
    /// Unexpected unsolicited data.
    UNEXPECTED_UNSOLICITED_DATA = AbortedCommand 0x0c 0x0c;
    /// Less or more data was received than announced.
    INCORRECT_AMOUNT_OF_DATA = AbortedCommand 0x0c 0x0d;
    /// A data PDU was lost or out of order.
    PROTOCOL_SERVICE_CRC_ERROR = AbortedCommand 0x47 0x05;
    /// A copy with this list identifier is still being processed.
    OPERATION_IN_PROGRESS = IllegalRequest 0x00 0x16;
    /// A copy names more disks than are allowed.
    TOO_MANY_TARGET_DESCRIPTORS = IllegalRequest 0x26 0x06;
    /// A copy names a disk in a way that is not known.
    UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE = IllegalRequest 0x26 0x07;
    /// A copy has more segments than are allowed.
    TOO_MANY_SEGMENT_DESCRIPTORS = IllegalRequest 0x26 0x08;
    /// A copy asks for a function that is not known.
    UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE = IllegalRequest 0x26 0x09;
    /// A copy has more inline data than is allowed.
    INLINE_DATA_LENGTH_EXCEEDED = IllegalRequest 0x26 0x0b;
    /// A copy stopped; the field pointer says where.
    COPY_ABORTED = CopyAborted 0x00 0x00;
    /// A disk of a copy cannot be found.
    UNREACHABLE_COPY_TARGET = CopyAborted 0x08 0x04;
    /// A disk of a copy failed a command.
    THIRD_PARTY_DEVICE_FAILURE = CopyAborted 0x0d 0x01;
    /// A descriptor of a copy does not fit the disk that it names.
    COPY_ABORTED_BY_PARAMETER = CopyAborted 0x26 0x00;
    /// A segment of a copy is not a whole number of blocks.
    UNEXPECTED_INEXACT_SEGMENT = CopyAborted 0x26 0x0a;
    /// Verification found a difference.
    MISCOMPARE = Miscompare 0x1d 0x00;
}

impl Sense {
    /// Sense data with nothing but codes.
    pub const fn new(key: SenseKey, asc: u8, ascq: u8) -> Self {
        Self {
            key,
            asc,
            ascq,
            information: None,
            field: None,
            segment: None,
            progress: None,
            descriptor: false,
        }
    }

    /// The same with a logical block address, or other information that the code requires.
    #[must_use]
    pub const fn with_information(mut self, information: u64) -> Self {
        self.information = Some(information);
        self
    }

    /// The same with how far an operation has come, in 65536ths.
    #[must_use]
    pub const fn with_progress(mut self, progress: u16) -> Self {
        self.progress = Some(progress);
        self
    }

    /// The same for a segment of a copy.
    #[must_use]
    pub const fn in_segment(mut self, segment: u16) -> Self {
        self.segment = Some(segment);
        self
    }

    /// The same with a pointer at `byte` of the parameter data.
    #[must_use]
    pub const fn at_parameter(mut self, byte: u16) -> Self {
        self.field = Some(FieldPointer { in_cdb: false, byte, bit: None });
        self
    }

    /// The same in descriptor or in fixed format.
    #[must_use]
    pub(crate) const fn in_descriptors(mut self, descriptor: bool) -> Self {
        self.descriptor = descriptor;
        self
    }

    /// In the format selected for the logical unit: the bytes and the number of valid ones.
    pub fn encoded(&self) -> ([u8; SENSE_LENGTH_MAX], usize) {
        if self.descriptor {
            return self.descriptor();
        }
        let fixed = self.fixed();
        let mut bytes = [0; SENSE_LENGTH_MAX];
        bytes[..fixed.len()].copy_from_slice(&fixed);
        (bytes, fixed.len())
    }

    /// INVALID FIELD IN CDB that points at `byte`, and at `bit` if one bit is to blame.
    pub const fn invalid_cdb_field(byte: u16, bit: Option<u8>) -> Self {
        let mut sense = Self::INVALID_FIELD_IN_CDB;
        sense.field = Some(FieldPointer { in_cdb: true, byte, bit });
        sense
    }

    /// INVALID FIELD IN PARAMETER LIST that points at `byte`.
    pub const fn invalid_parameter_field(byte: u16) -> Self {
        Self::INVALID_FIELD_IN_PARAMETER_LIST.at_parameter(byte)
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
        // SPC-4 section 5.17.7.4: the segment lies in the third and fourth byte of the
        // command-specific information.
        bytes[10..12].copy_from_slice(&self.segment.unwrap_or(0).to_be_bytes());
        bytes[12] = self.asc;
        bytes[13] = self.ascq;
        if let Some(specific) = self.key_specific() {
            bytes[15..18].copy_from_slice(&specific);
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
        if let Some(segment) = self.segment {
            bytes[length..length + 2].copy_from_slice(&[0x01, 10]);
            bytes[length + 6..length + 8].copy_from_slice(&segment.to_be_bytes());
            length += 12;
        }
        if let Some(specific) = self.key_specific() {
            bytes[length..length + 2].copy_from_slice(&[0x02, 6]);
            bytes[length + 4..length + 7].copy_from_slice(&specific);
            length += 8;
        }
        bytes[7] = (length - 8) as u8;
        (bytes, length)
    }

    /// The three sense-key specific bytes (SPC-4 section 4.5.2.4): a field pointer or progress.
    fn key_specific(&self) -> Option<[u8; 3]> {
        let progress = self.progress.map(|progress| {
            let [high, low] = progress.to_be_bytes();
            [0x80, high, low]
        });
        self.field.map(FieldPointer::encoded).or(progress)
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

    /// Progress replaces the field pointer, in both formats; the content does not depend on the format.
    #[test]
    fn progress_is_told() {
        let sense = Sense::SANITIZE_IN_PROGRESS.with_progress(0x1234);
        assert_eq!(sense.fixed()[12..], [0x04, 0x1b, 0, 0x80, 0x12, 0x34]);
        let (bytes, length) = sense.encoded();
        assert_eq!(bytes[..length], sense.fixed());
        let worded = sense.in_descriptors(true);
        let (bytes, length) = worded.encoded();
        assert_eq!(
            bytes[..length],
            [0x72, 2, 4, 0x1b, 0, 0, 0, 8, 2, 6, 0, 0, 0x80, 0x12, 0x34, 0]
        );
        assert_eq!(worded, sense);
        assert_ne!(worded, Sense::SANITIZE_IN_PROGRESS);
    }

    /// The segment of a copy lies in the command-specific information, in both formats.
    #[test]
    fn a_segment_is_named() {
        let sense = Sense::UNREACHABLE_COPY_TARGET.in_segment(0x0102).at_parameter(48);
        let fixed = sense.fixed();
        assert_eq!(fixed[7..], [10, 0, 0, 1, 2, 0x08, 0x04, 0, 0x80, 0, 48]);
        let (bytes, length) = sense.with_information(7).descriptor();
        assert_eq!((bytes[7], length), (32, SENSE_LENGTH_MAX));
        assert_eq!(bytes[20..32], [0x01, 10, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0]);
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
