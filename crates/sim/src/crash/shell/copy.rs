//! EXTENDED COPY, as the gateway's jobs make it: pieces that are read and then written, each by one request.
//!
//! It models `crates/serve/src/tasks/jobs/copy.rs`: the requests go through the whole pipeline, on the link of the host that
//! has asked; one that finds no room is made again; a copy onto its source begins at the end; the host hears of the end
//! of the last request, or of the first that fails. Another gateway's take-over and a stop end it without an answer.
//!
//! The other volume has no log. What it has written is there at once, and it loses nothing: what a volume without a log
//! promises is not what is tested here.

use super::super::bug::Bug;
use super::super::content::{Content, Image, SECTOR, fill};
use super::super::events::Event as Happening;
use super::super::history::{Broken, History};
use super::super::lasting::Lasting;
use super::super::plan::{Between, Copy};
use super::{Asked, Fault, Io, OTHER, Shell, VOLUME, bytes, sector};
use std::ops::Range;
use weir_flow::error::IoError;
use weir_flow::pipeline::{Input, StoreIo};
use weir_flow::request::{BackendId, LinkId, Op, Outcome, PathId, Request, Tag, TenantId};

/// A copy that a host waits for.
#[derive(Clone)]
pub(super) struct Copying {
    host: u64,
    pub(super) copy: Copy,
    /// What the source has, unless the upstream loses it meanwhile.
    expected: Option<Vec<Option<u64>>>,
    done: u32,
    /// What was read waits to be written.
    full: Option<Vec<u8>>,
    /// The bytes of the piece before, for a planted bug that writes them again.
    stale: Vec<u8>,
    /// What was written: the places of the changes, and whether they went past the log.
    written: Vec<(usize, bool)>,
}

impl Copying {
    pub(super) fn new(host: u64, copy: Copy, lasting: &Lasting) -> Self {
        let Lasting { history, store, other, .. } = lasting;
        let has = |sector: u32| match copy.between {
            Between::Into => store.token(other[sector as usize]),
            Between::Within | Between::OutOf => history.newest(sector),
        };
        let expected = (!history.has_faded()).then(|| copy.from.clone().map(has).collect());
        let (done, full, stale, written) = (0, None, Vec::new(), Vec::new());
        Self { host, copy, expected, done, full, stale, written }
    }

    /// The upstream has lost something: what the source has is not known any more.
    pub(super) fn doubt(&mut self) {
        self.expected = None;
    }

    /// Sectors from the start of the copy on: its next piece.
    fn piece(&self, most: u32, begins_at_its_end: bool) -> Range<u32> {
        let length = self.copy.from.len() as u32;
        let count = most.min(length - self.done);
        let first = if begins_at_its_end { length - self.done - count } else { self.done };
        first..first + count
    }

    /// Whether a piece of the source is as it should be.
    fn check(&self, piece: &Range<u32>, has: &[Option<u64>]) -> Result<(), Broken> {
        let Some(expected) = &self.expected else { return Ok(()) };
        let expected = &expected[piece.start as usize..piece.end as usize];
        let Some(wrong) = has.iter().zip(expected).position(|(has, expected)| has != expected)
        else {
            return Ok(());
        };
        Err(Broken::Copied(format!(
            "a {} has read something else from sector {} than was there",
            self.copy,
            self.copy.from.start + piece.start + wrong as u32
        )))
    }

    /// Whether the target is as it should be.
    fn is_done(&self, history: &History, other: &[Option<u64>]) -> Result<(), Broken> {
        let Some(expected) = &self.expected else { return Ok(()) };
        let has = |sector: u32| match self.copy.between {
            Between::OutOf => other[sector as usize],
            Between::Within | Between::Into => history.newest(sector),
        };
        let mut sectors = self.copy.to.clone().zip(expected);
        let Some((wrong, _)) = sectors.find(|&(sector, expected)| has(sector) != *expected) else {
            return Ok(());
        };
        Err(Broken::Copied(format!(
            "a {} was answered well, and sector {wrong} does not have what the source had",
            self.copy
        )))
    }
}

/// What the other volume begins with.
pub(in super::super) fn other_volume(lasting: &mut Lasting, sectors: u32) -> Image {
    let mut one = |sector: u32| {
        let mut bytes = [0; SECTOR];
        fill(OF_OTHER + u64::from(sector), &mut bytes);
        lasting.store.name(&bytes)
    };
    (0..sectors).map(&mut one).collect()
}

/// Numbers of what the other volume begins with, which no host writes.
const OF_OTHER: u64 = 1 << 59;

impl Shell<'_> {
    /// A host asks for a copy.
    pub(super) fn ask_copy(&mut self, tag: Tag, host: u64, copy: Copy) -> Result<(), Fault> {
        self.lasting.events.count(Happening::Copy);
        let across = copy.between != Between::Within;
        self.lasting.events[Happening::CopyAcross] += u64::from(across);
        self.lasting.events[Happening::CopyOverlap] += u64::from(copy.begins_at_its_end());
        let copying = Copying::new(host, copy, self.lasting);
        self.asked.insert(tag, Asked::Copy(copying));
        self.copy_on(tag)
    }

    /// Makes the next request of a copy, or ends it.
    pub(super) fn copy_on(&mut self, tag: Tag) -> Result<(), Fault> {
        let Some(Asked::Copy(copying)) = self.asked.get(&tag) else { return Ok(()) };
        if self.tenure.stopping || self.target.rival.is_some() {
            return self.copied(tag, false);
        }
        let Copying { copy, done, full, host, .. } = copying;
        if *done as usize == copy.from.len() {
            return self.copied(tag, true);
        }
        let begins_at_its_end = copy.begins_at_its_end() && !self.is(Bug::CopyForwards);
        let piece = copying.piece(self.plan.copies, begins_at_its_end);
        let last = *done as usize + piece.len() == copy.from.len();
        let [(from_other, from), (to_other, to)] = copy.touches();
        let writes = full.is_some();
        let (other, start) = if writes { (to_other, to.start) } else { (from_other, from.start) };
        let sectors = start + piece.start..start + piece.end;
        if writes && !other && self.meets(&[(false, sectors.clone())], Some(tag)) {
            // As for what hosts ask for: the order of requests is to be that of the log.
            self.ios.push(Io::CopyOn(tag));
            return Ok(());
        }
        // The link of another host, which flushes.
        let hosts = self.plan.lives.iter().flatten().map(|ask| ask.host);
        let last_host = hosts.max().unwrap_or(0);
        let host = if self.is(Bug::CopyOnOtherLink) { last_host } else { *host };
        let single = self.is(Bug::HostsTakenForOne);
        let data = full.clone().map(|data| {
            let stale = &copying.stale;
            let wrong = self.is(Bug::CopyStaleBuffer) && stale.len() == data.len();
            if wrong { stale.clone() } else { data }
        });
        self.lasting.tags += 1;
        let step = Tag(self.lasting.tags);
        let (history, store) = (&mut self.lasting.history, &self.lasting.store);
        let asked = match (&data, other) {
            (_, true) => Asked::Other { of: tag },
            (None, false) => {
                let before = history.settled();
                Asked::Read { sectors: sectors.clone(), before, faded: None, of: Some(tag) }
            }
            (Some(data), false) => {
                let known = data.as_chunks::<SECTOR>().0.iter().map(|bytes| store.known(bytes));
                let tokens: Vec<u64> = known.map(|token| token.unwrap_or(0)).collect();
                let place = history.arrive_copy(sectors.clone(), &tokens);
                let (sectors, of) = (sectors.clone(), Some(tag));
                Asked::Change { place, sectors, fua: false, direct: false, of }
            }
        };
        let op = if data.is_some() { Op::Write } else { Op::Read };
        self.tell(|| format!("request {} of the copy {}: {op:?} of {sectors:?}", step.0, tag.0));
        self.memory
            .payloads
            .insert(step, data.unwrap_or_else(|| vec![0xcc; sectors.len() * SECTOR]));
        let early = (writes && last && self.is(Bug::CopyAnsweredEarly)).then_some(&asked);
        if let Some(&Asked::Change { place, direct, .. }) = early
            && let Some(Asked::Copy(copying)) = self.asked.get_mut(&tag)
        {
            copying.written.push((place, direct));
        }
        let early = early.is_some();
        self.begin(step, asked);
        self.told.push_back(Input::Arrive(Request {
            tag: step,
            tenant: TenantId::new(0),
            volume: if other { OTHER } else { VOLUME },
            link: LinkId::new(if single { 0 } else { host as u32 }),
            op,
            extent: bytes(&sectors),
            fua: false,
            ordered: false,
            job: true,
        }));
        if op == Op::Read && self.is(Bug::CopyPastTheLog) && !other {
            let image = self.target.device.visible();
            let payload = self.memory.payloads.remove(&step).map(|mut payload| {
                self.lasting.store.read(image, bytes(&sectors).offset, &mut payload);
                payload
            });
            let read = self.asked.remove(&step).expect("just asked");
            self.told.pop_back();
            return self.copy_stepped(tag, read, Ok(()), payload);
        }
        if early { self.copied(tag, true) } else { Ok(()) }
    }

    /// The host of a copy is one that writes when the first write of the copy arrives: what is acknowledged while the copy
    /// still reads is no barrier because of it.
    pub(super) fn copy_writes(&mut self, input: &Input) {
        if let Input::Arrive(Request { tag, volume, op: Op::Write, .. }) = input
            && *volume == VOLUME
            && let Some(copy) = self.asked.get(tag).and_then(Asked::of_copy)
            && let Some(Asked::Copy(copying)) = self.asked.get(&copy)
        {
            self.hosts.entry(copying.host).or_default();
        }
    }

    /// A request of a copy has ended.
    pub(super) fn copy_stepped(
        &mut self,
        tag: Tag,
        step: Asked,
        outcome: Outcome,
        payload: Option<Vec<u8>>,
    ) -> Result<(), Fault> {
        if let (Asked::Change { place, .. }, Err(IoError::Busy)) = (&step, outcome) {
            self.lasting.history.refused(*place);
        }
        // The host may have its answer, by a planted bug.
        let Some(Asked::Copy(copying)) = self.asked.get(&tag) else { return Ok(()) };
        let mut copying = copying.clone();
        let rival = self.target.rival.is_some();
        let begins_at_its_end = copying.copy.begins_at_its_end() && !self.is(Bug::CopyForwards);
        let piece = copying.piece(self.plan.copies, begins_at_its_end);
        match outcome {
            Err(IoError::Busy) => {
                self.ios.push(Io::CopyOn(tag));
                return self.point();
            }
            Err(error) if rival || (error == IoError::Medium && self.lasting.lost.any()) => {
                return self.copied(tag, self.is(Bug::CopyFailureHidden));
            }
            Err(error) => {
                let text = format!("a {} has met an error: {error}", copying.copy);
                return Err(Broken::Stuck(text).into());
            }
            Ok(()) => {}
        }
        match step {
            Asked::Change { .. } | Asked::Other { .. } if copying.full.is_some() => {
                if let Asked::Change { place, direct, .. } = step {
                    self.lasting.history.part_done(place);
                    copying.written.push((place, direct));
                }
                copying.stale = copying.full.take().expect("it was written");
                copying.done += piece.len() as u32;
            }
            step => {
                let data = payload.expect("a read has memory");
                if !rival {
                    if let Asked::Read { sectors, before, faded, .. } = step {
                        self.returned(sectors, (before, faded.as_deref()), &data)?;
                    }
                    let store = &self.lasting.store;
                    let has = data.as_chunks::<SECTOR>().0.iter().map(|bytes| store.known(bytes));
                    copying.check(&piece, &has.collect::<Vec<_>>())?;
                }
                copying.full = Some(data);
            }
        }
        self.asked.insert(tag, Asked::Copy(copying));
        self.point()?;
        self.copy_on(tag)
    }

    /// A copy has ended. The host gets its answer, which says how much of one that has failed is written.
    fn copied(&mut self, tag: Tag, good: bool) -> Result<(), Fault> {
        let Some(Asked::Copy(copying)) = self.asked.remove(&tag) else {
            unreachable!("it has not ended")
        };
        let how = if good { "done" } else { "given up" };
        self.tell(|| format!("request {}, a copy, is {how}", tag.0));
        if good {
            let Lasting { history, store, other, .. } = &*self.lasting;
            copying.is_done(history, &store.all_tokens(other))?;
        }
        for &(place, direct) in &copying.written {
            self.change_acked(place, false, direct);
        }
        self.point()
    }

    /// An I/O of the other volume ends.
    pub(super) fn end_other(&mut self, io: &StoreIo) {
        let (first, count) = (sector(io.extent.offset) as usize, sector(io.extent.length) as usize);
        let at = io.offset_in_request;
        let Lasting { store, other, .. } = &mut *self.lasting;
        match io.op {
            Op::Read => {
                let payload = self.memory.payload(io.tag, at, io.extent.length);
                store.read(other, io.extent.offset, payload);
            }
            Op::Write => {
                let bytes = &self.memory.payloads[&io.tag][at as usize..];
                let contents = bytes.as_chunks::<SECTOR>().0.iter().take(count);
                let contents: Vec<Content> = contents.map(|bytes| store.name(bytes)).collect();
                other[first..first + count].copy_from_slice(&contents);
            }
            op => unreachable!("no copy does this: {op:?}"),
        }
        self.stored(io.key, Ok(()));
    }

    /// The path to the other volume is given up, and is back at once.
    pub(super) fn reset_other(&mut self, backend: BackendId, path: PathId) {
        for io in std::mem::take(&mut self.ios) {
            match io {
                Io::Other(io) => self.stored(io.key, Err(IoError::PathFailed)),
                io => self.ios.push(io),
            }
        }
        self.told.push_back(Input::PathUp(backend, path));
    }
}
