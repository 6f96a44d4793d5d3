//! Natural logarithm and exponential in fixed point: integers with [`FRACTION`] binary places.
//!
//! Both go through products of `1 + 2^-i`, whose logarithms are computed from their series when the
//! program is built. Errors: below `2^-30` of the value for [`exp`], below `2^-30` absolute for [`ln`];
//! the tests measure them. The same in every build and on every machine.

/// Binary places of a logarithm.
pub(super) const FRACTION: u32 = 48;

/// One.
pub(super) const ONE: i64 = 1 << FRACTION;

/// Factors `1 + 2^-i` that are used, i from 1.
const FACTORS: usize = 34;

/// `ln 2`.
const LN_2: i64 = {
    let (mut sum, mut j) = (0_i128, 1);
    while j < 90 {
        sum += (1_i128 << (96 - j)) / j;
        j += 1;
    }
    (sum >> (96 - FRACTION)) as i64
};

/// `ln(1 + 2^-i)` for i = 1, 2, ….
const LN_FACTORS: [i64; FACTORS] = {
    let (mut table, mut i) = ([0; FACTORS], 0);
    while i < FACTORS {
        let step = i as i128 + 1;
        let (mut sum, mut j) = (0_i128, 1);
        while j * step < 90 {
            let term = (1_i128 << (96 - j * step)) / j;
            sum += if j % 2 == 1 { term } else { -term };
            j += 1;
        }
        table[i] = (sum >> (96 - FRACTION)) as i64;
        i += 1;
    }
    table
};

/// The natural logarithm of a whole number from 1.
pub(super) fn ln(n: u32) -> i64 {
    let power = n.ilog2();
    let target = i64::from(n) << (FRACTION - power);
    let (mut product, mut sum) = (ONE, i64::from(power) * LN_2);
    for (i, &ln_factor) in (1..).zip(&LN_FACTORS) {
        let next = product + (product >> i);
        if next <= target {
            product = next;
            sum += ln_factor;
        }
    }
    sum
}

/// `e^x` in units of 2^-16, for x from 0 to 20.
pub(super) fn exp(x: i64) -> u64 {
    let (power, mut rest) = (x / LN_2, x % LN_2);
    let mut product = ONE;
    for (i, &ln_factor) in (1..).zip(&LN_FACTORS) {
        if rest >= ln_factor {
            rest -= ln_factor;
            product += product >> i;
        }
    }
    ((product as u128) << power >> (FRACTION - 16)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both are within 2^-30 of what the platform's floats say, over the range of any window.
    #[test]
    fn errors_are_small() {
        let bound = 1.0 / f64::from(1_u32 << 30);
        for n in (1..5_000).chain((5_000..1_000_000).step_by(997)) {
            let ours = ln(n) as f64 / ONE as f64;
            assert!((ours - f64::from(n).ln()).abs() < bound, "ln {n} = {ours}");
        }
        for i in 0..14_000 {
            let x = i * (ONE / 1_000);
            let ours = exp(x) as f64 / 65_536.0;
            let theirs = (x as f64 / ONE as f64).exp();
            // The result is cut to 2^-16.
            assert!((ours - theirs).abs() < theirs * bound + 1.6e-5, "exp {x}: {ours}, {theirs}");
        }
    }
}
