//! The parameter data of GET LBA STATUS: which blocks are mapped (SBC-3).

/// Length of the header, in bytes.
const HEADER_LENGTH: usize = 8;
/// Length of one descriptor, in bytes.
const DESCRIPTOR_LENGTH: usize = 16;
/// Most descriptors of one answer. The initiator asks again for the rest.
pub const DESCRIPTORS_MAX: usize = 4096;

/// The answer from `first_lba` on, where `extents` tell in order how many blocks are mapped or not.
/// At most [`DESCRIPTORS_MAX`] descriptors, no more than `allocation` has room for but one at
/// least; cut to `allocation` bytes.
pub fn lba_status(first_lba: u64, extents: &[(u64, bool)], allocation: u32) -> Vec<u8> {
    let room = (allocation as usize).saturating_sub(HEADER_LENGTH) / DESCRIPTOR_LENGTH;
    let room = room.clamp(1, DESCRIPTORS_MAX);
    let mut data = vec![0; HEADER_LENGTH];
    let mut lba = first_lba;
    let mut extents = extents.iter().copied().filter(|&(blocks, _)| blocks > 0).peekable();
    while let Some((mut blocks, mapped)) = extents.next() {
        while let Some((more, _)) = extents.next_if(|&(_, next)| next == mapped) {
            blocks = blocks.saturating_add(more);
        }
        while blocks > 0 && data.len() < HEADER_LENGTH + room * DESCRIPTOR_LENGTH {
            let part = u32::try_from(blocks).unwrap_or(u32::MAX);
            data.extend_from_slice(&lba.to_be_bytes());
            data.extend_from_slice(&part.to_be_bytes());
            // Provisioning status: 0 is mapped, 1 is deallocated.
            data.extend_from_slice(&[u8::from(!mapped), 0, 0, 0]);
            blocks -= u64::from(part);
            lba = lba.saturating_add(part.into());
        }
    }
    let length = data.len() as u32 - 4;
    data[..4].copy_from_slice(&length.to_be_bytes());
    data.truncate(allocation as usize);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(data: &[u8]) -> Vec<(u64, u32, u8)> {
        let length = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
        assert_eq!(length + 4, data.len());
        data[8..]
            .chunks(16)
            .map(|one| {
                let lba = u64::from_be_bytes(one[..8].try_into().unwrap());
                (lba, u32::from_be_bytes(one[8..12].try_into().unwrap()), one[12])
            })
            .collect()
    }

    /// Neighbours of a kind become one descriptor, and what is too long for one becomes several.
    #[test]
    fn extents_become_descriptors() {
        let data = lba_status(10, &[(5, true), (0, false), (3, true), (4, false)], 1024);
        assert_eq!(told(&data), [(10, 8, 0), (18, 4, 1)]);
        let long = lba_status(0, &[(1 << 32, false)], 1024);
        assert_eq!(told(&long), [(0, u32::MAX, 1), (0xffff_ffff, 1, 1)]);
        assert_eq!(told(&lba_status(0, &[], 1024)), []);
    }

    /// No more descriptors than fit, but a length for one at least.
    #[test]
    fn room_bounds_the_answer() {
        let extents = [(1, true), (1, false), (1, true)];
        assert_eq!(told(&lba_status(0, &extents, 24)), [(0, 1, 0)]);
        assert_eq!(told(&lba_status(0, &extents, 55)).len(), 2);
        assert_eq!(lba_status(0, &extents, 8), [0, 0, 0, 20, 0, 0, 0, 0]);
        let endless = lba_status(0, &[(u64::MAX, true)], u32::MAX);
        assert_eq!(told(&endless).len(), DESCRIPTORS_MAX);
    }
}
