//! A stream's weight.

use core::num::NonZeroU32;

/// A share relative to others', in 1024ths. Range: 1/1024 to 4 Mi.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(NonZeroU32);

impl Weight {
    /// Weight 1, which everybody has who was given none.
    pub const ONE: Self = Self(NonZeroU32::new(1_024).expect("it is not zero"));

    /// A weight of this number of 1024ths; `None` for zero.
    pub const fn from_1024ths(parts: u32) -> Option<Self> {
        match NonZeroU32::new(parts) {
            Some(parts) => Some(Self(parts)),
            None => None,
        }
    }

    /// The weight in 1024ths.
    pub const fn as_1024ths(self) -> u32 {
        self.0.get()
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}
