//! Every interleaving of fills, writes, unmaps and evictions on three lines: nothing old is ever found
//! (R24 of docs/reference/writeback.md, section 12).

use super::*;

const VOLUME: VolumeId = VolumeId::new(0);

/// Sectors of the three lines, and of the line that pushes others out.
const SECTORS: usize = 8;

/// Bytes of a line: two sectors.
const LINE: u32 = 1_024;

/// The tasks that run at once. Each takes its steps in order, in any order with the others'.
#[derive(Clone, Copy, Debug)]
enum Actor {
    /// A fetch of these sectors: it begins, the device reads, it ends.
    Fill(u64, u64, bool),
    /// A write or unmap that goes through: it is handed on, the device does it, it ends.
    Through(u64, u64),
    /// A write that is acknowledged from the log: acknowledged, written back, forgotten by the log. Its
    /// payload is kept or not.
    Logged(u64, u64, bool),
    /// Another line comes.
    Evict,
}

impl Actor {
    const fn steps(self) -> usize {
        match self {
            Self::Evict => 1,
            _ => 3,
        }
    }
}

/// All that there is, in versions: of each sector upstream, in the log, and in frames.
struct World {
    lines: Lines,
    upstream: [u32; SECTORS],
    /// The newest that a host was told of.
    newest: [u32; SECTORS],
    /// Where a host must not look, since a write is in flight there.
    busy: [bool; SECTORS],
    dirty: [bool; SECTORS],
    frames: Vec<[u32; 2]>,
    fills: Vec<(FillId, [u32; SECTORS])>,
}

const fn extent(first: u64, count: u64) -> Extent {
    Extent::new(first * SECTOR, count * SECTOR)
}

const fn range(first: u64, count: u64) -> Range<usize> {
    first as usize..(first + count) as usize
}

impl World {
    fn new(frames: u32, actors: usize) -> Self {
        let choice = Choice::named(evict::POLICIES, "fifo").unwrap();
        let mut lines = Lines::new(frames, LINE, &choice);
        // Something is here already, of version 0 like all the rest.
        lines.put(VOLUME, extent(1, 2), &mut Vec::new());
        Self {
            lines,
            upstream: [0; SECTORS],
            newest: [0; SECTORS],
            busy: [false; SECTORS],
            dirty: [false; SECTORS],
            frames: alloc::vec![[0; 2]; frames as usize],
            fills: alloc::vec![(FillId::default(), [0; SECTORS]); actors],
        }
    }

    fn copy(&mut self, copies: &[Copy], first: u64, data: &[u32; SECTORS]) {
        for copy in copies {
            for n in 0..u64::from(copy.length) / SECTOR {
                let sector = u64::from(copy.at) / SECTOR + n;
                let version = data[(first + copy.offset / SECTOR + n) as usize];
                self.frames[copy.frame.index()][sector as usize] = version;
            }
        }
    }

    fn step(&mut self, number: usize, actor: Actor, step: usize) {
        let version = number as u32 + 1;
        let mut copies = Vec::new();
        match (actor, step) {
            (Actor::Fill(first, count, ahead), 0) => {
                let fill = self.lines.begin(VOLUME, extent(first, count), ahead);
                for sector in range(first, count).filter(|&sector| self.dirty[sector]) {
                    self.lines.exclude(fill, extent(sector as u64, 1));
                }
                self.fills[number].0 = fill;
            }
            (Actor::Fill(..), 1) => self.fills[number].1 = self.upstream,
            (Actor::Fill(first, ..), _) => {
                let (fill, data) = self.fills[number];
                self.lines.end(fill, true, &mut copies);
                self.copy(&copies, first, &data);
            }
            (Actor::Through(first, count), 0) => {
                self.lines.wrote(VOLUME, extent(first, count));
                range(first, count).for_each(|sector| self.busy[sector] = true);
            }
            (Actor::Through(first, count) | Actor::Logged(first, count, _), 1) => {
                range(first, count).for_each(|sector| self.upstream[sector] = version);
            }
            (Actor::Through(first, count), _) => {
                self.lines.wrote(VOLUME, extent(first, count));
                for sector in range(first, count) {
                    (self.busy[sector], self.newest[sector]) = (false, version);
                }
            }
            (Actor::Logged(first, count, keep), 0) => {
                for sector in range(first, count) {
                    (self.dirty[sector], self.newest[sector]) = (true, version);
                }
                if keep {
                    self.lines.put(VOLUME, extent(first, count), &mut copies);
                    self.copy(&copies, first, &[version; SECTORS]);
                } else {
                    self.lines.wrote(VOLUME, extent(first, count));
                }
            }
            (Actor::Logged(first, count, _), _) => {
                range(first, count).for_each(|sector| self.dirty[sector] = false);
            }
            (Actor::Evict, _) => {
                let fill = self.lines.begin(VOLUME, extent(6, 2), false);
                self.lines.end(fill, true, &mut copies);
                self.copy(&copies, 6, &self.upstream.clone());
            }
        }
    }

    /// Whatever a host may look at is the newest there is; the number of sectors that are here.
    fn check(&self) -> usize {
        let mut found = Vec::new();
        self.lines.look(VOLUME, extent(0, SECTORS as u64), &mut found);
        let mut count = 0;
        for copy in &found {
            for n in 0..copy.length as usize / SECTOR as usize {
                let sector = copy.offset as usize / SECTOR as usize + n;
                let version =
                    self.frames[copy.frame.index()][copy.at as usize / SECTOR as usize + n];
                let newest = self.newest[sector];
                assert!(self.busy[sector] || version == newest, "sector {sector}: {version}");
                count += 1;
            }
        }
        count
    }
}

/// All orders in which actors can take their steps.
fn orders(left: &mut [usize], order: &mut Vec<usize>, visit: &mut dyn FnMut(&[usize])) {
    if left.iter().all(|&steps| steps == 0) {
        return visit(order);
    }
    for actor in 0..left.len() {
        if left[actor] > 0 {
            left[actor] -= 1;
            order.push(actor);
            orders(left, order, visit);
            order.pop();
            left[actor] += 1;
        }
    }
}

/// What hosts may find in the buffer is the newest at every instant of every order in which two fetches, a
/// write, an unmap and an eviction can happen, through or from the log, with frames for all lines and
/// with fewer.
#[test]
fn nothing_old_is_found() {
    let (all, some) = (Actor::Fill(0, 6, false), Actor::Fill(2, 3, true));
    let scenarios: [&[Actor]; 8] = [
        &[all, some, Actor::Through(3, 1), Actor::Evict],
        &[all, Actor::Through(1, 2), Actor::Through(4, 2), Actor::Evict],
        &[all, some, Actor::Logged(3, 1, true), Actor::Evict],
        &[all, some, Actor::Logged(0, 6, false), Actor::Evict],
        &[some, Actor::Logged(2, 2, true), Actor::Logged(4, 1, false), Actor::Evict],
        &[some, Actor::Through(2, 3), Actor::Logged(0, 1, true), Actor::Evict],
        &[all, some, Actor::Through(3, 1), Actor::Through(0, 2)],
        &[all, some, Actor::Logged(3, 2, true), Actor::Logged(1, 1, false)],
    ];
    for actors in scenarios {
        let steps: usize = actors.iter().map(|actor| actor.steps()).sum();
        for frames in if steps == 12 { 2..3 } else { 2..5 } {
            let (mut runs, mut here, mut absent) = (0, 0, 0);
            let mut left: Vec<usize> = actors.iter().map(|actor| actor.steps()).collect();
            orders(&mut left, &mut Vec::new(), &mut |order| {
                let mut world = World::new(frames, actors.len());
                let mut taken = [0; 4];
                for &actor in order {
                    world.step(actor, actors[actor], taken[actor]);
                    taken[actor] += 1;
                    let count = world.check();
                    here += count;
                    absent += SECTORS - count;
                }
                runs += 1;
            });
            assert_eq!(runs, if steps == 12 { 369_600 } else { 16_800 });
            assert!(here > 0 && absent > 0, "{actors:?}: {here} here, {absent} absent");
        }
    }
}
