//! The target of the upstream: its medium, and commands whose session is gone but which it may still execute.

use super::content::{Content, Image, SECTOR, Store, fill};
use super::device::{Device, Id};
use super::history::Broken;
use weir_flow::rng::Rng;

/// The unit that a volume's upstream is, which outlives gateways.
pub(super) struct Target {
    pub(super) device: Device,
    /// In the order in which they were left behind.
    late: Vec<Late>,
    /// Another gateway, which has taken the unit over.
    pub(super) rival: Option<Rival>,
}

/// The name of a session: the same for every session on a path of a gateway, as long as it has the same machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nexus {
    pub(super) machine: usize,
    pub(super) path: usize,
}

/// A write whose session is gone. It has no answer any more, and may be executed at any moment until the target ends it.
#[derive(Clone, Copy, Debug)]
struct Late {
    nexus: Nexus,
    /// The life that has sent it. Each life has another reservation key.
    life: usize,
    id: Id,
    fua: bool,
}

/// Another gateway, and what it has written.
pub(super) struct Rival {
    /// The life from which it has taken the unit over.
    pub(super) life: usize,
    /// It was stopped, and has given the reservation up.
    pub(super) released: bool,
    /// The target was restarted since and has forgotten all reservations, and this gateway has registered again first.
    pub(super) forgotten: bool,
    /// What the unit had when it was taken over: over this the log of the first gateway is still whole.
    pub(super) before: Vec<Option<u64>>,
    after: Image,
}

impl Rival {
    /// Whether the unit has what the other gateway left there.
    pub(super) fn is_intact(&self, image: &Image) -> Result<(), Broken> {
        let mut pairs = image.iter().zip(&self.after);
        match pairs.position(|(has, wrote)| has != wrote) {
            None => Ok(()),
            Some(sector) => Err(Broken::Owner(format!(
                "sector {sector} of the upstream is not what the gateway that took it over has left there"
            ))),
        }
    }
}

impl Target {
    pub(super) const fn new(device: Device) -> Self {
        Self { device, late: Vec::new(), rival: None }
    }

    /// A session is lost while this write is on its way.
    pub(super) fn leave(&mut self, (nexus, life): (Nexus, usize), id: Id, fua: bool) {
        self.late.push(Late { nexus, life, id, fua });
    }

    /// The late writes, which the end of a gateway does not end.
    pub(super) fn late(&self) -> Vec<Id> {
        self.late.iter().map(|late| late.id).collect()
    }

    /// The gateway claims the unit in this life, and the target aborts what earlier ones have left behind.
    pub(super) fn preempt(&mut self, life: usize, rng: &mut Rng) {
        self.abort(|late| late.life != life, rng);
    }

    /// Another gateway owns the unit from now on, flushes it, and writes to it.
    pub(super) fn taken_over(&mut self, store: &mut Store, life: usize, rng: &mut Rng) {
        let flush = self.device.flush();
        self.device.settle(&flush);
        let before = store.all_tokens(self.device.visible());
        let sectors = before.len() as u64;
        for _ in 0..=rng.below(3) {
            let first = rng.below(sectors);
            let contents: Vec<Content> = (0..=rng.below((sectors - first).min(8)))
                .map(|sector| {
                    let mut bytes = [0; SECTOR];
                    fill(OF_RIVAL + first + sector, &mut bytes);
                    store.name(&bytes)
                })
                .collect();
            let id = self.device.begin(first as u32, contents);
            self.device.end_durable(id);
        }
        let after = self.device.visible().clone();
        let released = rng.below(2) == 0;
        self.rival = Some(Rival { life, released, forgotten: false, before, after });
    }

    /// Whether a late write may still be executed.
    pub(super) const fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Executes one of the late writes, whole. Returns the life that has sent it.
    pub(super) fn execute_late(&mut self, rng: &mut Rng) -> usize {
        let one = rng.below(self.late.len() as u64) as usize;
        let Late { id, fua, life, .. } = self.late.remove(one);
        if fua {
            self.device.end_durable(id);
        } else {
            self.device.end(id);
        }
        life
    }

    /// A new session ends the one of the same name, with its commands (RFC 7143, 6.3.5).
    pub(super) fn log_in(&mut self, nexus: Nexus, rng: &mut Rng) {
        self.abort(|late| late.nexus == nexus, rng);
    }

    /// Ends all late writes: the unit was reset, or has lost power.
    pub(super) fn abort_all(&mut self, rng: &mut Rng) {
        self.abort(|_| true, rng);
    }

    /// Ends late writes; of each a part may have been executed.
    fn abort(&mut self, ends: impl Fn(&Late) -> bool, rng: &mut Rng) {
        let (ended, late) = std::mem::take(&mut self.late).into_iter().partition(ends);
        self.late = late;
        for Late { id, .. } in ended {
            self.device.fail(id, rng);
        }
    }
}

/// What the other gateway writes has numbers from here on, which no host has.
const OF_RIVAL: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    /// A late write is executed until its session is ended, or its gateway preempted, and not later; what of it the
    /// target had executed by then stays.
    #[test]
    fn a_session_ends_its_late_writes() {
        let data = Store::new().name(&[1; 512]);
        let mut rng = Rng::stream(1, "target");
        let mut kept = 0;
        for _ in 0..50 {
            let mut target = Target::new(Device::new(vec![Content::default(); 4], true));
            for (nexus, sector) in [(0, 0), (1, 2)] {
                let id = target.device.begin(sector, [data, data]);
                target.leave((Nexus { machine: 0, path: nexus }, nexus), id, false);
            }
            if rng.below(2) == 0 {
                target.log_in(Nexus { machine: 0, path: 0 }, &mut rng);
            } else {
                target.preempt(1, &mut rng);
            }
            kept += target.device.visible()[..2].iter().filter(|&&has| has == data).count();
            assert_eq!(target.device.visible()[2..], [Content::default(); 2]);
            assert!(target.has_late());
            assert_eq!(target.execute_late(&mut rng), 1);
            assert_eq!(target.device.visible()[2..], [data; 2]);
            assert!(!target.has_late());
        }
        assert!((20..80).contains(&kept), "{kept}");
    }

    /// What another gateway has left is there as long as nothing else is.
    #[test]
    fn a_rival_keeps_what_it_wrote() {
        let (mut store, mut rng) = (Store::new(), Rng::stream(1, "target"));
        let mut target = Target::new(Device::new(vec![Content::default(); 4], true));
        target.taken_over(&mut store, 0, &mut rng);
        let rival = target.rival.as_ref().unwrap();
        let mut image = target.device.visible().clone();
        assert_eq!((rival.is_intact(&image), &rival.before), (Ok(()), &vec![Some(0); 4]));
        image[2] = store.name(&[7; 512]);
        assert_eq!(rival.is_intact(&image).unwrap_err().law(), "owner");
    }
}
