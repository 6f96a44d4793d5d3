//! A device with a volatile cache: a crash keeps any subset of the sectors that were not flushed.
//!
//! A sector is written whole or not at all. What was written and not flushed, and what was on its way, is
//! kept or lost sector by sector; of several writes to a sector any may be the one that is kept, or none.

use super::content::{Content, Image};
use weir_flow::rng::Rng;

/// One device.
#[derive(Clone)]
pub(super) struct Device {
    /// What a power cut leaves for certain.
    durable: Image,
    /// What a read finds.
    visible: Image,
    /// What was durable before that, of each sector.
    older: Image,
    /// Writes, in the order in which they began, that are not durable.
    pending: Vec<Write>,
    next: u64,
    /// Whether there is a cache to be flushed: without, what has ended is durable.
    cached: bool,
}

/// Names a write of a device, or a flush.
pub(super) type Id = u64;

#[derive(Clone)]
struct Write {
    id: Id,
    /// The store that it is to; each has its cache.
    store: u32,
    ended: bool,
    sectors: Vec<(u32, Content)>,
}

/// A flush that has begun: it makes durable what had ended then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flush(Vec<Id>);

/// What may be lost in a crash: sectors in the order in which they were written, and where a new write
/// begins among them.
pub(super) struct AtRisk {
    pub(super) sectors: Vec<(u32, Content)>,
    pub(super) writes: Vec<usize>,
    /// The store of each of the writes.
    pub(super) stores: Vec<u32>,
}

impl Device {
    pub(super) fn new(image: Image, cached: bool) -> Self {
        Self {
            durable: image.clone(),
            older: image.clone(),
            visible: image,
            pending: Vec::new(),
            next: 0,
            cached,
        }
    }

    pub(super) fn visible(&self) -> &Image {
        &self.visible
    }

    /// Whether a power cut takes nothing.
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    /// A write begins: from a sector on, these.
    pub(super) fn begin(&mut self, first: u32, contents: impl IntoIterator<Item = Content>) -> Id {
        self.begin_at(0, (first..).zip(contents).collect())
    }

    /// A write to a store begins.
    pub(super) fn begin_at(&mut self, store: u32, sectors: Vec<(u32, Content)>) -> Id {
        self.next += 1;
        self.pending.push(Write { id: self.next, store, ended: false, sectors });
        self.next
    }

    /// A write has ended.
    pub(super) fn end(&mut self, id: Id) {
        let place = self.place(id);
        for &(sector, content) in &self.pending[place].sectors {
            self.visible[sector as usize] = content;
        }
        self.pending[place].ended = true;
        if !self.cached {
            self.settle(&Flush(vec![id]));
        }
    }

    /// A write with force unit access has ended: it is durable, and nothing older is where it is.
    pub(super) fn end_durable(&mut self, id: Id) {
        self.end(id);
        let Some(place) = self.pending.iter().position(|write| write.id == id) else { return };
        let (older, write) = self.pending.split_at_mut(place);
        for &(sector, _) in &write[0].sectors {
            for write in &mut *older {
                write.sectors.retain(|&(old, _)| old != sector);
            }
        }
        self.settle(&Flush(vec![id]));
    }

    /// A write has failed: some of its sectors were written, the others never will be.
    pub(super) fn fail(&mut self, id: Id, rng: &mut Rng) {
        let place = self.place(id);
        self.pending[place].sectors.retain(|_| rng.below(2) == 0);
        self.end(id);
    }

    /// The one who writes has gone: of what was on its way some was written, but for `late` writes, which continue.
    /// Who comes next reads the device and not what a flush that failed has left in memory.
    pub(super) fn abandon(&mut self, late: &[Id], rng: &mut Rng) {
        let open = |write: &&Write| !write.ended && !late.contains(&write.id);
        let open = self.pending.iter().filter(open).map(|write| write.id);
        for id in open.collect::<Vec<_>>() {
            self.fail(id, rng);
        }
        self.visible = self.seen();
    }

    /// A store loses its cache: `survives` says which of the sectors at risk are kept. I/Os in flight continue.
    pub(super) fn lose_cache(&mut self, store: u32, survives: impl FnOnce(&AtRisk) -> Vec<bool>) {
        let lost = |write: &Write| write.ended && write.store == store;
        let (ended, others) = std::mem::take(&mut self.pending).into_iter().partition(lost);
        self.pending = ended;
        let at_risk = self.at_risk();
        self.durable = self.left(&at_risk, &survives(&at_risk));
        self.pending = others;
        self.visible = self.seen();
    }

    /// What is durable, and what has ended over it.
    fn seen(&self) -> Image {
        let mut seen = self.durable.clone();
        for write in self.pending.iter().filter(|write| write.ended) {
            for &(sector, content) in &write.sectors {
                seen[sector as usize] = content;
            }
        }
        seen
    }

    /// A write was refused: nothing of it was or will be done.
    pub(super) fn refuse(&mut self, id: Id) {
        self.pending.retain(|write| write.id != id);
    }

    /// A flush of all stores begins.
    pub(super) fn flush(&self) -> Flush {
        Flush(self.pending.iter().filter(|write| write.ended).map(|write| write.id).collect())
    }

    /// A flush of one store begins.
    pub(super) fn flush_of(&self, store: u32) -> Flush {
        let covered = |write: &&Write| write.ended && write.store == store;
        Flush(self.pending.iter().filter(covered).map(|write| write.id).collect())
    }

    /// A flush has ended.
    pub(super) fn settle(&mut self, flush: &Flush) {
        let Self { durable, older, pending, .. } = self;
        pending.retain(|write| {
            let covered = flush.0.contains(&write.id);
            if covered {
                for &(sector, content) in &write.sectors {
                    let before = std::mem::replace(&mut durable[sector as usize], content);
                    older[sector as usize] = before;
                }
            }
            !covered
        });
    }

    /// A flush has failed: of what it was to make durable some is, and the rest never will be, although it
    /// is read as before. No later flush knows of it.
    pub(super) fn fail_flush(&mut self, flush: &Flush, rng: &mut Rng) {
        for write in &mut self.pending {
            if flush.0.contains(&write.id) {
                write.sectors.retain(|_| rng.below(2) == 0);
            }
        }
        self.settle(flush);
    }

    /// A sector rots, unless it is being written.
    pub(super) fn rot(&mut self, sector: u32, content: Content) -> bool {
        let mut pending = self.pending.iter().flat_map(|write| &write.sectors);
        if pending.any(|&(at, _)| at == sector) {
            return false;
        }
        let at = sector as usize;
        (self.durable[at], self.visible[at]) = (content, content);
        true
    }

    /// What a device that loses an acknowledged write has of a sector.
    pub(super) fn stale(&self, sector: usize) -> Content {
        self.older[sector]
    }

    /// What a power cut leaves of a sector for certain.
    pub(super) fn durable(&self, sector: u32) -> Content {
        self.durable[sector as usize]
    }

    /// What a crash now may lose or keep.
    pub(super) fn at_risk(&self) -> AtRisk {
        let mut at_risk = AtRisk { sectors: Vec::new(), writes: Vec::new(), stores: Vec::new() };
        for write in &self.pending {
            at_risk.writes.push(at_risk.sectors.len());
            at_risk.stores.push(write.store);
            at_risk.sectors.extend(&write.sectors);
        }
        at_risk
    }

    /// What a crash leaves that keeps some of what is at risk.
    pub(super) fn left(&self, at_risk: &AtRisk, keep: &[bool]) -> Image {
        let mut image = self.durable.clone();
        for (&(sector, content), _) in at_risk.sectors.iter().zip(keep).filter(|&(_, &keep)| keep) {
            image[sector as usize] = content;
        }
        image
    }

    fn place(&self, id: Id) -> usize {
        let place = self.pending.iter().position(|write| write.id == id);
        place.expect("a write that has not ended is pending")
    }
}

#[cfg(test)]
mod tests {
    use super::super::content::Store;
    use super::*;

    fn contents() -> [Content; 4] {
        let mut store = Store::new();
        [0, 1, 2, 3].map(|byte| store.name(&[byte; 512]))
    }

    fn states(device: &Device) -> Vec<Image> {
        let at_risk = device.at_risk();
        let count = at_risk.sectors.len();
        let keep = |bits: u32| (0..count).map(|i| bits >> i & 1 == 1).collect::<Vec<_>>();
        let mut states: Vec<_> =
            (0..1 << count).map(|bits| device.left(&at_risk, &keep(bits))).collect();
        states.sort();
        states.dedup();
        states
    }

    /// What was flushed stays, what had not ended when the flush began may go, sector by sector.
    #[test]
    fn a_flush_covers_what_had_ended() {
        let [zero, a, b, c] = contents();
        let mut device = Device::new(vec![zero; 3], true);
        let first = device.begin(0, [a, a]);
        assert_eq!(device.visible(), &[zero; 3]);
        device.end(first);
        let second = device.begin(1, [b, b]);
        let flush = device.flush();
        device.end(second);
        assert_eq!(device.visible(), &[a, b, b]);
        device.settle(&flush);
        assert_eq!(&device.durable, &[a, a, zero]);
        let states = states(&device);
        assert_eq!(states, [vec![a, a, zero], vec![a, a, b], vec![a, b, zero], vec![a, b, b]]);
        // Of two writes to a sector either may be kept.
        device.begin(1, [c]);
        assert_eq!(self::states(&device).len(), 6);
    }

    /// A write with force unit access is durable before older ones are, and none of them comes back over it.
    #[test]
    fn a_durable_write_covers_what_is_older() {
        let [zero, a, b, _] = contents();
        let mut device = Device::new(vec![zero; 3], true);
        let first = device.begin(0, [a, a]);
        device.end(first);
        let second = device.begin(1, [b]);
        device.end_durable(second);
        assert_eq!(states(&device), [vec![zero, b, zero], vec![a, b, zero]]);
    }

    /// After a flush that failed what it did not do is lost at a crash, whatever is flushed later, and read
    /// until then.
    #[test]
    fn a_failed_flush_is_final() {
        let [zero, a, ..] = contents();
        let mut lost = 0;
        for seed in 0..20 {
            let mut rng = Rng::stream(seed, "device");
            let mut device = Device::new(vec![zero; 8], true);
            let write = device.begin(0, [a; 8]);
            device.end(write);
            let flush = device.flush();
            device.fail_flush(&flush, &mut rng);
            let again = device.flush();
            device.settle(&again);
            assert_eq!(device.visible(), &[a; 8]);
            assert!(device.at_risk().sectors.is_empty());
            lost += device.durable.iter().filter(|&&content| content == zero).count();
        }
        assert!((40..120).contains(&lost), "{lost}");
    }

    /// Each store has its cache: a flush of one leaves what others have, and so does a loss.
    #[test]
    fn stores_have_caches_of_their_own() {
        let [zero, a, b, _] = contents();
        let mut device = Device::new(vec![zero; 4], true);
        for (store, sectors) in [(0, vec![(0, a), (2, a)]), (1, vec![(1, b), (3, b)])] {
            let write = device.begin_at(store, sectors);
            device.end(write);
        }
        let mut lost = device.clone();
        lost.lose_cache(0, |at_risk| vec![false; at_risk.sectors.len()]);
        assert_eq!(lost.visible(), &[zero, b, zero, b]);
        let flush = lost.flush();
        lost.settle(&flush);
        assert_eq!(lost.durable, [zero, b, zero, b]);
        let flush = device.flush_of(1);
        device.settle(&flush);
        assert_eq!(
            (device.durable.as_slice(), device.at_risk().stores),
            (&[zero, b, zero, b][..], vec![0])
        );
    }

    /// Without a cache what has ended is durable, and a write that failed is there in part.
    #[test]
    fn without_a_cache_nothing_waits() {
        let [zero, a, ..] = contents();
        let mut device = Device::new(vec![zero; 8], false);
        let write = device.begin(0, [a]);
        device.end(write);
        assert_eq!(device.durable[0], a);
        let write = device.begin(0, [zero; 8]);
        device.fail(write, &mut Rng::stream(1, "device"));
        assert!(device.at_risk().sectors.is_empty());
    }
}
