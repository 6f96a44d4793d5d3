//! Initiator ports and NVMe hosts as `TransportIDs` (SPC-4 section 7.6.4).

use crate::scsi::nexus::{HostId, InitiatorPort};

/// Most bytes of a `TransportID`: its header, a name of 223 bytes, the separator, an ISID and a
/// null, rounded up to four bytes.
pub(super) const LENGTH_MAX: usize =
    (HEADER_LENGTH + NAME_LENGTH_MAX + 5 + 12 + 1).next_multiple_of(4);

/// The `TransportID` of an initiator port.
pub(super) fn encode(port: &InitiatorPort) -> Vec<u8> {
    let mut bytes = vec![FORMAT_PORT | PROTOCOL_ISCSI, 0, 0, 0];
    bytes.extend_from_slice(port.name.as_bytes());
    bytes.extend_from_slice(SEPARATOR.as_bytes());
    for byte in port.isid {
        bytes.extend([byte >> 4, byte & 0xf].map(|digit| HEX[usize::from(digit)]));
    }
    // The text ends with at least one null.
    let length = (bytes.len() + 1).next_multiple_of(4).max(LENGTH_MIN);
    bytes.resize(length, 0);
    bytes[2..4].copy_from_slice(&((length - HEADER_LENGTH) as u16).to_be_bytes());
    bytes
}

/// What stands for an NVMe host: SCSI has no `TransportID` for it. The protocol is none of SPC's, so that it is taken for
/// no port; [`take`] refuses it.
pub(super) fn of_host(host: &HostId) -> [u8; LENGTH_MIN] {
    let mut id = [0; LENGTH_MIN];
    id[0] = PROTOCOL_NONE;
    id[HEADER_LENGTH..][..host.len()].copy_from_slice(host);
    id
}

/// Takes the initiator port of the first `TransportID` of a list, and what follows it. `None` if
/// it is cut off or not that of an iSCSI initiator port.
///
/// The format that names an iSCSI node without an ISID stands for all ports of that node that the
/// device server knows. It is not taken: which sessions there are is not known here, and a
/// registration that silently leaves some out would protect less than the initiator believes.
pub(super) fn take(list: &[u8]) -> Option<(InitiatorPort, &[u8])> {
    let (header, _) = list.split_at_checked(HEADER_LENGTH)?;
    let length = HEADER_LENGTH + usize::from(u16::from_be_bytes([header[2], header[3]]));
    let fits = (LENGTH_MIN..=LENGTH_MAX).contains(&length) && length.is_multiple_of(4);
    if header[0] != FORMAT_PORT | PROTOCOL_ISCSI || !fits {
        return None;
    }
    let (id, rest) = list.split_at_checked(length)?;
    let text = id[HEADER_LENGTH..].split(|byte| *byte == 0).next()?;
    let (name, isid) = str::from_utf8(text).ok()?.rsplit_once(SEPARATOR)?;
    if name.is_empty() || name.len() > NAME_LENGTH_MAX {
        return None;
    }
    let port = InitiatorPort { name: name.to_ascii_lowercase(), isid: isid_from_hex(isid)? };
    Some((port, rest))
}

/// One to twelve hexadecimal digits; leading zeros may be missing.
fn isid_from_hex(digits: &str) -> Option<[u8; 6]> {
    if digits.len() > 12 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let number = u64::from_str_radix(digits, 16).ok()?;
    let [_, _, isid @ ..] = number.to_be_bytes();
    Some(isid)
}

/// Longest iSCSI name, in bytes (RFC 7143 section 4.2.7.1).
pub(super) const NAME_LENGTH_MAX: usize = 223;
const HEADER_LENGTH: usize = 4;
const LENGTH_MIN: usize = 24;
const FORMAT_PORT: u8 = 1 << 6;
const PROTOCOL_ISCSI: u8 = 5;
const PROTOCOL_NONE: u8 = 0xf;
const SEPARATOR: &str = ",i,0x";
const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str) -> InitiatorPort {
        InitiatorPort { name: name.into(), isid: [0x80, 0x12, 0x34, 0x56, 0, 1] }
    }

    /// Every port comes back from its bytes, which are as long as they say and end with a null.
    #[test]
    fn ports_survive_the_wire() {
        for length in 1..=NAME_LENGTH_MAX {
            let port = port(&"n".repeat(length));
            let mut bytes = encode(&port);
            assert!(bytes.len() <= LENGTH_MAX && bytes.len().is_multiple_of(4));
            assert_eq!(bytes.last(), Some(&0));
            bytes.push(7);
            assert_eq!(take(&bytes), Some((port, &[7][..])));
        }
    }

    /// The bytes of one port, as the standard lays them out.
    #[test]
    fn the_layout_is_the_standards() {
        let bytes = encode(&port("iqn.2026-01.a:b"));
        assert_eq!(bytes[..4], [0x45, 0, 0, 36]);
        assert_eq!(&bytes[4..], b"iqn.2026-01.a:b,i,0x801234560001\0\0\0\0");
        assert_eq!(encode(&port("x")).len(), 24, "no shorter than 24 bytes");
    }

    /// An ISID may be written short and in capitals, and a name in capitals.
    #[test]
    fn other_spellings_are_understood() {
        let mut bytes = vec![0x45, 0, 0, 20];
        bytes.extend_from_slice(b"IQN.a,i,0xAB\0garbage");
        let isid = [0, 0, 0, 0, 0, 0xab];
        assert_eq!(take(&bytes), Some((InitiatorPort { name: "iqn.a".into(), isid }, &[][..])));
    }

    /// A truncated ID, one of another protocol or format, and one without an ISID are refused.
    #[test]
    fn nonsense_is_refused() {
        let good = encode(&port("iqn.2026-01.a:b"));
        for length in 0..good.len() {
            assert_eq!(take(&good[..length]), None, "{length} bytes");
        }
        for (at, value) in [(0, 0x46), (0, 0x05), (3, 35), (3, 16), (2, 1), (4, 0), (19, b'-')] {
            let mut bytes = good.clone();
            bytes.resize(1000, 0);
            bytes[at] = value;
            assert_eq!(take(&bytes), None, "byte {at}");
        }
        for text in ["a,i,0x", "a,i,0x+1", ",i,0x12", "a,i,0x1234567890abc"] {
            let mut bytes = vec![0x45, 0, 0, 24];
            bytes.extend_from_slice(text.as_bytes());
            bytes.resize(28, 0);
            assert_eq!(take(&bytes), None, "{text}");
        }
        let mut bytes = vec![0x45, 0, 0, 244];
        bytes.extend_from_slice("n".repeat(NAME_LENGTH_MAX + 1).as_bytes());
        bytes.extend_from_slice(b",i,0x1");
        bytes.resize(LENGTH_MAX, 0);
        assert_eq!(take(&bytes), None, "a name that is too long");
        let mut bytes = encode(&port(&"n".repeat(NAME_LENGTH_MAX)));
        bytes[4] = 0xff;
        assert_eq!(take(&bytes), None, "not UTF-8");
    }
}
