//! What hosts ask, and what they are told.

use super::super::bug::Bug;
use super::super::content::{Content, SECTOR, fill};
use super::super::history::Broken;
use super::super::plan::{Ask, What};
use super::{Asked, Fault, Shell, VOLUME, bytes};
use slotmap::{Key as _, KeyData};
use std::ops::Range;
use weir_flow::cache::writeback::{Kind, Mode, Order, Origin, Sync};
use weir_flow::error::IoError;
use weir_flow::request::{Outcome, RequestKey};

impl Shell<'_> {
    /// A host asks for something.
    pub(super) fn ask(&mut self, ask: &Ask) -> Result<(), Fault> {
        self.lasting.keys += 1;
        let key = RequestKey::from(KeyData::from_ffi(self.lasting.keys | 1 << 32));
        let number = key.data().as_ffi() & u64::from(u32::MAX);
        self.tell(|| format!("request {number} of {ask}"));
        let initiator = if self.is(Bug::HostsTakenForOne) { 0 } else { ask.host };
        let who = Origin { initiator, ..Origin::default() };
        let flushes = matches!(ask.what, What::Flush | What::Write { fua: true, .. });
        if !matches!(ask.what, What::Read(_)) {
            *self.hosts.entry(ask.host).or_default() |= flushes;
        }
        let before = self.lasting.history.last_acked();
        match &ask.what {
            What::Flush => {
                self.asked.insert(key, Asked::Flush { before });
                if self.is(Bug::FlushAnsweredAtOnce) {
                    return self.told(key, Ok(()));
                }
                self.log.flush(self.now, key, who);
                Ok(())
            }
            What::Read(sectors) => {
                let sectors = sectors.clone();
                let before = self.lasting.history.settled();
                self.asked.insert(key, Asked::Read { sectors, before, begun: false });
                Ok(())
            }
            What::Write { sectors, fua } => {
                let place = self.lasting.history.arrive(sectors.clone(), false);
                let mut payload = vec![0; sectors.len() * SECTOR];
                for (bytes, sector) in payload.chunks_exact_mut(SECTOR).zip(sectors.clone()) {
                    fill(self.lasting.history.written(place, sector), bytes);
                }
                self.payloads.insert(key, payload);
                self.change(key, Kind::Write, place, sectors, *fua, who)
            }
            What::Zero(sectors) => {
                let place = self.lasting.history.arrive(sectors.clone(), true);
                self.change(key, Kind::Zero, place, sectors, false, who)
            }
            What::Unmap(sectors) => {
                let place = self.lasting.history.arrive(sectors.clone(), true);
                self.change(key, Kind::Unmap, place, sectors, false, who)
            }
        }
    }

    pub(super) fn change(
        &mut self,
        key: RequestKey,
        kind: Kind,
        place: usize,
        sectors: &Range<u32>,
        fua: bool,
        who: Origin,
    ) -> Result<(), Fault> {
        let extent = bytes(sectors);
        let sectors = sectors.clone();
        self.asked.insert(key, Asked::Change { place, sectors: sectors.clone(), fua, told: false });
        if !self.is(Bug::WriteKeepsOldLines) {
            self.lines.wrote(VOLUME, extent);
        }
        if kind == Kind::Unmap && self.is(Bug::UnmapPastTheLog) {
            let id = self.far.begin(sectors.start, sectors.map(|_| Content::default()));
            self.far.end(id);
            return self.told(key, Ok(()));
        }
        let fua = fua && !self.is(Bug::FuaIgnored);
        self.log.write(self.now, key, kind, extent, fua, who);
        Ok(())
    }

    /// A host is answered.
    pub(super) fn told(&mut self, key: RequestKey, outcome: Outcome) -> Result<(), Fault> {
        let number = key.data().as_ffi() & u64::from(u32::MAX);
        self.tell(|| format!("request {number} is answered: {outcome:?}"));
        let asked = self.asked.remove(&key).expect("an answer is to something");
        self.payloads.remove(&key);
        let history = &mut self.lasting.history;
        let upstream = self.plan.settings.sync == Sync::Upstream;
        let strict =
            self.plan.settings.order == Order::Strict || self.hosts.values().any(|&yes| !yes);
        match (asked, outcome) {
            (Asked::Change { place, .. }, Err(IoError::Busy)) => history.refused(place),
            (_, Err(error)) => {
                let text = format!("request {number} was answered with an error: {error}");
                return Err(Broken::Stuck(text).into());
            }
            (Asked::Change { told: true, .. } | Asked::Read { .. }, Ok(())) => {}
            (Asked::Change { place, sectors, fua, .. }, Ok(())) => {
                history.acked(place);
                if fua || self.plan.settings.mode == Mode::Log {
                    history.promise(place + 1);
                }
                if fua && upstream {
                    history.promise_upstream(place + 1);
                }
                if fua || strict {
                    history.barrier(place + 1);
                }
                if !self.is(Bug::WriteKeepsOldLines) {
                    self.lines.wrote(VOLUME, bytes(&sectors));
                }
            }
            (Asked::Flush { before }, Ok(())) => {
                history.promise(before);
                if upstream {
                    history.promise_upstream(before);
                }
                history.barrier(before);
            }
        }
        self.point()
    }

    /// A host is told that its write is done, which the log does not know.
    pub(super) fn tell_early(&mut self, key: RequestKey) -> Result<(), Fault> {
        let Some(Asked::Change { place, sectors, fua, told: false }) = self.asked.get(&key) else {
            return Ok(());
        };
        let (place, sectors, fua) = (*place, sectors.clone(), *fua);
        let payload = self.payloads.get(&key).cloned();
        self.told(key, Ok(()))?;
        self.asked.insert(key, Asked::Change { place, sectors, fua, told: true });
        self.payloads.extend(payload.map(|payload| (key, payload)));
        Ok(())
    }
}
