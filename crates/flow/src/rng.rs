//! Chance as an argument: named random streams from one seed.
//!
//! A stream depends on the seed and its own name, never on the order in which streams are made, so
//! a new consumer does not shift what the others draw. The generator is xoshiro256** (Blackman and
//! Vigna, 2018), filled by splitmix64; both are part of what a seed in a report means and never
//! change. Decisions use exact integers; only workload generators ask for a float.

/// One stream of random bits.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// The stream called `name` under `seed`.
    pub fn stream(seed: u64, name: &str) -> Self {
        let mut state = seed ^ fnv1a(FNV_OFFSET, name.as_bytes());
        Self([(); 4].map(|()| splitmix64(&mut state)))
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        let state = &mut self.0;
        let result = state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// A number below `n`, by multiplication and shift: bias below n / 2^64. `n` is at least 1.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "there is no number below zero");
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A float in [0, 1) from the top 53 bits, for distributions only.
    pub const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Where an FNV-1a hash starts.
pub(crate) const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues an FNV-1a hash over `bytes`: stable for ever, not for hostile input.
pub(crate) const fn fnv1a(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    hash
}

/// The next output of splitmix64 (Steele, Lea and Flood, 2014).
const fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*state)
}

/// The finaliser of splitmix64: a permutation of the 64-bit words that spreads every bit.
pub const fn mix(word: u64) -> u64 {
    let z = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{RngCore, SeedableRng};

    /// Bit for bit the generator that its authors published, as another implementation has it.
    #[test]
    fn agrees_with_an_independent_implementation() {
        let mut ours = Rng::stream(7, "disk/3");
        let mut seed = [0; 32];
        for (bytes, word) in seed.chunks_exact_mut(8).zip(ours.0) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let mut theirs = rand_xoshiro::Xoshiro256StarStar::from_seed(seed);
        for _ in 0..1_000 {
            assert_eq!(ours.bits(), theirs.next_u64());
        }
    }

    /// Two names under one seed share nothing; one name under one seed is one stream.
    #[test]
    fn a_stream_is_its_seed_and_name() {
        assert_eq!(Rng::stream(1, "a").bits(), Rng::stream(1, "a").bits());
        assert_ne!(Rng::stream(1, "a").bits(), Rng::stream(1, "b").bits());
        assert_ne!(Rng::stream(1, "a").bits(), Rng::stream(2, "a").bits());
    }

    /// `below` stays below and reaches both ends.
    #[test]
    fn below_covers_its_range() {
        let mut rng = Rng::stream(1, "below");
        let mut seen = [0_u32; 3];
        for _ in 0..3_000 {
            seen[rng.below(3) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 900), "{seen:?}");
    }
}
