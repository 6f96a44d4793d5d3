//! Host and operator requests, and the replies to hosts.

use super::super::bug::Bug;
use super::super::content::{Content, SECTOR, fill};
use super::super::events::Event as Happening;
use super::super::history::{Broken, History};
use super::super::lasting::Lasting;
use super::super::plan::{Ask, Place, What};
use super::copy::Copying;
use super::update::Updating;
use super::{Fault, Shell, VOLUME, bytes};
use std::ops::Range;
use weir_flow::cache::Done;
use weir_flow::cache::writeback::{Log, Mode, Order, Phase, Sync};
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_flow::request::{LinkId, Op, Outcome, Request, Tag, TenantId};
use weir_flow::units::Extent;

/// What a host waits for.
#[derive(Clone)]
pub(super) enum Asked {
    Change {
        place: usize,
        sectors: Range<u32>,
        fua: bool,
        /// It has gone past the log.
        direct: bool,
        /// It is of a copy.
        of: Option<Tag>,
    },
    Flush {
        /// The number of changes up to the last one that was acknowledged before.
        before: usize,
        /// The number of changes up to the first one that was not.
        whole: usize,
    },
    Read {
        sectors: Range<u32>,
        before: usize,
        /// What was there before the upstream lost something while this was on its way: it may have read that.
        faded: Option<Box<History>>,
        /// It is of a copy.
        of: Option<Tag>,
    },
    Update(Updating),
    Copy(Copying),
    /// A request of a copy to the other volume.
    Other {
        of: Tag,
    },
    /// The host was told already.
    Told,
}

impl Asked {
    pub(super) fn told(&self) -> String {
        match self {
            Self::Change { sectors, .. } => format!("a write of {sectors:?}"),
            Self::Flush { .. } => "a flush".to_owned(),
            Self::Read { sectors, .. } => format!("a read of {sectors:?}"),
            Self::Update(update) => format!("an update of {:?}", update.sectors),
            Self::Copy(copying) => format!("a {}", copying.copy),
            Self::Other { .. } => "a request to the other volume".to_owned(),
            Self::Told => "a write that was answered too early".to_owned(),
        }
    }

    /// The copy that it is a request of.
    pub(super) const fn of_copy(&self) -> Option<Tag> {
        match self {
            Self::Change { of, .. } | Self::Read { of, .. } => *of,
            Self::Other { of } => Some(*of),
            Self::Flush { .. } | Self::Update(_) | Self::Copy(_) | Self::Told => None,
        }
    }
}

impl Shell<'_> {
    /// Whether something that is to change the volume meets something that has not ended. The pipeline would
    /// hold it back, and what is asked next might overtake it: the order in which hosts ask would
    /// not be that of the log.
    pub(super) fn collides(&self, ask: &Ask) -> bool {
        match &ask.what {
            What::Write { sectors, .. }
            | What::Zero(sectors)
            | What::Unmap(sectors)
            | What::Update(sectors, _) => self.meets(&[(false, sectors.clone())], None),
            What::Copy(copy) => self.meets(&copy.touches(), None),
            What::Read(_) | What::Flush | What::Drain(_) => false,
        }
    }

    /// Whether one of these places meets something that has not ended, but for a copy.
    pub(super) fn meets(&self, places: &[Place], but: Option<Tag>) -> bool {
        let meets = |other: &Place| {
            let mut places = places.iter();
            places.any(|place| {
                place.0 == other.0 && place.1.start < other.1.end && other.1.start < place.1.end
            })
        };
        self.asked.iter().any(|(&tag, asked)| match asked {
            // The copy itself meets what it is about.
            asked if asked.of_copy().is_some() => false,
            Asked::Change { sectors, .. }
            | Asked::Read { sectors, .. }
            | Asked::Update(Updating { sectors, .. }) => meets(&(false, sectors.clone())),
            Asked::Copy(copying) => but != Some(tag) && copying.copy.touches().iter().any(meets),
            Asked::Flush { .. } | Asked::Other { .. } => false,
            Asked::Told => true,
        })
    }

    /// The log is drained: what hosts have outstanding goes past it, also what reaches the upstream only after the log
    /// is used again.
    pub(super) fn pass_outstanding(&mut self) {
        for asked in self.asked.values() {
            if let Asked::Change { place, .. } = asked {
                self.lasting.history.passed(*place);
            }
        }
    }

    /// Whether writes go past the log.
    fn is_through(&self) -> bool {
        let through = |log: &Log| matches!(log.status(self.now).phase, Phase::Through(_));
        self.pipeline.cache().log(VOLUME).is_some_and(through)
    }

    /// A host asks for something, or the operator.
    pub(super) fn ask(&mut self, ask: &Ask) -> Result<(), Fault> {
        if let What::Drain(on) = ask.what {
            self.lasting.events.count(Happening::Drain);
            self.tell(|| ask.to_string());
            self.told.push_back(Input::Cache(Done::Drain(VOLUME, on)));
            return Ok(());
        }
        self.lasting.tags += 1;
        let tag = Tag(self.lasting.tags);
        self.tell(|| format!("request {} of {ask}", tag.0));
        let flushes = matches!(ask.what, What::Flush | What::Write { fua: true, .. });
        // An update is durable upstream: its host is not one that writes without a flush. A copy reads first.
        let writes_here = !matches!(ask.what, What::Read(_) | What::Update(..) | What::Copy(_));
        if writes_here {
            *self.hosts.entry(ask.host).or_default() |= flushes;
        }
        if let What::Copy(copy) = &ask.what {
            return self.ask_copy(tag, ask.host, copy.clone());
        }
        let history = &mut self.lasting.history;
        let (op, sectors, fua, asked) = match &ask.what {
            What::Flush => {
                let (before, whole) = (history.last_acked(), history.first_unacked());
                (Op::Flush, 0..0, false, Asked::Flush { before, whole })
            }
            What::Read(sectors) => {
                let before = history.settled();
                let asked = Asked::Read { sectors: sectors.clone(), before, faded: None, of: None };
                self.memory.payloads.insert(tag, vec![0xcc; sectors.len() * SECTOR]);
                (Op::Read, sectors.clone(), false, asked)
            }
            What::Write { sectors, fua } => {
                let place = history.arrive(sectors.clone(), false);
                let mut payload = vec![0; sectors.len() * SECTOR];
                for (bytes, sector) in payload.chunks_exact_mut(SECTOR).zip(sectors.clone()) {
                    fill(history.written(place, sector), bytes);
                }
                self.memory.payloads.insert(tag, payload);
                (Op::Write, sectors.clone(), *fua, change(place, sectors, *fua))
            }
            What::Zero(sectors) => {
                let place = history.arrive(sectors.clone(), true);
                (Op::WriteZeroes, sectors.clone(), false, change(place, sectors, false))
            }
            What::Unmap(sectors) => {
                let place = history.arrive(sectors.clone(), true);
                (Op::Discard, sectors.clone(), false, change(place, sectors, false))
            }
            What::Update(sectors, update) => {
                let asked = Asked::Update(self.updating(sectors.clone(), *update));
                (Op::Update, sectors.clone(), false, asked)
            }
            What::Copy(_) | What::Drain(_) => unreachable!("done above"),
        };
        self.begin(tag, asked);
        if op == Op::Flush && self.is(Bug::FlushAnsweredAtOnce) {
            return self.told(tag, Ok(()));
        }
        if op == Op::Update && self.is(Bug::UpdatePastTheLog) {
            return self.update_past_log(tag);
        }
        if op == Op::Discard && self.is(Bug::UnmapPastTheLog) {
            let id = self.target.device.begin(sectors.start, sectors.map(|_| Content::default()));
            self.target.device.end(id);
            return self.told(tag, Ok(()));
        }
        let link = if self.is(Bug::HostsTakenForOne) { 0 } else { ask.host as u32 };
        self.told.push_back(Input::Arrive(Request {
            tag,
            tenant: TenantId::new(0),
            volume: VOLUME,
            link: LinkId::new(link),
            op,
            extent: if op == Op::Flush { Extent::default() } else { bytes(&sectors) },
            fua: fua && !self.is(Bug::FuaIgnored),
            ordered: false,
            job: false,
        }));
        Ok(())
    }

    /// A request is about to arrive.
    pub(super) fn begin(&mut self, tag: Tag, asked: Asked) {
        if let Asked::Change { place, .. } = asked
            && self.told.is_empty()
            && self.is_through()
        {
            self.lasting.history.passed(place);
        }
        self.asked.insert(tag, asked);
    }

    /// A host is answered.
    pub(super) fn told(&mut self, tag: Tag, outcome: Outcome) -> Result<(), Fault> {
        self.tell(|| format!("request {} is answered: {outcome:?}", tag.0));
        let asked = self.asked.remove(&tag).expect("an answer is to something");
        let payload = self.memory.payloads.remove(&tag);
        if let Some(copy) = asked.of_copy() {
            return self.copy_stepped(copy, asked, outcome, payload);
        }
        let outcome = self.misjudged(&asked, outcome);
        let history = &mut self.lasting.history;
        let upstream = self.plan.settings.sync == Sync::Upstream;
        match (asked, outcome) {
            (Asked::Told, _) | (Asked::Flush { .. }, Err(IoError::Busy)) => {}
            (Asked::Change { place, .. }, Err(IoError::Busy)) => history.refused(place),
            (Asked::Update(update), Ok(())) => {
                update.answered(history, self.target.rival.is_none())?;
            }
            // Who reads while another gateway takes over may see what that one writes.
            (_, Err(_)) | (Asked::Read { .. }, Ok(())) if self.target.rival.is_some() => {}
            // What it reads cannot be read, or was given up.
            (Asked::Read { .. }, Err(IoError::Medium)) if self.lasting.lost.any() => {}
            (Asked::Update(update), Err(IoError::Medium)) if self.lasting.lost.any() => {
                update.refused(history);
            }
            // What it covers may be gone.
            (Asked::Flush { .. }, Err(IoError::Medium)) if self.unflushed.may_fail() => {}
            (Asked::Flush { .. }, Ok(())) if self.unflushed.must_fail() => {
                let text = format!(
                    "request {} was answered well, and the upstream has said that a write before it is gone",
                    tag.0
                );
                return Err(Broken::Lost(text).into());
            }
            (_, Err(error)) => {
                let text = format!("request {} was answered with an error: {error}", tag.0);
                return Err(Broken::Stuck(text).into());
            }
            (Asked::Change { place, fua, direct, .. }, Ok(())) => {
                self.change_acked(place, fua, direct);
            }
            (Asked::Flush { before, whole }, Ok(())) => history.flushed(before, whole, upstream),
            (Asked::Read { sectors, before, faded, .. }, Ok(())) => {
                let payload = payload.expect("a read has memory");
                self.returned(sectors, (before, faded.as_deref()), &payload)?;
            }
            (Asked::Copy(_) | Asked::Other { .. }, Ok(())) => unreachable!("of a copy"),
        }
        let sparse = self.plan.sparse;
        if sparse > 1 && self.losses.below(sparse) > 0 { Ok(()) } else { self.point() }
    }

    /// The host was told that a change is done.
    pub(super) fn change_acked(&mut self, place: usize, fua: bool, direct: bool) {
        let strict = match self.plan.settings.order {
            Order::Auto => self.hosts.values().any(|&flushes| !flushes),
            Order::Flush => false,
            Order::Strict => true,
        };
        if self.is(Bug::PartlyLoggedHeals) {
            let sectors = self.lasting.history.sectors(place);
            self.lasting.lost.forget(&sectors);
        }
        let lost = self.lost_sectors();
        let Lasting { history, events, .. } = &mut *self.lasting;
        history.acked(place);
        let heals = history.heals(place, &lost);
        events[Happening::Heal] += u64::from(heals);
        if direct {
            if heals {
                history.is_durable(place);
            }
            return;
        }
        if fua || heals || self.plan.settings.mode == Mode::Log {
            history.promise(place + 1);
        }
        if fua && self.plan.settings.sync == Sync::Upstream {
            history.promise_upstream(place + 1);
        }
        if fua || strict {
            history.barrier(place + 1);
        }
    }

    /// The outcome that a host gets, with a planted bug.
    fn misjudged(&self, asked: &Asked, outcome: Outcome) -> Outcome {
        let heard = matches!(asked, Asked::Flush { .. }) && self.unflushed.has_heard();
        if heard && outcome.is_err() && self.is(Bug::LossForgotten) {
            return Ok(());
        }
        if heard && outcome.is_ok() && self.is(Bug::ResetTakenForLoss) {
            return Err(IoError::Medium);
        }
        outcome
    }

    /// A read has returned these bytes.
    pub(super) fn returned(
        &mut self,
        sectors: Range<u32>,
        (before, faded): (usize, Option<&History>),
        payload: &[u8],
    ) -> Result<(), Fault> {
        let Self { lasting, plan, .. } = self;
        for (sector, bytes) in sectors.zip(payload.as_chunks::<SECTOR>().0) {
            let has = lasting.store.known(bytes);
            let seen = match lasting.history.read(sector, has, before) {
                Err(_) if faded.is_some_and(|faded| faded.read(sector, has, before).is_ok()) => {
                    continue;
                }
                seen => seen?,
            };
            // What was read must not be gone after a crash, but of a volatile cache.
            if plan.settings.mode == Mode::Log {
                lasting.history.promise_seen(seen, sector);
            }
        }
        Ok(())
    }

    /// Acknowledges a write that the log has not acknowledged.
    pub(super) fn tell_early(&mut self, tag: Tag) -> Result<(), Fault> {
        if !matches!(self.asked.get(&tag), Some(Asked::Change { .. })) {
            return Ok(());
        }
        let payload = self.memory.payloads.get(&tag).cloned();
        self.told(tag, Ok(()))?;
        self.asked.insert(tag, Asked::Told);
        self.memory.payloads.extend(payload.map(|payload| (tag, payload)));
        Ok(())
    }
}

fn change(place: usize, sectors: &Range<u32>, fua: bool) -> Asked {
    Asked::Change { place, sectors: sectors.clone(), fua, direct: false, of: None }
}
