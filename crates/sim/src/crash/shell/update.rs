//! Updates: commands of several I/Os upstream, as the gateway's tasks make them.

use super::super::bug::Bug;
use super::super::content::{Content, SECTOR, Store, fill};
use super::super::events::Event as Happening;
use super::super::history::{Broken, History};
use super::super::journal::Record;
use super::super::lasting::Lasting;
use super::super::plan::Update;
use super::{Asked, Effect, Fault, Io, Shell};
use std::ops::Range;
use weir_flow::pipeline::StoreIo;
use weir_flow::request::Tag;

/// An update that a host waits for.
#[derive(Clone)]
pub(super) struct Updating {
    pub(super) sectors: Range<u32>,
    update: Update,
    /// Its change, unless it is to find a difference.
    place: Option<usize>,
    /// What is to be found, for a comparison.
    expected: Vec<u64>,
    /// What is to be there then; an OR operand has zeroes where it changes nothing.
    data: Vec<u8>,
    /// What an OR has made of its operand and what it has read.
    result: Option<Vec<u8>>,
    step: Step,
    /// What was there before the upstream lost something while this was reading: it may have read that.
    faded: Option<Box<History>>,
    /// It has compared, and found this.
    equal: Option<bool>,
}

/// What it does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin,
    Read,
    Write,
    ReadBack,
    Journal,
    InPlace,
    Clear,
}

impl Updating {
    /// The host gets its answer; what it has compared with may be of the owner of the unit, if that is not this gateway.
    pub(super) fn answered(&self, history: &mut History, owns: bool) -> Result<(), Broken> {
        match (self.place, self.equal) {
            (Some(place), Some(false)) if self.update == Update::Compare => {
                // Another host may have lost what was there from a cache of the upstream meanwhile.
                history.refused(place);
                let is = |(sector, &token): (u32, &u64)| history.newest(sector) == Some(token);
                if owns && self.sectors.clone().zip(&self.expected).all(is) {
                    return Err(Broken::Read(format!(
                        "COMPARE AND WRITE of sectors {:?} finds a difference from what is there",
                        self.sectors
                    )));
                }
            }
            (Some(place), _) => history.acked(place),
            (None, _) => {}
        }
        Ok(())
    }
}

impl Updating {
    /// The upstream loses something: what it had may have been read already.
    pub(super) fn doubt(&mut self, history: &History) {
        if self.step == Step::Read {
            self.faded.get_or_insert_with(|| Box::new(history.clone()));
        }
    }

    /// An OR has read this: what it writes, and what that leaves in each sector, follows from it. What another host has
    /// written to a cache of the upstream may have been lost since it arrived.
    fn ors(
        &mut self,
        read: &[u8],
        (history, store): (&mut History, &mut Store),
    ) -> Result<(), Broken> {
        let Some(place) = self.place else { unreachable!("an OR changes something") };
        let again = self.result.is_some();
        let data: Vec<u8> = self.data.iter().zip(read).map(|(ours, has)| ours | has).collect();
        for (sector, has) in self.sectors.clone().zip(read.as_chunks::<SECTOR>().0) {
            let has = store.known(has);
            let is = |history: &History| history.may_read(place, (sector, has), again);
            if !is(history) && !self.faded.as_deref().is_some_and(is) {
                let text = format!(
                    "ORWRITE of {:?} has read something else from sector {sector} than was there",
                    self.sectors
                );
                return Err(Broken::Read(text));
            }
        }
        let tokens: Vec<u64> =
            data.as_chunks::<SECTOR>().0.iter().map(|bytes| store.number(bytes)).collect();
        history.leaves(place, &tokens);
        self.result = Some(data);
        Ok(())
    }

    /// It was not begun.
    pub(super) fn refused(&self, history: &mut History) {
        if let Some(place) = self.place {
            history.refused(place);
        }
    }
}

impl Shell<'_> {
    /// A host begins an update.
    pub(super) fn updating(&mut self, sectors: Range<u32>, update: Update) -> Updating {
        self.lasting.events.count(Happening::Update);
        let history = &mut self.lasting.history;
        let mut expected: Vec<u64> =
            sectors.clone().map(|sector| history.newest(sector).unwrap_or(0)).collect();
        let mut tokens: Vec<u64> =
            sectors.clone().map(|sector| history.next_token(sector)).collect();
        let mut data = vec![0; sectors.len() * SECTOR];
        let ors = |before: u64| update == Update::Or && before != 0;
        for ((bytes, token), &before) in
            data.chunks_exact_mut(SECTOR).zip(&mut tokens).zip(&expected)
        {
            if ors(before) { *token = before } else { fill(*token, bytes) }
        }
        let place = (update != Update::Differ)
            .then(|| history.arrive_update(sectors.clone(), &tokens, update == Update::Atomic));
        if place.is_none() {
            // What was never there.
            expected.fill(u64::MAX);
        }
        let (step, result, faded, equal) = (Step::Begin, None, None, None);
        Updating { sectors, update, place, expected, data, result, step, faded, equal }
    }

    /// The pipeline has handed an update to the upstream, perhaps once more.
    pub(super) fn begin_update(&mut self, io: StoreIo) -> Result<(), Fault> {
        let Some(Asked::Update(update)) = self.asked.get(&io.tag) else {
            unreachable!("hosts ask for updates")
        };
        if update.update == Update::Atomic {
            if self.journaling.is_some_and(|tag| tag != io.tag) {
                self.journal_waits.push_back(io);
                return Ok(());
            }
            self.journaling = Some(io.tag);
        }
        let again = update.step != Step::Begin;
        let first = match (update.update, update.equal) {
            (Update::Verify, _) => Step::Write,
            (Update::Compare | Update::Differ, Some(true)) if !self.is(Bug::ComparedAgain) => {
                Step::Write
            }
            (Update::Atomic, _) => Step::Journal,
            _ => Step::Read,
        };
        self.lasting.events[Happening::UpdateAgain] += u64::from(again);
        self.step(io, first)
    }

    fn step(&mut self, io: StoreIo, step: Step) -> Result<(), Fault> {
        let Some(Asked::Update(update)) = self.asked.get_mut(&io.tag) else {
            unreachable!("as it began")
        };
        update.step = step;
        update.faded = None;
        let first = update.sectors.start;
        match step {
            Step::Begin => unreachable!("no step"),
            Step::Read | Step::ReadBack => {
                let bytes = self.upstream_bytes(&io);
                self.ios.push(Io::Store(io, Effect::Read(bytes)));
            }
            // Each step is a separate command, which the target may refuse.
            Step::Write | Step::InPlace if self.is_refused() => {
                self.ios.push(Io::Store(io, Effect::Conflict));
            }
            Step::Write | Step::InPlace => {
                let contents = self.contents_of(io.tag);
                let id = self.target.device.begin(first, contents);
                self.ios.push(Io::Store(io, Effect::Write(id)));
            }
            Step::Journal => {
                let contents = self.contents_of(io.tag);
                self.lasting.journal.begin(Some(Record { first, contents }));
                if self.is(Bug::AtomicRecordVolatile) {
                    return self.step(io, Step::InPlace);
                }
                self.ios.push(Io::Journal(io));
            }
            Step::Clear => {
                self.lasting.journal.begin(None);
                self.ios.push(Io::Journal(io));
            }
        }
        self.point()
    }

    /// What an update writes.
    fn contents_of(&mut self, tag: Tag) -> Vec<Content> {
        let Some(Asked::Update(update)) = self.asked.get(&tag) else { unreachable!("as it began") };
        let store = &mut self.lasting.store;
        let data = update.result.as_ref().unwrap_or(&update.data);
        data.as_chunks::<SECTOR>().0.iter().map(|bytes| store.name(bytes)).collect()
    }

    /// The journal has what a step has written.
    pub(super) fn journaled(&mut self, io: StoreIo) -> Result<(), Fault> {
        let Some(Asked::Update(update)) = self.asked.get(&io.tag) else { return Ok(()) };
        if update.step == Step::Journal {
            return self.step(io, Step::InPlace);
        }
        self.end_update(io)
    }

    /// All steps are done.
    fn end_update(&mut self, io: StoreIo) -> Result<(), Fault> {
        self.stored(io.key, Ok(()));
        let Some(Asked::Update(update)) = self.asked.get(&io.tag) else {
            unreachable!("as it began")
        };
        if update.update == Update::Atomic {
            self.journaling = None;
            if let Some(next) = self.journal_waits.pop_front() {
                self.point()?;
                return self.begin_update(next);
            }
        }
        self.point()
    }

    /// The upstream has done a step of an update, and has read this if it was to read.
    pub(super) fn updated(&mut self, io: StoreIo, read: Option<&[u8]>) -> Result<(), Fault> {
        let ignores = self.is(Bug::MiscompareWritten);
        let owns = self.target.rival.is_none();
        let Some(Asked::Update(update)) = self.asked.get_mut(&io.tag) else {
            unreachable!("as it began")
        };
        let read = read.unwrap_or_default();
        let sectors = read.as_chunks::<SECTOR>().0;
        let next = match (update.step, update.update) {
            // Of data of another gateway nothing follows: the write is refused.
            (Step::Read, Update::Or) if !owns => Some(Step::Write),
            (Step::Read, Update::Or) => {
                let Lasting { history, store, .. } = &mut *self.lasting;
                update.ors(read, (history, store))?;
                Some(Step::Write)
            }
            (Step::Read, _) => {
                let store = &self.lasting.store;
                let is = |(has, &token)| store.known(has) == Some(token);
                let equal = sectors.iter().zip(&update.expected).all(is);
                update.equal = Some(equal);
                self.lasting.events[Happening::Miscompare] += u64::from(!equal);
                (equal || ignores).then_some(Step::Write)
            }
            (Step::Write, Update::Verify) => Some(Step::ReadBack),
            (Step::ReadBack, _) => {
                // What another gateway has written since is no fault of this one.
                if owns && read != update.data {
                    let text = format!("WRITE AND VERIFY of {:?} reads other data", update.sectors);
                    return Err(Broken::Read(text).into());
                }
                None
            }
            (Step::InPlace, _) => Some(Step::Clear),
            _ => None,
        };
        let next = next.filter(|&step| step != Step::Clear || !self.is(Bug::AtomicRecordKept));
        if let Some(next) = next {
            return self.step(io, next);
        }
        self.end_update(io)
    }

    /// An update that does not wait for the log.
    pub(super) fn update_past_log(&mut self, tag: Tag) -> Result<(), Fault> {
        let Some(Asked::Update(update)) = self.asked.get(&tag) else { unreachable!("just asked") };
        let (first, place) = (update.sectors.start, update.place);
        if place.is_some() {
            let contents = self.contents_of(tag);
            let id = self.target.device.begin(first, contents);
            self.target.device.end_durable(id);
        }
        self.told(tag, Ok(()))
    }
}
