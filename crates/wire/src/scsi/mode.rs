//! MODE SENSE (SPC-4 section 7.5, SBC-3 section 6.4). Nothing can be changed by an initiator.

use super::cdb::ModeSense;
use super::disk::DiskInfo;
use super::sense::Sense;

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const INFORMATIONAL_EXCEPTIONS: u8 = 0x1c;
const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

/// Page control: which values are asked for.
const CHANGEABLE: u8 = 1;
const SAVED: u8 = 3;

/// The mode parameters that were asked for.
pub(crate) fn sense(disk: &DiskInfo, asked: &ModeSense) -> Result<Vec<u8>, Sense> {
    // SPC-4 section 6.11.5.
    if asked.control == SAVED {
        return Err(Sense::SAVING_PARAMETERS_NOT_SUPPORTED);
    }
    let pages = pages(disk, asked)?;
    let descriptor = descriptor(disk, asked);
    // WP, and DPOFUA: a write with FUA is durable when it ends; a read returns what was written last,
    // with or without.
    let device_specific = u8::from(disk.read_only) << 7 | 0x10;
    let rest = descriptor.len() + pages.len();
    let mut data = if asked.is_long {
        let [high, low] = ((6 + rest) as u16).to_be_bytes();
        let long_lba = u8::from(asked.long_lba);
        vec![high, low, 0, device_specific, long_lba, 0, 0, descriptor.len() as u8]
    } else {
        vec![(3 + rest) as u8, 0, device_specific, descriptor.len() as u8]
    };
    data.extend(descriptor);
    data.extend(pages);
    Ok(data)
}

/// The block descriptor: short or long, or nothing at all.
fn descriptor(disk: &DiskInfo, asked: &ModeSense) -> Vec<u8> {
    let size = disk.block_size.to_be_bytes();
    if asked.no_descriptors {
        Vec::new()
    } else if asked.long_lba {
        [&disk.blocks.to_be_bytes()[..], &[0; 4], &size].concat()
    } else {
        // SBC-3 section 6.4.2.2: all ones if the number does not fit; the size has 24 bits.
        let blocks = u32::try_from(disk.blocks).unwrap_or(u32::MAX);
        [blocks.to_be_bytes(), [0, size[1], size[2], size[3]]].concat()
    }
}

fn pages(disk: &DiskInfo, asked: &ModeSense) -> Result<Vec<u8>, Sense> {
    let caching = caching(disk);
    let known: [(u8, &[u8]); 3] = [
        (CACHING, &caching),
        (CONTROL, &CONTROL_VALUES),
        (INFORMATIONAL_EXCEPTIONS, &INFORMATIONAL_VALUES),
    ];
    if !matches!(asked.subpage, 0 | ALL_SUBPAGES) {
        return Err(Sense::invalid_cdb_field(3, None));
    }
    let mut data = Vec::new();
    for (code, values) in known {
        if asked.page == code || asked.page == ALL_PAGES {
            data.extend_from_slice(&[code, values.len() as u8]);
            if asked.control == CHANGEABLE {
                data.resize(data.len() + values.len(), 0);
            } else {
                data.extend_from_slice(values);
            }
        }
    }
    if data.is_empty() {
        return Err(Sense::invalid_cdb_field(2, Some(5)));
    }
    Ok(data)
}

/// Caching (SBC-3 section 6.4.5): WCE says whether a write may be lost before a flush.
fn caching(disk: &DiskInfo) -> [u8; 18] {
    let mut values = [0; 18];
    values[0] = u8::from(disk.write_cache) << 2;
    values
}

/// Control (SPC-4 section 7.5.8): one task set for all, fixed format sense, commands may be
/// reordered, a failed command does not end others. GLTSD: log parameters are not saved.
const CONTROL_VALUES: [u8; 10] = [0x02, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0];

/// Informational exceptions control (SPC-4 section 7.5.11): DEXCPT, nothing is reported.
const INFORMATIONAL_VALUES: [u8; 10] = [0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0];
