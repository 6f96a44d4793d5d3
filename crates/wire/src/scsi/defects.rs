//! READ DEFECT DATA (SBC-3 sections 5.17 and 5.18): no defects, in every format.

/// The parameter data. `request` has the bits for the two lists and for the format, which the answer
/// repeats.
pub(crate) fn none(is_long: bool, request: u8) -> Vec<u8> {
    let mut data = vec![0; if is_long { 8 } else { 4 }];
    data[1] = request & 0x1f;
    data
}
