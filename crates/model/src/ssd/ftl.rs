//! A page-mapping flash translation layer.
//!
//! A written page goes to the next chip in its stream's round-robin order, into the chip's open block; the old copy
//! becomes garbage. Before its first write page `l` is on chip `l mod chips` (docs/reference/dispatch.md, section
//! 2.2). A chip whose free blocks run out moves the valid pages of the block with the fewest of them, on the same
//! chip, and erases the block; moves are spread over the writes that will use the freed pages. Blocks are used in the
//! order in which they were erased, which levels wear.
//!
//! State: 4 bytes for each page that a host can address, 4 for each physical one, 6 for each block.

use super::Config;
use crate::device::Wear;
use std::collections::VecDeque;
use weir_flow::settings::Settings as _;

/// The translation layer of a device. It has no notion of time.
#[derive(Clone, Debug)]
pub struct Ftl {
    chips: u32,
    /// Pages of a block, and of a chip.
    block: u32,
    chip: u32,
    /// By page of the host: one more than its physical page, or 0.
    map: Vec<u32>,
    /// By physical page: one more than the host page that it holds, or 0 if it is garbage.
    back: Vec<u32>,
    /// By block: valid pages, with [`OPEN`] while the block can be no victim.
    valid: Vec<u16>,
    erases: Vec<u32>,
    /// Sum of them, the least, how many blocks have that, and the most.
    erased: u64,
    least: u32,
    at_least: u32,
    most: u32,
    state: Vec<Chip>,
    /// By stream, the chip that it writes to next.
    turns: Vec<u32>,
    programs: u64,
    moves: u64,
}

#[derive(Clone, Debug, Default)]
struct Chip {
    /// Erased blocks of the chip, longest ago first.
    free: VecDeque<u32>,
    /// What hosts write to next, and what moves do: a physical page, and how many of its block are left.
    host: (u32, u32),
    moved: (u32, u32),
    valid: u32,
    victim: Option<Victim>,
}

/// A block that is being emptied.
#[derive(Clone, Copy, Debug)]
struct Victim {
    block: u32,
    /// Its physical pages below this have been looked at.
    next: u32,
    /// Steps for each write.
    pace: u32,
}

/// A step of garbage collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A page was read, and programmed elsewhere on the chip.
    Copy {
        /// The page of the host.
        page: u32,
    },
    /// The block was erased, and can be written again.
    Erase,
}

impl Ftl {
    /// That of an erased device, filled as far as the configuration says. Panics if it is not valid.
    pub fn new(config: &Config) -> Self {
        assert_eq!(config.validate(), Ok(()), "a configuration is checked before it is used");
        let (block, blocks) = (config.pages, config.chips * config.blocks);
        let chip = |_| Chip { free: (0..config.blocks).collect(), ..Chip::default() };
        let mut ftl = Self {
            chips: config.chips,
            block,
            chip: config.blocks * block,
            // Zeroes cost no memory before they are touched.
            map: vec![0; config.capacity_pages() as usize],
            back: vec![0; config.pages_in_all() as usize],
            valid: vec![OPEN; blocks as usize],
            erases: vec![0; blocks as usize],
            erased: 0,
            least: 0,
            at_least: blocks,
            most: 0,
            state: (0..config.chips).map(chip).collect(),
            turns: Vec::new(),
            programs: 0,
            moves: 0,
        };
        let filled = config.capacity_pages() * u64::from(config.filled_permille) / 1_000;
        for page in 0..filled as u32 {
            let chip = ftl.place(0);
            ftl.write(page, chip);
        }
        (ftl.programs, ftl.turns) = (0, Vec::new());
        ftl
    }

    /// Pages that a host can address.
    pub const fn capacity(&self) -> u32 {
        self.map.len() as u32
    }

    /// The chip that has this page.
    pub fn chip(&self, page: u32) -> u32 {
        match self.map[page as usize] {
            0 => page % self.chips,
            place => (place - 1) / self.chip,
        }
    }

    /// The chip that a stream writes to now. Chips without space are skipped.
    pub fn place(&mut self, stream: usize) -> u32 {
        if self.turns.len() <= stream {
            self.turns.resize(stream + 1, 0);
        }
        let room = self.chip - RESERVED * self.block;
        loop {
            let chip = self.turns[stream];
            self.turns[stream] = if chip + 1 == self.chips { 0 } else { chip + 1 };
            if self.state[chip as usize].valid < room {
                return chip;
            }
        }
    }

    /// Whether a write to this chip has to wait until a block is erased.
    pub fn full(&self, chip: u32) -> bool {
        let state = &self.state[chip as usize];
        state.host.1 == 0 && state.free.len() <= 1
    }

    /// Writes a page of a host to this chip, which must not be [`full`](Self::full).
    pub fn write(&mut self, page: u32, chip: u32) {
        assert!(!self.full(chip), "the chip has no page left");
        self.trim(page);
        let place = self.allocate(chip, false);
        self.put(page, place);
        self.programs += 1;
    }

    /// Forgets a page.
    pub fn trim(&mut self, page: u32) {
        let old = std::mem::take(&mut self.map[page as usize]);
        if old > 0 {
            self.back[old as usize - 1] = 0;
            self.valid[((old - 1) / self.block) as usize] -= 1;
            self.state[((old - 1) / self.chip) as usize].valid -= 1;
        }
    }

    fn put(&mut self, page: u32, place: u32) {
        self.map[page as usize] = place + 1;
        self.back[place as usize] = page + 1;
        self.valid[(place / self.block) as usize] += 1;
        self.state[(place / self.chip) as usize].valid += 1;
    }

    /// The next erased page of the chip.
    fn allocate(&mut self, chip: u32, moved: bool) -> u32 {
        let state = &mut self.state[chip as usize];
        let (next, left) = if moved { &mut state.moved } else { &mut state.host };
        if *left == 0 {
            let free = state.free.pop_front().expect("garbage collection keeps up");
            (*next, *left) = (chip * self.chip + free * self.block, self.block);
        }
        let place = *next;
        (*next, *left) = (place + 1, *left - 1);
        if *left == 0 {
            // It is written full, and may become a victim.
            self.valid[(place / self.block) as usize] &= !OPEN;
        }
        place
    }

    /// Steps that a write to this chip has to make first, so that it is never [`full`](Self::full).
    pub fn moves_due(&mut self, chip: u32) -> u32 {
        let victim = match self.state[chip as usize].victim {
            None if self.low(chip) => self.choose(chip),
            victim => victim,
        };
        victim.map_or(0, |victim| victim.pace)
    }

    /// Whether the chip has few erased blocks left.
    pub fn low(&self, chip: u32) -> bool {
        self.state[chip as usize].free.len() < LOW
    }

    /// Whether the next step of garbage collection on this chip erases a block.
    pub fn emptied(&self, chip: u32) -> bool {
        self.state[chip as usize].victim.is_some_and(|victim| {
            let end = (victim.block + 1) * self.block;
            self.back[victim.next as usize..end as usize].iter().all(|&page| page == 0)
        })
    }

    /// A step of garbage collection on this chip. `None` if there is nothing to gain.
    pub fn step(&mut self, chip: u32) -> Option<Move> {
        let victim = match self.state[chip as usize].victim {
            Some(victim) => victim,
            None => self.choose(chip)?,
        };
        let end = (victim.block + 1) * self.block;
        let pages = &self.back[victim.next as usize..end as usize];
        if let Some(skip) = pages.iter().position(|&page| page > 0) {
            let place = victim.next + skip as u32;
            let page = self.back[place as usize] - 1;
            self.state[chip as usize].victim = Some(Victim { next: place + 1, ..victim });
            self.trim(page);
            let place = self.allocate(chip, true);
            self.put(page, place);
            self.moves += 1;
            return Some(Move::Copy { page });
        }
        let state = &mut self.state[chip as usize];
        state.victim = None;
        state.free.push_back(victim.block - chip * (self.chip / self.block));
        self.valid[victim.block as usize] = OPEN;
        self.wear_out(victim.block);
        Some(Move::Erase)
    }

    /// Counts an erasure of a block.
    fn wear_out(&mut self, block: u32) {
        let erases = &mut self.erases[block as usize];
        *erases += 1;
        self.erased += 1;
        self.most = self.most.max(*erases);
        if *erases - 1 == self.least {
            self.at_least -= 1;
            if self.at_least == 0 {
                // Every block has been erased once more since this was looked for last.
                self.least += 1;
                let least = |&&erases: &&u32| erases == self.least;
                self.at_least = self.erases.iter().filter(least).count() as u32;
            }
        }
    }

    /// Takes the written block of a chip that has the fewest valid pages.
    fn choose(&mut self, chip: u32) -> Option<Victim> {
        let blocks = self.chip / self.block;
        let first = chip * blocks;
        let valid = &mut self.valid[first as usize..(first + blocks) as usize];
        let least = *valid.iter().min()?;
        if u32::from(least) >= self.block {
            return None;
        }
        let place = valid.iter().position(|&pages| pages == least)? as u32;
        valid[place as usize] |= OPEN;
        let block = first + place;
        // Its last step comes before the freed pages are used up.
        let rate = (u32::from(least) + 1).div_ceil(self.block - u32::from(least));
        let victim = Victim { block, next: block * self.block, pace: rate };
        self.state[chip as usize].victim = Some(victim);
        Some(victim)
    }

    /// The wear counters of the device.
    pub fn wear(&self) -> Wear {
        Wear {
            programs: self.programs,
            moves: self.moves,
            erases: self.erased,
            least: self.least,
            most: self.most,
            amplification: match self.programs {
                0 => 1.0,
                programs => (programs + self.moves) as f64 / programs as f64,
            },
        }
    }
}

/// Marks a block that is erased, being written or being emptied.
const OPEN: u16 = 1 << 15;

/// Blocks of a chip that hold nothing valid in the long run: what is open, and what is erased.
pub const RESERVED: u32 = 8;

/// With fewer erased blocks than this a chip collects garbage.
const LOW: usize = 4;

#[cfg(test)]
impl Ftl {
    /// Bytes that its vectors take.
    pub(super) fn bytes(&self) -> usize {
        let free = self.state.iter().map(|chip| chip.free.capacity()).sum::<usize>();
        let words = self.map.capacity() + self.back.capacity() + self.erases.capacity() + free;
        let chips = self.state.capacity() * size_of::<Chip>();
        4 * (words + self.turns.capacity()) + 2 * self.valid.capacity() + chips
    }

    /// Both directions of the map agree, and so do all counts.
    pub(super) fn check(&self) {
        let mut valid = vec![0; self.valid.len()];
        for (page, &place) in self.map.iter().enumerate().filter(|(_, place)| **place > 0) {
            assert_eq!(self.back[place as usize - 1] as usize, page + 1);
            valid[((place - 1) / self.block) as usize] += 1;
        }
        let held = self.back.iter().filter(|&&page| page > 0).count();
        assert_eq!(held, valid.iter().map(|&pages| usize::from(pages)).sum());
        for (block, &pages) in self.valid.iter().enumerate() {
            assert_eq!(pages & !OPEN, valid[block], "block {block}");
        }
        let blocks = (self.chip / self.block) as usize;
        assert_eq!(self.erases.iter().map(|&erases| u64::from(erases)).sum::<u64>(), self.erased);
        assert_eq!(self.erases.iter().copied().min(), Some(self.least));
        assert_eq!(self.erases.iter().copied().max(), Some(self.most));
        for (chip, state) in self.state.iter().enumerate() {
            let pages = valid[chip * blocks..][..blocks].iter().map(|&pages| u32::from(pages));
            assert_eq!(state.valid, pages.sum());
            assert!(!state.free.is_empty(), "a chip keeps an erased block");
        }
    }
}
