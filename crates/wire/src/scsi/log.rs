//! LOG SENSE: the log pages of a disk (SPC-4 sections 6.7 and 7.3).
//!
//! There are the lists of supported pages and subpages, and Informational Exceptions, which says that there is none. No
//! page has counters, so the page control field changes nothing.

use super::sense::Sense;

/// The fields of LOG SENSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogSense {
    pub(crate) page: u8,
    pub(crate) subpage: u8,
    /// The first parameter that is wanted.
    pub(crate) parameter: u16,
    pub(crate) allocation: u32,
}

/// The log page.
pub(crate) fn sense(asked: LogSense) -> Result<Vec<u8>, Sense> {
    let LogSense { page, subpage, parameter, .. } = asked;
    let parameters = match (page, subpage) {
        (SUPPORTED, 0) => PAGES.iter().filter(|page| page.1 == 0).map(|page| page.0).collect(),
        (SUPPORTED, ALL_SUBPAGES) => PAGES.iter().flat_map(|&(page, sub)| [page, sub]).collect(),
        (INFORMATIONAL_EXCEPTIONS, 0) => INFORMATIONAL.to_vec(),
        (SUPPORTED | INFORMATIONAL_EXCEPTIONS, _) => return Err(Sense::invalid_cdb_field(3, None)),
        _ => return Err(Sense::invalid_cdb_field(2, Some(5))),
    };
    // SPC-4 section 6.7.1: a pointer beyond the last parameter, which is 0 on every page, is wrong.
    if parameter != 0 {
        return Err(Sense::invalid_cdb_field(5, None));
    }
    let has_subpage = u8::from(subpage != 0) << 6;
    let mut data = vec![has_subpage | page, subpage];
    data.extend((parameters.len() as u16).to_be_bytes());
    data.extend(parameters);
    Ok(data)
}

/// Pages and subpages, ascending.
const PAGES: [(u8, u8); 3] =
    [(SUPPORTED, 0), (SUPPORTED, ALL_SUBPAGES), (INFORMATIONAL_EXCEPTIONS, 0)];

const SUPPORTED: u8 = 0x00;
const INFORMATIONAL_EXCEPTIONS: u8 = 0x2f;
const ALL_SUBPAGES: u8 = 0xff;

/// Parameter 0 as a binary list (SPC-4 section 7.3.8): no exception, and no temperature.
const INFORMATIONAL: [u8; 7] = [0, 0, 0x03, 3, 0, 0, 0xff];

#[cfg(test)]
mod tests {
    use super::*;

    fn page(page: u8, subpage: u8) -> Result<Vec<u8>, Sense> {
        sense(LogSense { page, subpage, parameter: 0, allocation: 255 })
    }

    /// Both lists have each page that can be read, and no other.
    #[test]
    fn the_lists_are_what_can_be_read() {
        assert_eq!(page(0, 0).unwrap(), [0x00, 0, 0, 2, 0x00, 0x2f]);
        assert_eq!(page(0, 0xff).unwrap(), [0x40, 0xff, 0, 6, 0, 0, 0, 0xff, 0x2f, 0]);
        for code in 0..0x40 {
            for subpage in 0..=0xff {
                let listed = PAGES.contains(&(code, subpage));
                assert_eq!(page(code, subpage).is_ok(), listed, "{code:#04x}/{subpage:#04x}");
            }
        }
        assert_eq!(page(0x0d, 0), Err(Sense::invalid_cdb_field(2, Some(5))));
        assert_eq!(page(0x2f, 1), Err(Sense::invalid_cdb_field(3, None)));
    }

    /// There is no exception to report, and no temperature; no parameter follows.
    #[test]
    fn no_exception_is_reported() {
        assert_eq!(page(0x2f, 0).unwrap(), [0x2f, 0, 0, 7, 0, 0, 0x03, 3, 0, 0, 0xff]);
        let next = LogSense { page: 0x2f, subpage: 0, parameter: 1, allocation: 255 };
        assert_eq!(sense(next), Err(Sense::invalid_cdb_field(5, None)));
    }
}
