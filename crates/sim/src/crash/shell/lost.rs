//! Payload of the log that rots, and what is given up for that.

use super::super::bug::Bug;
use super::super::content::SECTOR;
use super::super::events::Event as Happening;
use super::super::forge::is_confirmed;
use super::super::lost::sectors_of;
use super::{Io, Shell, VOLUME, bytes, sector};
use weir_flow::cache::Done;
use weir_flow::cache::quarantine::LostRange;
use weir_flow::cache::writeback::{Dirty, Found};
use weir_flow::pipeline::Input;

impl Shell<'_> {
    /// A sector of payload that is not upstream rots.
    pub(super) fn decay(&mut self) {
        let mut dirty = Vec::new();
        let log = self.pipeline.cache().log(VOLUME).expect("it was opened first");
        log.look_up(bytes(&(0..self.plan.sectors)), &mut dirty);
        let spans: Vec<_> = dirty
            .into_iter()
            .filter_map(|Dirty { found, .. }| match found {
                Found::Log(span) => Some(span),
                Found::Zeroes | Found::NotYet(_) => None,
            })
            .collect();
        if spans.is_empty() {
            return;
        }
        let span = spans[self.rng.below(spans.len() as u64) as usize];
        let at = sector(span.at);
        let device = &mut self.log_device.device;
        let at_risk = device.at_risk();
        let flushed = device.left(&at_risk, &vec![false; at_risk.sectors.len()]);
        let mut whole = vec![0; flushed.len() * SECTOR];
        self.lasting.store.read(&flushed, 0, &mut whole);
        if !is_confirmed(self.plan, &whole, span.at as usize) {
            return;
        }
        let mut spoiled = *self.lasting.store.bytes(device.visible()[at as usize]);
        spoiled[self.rng.below(SECTOR as u64) as usize] ^= 1;
        let content = self.lasting.store.name(&spoiled);
        if device.rot(at, content) {
            self.lasting.lost.rots(at);
            self.lasting.events.count(Happening::Decay);
            self.tell(|| format!("sector {at} of the log device rots"));
        }
    }

    /// The ranges that are given up are to be kept.
    pub(super) fn keep_lost(&mut self, ranges: Vec<LostRange>) {
        self.tell(|| format!("{} lost ranges are being kept", ranges.len()));
        self.lasting.lost.begin(ranges);
        let told = self.is(Bug::QuarantineKeptEarly);
        if told {
            self.told.push_back(Input::Cache(Done::LostKept(VOLUME, Ok(()))));
        }
        self.ios.push(Io::Keep { told });
    }

    /// They are.
    pub(super) fn lost_kept(&mut self, told: bool) {
        self.lasting.lost.end();
        let sectors: Vec<u32> = self.lost_sectors();
        // What a host overwrites it hears of later: until then the sectors are given up as before.
        let gone = sectors.into_iter().filter(|&sector| !self.lasting.history.is_given(sector));
        let gone: Vec<u32> = gone.collect();
        self.lasting.history.give_up_more(&gone);
        if !told {
            self.told.push_back(Input::Cache(Done::LostKept(VOLUME, Ok(()))));
        }
    }

    /// The sectors that are given up now, as is kept.
    pub(super) fn lost_sectors(&self) -> Vec<u32> {
        self.lasting.lost.kept().iter().flat_map(sectors_of).collect()
    }
}
