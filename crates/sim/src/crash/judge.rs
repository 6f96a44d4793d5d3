//! Recovers each crash state and checks it against the laws.

use super::bug::Bug;
use super::history::Broken;
use super::lasting::Lasting;
use super::loss::{Loss, State, crash};
use super::recovery::{World, open};
use super::rot;
use super::tear::Tear;
use std::collections::{BTreeMap, BTreeSet};
use weir_flow::rng::Rng;

/// What was seen and counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Judge {
    /// Digests of what both devices had.
    pub(super) images: BTreeSet<(u64, u64)>,
    /// By the log device's loss and the upstream's: images that were new, and states that were checked.
    pub(super) kinds: BTreeMap<(Loss, Loss), (u64, u64)>,
    /// Moments at which crashes were made.
    pub(super) points: u64,
    /// States that were checked: an image with what had been promised by then.
    pub(super) checked: u64,
    /// Those of them in which the log had something that was not upstream.
    pub(super) dirty: u64,
    /// Crashes in the middle of an atomic write, after which its record was applied.
    pub(super) records: u64,
    /// Log devices with a rotten sector that were opened.
    pub(super) rotten: u64,
    /// Log devices with torn sectors.
    pub(super) torn: u64,
    known: BTreeSet<(u64, u64, u64)>,
}

impl Judge {
    /// Crashes here, in many ways. Gives the first that breaks a law.
    pub(super) fn point(
        &mut self,
        world: &World<'_>,
        rng: &mut Rng,
    ) -> Result<(), (Box<State>, Broken)> {
        self.points += 1;
        for (log, upstream) in losses(rng) {
            let torn = world.plan.tears && !world.lasting.void && rng.below(4) == 0;
            let state = State {
                log: crash(world.log, log, rng),
                tears: if torn { Tear::some(world.log, rng) } else { Vec::new() },
                upstream: crash(&world.target.device, upstream, rng),
                record: world.lasting.journal.left(rng),
                lost: world.lasting.lost.left(rng),
            };
            if let Err(broken) = self.check(world, &state) {
                return Err((Box::new(state), broken));
            }
            if world.plan.rot && rng.below(40) == 0 && state.tears.is_empty() {
                self.rotten += 1;
                if let Err(broken) = rot::check(world, &state, rng) {
                    return Err((Box::new(state), broken));
                }
            }
        }
        Ok(())
    }

    fn check(&mut self, world: &World<'_>, state: &State) -> Result<(), Broken> {
        let Lasting { store, history, void, .. } = world.lasting;
        let mut digests = [&state.log, &state.upstream].map(|left| store.digest(&left.image));
        if *void {
            digests[0] = 0;
        }
        for range in &state.lost {
            digests[0] =
                digests[0].rotate_left(7) ^ range.extent.offset ^ range.extent.length << 32;
        }
        if state.record.is_some() {
            digests[1] = !digests[1];
        }
        let torn =
            state.tears.iter().fold(0, |torn: u64, tear| torn.rotate_left(1) ^ tear.digest());
        if !self.known.insert((digests[0] ^ torn, digests[1], history.revision())) {
            return Ok(());
        }
        // A sector can be torn in more ways than make a difference: they do not count as states of their own.
        self.torn += u64::from(!state.tears.is_empty());
        let new = self.images.insert((digests[0], digests[1]));
        let kind = self.kinds.entry((state.log.loss, state.upstream.loss)).or_default();
        *kind = (kind.0 + u64::from(new), kind.1 + 1);
        self.checked += 1;
        let upstream = if let Some(rival) = &world.target.rival {
            // The log is held against what the unit had before.
            rival.is_intact(&state.upstream.image)?;
            rival.before.clone()
        } else {
            let upstream = store.all_tokens(&state.upstream.image);
            history.legal(&upstream)?;
            match &state.record {
                Some(record) if world.bug != Some(Bug::AtomicRecordForgotten) => {
                    let mut image = state.upstream.image.clone();
                    record.apply(&mut image);
                    self.records += 1;
                    store.all_tokens(&image)
                }
                _ => upstream,
            }
        };
        let volume = if *void {
            upstream
        } else {
            let opened = open(world, (&state.log.image, &state.tears), &state.lost)?;
            self.dirty += u64::from(opened.recovered.dirty().1 > 0);
            opened.volume(store, upstream)?
        };
        history.survives(&volume)?;
        history.is_untorn(&volume)
    }
}

/// The losses of both devices that are tried at a moment.
fn losses(rng: &mut Rng) -> Vec<(Loss, Loss)> {
    use Loss::{Everything, Nothing};
    let mut losses = vec![(Nothing, Nothing), (Everything, Everything), (Everything, Nothing)];
    losses.push((Nothing, Everything));
    let mut any = || Loss::ALL[rng.below(Loss::ALL.len() as u64) as usize];
    for loss in Loss::ALL {
        losses.push((loss, any()));
        losses.push((any(), loss));
    }
    losses
}
