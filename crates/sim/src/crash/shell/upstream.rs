//! Performs upstream I/O over a path that may break.

use super::super::bug::Bug;
use super::super::content::{Content, SECTOR};
use super::super::judge::tokens;
use super::super::loss::Loss;
use super::{Asked, BACKEND, Effect, Fault, Io, PATH, Shell, sector};
use weir_flow::error::IoError;
use weir_flow::pipeline::{Input, StoreIo};
use weir_flow::request::{Op, Outcome, RequestKey};

impl Shell<'_> {
    /// An I/O of the upstream begins.
    pub(super) fn store(&mut self, io: StoreIo) -> Result<(), Fault> {
        let StoreIo { key, tag, op, extent, .. } = io;
        let (first, count) = (sector(extent.offset), sector(extent.length));
        self.tell(|| match op {
            Op::Flush => "upstream flush begins".to_owned(),
            _ => format!("upstream {op:?} of {first}..{} begins", first + count),
        });
        if let Some(Asked::Change { place, direct, .. }) = self.asked.get_mut(&tag) {
            *direct = true;
            self.lasting.history.passed(*place);
        }
        let of_host = self.asked.contains_key(&tag);
        let pays = op == Op::Flush && !of_host && self.lasting.history.is_in_debt();
        if !of_host && !matches!(op, Op::Flush | Op::Read) {
            self.lasting.history.written_back();
        }
        let effect = match op {
            Op::Flush if self.is(Bug::PassedFlushDropped) && of_host => Effect::Nothing,
            Op::Flush if self.is(Bug::DebtFlushDropped) && pays => Effect::Nothing,
            Op::Flush => {
                let flush = self.upstream.flush();
                if self.is(Bug::UpstreamFlushDropped) {
                    Effect::Nothing
                } else if self.is(Bug::UpstreamFlushAnsweredEarly)
                    || (self.is(Bug::DebtPaidEarly) && pays)
                {
                    self.ios.push(Io::Unseen { on_log: false, effect: Effect::Flush(flush) });
                    self.stored(key, Ok(()));
                    return self.point();
                } else {
                    Effect::Flush(flush)
                }
            }
            Op::Read => Effect::Read(self.upstream_bytes(&io)),
            Op::Write => {
                let at = io.offset_in_request as usize;
                let bytes = &self.memory.payloads[&tag][at..];
                let wrong =
                    self.is(Bug::StaleBuffer) && !of_host && self.memory.stale.len() >= bytes.len();
                let bytes = if wrong { &self.memory.stale } else { bytes };
                let store = &mut self.lasting.store;
                let sectors = bytes.as_chunks::<SECTOR>().0.iter().take(count as usize);
                let contents: Vec<_> = sectors.map(|bytes| store.name(bytes)).collect();
                Effect::Write(self.upstream.begin(first, contents))
            }
            Op::Discard if self.is(Bug::DiscardDropped) => Effect::Nothing,
            Op::Discard | Op::WriteZeroes => {
                Effect::Write(self.upstream.begin(first, (0..count).map(|_| Content::default())))
            }
            Op::Verify | Op::Update => unreachable!("no host asks for it"),
        };
        if self.is(Bug::UpstreamAnsweredEarly) && matches!(effect, Effect::Write(_)) {
            self.ios.push(Io::Unseen { on_log: false, effect });
            self.stored(key, Ok(()));
        } else {
            self.ios.push(Io::Store(io, effect));
        }
        self.point()
    }

    /// What the upstream has where an I/O is.
    pub(super) fn upstream_bytes(&self, io: &StoreIo) -> Vec<u8> {
        let mut bytes = vec![0; io.extent.length as usize];
        self.lasting.store.read(self.upstream.visible(), io.extent.offset, &mut bytes);
        bytes
    }

    /// An I/O of the upstream ends, well unless the link breaks now.
    pub(super) fn end_store(&mut self, io: StoreIo, effect: Effect) -> Result<(), Fault> {
        let StoreIo { key, tag, op, fua, .. } = io;
        if !matches!(effect, Effect::Flush(_) | Effect::Nothing)
            && self.rng.below(100) < self.plan.upstream_faults
        {
            if self.is(Bug::UpstreamErrorHidden)
                && let Effect::Write(id) = effect
            {
                self.tell(|| format!("upstream {op:?} has failed"));
                self.upstream.fail(id, &mut self.rng);
                self.stored(key, Ok(()));
                return self.point();
            }
            self.ios.push(Io::Store(io, effect));
            return self.break_link(false);
        }
        let of_host = self.asked.contains_key(&tag);
        self.tell(|| format!("upstream {op:?} ends"));
        match effect {
            Effect::Write(id) if fua && (of_host || !self.is(Bug::UpstreamFuaDropped)) => {
                self.upstream.end_durable(id);
            }
            Effect::Write(id) => self.upstream.end(id),
            Effect::Flush(flush) => self.upstream.settle(&flush),
            Effect::Read(early) => {
                // The upstream has read when the I/O began, or now.
                let late = self.rng.below(2) == 0;
                let data = if late { self.upstream_bytes(&io) } else { early };
                let at = io.offset_in_request;
                self.memory.payload(tag, at, data.len() as u64).copy_from_slice(&data);
            }
            Effect::Nothing => {}
        }
        self.stored(key, Ok(()));
        self.point()
    }

    pub(super) fn stored(&mut self, key: RequestKey, outcome: Outcome) {
        self.told.push_back(Input::Stored { key, outcome });
    }

    /// The link breaks; with `power` because the upstream has lost its own, and with that its cache.
    pub(super) fn break_link(&mut self, power: bool) -> Result<(), Fault> {
        if power && self.plan.settings.upstream_flush {
            let loss = Loss::ALL[self.rng.below(7) as usize];
            self.upstream.lose_cache(|at_risk| loss.keep(at_risk, &mut self.rng));
            self.tell(|| format!("the upstream loses its cache: {}", loss.name()));
            let Self { lasting, upstream, .. } = self;
            lasting.history.lost(&tokens(&lasting.store, upstream.visible()));
            if self.is(Bug::UpstreamResetUntold) {
                return self.point();
            }
        }
        if !self.down {
            self.told.push_back(Input::PathDown(BACKEND, PATH));
            self.lose_link();
        }
        self.point()
    }

    /// Nothing is on its way to the upstream any more.
    pub(super) fn lose_link(&mut self) {
        self.tell(|| "the link to the upstream is gone".to_owned());
        self.down = true;
        for io in std::mem::take(&mut self.ios) {
            let Io::Store(io, effect) = io else {
                self.ios.push(io);
                continue;
            };
            if let Effect::Write(id) = effect {
                self.upstream.fail(id, &mut self.rng);
            }
            self.stored(io.key, Err(IoError::PathFailed));
        }
    }

    pub(super) fn mend_link(&mut self) {
        self.tell(|| "the link to the upstream is back".to_owned());
        self.down = false;
        self.told.push_back(Input::PathUp(BACKEND, PATH));
    }
}
