//! Mode parameters: MODE SENSE and MODE SELECT (SPC-4 section 7.5, SBC-3 section 6.4).

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
const DEFAULT: u8 = 2;
const SAVED: u8 = 3;

/// The parameters that initiators can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeParameters {
    /// WCE of the caching page: a write may be lost before a flush.
    pub(crate) write_cache: bool,
    /// `D_SENSE` of the control page: sense data comes in descriptor format.
    pub(crate) descriptor_sense: bool,
    /// SWP of the control page: writing is forbidden.
    pub(crate) write_protect: bool,
}

impl ModeParameters {
    /// The parameters of a unit without changes.
    pub(crate) const fn defaults(disk: &DiskInfo) -> Self {
        Self { write_cache: disk.write_cache, descriptor_sense: false, write_protect: false }
    }

    /// All changeable bits clear, or all set: the difference is the mask of changeable bits.
    const fn uniform(set: bool) -> Self {
        Self { write_cache: set, descriptor_sense: set, write_protect: set }
    }

    /// The values of one page, behind its header.
    fn page(self, code: u8) -> Option<Vec<u8>> {
        Some(match code {
            // SBC-3 section 6.4.5.
            CACHING => {
                let mut values = vec![0; 18];
                values[0] = u8::from(self.write_cache) << 2;
                values
            }
            // SPC-4 section 7.5.8: one task set for all, commands may be reordered, a failed command
            // does not end others. GLTSD: log parameters are not saved.
            CONTROL => {
                let mut values = vec![0x02, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0];
                values[0] |= u8::from(self.descriptor_sense) << 2;
                values[2] |= u8::from(self.write_protect) << 3;
                values
            }
            // SPC-4 section 7.5.11: DEXCPT, nothing is reported.
            INFORMATIONAL_EXCEPTIONS => vec![0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            _ => return None,
        })
    }

    /// The changeable bits of a page.
    fn mask(code: u8) -> Option<Vec<u8>> {
        let clear = Self::uniform(false).page(code)?;
        let set = Self::uniform(true).page(code)?;
        Some(clear.iter().zip(set).map(|(clear, set)| clear ^ set).collect())
    }

    /// The same with what a page says that passed the comparison with the mask.
    fn with(mut self, code: u8, values: &[u8]) -> Self {
        match code {
            CACHING => self.write_cache = values[0] & 0x04 != 0,
            CONTROL => {
                self.descriptor_sense = values[0] & 0x04 != 0;
                self.write_protect = values[2] & 0x08 != 0;
            }
            _ => {}
        }
        self
    }
}

/// The answer to MODE SENSE.
pub(crate) fn sense(
    disk: &DiskInfo,
    current: ModeParameters,
    asked: &ModeSense,
) -> Result<Vec<u8>, Sense> {
    // SPC-4 section 6.11.5.
    if asked.control == SAVED {
        return Err(Sense::SAVING_PARAMETERS_NOT_SUPPORTED);
    }
    let pages = pages(disk, current, asked)?;
    let descriptor =
        if asked.no_descriptors { Vec::new() } else { descriptor(disk, asked.long_lba) };
    // WP, and DPOFUA: a write with FUA is durable when it ends; a read returns what was written last,
    // with or without.
    let protected = disk.read_only || current.write_protect;
    let device_specific = u8::from(protected) << 7 | 0x10;
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

/// The block descriptor, short or long.
fn descriptor(disk: &DiskInfo, long_lba: bool) -> Vec<u8> {
    let size = disk.block_size.to_be_bytes();
    if long_lba {
        [&disk.blocks.to_be_bytes()[..], &[0; 4], &size].concat()
    } else {
        // SBC-3 section 6.4.2.2: all ones if the number does not fit; the size has 24 bits.
        let blocks = u32::try_from(disk.blocks).unwrap_or(u32::MAX);
        [blocks.to_be_bytes(), [0, size[1], size[2], size[3]]].concat()
    }
}

fn pages(disk: &DiskInfo, current: ModeParameters, asked: &ModeSense) -> Result<Vec<u8>, Sense> {
    if !matches!(asked.subpage, 0 | ALL_SUBPAGES) {
        return Err(Sense::invalid_cdb_field(3, None));
    }
    let mut data = Vec::new();
    for code in [CACHING, CONTROL, INFORMATIONAL_EXCEPTIONS] {
        if asked.page != code && asked.page != ALL_PAGES {
            continue;
        }
        let values = match asked.control {
            CHANGEABLE => ModeParameters::mask(code),
            DEFAULT => ModeParameters::defaults(disk).page(code),
            _ => current.page(code),
        };
        if let Some(values) = values {
            data.extend_from_slice(&[code, values.len() as u8]);
            data.extend(values);
        }
    }
    if data.is_empty() {
        return Err(Sense::invalid_cdb_field(2, Some(5)));
    }
    Ok(data)
}

/// The parameters after MODE SELECT, from its parameter list. Unchangeable bits must have their current value; if one
/// bit is wrong, no parameter changes.
pub(crate) fn select(
    disk: &DiskInfo,
    current: ModeParameters,
    is_long: bool,
    list: &[u8],
) -> Result<ModeParameters, Sense> {
    let header_length = if is_long { 8 } else { 4 };
    let Some((header, rest)) = list.split_at_checked(header_length) else {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
    };
    // The mode data length is reserved here, and so are WP and DPOFUA in the device-specific
    // parameter (SBC-3 section 6.4).
    let (medium_type, long_lba, descriptor_length) = if is_long {
        (2, header[4] & 1 != 0, usize::from(u16::from_be_bytes([header[6], header[7]])))
    } else {
        (1, false, usize::from(header[3]))
    };
    if header[medium_type] != 0 {
        return Err(Sense::invalid_parameter_field(medium_type as u16));
    }
    let Some((found, mut rest)) = rest.split_at_checked(descriptor_length) else {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
    };
    if !found.is_empty() {
        let own = descriptor(disk, long_lba);
        // SBC-3 section 6.4.2: zero blocks leave their number as it is.
        let count_length = own.len() / 2;
        let zero = found.len() == own.len() && found[..count_length].iter().all(|&byte| byte == 0);
        let from = if zero { count_length } else { 0 };
        if let Some(at) = difference(&found[from..], &own[from..]) {
            return Err(Sense::invalid_parameter_field((header_length + from + at) as u16));
        }
    }
    let mut next = current;
    while let [code, length, ..] = *rest {
        let at = list.len() - rest.len();
        // PS is reserved here, but initiators send back the data of MODE SENSE; SPF announces a subpage, and there is
        // none.
        let code = code & 0x7f;
        let (Some(own), Some(mask)) = (current.page(code), ModeParameters::mask(code)) else {
            return Err(Sense::invalid_parameter_field(at as u16));
        };
        if usize::from(length) != own.len() {
            return Err(Sense::invalid_parameter_field(at as u16 + 1));
        }
        let Some((values, behind)) = rest[2..].split_at_checked(own.len()) else {
            return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
        };
        let fixed: Vec<u8> = values
            .iter()
            .zip(&own)
            .zip(&mask)
            .map(|((value, own), mask)| value & !mask | own & mask)
            .collect();
        if let Some(wrong) = difference(&fixed, &own) {
            return Err(Sense::invalid_parameter_field((at + 2 + wrong) as u16));
        }
        next = next.with(code, values);
        rest = behind;
    }
    if rest.is_empty() { Ok(next) } else { Err(Sense::PARAMETER_LIST_LENGTH_ERROR) }
}

/// The first place where two slices differ, their lengths included.
fn difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let at = one.iter().zip(other).position(|(a, b)| a != b);
    at.or((one.len() != other.len()).then_some(one.len().min(other.len())))
}
