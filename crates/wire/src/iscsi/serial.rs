//! Sequence numbers that wrap: serial number arithmetic of RFC 1982 with 32 bits.

/// Whether `a` comes before `b`. Two numbers 2^31 apart have no order; neither is then earlier.
// RFC 7143 section 4.2.2.1: sequence numbers are compared by serial number arithmetic.
pub(crate) const fn before(a: u32, b: u32) -> bool {
    let distance = b.wrapping_sub(a);
    distance != 0 && distance < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Order survives the wrap; equal and opposite numbers are not earlier.
    #[test]
    fn order_survives_the_wrap() {
        assert!(before(1, 2));
        assert!(before(u32::MAX, 0));
        assert!(before(0xffff_fff0, 0x10));
        assert!(!before(2, 1));
        assert!(!before(7, 7));
        assert!(!before(0, 1 << 31));
    }
}
