//! How often lines were asked for lately, roughly, in little memory.
//!
//! A count-min sketch with conservative update: four counters of four bits for each line, of which the
//! smallest counts. After a number of additions all counters are halved. That happens to a block of
//! counters when it is next looked at, so that no single request pays for all of them.

use super::Line;
use crate::rng::mix;
use alloc::vec::Vec;

/// Words of sixteen counters that age together.
const BLOCK: usize = 8;

/// Rows, and counters for each line.
const ROWS: u32 = 4;

/// What a counter can hold.
const MOST: u64 = 15;

/// Frequencies from 0 to 15. Eight and a half to seventeen bytes for each line it is made for.
#[derive(Debug)]
pub(super) struct Sketch {
    words: Vec<u64>,
    /// For each block how often it has been halved.
    ages: Vec<u32>,
    /// How often all counters should have been halved.
    age: u32,
    /// Additions since then, halved with the counters.
    additions: u64,
    /// Additions after which the counters are halved.
    sample: u64,
}

impl Sketch {
    /// For a buffer of this number of lines, halved after `sample` additions.
    pub(super) fn new(lines: u32, sample: u64) -> Self {
        let words = (lines as usize).next_power_of_two().max(BLOCK);
        Self {
            words: alloc::vec![0; words],
            ages: alloc::vec![0; words / BLOCK],
            age: 0,
            additions: 0,
            sample: sample.max(1),
        }
    }

    /// Where the counter of a line in a row is: the word, and the bits in it.
    fn place(&self, line: Line, row: u32) -> (usize, u32) {
        let volume = (line.volume().index() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = mix(mix(volume ^ line.index()).wrapping_add(u64::from(row)));
        // Each row has its own quarter of every word, so the four counters are never the same.
        let counter = row * 4 + (hash >> 62) as u32;
        (hash as usize & (self.words.len() - 1), counter * 4)
    }

    /// A word as it should be by now.
    fn word(&self, word: usize) -> u64 {
        match self.age.wrapping_sub(self.ages[word / BLOCK]) {
            halvings @ 0..4 => {
                let kept = (MOST >> halvings) * 0x1111_1111_1111_1111;
                self.words[word] >> halvings & kept
            }
            _ => 0,
        }
    }

    /// How often a line was asked for, at most 15.
    pub(super) fn frequency(&self, line: Line) -> u64 {
        let count = |row| {
            let (word, shift) = self.place(line, row);
            self.word(word) >> shift & MOST
        };
        (0..ROWS).map(count).min().unwrap_or(0)
    }

    /// A line was asked for.
    pub(super) fn add(&mut self, line: Line) {
        let frequency = self.frequency(line);
        if frequency < MOST {
            for row in 0..ROWS {
                let (word, shift) = self.place(line, row);
                self.bring_up_to_date(word / BLOCK);
                if self.words[word] >> shift & MOST == frequency {
                    self.words[word] += 1 << shift;
                }
            }
        }
        self.additions += 1;
        if self.additions >= self.sample {
            self.additions /= 2;
            self.age = self.age.wrapping_add(1);
        }
    }

    fn bring_up_to_date(&mut self, block: usize) {
        if self.ages[block] != self.age {
            for word in block * BLOCK..(block + 1) * BLOCK {
                self.words[word] = self.word(word);
            }
            self.ages[block] = self.age;
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.words.capacity() * size_of::<u64>() + self.ages.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::VolumeId;
    use crate::rng::Rng;

    fn line(index: u64) -> Line {
        Line::new(VolumeId::new(0), index)
    }

    /// It never says less than what was added since the counters were halved last and half of what was
    /// before, and hardly ever more when it has room.
    #[test]
    fn counts_what_was_added() {
        let mut sketch = Sketch::new(1_024, 3_000);
        let mut rng = Rng::stream(1, "sketch");
        let mut truth = [0_u64; 400];
        let mut additions = 0;
        let mut wrong = 0;
        for _ in 0..50_000 {
            let index = rng.below(20) * rng.below(20);
            sketch.add(line(index));
            truth[index as usize] = MOST.min(truth[index as usize] + 1);
            additions += 1;
            if additions == 3_000 {
                additions = 1_500;
                truth = truth.map(|count| count / 2);
            }
            let index = rng.below(400);
            let (says, is) = (sketch.frequency(line(index)), truth[index as usize]);
            assert!(says >= is, "{index}: {says} for {is}");
            wrong += u32::from(says > is);
        }
        assert!(wrong < 500, "{wrong} of 50000 were too high");
    }

    /// What is not asked for any more is forgotten after a few halvings, also by a block that no one looked
    /// at meanwhile.
    #[test]
    fn forgets() {
        let mut sketch = Sketch::new(1_024, 1_000);
        (0..20).for_each(|_| sketch.add(line(7)));
        assert_eq!(sketch.frequency(line(7)), MOST);
        for (halvings, expected) in [(1, 7), (2, 3), (3, 1), (4, 0), (9, 0)] {
            while sketch.age < halvings {
                sketch.add(line(8));
            }
            assert_eq!(sketch.frequency(line(7)), expected, "{halvings}");
        }
    }
}
