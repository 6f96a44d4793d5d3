//! Logical unit numbers on the wire, and REPORT LUNS (SAM-5 section 4.7, SPC-4 section 6.33).

use super::sense::Sense;

/// The number in an 8-byte LUN of one level, by peripheral or flat addressing. Anything else, which
/// no list of Weir contains, comes out with bit 63 set so that it matches no unit.
pub const fn decode(lun: [u8; 8]) -> u64 {
    let [first, second, rest @ ..] = lun;
    let single_level = matches!(rest, [0, 0, 0, 0, 0, 0]);
    match first >> 6 {
        // SAM-5 table 12: peripheral device addressing, bus 0.
        0 if single_level && first == 0 => second as u64,
        // SAM-5 table 12: flat space addressing.
        1 if single_level => (first as u64 & 0x3f) << 8 | second as u64,
        _ => u64::from_be_bytes(lun) | 1 << 63,
    }
}

/// The 8-byte LUN of `number`: peripheral addressing up to 255, flat addressing up to 16383.
///
/// Panics above; no target has that many units.
pub const fn encode(number: u64) -> [u8; 8] {
    assert!(number < 1 << 14, "a logical unit number has 14 bits");
    let flat = if number < 256 { 0 } else { 0x40 };
    [flat | (number >> 8) as u8, number as u8, 0, 0, 0, 0, 0, 0]
}

/// The parameter data of REPORT LUNS. `units` are the numbers to report.
pub(crate) fn report(select: u8, units: &[u64], allocation: u32) -> Result<Vec<u8>, Sense> {
    // SPC-4 section 6.33: 0 and 2 report the addressable units, 1 the well known ones, which there
    // are none of. Less room than for one entry is wrong.
    let units = match select {
        0 | 2 => units,
        1 => &[],
        _ => return Err(Sense::invalid_cdb_field(2, None)),
    };
    if allocation < 16 {
        return Err(Sense::invalid_cdb_field(6, None));
    }
    let mut data = vec![0; 8];
    data[..4].copy_from_slice(&((units.len() * 8) as u32).to_be_bytes());
    for &unit in units {
        data.extend_from_slice(&encode(unit));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both kinds of addressing there and back; anything else matches no unit.
    #[test]
    fn numbers_survive_the_wire() {
        for number in [0, 1, 255, 256, 16_383] {
            assert_eq!(decode(encode(number)), number);
        }
        assert_eq!(decode([0x40, 1, 0, 0, 0, 0, 0, 0]), 1);
        for strange in
            [[0, 1, 0, 1, 0, 0, 0, 0], [0x81, 0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]
        {
            assert!(decode(strange) >= 1 << 63);
        }
    }

    /// The list, the empty list of well known units, and the two refusals.
    #[test]
    fn units_are_reported() {
        let data = report(0, &[0, 300], 256).unwrap();
        assert_eq!(data[..8], [0, 0, 0, 16, 0, 0, 0, 0]);
        assert_eq!(data[16..24], [0x41, 0x2c, 0, 0, 0, 0, 0, 0]);
        assert_eq!(report(1, &[0], 16).unwrap(), [0; 8]);
        assert!(report(3, &[0], 16).is_err());
        assert!(report(0, &[0], 15).is_err());
    }
}
