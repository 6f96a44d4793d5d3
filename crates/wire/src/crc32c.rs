//! CRC32C digests in wire format, of iSCSI and of NVMe/TCP.

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

/// The digest of bytes that come in parts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Running(u32);

impl Running {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    pub(crate) const fn digest(self) -> [u8; DIGEST_LENGTH] {
        self.0.to_le_bytes()
    }
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

    /// A digest is the same however the bytes come.
    #[test]
    fn parts_have_the_digest_of_the_whole() {
        let bytes: Vec<u8> = (0..100).collect();
        for step in [1, 3, 7, 100] {
            let mut running = Running::default();
            bytes.chunks(step).for_each(|part| running.update(part));
            assert!(matches(&bytes, &running.digest()));
        }
        assert_eq!(Running::default().digest(), [0; 4]);
    }
}
