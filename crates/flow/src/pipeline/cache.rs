//! Performs the steps of the cache stage: requests that are passed on or end, and requests of the cache itself.

use super::in_flight::InFlight;
use super::{Action, Pipeline};
use crate::cache::stage::{Begin, CacheStage, RULE_HIT, Step};
use crate::clock::Instant;
use crate::dispatch::Owner;
use crate::event::{Event, Observer, StageName};
use crate::request::{BackendId, LinkId, Outcome, Request, RequestKey, VolumeId};

impl<O: Observer> Pipeline<O> {
    /// The cache stage, read-only.
    pub const fn cache(&self) -> &CacheStage {
        &self.cache
    }

    /// Mixes a secret into the tables that find lines, so that no host can choose lines that are slow to find. It
    /// changes no decision, and is not recorded. To be called before anything comes.
    pub fn set_key(&mut self, key: u64) {
        self.cache.set_key(key);
    }

    /// Performs all steps of the cache stage.
    pub(super) fn run_cache(&mut self, now: Instant) {
        while let Some(step) = self.cache.poll() {
            match step {
                Step::Pass { key, rule, durable } => {
                    self.requests[key].request.fua |= durable;
                    self.pass(now, key, rule);
                }
                Step::End(key, outcome, rule) => {
                    self.requests[key].move_to(now, StageName::Transfer, rule);
                    self.reply(now, key, outcome);
                }
                Step::Begin(begin) => self.begin_job(now, begin),
                Step::Work(work) => self.actions.push_back(Action::Cache(work)),
                Step::Tell(volume, notice) => {
                    self.observer.event(now, Event::Cache(volume, notice));
                }
            }
        }
    }

    /// Whether a volume has lost what hosts had been told is done: no flush of a host ends well until a restart.
    pub fn is_lost(&self, volume: VolumeId) -> bool {
        self.losses.is_lost(volume)
    }

    /// The unit behind a backend says that it may have lost what it had not made durable, or with `certain` that it has.
    pub(super) fn lose(&mut self, now: Instant, backend: BackendId, certain: bool) {
        for (index, volume) in self.volumes.iter().enumerate() {
            let id = VolumeId::new(index as u32);
            // What a log has is written again, and that may be all that is lost.
            let certain = certain && volume.layout.is_on(backend) && !self.cache.has_log(id);
            if self.losses.lose((id, volume), backend, certain) {
                self.observer.event(now, Event::Lost(id));
            }
        }
        self.forget_cached(now, backend);
    }

    /// What is behind a backend may have lost what it had not made durable: it says so, or a path to it works again. A lost
    /// path alone is no sign of that, and hosts are not told that anything is lost.
    pub(super) fn forget_cached(&mut self, now: Instant, backend: BackendId) {
        for (index, volume) in self.volumes.iter().enumerate() {
            if volume.layout.is_on(backend) {
                self.cache.reset(now, VolumeId::new(index as u32));
            }
        }
    }

    /// A request of the cache's own goes to shared storage. It has no objective, counts
    /// against no limit of hosts, and waits for no other request's bytes.
    fn begin_job(&mut self, now: Instant, begin: Begin) {
        let Begin { job, tag, volume, op, extent, fua } = begin;
        let request = Request {
            tag,
            tenant: self.cache.owner(volume),
            volume,
            link: LinkId::default(),
            op,
            extent,
            fua,
            ordered: false,
            job: false,
        };
        let owner = if self.cache.is_prefetch(job) { Owner::Prefetch } else { Owner::WriteBack };
        let entry = InFlight::new(request, None, now);
        let key = self.requests.insert(InFlight { job: Some(job), owner, ..entry });
        self.pass(now, key, RULE_HIT);
    }

    /// Storage has done with a whole request.
    pub(super) fn back(&mut self, now: Instant, key: RequestKey, outcome: Outcome) {
        let entry = &mut self.requests[key];
        assert!(entry.pieces_left <= 1, "a request is back when its last piece is");
        if let Some(job) = entry.job {
            self.requests.remove(key);
            self.cache.job_ended(now, job, outcome);
        } else if self.cache.holds(key) {
            entry.stage = StageName::Cache;
            entry.entered = now;
            self.cache.passed(now, key, outcome);
        } else {
            self.reply(now, key, outcome);
        }
    }
}
