//! The bytes of a write to the log device: its head, the payload, and the checksums of that.

use super::effect::{Part, Write};
use super::format::{SECTOR, SUMMED, binding};

/// Makes the bytes of a write to the log device in `out`, which has [`Write::bytes`]. `payload` puts
/// the bytes of a part into its slice; `crc32c` is [`crc32c`](super::format::crc32c), or the caller's own.
pub fn assemble(
    write: &Write,
    crc32c: impl Fn(&[u8]) -> u32,
    mut payload: impl FnMut(&Part, &mut [u8]),
    out: &mut [u8],
) {
    let (head, rest) = out.split_at_mut(write.head.len());
    head.copy_from_slice(&write.head);
    let (mut sum_at, mut at) = (write.sums_at as usize, 0);
    for part in &write.payload {
        let bytes = &mut rest[at..at + part.length as usize];
        payload(part, bytes);
        for piece in bytes.chunks(SUMMED as usize) {
            head[sum_at..sum_at + 4].copy_from_slice(&crc32c(piece).to_le_bytes());
            sum_at += 4;
        }
        at += part.length as usize;
    }
    if write.sums_at > 0 {
        let table = crc32c(&head[write.sums_at as usize..sum_at]);
        head[sum_at..sum_at + 4].copy_from_slice(&binding(table, write.sum));
    }
    assert!(at.is_multiple_of(SECTOR as usize), "payload is of whole sectors");
    rest[at..].fill(0);
}
