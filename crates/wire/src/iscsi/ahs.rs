//! Additional header segments, of which a target uses only the extended CDB.

/// The additional header segment that carries the rest of a CDB longer than 16 bytes.
const EXTENDED_CDB: u8 = 1;
/// Longest rest of a CDB that is accepted, in bytes: SPC-4 ends CDBs at 260 bytes.
const CDB_REST_MAX: usize = 260 - 16;

/// The CDB bytes after the sixteenth, empty if there are none. `None` if the segments do not add
/// up.
// RFC 7143 section 11.2.2: AHSLength counts the bytes after length and type, without padding.
pub(crate) fn cdb_rest(segments: &[u8]) -> Option<&[u8]> {
    let mut rest: &[u8] = &[];
    let mut left = segments;
    while let [high, low, kind, ..] = *left {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let body = left.get(3..3 + length)?;
        if kind & 0x3f == EXTENDED_CDB {
            // RFC 7143 section 11.2.2.3: one reserved byte, then CDB bytes 16 and up.
            rest = body.get(1..)?;
            if rest.len() > CDB_REST_MAX {
                return None;
            }
        }
        left = left.get((3 + length).next_multiple_of(4)..)?;
    }
    left.is_empty().then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An extended CDB is found behind a segment that means nothing here.
    #[test]
    fn an_extended_cdb_is_found() {
        let segments = [0, 5, 2, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0xaa, 0xbb, 0, 0];
        assert_eq!(cdb_rest(&segments), Some(&[0xaa, 0xbb][..]));
        assert_eq!(cdb_rest(&[]), Some(&[][..]));
    }

    /// Lengths that leave the segment are refused.
    #[test]
    fn lengths_that_do_not_add_up_are_refused() {
        assert_eq!(cdb_rest(&[0, 9, 1, 0]), None);
        assert_eq!(cdb_rest(&[0, 0, 1, 0]), None);
        assert_eq!(cdb_rest(&[0xff, 0xff, 1, 0, 0, 0, 0, 0]), None);
    }
}
