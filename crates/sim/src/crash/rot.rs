//! Bit rot on the log device: one sector that is not what was written, in a state that a crash has left.
//!
//! A sector has a flipped bit, what it had before its last write, or what belongs elsewhere. Such a log is refused, or its
//! payload is found to be damaged when it is read, or it does no harm. What no intact header or super block says was
//! durable may be taken for the torn end of the log, since that is how it looks. And a write that was never acknowledged,
//! and that the last recovery did not find, may come back when the header that ends its segment rots.

use super::content::{Content, Image, SECTOR};
use super::forge::witnessed;
use super::history::Broken;
use super::loss::State;
use super::recovery::{Opened, World, open_bytes};
use weir_flow::cache::writeback::format::SUPERS;
use weir_flow::rng::Rng;

/// Spoils a sector of the log device of a state, and opens it.
pub(super) fn check(world: &World<'_>, state: &State, rng: &mut Rng) -> Result<(), Broken> {
    let history = &world.lasting.history;
    if world.lasting.void || history.is_loose() || world.target.rival.is_some() {
        return Ok(());
    }
    let read = |image: &Image| {
        let mut bytes = vec![0; image.len() * SECTOR];
        world.lasting.store.read(image, 0, &mut bytes);
        bytes
    };
    // What was not flushed proves nothing: a part of it may be anywhere, with nothing before it.
    let at_risk = world.log.at_risk();
    let flushed = world.log.left(&at_risk, &vec![false; at_risk.sectors.len()]);
    let witness = witnessed(world.plan, &read(&flushed));
    let mut bytes = read(&state.log.image);
    let intact = open_bytes(world, bytes.clone(), &[])?;
    let spoiled = spoil(world, state, &mut bytes, rng);
    let opened = match open_bytes(world, bytes, &[]) {
        Ok(opened) => opened,
        Err(Broken::Refused(_)) => return Ok(()),
        Err(broken) => return Err(broken),
    };
    let last = opened.recovered.last();
    if last < witness {
        return Err(Broken::Rot(format!(
            "a log with a rotten sector ({spoiled}) ends at record {last} after recovery, although record {witness} was durable"
        )));
    }
    let volume = |opened: &Opened| {
        opened.volume(&world.lasting.store, world.lasting.store.all_tokens(&state.upstream.image))
    };
    match volume(&opened) {
        Ok(found) if last < intact.recovered.last() => history.knows(&found),
        Ok(found) => {
            let held = history.knows(&found).and_then(|()| history.survives(&found));
            held.or_else(|broken| {
                let taken_back = history.took_back(&found, &volume(&intact)?);
                if taken_back { Ok(()) } else { Err(broken) }
            })
        }
        Err(Broken::Damaged(_)) => Ok(()),
        Err(broken) => Err(broken),
    }
}

/// Changes one sector that was written once; how, in words.
fn spoil(world: &World<'_>, state: &State, bytes: &mut [u8], rng: &mut Rng) -> String {
    let image = &state.log.image;
    let written: Vec<usize> =
        (0..image.len()).filter(|&sector| image[sector] != Content::default()).collect();
    let mut one = || written[rng.below(written.len() as u64) as usize];
    let (sector, other) = (one(), one());
    let place = sector * SECTOR..(sector + 1) * SECTOR;
    let store = &world.lasting.store;
    // An old super block is valid: a device that loses the write of one is beyond what a log can notice.
    let kind = if sector < SUPERS as usize / SECTOR { 0 } else { rng.below(3) };
    let how = match kind {
        0 => {
            bytes[place.start + rng.below(SECTOR as u64) as usize] ^= 1 << rng.below(8);
            "has a flipped bit"
        }
        1 => {
            bytes[place].copy_from_slice(store.bytes(world.log.stale(sector)));
            "has what was there before"
        }
        _ => {
            bytes[place].copy_from_slice(store.bytes(image[other]));
            "has what belongs elsewhere"
        }
    };
    format!("sector {sector} {how}")
}
