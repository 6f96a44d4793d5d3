//! Small sets of bits, one for each frame, packed.

use alloc::vec::Vec;

/// For each of a number of places the same number of bits, a power of two up to 64.
#[derive(Debug)]
pub(super) struct Bits {
    words: Vec<u64>,
    width: u32,
}

impl Bits {
    /// `width` bits for each of `places`, none of them set.
    pub(super) fn new(places: usize, width: u32) -> Self {
        Self { words: alloc::vec![0; (places * width as usize).div_ceil(64)], width }
    }

    const fn find(&self, place: usize) -> (usize, u32) {
        let bit = place * self.width as usize;
        (bit / 64, (bit % 64) as u32)
    }

    pub(super) fn get(&self, place: usize) -> u64 {
        let (word, shift) = self.find(place);
        self.words[word] >> shift & super::mask(0..self.width)
    }

    pub(super) fn set(&mut self, place: usize, bits: u64) {
        let (word, shift) = self.find(place);
        let cleared = self.words[word] & !(super::mask(0..self.width) << shift);
        self.words[word] = cleared | bits << shift;
    }

    /// Clears a place and says whether it had a bit set.
    pub(super) fn take(&mut self, place: usize) -> bool {
        let had = self.get(place) != 0;
        if had {
            self.set(place, 0);
        }
        had
    }

    pub(super) fn memory(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}
