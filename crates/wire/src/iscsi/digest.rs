//! CRC32C digests in wire format.

/// Length of a header or data digest, in bytes.
pub(crate) const DIGEST_LENGTH: usize = 4;

/// The digest of `bytes` followed by `padding` zero bytes.
// RFC 7143 section 13.1: padding bytes are included in the digest.
pub(crate) fn padded(bytes: &[u8], padding: usize) -> [u8; DIGEST_LENGTH] {
    crc32c::crc32c_append(crc32c::crc32c(bytes), &[0; 4][..padding]).to_le_bytes()
}

/// Whether `digest` is the digest of `bytes`, padding included.
pub(crate) fn matches(bytes: &[u8], digest: &[u8]) -> bool {
    crc32c::crc32c(bytes).to_le_bytes() == digest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7143 appendix A.4.
    #[test]
    fn the_published_examples_hold() {
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(padded(&[0; 32], 0), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(padded(&[0xff; 32], 0), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(padded(&ascending, 0), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(padded(&[0; 29], 3), [0xaa, 0x36, 0x91, 0x8a]);
        assert!(matches(&ascending, &[0x4e, 0x79, 0xdd, 0x46]));
    }
}
