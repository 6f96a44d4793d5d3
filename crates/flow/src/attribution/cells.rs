//! What a resource gave to whom over time, in cells that grow with age.

use crate::clock::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The history of one resource.
///
/// Level `i` has the last 64 cells of 2^(14 + i) ns. A cell that ends is added to the next level, so that adding is
/// O(1) in the long run, and an edge of an interval is exact to about a 32nd of its age. A cell names the eight
/// owners with the largest amounts and sums the others. Older than 137 s is forgotten.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    /// By level, then by the low bits of the number of the cell.
    cells: Box<[[Cell; PER_LEVEL]]>,
    /// By level: the number of the latest cell.
    latest: [u64; LEVELS],
}

/// What was given in one span of time.
#[derive(Clone, Debug)]
struct Cell {
    /// The start of the cell in units of its length; [`NEVER`] if it is empty.
    number: u64,
    owners: [u32; OWNERS],
    /// By owner; 0 for a place that is free. Owners come first.
    amounts: [u64; OWNERS],
    others: u64,
}

/// Amounts by owner, of an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    /// By number of the owner, ascending.
    pub(super) owners: Vec<(u32, u64)>,
    /// Of owners that were not told apart.
    pub(super) others: u64,
}

impl Cells {
    /// Bytes that it takes.
    pub(super) const MEMORY: usize = size_of::<Cell>() * PER_LEVEL * LEVELS;

    pub(super) fn new() -> Self {
        let level = || core::array::from_fn(|_| Cell::EMPTY);
        Self { cells: (0..LEVELS).map(|_| level()).collect(), latest: [NEVER; LEVELS] }
    }

    /// Adds an amount at `now`, which never runs backwards.
    pub(super) fn add(&mut self, now: Instant, owner: u32, amount: u64) {
        let number = now.as_nanos() >> SHIFT;
        if self.latest[0] != number {
            self.open(0, number);
        }
        self.cells[0][place(number)].add(owner, amount);
    }

    /// Begins a cell, and adds the one that ends to the next level.
    fn open(&mut self, level: usize, number: u64) {
        let ended = core::mem::replace(&mut self.latest[level], number);
        if ended != NEVER && level + 1 < LEVELS {
            let parent = ended >> 1;
            if self.latest[level + 1] != parent {
                self.open(level + 1, parent);
            }
            let [lower, upper, ..] = &mut self.cells[level..] else {
                unreachable!("checked above")
            };
            upper[place(parent)].merge(&lower[place(ended)]);
        }
        // Owners without an amount mean nothing.
        let cell = &mut self.cells[level][place(number)];
        (cell.number, cell.amounts, cell.others) = (number, [0; OWNERS], 0);
    }

    /// What was given after `from` and up to `to`, at most `now`. Of the cell with `to`, `own` is left out: the amount of
    /// the request that ended then.
    pub(super) fn read(
        &self,
        now: Instant,
        from: Instant,
        to: Instant,
        own: (u32, u64),
    ) -> Amounts {
        let (now, from, to) = (now.as_nanos(), from.as_nanos(), to.as_nanos());
        let mut amounts = Amounts::default();
        // Each level has what is older than the level below keeps.
        let mut before = u64::MAX;
        for (level, cells) in self.cells.iter().enumerate() {
            let (latest, shift) = (self.latest[level], SHIFT + level as u32);
            if latest == NEVER {
                break;
            }
            // Even, so that it is an edge of the next level as well.
            let first = latest.saturating_sub(PER_LEVEL as u64 - 2) & !1;
            let last = latest.min(to.min(before - 1) >> shift);
            for number in first.max(from >> shift)..=last {
                let cell = &cells[place(number)];
                if cell.number != number {
                    continue;
                }
                let start = number << shift;
                // The cell of this moment has only begun.
                let end = ((number + 1) << shift).min(now.max(start) + 1);
                let within = to.min(end).saturating_sub(from.max(start));
                if within > 0 {
                    let own = (start..end).contains(&to).then_some(own);
                    amounts.add_part(cell, own, (within, end - start));
                }
            }
            before = first << shift;
            if from >= before {
                break;
            }
        }
        amounts
    }
}

impl Cell {
    const EMPTY: Self =
        Self { number: NEVER, owners: [0; OWNERS], amounts: [0; OWNERS], others: 0 };

    fn add(&mut self, owner: u32, amount: u64) {
        for (known, sum) in self.owners.iter_mut().zip(&mut self.amounts) {
            if *sum == 0 || *known == owner {
                *known = owner;
                *sum += amount;
                return;
            }
        }
        self.displace(owner, amount);
    }

    /// Takes the place of the smallest amount, if that is smaller.
    fn displace(&mut self, owner: u32, amount: u64) {
        let smallest = (0..OWNERS).min_by_key(|&index| self.amounts[index]);
        let smallest = smallest.expect("a cell has places");
        if self.amounts[smallest] < amount {
            self.others += self.amounts[smallest];
            (self.owners[smallest], self.amounts[smallest]) = (owner, amount);
        } else {
            self.others += amount;
        }
    }

    fn merge(&mut self, other: &Self) {
        for (&owner, &amount) in other.owners.iter().zip(&other.amounts) {
            if amount == 0 {
                break;
            }
            self.add(owner, amount);
        }
        self.others += other.others;
    }
}

impl Amounts {
    /// Adds the part `within` of `whole` of a cell, without what is `own`.
    fn add_part(&mut self, cell: &Cell, own: Option<(u32, u64)>, (within, whole): (u64, u64)) {
        let scaled =
            |amount: u64| (u128::from(amount) * u128::from(within) / u128::from(whole)) as u64;
        let mut left = own.map_or(0, |(_, amount)| amount);
        for (&owner, &amount) in cell.owners.iter().zip(&cell.amounts) {
            if amount == 0 {
                break;
            }
            let mut rest = amount;
            if own.is_some_and(|(own, _)| own == owner) {
                rest -= amount.min(left);
                left -= amount - rest;
            }
            match self.owners.binary_search_by_key(&owner, |&(owner, _)| owner) {
                Ok(index) => self.owners[index].1 += scaled(rest),
                Err(index) => self.owners.insert(index, (owner, scaled(rest))),
            }
        }
        self.others += scaled(cell.others.saturating_sub(left));
    }
}

/// The cell with this number is there.
const fn place(number: u64) -> usize {
    (number % PER_LEVEL as u64) as usize
}

const NEVER: u64 = u64::MAX;

/// The shortest cells are 2^14 ns: 16 µs.
const SHIFT: u32 = 14;

/// The longest cells are 2^31 ns: 2.1 s.
const LEVELS: usize = 18;

/// Cells of a level.
const PER_LEVEL: usize = 64;

/// Owners that a cell names.
const OWNERS: usize = 8;
