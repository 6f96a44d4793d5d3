//! The parameter list of UNMAP (SBC-3 section 5.28).

use super::disk::DiskInfo;
use super::sense::Sense;

/// Length of the list's header, in bytes.
const HEADER_LENGTH: usize = 8;
/// Length of one descriptor, in bytes.
const DESCRIPTOR_LENGTH: usize = 16;

/// Blocks to deallocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First logical block.
    pub lba: u64,
    /// Number of logical blocks; may be zero.
    pub blocks: u32,
}

/// The extents of a parameter list, after every one of them was checked against the disk's size and
/// limits: nothing is deallocated if one is wrong. `list` is exactly as long as the CDB says.
pub fn extents<'a>(
    list: &'a [u8],
    disk: &DiskInfo,
) -> Result<impl Iterator<Item = Extent> + use<'a>, Sense> {
    let descriptors = descriptors(list)?;
    // SBC-3 section 5.28.1: the limits of the Block Limits page.
    if descriptors.len() / DESCRIPTOR_LENGTH > disk.max_unmap_descriptors as usize {
        return Err(Sense::invalid_parameter_field(2));
    }
    let mut blocks = 0_u64;
    for extent in split(descriptors) {
        blocks += u64::from(extent.blocks);
        disk.check_range(extent.lba, extent.blocks.into())?;
    }
    if blocks > u64::from(disk.max_unmap_blocks) {
        return Err(Sense::invalid_parameter_field(16));
    }
    Ok(split(descriptors))
}

fn descriptors(list: &[u8]) -> Result<&[u8], Sense> {
    // SBC-3 section 5.28.1: no list is no error, less than a header is.
    if list.is_empty() {
        return Ok(&[]);
    }
    let Some((header, rest)) = list.split_at_checked(HEADER_LENGTH) else {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
    };
    let data_length = usize::from(u16::from_be_bytes([header[0], header[1]]));
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // SBC-3 section 5.28.2: an incomplete descriptor at the end is ignored, but the lengths may
    // not reach beyond the list.
    if length > rest.len() || data_length > list.len() - 2 {
        return Err(Sense::invalid_parameter_field(if length > rest.len() { 2 } else { 0 }));
    }
    Ok(&rest[..length - length % DESCRIPTOR_LENGTH])
}

fn split(descriptors: &[u8]) -> impl Iterator<Item = Extent> + use<'_> {
    descriptors.as_chunks::<DESCRIPTOR_LENGTH>().0.iter().map(|one| {
        let number = u128::from_be_bytes(*one);
        Extent { lba: (number >> 64) as u64, blocks: (number >> 32) as u32 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> DiskInfo {
        DiskInfo {
            blocks: 1000,
            thin: true,
            max_unmap_blocks: 100,
            max_unmap_descriptors: 3,
            ..DiskInfo::default()
        }
    }

    fn list(extents: &[(u64, u32)]) -> Vec<u8> {
        let length = extents.len() * 16;
        let mut list = vec![0; 8];
        list[..2].copy_from_slice(&(length as u16 + 6).to_be_bytes());
        list[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        for (lba, blocks) in extents {
            list.extend_from_slice(&lba.to_be_bytes());
            list.extend_from_slice(&blocks.to_be_bytes());
            list.extend_from_slice(&[0; 4]);
        }
        list
    }

    fn check(list: &[u8]) -> Result<Vec<(u64, u32)>, (u8, u8)> {
        match extents(list, &disk()) {
            Ok(extents) => Ok(extents.map(|one| (one.lba, one.blocks)).collect()),
            Err(sense) => Err((sense.asc, sense.ascq)),
        }
    }

    /// Good lists, among them those that ask for nothing.
    #[test]
    fn good_lists_pass() {
        assert_eq!(check(&[]), Ok(vec![]));
        assert_eq!(check(&list(&[])), Ok(vec![]));
        assert_eq!(check(&list(&[(1000, 0)])), Ok(vec![(1000, 0)]));
        let extents = [(0, 50), (900, 50), (7, 0)];
        assert_eq!(check(&list(&extents)), Ok(extents.to_vec()));
    }

    /// Each way to be wrong has its own code.
    #[test]
    fn wrong_lists_are_refused() {
        assert_eq!(check(&[0; 7]), Err((0x1a, 0)));
        assert_eq!(check(&list(&[(999, 2)])), Err((0x21, 0)));
        assert_eq!(check(&list(&[(u64::MAX, 1)])), Err((0x21, 0)));
        assert_eq!(check(&list(&[(0, 60), (100, 60)])), Err((0x26, 0)));
        assert_eq!(check(&list(&[(0, 1); 4])), Err((0x26, 0)));
        let mut short = list(&[(0, 1), (1, 1)]);
        short.truncate(30);
        assert_eq!(check(&short), Err((0x26, 0)));
    }

    /// A descriptor that is cut off by the length field is ignored.
    #[test]
    fn an_incomplete_descriptor_is_ignored() {
        let mut cut = list(&[(0, 1), (1, 1)]);
        cut[3] = 24;
        assert_eq!(check(&cut), Ok(vec![(0, 1)]));
    }
}
