//! Reads: what is cached, what is being fetched, and what only the log has.

use super::jobs::Fetching;
use super::{AtStorage, CacheStage, Held, RULE_FILL, RULE_HIT, RULE_LOG, State, Step, Work};
use crate::cache::lines::{Cover, FillId};
use crate::cache::prefetch::{Found, Reader};
use crate::cache::writeback::{Dirty, Found as Newer, Log, Pin};
use crate::clock::Instant;
use crate::error::IoError;
use crate::policy::Rule;
use crate::request::{Outcome, Request, RequestKey, VolumeId};
use alloc::vec::Vec;

impl CacheStage {
    /// Looks a read up, which may have waited here. `end` is the size of the volume for one that has just come,
    /// of which the prefetcher hears.
    pub(super) fn read(
        &mut self,
        now: Instant,
        key: RequestKey,
        request: &Request,
        end: Option<u64>,
    ) {
        let Request { volume, extent, .. } = *request;
        let rule = if end.is_some() { RULE_HIT } else { RULE_FILL };
        let mut dirty = core::mem::take(&mut self.dirty);
        dirty.clear();
        if let Some(log) = &self.volumes[volume.index()].log {
            log.look_up(extent, &mut dirty);
        }
        let found = self.answer(key, request, &dirty, rule);
        dirty.clear();
        self.dirty = dirty;
        if let Some(end) = end {
            let reader = Reader { volume, link: request.link };
            if !self.no_lines {
                self.judge();
                self.prefetch.read(now, reader, extent, end, found);
                self.prefetch_wishes(now);
            }
        }
    }

    /// Answers a read from the cache, makes it wait, or passes it on.
    fn answer(&mut self, key: RequestKey, request: &Request, dirty: &[Dirty], rule: Rule) -> Found {
        let Request { volume, extent, tag, fua, .. } = *request;
        let held = |state| Held { request: *request, state };
        if dirty.iter().any(|part| matches!(part.found, Newer::NotYet(_))) {
            self.held.insert(key, held(State::Waits));
            self.uncommitted.push(key);
            return Found::InFlight;
        }
        if !fua {
            self.copies.clear();
            let cover = if rule == RULE_HIT {
                self.lines.read(volume, extent, &mut self.copies)
            } else {
                // It was counted when it came, but what came ahead of it has been of use.
                self.lines.resume(volume, extent, &mut self.copies)
            };
            if cover == Cover::All {
                self.copy(tag, false);
                self.end(key, Ok(()), rule);
                return Found::Ready;
            }
        }
        if dirty.iter().map(|part| part.extent.length).sum::<u64>() == extent.length {
            let read = AtStorage { fill: None, overlay: dirty.to_vec(), pin: self.pin(volume) };
            self.overlay(key, *request, read, Ok(()));
            return Found::Ready;
        }
        if !fua && let Some(fill) = self.lines.filling(volume, extent) {
            self.held.insert(key, held(State::Waits));
            self.waiting.push((fill, key));
            return Found::InFlight;
        }
        let fill = (!fua && !self.no_lines).then(|| {
            let fill = self.lines.begin(volume, extent, false);
            for part in dirty {
                self.lines.exclude(fill, part.extent);
            }
            fill
        });
        let pin = if dirty.is_empty() { None } else { self.pin(volume) };
        let read = AtStorage { fill, overlay: dirty.to_vec(), pin };
        self.held.insert(key, held(State::AtStorage(read)));
        self.count_reads(volume, 1, extent.length);
        self.steps.push_back(Step::Pass { key, rule, durable: false });
        Found::Missing
    }

    /// Keeps what the log has now from being overwritten until it was read.
    fn pin(&mut self, volume: VolumeId) -> Option<Pin> {
        self.volumes[volume.index()].log.as_mut().map(Log::pin)
    }

    /// `more` more reads of hosts, of `begun` bytes, or fewer, are at storage; write-back yields to them.
    fn count_reads(&mut self, volume: VolumeId, more: i32, begun: u64) {
        let state = &mut self.volumes[volume.index()];
        let reads = state.reads_at_storage.checked_add_signed(more);
        state.reads_at_storage = reads.expect("a read comes back once");
        if let Some(log) = &mut state.log {
            log.set_reads(state.reads_at_storage, begun);
        }
    }

    /// Storage has answered a read.
    pub(super) fn read_ended(
        &mut self,
        now: Instant,
        key: RequestKey,
        request: Request,
        mut read: AtStorage,
        outcome: Outcome,
    ) {
        self.count_reads(request.volume, -1, 0);
        let fill = read.fill.take();
        if let Some(fill) = fill {
            self.copies.clear();
            self.lines.end(fill, outcome.is_ok(), &mut self.copies);
            self.copy(request.tag, true);
        }
        self.overlay(key, request, read, outcome);
        if let Some(fill) = fill {
            self.wake(now, fill);
        }
    }

    /// Lays over what storage said what the log has newer, and ends the read when that is done.
    fn overlay(&mut self, key: RequestKey, request: Request, read: AtStorage, outcome: Outcome) {
        let Request { volume, tag, extent, .. } = request;
        let AtStorage { overlay, pin, .. } = read;
        let Some(pin) = pin else {
            self.end(key, outcome, RULE_HIT);
            return;
        };
        let mut left = 0;
        for Dirty { extent: part, found } in overlay {
            let (offset, length) = (part.offset - extent.offset, part.length);
            if outcome.is_err() {
                break;
            }
            match found {
                Newer::Zeroes => self.work(Work::Zero { tag, offset, length }),
                Newer::Log(span) => {
                    let fetch = self.fetches.insert(Fetching::Overlay(key));
                    self.work(Work::Fetch { fetch, volume, span, tag, offset });
                    left += 1;
                }
                Newer::NotYet(_) => unreachable!("a read waits for what is not written yet"),
            }
        }
        if left > 0 {
            let state = State::Overlaid { left, outcome, pin };
            self.held.insert(key, Held { request, state });
        } else {
            self.unpin(volume, pin);
            self.end(key, outcome, RULE_HIT);
        }
    }

    fn unpin(&mut self, volume: VolumeId, pin: Pin) {
        let log = self.volumes[volume.index()].log.as_mut();
        log.expect("what was pinned is there").unpin(pin);
    }

    /// A part of a read has come from the log.
    pub(super) fn overlaid(&mut self, now: Instant, key: RequestKey, part: Outcome) {
        let Held { request, state } = self.held.remove(key).expect("it waits for its parts");
        let State::Overlaid { left, outcome, pin } = state else {
            unreachable!("only such a read has parts")
        };
        let outcome = outcome.and(part);
        if left > 1 {
            let state = State::Overlaid { left: left - 1, outcome, pin };
            self.held.insert(key, Held { request, state });
            return;
        }
        self.unpin(request.volume, pin);
        self.end(key, outcome, RULE_LOG);
        self.pump(now, request.volume);
    }

    /// A fetch has ended: the reads that waited for it are looked up again.
    pub(super) fn wake(&mut self, now: Instant, fill: FillId) {
        if self.waiting.is_empty() {
            return;
        }
        let woken: Vec<_> = self.waiting.extract_if(.., |&mut (of, _)| of == fill).collect();
        self.look_again(now, woken.into_iter().map(|(_, key)| key));
    }

    /// A log has written something: the reads that waited for that are looked up again.
    pub(super) fn committed(&mut self, now: Instant) {
        if !self.uncommitted.is_empty() {
            let woken = core::mem::take(&mut self.uncommitted);
            self.look_again(now, woken.into_iter());
        }
    }

    fn look_again(&mut self, now: Instant, keys: impl Iterator<Item = RequestKey>) {
        for key in keys {
            let Held { request, .. } = self.held.remove(key).expect("it waits");
            if self.is_lost(&request) {
                self.end(key, Err(IoError::Medium), RULE_LOG);
            } else {
                self.read(now, key, &request, None);
            }
        }
    }
}
